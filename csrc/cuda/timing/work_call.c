/* Work of a caller's: calls of a function that enqueues something, on a stream that it names. */
#include "cuda/timing/work.h"

static bw_status enqueue(const bw_cuda_work *self, int64_t index, bool captured) {
    const bw_callable *callable = self->spec->callable;
    return callable->call(callable->context, index % self->spec->set_count, captured);
}

static void enter(const bw_cuda_work *self) {
    self->spec->callable->enter(self->spec->callable->context);
}

static void leave(const bw_cuda_work *self) {
    self->spec->callable->leave(self->spec->callable->context);
}

/* The call's own streams as well, whichever they are. */
static bw_status wait(const bw_cuda_work *self) {
    return BW_CUDA(&self->device->api, device_synchronize());
}

static bw_status miscounted(int64_t kernels, int64_t flushes, int64_t launches) {
    if (kernels - flushes < launches) {
        return bw_fail(BW_CODE_INVALID,
                       "the function enqueued nothing on the GPU: pass the stream that it works on as stream=, or "
                       "backend='cpu' for work of the processor");
    }
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "CUPTI saw %lld kernels and copies in %lld calls: each call must run the same number of them",
                   (long long)kernels, (long long)launches);
}

bw_cuda_work bw_cuda_work_of_callable(bw_device *device, const bw_plan_spec *spec) {
    return (bw_cuda_work){.device = device,
                          .spec = spec,
                          .stream = (cudaStream_t)spec->callable->stream,
                          .foreign = true,
                          .enqueue = enqueue,
                          .enter = enter,
                          .leave = leave,
                          .wait = wait,
                          .miscounted = miscounted};
}
