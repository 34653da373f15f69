/* The variants of moves that swap two axes, on a GPU. */
#include "cuda/kernels/layout/layout.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

BW_CUDA_PREPARE(naive, bw_layout_naive_choose)
BW_CUDA_PREPARE(tiled, bw_transpose_tiled_choose)
BW_CUDA_PREPARE(swizzled, bw_transpose_swizzled_choose)
BW_CUDA_PREPARE(vector, bw_permute_vector_choose)

#define VARIANT(variant_name, refusal, ...)                                                       \
    {                                                                                             \
        .name = #variant_name, .precisions = PRECISIONS, .rounds_once = true, .refuses = refusal, \
        BW_CUDA_HOOKS(variant_name), __VA_ARGS__                                                  \
    }
#define NAIVE                                                                                         \
    VARIANT(naive, bw_layout_refuses, .text = "a thread an element: coalesced reads, strided writes", \
            .prediction = {.changes = "the baseline: a thread an element, in the input's order"})

static const bw_variant transpose_rows[] = {
    NAIVE,
    VARIANT(tiled, bw_transpose_tiled_refuses, .text = "padded tiles in shared memory: both sides coalesced",
            .prediction = {.changes = "32 x 32 tiles in shared memory, so that writes are coalesced",
                           .predicted = 4.0,
                           .because = "a sector of 32 bytes is written once, not once for each of its elements"}),
    VARIANT(swizzled, bw_transpose_swizzled_refuses, .text = "16 bytes a thread on both sides, swizzled shared memory",
            .prediction = {.changes = "16 bytes a thread on both sides; chunks swizzled instead of rows padded",
                           .predicted = 1.3,
                           .because = "an eighth of the memory instructions, and more bytes in flight"}),
};
const bw_variant_table bw_cuda_transpose = {transpose_rows, sizeof transpose_rows / sizeof transpose_rows[0],
                                            "fp16 rows=16384 columns=16384"};

static const bw_variant permute_rows[] = {
    NAIVE,
    VARIANT(vector, bw_layout_refuses, .text = "16 bytes a thread and step; fewer where they do not divide a head",
            .prediction = {.changes = "chunks of 16 bytes, four of them in flight in each thread",
                           .predicted = 1.8,
                           .because = "an eighth of the instructions, and more bytes in flight"}),
};
const bw_variant_table bw_cuda_permute = {permute_rows, sizeof permute_rows / sizeof permute_rows[0],
                                          "fp16 batch=16 seq_len=4096 num_heads=32 head_dim=128"};
