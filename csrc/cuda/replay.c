/* One timed replay of a graph.
 *
 * On an idle stream the first event passes while the host is still launching the graph, and the time between the events
 * would hold that as well: 8 to 60 us on an H200, by the graph's nodes. So a kernel that only waits is enqueued first,
 * for longer than the host has needed. Where that was too short (the first event has passed when all is enqueued) the
 * replay does not count. */
#include "base/clock.h"
#include "base/order.h"
#include "cuda/plan.h"

enum { TRIES = 4 };

static const int64_t hold_least_ns = 5000, hold_most_ns = 2000000;

/* Everything from the wait on; `late`: the GPU has waited for the host. */
static bw_status enqueue(bw_plan *plan, cudaStream_t stream, cudaGraphExec_t graph, bw_cuda_before *before,
                         bool *late) {
    bw_cuda_api *api = &plan->device->api;
    int64_t began = bw_now_ns();
    BW_TRY(bw_cuda_launch_hold(plan->device, stream, plan->hold_ns));
    if (before) BW_TRY(before(plan));
    BW_TRY(BW_CUDA(api, event_record(plan->start, stream)));
    BW_TRY(BW_CUDA(api, graph_launch(graph, stream)));
    BW_TRY(BW_CUDA(api, event_record(plan->stop, stream)));
    BW_TRY(bw_cuda_passed(api, plan->start, late));
    plan->hold_ns = bw_min64(hold_most_ns, bw_max64(hold_least_ns, 2 * (bw_now_ns() - began)));
    return BW_OK;
}

bw_status bw_cuda_replay(bw_plan *plan, cudaStream_t stream, cudaGraphExec_t graph, bw_cuda_before *before,
                         double *ns) {
    bw_cuda_api *api = &plan->device->api;
    float elapsed_ms = 0;
    bool late = true;
    /* Of what is traced the timestamps count; the host waits in between in any case. */
    int tries = plan->tracing ? 1 : TRIES;
    for (int i = 0; i < tries && late; i++) {
        BW_TRY(enqueue(plan, stream, graph, before, &late));
        BW_TRY(BW_CUDA(api, event_synchronize(plan->stop)));
    }
    BW_TRY(BW_CUDA(api, event_elapsed(&elapsed_ms, plan->start, plan->stop)));
    *ns = (double)elapsed_ms * 1e6;
    return BW_OK;
}
