/* Timing a function of the caller's, on the caller's stream.
 *
 * cupti: the timestamps of what each call ran, from the first start to the last end. The flush before a call is a
 * kernel of ours on the same stream: the call is enqueued while it runs, so that the GPU does not wait for the host.
 * graph: a captured graph of calls. With flushes it is timed against a graph of as many flushes alone.
 * events: a pair of events around each call; microseconds of bias. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/order.h"
#include "cuda/libraries/cupti.h"
#include "cuda/timing/plan.h"

enum { WARM_CALLS = 3, HOST_SAMPLES = 15 };

/* A call that starts this much before the flush ends runs beside it; a dependent launch may overlap by less. */
static const uint64_t overlap_most_ns = 5000;

static cudaStream_t stream_of(const bw_plan *plan) {
    return (cudaStream_t)plan->spec.callable->stream;
}

static void enter(const bw_plan *plan) {
    plan->spec.callable->enter(plan->spec.callable->context);
}

static void leave(const bw_plan *plan) {
    plan->spec.callable->leave(plan->spec.callable->context);
}

static bw_status call(const bw_plan *plan, int64_t index, bool captured) {
    const bw_callable *callable = plan->spec.callable;
    return callable->call(callable->context, index % plan->spec.set_count, captured);
}

/* The call's own streams as well, whichever they are. */
static bw_status wait(const bw_plan *plan) {
    return BW_CUDA(&plan->device->api, device_synchronize());
}

static bw_status flush(const bw_plan *plan) {
    if (!plan->flush) return BW_OK;
    return bw_cuda_launch_flush_on(plan->device, stream_of(plan), plan->flush, plan->flush_bytes);
}

static bw_status record(const bw_plan *plan, cudaEvent_t event) {
    return BW_CUDA(&plan->device->api, event_record(event, stream_of(plan)));
}

/* Nothing of it was said to be right, so it does nothing here that it would not do elsewhere: plain calls first. */
static bw_status warm_up(bw_plan *plan) {
    double samples[HOST_SAMPLES];
    int timed = 0;
    int64_t calls = bw_max64(plan->spec.set_count, WARM_CALLS);
    bw_status status = BW_OK;
    enter(plan);
    for (int64_t i = 0; i < calls && !status; i++) {
        int64_t before = bw_now_ns();
        status = call(plan, i, false);
        if (i > 0 && timed < HOST_SAMPLES) samples[timed++] = (double)(bw_now_ns() - before);
    }
    leave(plan);
    plan->host_ns = bw_median(samples, timed);
    return bw_status_first(status, wait(plan));
}

static bw_status make_flush(bw_plan *plan) {
    bw_cuda_api *api = &plan->device->api;
    if (plan->spec.flush_bytes <= 0) return BW_OK;
    plan->flush_bytes = plan->spec.flush_bytes;
    BW_TRY(BW_CUDA(api, memory_allocate(&plan->flush, (size_t)plan->flush_bytes)));
    BW_TRY(BW_CUDA(api, memory_set(plan->flush, 0x5a, (size_t)plan->flush_bytes, stream_of(plan))));
    return wait(plan);
}

static bw_status nothing_launched(void) {
    return bw_fail(BW_CODE_INVALID,
                   "the function enqueued nothing on the GPU: pass the stream that it works on as stream=, or "
                   "backend='cpu' for work of the processor");
}

/* ---- graph ---- */

static bw_status enqueue_captured(const bw_plan *plan, bool with_calls) {
    bw_status status = BW_OK;
    if (with_calls) enter(plan);
    for (int64_t i = 0; i < plan->spec.launches && !status; i++) {
        status = flush(plan);
        if (!status && with_calls) status = call(plan, i, true);
    }
    if (with_calls) leave(plan);
    return status;
}

