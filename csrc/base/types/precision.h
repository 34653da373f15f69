/* Precisions: what an operation is asked for, one row of BW_PRECISIONS each. A row says how the operands of each role
 * are stored (base/types/dtype.h), which scales they have, and in what type products are taken. */
#pragma once

#include "base/types/dtype.h"

/* Scales beside the values of a matrix, operands of their own. X(id, type, rows, columns, zero, whole)
 * - type: of a scale, which serves so many rows of the matrix and so many columns; 0: all of them;
 * - zero: type of a zero point, one for each scale, that is subtracted from the values first;
 * - whole: type of one more scale for the whole matrix. */
#define BW_SCALINGS(X)                       \
    X(UNSCALED, NONE, 0, 0, NONE, NONE)      \
    X(ROWS, FP32, 1, 0, NONE, NONE)          \
    X(GROUPS_32, FP16, 1, 32, UINT4, NONE)   \
    X(GROUPS_64, FP16, 1, 64, UINT4, NONE)   \
    X(GROUPS_128, FP16, 1, 128, UINT4, NONE) \
    X(MX, E8M0, 1, 32, NONE, NONE)           \
    X(NV, FP8_E4M3, 1, 16, NONE, FP32)       \
    X(WHOLE, FP32, 0, 0, NONE, NONE)         \
    X(COLUMNS_128, FP32, 1, 128, NONE, NONE) \
    X(SQUARES_128, FP32, 128, 128, NONE, NONE)

typedef enum bw_scaling_id {
#define BW_SCALING_ENUM(id, ...) BW_SCALING_##id,
    BW_SCALINGS(BW_SCALING_ENUM)
#undef BW_SCALING_ENUM
        BW_SCALING_COUNT
} bw_scaling_id;

typedef struct bw_scaling {
    bw_dtype type;
    int rows, columns;
    bw_dtype zero, whole;
} bw_scaling;

/* X(id, name, activation, weight, cache, result, compute, activation's scales, weight's, cache's, text), in the order
 * of tables; a new one comes last
 * - activation: what meets weights in a product;
 * - weight: what a model stores;
 * - cache: keys and values in a KV cache, a row for each token and head;
 * - result: what operations write, and what they take that is another one's result (queries, new tokens, an addend);
 * - compute: the type of a product's factors, whose arithmetic rate is the roof; sums are FP32. */
#define BW_PRECISIONS(X)                                                                                      \
    X(FP32, "fp32", FP32, FP32, FP32, FP32, FP32, UNSCALED, UNSCALED, UNSCALED, "IEEE 754 binary32")          \
    X(TF32, "tf32", TF32, TF32, NONE, FP32, TF32, UNSCALED, UNSCALED, UNSCALED,                               \
      "binary32 storage, inputs rounded to 10 bits, results binary32")                                        \
    X(FP16, "fp16", FP16, FP16, FP16, FP16, FP16, UNSCALED, UNSCALED, UNSCALED, "IEEE 754 binary16")          \
    X(BF16, "bf16", BF16, BF16, BF16, BF16, BF16, UNSCALED, UNSCALED, UNSCALED,                               \
      "bfloat16: binary32 with 7 significand bits")                                                           \
    X(FP8_E4M3, "fp8_e4m3", FP8_E4M3, FP8_E4M3, FP8_E4M3, FP16, FP8_E4M3, ROWS, ROWS, ROWS,                   \
      "8-bit E4M3 activations, weights and caches with FP32 scales; results binary16")                        \
    X(INT8, "int8", INT8, INT8, INT8, FP16, INT8, ROWS, ROWS, ROWS,                                           \
      "INT8 activations, weights and caches with FP32 scales; results binary16")                              \
    X(FP8_W8A16, "fp8_w8a16", FP16, FP8_E4M3, NONE, FP16, FP16, UNSCALED, ROWS, UNSCALED,                     \
      "8-bit E4M3 weights, an FP32 scale a row; activations and results binary16")                            \
    X(INT8_W8A16, "int8_w8a16", FP16, INT8, NONE, FP16, FP16, UNSCALED, ROWS, UNSCALED,                       \
      "INT8 weights, an FP32 scale a row; activations and results binary16")                                  \
    X(Q8_0, "q8_0", FP16, Q8_0, NONE, FP16, FP16, UNSCALED, UNSCALED, UNSCALED,                               \
      "8-bit weights, 32 with a scale, in 34 bytes; activations and results binary16")                        \
    X(Q4_0, "q4_0", FP16, Q4_0, NONE, FP16, FP16, UNSCALED, UNSCALED, UNSCALED,                               \
      "4-bit weights, 32 with a scale, in 18 bytes; activations and results binary16")                        \
    X(Q4_K, "q4_k", FP16, Q4_K, NONE, FP16, FP16, UNSCALED, UNSCALED, UNSCALED,                               \
      "4-bit weights, 256 with 8 scales and minima, in 144 bytes; activations and results binary16")          \
    X(INT4_G32, "int4_g32", FP16, UINT4, NONE, FP16, FP16, UNSCALED, GROUPS_32, UNSCALED,                     \
      "4-bit weights, an FP16 scale and a 4-bit zero point for 32; activations and results binary16")         \
    X(INT4_G64, "int4_g64", FP16, UINT4, NONE, FP16, FP16, UNSCALED, GROUPS_64, UNSCALED,                     \
      "4-bit weights, an FP16 scale and a 4-bit zero point for 64; activations and results binary16")         \
    X(INT4_G128, "int4_g128", FP16, UINT4, NONE, FP16, FP16, UNSCALED, GROUPS_128, UNSCALED,                  \
      "4-bit weights, an FP16 scale and a 4-bit zero point for 128; activations and results binary16")        \
    X(MXFP4, "mxfp4", FP16, FP4_E2M1, NONE, FP16, FP16, UNSCALED, MX, UNSCALED,                               \
      "4-bit E2M1 weights, a power of two for 32; activations and results binary16")                          \
    X(NVFP4, "nvfp4", FP16, FP4_E2M1, NONE, FP16, FP16, UNSCALED, NV, UNSCALED,                               \
      "4-bit E2M1 weights, an E4M3 scale for 16 and an FP32 scale for all; activations and results binary16") \
    X(FP8_TENSOR, "fp8_tensor", FP8_E4M3, FP8_E4M3, NONE, FP16, FP8_E4M3, WHOLE, WHOLE, UNSCALED,             \
      "8-bit E4M3 activations and weights, an FP32 scale for all of each; results binary16")                  \
    X(FP8_BLOCK, "fp8_block", FP8_E4M3, FP8_E4M3, NONE, FP16, FP8_E4M3, COLUMNS_128, SQUARES_128, UNSCALED,   \
      "8-bit E4M3 activations, a scale for 128 of a row, and weights, one for 128 x 128; results binary16")   \
    X(FP8_E5M2, "fp8_e5m2", FP16, FP8_E5M2, NONE, FP16, FP16, UNSCALED, ROWS, UNSCALED,                       \
      "8-bit E5M2 weights, an FP32 scale a row; activations and results binary16")                            \
    X(FP8_W8A16_BF16, "fp8_w8a16_bf16", BF16, FP8_E4M3, NONE, BF16, BF16, UNSCALED, ROWS, UNSCALED,           \
      "8-bit E4M3 weights, an FP32 scale a row; activations and results bfloat16")                            \
    X(INT4_G128_BF16, "int4_g128_bf16", BF16, UINT4, NONE, BF16, BF16, UNSCALED, GROUPS_128, UNSCALED,        \
      "4-bit weights, an FP16 scale and a 4-bit zero point for 128; activations and results bfloat16")        \
    X(MXFP4_BF16, "mxfp4_bf16", BF16, FP4_E2M1, NONE, BF16, BF16, UNSCALED, MX, UNSCALED,                     \
      "4-bit E2M1 weights, a power of two for 32; activations and results bfloat16")

