// FP32 on tensor cores: an element is a sum of two TF32 numbers, of which the products of high by high, low by high and
// high by low are taken: what is left out is below 2^-20 of a product. Tensor cores cut sums off where FP32 arithmetic
// rounds them, so each tile's product is added to the output by the CUDA cores.
#pragma once

#include "cuda/kernels/common/sm80.cuh"

// Fragments of factors: of the numbers themselves, or of their high and low parts.
template <int count, bool exact>
struct bw_factors {
    uint32_t high[count], low[exact ? count : 1];
    __device__ __forceinline__ void set(int i, uint32_t bits) {
        if constexpr (exact) {
            // Cut off, a NaN may become an infinity; a sum is a NaN that does not.
            const float value = __fadd_rn(__uint_as_float(bits), 0.0f);
            high[i] = __float_as_uint(value) & 0xffffe000u;
            low[i] = __float_as_uint(value - __uint_as_float(high[i]));
        } else {
            high[i] = bits;
        }
    }
    // `careful`: not only of what is finite; of other elements the low part is no number.
    template <bool careful = true>
    __device__ __forceinline__ void set(uint4 bits) {
        const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if constexpr (careful) {
                set(i, word[i]);
            } else {
                high[i] = word[i] & 0xffffe000u;
                low[i] = __float_as_uint(__uint_as_float(word[i]) - __uint_as_float(high[i]));
            }
        }
    }
};

// What the 16-byte chunks of a row in shared memory are permuted by (chunk ^ bw_row_turn(row)): lanes find all banks
// where lane 4 r + c reads chunk c of rows r, and where it reads chunk r of rows 2 c, or 2 c + 1.
BW_DEVICE int bw_row_turn(int row) {
    return (row & 6) ^ (row & 1) << 2;
}

// Sums of products: those of high parts by themselves, because the low part of an infinity is no number.
template <bool exact>
struct bw_sums_of {
    float big[4], small[exact ? 4 : 1];
    __device__ __forceinline__ void multiply_add(const bw_factors<4, exact> &a, const bw_factors<4, exact> &b, int at) {
        if constexpr (exact) {
            bw_multiply(small, a.low, b.high[at], b.high[at + 1], float());
            bw_multiply(big, a.high, b.high[at], b.high[at + 1], float());
            bw_multiply(small, a.high, b.low[at], b.low[at + 1], float());
        } else {
            bw_multiply(big, a.high, b.high[at], b.high[at + 1], float());
        }
    }
    __device__ __forceinline__ float total(int e) const {
        if constexpr (exact) return isfinite(big[e]) ? big[e] + small[e] : big[e];
        return big[e];
    }
};

// The same in one sum, for what is finite: fewer instructions where a few products are added up.
BW_DEVICE void bw_add_products(float (&sum)[4], const bw_factors<4, true> &a, const bw_factors<4, true> &b, int at) {
    bw_multiply(sum, a.low, b.high[at], b.high[at + 1], float());
    bw_multiply(sum, a.high, b.low[at], b.low[at + 1], float());
    bw_multiply(sum, a.high, b.high[at], b.high[at + 1], float());
}
