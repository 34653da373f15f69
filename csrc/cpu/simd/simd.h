/* The small vector language that kernels are written in: bw_vf, a vector of BW_SIMD_FLOATS floats. Storage types are
 * converted on the way in and out; all arithmetic is in fp32. The dtype of bw_vf_load_as and its like is a constant
 * wherever they are inlined (BW_DTYPE_SWITCH sees to that), so that no branch is left. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/types/convert.h"
#include "base/types/dtype.h"
#include "cpu/isa.h"

#ifndef BW_ISA
#error "files of csrc/cpu/simd are compiled once per instruction set, with -DBW_ISA=<name> (see cpu/isa.h)"
#endif

#define BW_INLINE static inline __attribute__((always_inline, unused))

/* A function that returns one expression: the vectors' headers are tables of them. */
#define BW_PRIMITIVE(type, name, parameters, ...) \
    BW_INLINE type name parameters {              \
        return __VA_ARGS__;                       \
    }

/* The first line of an instruction set's header: how many floats a vector has, and how many rows of a product stay in
 * registers (micro.h). bw_vh and bw_vs have as many 16-bit elements as bw_vf has floats, bw_vb as many bytes. */
#define BW_VECTORS(floats, rows)                                     \
    enum { BW_SIMD_FLOATS = floats, BW_MICRO_ROWS = rows };          \
    typedef float bw_vf __attribute__((vector_size(4 * floats)));    \
    typedef uint32_t bw_vu __attribute__((vector_size(4 * floats))); \
    typedef int32_t bw_vi __attribute__((vector_size(4 * floats)));  \
    typedef uint16_t bw_vh __attribute__((vector_size(2 * floats))); \
    typedef uint16_t bw_vw __attribute__((vector_size(4 * floats))); \
    typedef int16_t bw_vs __attribute__((vector_size(2 * floats)));  \
    typedef int8_t bw_vb __attribute__((vector_size(floats)));

/* Loads once what the compiler would else load anew for every use. */
#define BW_KEEP(constraint)               \
    BW_INLINE bw_vu bw_vu_keep(bw_vu x) { \
        __asm__("" : "+" constraint(x));  \
        return x;                         \
    }

/* Where no instruction multiplies pairs of BF16 numbers. */
#define BW_NO_PAIRS                                                                                  \
    BW_PRIMITIVE(bool, bw_has_pairs, (void), false)                                                  \
    BW_PRIMITIVE(bw_vf, bw_vf_add_pairs, (bw_vf total, bw_vw a, bw_vf b), ((void)a, (void)b, total)) \
    BW_PRIMITIVE(bw_vw, bw_pairs_from_uint4, (bw_vw x, int less), ((void)less, x))                   \
    BW_PRIMITIVE(bw_vw, bw_pairs_from_e2m1, (bw_vw x), x)

/* Where no instruction adds products of bytes. */
#define BW_NO_DOTS                                 \
    BW_PRIMITIVE(bool, bw_has_dots, (void), false) \
    BW_PRIMITIVE(bw_vi, bw_vi_add_bytes, (bw_vi total, bw_vu a, bw_vu b), ((void)a, (void)b, total))

#define BW_QUOTE(text) #text
#define BW_QUOTE_EXPANDED(text) BW_QUOTE(text)
/* clang-format off */
#include BW_QUOTE_EXPANDED(cpu/simd/vectors/BW_ISA.h)
/* clang-format on */

/* A part of a vector goes through an array of 16-bit elements, or of floats where nothing else loads those. */
enum { BW_SIMD_BYTES = 4 * BW_SIMD_FLOATS, BW_PART_HALVES = BW_SIMD_PARTS ? BW_SIMD_FLOATS : 2 * BW_SIMD_FLOATS };

#define BW_CPU_PRECISIONS (BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16))

/* Those whose activations, weights and caches are bytes, a scale a row. */
#define BW_CPU_BYTES (BW_MASK(INT8) | BW_MASK(FP8_E4M3))

