// Launches the kernels of launch/service.cu through the device's call table, and checks for errors. The kernels of
// variants are launched by prepared.h.
#pragma once

#include "cuda/runtime/device.h"

// bw_cuda_launch(device, kernel<T>, grid, block, shared_bytes, arguments...): arguments convert to the kernel's
// parameter types. Enqueues on the device's stream, bw_cuda_launch_on on another one.
template <typename... Parameters, typename... Arguments>
static bw_status bw_cuda_launch_on(bw_device *device, cudaStream_t stream, void (*kernel)(Parameters...), dim3 grid,
                                   dim3 block, size_t shared_bytes, Arguments... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument per kernel parameter");
    return [&](Parameters... converted) -> bw_status {
        void *pointers[sizeof...(Parameters) + 1] = {(void *)&converted...};
        const void *function = (const void *)kernel;
        BW_TRY(BW_CUDA(&device->api, launch_kernel(function, grid, block, pointers, shared_bytes, stream)));
        return BW_CUDA(&device->api, last_error());
    }(static_cast<Parameters>(arguments)...);
}

template <typename... Parameters, typename... Arguments>
static bw_status bw_cuda_launch(bw_device *device, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                size_t shared_bytes, Arguments... arguments) {
    return bw_cuda_launch_on(device, device->stream, kernel, grid, block, shared_bytes, arguments...);
}
