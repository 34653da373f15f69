/* A plan's work on CUDA: launches on the device's stream, or calls of a caller's function. */
#pragma once

#include "cuda/runtime/device.h"

BW_C_BEGIN

typedef struct bw_cuda_work {
    bw_device *device;
    const bw_plan_spec *spec;
    cudaStream_t stream;
    bool foreign; /* a caller's function: may use any stream, and run anything */
} bw_cuda_work;

/* The spec must outlive it. */
bw_cuda_work bw_cuda_work_of(bw_device *device, const bw_plan_spec *spec);

/* All launches: those of a caller's function also where it has enqueued them on streams of its own. */
bw_status bw_cuda_work_wait(const bw_cuda_work *self);

/* So many launches, plain ones, with their `enter` and `leave`; of a caller's function they are waited for. */
bw_status bw_cuda_work_run(const bw_cuda_work *self, int64_t launches);

/* The failure where so many kernels, the flushes among them, cannot be those of so many launches: each runs some, and
 * as many as the others. */
bw_status bw_cuda_work_count_error(const bw_cuda_work *self, int64_t kernels, int64_t flushes, int64_t launches);

BW_C_END
