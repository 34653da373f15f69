/* Captures a graph from a stream and instantiates it. A capture that fails is ended here. */
#include "cuda/launch/graph.h"

bw_status bw_cuda_graph_capture(bw_device *device, cudaStream_t stream, bw_status (*enqueue)(void *context),
                                void *context, cudaGraph_t *out) {
    bw_cuda_api *api = &device->api;
    cudaGraph_t graph = NULL;
    *out = NULL;
    BW_TRY(BW_CUDA(api, begin_capture(stream, cudaStreamCaptureModeThreadLocal)));
    bw_status status = enqueue(context);
    bw_status ended = BW_CUDA(api, end_capture(stream, &graph));
    if (ended && !graph) {
        /* A test's planned failure keeps the call from being made, which would leave the stream capturing. */
        (void)api->end_capture(stream, &graph);
        (void)api->last_error();
    }
    status = bw_status_first(status, ended);
    if (status && graph) {
        BW_CUDA_IGNORE(api, graph_destroy(graph));
        graph = NULL;
    }
    *out = graph;
    return status;
}

bw_status bw_cuda_graph_finish(bw_device *device, cudaStream_t stream, cudaGraph_t graph, cudaGraphExec_t *out) {
    bw_cuda_api *api = &device->api;
    bw_status status = BW_CUDA(api, graph_instantiate(out, graph, 0));
    BW_CUDA_IGNORE(api, graph_destroy(graph));
    BW_TRY(status);
    return BW_CUDA(api, graph_upload(*out, stream));
}
