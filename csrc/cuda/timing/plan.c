/* Timing: a CUDA graph of many launches that walks over the buffer sets, between two events.
 *
 * Events around a single launch carry a bias of microseconds; around a graph of many launches they agree with the
 * kernels' own timestamps, and each launch pays for the write-back of the one before it, as in real use.
 *
 * The L2's persisting lines are not reset before a plan. Nothing here makes any, those of others do not hold our data,
 * and the reset has a price: on an H200 (driver 580), from its eighth call in a process on, every later launch takes
 * 0.18 us longer, in graphs too and for good (1 MiB written in 1.08 us, then in 1.26). */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/order.h"
#include "cuda/timing/plan.h"

/* Plain launches before the capture: at least WARM_LAUNCHES, of which up to HOST_SAMPLES are timed on the host. */
enum { WARM_LAUNCHES = 6, HOST_SAMPLES = 15 };

bw_status bw_cuda_plan_launch(bw_device *device, const bw_plan_spec *spec, int64_t index) {
    if (!spec->variant) return bw_cuda_launch_empty(device);
    return spec->variant->launch(&spec->sets[index % spec->set_count]);
}

/* Each set once, outside any capture: modules are loaded and a failing kernel shows itself by its own name. The first
 * launch, which may load code, is not timed; later ones past HOST_SAMPLES may wait for room in the queue. */
