/* Precisions: one row of BW_DTYPES each. Everything that depends on an element's type reads this table. */
#ifndef BW_BASE_DTYPE_H
#define BW_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(id, name, bits, block elements, block bytes, significand bits, kind, type of results, text)
 * - significand bits count the stored ones: a value is rounded to them (to nearest, ties to even);
 * - "type of results" is what an operation in this precision writes: TF32 reads rounded FP32, writes FP32. */
#define BW_DTYPES(X)                                                                          \
    X(FP32, "fp32", 32, 1, 4, 23, FLOAT, FP32, "IEEE 754 binary32")                           \
    X(TF32, "tf32", 32, 1, 4, 10, FLOAT, FP32, "binary32 storage, inputs rounded to 10 bits") \
    X(FP16, "fp16", 16, 1, 2, 10, FLOAT, FP16, "IEEE 754 binary16")                           \
    X(BF16, "bf16", 16, 1, 2, 7, FLOAT, BF16, "bfloat16: binary32 with 7 significand bits")   \
    X(I32, "int32", 32, 1, 4, 0, INDEX, I32, "32-bit integers: page ids, lengths, checksums") \
    X(I64, "int64", 64, 1, 8, 0, INDEX, I64, "64-bit integers: slot ids")

typedef enum bw_dtype {
#define BW_DTYPE_ENUM(id, ...) BW_##id,
    BW_DTYPES(BW_DTYPE_ENUM)
#undef BW_DTYPE_ENUM
        BW_DTYPE_COUNT
} bw_dtype;

typedef enum bw_dtype_kind {
    BW_KIND_FLOAT, /* a precision an operation can be asked for */
    BW_KIND_INDEX  /* only ever an operand's fixed type */
} bw_dtype_kind;

typedef struct bw_dtype_info {
    const char *name;
    int bits; /* per element; for block formats the average, rounded down */
    int block_elems;
    int block_bytes;
    int significand_bits;
    bw_dtype_kind kind;
    bw_dtype result;
    const char *text;
} bw_dtype_info;

const bw_dtype_info *bw_dtype_get(bw_dtype dtype);
bw_status bw_dtype_find(const char *name, bw_dtype *out); /* precisions only; names what is allowed */

/* A set of precisions: BW_MASK(FP32) | BW_MASK(FP16). */
#define BW_MASK(id) (1u << BW_##id)

/* Bytes that `elems` elements take, whole blocks; -1 when that overflows. */
int64_t bw_dtype_bytes(bw_dtype dtype, int64_t elems);

/* Half the distance between neighbouring values near 1: the largest relative error of one rounding. */
double bw_dtype_roundoff(bw_dtype dtype);

/* Half the distance between `value` and its neighbours in this type: the largest error of rounding to it. */
double bw_dtype_half_unit(bw_dtype dtype, double value);

/* Element `index` of an array of this type, as a double; every type but int64 is exact in it. */
double bw_dtype_load(bw_dtype dtype, const void *data, int64_t index);

/* float32 values to this type and back (whole arrays; the index types are refused). */
bw_status bw_dtype_encode(bw_dtype dtype, const float *values, int64_t count, void *out);
bw_status bw_dtype_decode(bw_dtype dtype, const void *data, int64_t count, float *out);

#ifdef __cplusplus
}
#endif
#endif
