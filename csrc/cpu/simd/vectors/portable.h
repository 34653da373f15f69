/* The primitives of simd.h in C with the compiler's vector types: four floats, which every machine can do. Every x86-64
 * also has a non-temporal store of them. */
#pragma once

BW_VECTORS(4, 4)
#include "cpu/simd/vectors/four.h"
#define BW_SIMD_PARTS 0

#if defined(__SSE2__)
#include <emmintrin.h>
#define BW_SIMD_STREAMS 1

BW_INLINE void bw_stream_vector(void *p, bw_vf x) {
    _mm_stream_ps(p, x);
}
#else
#define BW_SIMD_STREAMS 0
#endif

BW_PRIMITIVE(bw_vf, bw_vf_fma, (bw_vf a, bw_vf b, bw_vf c), a *b + c)
BW_PRIMITIVE(bw_vu, bw_vu_set, (uint32_t x), (bw_vu){x, x, x, x})
BW_PRIMITIVE(bw_vu, bw_vu_select, (bw_vu mask, bw_vu yes, bw_vu no), (yes & mask) | (no & ~mask))
BW_PRIMITIVE(bw_vf, bw_vf_max, (bw_vf a, bw_vf b), (bw_vf)bw_vu_select((bw_vu)(a > b), (bw_vu)a, (bw_vu)b))
BW_PRIMITIVE(bw_vf, bw_vf_zip_low, (bw_vf a, bw_vf b), (bw_vf){a[0], b[0], a[1], b[1]})
BW_PRIMITIVE(bw_vf, bw_vf_zip_high, (bw_vf a, bw_vf b), (bw_vf){a[2], b[2], a[3], b[3]})

BW_INLINE bw_vu bw_vu_widen(const uint16_t *p) {
    bw_vh narrow;
    memcpy(&narrow, p, sizeof narrow);
    return __builtin_convertvector(narrow, bw_vu);
}

BW_PRIMITIVE(bw_vf, bw_vf_load_bf16, (const uint16_t *p), (bw_vf)(bw_vu_widen(p) << 16))
BW_PRIMITIVE(bw_vh, bw_vu_narrow, (bw_vu x), __builtin_convertvector(x, bw_vh))

BW_PRIMITIVE(bw_vu, bw_vu_if_nan, (bw_vf x, bw_vu yes, bw_vu no), bw_vu_select((bw_vu)(x != x), yes, no))

/* bw_fp16_to_float without branches: a subnormal's leading one is put in and subtracted again as a float. */
BW_INLINE bw_vf bw_vf_from_fp16(bw_vh x) {
    bw_vu half = __builtin_convertvector(x, bw_vu);
    bw_vu sign = (half & 0x8000u) << 16;
    bw_vu shifted = (half & 0x7fffu) << 13;
    bw_vu exponent = shifted & 0x0f800000u;
    bw_vu normal = shifted + (112u << 23);
    bw_vf subnormal = (bw_vf)(shifted + (113u << 23)) - (bw_vf)bw_vu_set(113u << 23);
    bw_vu bits = bw_vu_select((bw_vu)(exponent == 0), (bw_vu)subnormal, normal);
    bits = bw_vu_select((bw_vu)(exponent == 0x0f800000u), shifted | 0x7f800000u, bits);
    return (bw_vf)(bits | sign);
}

/* bw_float_to_fp16 without branches. */
BW_INLINE bw_vh bw_vf_to_fp16(bw_vf x) {
    bw_vu bits = (bw_vu)x;
    bw_vu sign = (bits >> 16) & 0x8000u;
    bw_vu magnitude = bits & 0x7fffffffu;
    bw_vu subnormal = (bw_vu)((bw_vf)magnitude + 0.5f) - 0x3f000000u;
    bw_vu rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    bw_vu half = (rounded - 0x38000000u) >> 13;
    half = bw_vu_select((bw_vu)(magnitude < 0x38800000u), subnormal, half);
    half = bw_vu_select((bw_vu)(magnitude >= 0x477ff000u), bw_vu_set(0x7c00u), half);
    half = bw_vu_select((bw_vu)(magnitude > 0x7f800000u), bw_vu_set(0x7e00u), half);
    return bw_vu_narrow(half | sign);
}

BW_INLINE bw_vf bw_vh_join(bw_vh low, bw_vh high) {
    bw_vf joined;
    memcpy(&joined, &low, sizeof low);
    memcpy((char *)&joined + sizeof low, &high, sizeof high);
    return joined;
}

BW_INLINE bw_vf bw_vf_load_q4_0_scales(const char *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return bw_vf_from_fp16((bw_vh){half, half, half, half});
}
