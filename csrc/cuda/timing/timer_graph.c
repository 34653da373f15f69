/* A CUDA graph of many launches that walks over the buffer sets, between two events.
 *
 * Events around a single launch carry a bias of microseconds; around a graph of many launches they agree with the
 * kernels' own timestamps, and each launch pays for the write-back of the one before it, as in real use.
 * Where each launch has a flush of its own, the graph is timed against one of as many flushes alone. */
#include <math.h>

#include "cuda/launch/graph.h"
#include "cuda/timing/timer.h"

static bw_status enqueue_flushes(void *context) {
    const bw_plan *plan = context;
    for (int64_t i = 0; i < plan->spec.launches; i++) BW_TRY(bw_cuda_timer_flush(plan));
    return BW_OK;
}

static bw_status enqueue_launches(void *context) {
    const bw_plan *plan = context;
    bw_status status = BW_OK;
    bw_work_enter(&plan->spec.work);
    for (int64_t i = 0; i < plan->spec.launches && !status; i++) {
        status = bw_cuda_timer_flush(plan);
        if (!status) status = bw_plan_spec_launch(&plan->spec, i, true);
    }
    bw_work_leave(&plan->spec.work);
    return status;
}

/* A function that enqueues nothing, or elsewhere, leaves no more nodes than its flushes are. */
static bw_status check_nodes(const bw_plan *plan, cudaGraph_t graph) {
    size_t nodes = 0;
    const int64_t flushes = plan->flush.memory ? plan->spec.launches : 0;
    BW_TRY(BW_CUDA(&plan->device->api, graph_nodes(graph, NULL, &nodes)));
    if ((int64_t)nodes > flushes) return BW_OK;
    return bw_cuda_work_count_error(&plan->work, (int64_t)nodes, flushes, plan->spec.launches);
}

static bw_status build_launches(bw_plan *plan) {
    cudaGraph_t graph = NULL;
    BW_TRY(bw_cuda_graph_capture(plan->device, plan->work.stream, enqueue_launches, plan, &graph));
    bw_status status = plan->work.foreign ? check_nodes(plan, graph) : BW_OK;
    if (!status) return bw_cuda_graph_finish(plan->device, plan->work.stream, graph, &plan->graph);
    BW_CUDA_IGNORE(&plan->device->api, graph_destroy(graph));
    return status;
}

static bw_status build_flushes(bw_plan *plan) {
    cudaGraph_t graph = NULL;
    BW_TRY(bw_cuda_graph_capture(plan->device, plan->work.stream, enqueue_flushes, plan, &graph));
    return bw_cuda_graph_finish(plan->device, plan->work.stream, graph, &plan->flushes);
}

static bw_status prepare(bw_plan *plan) {
    BW_TRY(build_launches(plan));
    if (plan->work.foreign && plan->flush.memory) BW_TRY(build_flushes(plan));
    return bw_cuda_work_wait(&plan->work);
}

static bw_status begin(void *plan) {
    BW_TRY(bw_cuda_timer_begin(plan));
    bw_cuda_timer_mark(plan);
    return BW_OK;
}

static void launched(void *plan) {
    bw_cuda_timer_unmark(plan);
}

static bw_status run(bw_plan *plan, double *ns) {
    const bw_replay_lead lead = {begin, launched, plan, plan->tracing || plan->spec.work.on_host};
    double flushes_ns = 0.0;
    bool late = false;
    if (plan->flushes) {
        BW_TRY(bw_replay_run(&plan->replay, plan->work.stream, plan->flushes, NULL, &flushes_ns));
        late = plan->replay.late;
    }
    BW_TRY(bw_replay_run(&plan->replay, plan->work.stream, plan->graph, &lead, ns));
    plan->replay.late = plan->replay.late || late;
    if (plan->flushes) *ns = fmax(*ns - flushes_ns, 1.0); /* noise, where the launches take next to nothing */
    return bw_cuda_trace_take(plan);
}

static void free_graphs(bw_plan *plan) {
    bw_cuda_api *api = &plan->device->api;
    if (plan->flushes) BW_CUDA_IGNORE(api, graph_exec_destroy(plan->flushes));
    if (plan->graph) BW_CUDA_IGNORE(api, graph_exec_destroy(plan->graph));
}

const bw_cuda_timer bw_cuda_timer_graph = {.prepare = prepare, .run = run, .free = free_graphs};
