/* What the timers share: flushes before a replay, marks for tools, and traced kernel times. */
#include "cuda/timing/timer.h"

#include "cuda/launch/service.h"
#include "cuda/runtime/nvtx.h"

/* A launch that starts this much before its flush ends runs beside it; a dependent launch may overlap by less. */
static const uint64_t overlap_most_ns = 5000;

bw_status bw_cuda_timer_flush(const bw_plan *plan) {
    if (!plan->work.foreign) return BW_OK;
    return bw_cuda_flush_enqueue(plan->device, plan->work.stream, &plan->flush);
}

bw_status bw_cuda_timer_begin(const bw_plan *plan) {
    if (!plan->work.foreign) BW_TRY(bw_cuda_flush_enqueue(plan->device, plan->work.stream, &plan->flush));
    if (!plan->tracing) return BW_OK;
    BW_TRY(bw_cuda_work_wait(&plan->work));
    return bw_cupti_trace_discard(plan->device);
}

static int range_count(const bw_plan *plan) {
    return plan->device->nvtx && plan->spec.annotation_stack ? plan->spec.annotation_stack->count : 0;
}

void bw_cuda_timer_mark(const bw_plan *plan) {
    for (int i = 0; i < range_count(plan); i++)
        bw_cuda_annotation_calls.push(plan->device, &plan->spec.annotation_stack->range[i]);
}

void bw_cuda_timer_unmark(const bw_plan *plan) {
    for (int i = 0; i < range_count(plan); i++) bw_cuda_annotation_calls.pop(plan->device);
}

bw_status bw_cuda_timer_launch(const bw_plan *plan, int64_t index) {
    bw_cuda_timer_mark(plan);
    bw_status status = bw_plan_spec_launch(&plan->spec, index, false);
    bw_cuda_timer_unmark(plan);
    return status;
}

static bool has_flushes(const bw_plan *plan) {
    return plan->work.foreign && plan->flush.memory;
}

/* Which of two spans is more likely a kernel of ours: on the GPU of the same number in CUDA, then the longer one. */
static bool rather_ours(const bw_plan *plan, const bw_kernel_span *one, const bw_kernel_span *other) {
    const uint32_t number = (uint32_t)plan->device->index;
    if ((one->device == number) != (other->device == number)) return one->device == number;
    return one->end_ns - one->start_ns > other->end_ns - other->start_ns;
}

/* Which device and stream the flushes are on, in CUPTI's numbers: those of the longest of all that runs while one of
 * them does. Without flushes an empty kernel tells the device. Other threads may keep other GPUs busy meanwhile. */
static bw_status learn_own_place(bw_plan *plan) {
    const bw_kernel_span *spans = NULL, *own = NULL;
    int64_t count = 0;
    BW_TRY(has_flushes(plan) ? bw_cuda_timer_flush(plan) : bw_cuda_launch_empty(plan->device));
    BW_TRY(bw_cuda_work_wait(&plan->work));
    BW_TRY(bw_cupti_trace_take(plan->device, &spans, &count));
    for (int64_t i = 0; i < count; i++) {
        if (!own || rather_ours(plan, &spans[i], own)) own = &spans[i];
    }
    plan->own_device = own ? own->device : (uint32_t)plan->device->index;
    if (own) plan->flush_stream = own->stream;
    return BW_OK;
}

bw_status bw_cuda_trace_open(bw_plan *plan) {
    BW_TRY(bw_cupti_trace_begin(plan->device));
    plan->tracing = true;
    return plan->work.foreign ? learn_own_place(plan) : BW_OK;
}

void bw_cuda_trace_close(const bw_plan *plan) {
    if (plan->tracing) bw_cupti_trace_end(plan->device);
}

/* How many of the spans another GPU ran; `other` is then its number. */
static int64_t count_elsewhere(const bw_plan *plan, const bw_kernel_span *spans, int64_t count, uint32_t *other) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        if (spans[i].device == plan->own_device) continue;
        *other = spans[i].device;
        found++;
    }
    return found;
}

