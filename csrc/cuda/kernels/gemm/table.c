/* gemm on a GPU. The ladder, whose variants `changes` explains:
 *   naive, coalesced, shared, padded, swizzled   the plain ones (ladder.cu)
 *   tiled, vector                                          sums in registers (tiled.cu, vector.cu)
 *   tensor                                                 mma.sync (tensor.cu)
 *   gemv      few rows of A: the time is that of reading B, which streams through registers (gemv.cu)
 *   skinny    2 to 16 rows of A: the same on tensor cores (skinny.cu); in FP32 up to 32 (skinny_fp32.cu)
 *   strided, per_block   the plain ones for Q4_0 (narrow/q4_0.cu)
 *   scalar    weights of 8 or 4 bits, unpacked one by one (narrow/fused.cu)
 *   separate  the same as FP16 or BF16 in memory, then the product in that type (narrow/dequantize.cu)
 *   fused     the same eight at a time, in registers, for tensor cores (narrow/fused.cu)
 *   repacked  Q4_0 that was repacked once, few rows of A (narrow/q4_0.cu)
 *   wgmma     Hopper's tensor cores, fed by TMA (wgmma.cuh)
 *   cublaslt  NVIDIA's library: tensor cores, and the algorithm that is fastest here among those it offers
 * Where A has 8 bits too (eight/): coalesced, skinny, wgmma and cublaslt. */
#include "cuda/kernels/gemm/gemm.h"

enum {
    PRECISIONS = BW_MASK(FP32) | BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16),
    TENSOR_PRECISIONS = BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16),
    EIGHT_BIT_PRECISIONS = BW_MASK(FP8_E4M3) | BW_MASK(INT8) | BW_MASK(FP8_TENSOR) | BW_MASK(FP8_BLOCK)
};

#define Q4_0_SHAPE "q4_0 M=1 N=14336 K=4096"

/* What most variants are but for their rows' own words: a `refuses` and a `choose`. */
#define VARIANT(variant_name, refusal, takes, ...)                                           \
    {                                                                                        \
        .name = #variant_name, .precisions = takes, .rounds_once = true, .refuses = refusal, \
        BW_CUDA_HOOKS(variant_name), __VA_ARGS__                                             \
    }

BW_CUDA_PREPARE(naive, bw_gemm_naive_choose)
BW_CUDA_PREPARE(coalesced, bw_gemm_coalesced_choose)
BW_CUDA_PREPARE(shared, bw_gemm_shared_choose)
BW_CUDA_PREPARE(padded, bw_gemm_padded_choose)
BW_CUDA_PREPARE(swizzled, bw_gemm_swizzled_choose)
BW_CUDA_PREPARE(tiled, bw_tiled_choose)
BW_CUDA_PREPARE(vector, bw_gemm_vector_choose)
BW_CUDA_PREPARE(tensor, bw_gemm_tensor_choose)
BW_CUDA_PREPARE(gemv, bw_gemv_choose)
BW_CUDA_PREPARE(skinny, bw_skinny_choose)
BW_CUDA_PREPARE(strided, bw_q4_0_strided_choose)
BW_CUDA_PREPARE(per_block, bw_q4_0_per_block_choose)
BW_CUDA_PREPARE(separate, bw_separate_choose)
BW_CUDA_PREPARE(scalar, bw_scalar_choose)
BW_CUDA_PREPARE(repacked, bw_q4_0_repacked_choose)

