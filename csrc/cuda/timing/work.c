/* Runs a plan's work once, waits for it, and explains kernels that are missing. */
#include "cuda/timing/work.h"

bw_cuda_work bw_cuda_work_of(bw_device *device, const bw_plan_spec *spec) {
    return (bw_cuda_work){.device = device,
                          .spec = spec,
                          .stream = spec->work.foreign ? (cudaStream_t)spec->work.stream : device->stream,
                          .foreign = spec->work.foreign};
}

bw_status bw_cuda_work_wait(const bw_cuda_work *self) {
    if (self->foreign) return BW_CUDA(&self->device->api, device_synchronize());
    return BW_CUDA(&self->device->api, stream_synchronize(self->stream));
}

bw_status bw_cuda_work_run(const bw_cuda_work *self, int64_t launches) {
    const bw_work *work = &self->spec->work;
    bw_status status = BW_OK;
    bw_work_enter(work);
    for (int64_t i = 0; i < launches && !status; i++) status = bw_plan_spec_launch(self->spec, i, false);
    bw_work_leave(work);
    return self->foreign ? bw_status_first(status, bw_cuda_work_wait(self)) : status;
}

bw_status bw_cuda_work_count_error(const bw_cuda_work *self, int64_t kernels, int64_t flushes, int64_t launches) {
    if (!self->foreign) {
        return bw_fail(BW_CODE_DEVICE,
                       "CUPTI delivered %lld kernel records for %lld launches: measure with the timer graph",
                       (long long)kernels, (long long)launches);
    }
    if (kernels - flushes < launches) {
        return bw_fail(BW_CODE_INVALID,
                       "the function enqueued nothing on the GPU: pass the stream that it works on as stream=, or "
                       "backend='cpu' for work of the processor");
    }
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "CUPTI saw %lld kernels and copies in %lld calls: each call must run the same number of them",
                   (long long)kernels, (long long)launches);
}
