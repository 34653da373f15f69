// What a linear layer has in the place of gemm's C: D's element of a sum is dropout(relu(sum + bias)). gemm's kernels
// take it as their `c`.
#pragma once

#include "base/types/dropout.h"
#include "cuda/kernels/gemm/tiles.cuh"

template <typename T>
struct bw_linear_end {
    const T *bias;
    uint64_t seed;
    uint32_t threshold;
    float factor;  // of elements that stay
};

// The parameter of gemm's kernels for it, and for C, an operand's address.
template <typename T, typename Argument>
using bw_gemm_addend = std::conditional_t<std::is_same_v<Argument, bw_address>, const T *, Argument>;

// What is no number stays so.
BW_DEVICE float bw_relu(float value) {
    float result;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(value));
    return result;
}

// D's element `at`, in column `column`, of a sum.
template <typename T>
BW_DEVICE float bw_gemm_add(const bw_linear_end<T> &end, int64_t at, int64_t column, float sum) {
    const float value = bw_relu(sum + bw_to_float(end.bias[column]));
    return value * (bw_dropout_keeps(end.seed, at, end.threshold) ? end.factor : 0.0f);
}

// The same of two neighbors where threads have many: inline, the random numbers would be most of a kernel's code.
template <typename T>
static __device__ __noinline__ float2 bw_linear_end_pair(bw_linear_end<T> end, int64_t at, int64_t column, int64_t last,
                                                         float low, float high) {
    return make_float2(bw_gemm_add(end, at, column, low), bw_gemm_add(end, at + 1, min(column + 1, last), high));
}
template <typename T>
BW_DEVICE void bw_gemm_store_pair(const bw_linear_end<T> &end, T *d, int64_t row, int64_t column, int64_t n, float low,
                                  float high) {
    if (column >= n) return;
    const int64_t at = row * n + column;
    const float2 both = bw_linear_end_pair(end, at, column, n - 1, low, high);
    if (n % 2 == 0) return bw_gemm_write_pair(d + at, both.x, both.y);
    bw_from_float(both.x, &d[at]);
    if (column + 1 < n) bw_from_float(both.y, &d[at + 1]);
}

// Its bias is yet to be placed.
template <typename T>
static bw_linear_end<T> bw_linear_end_of(const bw_dims *dims) {
    const int64_t percent = dims->value[BW_LINEAR_DROPOUT_PERCENT];
    return {nullptr, (uint64_t)dims->value[BW_LINEAR_MASK_SEED], bw_dropout_threshold(percent),
            bw_dropout_growth(percent)};
}
// The last kernel has it as its argument `argument`.
static inline bw_status bw_linear_place_bias(bw_cuda_launch_spec *out, int argument) {
    bw_choose_place(&out->kernel[out->kernels - 1], argument, 0, bw_from_operand(BW_LINEAR_BIAS));
    return BW_OK;
}
