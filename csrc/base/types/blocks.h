/* Types whose blocks hold their scales, as ggml lays them out. The same code runs on host and device.
 *   Q4_0  32 elements in 18 bytes: a scale d in FP16, then 16 bytes: the lower half of byte j is element j, the upper
 *         one element j + 16, each q for (q - 8) d;
 *   Q8_0  32 elements in 34 bytes: a scale d in FP16, then 32 bytes, each q from -128 to 127 for q d;
 *   Q4_K  256 elements in 144 bytes: scales d and m in FP16, 12 bytes with a scale s and a minimum t of 6 bits for each
 *         32 elements, then 128 bytes of q from 0 to 15, for d s q - m t: the lower halves of 32 bytes, their upper
 *         halves, then those of the next 32. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/types/input.h"

enum {
    BW_Q4_0_ELEMS = 32,
    BW_Q4_0_BYTES = 18,
    BW_Q4_0_HALF = 16,
    BW_Q8_0_ELEMS = 32,
    BW_Q8_0_BYTES = 34,
    BW_Q4_K_ELEMS = 256,
    BW_Q4_K_BYTES = 144,
    BW_Q4_K_GROUPS = 8,
    BW_Q4_K_GROUP = 32
};

BW_HD float bw_block_half(const void *from) {
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return bw_fp16_to_float(bits);
}

/* Writes a scale and returns it; FP16's largest number is the largest. */
BW_HD float bw_block_scale(float scale, void *to) {
    if (scale > 65504.0f) scale = 65504.0f;
    if (scale < -65504.0f) scale = -65504.0f;
    const uint16_t bits = bw_float_to_fp16(scale);
    memcpy(to, &bits, sizeof bits);
    return (bits & 0x7fffu) ? scale : 0.0f;
}

