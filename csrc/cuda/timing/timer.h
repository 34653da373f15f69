/* The state of a plan, the interface of a timer, and the functions that timers share. */
#pragma once

#include "cuda/launch/flush.h"
#include "cuda/launch/replay.h"
#include "cuda/libraries/cupti.h"
#include "cuda/timing/work.h"

/* `prepare` follows the warm-up; `run` is one replay: the elapsed time of all its launches. */
typedef struct bw_cuda_timer {
    bw_status (*prepare)(bw_plan *plan);
    bw_status (*run)(bw_plan *plan, double *ns);
    void (*free)(bw_plan *plan); /* optional; also what was prepared half-way */
} bw_cuda_timer;

extern const bw_cuda_timer bw_cuda_timer_graph, bw_cuda_timer_events, bw_cuda_timer_cupti;

struct bw_plan {
    bw_device *device;
    bw_plan_spec spec;
    bw_cuda_work work; /* of that spec */
    const bw_cuda_timer *timer;
    bw_cuda_flush flush;
    bw_replay replay;
    double host_ns;

    cudaGraphExec_t graph, flushes; /* the graph timer's: the launches; as many flushes as they have, without them */
    cudaEvent_t *pairs;             /* the events timer's, two per launch */
    double *elapsed_ns;             /* one per launch */

    bool tracing;            /* CUPTI records kernels for this plan, whichever timer it has */
    uint32_t own_device;     /* CUPTI's number of the device, */
    uint32_t flush_stream;   /* and of the stream that a caller's function and its flushes are on */
    bw_kernel_times kernels; /* of the last replay */
    int64_t launch_kernels;  /* of a launch; 0 = not known yet */
};

/* Before a replay: the flush, where launches have none of their own; earlier kernels are forgotten. */
bw_status bw_cuda_timer_begin(const bw_plan *plan);
/* A launch's own flush, where it has one. */
bw_status bw_cuda_timer_flush(const bw_plan *plan);

/* Timed launches, and nothing else, are between a mark and its end, for tools that watch; a launch with both. */
void bw_cuda_timer_mark(const bw_plan *plan);
void bw_cuda_timer_unmark(const bw_plan *plan);
bw_status bw_cuda_timer_launch(const bw_plan *plan, int64_t index);

/* The kernels of a replay. `take`, when it has ended, fills plan->kernels; `add` adds the spans of so many launches to
 * them. All but `open` do nothing without a trace. */
bw_status bw_cuda_trace_open(bw_plan *plan);
bw_status bw_cuda_trace_take(bw_plan *plan);
bw_status bw_cuda_trace_add(bw_plan *plan, const bw_kernel_span *spans, int64_t count, int64_t launches);
void bw_cuda_trace_close(const bw_plan *plan);
