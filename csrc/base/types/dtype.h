/* How the elements of an operand are stored: one row of BW_DTYPES each, and its functions in dtype.c. Nothing asks
 * which type it has at hand: what depends on the type is a trait of its row. (What is asked for is a precision:
 * base/types/precision.h.) */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/types/input.h"

/* X(id, name, kind, block elements, block bytes, significand bits, lowest exponent, inverse square, item, text)
 * - elements are stored in blocks: of one element each, or of several that share a scale;
 * - significand bits count the stored ones: a value is rounded to them (to nearest, ties to even); `lowest exponent` is
 *   that of the smallest normal number. Both 0 where values do not follow such a rule;
 * - inverse square: 1 over the mean square of a generated element; 3, exactly, where they are uniform in [-1, 1);
 * - item is the letter that Python's struct module has for such an element, ' ' where it has none. */
#define BW_DTYPES(X)                                                                                                \
    X(NONE, "none", NONE, 1, 0, 0, 0, 0, ' ', "no operand has it: what a precision does without")                   \
    X(FP32, "fp32", FLOAT, 1, 4, 23, -126, 3.0, 'f', "IEEE 754 binary32")                                           \
    X(TF32, "tf32", FLOAT, 1, 4, 10, -126, 3.0, 'f', "binary32 storage, rounded to 10 bits")                        \
    X(FP16, "fp16", FLOAT, 1, 2, 10, -14, 3.0, 'e', "IEEE 754 binary16")                                            \
    X(BF16, "bf16", FLOAT, 1, 2, 7, -126, 3.0, ' ', "bfloat16: binary32 with 7 significand bits")                   \
    /* exponents below 1 only, subnormal numbers among them */                                                      \
    X(FP8_E4M3, "fp8_e4m3", BITS, 1, 1, 3, -6, 2.7928, ' ', "OCP 8-bit floating point: 3 significand bits, to 448") \
    X(FP8_E5M2, "fp8_e5m2", BITS, 1, 1, 2, -14, 6.0952, ' ', "OCP 8-bit floating point: FP16's range, 2 bits")      \
    X(INT8, "int8", BITS, 1, 1, 0, 0, 1.831e-4, 'b', "8-bit whole numbers, to be scaled")                           \
    X(Q4_0, "q4_0", BITS, 32, 18, 0, 0, 5.1062, ' ', "4-bit whole numbers, 32 with a scale in FP16")                \
    X(Q8_0, "q8_0", BITS, 32, 34, 0, 0, 5.1459, ' ', "8-bit whole numbers, 32 with a scale in FP16")                \
    X(Q4_K, "q4_k", BITS, 256, 144, 0, 0, 6.0869, ' ', "4-bit whole numbers, 256 with 8 scales and minima")         \
    X(UINT4, "uint4", BITS, 2, 1, 0, 0, 0.012903, ' ', "4-bit whole numbers from 0, to be scaled, the first low")   \
    X(FP4_E2M1, "fp4_e2m1", BITS, 2, 1, 0, 0, 0.116788, ' ', "OCP 4-bit floating point: 0 to 6, the first low")     \
    X(E8M0, "e8m0", BITS, 1, 1, 0, 0, 96.0, ' ', "OCP 8-bit exponent: powers of two, scales of blocks")             \
    X(I32, "int32", INDEX, 1, 4, 0, 0, 0, 'i', "32-bit integers: page ids, lengths, checksums")                     \
    X(I64, "int64", INDEX, 1, 8, 0, 0, 0, 'q', "64-bit integers: slot ids")

typedef enum bw_dtype {
#define BW_DTYPE_ENUM(id, ...) BW_##id,
    BW_DTYPES(BW_DTYPE_ENUM)
#undef BW_DTYPE_ENUM
        BW_DTYPE_COUNT
} bw_dtype;

typedef enum bw_dtype_kind {
    BW_KIND_NONE,
    BW_KIND_FLOAT, /* generated elements are hashed values, rounded to the type */
    BW_KIND_BITS,  /* narrow: the bits are hashed themselves, so that nothing must quantize */
    BW_KIND_INDEX  /* whole numbers that are no values: an operand's fixed type */
} bw_dtype_kind;

enum {
#define BW_DTYPE_IS_NARROW(id, name, kind, ...) BW_IS_NARROW_##id = BW_KIND_##kind == BW_KIND_BITS,
    BW_DTYPES(BW_DTYPE_IS_NARROW)
#undef BW_DTYPE_IS_NARROW
};

typedef struct bw_dtype_info {
    const char *name;
    bw_dtype_kind kind;
    int block_elems, block_bytes;
    int significand_bits, lowest_exponent;
    double inverse_square;
    char item;
    const char *text;
    /* Whole blocks, whatever the bytes' and the values' alignment. NULL: there is no such thing for this type. */
    void (*decode_blocks)(const void *blocks, int64_t count, double *out);
    void (*encode_blocks)(const float *values, int64_t count, void *out);
    void (*fill_blocks)(bw_input_key key, int64_t first, int64_t count, void *out); /* generated inputs */
} bw_dtype_info;

#define BW_DTYPE_ELEMS(id, name, kind, elems, bytes, ...) char id##_elems[elems];
#define BW_DTYPE_BYTES(id, name, kind, elems, bytes, ...) char id##_bytes[(bytes) ? (bytes) : 1];
union bw_block_elems {
    BW_DTYPES(BW_DTYPE_ELEMS)
};
union bw_block_bytes {
    BW_DTYPES(BW_DTYPE_BYTES)
};
#undef BW_DTYPE_ELEMS
#undef BW_DTYPE_BYTES
enum { BW_BLOCK_ELEMS_MAX = (int)sizeof(union bw_block_elems), BW_BLOCK_BYTES_MAX = (int)sizeof(union bw_block_bytes) };

BW_C const bw_dtype_info *bw_dtype_get(bw_dtype dtype);

/* The largest finite number of a type that numbers are scaled for. */
BW_HD float bw_dtype_largest(bw_dtype dtype) {
    switch (dtype) {
        case BW_INT8: return 127.0f;
        case BW_FP8_E4M3: return 448.0f;
        case BW_FP8_E5M2: return 57344.0f;
        default: return 0.0f; /* it has no scales that follow its values */
    }
}

/* Of the types that values are stored in; names what is allowed. */
BW_C bw_status bw_dtype_find(const char *name, bw_dtype *out);

/* Bytes that `elems` elements take, whole blocks; -1 when that overflows. */
BW_C int64_t bw_dtype_bytes(bw_dtype dtype, int64_t elems);

/* Half the distance between neighboring values near 1: the largest relative error of one rounding. */
BW_C double bw_dtype_roundoff(bw_dtype dtype);

/* Half the distance between `value` and its neighbors in this type: the largest error of rounding to it. */
BW_C double bw_dtype_half_unit(bw_dtype dtype, double value);

/* Element `index` of an array of this type, as a double; every type but int64 is exact in it. */
BW_C double bw_dtype_load(bw_dtype dtype, const void *data, int64_t index);

/* float32 values to this type and back (whole arrays; the index types are refused). Where blocks are larger than an
 * element, the last one is filled up with zeros. */
BW_C bw_status bw_dtype_encode(bw_dtype dtype, const float *values, int64_t count, void *out);
BW_C bw_status bw_dtype_decode(bw_dtype dtype, const void *data, int64_t count, float *out);

/* Blocks [first, first + count) of a generated input in their stored form (host). */
BW_C void bw_input_fill(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, void *out);

/* Elements [first, first + count) of the same input as doubles, as they are stored. */
BW_C void bw_input_doubles(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, double *out);
