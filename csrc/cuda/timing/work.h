/* What is timed or counted: launches of a variant, or calls of a caller's function. */
#ifndef BW_CUDA_WORK_H
#define BW_CUDA_WORK_H

#include "cuda/runtime/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bw_cuda_work bw_cuda_work;

struct bw_cuda_work {
    bw_device *device;
    const bw_plan_spec *spec;
    cudaStream_t stream;
    /* A caller's function may use any stream, and run anything: each launch has a flush of its own, its other streams
     * are waited for, and what it ran is looked at. */
    bool foreign;
    /* Launches that follow each other come between `enter` and `leave`, outside of which `wait` waits for them all.
     * `captured`: launch `index` goes into a graph. */
    bw_status (*enqueue)(const bw_cuda_work *self, int64_t index, bool captured);
    void (*enter)(const bw_cuda_work *self);
    void (*leave)(const bw_cuda_work *self);
    bw_status (*wait)(const bw_cuda_work *self);
    /* The failure where so many kernels, the flushes among them, cannot be those of so many launches: each runs some,
     * and as many as the others. */
    bw_status (*miscounted)(int64_t kernels, int64_t flushes, int64_t launches);
};

/* Of the spec's variant, or the empty kernel, on the device's stream (work_variant.c); of its callable, on the
 * callable's stream (work_call.c). The spec must outlive the work. */
bw_cuda_work bw_cuda_work_of_variant(bw_device *device, const bw_plan_spec *spec);
bw_cuda_work bw_cuda_work_of_callable(bw_device *device, const bw_plan_spec *spec);

static inline bw_cuda_work bw_cuda_work_of(bw_device *device, const bw_plan_spec *spec) {
    return spec->callable ? bw_cuda_work_of_callable(device, spec) : bw_cuda_work_of_variant(device, spec);
}

#ifdef __cplusplus
}
#endif
#endif
