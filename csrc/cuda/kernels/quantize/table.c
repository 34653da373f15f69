/* The variants of what quantizes results on a GPU. */
#include "cuda/kernels/quantize/quantize.h"
#include "ops/families/quantize.h"

BW_CUDA_PREPARE(unfused, bw_silu_unfused_choose)
BW_CUDA_PREPARE(fused, bw_silu_fused_choose)

static const bw_variant rows[] = {
    {.name = "unfused",
     .text = "silu(gate) * up in 16 bits to memory, then a kernel that quantizes tokens",
     .prediction = {.changes = "the baseline: silu(gate) * up in 16 bits, then a kernel that quantizes"},
     .precisions = BW_MASK(FP8_E4M3),
     .refuses = bw_silu_refuses,
     .scratch_bytes = bw_silu_unfused_scratch,
     .extra_cost = bw_silu_unfused_cost,
     BW_CUDA_HOOKS(unfused)},
    {.name = "fused",
     .text = "one pass, a token in a block's shared memory",
     .prediction = {.changes = "one pass over gate and up, a token in shared memory",
                    .predicted = 1.8,
                    .because = "the 16-bit product is not written and read: 5 bytes an element move, not 9"},
     .precisions = BW_MASK(FP8_E4M3),
     .rounds_once = true,
     .refuses = bw_silu_refuses,
     BW_CUDA_HOOKS(fused)},
};
const bw_variant_table bw_cuda_silu_mul_quantize = {rows, 2, "fp8_e4m3 tokens=16384 hidden=14336"};
