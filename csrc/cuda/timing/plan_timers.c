/* Timers beside the graph, over plain launches on the stream, and the kernels' own timestamps.
 *
 * events: a pair of events around every launch, as most people time kernels; each carries microseconds of bias.
 * cupti: kernel timestamps; of a launch of several kernels both the span and the sum.
 * A plan of another timer may be traced as well: the kernels of a graph's replay, which the host does not launch one by
 * one. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/order.h"
#include "cuda/libraries/cupti.h"
#include "cuda/timing/plan.h"

/* Held back at a time: a queue has room for about 1000 kernels. The first launches tell how many each of them runs. */
enum { QUEUED_KERNELS = 512, FIRST_LAUNCHES = 64 };

static bw_status create_events(bw_plan *plan) {
    size_t launches = (size_t)plan->spec.launches;
    plan->pairs = calloc(2 * launches, sizeof *plan->pairs);
    plan->elapsed_ns = malloc(launches * sizeof *plan->elapsed_ns);
    if (!plan->pairs || !plan->elapsed_ns) return bw_fail(BW_CODE_MEMORY, "out of host memory for a plan's events");
    for (size_t i = 0; i < 2 * launches; i++) {
        BW_TRY(BW_CUDA(&plan->device->api, event_create(&plan->pairs[i])));
    }
    return BW_OK;
}

bw_status bw_cuda_events_take(bw_plan *plan, double *ns) {
    bw_cuda_api *api = &plan->device->api;
    int64_t launches = plan->spec.launches;
    BW_TRY(BW_CUDA(api, event_synchronize(plan->pairs[2 * launches - 1])));
    for (int64_t i = 0; i < launches; i++) {
        float elapsed_ms = 0;
        BW_TRY(BW_CUDA(api, event_elapsed(&elapsed_ms, plan->pairs[2 * i], plan->pairs[2 * i + 1])));
        plan->elapsed_ns[i] = (double)elapsed_ms * 1e6;
    }
    *ns = bw_median(plan->elapsed_ns, launches) * (double)launches;
    return BW_OK;
}

static bw_status run_events(bw_plan *plan, double *ns) {
    bw_device *device = plan->device;
    bw_cuda_api *api = &device->api;
    for (int64_t i = 0; i < plan->spec.launches; i++) {
        BW_TRY(BW_CUDA(api, event_record(plan->pairs[2 * i], device->stream)));
        BW_TRY(bw_cuda_plan_launch(device, &plan->spec, i));
        BW_TRY(BW_CUDA(api, event_record(plan->pairs[2 * i + 1], device->stream)));
    }
    BW_TRY(bw_cuda_events_take(plan, ns));
    return bw_cuda_trace_take(plan);
}

/* Every launch of a plan runs the same kernels, so each has the same number of records, in the order of launching. Adds
 * those of `launches` to plan->kernels. */
static bw_status add_spans(bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t launches) {
    int64_t kernels = count / launches;
    if (count < launches || count % launches) {
        return bw_fail(BW_CODE_DEVICE,
                       "CUPTI delivered %lld kernel records for %lld launches: measure with the timer graph",
                       (long long)count, (long long)launches);
    }
    uint64_t span_ns = 0, sum_ns = 0;
    for (int64_t i = 0; i < count; i += kernels) {
        uint64_t end_ns = 0;
        for (int64_t j = i; j < i + kernels; j++) {
            sum_ns += spans[j].end_ns - spans[j].start_ns;
            if (spans[j].end_ns > end_ns) end_ns = spans[j].end_ns;
        }
        span_ns += end_ns - spans[i].start_ns;
    }
    plan->launch_kernels = kernels;
    plan->kernels.sum_ns += (double)sum_ns;
    plan->kernels.span_ns += (double)span_ns;
    return BW_OK;
}

bw_status bw_cuda_trace_create(bw_plan *plan) {
    BW_TRY(bw_cupti_trace_begin(plan->device));
    plan->tracing = true;
    return BW_OK;
}

bw_status bw_cuda_trace_drop(bw_plan *plan) {
    if (!plan->tracing) return BW_OK;
    BW_TRY(BW_CUDA(&plan->device->api, stream_synchronize(plan->device->stream)));
    return bw_cupti_trace_discard(plan->device);
}

bw_status bw_cuda_trace_take(bw_plan *plan) {
    const bw_kernel_span *spans = NULL;
    int64_t count = 0;
    if (!plan->tracing) return BW_OK;
    BW_TRY(bw_cupti_trace_take(plan->device, &spans, &count));
    plan->kernels = (bw_kernel_times){0};
    return add_spans(plan, spans, count, plan->spec.launches);
}

/* Launches [first, first + count), held back, so that no span of several kernels holds the host's time between two
 * launches. */
static bw_status run_held(bw_plan *plan, int64_t first, int64_t launches) {
    bw_device *device = plan->device;
    const bw_kernel_span *spans = NULL;
    int64_t count = 0, began_ns = bw_now_ns();
    BW_TRY(bw_replay_hold(&plan->replay, device->stream));
    for (int64_t i = 0; i < launches; i++) BW_TRY(bw_cuda_plan_launch(device, &plan->spec, first + i));
    bw_replay_learn(&plan->replay, began_ns);
    BW_TRY(BW_CUDA(&device->api, stream_synchronize(device->stream)));
    BW_TRY(bw_cupti_trace_take(device, &spans, &count));
    if (count > 0) spans++, count--; /* the hold's own */
    return add_spans(plan, spans, count, launches);
}

/* As many launches at a time as surely wait in the stream's queue: once that is full, the host waits for the GPU. */
static bw_status run_cupti(bw_plan *plan, double *ns) {
    plan->kernels = (bw_kernel_times){0};
    for (int64_t first = 0; first < plan->spec.launches;) {
        int64_t most = plan->launch_kernels ? bw_max64(1, QUEUED_KERNELS / plan->launch_kernels) : FIRST_LAUNCHES;
        int64_t launches = bw_min64(most, plan->spec.launches - first);
        BW_TRY(run_held(plan, first, launches));
        first += launches;
    }
    *ns = plan->kernels.span_ns;
    return BW_OK;
}

bw_status bw_cuda_timer_create(bw_plan *plan) {
    return plan->spec.timer == BW_CUDA_TIMER_EVENTS ? create_events(plan) : BW_OK;
}

bw_status bw_cuda_timer_run(bw_plan *plan, double *ns) {
    return plan->pairs ? run_events(plan, ns) : run_cupti(plan, ns);
}

void bw_cuda_timer_free(bw_plan *plan) {
    if (plan->tracing) bw_cupti_trace_end(plan->device);
    for (int64_t i = 0; plan->pairs && i < 2 * plan->spec.launches; i++) {
        if (plan->pairs[i]) BW_CUDA_IGNORE(&plan->device->api, event_destroy(plan->pairs[i]));
    }
    free(plan->pairs);
    free(plan->elapsed_ns);
}