static const bw_variant rows[] = {
    VARIANT(naive, bw_gemm_naive_refuses, PRECISIONS, .text = "a thread an element of D",
            .prediction = {.changes = "the baseline: what the formula says, a thread an element of D"}),
    VARIANT(coalesced, bw_gemm_coalesced_refuses, PRECISIONS | EIGHT_BIT_PRECISIONS,
            .text = "a warp an element of D, its lanes side by side",
            .prediction =
                {.changes = "a warp an element: lanes read neighbors in memory, not rows that lie K apart",
                 .predicted = 8.0,
                 .because =
                     "a load touches 1 line instead of 32; adding up the lanes' sums and L2 take a part of that back"}),
    VARIANT(
        shared, bw_gemm_shared_refuses, PRECISIONS, .text = "32 x 32 tiles through shared memory, a thread an element",
        .prediction = {.changes = "32 x 32 tiles in shared memory: each element is read from L2 once for 32 products",
                       .predicted = 0.5,
                       .because =
                           "32 lanes read one column, which is one bank: 8 turns a product (16-byte loads), where "
                           "L1 took 4"}),
    VARIANT(padded, bw_gemm_shared_refuses, PRECISIONS,
            .text = "32 x 32 tiles through shared memory, rows of 33, a thread an element",
            .prediction = {.changes = "rows of 33 floats in shared memory: no bank conflicts",
                           .predicted = 3.0,
                           .because = "2 turns a product instead of 8; fetching the tiles stays"}),
    VARIANT(
        swizzled, bw_gemm_shared_refuses, PRECISIONS,
        .text = "32 x 32 tiles through shared memory, swizzled pieces of 16 bytes, a thread an element",
        .prediction =
            {.changes = "rows of 32 floats, their 16-byte pieces swizzled: no bank conflicts, and a load brings four",
             .predicted = 1.5,
             .because = "1.25 turns a product instead of 2, a load for four products instead of one; fetching the "
                        "tiles stays"}),
    VARIANT(tiled, bw_tiled_refuses, PRECISIONS, .text = "64 x 64 tiles through shared memory, float arithmetic",
            .prediction = {.changes = "64 x 64 tiles, 4 x 4 sums a thread in registers",
                           .predicted = 2.3,
                           .because = "half a turn in shared memory for a product instead of 1.25"}),
    VARIANT(vector, bw_gemm_vector_refuses, PRECISIONS,
            .text = "128 x 128 tiles, 8 x 8 sums a thread, 16-byte loads, two pairs of buffers",
            .prediction = {.changes = "128 x 128 tiles, 8 x 8 sums, 16-byte loads, the next tiles under way",
                           .predicted = 2.0,
                           .because = "4 loads for 64 products: float arithmetic itself becomes the limit"}),
    VARIANT(
        tensor, bw_gemm_tensor_refuses, TENSOR_PRECISIONS,
        .text = "128 x 128 tiles on tensor cores (mma.sync), copied asynchronously, three stages",
        .prediction = {.changes = "tensor cores (mma.sync), fragments by ldmatrix, asynchronous copies in three stages",
                       .predicted = 8.0,
                       .because = "16 times the arithmetic rate, of which mma.sync reaches about half on Hopper"}),
    VARIANT(gemv, bw_gemv_refuses, PRECISIONS, .text = "few rows of A: streams B once through registers",
            .prefers = bw_gemv_prefers,
            .prediction = {.changes = "few rows of A: B streams through registers, 16 bytes a lane, no tiles",
                           .predicted = 1.6,
                           .because =
                               "a tile of 128 rows for one leaves half of the memory's bandwidth waiting at barriers",
                           .at = "fp16 M=1 N=14336 K=4096"}),
    VARIANT(skinny, bw_skinny_refuses, PRECISIONS | EIGHT_BIT_PRECISIONS,
            .text = "up to 16 rows of A, in FP32 32, on tensor cores (mma.sync), B asked for early in 16-byte loads",
            .prefers = bw_skinny_prefers,
            .prediction =
                {.changes = "few rows of A on tensor cores: B's fragments are loaded as they lie, 16 bytes a lane",
                 .predicted = 1.65,
                 .because = "gemv's arithmetic for 8 rows takes 1.7 times as long as reading B; this takes none of it",
                 .at = "fp16 M=8 N=14336 K=4096"}),
    VARIANT(strided, bw_q4_0_naive_refuses, BW_MASK(Q4_0), .text = "Q4_0: a thread an element of D",
            .prediction = {.changes = "the baseline for Q4_0: a thread an element of D, each weight's scale read anew",
                           .at = Q4_0_SHAPE}),
    VARIANT(
        per_block, bw_q4_0_naive_refuses, BW_MASK(Q4_0), .text = "Q4_0: a thread an element of D, block by block",
        .prediction = {.changes = "a scale is read once for its 32 weights",
                       .predicted = 2.0,
                       .because = "2 loads a weight instead of 3, of a loop that waits for each; rows still lie apart",
                       .at = Q4_0_SHAPE}),
    VARIANT(scalar, bw_scalar_refuses, BW_NARROW_WEIGHT_PRECISIONS,
            .text = "a warp a row of narrow weights, 8 rows of A at once",
            .prediction = {.changes = "a warp a row of B, unpacked one by one: the baseline for other narrow weights",
                           .predicted = 0.9,
                           .because = "lanes read neighbors, but each weight its scale, by about 20 instructions",
                           .at = Q4_0_SHAPE}),
    {.name = "separate",
     .text = "narrow weights become FP16 or BF16 in memory, then the product in that type",
     .prediction = {.changes = "two kernels: one writes B in 16 bits, one multiplies",
                    .predicted = 0.75,
                    .because = "8 times the bytes: 4.5 bits of a weight are read, 16 written and read again",
                    .at = Q4_0_SHAPE},
     .precisions = BW_NARROW_WEIGHT_PRECISIONS,
     .refuses = bw_separate_refuses,
     .prefers = bw_separate_prefers,
     .scratch_bytes = bw_separate_scratch_bytes,
     .extra_cost = bw_separate_extra_cost,
     BW_CUDA_HOOKS(separate)},
    {.name = "fused",
     .text = "narrow weights become FP16 or BF16 in registers, for tensor cores (mma.sync), A stays there for many "
             "rows of B",
     .prediction = {.changes =
                        "weights unpacked eight at a time in registers, products on tensor cores, 16-byte copies",
                    .predicted = 5.0,
                    .because = "2 instructions a weight instead of about 20: reading B is the limit, not arithmetic",
                    .at = "int4_g128 M=1 N=14336 K=4096"},
     .precisions = BW_NARROW_WEIGHT_PRECISIONS,
     .rounds_once = true,
     .refuses = bw_fused_refuses,
     .prefers = bw_fused_prefers,
     .prepare = bw_fused_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = bw_fused_describe},
    {.name = "repacked",
     .text = "Q4_0 repacked once: tiles straight to registers, 16 bytes a lane, for tensor cores; up to 8 rows of A",
     .prediction = {.changes = "weights repacked once, so that lanes load whole words of 16 bytes, no shared memory",
                    .predicted = 1.07,
                    .because = "blocks of 18 bytes take 1.5 loads and a permutation a word, and pieces of 144 bytes "
                               "take 5 sectors for 4.5; memory is the limit of both",
                    .at = Q4_0_SHAPE},
     .precisions = BW_MASK(Q4_0),
     .rounds_once = true,
     .refuses = bw_q4_0_repacked_refuses,
     .scratch_bytes = bw_q4_0_repacked_scratch_bytes,
     .extra_cost = bw_q4_0_repacked_extra_cost,
     .transform = bw_q4_0_repacked_transform,
     BW_CUDA_HOOKS(repacked)},
    {.name = "wgmma",
     .text = "Hopper's tensor cores (wgmma), fed by TMA",
     .prediction = {.changes =
                        "wgmma and TMA: a producer keeps four to seven stages full, one or two warpgroups multiply",
                    .predicted = 1.6,
                    .because = "wgmma reads operands from shared memory: no ldmatrix, no fragments in registers"},
     .precisions = TENSOR_PRECISIONS | EIGHT_BIT_PRECISIONS,
     .rounds_once = false, /* of E4M3 */
     .refuses = bw_wgmma_refuses,
     .prefers = bw_wgmma_prefers,
     .prepare = bw_wgmma_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = bw_wgmma_describe},
    {.name = "cublaslt",
     .text = "NVIDIA cuBLASLt, the fastest of the algorithms it offers",
     .prediction = {.changes = "NVIDIA's library: on Hopper wgmma and TMA, and the fastest of its algorithms",
                    .predicted = 1.06,
                    .because = "1.7 over tensor, of which wgmma was to bring 1.6: it is the same instructions"},
     .precisions = PRECISIONS | (EIGHT_BIT_PRECISIONS & ~BW_MASK(FP8_BLOCK)),
     .rounds_once = false, /* of E4M3 */
     .refuses = bw_cublaslt_refuses,
     .scratch_bytes = bw_cublaslt_scratch_bytes,
     .extra_cost = bw_cublaslt_extra_cost,
     .workspace_bytes = bw_cublaslt_workspace_bytes,
     .prepare = bw_cublaslt_prepare,
     .release = bw_cublaslt_release,
     .launch = bw_cublaslt_launch},
};

const bw_variant_table bw_cuda_gemm = {rows, sizeof rows / sizeof rows[0], "fp16 M=2048 N=2048 K=2048"};

/* What becomes of weights alone: one variant each. */
#define WEIGHTS(operation, takes, variant_name, what)          \
    BW_CUDA_PREPARE(operation, bw_##operation##_choose)        \
    static const bw_variant operation##_rows[] = {             \
        {.name = variant_name,                                 \
         .text = what,                                         \
         .prediction = {.changes = "the only variant: " what}, \
         .precisions = takes,                                  \
         .rounds_once = true,                                  \
         .refuses = bw_##operation##_refuses,                  \
         BW_CUDA_HOOKS(operation)},                            \
    };                                                         \
    const bw_variant_table bw_cuda_weight_##operation = {operation##_rows, 1, NULL};

WEIGHTS(dequantize, BW_NARROW_WEIGHT_PRECISIONS, "vector", "twice 8 neighbors a thread, written 16 bytes at once")
WEIGHTS(repack, BW_MASK(Q4_0), "tiles", "eight tiles of 16 rows a block, through shared memory, 16 bytes at a time")
