/* Graphs: capturing what is enqueued on a stream, and making it ready to be launched. */
#pragma once

#include "cuda/runtime/device.h"

/* Always leaves the stream out of capture. A graph of a part of what was asked for is destroyed, and *out NULL. */
bw_status bw_cuda_graph_capture(bw_device *device, cudaStream_t stream, bw_status (*enqueue)(void *context),
                                void *context, cudaGraph_t *out);

/* Instantiates and uploads a graph, and always destroys it. *out is the caller's also where only the upload fails. */
bw_status bw_cuda_graph_finish(bw_device *device, cudaStream_t stream, cudaGraph_t graph, cudaGraphExec_t *out);