/* A function may use other GPUs beside the one that is measured; one that leaves it alone was meant for another. */
static bw_status check_devices(bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t flushes) {
    uint32_t other = 0;
    int64_t elsewhere = count_elsewhere(plan, spans, count, &other), unfinished = 0;
    if (elsewhere && count - elsewhere <= flushes) {
        return bw_fail(
            BW_CODE_INVALID,
            "the function's work ran on GPU %u, while GPU %u is measured, which ran none of its %lld kernels "
            "and copies: pass device='cuda:%u', or move its data to cuda:%u",
            other, plan->own_device, (long long)elsewhere, other, plan->own_device);
    }
    for (int64_t i = 0; i < count; i++) unfinished += spans[i].end_ns == 0;
    if (unfinished) {
        return bw_fail(BW_CODE_UNAVAILABLE,
                       "GPU %u still ran %lld of the function's %lld kernels and copies when GPU %u had finished: what "
                       "runs there must be waited for on the stream that is measured",
                       other, (long long)unfinished, (long long)(count - flushes), plan->own_device);
    }
    plan->kernels.elsewhere += (double)elsewhere;
    return BW_OK;
}

static bool is_on_stream(const bw_plan *plan, const bw_kernel_span *span) {
    return span->device == plan->own_device && span->stream == plan->flush_stream;
}

static int64_t count_on_stream(const bw_plan *plan, const bw_kernel_span *spans, int64_t count) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) found += is_on_stream(plan, &spans[i]);
    return found;
}

/* Whether every `each` spans are a flush and what was to run behind it. Of the spans on the given stream, flushes are
 * the first of as many as each call has there; what runs elsewhere may come too early. */
static bool follow_their_flushes(const bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t each) {
    int64_t on_stream = count_on_stream(plan, spans, count), seen = 0;
    if (on_stream == 0 || on_stream % plan->spec.launches) return false;
    for (int64_t i = 0; i < count; i++) {
        bool matches = is_on_stream(plan, &spans[i]);
        bool flushes = matches && seen % (on_stream / plan->spec.launches) == 0;
        seen += matches;
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
    bool placed = count % launches == 0 && follow_their_flushes(plan, spans, count, each);
    int64_t elsewhere = count - count_on_stream(plan, spans, count);
    if (!placed && elsewhere) {
        return bw_fail(BW_CODE_INVALID,
                       "the function's work ran beside the flush that should precede it, or before it: %lld of %lld "
                       "kernels and copies were on another stream%s than the one given (pass its stream as stream=)",
                       (long long)elsewhere, (long long)count, plan->kernels.elsewhere > 0 ? " or GPU" : "");
    }
    if (placed && start_with_flushes(spans, count, each)) return BW_OK;
    return bw_cuda_work_count_error(&plan->work, count, launches, launches);
}

/* One launch's spans, its flush first where it has one. */
static void add_launch(bw_plan *plan, const bw_kernel_span *spans, int64_t count) {
    int64_t first = has_flushes(plan) ? 1 : 0;
    uint64_t end_ns = 0;
    for (int64_t i = first; i < count; i++) {
        plan->kernels.sum_ns += (double)(spans[i].end_ns - spans[i].start_ns);
        if (spans[i].end_ns > end_ns) end_ns = spans[i].end_ns;
    }
    plan->kernels.span_ns += (double)(end_ns - spans[first].start_ns);
}

/* Every launch of a plan runs the same kernels, so each has the same number of records, in the order of launching. */
bw_status bw_cuda_trace_add(bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t launches) {
    const int64_t flushes = has_flushes(plan) ? launches : 0, each = count / launches;
    if (plan->work.foreign) BW_TRY(check_devices(plan, spans, count, flushes));
    if (count - flushes < launches || (!flushes && count % launches)) {
        return bw_cuda_work_count_error(&plan->work, count, flushes, launches);
    }
    if (flushes) BW_TRY(check_calls(plan, spans, count));
    plan->launch_kernels = each;
    for (int64_t i = 0; i < count; i += each) add_launch(plan, spans + i, each);
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
