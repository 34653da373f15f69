/* The primitives of simd.h in C with the compiler's vector types: four floats, which every machine can do. Every x86-64
 * also has a non-temporal store of them. */
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#define BW_SIMD_STREAMS 1
#else
#define BW_SIMD_STREAMS 0
#endif

enum { BW_SIMD_FLOATS = 4, BW_MICRO_ROWS = 4 };
#define BW_SIMD_PARTS 0
typedef float bw_vf __attribute__((vector_size(16)));
typedef uint32_t bw_v4u __attribute__((vector_size(16)));
typedef uint16_t bw_vh __attribute__((vector_size(8)));

BW_PRIMITIVE(bw_vf, bw_vf_fma, (bw_vf a, bw_vf b, bw_vf c), a *b + c)
BW_PRIMITIVE(bw_v4u, bw_v4u_select, (bw_v4u mask, bw_v4u yes, bw_v4u no), (yes & mask) | (no & ~mask))
BW_PRIMITIVE(bw_vf, bw_vf_max, (bw_vf a, bw_vf b), (bw_vf)bw_v4u_select((bw_v4u)(a > b), (bw_v4u)a, (bw_v4u)b))
BW_PRIMITIVE(bw_vf, bw_vf_zip_low, (bw_vf a, bw_vf b), (bw_vf){a[0], b[0], a[1], b[1]})
BW_PRIMITIVE(bw_vf, bw_vf_zip_high, (bw_vf a, bw_vf b), (bw_vf){a[2], b[2], a[3], b[3]})

BW_INLINE bw_v4u bw_v4u_widen(const uint16_t *p) {
    bw_vh narrow;
    memcpy(&narrow, p, sizeof narrow);
    return __builtin_convertvector(narrow, bw_v4u);
}

BW_PRIMITIVE(bw_v4u, bw_v4u_set, (uint32_t x), (bw_v4u){x, x, x, x})

/* bw_fp16_to_float without branches: a subnormal's leading one is put in and subtracted again as a float. */
BW_INLINE bw_vf bw_vf_load_fp16(const uint16_t *p) {
    bw_v4u half = bw_v4u_widen(p);
    bw_v4u sign = (half & 0x8000u) << 16;
    bw_v4u shifted = (half & 0x7fffu) << 13;
    bw_v4u exponent = shifted & 0x0f800000u;
    bw_v4u normal = shifted + (112u << 23);
    bw_vf subnormal = (bw_vf)(shifted + (113u << 23)) - (bw_vf)bw_v4u_set(113u << 23);
    bw_v4u bits = bw_v4u_select((bw_v4u)(exponent == 0), (bw_v4u)subnormal, normal);
    bits = bw_v4u_select((bw_v4u)(exponent == 0x0f800000u), shifted | 0x7f800000u, bits);
    return (bw_vf)(bits | sign);
}

/* bw_float_to_fp16 without branches. */
BW_INLINE bw_vh bw_vf_to_fp16(bw_vf x) {
    bw_v4u bits = (bw_v4u)x;
    bw_v4u sign = (bits >> 16) & 0x8000u;
    bw_v4u magnitude = bits & 0x7fffffffu;
    bw_v4u subnormal = (bw_v4u)((bw_vf)magnitude + 0.5f) - 0x3f000000u;
    bw_v4u rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    bw_v4u half = (rounded - 0x38000000u) >> 13;
    half = bw_v4u_select((bw_v4u)(magnitude < 0x38800000u), subnormal, half);
    half = bw_v4u_select((bw_v4u)(magnitude >= 0x477ff000u), bw_v4u_set(0x7c00u), half);
    half = bw_v4u_select((bw_v4u)(magnitude > 0x7f800000u), bw_v4u_set(0x7e00u), half);
    return __builtin_convertvector(half | sign, bw_vh);
}

BW_PRIMITIVE(bw_vf, bw_vf_load_bf16, (const uint16_t *p), (bw_vf)(bw_v4u_widen(p) << 16))

BW_INLINE bw_vh bw_vf_to_bf16(bw_vf x) {
    bw_v4u bits = (bw_v4u)x;
    bw_v4u rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    bw_v4u nan = (bw_v4u)((bits & 0x7fffffffu) > 0x7f800000u);
    return __builtin_convertvector(bw_v4u_select(nan, bits | 0x400000u, rounded) >> 16, bw_vh);
}

BW_INLINE bw_vf bw_vh_join(bw_vh low, bw_vh high) {
    bw_vf joined;
    memcpy(&joined, &low, sizeof low);
    memcpy((char *)&joined + sizeof low, &high, sizeof high);
    return joined;
}

#if BW_SIMD_STREAMS
BW_INLINE void bw_stream_vector(void *p, bw_vf x) {
    _mm_stream_ps(p, x);
}

BW_INLINE void bw_stream_fence(void) {
    _mm_sfence();
}
#endif
