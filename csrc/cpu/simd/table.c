/* One instruction set's kernels: the operations' tables, and the calls that are no operation. */
#include "cpu/simd/simd.h"
#include "ops/list.h"

enum { CHAINS = 12 };

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

static void fill(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, void *out) {
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

/* The plain read behind cache flushes. */
static uint32_t sum_words(const void *data, int64_t bytes) {
    const char *p = data;
    bw_vu total[4] = {0};
    int64_t i = 0;
    for (; i + 4 * BW_SIMD_BYTES <= bytes; i += 4 * BW_SIMD_BYTES) {
        for (int j = 0; j < 4; j++) total[j] += bw_vu_load(p + i + j * BW_SIMD_BYTES);
    }
    uint32_t sum = bw_vu_sum(total[0] + total[1] + total[2] + total[3]);
    for (; i + 4 <= bytes; i += 4) {
        uint32_t word;
        memcpy(&word, p + i, sizeof word);
        sum += word;
    }
    return sum;
}

/* The arithmetic roof: multiply-adds on registers alone, enough independent chains to keep every unit busy. They stay
 * finite: x -> 0.5 x + 0.25 settles at 0.5. */
static float multiply_adds(int64_t rounds) {
    const bw_vf half = bw_vf_set(0.5f), quarter = bw_vf_set(0.25f);
    bw_vf chains[CHAINS];
    for (int i = 0; i < CHAINS; i++) chains[i] = bw_vf_set((float)i);
    for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            chains[i] = bw_vf_fma(chains[i], half, quarter);
        }
    }
    float sum = 0.0f;
    for (int i = 0; i < CHAINS; i++) sum += chains[i][0];
    return sum;
}

#define BW_DECLARE(operation, cpu, cuda) extern const bw_variant_table BW_CPU_TABLE(operation);
BW_OPERATIONS(BW_DECLARE)
#undef BW_DECLARE

static const bw_variant_table *const tables[] = {
#define BW_ROW(operation, cpu, cuda) BW_IF_##cpu(&BW_CPU_TABLE(operation), &bw_no_variants),
    BW_OPERATIONS(BW_ROW)
#undef BW_ROW
};

const bw_cpu_kernels BW_CPU_NAME(kernels) = {
    .isa = BW_QUOTE_EXPANDED(BW_ISA),
    .tables = tables,
    .fill = fill,
    .sum = sum_words,
    .multiply_adds = multiply_adds,
    .flops_per_round = 2 * CHAINS * BW_SIMD_FLOATS,
};
