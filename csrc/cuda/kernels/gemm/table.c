/* gemm on a GPU. The ladder:
 *   tiled     64 x 64 tiles through shared memory, float arithmetic (tiled.cu)
 *   gemv      few rows of A: the time is that of reading B, so B streams through registers and nothing else matters
 *             (gemv.cu)
 *   wgmma     Hopper's tensor cores, fed by TMA (wgmma_sm90.cu)
 *   cublaslt  NVIDIA's library: tensor cores, and the algorithm that is fastest here among those it offers */
#include "cuda/kernels/gemm/gemm.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16) };

BW_CUDA_PREPARE(tiled, bw_tiled_choose)
BW_CUDA_PREPARE(gemv, bw_gemv_choose)
BW_CUDA_PREPARE(wgmma, bw_wgmma_choose)

static const bw_variant rows[] = {
    {.name = "tiled",
     .text = "64 x 64 tiles through shared memory, float arithmetic",
     .precisions = PRECISIONS,
     .rounds_once = true,
     .refuses = bw_tiled_refuses,
     .prepare = tiled_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = tiled_describe},
    {.name = "gemv",
     .text = "few rows of A: streams B once through registers",
     .precisions = PRECISIONS,
     .rounds_once = true,
     .refuses = bw_gemv_refuses,
     .prefers = bw_gemv_prefers,
     .prepare = gemv_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = gemv_describe},
    {.name = "wgmma",
     .text = "Hopper's tensor cores (wgmma), fed by TMA",
     .precisions = BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16),
     .rounds_once = true,
     .refuses = bw_wgmma_refuses,
     .prepare = wgmma_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = wgmma_describe},
    {.name = "cublaslt",
     .text = "NVIDIA cuBLASLt, the fastest of the algorithms it offers",
     .precisions = PRECISIONS,
     .rounds_once = true,
     .refuses = bw_cublaslt_refuses,
     .workspace_bytes = bw_cublaslt_workspace_bytes,
     .prepare = bw_cublaslt_prepare,
     .release = bw_cublaslt_release,
     .launch = bw_cublaslt_launch},
};

const bw_variant_table bw_cuda_gemm = {rows, sizeof rows / sizeof rows[0]};