typedef enum bw_precision_id {
#define BW_PRECISION_ENUM(id, ...) BW_PRECISION_##id,
    BW_PRECISIONS(BW_PRECISION_ENUM)
#undef BW_PRECISION_ENUM
        BW_PRECISION_COUNT
} bw_precision_id;

typedef struct bw_precision {
    bw_precision_id id;
    const char *name;
    bw_dtype activation, weight, cache, result, compute;
    const bw_scaling *activation_scales, *weight_scales, *cache_scales;
    const char *text;
} bw_precision;

/* A set of precisions: BW_MASK(FP32) | BW_MASK(FP16). */
#define BW_MASK(id) (1u << BW_PRECISION_##id)

/* Those that have a type for weights, those that have one for caches, and those that have narrow weights alone. */
#define BW_PRECISION_WITH_WEIGHT(id, name, activation, weight, ...) | (BW_##weight != BW_NONE ? BW_MASK(id) : 0u)
#define BW_PRECISION_WITH_CACHE(id, name, activation, weight, cache, ...) | (BW_##cache != BW_NONE ? BW_MASK(id) : 0u)
#define BW_PRECISION_WITH_NARROW_WEIGHT(id, name, activation, weight, ...) \
    | (BW_IS_NARROW_##weight && !BW_IS_NARROW_##activation ? BW_MASK(id) : 0u)
enum {
    BW_WEIGHT_PRECISIONS = 0u BW_PRECISIONS(BW_PRECISION_WITH_WEIGHT),
    BW_CACHE_PRECISIONS = 0u BW_PRECISIONS(BW_PRECISION_WITH_CACHE),
    BW_NARROW_WEIGHT_PRECISIONS = 0u BW_PRECISIONS(BW_PRECISION_WITH_NARROW_WEIGHT)
};
#undef BW_PRECISION_WITH_WEIGHT
#undef BW_PRECISION_WITH_CACHE
#undef BW_PRECISION_WITH_NARROW_WEIGHT

BW_C const bw_precision *bw_precision_get(bw_precision_id id);
BW_C const bw_precision *bw_precision_of_activations(
    const bw_precision *precision); /* its activations' type, for weights too */
BW_C bw_status bw_precision_find(const char *name, const bw_precision **out); /* names what is allowed */

static inline bool bw_precision_in(unsigned mask, const bw_precision *precision) {
    return mask >> precision->id & 1u;
}
