// Online softmax in powers of 2. Sums are relative to the largest score so far and are scaled when it rises.
#pragma once

#include <math.h>

#include "cuda/kernels/common/sm80.cuh"

// 2^x to about 2 units in the last place; 2^-inf is 0.
BW_DEVICE float bw_exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// Sums stand on an older maximum until the newest exceeds it by so much: few are scaled, and weights are 2^8 at most.
constexpr float bw_softmax_slack = 8.0f;

// What a sum of a tile's weights may come to on an older maximum: none of them leaves FP16's range then.
constexpr float bw_softmax_most = 16384.0f;

// What exponents are taken relative to: the maximum, which is -infinity while nothing was seen.
BW_DEVICE float bw_softmax_reference(float top) {
    return top == -INFINITY ? 0.0f : top;
}

// A row of a C fragment lies in the four neighboring lanes of a quad.
BW_DEVICE float bw_quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(bw_all_lanes, value, 1));
    return fmaxf(value, __shfl_xor_sync(bw_all_lanes, value, 2));
}
BW_DEVICE float bw_quad_sum(float value) {
    value += __shfl_xor_sync(bw_all_lanes, value, 1);
    return value + __shfl_xor_sync(bw_all_lanes, value, 2);
}

// What a warp carries from tile to tile: 16 rows of output, as C fragments, over the rows' maxima and sums of weights.
// A lane holds parts of two rows, lane / 4 and lane / 4 + 8; where `halves` is 1 the latter are empty.
template <int padded, int halves>
struct bw_softmax_sums {
    float out[padded / 8][4];
    float top[halves], sum[halves];
};

template <int padded, int halves>
BW_DEVICE void bw_softmax_rescale(bw_softmax_sums<padded, halves> &sums, int half, float best, float reference) {
    const float shrink = bw_exp2(sums.top[half] - reference);
    sums.top[half] = best;
    sums.sum[half] *= shrink;
#pragma unroll
    for (int n = 0; n < padded / 8; n++) {
        sums.out[n][2 * half] *= shrink;
        sums.out[n][2 * half + 1] *= shrink;
    }
}