/* Always leaves the stream out of capture. */
static bw_status capture(const bw_plan *plan, bool with_calls, cudaGraph_t *out) {
    bw_cuda_api *api = &plan->device->api;
    cudaGraph_t graph = NULL;
    BW_TRY(BW_CUDA(api, begin_capture(stream_of(plan), cudaStreamCaptureModeThreadLocal)));
    bw_status status = enqueue_captured(plan, with_calls);
    bw_status ended = BW_CUDA(api, end_capture(stream_of(plan), &graph));
    if (ended && !graph) {
        /* A test's planned failure keeps the call from being made, which would leave the stream capturing. */
        (void)api->end_capture(stream_of(plan), &graph);
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

static bw_status build_graph(const bw_plan *plan, bool with_calls, cudaGraphExec_t *out) {
    bw_cuda_api *api = &plan->device->api;
    cudaGraph_t graph = NULL;
    size_t nodes = 0, flushes = plan->flush ? (size_t)plan->spec.launches : 0;
    BW_TRY(capture(plan, with_calls, &graph));
    bw_status status = BW_CUDA(api, graph_nodes(graph, NULL, &nodes));
    if (!status && with_calls && nodes <= flushes) status = nothing_launched();
    if (!status) status = BW_CUDA(api, graph_instantiate(out, graph, 0));
    BW_CUDA_IGNORE(api, graph_destroy(graph));
    BW_TRY(status);
    return BW_CUDA(api, graph_upload(*out, stream_of(plan)));
}

static bw_status run_graphs(bw_plan *plan, double *ns) {
    double flushes_ns = 0.0;
    if (plan->flushes) BW_TRY(bw_replay_run(&plan->replay, stream_of(plan), plan->flushes, NULL, &flushes_ns));
    bool late = plan->flushes && plan->replay.late;
    BW_TRY(bw_replay_run(&plan->replay, stream_of(plan), plan->graph, NULL, ns));
    plan->replay.late = plan->replay.late || late;
    *ns = fmax(*ns - flushes_ns, 1.0); /* noise, where the calls take next to nothing */
    return BW_OK;
}

/* ---- plain calls ---- */

static bw_status enqueue_one(const bw_plan *plan, int64_t index) {
    BW_TRY(flush(plan));
    if (plan->pairs) BW_TRY(record(plan, plan->pairs[2 * index]));
    BW_TRY(call(plan, index, false));
    return plan->pairs ? record(plan, plan->pairs[2 * index + 1]) : BW_OK;
}

static bw_status enqueue(const bw_plan *plan) {
    bw_status status = BW_OK;
    enter(plan);
    for (int64_t i = 0; i < plan->spec.launches && !status; i++) status = enqueue_one(plan, i);
    leave(plan);
    return bw_status_first(status, wait(plan));
}

static bw_status run_events(bw_plan *plan, double *ns) {
    BW_TRY(enqueue(plan));
    return bw_cuda_events_take(plan, ns);
}

/* Spans of one call, its flush first where it has one, then what it ran: added to plan->kernels. */
static void add_call(bw_plan *plan, const bw_kernel_span *spans, int64_t count) {
    int64_t first = plan->flush ? 1 : 0;
    uint64_t end_ns = 0;
    for (int64_t i = first; i < count; i++) {
        plan->kernels.sum_ns += (double)(spans[i].end_ns - spans[i].start_ns);
        if (spans[i].end_ns > end_ns) end_ns = spans[i].end_ns;
    }
    plan->kernels.span_ns += (double)(end_ns - spans[first].start_ns);
}

static int64_t count_on_stream(const bw_plan *plan, const bw_kernel_span *spans, int64_t count) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) found += spans[i].stream == plan->flush_stream;
    return found;
}

/* Whether every `each` spans are a flush and what was to run behind it. Of the spans on the given stream, flushes are
 * the first of as many as each call has there; what runs elsewhere may come too early. */
static bool follow_their_flushes(const bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t each) {
    int64_t on_stream = count_on_stream(plan, spans, count), seen = 0;
    if (on_stream == 0 || on_stream % plan->spec.launches) return false;
    for (int64_t i = 0; i < count; i++) {
        bool given = spans[i].stream == plan->flush_stream;
        bool flushes = given && seen % (on_stream / plan->spec.launches) == 0;
        seen += given;
        if (flushes != (i % each == 0)) return false;
        if (i % each == 1 && spans[i].start_ns + overlap_most_ns < spans[i - 1].end_ns) return false;
    }
    return true;
}

/* Calls of one kernel and of three in turn run as many as calls of two: then some flush is not where it should be. A
 * flush takes about as long each time. */
