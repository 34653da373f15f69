/* Timed replays of a graph, between two events. */
#pragma once

#include "cuda/runtime/device.h"

typedef struct bw_replay {
    bw_device *device;
    cudaEvent_t start, stop;
    int64_t hold_ns; /* how long the stream is held back while the host enqueues; learned from the replays */
    bool late;       /* the last replay's time holds some of the host's, however often it was tried */
} bw_replay;

/* Close what was opened, whether or not that succeeded; a zeroed one too. */
bw_status bw_replay_open(bw_device *device, bw_replay *out);
void bw_replay_close(bw_replay *self);

/* What is enqueued ahead of the graph in each try, between the hold and the first event. `waits`: it waits for the
 * stream, or the graph is the host's work too, so that nothing can be held back. */
typedef struct bw_replay_lead {
    bw_status (*enqueue)(void *context);
    void (*launched)(void *context); /* optional: the graph has been, too, or could not be */
    void *context;
    bool waits;
} bw_replay_lead;

/* One replay's time; `lead` may be NULL. */
bw_status bw_replay_run(bw_replay *self, cudaStream_t stream, cudaGraphExec_t graph, const bw_replay_lead *lead,
                        double *ns);

/* How long the device has been at work, without a pause in which its clock could fall; 0: it is idle. */
double bw_replay_busy_ns(const bw_device *device);

/* For whoever enqueues something else: holds the stream back, and learns how long the host took since `began_ns`. */
bw_status bw_replay_hold(bw_replay *self, cudaStream_t stream);
void bw_replay_learn(bw_replay *self, int64_t began_ns);
