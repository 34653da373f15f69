/* Marks for Nsight Systems and Nsight Compute. */
#pragma once

#include "cuda/runtime/device.h"

/* Looks for a tool that takes them, for as long as the handle is open; the others do nothing where there is none. */
bw_status bw_cuda_nvtx_open(bw_device *device);

/* Around what the calling thread does. */
void bw_cuda_nvtx_push(bw_device *device, const bw_annotation *what);
void bw_cuda_nvtx_pop(bw_device *device);

extern const bw_annotation_calls bw_cuda_annotation_calls;
