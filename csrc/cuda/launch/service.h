/* Kernels that serve the measuring and belong to no operation (service.cu): enqueued, not waited for. */
#pragma once

#include "base/types/input.h"
#include "cuda/runtime/device.h"

BW_C_BEGIN

/* A span, and where it goes. */
typedef struct bw_cuda_piece {
    const void *from;
    int64_t bytes, to;
} bw_cuda_piece;

bw_status bw_cuda_fill(bw_device *device, bw_dtype dtype, bw_input_key key, int64_t count, void *out);
bw_status bw_cuda_launch_empty(bw_device *device);
bw_status bw_cuda_launch_hold(bw_device *device, cudaStream_t stream, int64_t ns); /* waits, and does nothing */
bw_status bw_cuda_launch_flush(bw_device *device, cudaStream_t stream, void *memory, int64_t bytes); /* initialized */
bw_status bw_cuda_gather(bw_device *device, const void *pieces, int64_t count, void *packed); /* both on the device */

BW_C_END