static bool start_with_flushes(const bw_kernel_span *spans, int64_t count, int64_t each) {
    uint64_t longest_ns = 0;
    for (int64_t i = 0; i < count; i += each) {
        uint64_t length_ns = spans[i].end_ns - spans[i].start_ns;
        if (length_ns > longest_ns) longest_ns = length_ns;
    }
    for (int64_t i = 0; i < count; i += each) {
        if (2 * (spans[i].end_ns - spans[i].start_ns) < longest_ns) return false;
    }
    return true;
}

static bw_status check_calls(const bw_plan *plan, const bw_kernel_span *spans, int64_t count) {
    int64_t launches = plan->spec.launches, each = count / launches;
    if (each < (plan->flush ? 2 : 1)) return nothing_launched();
    bool even = count % launches == 0;
    bool placed = even && (!plan->flush || follow_their_flushes(plan, spans, count, each));
    int64_t elsewhere = plan->flush ? count - count_on_stream(plan, spans, count) : 0;
    if (!placed && elsewhere) {
        return bw_fail(BW_CODE_INVALID,
                       "the function's work ran beside the flush that should precede it, or before it: %lld of %lld "
                       "kernels and copies were on another stream than the one given (pass its stream as stream=)",
                       (long long)elsewhere, (long long)count);
    }
    if (placed && (!plan->flush || start_with_flushes(spans, count, each))) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "CUPTI saw %lld kernels and copies in %lld calls: each call must run the same number of them",
                   (long long)count, (long long)launches);
}

static bw_status run_cupti(bw_plan *plan, double *ns) {
    const bw_kernel_span *spans = NULL;
    int64_t count = 0, launches = plan->spec.launches;
    BW_TRY(wait(plan));
    BW_TRY(bw_cupti_trace_discard(plan->device));
    BW_TRY(enqueue(plan));
    BW_TRY(bw_cupti_trace_take(plan->device, &spans, &count));
    BW_TRY(check_calls(plan, spans, count));
    plan->kernels = (bw_kernel_times){0};
    for (int64_t i = 0; i < launches; i++) add_call(plan, spans + i * (count / launches), count / launches);
    *ns = plan->kernels.span_ns;
    return BW_OK;
}

/* Which stream the flushes are on, in CUPTI's numbers: that of the longest of all that runs while one of them does. */
static bw_status start_tracing(bw_plan *plan) {
    const bw_kernel_span *spans = NULL;
    int64_t count = 0;
    uint64_t longest_ns = 0;
    BW_TRY(bw_cuda_trace_create(plan));
    if (!plan->flush) return BW_OK;
    BW_TRY(flush(plan));
    BW_TRY(wait(plan));
    BW_TRY(bw_cupti_trace_take(plan->device, &spans, &count));
    for (int64_t i = 0; i < count; i++) {
        if (spans[i].end_ns - spans[i].start_ns <= longest_ns) continue;
        longest_ns = spans[i].end_ns - spans[i].start_ns;
        plan->flush_stream = spans[i].stream;
    }
    return BW_OK;
}

/* ---- the plan ---- */

bw_status bw_cuda_call_prepare(bw_plan *plan) {
    BW_TRY(make_flush(plan));
    BW_TRY(warm_up(plan));
    if (plan->spec.timer == BW_CUDA_TIMER_EVENTS) return bw_cuda_timer_create(plan);
    if (plan->spec.timer == BW_CUDA_TIMER_CUPTI) return start_tracing(plan);
    BW_TRY(build_graph(plan, true, &plan->graph));
    if (plan->flush) BW_TRY(build_graph(plan, false, &plan->flushes));
    return wait(plan);
}

bw_status bw_cuda_call_run(bw_plan *plan, double *ns) {
    if (plan->graph) return run_graphs(plan, ns);
    return plan->pairs ? run_events(plan, ns) : run_cupti(plan, ns);
}

void bw_cuda_call_free(bw_plan *plan) {
    /* A call that failed half-way may still be running on what is released now. */
    BW_CUDA_IGNORE(&plan->device->api, device_synchronize());
    if (plan->flushes) BW_CUDA_IGNORE(&plan->device->api, graph_exec_destroy(plan->flushes));
}
