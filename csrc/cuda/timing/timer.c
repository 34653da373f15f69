#include "cuda/timing/timer.h"

/* A launch that starts this much before its flush ends runs beside it; a dependent launch may overlap by less. */
static const uint64_t overlap_most_ns = 5000;

bw_status bw_cuda_timer_flush(const bw_plan *plan) {
    if (!plan->work.foreign) return BW_OK;
    return bw_cuda_flush_enqueue(plan->device, plan->work.stream, &plan->flush);
}

bw_status bw_cuda_timer_begin(bw_plan *plan) {
    if (!plan->work.foreign) BW_TRY(bw_cuda_flush_enqueue(plan->device, plan->work.stream, &plan->flush));
    if (!plan->tracing) return BW_OK;
    BW_TRY(plan->work.wait(&plan->work));
    return bw_cupti_trace_discard(plan->device);
}

/* ---- kernels ---- */

bw_status bw_cuda_trace_open(bw_plan *plan) {
    BW_TRY(bw_cupti_trace_begin(plan->device));
    plan->tracing = true;
    return BW_OK;
}

void bw_cuda_trace_close(bw_plan *plan) {
    if (plan->tracing) bw_cupti_trace_end(plan->device);
}

/* One launch's spans, `first` of them its flush's. */
static bw_status add_launch(bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t first) {
    uint64_t end_ns = 0;
    if (first > 0 && spans[first].start_ns + overlap_most_ns < spans[0].end_ns) {
        return bw_fail(BW_CODE_INVALID,
                       "the function's work ran beside the flush that should precede it: it is on another stream than "
                       "the one given (pass its stream as stream=)");
    }
    for (int64_t i = first; i < count; i++) {
        plan->kernels.sum_ns += (double)(spans[i].end_ns - spans[i].start_ns);
        if (spans[i].end_ns > end_ns) end_ns = spans[i].end_ns;
    }
    plan->kernels.span_ns += (double)(end_ns - spans[first].start_ns);
    return BW_OK;
}

/* Launches of one kernel and of three in turn run as many as launches of two: then some flush is not where it should
 * be. A flush takes about as long each time. */
static bool starts_with_flush(const bw_kernel_span *spans, int64_t count, int64_t each) {
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

/* Every launch of a plan runs the same kernels, so each has the same number of records, in the order of launching. */
bw_status bw_cuda_trace_add(bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t launches) {
    const int64_t first = plan->work.foreign && plan->flush.memory ? 1 : 0, each = count / launches;
    if (each < first + 1 || count % launches || (first && !starts_with_flush(spans, count, each))) {
        return plan->work.miscounted(count, first * launches, launches);
    }
    plan->launch_kernels = each;
    for (int64_t i = 0; i < count; i += each) BW_TRY(add_launch(plan, spans + i, each, first));
    return BW_OK;
}

bw_status bw_cuda_trace_take(bw_plan *plan) {
    const bw_kernel_span *spans = NULL;
    int64_t count = 0;
    if (!plan->tracing) return BW_OK;
    BW_TRY(bw_cupti_trace_take(plan->device, &spans, &count));
    plan->kernels = (bw_kernel_times){0};
    return bw_cuda_trace_add(plan, spans, count, plan->spec.launches);
}
