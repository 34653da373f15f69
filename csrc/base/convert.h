/* Bit conversions between float and the narrower types, the same code on host and device.
 * All round to nearest, ties to even; NaN stays NaN; overflow gives infinity. */
#ifndef BW_BASE_CONVERT_H
#define BW_BASE_CONVERT_H

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

#endif
