/* Makes a handle's device current, and waits for its stream. */
#include "cuda/runtime/device.h"

bw_status bw_cuda_enter(bw_device *device) {
    return BW_CUDA(&device->api, set_device(device->index));
}

bw_status bw_cuda_synchronize(bw_device *device) {
    BW_TRY(bw_cuda_enter(device));
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}
