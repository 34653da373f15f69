// Online softmax of a warpgroup's tile of scores, as wgmma leaves them: D fragments, weights as A fragments.
#pragma once

#include "cuda/kernels/common/softmax.cuh"
#include "cuda/kernels/common/swizzled_tile.cuh"

// Scores to weights, in place; `shrink` is what earlier sums must be multiplied by. `room[half]` is the last key, from
// the tile's first on, that a row attends.
template <bool masked, int key_eights>
BW_DEVICE void bw_scores_to_weights(float (&scores)[key_eights][4], const int (&room)[2], float scale, float slack,
                                    float (&top)[2], float (&sum)[2], float (&shrink)[2]) {
    const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float best = scores[0][2 * half];
        if (masked) best = -INFINITY;
#pragma unroll
        for (int n = 0; n < key_eights; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &score = scores[n][2 * half + c];
                if (masked && 8 * n + column + c > room[half]) score = -INFINITY;
                best = fmaxf(best, score);
            }
        }
        best = bw_quad_max(best);
        const float before = top[half];
        const bool rises = best > before + slack;
        top[half] = rises ? best : before;
        const float reference = bw_softmax_reference(top[half]) * scale;
        shrink[half] = rises ? bw_exp2(fmaf(before, scale, -reference)) : 1.0f;
        float part = 0.0f;
#pragma unroll
        for (int n = 0; n < key_eights; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &score = scores[n][2 * half + c];
                score = bw_exp2(fmaf(score, scale, -reference));
                part += score;
            }
        }
        sum[half] = fmaf(sum[half], shrink[half], part);
    }
}

template <typename T, int key_steps>
BW_DEVICE void bw_round_weights(const float (&scores)[2 * key_steps][4], uint32_t (&weights)[key_steps][4]) {
#pragma unroll
    for (int i = 0; i < key_steps; i++) bw_tensor_weights(weights[i], scores[2 * i], scores[2 * i + 1], T());
}