static bw_status warm_up(bw_plan *plan, const bw_plan_spec *spec) {
    bw_device *device = plan->device;
    double samples[HOST_SAMPLES];
    int timed = 0;
    int64_t launches = bw_max64(spec->variant ? spec->set_count : 1, WARM_LAUNCHES);
    BW_TRY(bw_cuda_plan_launch(device, spec, 0));
    BW_TRY(BW_CUDA(&device->api, stream_synchronize(device->stream)));
    for (int64_t i = 1; i < launches; i++) {
        int64_t before = bw_now_ns();
        BW_TRY(bw_cuda_plan_launch(device, spec, i));
        if (timed < HOST_SAMPLES) samples[timed++] = (double)(bw_now_ns() - before);
    }
    plan->host_ns = bw_median(samples, timed);
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

/* Always leaves the stream out of capture; a graph that is only a part of what was asked for is destroyed. */
static bw_status capture(bw_device *device, const bw_plan_spec *spec, cudaGraph_t *out) {
    bw_cuda_api *api = &device->api;
    BW_TRY(BW_CUDA(api, begin_capture(device->stream, cudaStreamCaptureModeThreadLocal)));
    bw_status status = BW_OK;
    for (int64_t i = 0; i < spec->launches && !status; i++) status = bw_cuda_plan_launch(device, spec, i);
    cudaGraph_t graph = NULL;
    bw_status ended = BW_CUDA(api, end_capture(device->stream, &graph));
    if (ended && !graph) {
        /* A test's planned failure keeps the call from being made, which would leave the stream capturing. */
        (void)api->end_capture(device->stream, &graph);
        (void)api->last_error();
    }
    status = bw_status_first(status, ended);
    if (status && graph) {
        BW_CUDA_IGNORE(api, graph_destroy(graph));
        graph = NULL;
    }
    *out = graph;
    return status;
}

static bw_status build_graph(bw_plan *plan, const bw_plan_spec *spec) {
    bw_cuda_api *api = &plan->device->api;
    cudaGraph_t graph = NULL;
    BW_TRY(capture(plan->device, spec, &graph));
    bw_status status = BW_CUDA(api, graph_instantiate(&plan->graph, graph, 0));
    BW_CUDA_IGNORE(api, graph_destroy(graph));
    BW_TRY(status);
    BW_TRY(BW_CUDA(api, graph_upload(plan->graph, plan->device->stream)));
    return BW_CUDA(api, stream_synchronize(plan->device->stream));
}

static bw_status make_flush(bw_plan *plan, int64_t bytes) {
    bw_device *device = plan->device;
    if (bytes <= 0) return BW_OK;
    plan->flush_bytes = bytes;
    BW_TRY(BW_CUDA(&device->api, memory_allocate(&plan->flush, (size_t)bytes)));
    return BW_CUDA(&device->api, memory_set(plan->flush, 0x5a, (size_t)bytes, device->stream));
}

static bw_status flush_cache(bw_plan *plan) {
    bw_device *device = plan->device;
    if (!plan->flush) return BW_OK;
    if (plan->spec.flush != BW_FLUSH_READ) {
        BW_TRY(BW_CUDA(&device->api, memory_set(plan->flush, 0x5a, (size_t)plan->flush_bytes, device->stream)));
    }
    if (plan->spec.flush == BW_FLUSH_MEMSET) return BW_OK;
    return bw_cuda_launch_flush(device, plan->flush, plan->flush_bytes);
}

static bw_status before_replay(void *context) {
    bw_plan *plan = context;
    BW_TRY(flush_cache(plan));
    return bw_cuda_trace_drop(plan);
}

static bw_status check_spec(const bw_plan_spec *spec) {
    if (spec->launches < 1) {
        return bw_fail(BW_CODE_INVALID, "a plan of %lld launches: at least 1 is needed", (long long)spec->launches);
    }
    if ((spec->variant || spec->callable) && spec->set_count < 1) {
        return bw_fail(BW_CODE_INVALID, "a plan over %lld buffer sets: at least 1 is needed",
                       (long long)spec->set_count);
    }
    return BW_OK;
}

static bw_status prepare_plan(bw_plan *plan, const bw_plan_spec *spec) {
    BW_TRY(bw_cuda_enter(plan->device));
    BW_TRY(bw_cuda_counters_quiet(plan->device));
    BW_TRY(bw_replay_open(plan->device, &plan->replay));
    if (spec->callable) return bw_cuda_call_prepare(plan);
    BW_TRY(make_flush(plan, spec->flush_bytes));
    BW_TRY(flush_cache(plan));
    BW_TRY(warm_up(plan, spec));
    if (spec->trace || spec->timer == BW_CUDA_TIMER_CUPTI) BW_TRY(bw_cuda_trace_create(plan));
    return spec->timer == BW_CUDA_TIMER_GRAPH ? build_graph(plan, spec) : bw_cuda_timer_create(plan);
}

bw_status bw_cuda_plan_create(bw_device *device, const bw_plan_spec *spec, bw_plan **out) {
    BW_TRY(check_spec(spec));
    bw_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return bw_fail(BW_CODE_MEMORY, "out of host memory for a plan");
    plan->device = device;
    plan->spec = *spec;
    plan->host_ns = NAN;
    plan->kernels = (bw_kernel_times){NAN, NAN};
    bw_status status = prepare_plan(plan, spec);
    if (status) {
        bw_cuda_plan_free(plan);
        return status;
    }
    *out = plan;
    return BW_OK;
}

bw_status bw_cuda_plan_run(bw_plan *plan, double *ns) {
    bw_device *device = plan->device;
    BW_TRY(bw_cuda_enter(device));
    if (plan->spec.callable) return bw_cuda_call_run(plan, ns);
    if (plan->graph) {
        const bw_replay_lead lead = {before_replay, plan, plan->tracing};
        BW_TRY(bw_replay_run(&plan->replay, device->stream, plan->graph, &lead, ns));
        return bw_cuda_trace_take(plan);
    }
    BW_TRY(before_replay(plan));
    return bw_cuda_timer_run(plan, ns);
}

bw_kernel_times bw_cuda_plan_kernels(const bw_plan *plan) {
    return plan->kernels;
}

/* Of what is traced the timestamps count: the host waits there in any case. */
bool bw_cuda_plan_late(const bw_plan *plan) {
    return plan->graph && !plan->tracing && plan->replay.late;
}

double bw_cuda_plan_host_ns(const bw_plan *plan) {
    return plan->host_ns;
}

void bw_cuda_plan_free(bw_plan *plan) {
    if (!plan) return;
    bw_cuda_api *api = &plan->device->api;
    bw_status_free(bw_cuda_enter(plan->device));
    /* A replay or a warm-up that failed half-way may still be running on what is released here. */
    BW_CUDA_IGNORE(api, stream_synchronize(plan->device->stream));
    if (plan->spec.callable) bw_cuda_call_free(plan);
    bw_cuda_timer_free(plan);
    if (plan->graph) BW_CUDA_IGNORE(api, graph_exec_destroy(plan->graph));
    if (plan->flush) BW_CUDA_IGNORE(api, memory_free(plan->flush));
    bw_replay_close(&plan->replay);
    free(plan);
}