BW_HD void bw_q4_0_decode(const void *block, float *out) {
    uint8_t bytes[BW_Q4_0_HALF]; /* where the compiler knows that `out` is not */
    const float scale = bw_block_half(block);
    memcpy(bytes, (const uint8_t *)block + 2, sizeof bytes);
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
    const float scale = bw_block_scale(largest / -8.0f, out);
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale; /* a block of what FP16 cannot scale is zeros */
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

BW_HD void bw_q8_0_decode(const void *block, float *out) {
    const float scale = bw_block_half(block);
    for (int j = 0; j < BW_Q8_0_ELEMS; j++) out[j] = (float)((const int8_t *)block + 2)[j] * scale;
}

/* To the nearest, halves away from zero. */
BW_HD int bw_block_round(float value, int lowest, int largest) {
    if (!(value > (float)lowest)) return lowest; /* a NaN, too */
    if (value >= (float)largest) return largest;
    return (int)(value + (value < 0.0f ? -0.5f : 0.5f));
}

/* The value of largest magnitude becomes 127 or -127. A NaN makes NaN of its whole block. */
BW_HD void bw_q8_0_encode(const float *values, void *out) {
    float largest = 0.0f;
    for (int i = 0; i < BW_Q8_0_ELEMS; i++) {
        const float size = values[i] < 0.0f ? -values[i] : values[i];
        if (size > largest || size != size) largest = size;
        if (largest != largest) break;
    }
    const float scale = bw_block_scale(largest / 127.0f, out);
    const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    for (int j = 0; j < BW_Q8_0_ELEMS; j++) {
        ((int8_t *)out + 2)[j] = (int8_t)(inverse == 0.0f ? 0 : bw_block_round(values[j] * inverse, -127, 127));
    }
}

/* Generated: every q, and a scale from 1/256 up to 1/128 of either sign. */
BW_HD void bw_q8_0_fill(bw_input_key key, uint64_t block, void *out) {
    const uint16_t bits = (uint16_t)((bw_input_bits(key, 9 * block) & 0x83ffu) | 0x1c00u);
    memcpy(out, &bits, sizeof bits);
    for (uint64_t word = 0; word < 8; word++) {
        const uint32_t four = bw_input_bits(key, 9 * block + 1 + word);
        memcpy((char *)out + 2 + 4 * word, &four, sizeof four);
    }
}

/* The 6 bits of group `group`'s scale and minimum. */
BW_HD void bw_q4_k_group(const uint8_t *packed, int group, int *scale, int *minimum) {
    if (group < 4) {
        *scale = packed[group] & 63;
        *minimum = packed[group + 4] & 63;
    } else {
        *scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
        *minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
}

BW_HD void bw_q4_k_decode(const void *block, float *out) {
    const uint8_t *bytes = (const uint8_t *)block;
    const float d = bw_block_half(block), m = bw_block_half(bytes + 2);
    for (int group = 0; group < BW_Q4_K_GROUPS; group++) {
        int scale, minimum;
        bw_q4_k_group(bytes + 4, group, &scale, &minimum);
        const float s = d * (float)scale, t = m * (float)minimum;
        const uint8_t *halves = bytes + 16 + group / 2 * BW_Q4_K_GROUP;
        for (int j = 0; j < BW_Q4_K_GROUP; j++) {
            const float product = s * (float)(halves[j] >> group % 2 * 4 & 15); /* exact: 21 bits */
            out[group * BW_Q4_K_GROUP + j] = product - t;
        }
    }
}

/* Each group's range, zero in it, in 15 steps; the largest step and minimum of a block become 63 d and 63 m. */
BW_HD void bw_q4_k_encode(const float *values, void *out) {
    uint8_t *bytes = (uint8_t *)out, *packed = bytes + 4;
    float step[BW_Q4_K_GROUPS], depth[BW_Q4_K_GROUPS], widest = 0.0f, deepest = 0.0f;
    for (int group = 0; group < BW_Q4_K_GROUPS; group++) {
        float low = 0.0f, high = 0.0f;
        for (int j = 0; j < BW_Q4_K_GROUP; j++) {
            const float value = values[group * BW_Q4_K_GROUP + j];
            if (value < low || value != value) low = value;
            if (value > high || value != value) high = value;
        }
        step[group] = (high - low) / 15.0f;
        depth[group] = -low;
        if (step[group] > widest || step[group] != step[group]) widest = step[group];
        if (depth[group] > deepest || depth[group] != depth[group]) deepest = depth[group];
    }
    const float d = bw_block_scale(widest / 63.0f, bytes), m = bw_block_scale(deepest / 63.0f, bytes + 2);
    memset(packed, 0, BW_Q4_K_BYTES - 4);
    for (int group = 0; group < BW_Q4_K_GROUPS; group++) {
        const int s = d == 0.0f ? 0 : bw_block_round(step[group] / d, 0, 63);
        const int t = m == 0.0f ? 0 : bw_block_round(depth[group] / m, 0, 63);
        packed[group % 4 + (group < 4 ? 0 : 8)] |= (uint8_t)(s & (group < 4 ? 63 : 15));
        if (group < 4) {
            packed[group + 4] |= (uint8_t)t;
        } else {
            packed[group + 4] |= (uint8_t)((t & 15) << 4);
            packed[group - 4] |= (uint8_t)(s >> 4 << 6);
            packed[group] |= (uint8_t)(t >> 4 << 6);
        }
        for (int j = 0; j < BW_Q4_K_GROUP; j++) {
            const float value = values[group * BW_Q4_K_GROUP + j] + m * (float)t;
            const int q = s == 0 ? 0 : bw_block_round(value / (d * (float)s), 0, 15);
            bytes[16 + group / 2 * BW_Q4_K_GROUP + j] |= (uint8_t)(q << group % 2 * 4);
        }
    }
}

/* Generated: every q, s and t; d from 2^-10 up to 2^-9, m from 2^-7 up to 2^-6, so that values are about 0. */
BW_HD void bw_q4_k_fill(bw_input_key key, uint64_t block, void *out) {
    for (uint64_t word = 0; word < BW_Q4_K_BYTES / 4; word++) {
        uint32_t bits = bw_input_bits(key, BW_Q4_K_BYTES / 4 * block + word);
        if (word == 0) bits = (bits & 0x03ff03ffu) | 0x20001400u;
        memcpy((char *)out + 4 * word, &bits, sizeof bits);
    }
}
