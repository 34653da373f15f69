/* Inputs, bit for bit as bw_input_fill makes them, and the plain read behind cache flushes. */
#include "cpu/simd/simd.h"

void BW_CPU_NAME(fill)(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, void *out);
uint32_t BW_CPU_NAME(sum)(const void *data, int64_t bytes);

/* bw_input_value for BW_SIMD_FLOATS indices whose upper 32 bits are the same. */
BW_INLINE bw_vf input_values(bw_input_key key, uint64_t index, bw_vu lane) {
    bw_vu x = lane + (uint32_t)index;
    x = (x ^ key.offset) + (uint32_t)(index >> 32) * 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x = (x ^ key.mask ^ (x >> 16)) * 0x9e3779b1u;
    x ^= x >> 15;
    return __builtin_convertvector((bw_vi)x >> 8, bw_vf) * bw_vf_set(1.0f / 8388608.0f);
}

/* Nothing here crosses a multiple of 2^32: the caller splits there. */
BW_INLINE void fill_stretch(bw_dtype dtype, bw_input_key key, uint64_t first, int64_t count, void *out) {
    bw_vu lane;
    for (int i = 0; i < BW_SIMD_FLOATS; i++) lane[i] = (uint32_t)i;
    for (int64_t i = 0; i < count; i += BW_SIMD_FLOATS) {
        bw_vf_store_as_upto(dtype, out, i, input_values(key, first + (uint64_t)i, lane), count - i);
    }
}

void BW_CPU_NAME(fill)(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, void *out) {
    while (count > 0) {
        int64_t stretch = bw_min64(count, ((int64_t)1 << 32) - (int64_t)((uint64_t)first & 0xffffffffu));
        if (dtype == BW_FP32 || dtype == BW_FP16 || dtype == BW_BF16) {
            BW_DTYPE_SWITCH(dtype, fill_stretch, key, (uint64_t)first, stretch, out);
        } else {
            bw_input_fill(dtype, key, first, stretch, out);
        }
        out = (char *)out + stretch * (int64_t)bw_dtype_get(dtype)->block_bytes;
        first += stretch;
        count -= stretch;
    }
}

uint32_t BW_CPU_NAME(sum)(const void *data, int64_t bytes) {
    const char *p = data;
    bw_vu total[4] = {0};
    int64_t i = 0;
    for (; i + 4 * BW_SIMD_BYTES <= bytes; i += 4 * BW_SIMD_BYTES) {
        for (int j = 0; j < 4; j++) {
            bw_vu x;
            memcpy(&x, p + i + j * BW_SIMD_BYTES, sizeof x);
            total[j] += x;
        }
    }
    bw_vu all = total[0] + total[1] + total[2] + total[3];
    uint32_t sum = 0;
    for (int j = 0; j < BW_SIMD_FLOATS; j++) sum += all[j];
    for (; i + 4 <= bytes; i += 4) {
        uint32_t word;
        memcpy(&word, p + i, sizeof word);
        sum += word;
    }
    return sum;
}
