/* Precisions: what an operation is asked for, one row of BW_PRECISIONS each. A row says how the operands of each role
 * are stored (base/types/dtype.h) and in what type products are taken. */
#pragma once

#include "base/types/dtype.h"

/* X(id, name, activation, weight, cache, result, compute, scale, text), in the order of tables; a new one comes last
 * - activation: what meets weights in a product;
 * - weight: what a model stores;
 * - cache: keys and values in a KV cache;
 * - result: what operations write, and what they take that is another one's result (queries, new tokens, an addend);
 * - compute: the type of a product's factors, whose arithmetic rate is the roof; sums are FP32;
 * - scale: of scales beside the values that need some (operands of their own; NONE: nothing has any). */
#define BW_PRECISIONS(X)                                                                              \
    X(FP32, "fp32", FP32, FP32, FP32, FP32, FP32, NONE, "IEEE 754 binary32")                          \
    X(TF32, "tf32", TF32, TF32, NONE, FP32, TF32, NONE,                                               \
      "binary32 storage, inputs rounded to 10 bits, results binary32")                                \
    X(FP16, "fp16", FP16, FP16, FP16, FP16, FP16, NONE, "IEEE 754 binary16")                          \
    X(BF16, "bf16", BF16, BF16, BF16, BF16, BF16, NONE, "bfloat16: binary32 with 7 significand bits") \
    X(FP8_E4M3, "fp8_e4m3", FP8_E4M3, FP8_E4M3, FP8_E4M3, FP16, FP8_E4M3, FP32,                       \
      "8-bit E4M3 activations, weights and caches with FP32 scales; results binary16")                \
    X(INT8, "int8", INT8, INT8, INT8, FP16, INT8, FP32,                                               \
      "8-bit whole activations, weights and caches with FP32 scales; results binary16")               \
    X(Q4_0, "q4_0", FP16, Q4_0, NONE, FP16, FP16, NONE,                                               \
      "4-bit weights, 32 with a scale, in 18 bytes; activations and results binary16")

typedef enum bw_precision_id {
#define BW_PRECISION_ENUM(id, ...) BW_PRECISION_##id,
    BW_PRECISIONS(BW_PRECISION_ENUM)
#undef BW_PRECISION_ENUM
        BW_PRECISION_COUNT
} bw_precision_id;

typedef struct bw_precision {
    bw_precision_id id;
    const char *name;
    bw_dtype activation, weight, cache, result, compute, scale;
    const char *text;
} bw_precision;

/* A set of precisions: BW_MASK(FP32) | BW_MASK(FP16). */
#define BW_MASK(id) (1u << BW_PRECISION_##id)

/* Those that have a type for weights, and those that have one for caches. */
#define BW_PRECISION_WITH_WEIGHT(id, name, activation, weight, ...) | (BW_##weight != BW_NONE ? BW_MASK(id) : 0u)
#define BW_PRECISION_WITH_CACHE(id, name, activation, weight, cache, ...) | (BW_##cache != BW_NONE ? BW_MASK(id) : 0u)
enum {
    BW_WEIGHT_PRECISIONS = 0u BW_PRECISIONS(BW_PRECISION_WITH_WEIGHT),
    BW_CACHE_PRECISIONS = 0u BW_PRECISIONS(BW_PRECISION_WITH_CACHE)
};
#undef BW_PRECISION_WITH_WEIGHT
#undef BW_PRECISION_WITH_CACHE

BW_C const bw_precision *bw_precision_get(bw_precision_id id);
BW_C bw_status bw_precision_find(const char *name, const bw_precision **out); /* names what is allowed */

static inline bool bw_precision_in(unsigned mask, const bw_precision *precision) {
    return mask >> precision->id & 1u;
}
