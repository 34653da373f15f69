/* Kernel timestamps: of each launch the span, from the first start to the last end, and the sum of its kernels.
 *
 * The GPU must not wait for the host within a launch of several kernels. Launches of ours are held back some at a time
 * until the host has enqueued them; a launch that has a flush of its own is enqueued while that runs. */
#include "base/clock.h"
#include "base/order.h"
#include "cuda/timing/timer.h"

/* Held back at a time: a queue has room for about 1000 kernels. The first launches tell how many each of them runs. */
enum { QUEUED_KERNELS = 512, FIRST_LAUNCHES = 64 };

static bw_status prepare(bw_plan *plan) {
    return plan->tracing ? BW_OK : bw_cuda_trace_open(plan);
}

static bw_status enqueue(const bw_plan *plan, int64_t first, int64_t launches) {
    bw_status status = BW_OK;
    bw_work_enter(&plan->spec.work);
    for (int64_t i = 0; i < launches && !status; i++) {
        status = bw_cuda_timer_flush(plan);
        if (!status) status = bw_cuda_timer_launch(plan, first + i);
    }
    bw_work_leave(&plan->spec.work);
    return status;
}

static bw_status run_some(bw_plan *plan, int64_t first, int64_t launches) {
    const bw_cuda_work *work = &plan->work;
    const bw_kernel_span *spans = NULL;
    int64_t count = 0, began_ns = bw_now_ns();
    if (!work->foreign) BW_TRY(bw_replay_hold(&plan->replay, work->stream));
    bw_status status = enqueue(plan, first, launches);
    if (!status && !work->foreign) bw_replay_learn(&plan->replay, began_ns);
    BW_TRY(bw_status_first(status, bw_cuda_work_wait(work)));
    BW_TRY(bw_cupti_trace_take(plan->device, &spans, &count));
    if (!work->foreign && count > 0) spans++, count--; /* the hold's own */
    return bw_cuda_trace_add(plan, spans, count, launches);
}

/* As many launches at a time as surely wait in the stream's queue: once that is full, the host waits for the GPU. */
static int64_t together(const bw_plan *plan) {
    if (plan->work.foreign) return plan->spec.launches;
    return plan->launch_kernels ? bw_max64(1, QUEUED_KERNELS / plan->launch_kernels) : FIRST_LAUNCHES;
}

static bw_status run(bw_plan *plan, double *ns) {
    BW_TRY(bw_cuda_timer_begin(plan));
    plan->kernels = (bw_kernel_times){0};
    for (int64_t first = 0; first < plan->spec.launches;) {
        int64_t launches = bw_min64(together(plan), plan->spec.launches - first);
        BW_TRY(run_some(plan, first, launches));
        first += launches;
    }
    *ns = plan->kernels.span_ns;
    return BW_OK;
}

const bw_cuda_timer bw_cuda_timer_cupti = {.prepare = prepare, .run = run};
