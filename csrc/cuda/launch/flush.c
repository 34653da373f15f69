/* Allocates the memory of a flush and enqueues the flush. */
#include "cuda/launch/flush.h"

#include "cuda/launch/service.h"

static bw_status set(bw_device *device, cudaStream_t stream, const bw_cuda_flush *self) {
    return BW_CUDA(&device->api, memory_set(self->memory, 0x5a, (size_t)self->bytes, stream));
}

bw_status bw_cuda_flush_open(bw_device *device, cudaStream_t stream, bw_flush kind, int64_t bytes, bw_cuda_flush *out) {
    *out = (bw_cuda_flush){.kind = kind};
    if (bytes <= 0) return BW_OK;
    out->bytes = bytes;
    BW_TRY(BW_CUDA(&device->api, memory_allocate(&out->memory, (size_t)bytes)));
    return set(device, stream, out);
}

bw_status bw_cuda_flush_enqueue(bw_device *device, cudaStream_t stream, const bw_cuda_flush *self) {
    if (!self->memory) return BW_OK;
    if (self->kind != BW_FLUSH_READ) BW_TRY(set(device, stream, self));
    if (self->kind == BW_FLUSH_MEMSET) return BW_OK;
    return bw_cuda_launch_flush(device, stream, self->memory, self->bytes);
}

void bw_cuda_flush_close(bw_device *device, bw_cuda_flush *self) {
    if (self->memory) BW_CUDA_IGNORE(&device->api, memory_free(self->memory));
    self->memory = NULL;
}
