/* The variants of the KV cache's moves on a GPU: one each; appending to caches of 8 bits quantizes,
 * and gathering from them may dequantize. Those of rope and rope_append. */
#include "cuda/kernels/kv/kv.h"
#include "ops/families/kv.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) | BW_MASK(FP8_E4M3) | BW_MASK(INT8) };

#define BASELINE "the only variant: K and V in one launch, 16 bytes a thread and step, 8 where they are dequantized"

#define MOVE(operation)                                               \
    BW_CUDA_PREPARE(operation, bw_kv_##operation##_choose)            \
    static const bw_variant operation##_rows[] = {                    \
        {.name = "vector",                                            \
         .text = "K and V in one launch, 16 bytes a thread and step", \
         .prediction = {.changes = BASELINE},                         \
         .precisions = PRECISIONS,                                    \
         .refuses = bw_kv_##operation##_refuses,                      \
         BW_CUDA_HOOKS(operation)},                                   \
    };                                                                \
    const bw_variant_table bw_cuda_kv_##operation = {operation##_rows, 1, NULL};

MOVE(append)
MOVE(gather)
MOVE(copy)

enum { ROPE_PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

BW_CUDA_PREPARE(rope, bw_rope_choose)
BW_CUDA_PREPARE(unfused, bw_rope_unfused_choose)
BW_CUDA_PREPARE(fused, bw_rope_fused_choose)

static const bw_variant rope_rows[] = {
    {.name = "vector",
     .text = "q and k in one launch, 16 bytes of each half of a head a thread and step",
     .prediction = {.changes = "the only variant: q and k in one launch, 16 bytes of each half a thread and step"},
     .precisions = ROPE_PRECISIONS,
     .rounds_once = true,
     .refuses = bw_rope_refuses,
     BW_CUDA_HOOKS(rope)},
};
const bw_variant_table bw_cuda_rope = {rope_rows, 1, NULL};

static const bw_variant rope_append_rows[] = {
    {.name = "unfused",
     .text = "rope, then kv_append of the keys that it wrote to memory",
     .prediction = {.changes = "the baseline: rope, then kv_append"},
     .precisions = ROPE_PRECISIONS,
     .rounds_once = true,
     .refuses = bw_rope_append_refuses,
     .scratch_bytes = bw_rope_append_unfused_scratch,
     .extra_cost = bw_rope_append_unfused_cost,
     BW_CUDA_HOOKS(unfused)},
    {.name = "fused",
     .text = "one pass: keys and values go into the cache at once",
     .prediction = {.changes = "one pass over q, k and v",
                    .predicted = 1.17,
                    .because = "rotated keys are not written and read once more: 96 heads a token move, not 112"},
     .precisions = ROPE_PRECISIONS,
     .rounds_once = true,
     .refuses = bw_rope_append_refuses,
     BW_CUDA_HOOKS(fused)},
};
const bw_variant_table bw_cuda_rope_append = {rope_append_rows, 2,
                                              "fp16 seq_len=65536 num_heads=32 num_kv_heads=8 head_dim=128"};
