/* The primitives of simd.h in C with the compiler's vector types: four floats, which every machine can do. */
#ifndef BW_CPU_SIMD_VECTOR_PORTABLE_H
#define BW_CPU_SIMD_VECTOR_PORTABLE_H

enum { BW_SIMD_FLOATS = 4, BW_MICRO_ROWS = 4 };
#define BW_SIMD_STREAMS 0
typedef float bw_vf __attribute__((vector_size(16)));
typedef uint32_t bw_v4u __attribute__((vector_size(16)));
typedef uint16_t bw_v4h __attribute__((vector_size(8)));

BW_INLINE bw_vf bw_vf_set(float x) {
    return (bw_vf){x, x, x, x};
}

BW_INLINE bw_vf bw_vf_load(const float *p) {
    bw_vf x;
    memcpy(&x, p, sizeof x);
    return x;
}

BW_INLINE void bw_vf_store(float *p, bw_vf x) {
    memcpy(p, &x, sizeof x);
}

BW_INLINE bw_vf bw_vf_fma(bw_vf a, bw_vf b, bw_vf c) {
    return a * b + c;
}

BW_INLINE bw_v4u bw_v4u_select(bw_v4u mask, bw_v4u yes, bw_v4u no) {
    return (yes & mask) | (no & ~mask);
}

BW_INLINE bw_vf bw_vf_max(bw_vf a, bw_vf b) {
    return (bw_vf)bw_v4u_select((bw_v4u)(a > b), (bw_v4u)a, (bw_v4u)b);
}

BW_INLINE bw_vf bw_vf_zip_low(bw_vf a, bw_vf b) {
    return (bw_vf){a[0], b[0], a[1], b[1]};
}

BW_INLINE bw_vf bw_vf_zip_high(bw_vf a, bw_vf b) {
    return (bw_vf){a[2], b[2], a[3], b[3]};
}

BW_INLINE bw_v4u bw_v4u_widen(const uint16_t *p) {
    bw_v4h narrow;
    memcpy(&narrow, p, sizeof narrow);
    return __builtin_convertvector(narrow, bw_v4u);
}

BW_INLINE void bw_v4u_narrow(uint16_t *p, bw_v4u x) {
    bw_v4h narrow = __builtin_convertvector(x, bw_v4h);
    memcpy(p, &narrow, sizeof narrow);
}

BW_INLINE bw_v4u bw_v4u_set(uint32_t x) {
    return (bw_v4u){x, x, x, x};
}

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
BW_INLINE void bw_vf_store_fp16(uint16_t *p, bw_vf x) {
    bw_v4u bits = (bw_v4u)x;
    bw_v4u sign = (bits >> 16) & 0x8000u;
    bw_v4u magnitude = bits & 0x7fffffffu;
    bw_v4u subnormal = (bw_v4u)((bw_vf)magnitude + bw_vf_set(0.5f)) - 0x3f000000u;
    bw_v4u rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    bw_v4u half = (rounded - 0x38000000u) >> 13;
    half = bw_v4u_select((bw_v4u)(magnitude < 0x38800000u), subnormal, half);
    half = bw_v4u_select((bw_v4u)(magnitude >= 0x477ff000u), bw_v4u_set(0x7c00u), half);
    half = bw_v4u_select((bw_v4u)(magnitude > 0x7f800000u), bw_v4u_set(0x7e00u), half);
    bw_v4u_narrow(p, half | sign);
}

BW_INLINE bw_vf bw_vf_load_bf16(const uint16_t *p) {
    return (bw_vf)(bw_v4u_widen(p) << 16);
}

BW_INLINE void bw_vf_store_bf16(uint16_t *p, bw_vf x) {
    bw_v4u bits = (bw_v4u)x;
    bw_v4u rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    bw_v4u nan = (bw_v4u)((bits & 0x7fffffffu) > 0x7f800000u);
    bw_v4u_narrow(p, bw_v4u_select(nan, bits | 0x400000u, rounded) >> 16);
}

#endif
