/* Work of ours: launches of a variant over its sets, or of the empty kernel. */
#include "cuda/runtime/service.h"
#include "cuda/timing/work.h"

static bw_status enqueue(const bw_cuda_work *self, int64_t index, bool captured) {
    const bw_plan_spec *spec = self->spec;
    (void)captured;
    if (!spec->variant) return bw_cuda_launch_empty(self->device);
    return spec->variant->launch(&spec->sets[index % spec->set_count]);
}

static void nothing(const bw_cuda_work *self) {
    (void)self;
}

static bw_status wait(const bw_cuda_work *self) {
    return BW_CUDA(&self->device->api, stream_synchronize(self->stream));
}

static bw_status miscounted(int64_t kernels, int64_t flushes, int64_t launches) {
    (void)flushes;
    return bw_fail(BW_CODE_DEVICE,
                   "CUPTI delivered %lld kernel records for %lld launches: measure with the timer graph",
                   (long long)kernels, (long long)launches);
}

bw_cuda_work bw_cuda_work_of_variant(bw_device *device, const bw_plan_spec *spec) {
    return (bw_cuda_work){.device = device,
                          .spec = spec,
                          .stream = device->stream,
                          .enqueue = enqueue,
                          .enter = nothing,
                          .leave = nothing,
                          .wait = wait,
                          .miscounted = miscounted};
}
