/* The variants of element-wise operations and their chain on a GPU. */
#include "cuda/kernels/elementwise/elementwise.h"
#include "ops/families/elementwise.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

#define ELEMENTWISE(operation)                                                                             \
    BW_CUDA_PREPARE(operation, bw_##operation##_choose)                                                    \
    static const bw_variant operation##_rows[] = {                                                         \
        {.name = "direct",                                                                                 \
         .text = "one tile per block, 16-byte accesses, evict-first cache policy",                         \
         .prediction = {.changes = "the only variant: one tile a block, 16-byte accesses, as streams do"}, \
         .precisions = PRECISIONS,                                                                         \
         .rounds_once = true,                                                                              \
         .refuses = bw_elementwise_refuses,                                                                \
         BW_CUDA_HOOKS(operation)},                                                                        \
    };                                                                                                     \
    const bw_variant_table bw_cuda_##operation = {operation##_rows, 1, NULL};

ELEMENTWISE(relu)
ELEMENTWISE(gelu)
ELEMENTWISE(residual_add)
ELEMENTWISE(silu_mul)

BW_CUDA_PREPARE(unfused, bw_chain_unfused_choose)
BW_CUDA_PREPARE(fused, bw_chain_fused_choose)

static const bw_variant chain_rows[] = {
    {.name = "unfused",
     .text = "four kernels, each of which stores its result",
     .prediction = {.changes = "the baseline: bias, relu, dropout and residual are a kernel each"},
     .precisions = PRECISIONS,
     .refuses = bw_chain_refuses,
     .scratch_bytes = bw_chain_unfused_scratch,
     .extra_cost = bw_chain_unfused_cost,
     BW_CUDA_HOOKS(unfused)},
    {.name = "fused",
     .text = "one kernel, nothing stored between the steps",
     .prediction = {.changes = "one kernel: what lies between the steps stays in registers",
                    .predicted = 3.0,
                    .because = "3 n elements move instead of 9 n, and memory bounds all five kernels"},
     .precisions = PRECISIONS,
     .rounds_once = true,
     .refuses = bw_chain_refuses,
     BW_CUDA_HOOKS(fused)},
};

const bw_variant_table bw_cuda_bias_relu_dropout_residual = {chain_rows, sizeof chain_rows / sizeof chain_rows[0],
                                                             "fp16 tokens=65536 hidden=4096"};
