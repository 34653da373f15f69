// What a linear layer has in the place of gemm's C: D's element of a sum is dropout(relu(sum + bias)). gemm's kernels
// take it as their `c`.
#pragma once

#include "base/dropout.h"
#include "cuda/kernels/common/element.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

template <typename T>
struct bw_linear_end {
    const T *bias;
    uint64_t seed;
    uint32_t threshold;
    float factor;  // of elements that stay
    // C may be NULL, this is always there.
    __device__ explicit operator bool() const {
        return true;
    }
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

// Element `which`, even, of a call, and the next one.
template <typename T>
BW_DEVICE void bw_linear_drop_pair(const bw_linear_end<T> &end, const bw_dropout_numbers &numbers, int which,
                                   float &low, float &high) {
    low *= bw_dropout_stays(&numbers, which, end.threshold) ? end.factor : 0.0f;
    high *= bw_dropout_stays(&numbers, which + 1, end.threshold) ? end.factor : 0.0f;
}

// D's element `at`, in column `column`, of a sum; and of a pair of neighbors, the first an even element.
template <typename T>
BW_DEVICE float bw_gemm_add(const bw_linear_end<T> &end, int64_t at, int64_t column, float sum) {
    const float value = bw_relu(sum + bw_to_float(end.bias[column]));
    return value * (bw_dropout_keeps(end.seed, at, end.threshold) ? end.factor : 0.0f);
}
template <typename T>
BW_DEVICE void bw_gemm_add_pair(const bw_linear_end<T> &end, int64_t at, int64_t column, float &low, float &high) {
    low = bw_relu(low + bw_to_float(end.bias[column]));
    high = bw_relu(high + bw_to_float(end.bias[column + 1]));
    bw_linear_drop_pair(end, bw_dropout_draw(end.seed, at / BW_DROPOUT_CALL), (int)(at % BW_DROPOUT_CALL), low, high);
}

// Its bias is yet to be placed.
template <typename T>
static bw_linear_end<T> bw_linear_end_of(const bw_dims *dims) {
    const int64_t percent = dims->value[BW_LINEAR_DROPOUT_PERCENT];
    return {nullptr, (uint64_t)dims->value[BW_LINEAR_MASK_SEED], bw_dropout_threshold(percent),
            100.0f / (float)(100 - percent)};
}
// The last kernel has it as its argument `argument`.
static inline bw_status bw_linear_place_bias(bw_cuda_launch_spec *out, int argument) {
    bw_choose_place(&out->kernel[out->kernels - 1], argument, 0, bw_from_operand(BW_LINEAR_BIAS));
    return BW_OK;
}
