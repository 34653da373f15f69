/* What the timers of csrc/cuda share: a plan's state, and the timers beside the graph. */
#ifndef BW_CUDA_PLAN_H
#define BW_CUDA_PLAN_H

#include "cuda/runtime/replay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the order of the backend's list of timers. */
typedef enum bw_cuda_timer { BW_CUDA_TIMER_GRAPH, BW_CUDA_TIMER_EVENTS, BW_CUDA_TIMER_CUPTI } bw_cuda_timer;

struct bw_plan {
    bw_device *device;
    bw_plan_spec spec;
    cudaGraphExec_t graph;
    bw_replay replay;
    void *flush; /* read before each replay; NULL = no flush */
    int64_t flush_bytes;
    uint32_t flush_stream; /* CUPTI's number of the stream that a caller's function and its flushes are on */
    double host_ns;
    bw_kernel_times kernels; /* of the last replay */
    int64_t launch_kernels;  /* that a launch runs; 0 = nobody knows yet */
    cudaEvent_t *pairs;      /* two per launch, for the events timer; NULL = not in use */
    double *elapsed_ns;      /* one per launch */
    bool tracing;            /* CUPTI records kernels for this plan */
    cudaGraphExec_t flushes; /* a caller's function's: the graph without the calls */
};

/* Launch `index` of the plan, on its set. */
bw_status bw_cuda_plan_launch(bw_device *device, const bw_plan_spec *spec, int64_t index);

/* plan_call.c: for a caller's function. */
bw_status bw_cuda_call_prepare(bw_plan *plan);
bw_status bw_cuda_call_run(bw_plan *plan, double *ns);
void bw_cuda_call_free(bw_plan *plan);

/* plan_timers.c: for timers other than the graph. */
bw_status bw_cuda_timer_create(bw_plan *plan);
bw_status bw_cuda_timer_run(bw_plan *plan, double *ns);
void bw_cuda_timer_free(bw_plan *plan);
/* Waits for the event pairs of a replay: their median, times the number of launches. */
bw_status bw_cuda_events_take(bw_plan *plan, double *ns);

/* plan_timers.c: the kernels of a replay, whichever timer it has. `drop` forgets those before it; `take`, when the
 * replay has ended, fills plan->kernels. Both do nothing where nobody traces. */
bw_status bw_cuda_trace_create(bw_plan *plan);
bw_status bw_cuda_trace_drop(bw_plan *plan);
bw_status bw_cuda_trace_take(bw_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
