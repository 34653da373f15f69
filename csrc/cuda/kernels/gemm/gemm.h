/* The rungs of the CUDA gemm ladder, one file each. */
#ifndef BW_CUDA_GEMM_H
#define BW_CUDA_GEMM_H

#include "cuda/launch/prepared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* tiled.cu */
const char *bw_tiled_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_tiled_choose;

/* gemv.cu */
const char *bw_gemv_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_gemv_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_gemv_choose;

/* wgmma_sm90.cu */
const char *bw_wgmma_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_wgmma_choose;

/* cublaslt.c */
const char *bw_cublaslt_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_cublaslt_workspace_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_cublaslt_prepare(const bw_launch *sets, int64_t set_count, void **state);
void bw_cublaslt_release(void *state);
bw_status bw_cublaslt_launch(const bw_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
