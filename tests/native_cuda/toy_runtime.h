/* A runtime of a few lines: memory, events, a clock, and a stream that can be captured in graphs. What runs on it says
 * so with `runtime_run`. */
#ifndef TOY_RUNTIME_H
#define TOY_RUNTIME_H

#include "toy.h"

enum { RUNTIME_HOST_NS = 30000, RUNTIME_RISE_NS = 10000000 }; /* the clock has risen after so much work */

/* A graph is what was captured: how long it takes, and of how many nodes. */
typedef struct toy_graph {
    uint64_t ns;
    size_t nodes;
} toy_graph;

static struct {
    uint64_t now_ns;
    bool unfit; /* a capture that is begun cannot be ended */
    bool capturing;
    toy_graph captured;
    int64_t live, captures;
    int64_t slow;     /* replays to come in which the host is slower than the hold before them */
    double idle_pace; /* everything takes so many times as long on a device that was idle; 0: once */
    uint64_t busy_ns; /* of graphs so far */
    void (*launched)(const toy_graph *graph); /* NULL: nobody asks */
} runtime;

/* A kernel on the stream, or in the graph that is captured. */
static bool runtime_run(uint64_t gap_ns, uint64_t length_ns) {
    if (!runtime.capturing) return false;
    runtime.captured.ns += gap_ns + length_ns;
    runtime.captured.nodes++;
    return true;
}

static cudaError_t allocate(void **out, size_t bytes) {
    runtime.live++;
    *out = malloc(bytes);
    return cudaSuccess;
}

static cudaError_t release(void *memory) {
    runtime.live--;
    free(memory);
    return cudaSuccess;
}

static cudaError_t set_memory(void *memory, int value, size_t bytes, cudaStream_t stream) {
    (void)memory, (void)value, (void)bytes, (void)stream;
    return cudaSuccess;
}

static cudaError_t event_create(cudaEvent_t *out) {
    runtime.live++;
    *out = calloc(1, sizeof(uint64_t));
    return cudaSuccess;
}

static cudaError_t event_destroy(cudaEvent_t event) {
    runtime.live--;
    free(event);
    return cudaSuccess;
}

static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
    (void)stream;
    memcpy(event, &runtime.now_ns, sizeof runtime.now_ns);
    return cudaSuccess;
}

static cudaError_t event_synchronize(cudaEvent_t event) {
    (void)event;
    return cudaSuccess;
}

static cudaError_t event_elapsed(float *out, cudaEvent_t from, cudaEvent_t to) {
    uint64_t first, last;
    memcpy(&first, from, sizeof first);
    memcpy(&last, to, sizeof last);
    *out = (float)(last - first) * 1e-6f;
    return cudaSuccess;
}

static cudaError_t synchronize(void) {
    return cudaSuccess;
}

static cudaError_t synchronize_stream(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

static cudaError_t begin_capture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    CHECK(stream && mode == cudaStreamCaptureModeThreadLocal && !runtime.capturing);
    runtime.capturing = true;
    runtime.captured = (toy_graph){0, 0};
    runtime.captures++;
    return cudaSuccess;
}

static cudaError_t end_capture(cudaStream_t stream, cudaGraph_t *out) {
    (void)stream;
    *out = NULL;
    if (!runtime.capturing) return cudaErrorIllegalState;
    runtime.capturing = false;
    if (runtime.unfit) return cudaErrorStreamCaptureInvalidated;
    toy_graph *graph = malloc(sizeof *graph);
    *graph = runtime.captured;
    runtime.live++;
    *out = (cudaGraph_t)graph;
    return cudaSuccess;
}

static cudaError_t graph_nodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    CHECK(!nodes);
    *count = ((toy_graph *)graph)->nodes;
    return cudaSuccess;
}

static cudaError_t graph_instantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    (void)flags;
    toy_graph *copy = malloc(sizeof *copy);
    *copy = *(toy_graph *)graph;
    runtime.live++;
    *out = (cudaGraphExec_t)copy;
    return cudaSuccess;
}

static cudaError_t graph_upload(cudaGraphExec_t graph, cudaStream_t stream) {
    (void)graph, (void)stream;
    return cudaSuccess;
}

static cudaError_t graph_launch(cudaGraphExec_t graph, cudaStream_t stream) {
    (void)stream;
    const double idle = 1.0 - fmin(1.0, (double)runtime.busy_ns / RUNTIME_RISE_NS);
    const double pace = 1.0 + idle * fmax(0.0, runtime.idle_pace - 1.0);
    const uint64_t length_ns = (uint64_t)(pace * (double)((toy_graph *)graph)->ns);
    runtime.now_ns += (runtime.slow > 0 ? RUNTIME_HOST_NS : 0) + length_ns;
    runtime.busy_ns += length_ns;
    if (runtime.launched) runtime.launched((const toy_graph *)graph);
    return cudaSuccess;
}

static cudaError_t graph_destroy(cudaGraph_t graph) {
    runtime.live--;
    free(graph);
    return cudaSuccess;
}

static cudaError_t graph_exec_destroy(cudaGraphExec_t graph) {
    runtime.live--;
    free(graph);
    return cudaSuccess;
}

static cudaError_t last_error(void) {
    return cudaSuccess;
}

static void runtime_open(bw_device *device) {
    memset(device, 0, sizeof *device);
    memset(&runtime, 0, sizeof runtime);
    device->api = (bw_cuda_api){.memory_allocate = allocate,
                                .memory_free = release,
                                .memory_set = set_memory,
                                .device_synchronize = synchronize,
                                .stream_synchronize = synchronize_stream,
                                .event_create = event_create,
                                .event_destroy = event_destroy,
                                .event_record = event_record,
                                .event_synchronize = event_synchronize,
                                .event_elapsed = event_elapsed,
                                .begin_capture = begin_capture,
                                .end_capture = end_capture,
                                .graph_nodes = graph_nodes,
                                .graph_instantiate = graph_instantiate,
                                .graph_upload = graph_upload,
                                .graph_launch = graph_launch,
                                .graph_destroy = graph_destroy,
                                .graph_exec_destroy = graph_exec_destroy,
                                .last_error = last_error,
                                .fault = cudaErrorUnknown};
}

#endif
