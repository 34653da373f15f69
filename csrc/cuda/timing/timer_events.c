/* A pair of events around each launch, as most people time kernels; each carries microseconds of bias. */
#include <stdlib.h>

#include "base/order.h"
#include "cuda/timing/timer.h"

static bw_status prepare(bw_plan *plan) {
    size_t launches = (size_t)plan->spec.launches;
    plan->pairs = calloc(2 * launches, sizeof *plan->pairs);
    plan->elapsed_ns = malloc(launches * sizeof *plan->elapsed_ns);
    if (!plan->pairs || !plan->elapsed_ns) return bw_fail(BW_CODE_MEMORY, "out of host memory for a plan's events");
    for (size_t i = 0; i < 2 * launches; i++) {
        BW_TRY(BW_CUDA(&plan->device->api, event_create(&plan->pairs[i])));
    }
    return BW_OK;
}

static bw_status enqueue_one(const bw_plan *plan, int64_t index) {
    bw_cuda_api *api = &plan->device->api;
    BW_TRY(bw_cuda_timer_flush(plan));
    BW_TRY(BW_CUDA(api, event_record(plan->pairs[2 * index], plan->work.stream)));
    BW_TRY(bw_cuda_timer_launch(plan, index));
    return BW_CUDA(api, event_record(plan->pairs[2 * index + 1], plan->work.stream));
}

static bw_status enqueue_all(const bw_plan *plan) {
    const bw_cuda_work *work = &plan->work;
    bw_status status = BW_OK;
    bw_work_enter(&plan->spec.work);
    for (int64_t i = 0; i < plan->spec.launches && !status; i++) status = enqueue_one(plan, i);
    bw_work_leave(&plan->spec.work);
    return work->foreign ? bw_status_first(status, bw_cuda_work_wait(work)) : status;
}

/* The median of the pairs, times the number of launches. */
static bw_status take(const bw_plan *plan, double *ns) {
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

static bw_status run(bw_plan *plan, double *ns) {
    BW_TRY(bw_cuda_timer_begin(plan));
    BW_TRY(enqueue_all(plan));
    BW_TRY(take(plan, ns));
    return bw_cuda_trace_take(plan);
}

static void free_events(bw_plan *plan) {
    for (int64_t i = 0; plan->pairs && i < 2 * plan->spec.launches; i++) {
        if (plan->pairs[i]) BW_CUDA_IGNORE(&plan->device->api, event_destroy(plan->pairs[i]));
    }
    free(plan->pairs);
    free(plan->elapsed_ns);
}

const bw_cuda_timer bw_cuda_timer_events = {.prepare = prepare, .run = run, .free = free_events};
