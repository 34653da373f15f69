/* Marks for Nsight Systems and Nsight Compute. */
#pragma once

#include "cuda/runtime/device.h"

/* Looks for a tool that takes them, for as long as the handle is open. Without one, device->nvtx stays NULL. */
bw_status bw_cuda_nvtx_open(bw_device *device);

extern const bw_annotation_calls bw_cuda_annotation_calls;
