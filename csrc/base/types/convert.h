/* Bit conversions between float and the narrower types, the same code on host and device.
 * All round to nearest, ties to even; NaN stays NaN; overflow gives infinity. */
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define BW_HD __host__ __device__ static inline
#else
#define BW_HD static inline
#endif

BW_HD uint32_t bw_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

BW_HD float bw_bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

BW_HD uint16_t bw_float_to_bf16(float value) {
    uint32_t bits = bw_float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

BW_HD float bw_bf16_to_float(uint16_t bits) {
    return bw_bits_float((uint32_t)bits << 16);
}

/* TF32 keeps binary32's exponent and 10 significand bits; it is stored as a float. */
BW_HD float bw_float_to_tf32(float value) {
    uint32_t bits = bw_float_bits(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) return value;
    return bw_bits_float((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

BW_HD uint16_t bw_float_to_fp16(float value) {
    uint32_t bits = bw_float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 2^16 or more */
    if (magnitude < 0x38800000u) {
        /* Subnormal: adding 0.5 lets the float unit round at binary16's last place (2^-24). */
        float rounded = bw_bits_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (bw_float_bits(rounded) - 0x3f000000u));
    }
    magnitude += 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

BW_HD float bw_fp16_to_float(uint16_t bits) {
    uint32_t sign = ((uint32_t)bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0) {
        float magnitude = (float)fraction * (1.0f / 16777216.0f); /* 2^-24 */
        return bw_bits_float(bw_float_bits(magnitude) | sign);
    }
    if (exponent == 31) return bw_bits_float(sign | 0x7f800000u | (fraction << 13));
    return bw_bits_float(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

/* E4M3 has no infinity: what is beyond 448 is 448, as tensor cores convert it. */
BW_HD uint8_t bw_float_to_fp8_e4m3(float value) {
    uint32_t bits = bw_float_bits(value);
    uint32_t sign = (bits >> 24) & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (magnitude >= 0x43e00000u) return (uint8_t)(sign | 0x7eu);
    if (magnitude < 0x3c800000u) {
        /* Subnormal: adding 2^14 lets the float unit round at the last place (2^-9). */
        float rounded = bw_bits_float(magnitude) + 16384.0f;
        return (uint8_t)(sign | (bw_float_bits(rounded) - 0x46800000u));
    }
    magnitude += 0x7ffffu + ((magnitude >> 20) & 1u);
    return (uint8_t)(sign | ((magnitude - 0x3c000000u) >> 20));
}

BW_HD float bw_fp8_e4m3_to_float(uint8_t bits) {
    uint32_t sign = ((uint32_t)bits & 0x80u) << 24;
    uint32_t exponent = (bits >> 3) & 0xfu;
    uint32_t fraction = bits & 7u;
    if ((bits & 0x7fu) == 0x7fu) return bw_bits_float(sign | 0x7fc00000u);
    if (exponent == 0) {
        float magnitude = (float)fraction * (1.0f / 512.0f); /* 2^-9 */
        return bw_bits_float(bw_float_bits(magnitude) | sign);
    }
    return bw_bits_float(sign | ((exponent + 120u) << 23) | (fraction << 20));
}

/* E5M2 is the upper half of binary16, but rounded once. */
BW_HD uint8_t bw_float_to_fp8_e5m2(float value) {
    const uint32_t bits = bw_float_bits(value), sign = bits >> 24 & 0x80u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7eu);
    if (magnitude >= 0x47700000u) return (uint8_t)(sign | 0x7cu); /* rounds to 2^16 or more */
    if (magnitude < 0x38800000u) {
        /* Subnormal: adding 2^7 lets the float unit round at the last place (2^-16). */
        const float rounded = bw_bits_float(magnitude) + 128.0f;
        return (uint8_t)(sign | (bw_float_bits(rounded) - 0x43000000u));
    }
    magnitude += 0xfffffu + (magnitude >> 21 & 1u);
    return (uint8_t)(sign | (magnitude - 0x38000000u) >> 21);
}

BW_HD float bw_fp8_e5m2_to_float(uint8_t bits) {
    return bw_fp16_to_float((uint16_t)(bits << 8));
}

/* To nearest, ties to even, within -128 .. 127; 0 for NaN. */
BW_HD int8_t bw_float_to_int8(float value) {
    const float round_at = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    if (!(value > -128.0f)) return value == value ? -128 : 0;
    if (value > 127.0f) return 127;
    return (int8_t)((value + round_at) - round_at);
}

/* To nearest, ties to even, within 0 .. 15; 0 for NaN. */
BW_HD uint8_t bw_float_to_uint4(float value) {
    const int8_t whole = bw_float_to_int8(value);
    return (uint8_t)(whole < 0 ? 0 : whole > 15 ? 15 : whole);
}

/* E2M1 has neither infinity nor NaN: what is beyond 6 is 6, and so is a NaN, as tensor cores convert it. */
BW_HD uint8_t bw_float_to_fp4_e2m1(float value) {
    const uint32_t bits = bw_float_bits(value);
    const float size = bw_bits_float(bits & 0x7fffffffu);
    if (!(size <= 5.0f)) return (uint8_t)(size == size ? (bits >> 28 & 8u) | 7u : 7u);
    const float twice = 2.0f * size; /* distances double at 2 and at 4 */
    const int whole = twice <= 4.0f   ? bw_float_to_int8(twice)
                      : twice <= 8.0f ? 2 + bw_float_to_int8(size)
                                      : 4 + bw_float_to_int8(0.5f * size);
    return (uint8_t)((bits >> 28 & 8u) | (uint32_t)whole);
}

BW_HD float bw_fp4_e2m1_to_float(uint8_t bits) {
    const int exponent = bits >> 1 & 3, fraction = bits & 1;
    const float size = exponent == 0 ? 0.5f * (float)fraction : (float)((2 + fraction) << exponent) * 0.25f;
    return bits & 8 ? -size : size;
}

/* A power of two from 2^-127 to 2^127, the nearest; what has none is NaN. */
BW_HD uint8_t bw_float_to_e8m0(float value) {
    const uint32_t bits = bw_float_bits(value) + 0x400000u; /* 1.5 times a power of two becomes the next one */
    if (value >= 0.0f && bits < 0xa00000u) return 0;        /* 2^-127 is no normal number */
    return value >= 0.0f && bits < 0x7f800000u ? (uint8_t)(bits >> 23) : 0xffu;
}

BW_HD float bw_e8m0_to_float(uint8_t bits) {
    return bits == 0xffu ? bw_bits_float(0x7fc00000u) : bw_bits_float(bits ? (uint32_t)bits << 23 : 0x400000u);
}
