/* The variants of the KV cache's moves on a GPU: one each; appending to caches of 8 bits quantizes,
 * and gathering from them may dequantize. */
#include "cuda/kernels/kv/kv.h"

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
