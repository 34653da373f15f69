/* The variants of the rows' operations on a GPU. */
#include "cuda/kernels/rows/rows.h"
#include "ops/families/rows.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

#define FUSED_TEXT "rows kept in registers by part of a warp or a block; longer ones are read again"

#define ROW(variant_name, choice, ...) \
    { .name = variant_name, .precisions = PRECISIONS, .rounds_once = true, BW_CUDA_HOOKS(choice), __VA_ARGS__ }

#define ONLY(operation)                                                                                      \
    BW_CUDA_PREPARE(operation, bw_##operation##_choose)                                                      \
    static const bw_variant operation##_rows[] = {                                                           \
        ROW("rows", operation, .text = FUSED_TEXT, .prediction = {.changes = "the only variant: one pass"}), \
    };                                                                                                       \
    const bw_variant_table bw_cuda_##operation = {operation##_rows, 1, NULL};

ONLY(rmsnorm)
ONLY(layernorm)
ONLY(softmax)

BW_CUDA_PREPARE(residual_rmsnorm, bw_residual_rmsnorm_choose)
BW_CUDA_PREPARE(residual_rmsnorm_unfused, bw_residual_rmsnorm_unfused_choose)
static const bw_variant residual_rmsnorm_rows[] = {
    ROW("unfused", residual_rmsnorm_unfused, .text = "an addition, then a norm that reads the sum again",
        .extra_cost = bw_residual_rmsnorm_unfused_cost, .prediction = {.changes = "the baseline: two kernels"}),
    ROW("fused", residual_rmsnorm, .text = FUSED_TEXT,
        .prediction = {.changes = "one kernel: the sum stays in registers for the norm",
                       .predicted = 1.25,
                       .because = "four matrices move instead of five"}),
};
const bw_variant_table bw_cuda_residual_rmsnorm = {residual_rmsnorm_rows, 2, "fp16 tokens=65536 hidden=8192"};

BW_CUDA_PREPARE(logsumexp, bw_logsumexp_choose)
BW_CUDA_PREPARE(logsumexp_unfused, bw_logsumexp_unfused_choose)
static const bw_variant logsumexp_rows[] = {
    {.name = "unfused",
     .text = "three kernels: maxima, stored exponentials, sums",
     .prediction = {.changes = "the baseline: three kernels, exponentials in memory"},
     .precisions = PRECISIONS,
     .scratch_bytes = bw_logsumexp_scratch,
     .extra_cost = bw_logsumexp_unfused_cost,
     BW_CUDA_HOOKS(logsumexp_unfused)},
    ROW("fused", logsumexp, .text = FUSED_TEXT,
        .prediction = {.changes = "one kernel: exponentials stay in registers",
                       .predicted = 4.0,
                       .because = "x is read once; it was read twice, and the exponentials written and read"}),
};
const bw_variant_table bw_cuda_logsumexp = {logsumexp_rows, 2, "fp16 rows=65536 columns=8192"};
