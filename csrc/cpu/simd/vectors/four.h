/* Primitives of simd.h for vectors of four floats, in C. */
#pragma once

typedef int8_t bw_four_bytes __attribute__((vector_size(4)));

BW_NO_PAIRS
BW_PRIMITIVE(bw_vf, bw_vf_pick, (bw_vf x, bw_vu index), (bw_vf){x[index[0]], x[index[1]], x[index[2]], x[index[3]]})
BW_PRIMITIVE(bw_vf, bw_vf_from_uint4, (bw_vu x, int less), __builtin_convertvector((bw_vi)(x & 15u) - less, bw_vf))

BW_PRIMITIVE(bw_vu, bw_vu_keep, (bw_vu x), x)

BW_INLINE bw_vu bw_vu_load_q4_0(const char *p) {
    bw_vu x;
    memcpy(&x, p + 2, sizeof x);
    return x;
}

BW_INLINE bw_vi bw_vi_load_int8(const void *p) {
    bw_four_bytes bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, bw_vi);
}

BW_PRIMITIVE(bw_vb, bw_vu_low_bytes, (bw_vu x), __builtin_convertvector(x, bw_vb))
BW_PRIMITIVE(bw_vf, bw_vf_load_int8, (const void *p), __builtin_convertvector(bw_vi_load_int8(p), bw_vf))

BW_INLINE bw_vf bw_vf_from_bytes(uint64_t low, uint64_t high) {
    (void)high;
    const bw_vi bytes = {(int)(low & 255), (int)(low >> 8 & 255), (int)(low >> 16 & 255), (int)(low >> 24 & 255)};
    return __builtin_convertvector(bytes, bw_vf);
}

/* Sizes from 1 on have an exponent of a float's form; 0 and 1/2 get a leading one that is subtracted again. */
BW_INLINE bw_vf bw_vf_from_e2m1(bw_vu x) {
    const bw_vu size = x << 22 & 0x1c00000u, small = (bw_vu)((x & 6u) == 0);
    const bw_vf below = (bw_vf)(size + 0x3f800000u) - 1.0f;
    return (bw_vf)(((bw_vu)below & small) | ((size + 0x3f000000u) & ~small) | (x << 28 & 0x80000000u));
}

BW_INLINE bw_vw bw_vw_load_int8(const void *p) {
    int8_t bytes[8];
    memcpy(bytes, p, sizeof bytes);
    bw_vw x;
    for (int i = 0; i < 8; i++) x[i] = (uint16_t)bytes[i];
    return x;
}

/* Products of lanes 0 and 2 in 64 bits each. */
typedef uint64_t bw_two_longs __attribute__((vector_size(16)));
BW_PRIMITIVE(bw_vu, bw_vu_even_products, (bw_vu a, bw_vu b),
             (bw_vu)(bw_two_longs){(uint64_t)a[0] * b[0], (uint64_t)a[2] * b[2]})
BW_NO_DOTS
BW_PRIMITIVE(bw_vi, bw_vw_dot, (bw_vw a, bw_vw b),
             ((bw_vi)((bw_vu)a << 16) >> 16) * ((bw_vi)((bw_vu)b << 16) >> 16) + ((bw_vi)a >> 16) * ((bw_vi)b >> 16))
BW_PRIMITIVE(bw_vw, bw_vw_turns_low, (bw_vw a, bw_vw b), (bw_vw){a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3]})
BW_PRIMITIVE(bw_vw, bw_vw_turns_high, (bw_vw a, bw_vw b), (bw_vw){a[4], b[4], a[5], b[5], a[6], b[6], a[7], b[7]})
BW_PRIMITIVE(bw_vi, bw_vi_first, (bw_vi low, bw_vi high), ((void)high, low))
BW_PRIMITIVE(bw_vi, bw_vi_second, (bw_vi low, bw_vi high), ((void)low, high))
BW_PRIMITIVE(bw_vh, bw_vw_low, (bw_vw x), (bw_vh){x[0], x[1], x[2], x[3]})
BW_PRIMITIVE(bw_vh, bw_vw_high, (bw_vw x), (bw_vh){x[4], x[5], x[6], x[7]})
