/* Q4_0: 32 elements in 18 bytes. A scale d in FP16, then 16 bytes: the lower half of byte j is element j, the upper one
 * element j + 16, each q for (q - 8) d. The same code runs on host and device. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/types/input.h"

enum { BW_Q4_0_ELEMS = 32, BW_Q4_0_BYTES = 18, BW_Q4_0_HALF = 16 };

BW_HD void bw_q4_0_decode(const void *block, float *out) {
    const uint8_t *bytes = (const uint8_t *)block + 2;
    uint16_t bits;
    memcpy(&bits, block, sizeof bits);
    const float scale = bw_fp16_to_float(bits);
    for (int j = 0; j < BW_Q4_0_HALF; j++) {
        out[j] = (float)((bytes[j] & 15) - 8) * scale;
        out[j + BW_Q4_0_HALF] = (float)((bytes[j] >> 4) - 8) * scale;
    }
}

BW_HD uint8_t bw_q4_0_quantized(float value, float inverse_scale) {
    const float q = value * inverse_scale + 8.5f; /* clamped as a float: NaN is no whole number */
    return (uint8_t)(q > 0.0f ? q < 15.0f ? q : 15.0f : 0.0f);
}

/* The value of largest magnitude becomes -8, as every writer of such files has it. The scale saturates at FP16's
 * largest number, so that a value beyond 8 * 65504, an infinity too, becomes 8 * 65504 and leaves the others of its
 * block multiples of 65504. A NaN makes NaN of its whole block: nothing else in it can say so. */
BW_HD void bw_q4_0_encode(const float *values, void *out) {
    uint8_t *bytes = (uint8_t *)out + 2;
    float largest = 0.0f;
    for (int i = 0; i < BW_Q4_0_ELEMS; i++) {
        const float value = values[i];
        const bool larger = (value < 0.0f ? -value : value) > (largest < 0.0f ? -largest : largest);
        if (larger || value != value) largest = value;
    }
    float scale = largest / -8.0f;
    if (scale > 65504.0f) scale = 65504.0f;
    if (scale < -65504.0f) scale = -65504.0f;
    const uint16_t bits = bw_float_to_fp16(scale);
    const float inverse = (bits & 0x7fffu) ? 1.0f / scale : 0.0f; /* a block of what FP16 cannot scale is zeros */
    memcpy(out, &bits, sizeof bits);
    for (int j = 0; j < BW_Q4_0_HALF; j++) {
        bytes[j] = (uint8_t)(bw_q4_0_quantized(values[j], inverse) |
                             bw_q4_0_quantized(values[j + BW_Q4_0_HALF], inverse) << 4);
    }
}

/* Generated: every q, and a scale from 1/16 up to 1/8 of either sign. */
BW_HD void bw_q4_0_fill(bw_input_key key, uint64_t block, void *out) {
    const uint32_t hashed = bw_input_bits(key, 5 * block);
    const uint16_t bits = (uint16_t)((hashed & 0x83ffu) | 0x2c00u);
    memcpy(out, &bits, sizeof bits);
    for (uint64_t word = 0; word < 4; word++) {
        const uint32_t pairs = bw_input_bits(key, 5 * block + 1 + word);
        memcpy((char *)out + 2 + 4 * word, &pairs, sizeof pairs);
    }
}
