/* Declarations of the gemm variants on a GPU. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

/* ladder.cu: the two after `shared` refuse what it does */
const char *bw_gemm_naive_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_gemm_naive_choose;
const char *bw_gemm_coalesced_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_gemm_coalesced_choose;
const char *bw_gemm_shared_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_gemm_shared_choose;
bw_cuda_choose bw_gemm_padded_choose;
bw_cuda_choose bw_gemm_swizzled_choose;

/* tiled.cu */
const char *bw_tiled_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_tiled_choose;

/* vector.cu */
const char *bw_gemm_vector_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_gemm_vector_choose;

/* tensor.cu */
const char *bw_gemm_tensor_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_gemm_tensor_choose;

/* gemv.cu */
const char *bw_gemv_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_gemv_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_gemv_choose;

/* skinny.cu */
const char *bw_skinny_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_skinny_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_skinny_choose;

/* narrow/fused.cu */
const char *bw_scalar_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_scalar_choose;
const char *bw_fused_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_fused_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_fused_prepare(const bw_launch *sets, int64_t set_count, void **state); /* times plans */
bw_status bw_fused_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);

/* narrow/dequantize.cu */
const char *bw_dequantize_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_dequantize_choose;
const char *bw_dequantize_refuses_rows(int64_t n, int64_t k);
bw_status bw_dequantize_into_scratch(int64_t n, int64_t k, const bw_precision *precision, int64_t offset,
                                     bw_cuda_launch_spec *out);
const char *bw_separate_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_separate_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_separate_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                 bw_cost *cost);
bool bw_separate_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_separate_choose;

/* narrow/q4_0.cu: `per_block` refuses what `strided` does */
const char *bw_q4_0_naive_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_q4_0_strided_choose;
bw_cuda_choose bw_q4_0_per_block_choose;
const char *bw_q4_0_repacked_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_q4_0_repacked_scratch_bytes(const bw_dims *dims, const bw_precision *precision,
                                       const bw_device_facts *facts);
bw_status bw_q4_0_repacked_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                      bw_cost *cost);
bw_status bw_q4_0_repacked_transform(const bw_launch *launch);
bw_cuda_choose bw_q4_0_repacked_choose;
const char *bw_repack_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_repack_choose;

/* wgmma_sm90.cu */
const char *bw_wgmma_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_wgmma_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_wgmma_choose;
bw_status bw_wgmma_prepare(const bw_launch *sets, int64_t set_count, void **state);
bw_status bw_wgmma_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);

/* eight/wgmma_sm90.cu */
bw_cuda_choose bw_wgmma_eight_choose;
bw_status bw_wgmma_eight_prepare(const bw_launch *sets, int64_t set_count, void **state); /* times plans */

/* eight/scale.cu: what follows a library's products of INT8 */
bw_cuda_choose bw_gemm_scale_choose;

/* cublaslt_search.c */
const char *bw_cublaslt_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_cublaslt_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_cublaslt_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                 bw_cost *cost);
int64_t bw_cublaslt_workspace_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_cublaslt_prepare(const bw_launch *sets, int64_t set_count, void **state);
void bw_cublaslt_release(void *state);
bw_status bw_cublaslt_launch(const bw_launch *launch);

BW_C_END
