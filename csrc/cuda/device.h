/* The CUDA backend's device handle. */
#ifndef BW_CUDA_DEVICE_H
#define BW_CUDA_DEVICE_H

#include "backend/backend.h"
#include "cuda/api.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bw_device {
    bw_cuda_api api;
    bw_device_facts facts;
    int index;
    cudaStream_t stream; /* the one stream that everything is enqueued on; a capture runs on it too */
    void *cublaslt;      /* csrc/cuda/cublaslt.c's library handle, opened on first use; NULL until then */
};

/* Closes what csrc/cuda/cublaslt.c keeps in the handle; NULL is fine. */
void bw_cublaslt_close(bw_device *device);

#ifdef __cplusplus
}
#endif
#endif
