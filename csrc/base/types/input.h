/* Inputs: element i of operand o is a hash of (seed, o, i), uniform in [-1, 1), rounded to the type it is stored in; of
 * narrow types the bits are hashed themselves (base/types/dtype.h). The same code runs on host and device, so that
 * nothing large is ever uploaded and any single element can be worked out anew by whoever checks a result. */
#pragma once

#include <stdint.h>

#include "base/types/convert.h"

typedef struct bw_input_key {
    uint32_t offset, mask;
} bw_input_key;

bw_input_key bw_input_key_make(uint64_t seed, int operand);

/* 32 hashed bits for an index given as its halves. */
BW_HD uint32_t bw_input_bits_at(bw_input_key key, uint32_t high, uint32_t low) {
    uint32_t x = (low ^ key.offset) + high * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x = (x ^ key.mask ^ (x >> 16)) * 0x9e3779b1u;
    return x ^ (x >> 15);
}

BW_HD uint32_t bw_input_bits(bw_input_key key, uint64_t index) {
    return bw_input_bits_at(key, (uint32_t)(index >> 32), (uint32_t)index);
}

BW_HD float bw_input_value_at(bw_input_key key, uint32_t high, uint32_t low) {
    return (float)((int32_t)bw_input_bits_at(key, high, low) >> 8) * (1.0f / 8388608.0f);
}

BW_HD float bw_input_value(bw_input_key key, uint64_t index) {
    return bw_input_value_at(key, (uint32_t)(index >> 32), (uint32_t)index);
}

/* What stream_write writes at index i: not zeros, exact in every precision, cheap to make. */
BW_HD float bw_pattern_value(uint64_t index) {
    return (float)((int)(index & 63u) - 32) * (1.0f / 32.0f);
}
