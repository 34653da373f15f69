/* Marks for tools that watch a process from outside: Nsight Systems, Nsight Compute. */
#ifndef BW_CUDA_NVTX_H
#define BW_CUDA_NVTX_H

#include "cuda/runtime/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a tool takes them; the others do nothing where none does. The first call looks for one. */
bool bw_cuda_nvtx_watched(bw_device *device);

/* Around what the calling thread does. */
void bw_cuda_nvtx_push(bw_device *device, const bw_annotation *what);
void bw_cuda_nvtx_pop(bw_device *device);

extern const bw_annotation_calls bw_cuda_annotation_calls;

#ifdef __cplusplus
}
#endif
#endif