/* A variant that rounds once, in all these precisions: its launches are <function>_launch's. */
#define BW_CPU_ROW(variant_name, function, ...) BW_CPU_ROW_IN(BW_CPU_PRECISIONS, variant_name, function, __VA_ARGS__)
#define BW_CPU_ROW_IN(mask, variant_name, function, ...) \
    { .name = variant_name, .precisions = mask, .rounds_once = true, .launch = function##_launch, __VA_ARGS__ }

/* function(BW_FP32, ...) with the dtype as a literal; types of precisions outside BW_CPU_PRECISIONS never get here. */
#define BW_DTYPE_SWITCH(dtype, function, ...)                    \
    do {                                                         \
        switch (dtype) {                                         \
            case BW_FP32: function(BW_FP32, __VA_ARGS__); break; \
            case BW_FP16: function(BW_FP16, __VA_ARGS__); break; \
            case BW_BF16: function(BW_BF16, __VA_ARGS__); break; \
            default: abort();                                    \
        }                                                        \
    } while (0)

/* Of bytes, too. */
#define BW_CACHE_SWITCH(dtype, function, ...)                            \
    do {                                                                 \
        switch (dtype) {                                                 \
            case BW_INT8: function(BW_INT8, __VA_ARGS__); break;         \
            case BW_FP8_E4M3: function(BW_FP8_E4M3, __VA_ARGS__); break; \
            default: BW_DTYPE_SWITCH(dtype, function, __VA_ARGS__);      \
        }                                                                \
    } while (0)

/* function(count, ...) with the count, 1 to 12, as a literal, so that its loops are unrolled; a function that takes
 * fewer returns at once for the others. */
#define BW_COUNT_SWITCH(count, function, ...)          \
    do {                                               \
        switch (count) {                               \
            case 1: function(1, __VA_ARGS__); break;   \
            case 2: function(2, __VA_ARGS__); break;   \
            case 3: function(3, __VA_ARGS__); break;   \
            case 4: function(4, __VA_ARGS__); break;   \
            case 5: function(5, __VA_ARGS__); break;   \
            case 6: function(6, __VA_ARGS__); break;   \
            case 7: function(7, __VA_ARGS__); break;   \
            case 8: function(8, __VA_ARGS__); break;   \
            case 9: function(9, __VA_ARGS__); break;   \
            case 10: function(10, __VA_ARGS__); break; \
            case 11: function(11, __VA_ARGS__); break; \
            case 12: function(12, __VA_ARGS__); break; \
            default: abort();                          \
        }                                              \
    } while (0)

/* Of the types above; a constant where `dtype` is one. */
BW_INLINE int64_t bw_elem_bytes(bw_dtype dtype) {
    switch (dtype) {
        case BW_FP32: return sizeof(float);
        case BW_FP16:
        case BW_BF16: return sizeof(uint16_t);
        case BW_INT8:
        case BW_FP8_E4M3:
        case BW_FP8_E5M2: return 1;
        default: abort();
    }
}

BW_INLINE const void *bw_at(bw_dtype dtype, const void *data, int64_t index) {
    return (const char *)data + index * bw_elem_bytes(dtype);
}

BW_INLINE void *bw_at_mutable(bw_dtype dtype, void *data, int64_t index) {
    return (char *)data + index * bw_elem_bytes(dtype);
}

BW_INLINE bw_vf bw_vf_set(float x) {
    return x - (bw_vf){0.0f};
}

BW_INLINE bw_vf bw_vf_load(const float *p) {
    bw_vf x;
    memcpy(&x, p, sizeof x);
    return x;
}

BW_INLINE void bw_vf_store(float *p, bw_vf x) {
    memcpy(p, &x, sizeof x);
}

BW_INLINE bw_vh bw_vh_load(const void *p) {
    bw_vh x;
    memcpy(&x, p, sizeof x);
    return x;
}

BW_INLINE void bw_vh_store(void *p, bw_vh x) {
    memcpy(p, &x, sizeof x);
}

#if !BW_SIMD_STREAMS
BW_INLINE void bw_stream_vector(void *p, bw_vf x) {
    bw_vf_store(p, x);
}
#endif

BW_INLINE void bw_stream_fence(void) {
#if BW_SIMD_STREAMS
    _mm_sfence();
#endif
}

/* bw_float_to_bf16 without branches. */
BW_INLINE bw_vh bw_vf_to_bf16(bw_vf x) {
    const bw_vu bits = (bw_vu)x, rounded = bits + (0x7fffu + ((bits >> 16) & 1u));
    return bw_vu_narrow(bw_vu_if_nan(x, bits | 0x400000u, rounded) >> 16);
}

BW_INLINE bw_vb bw_vb_load(const void *p) {
    bw_vb x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* E4M3 as FP16 with the same bits of exponent and fraction, 1/256 of the value; NaN, all of them set, gets FP16's
 * highest exponent by a carry. */
BW_INLINE bw_vf bw_vf_from_e4m3(bw_vb bytes) {
    const bw_vh x = (bw_vh) __builtin_convertvector(bytes, bw_vs) << 7; /* twice the sign, then the size */
    return bw_vf_from_fp16(x ^ ((x + 0x80) & 0x4000)) * 256.0f;         /* the second sign becomes the carry */
}

/* E5M2 is FP16's upper byte. */
BW_INLINE bw_vf bw_vf_from_e5m2(bw_vb bytes) {
    return bw_vf_from_fp16((bw_vh) __builtin_convertvector(bytes, bw_vs) << 8);
}

/* A float to E4M3 without branches, for numbers within it: 2^14, added to a subnormal number, lets the float unit round
 * at the last place. */
BW_INLINE bw_vb bw_vf_to_e4m3(bw_vf x) {
    const uint32_t smallest_normal = 0x3c800000u, place = 20; /* where the fraction begins in a float's */
    const bw_vu size = (bw_vu)x & 0x7fffffffu, small = (bw_vu)(size < smallest_normal);
    const bw_vu subnormal = (bw_vu)((bw_vf)size + 16384.0f) - bw_float_bits(16384.0f);
    const uint32_t bias = smallest_normal - (1u << 23), half = (1u << (place - 1)) - 1u;
    const bw_vu normal = (size + half + (size >> place & 1u) - bias) >> place;
    const bw_vu nan = (bw_vu)(size > 0x7f800000u) & 0x7fu;
    return bw_vu_low_bytes((subnormal & small) | (normal & ~small) | nan | ((bw_vu)x >> 24 & 0x80u));
}

/* To nearest, ties to even: 1.5 * 2^23 leaves a whole number of a byte in the last bits. */
BW_INLINE bw_vb bw_vf_to_int8(bw_vf x) {
    return bw_vu_low_bytes((bw_vu)(x + 12582912.0f));
}

BW_INLINE bw_vf bw_vf_load_as(bw_dtype dtype, const void *data, int64_t index) {
    const void *p = bw_at(dtype, data, index);
    switch (dtype) {
        case BW_FP32: return bw_vf_load(p);
        case BW_FP16: return bw_vf_from_fp16(bw_vh_load(p));
        case BW_BF16: return bw_vf_load_bf16(p);
        case BW_INT8: return bw_vf_load_int8(p);
        case BW_FP8_E4M3: return bw_vf_from_e4m3(bw_vb_load(p));
        case BW_FP8_E5M2: return bw_vf_from_e5m2(bw_vb_load(p));
        default: abort();
    }
}

BW_INLINE void bw_vb_store(void *p, bw_vb x) {
    memcpy(p, &x, sizeof x);
}

/* Bytes: of numbers that the type holds, rounded. */
BW_INLINE void bw_vf_store_as(bw_dtype dtype, void *data, int64_t index, bw_vf x) {
    void *p = bw_at_mutable(dtype, data, index);
    switch (dtype) {
        case BW_FP32: bw_vf_store(p, x); break;
        case BW_FP16: bw_vh_store(p, bw_vf_to_fp16(x)); break;
        case BW_BF16: bw_vh_store(p, bw_vf_to_bf16(x)); break;
        case BW_INT8: bw_vb_store(p, bw_vf_to_int8(x)); break;
        case BW_FP8_E4M3: bw_vb_store(p, bw_vf_to_e4m3(x)); break;
        default: abort();
    }
}

/* Up to a whole vector of `left` elements; lanes beyond them read as zero, and nothing beyond is touched. */
BW_INLINE bw_vf bw_vf_load_as_upto(bw_dtype dtype, const void *data, int64_t index, int64_t left) {
    if (left >= BW_SIMD_FLOATS) return bw_vf_load_as(dtype, data, index);
    const void *p = bw_at(dtype, data, index);
#if BW_SIMD_PARTS
    if (dtype == BW_FP32) return bw_vf_load_part(p, (int)left);
#endif
    uint16_t part[BW_PART_HALVES] = {0};
    memcpy(part, p, (size_t)(left * bw_elem_bytes(dtype)));
    return bw_vf_load_as(dtype, part, 0);
}

/* Up to two vectors' worth of INT8 as words. */
BW_INLINE bw_vw bw_vw_load_upto(const int8_t *p, int64_t left) {
    if (left >= 2 * BW_SIMD_FLOATS) return bw_vw_load_int8(p);
    int8_t part[2 * BW_SIMD_FLOATS] = {0};
    memcpy(part, p, (size_t)left);
    return bw_vw_load_int8(part);
}

BW_INLINE void bw_vf_store_as_upto(bw_dtype dtype, void *data, int64_t index, bw_vf x, int64_t left) {
    if (left >= BW_SIMD_FLOATS) {
        bw_vf_store_as(dtype, data, index, x);
        return;
    }
    void *p = bw_at_mutable(dtype, data, index);
#if BW_SIMD_PARTS
    if (dtype == BW_FP32) {
        bw_vf_store_part(p, x, (int)left);
        return;
    }
#endif
    uint16_t part[BW_PART_HALVES];
    bw_vf_store_as(dtype, part, 0, x);
    memcpy(p, part, (size_t)(left * bw_elem_bytes(dtype)));
}

/* Every round halves how many different lanes there are. */
BW_INLINE float bw_vf_sum(bw_vf x) {
#pragma GCC unroll 4
    for (int width = BW_SIMD_FLOATS / 2; width >= 1; width /= 2) x = bw_vf_zip_low(x, x) + bw_vf_zip_high(x, x);
    return x[0];
}

BW_INLINE float bw_vf_largest(bw_vf x) {
#pragma GCC unroll 4
    for (int width = BW_SIMD_FLOATS / 2; width >= 1; width /= 2) {
        x = bw_vf_max(bw_vf_zip_low(x, x), bw_vf_zip_high(x, x));
    }
    return x[0];
}

/* Elements [first, first + count) of a type: their scale, and each divided by that, as bytes. */
BW_INLINE void bw_quantize_row(bw_dtype bytes, bw_dtype dtype, const void *from, int64_t first, int64_t count, void *to,
                               int64_t to_first, float *scale) {
    const float most = bw_dtype_largest(bytes);
    bw_vf largest = bw_vf_set(0.0f);
    for (int64_t d = 0; d < count; d += BW_SIMD_FLOATS) {
        const bw_vf x = bw_vf_load_as_upto(dtype, from, first + d, count - d);
        largest = bw_vf_max(largest, bw_vf_max(x, -x));
    }
    *scale = bw_vf_largest(largest) / most;
    const bw_vf divisor = bw_vf_set(*scale == 0.0f ? INFINITY : *scale), least = bw_vf_set(-most);
    for (int64_t d = 0; d < count; d += BW_SIMD_FLOATS) {
        bw_vf x = bw_vf_load_as_upto(dtype, from, first + d, count - d) / divisor;
        if (dtype != BW_FP16) x = -bw_vf_max(-bw_vf_max(x, least), least); /* a subnormal scale is rounded much */
        bw_vf_store_as_upto(bytes, to, to_first + d, x, count - d);
    }
}

BW_INLINE bw_vu bw_vu_load(const void *p) {
    bw_vu x;
    memcpy(&x, p, sizeof x);
    return x;
}

BW_INLINE uint32_t bw_vu_sum(bw_vu x) {
    uint32_t sum = 0;
    for (int i = 0; i < BW_SIMD_FLOATS; i++) sum += x[i];
    return sum;
}

/* e^x for x <= 0, to about 2 units in the last place; 0 from -88 on, and NaN for NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2: the polynomial of least relative error for e^r that is 1 at 0, times 2^n, whose
 * biased exponent the rounding leaves in the last bits: at -88 it is 0, that of zero. */
BW_INLINE bw_vf bw_vf_exp(bw_vf x) {
    const bw_vf round_at = bw_vf_set(12582912.0f + 127.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    x = bw_vf_max(bw_vf_set(-88.0f), x);                    /* in this order NaN stays */
    const bw_vf shifted = bw_vf_fma(x, bw_vf_set(1.44269504f), round_at), n = shifted - round_at;
    bw_vf r = bw_vf_fma(n, bw_vf_set(-0.693359375f), x);
    r = bw_vf_fma(n, bw_vf_set(2.12194440e-4f), r);
    bw_vf p = bw_vf_set(0.00829030667f);
    p = bw_vf_fma(p, r, bw_vf_set(0.0418979749f));
    p = bw_vf_fma(p, r, bw_vf_set(0.166676372f));
    p = bw_vf_fma(p, r, bw_vf_set(0.499991506f));
    p = bw_vf_fma(p, r, bw_vf_set(0.999999702f));
    p = bw_vf_fma(p, r, bw_vf_set(1.0f));
    return p * (bw_vf)((bw_vu)shifted << 23);
}

/* Transposes a square of vectors: log2(n) rounds of perfect shuffles. */
BW_INLINE void bw_vf_transpose(bw_vf rows[BW_SIMD_FLOATS]) {
    bw_vf other[BW_SIMD_FLOATS];
#pragma GCC unroll 4
    for (int round = 1; round < BW_SIMD_FLOATS; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < BW_SIMD_FLOATS / 2; i++) {
            other[2 * i] = bw_vf_zip_low(rows[i], rows[i + BW_SIMD_FLOATS / 2]);
            other[2 * i + 1] = bw_vf_zip_high(rows[i], rows[i + BW_SIMD_FLOATS / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < BW_SIMD_FLOATS; i++) rows[i] = other[i];
    }
}

/* Lane j of the result is the sum of rows[j]: half as many vectors in every round, each holding twice as many sums. */
BW_INLINE bw_vf bw_vf_sums(bw_vf rows[BW_SIMD_FLOATS]) {
#pragma GCC unroll 4
    for (int half = BW_SIMD_FLOATS / 2; half >= 1; half /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) {
            rows[i] = bw_vf_zip_low(rows[i], rows[i + half]) + bw_vf_zip_high(rows[i], rows[i + half]);
        }
    }
    return rows[0];
}

/* The same of whole numbers, which the shuffles leave as they are, modulo 2^32. */
BW_INLINE bw_vi bw_vi_sums(bw_vi rows[BW_SIMD_FLOATS]) {
#pragma GCC unroll 4
    for (int half = BW_SIMD_FLOATS / 2; half >= 1; half /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) {
            const bw_vf a = (bw_vf)rows[i], b = (bw_vf)rows[i + half];
            rows[i] = (bw_vi)((bw_vu)bw_vf_zip_low(a, b) + (bw_vu)bw_vf_zip_high(a, b));
        }
    }
    return rows[0];
}

BW_PRIMITIVE(bw_vf, bw_vf_from_vi, (bw_vi x), __builtin_convertvector(x, bw_vf))

BW_INLINE int64_t bw_round_up(int64_t value, int64_t unit) {
    return bw_ceil_div(value, unit) * unit;
}
