/* moe_gemm on a GPU:
 *   naive     a warp an element of D (naive.cu)
 *   tensor    tiles of 128 rows of an expert on tensor cores (gemm's tensor.cu)
 *   wgmma     the same on Hopper's, rows of A gathered first (wgmma_sm90.cu)
 *   separate  narrow weights become FP16 or BF16 in memory first (likewise)
 *   streamed  few tokens an expert: the time is that of reading the weights of those that have tokens (streamed.cuh) */
#include "cuda/kernels/gemm/experts/experts.h"

enum { STREAMED_PRECISIONS = BW_WEIGHT_PRECISIONS & ~(BW_MASK(FP32) | BW_MASK(TF32)) };

BW_CUDA_PREPARE(naive, bw_moe_naive_choose)
BW_CUDA_PREPARE(tensor, bw_moe_tensor_choose)

#define WGMMA_HOOKS                                                                                                    \
    .rounds_once = false, /* of E4M3, and narrow weights */                                                            \
        .refuses = bw_moe_wgmma_refuses, .prefers = bw_moe_wgmma_prefers, .scratch_bytes = bw_moe_wgmma_scratch_bytes, \
    .extra_cost = bw_moe_wgmma_extra_cost, .prepare = bw_moe_wgmma_prepare, .release = bw_cuda_prepared_release,       \
    .launch = bw_cuda_prepared_launch, .describe = bw_moe_wgmma_describe

static const bw_variant rows[] = {
    {.name = "naive",
     .text = "a warp an element of D, weights read one by one",
     .prediction = {.changes = "the baseline: what the formula says, a warp an element of D"},
     .precisions = BW_WEIGHT_PRECISIONS,
     .rounds_once = true,
     .refuses = bw_moe_naive_refuses,
     BW_CUDA_HOOKS(naive)},
    {.name = "tensor",
     .text = "128 x 128 tiles of all experts on tensor cores (mma.sync), rows of A fetched where the routing says",
     .prediction = {.changes = "one launch walks over 128 x 128 tiles of all experts, products on tensor cores",
                    .predicted = 20.0,
                    .because = "B once for 128 tokens instead of for each, 16-byte copies in three stages",
                    .at = "fp16 tokens=4096 experts=8 top_k=2 N=4096 K=4096"},
     .precisions = BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16),
     .rounds_once = true,
     .refuses = bw_moe_tensor_refuses,
     .prefers = bw_moe_tensor_prefers,
     BW_CUDA_HOOKS(tensor)},
    {.name = "separate",
     .text = "narrow weights become FP16 or BF16 in memory, then wgmma",
     .prediction =
         {.changes = "three kernels: write B in 16 bits, gather rows of A, multiply",
          .predicted = 200.0,
          .because = "naive takes 20 instructions for each weight and token; unpacking once costs little beside them",
          .at = "int4_g128 tokens=4096 experts=8 top_k=2 N=4096 K=4096"},
     .precisions = BW_NARROW_WEIGHT_PRECISIONS,
     WGMMA_HOOKS},
    {.name = "wgmma",
     .text = "Hopper's tensor cores (wgmma), fed by TMA, tiles of all experts in one launch, rows of A gathered first",
     .prediction = {.changes = "rows of A gathered first into D's order; wgmma, fed by TMA, instead of mma.sync",
                    .predicted = 1.5,
                    .because = "1.6 in gemm; gathering takes a few percent",
                    .at = "fp16 tokens=4096 experts=8 top_k=2 N=4096 K=4096"},
     .precisions =
         BW_MASK(FP16) | BW_MASK(BF16) | BW_MASK(FP8_E4M3) | BW_MASK(INT8) | BW_MASK(FP8_TENSOR) | BW_MASK(FP8_BLOCK),
     WGMMA_HOOKS},
    {.name = "streamed",
     .text = "one launch walks over all experts with tokens, up to 16 of one at once, on tensor cores (mma.sync)",
     .prediction = {.changes = "blocks walk over tiles of all experts, weights on their way before a tile begins",
                    .predicted = 2.0,
                    .because = "a tile of 128 rows for one token keeps a third of the bytes under way that this does",
                    .at = "fp16 tokens=16 experts=128 top_k=8 N=1536 K=2048"},
     .precisions = STREAMED_PRECISIONS,
     .rounds_once = true,
     .refuses = bw_streamed_refuses,
     .prepare = bw_streamed_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = bw_streamed_describe},
};

const bw_variant_table bw_cuda_moe_gemm = {rows, sizeof rows / sizeof rows[0],
                                           "fp16 tokens=16 experts=128 top_k=8 N=1536 K=2048"};
