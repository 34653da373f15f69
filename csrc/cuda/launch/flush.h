/* A flush reads or writes other memory, so that the inputs of a launch leave the cache. */
#pragma once

#include "cuda/runtime/device.h"

BW_C_BEGIN

/* A zeroed one is none: enqueuing it does nothing. */
typedef struct bw_cuda_flush {
    void *memory; /* NULL = no flush */
    int64_t bytes;
    bw_flush kind;
} bw_cuda_flush;

/* Of 0 bytes: none. Its memory is set on `stream`, which is not waited for. Close it also where opening failed. */
bw_status bw_cuda_flush_open(bw_device *device, cudaStream_t stream, bw_flush kind, int64_t bytes, bw_cuda_flush *out);
bw_status bw_cuda_flush_enqueue(bw_device *device, cudaStream_t stream, const bw_cuda_flush *self);
void bw_cuda_flush_close(bw_device *device, bw_cuda_flush *self);

BW_C_END
