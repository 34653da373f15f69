// Online softmax of a tile of scores in C fragments, for the flash kernels by mma.sync.
#pragma once

#include "cuda/kernels/common/softmax.cuh"

// Scores to weights, in place, of a warp's `blocks` times 16 rows. `all` and `own` are the last keys, from the tile's
// first on, that there are and that the lane's first row attends, if causal. All rows side by side: alone, each is a
// chain of instructions that wait for each other.
template <int padded, int blocks, int eights>
BW_DEVICE void bw_flash_softmax_update(float (&scores)[blocks][eights][4], int all, int own, bool causal, float scale,
                                       bw_softmax_sums<padded, 2> (&sums)[blocks]) {
    const int column = (int)threadIdx.x % 4 * 2;
    float reference[blocks][2], best[blocks][4];  // of even columns and odd ones, row by row
    int room[blocks][2];
#pragma unroll
    for (int b = 0; b < blocks; b++) {
        room[b][0] = causal ? min(all, own + 16 * b) : all;
        room[b][1] = causal ? min(all, own + 16 * b + 8) : all;
    }
#pragma unroll
    for (int n = 0; n < eights; n++) {
#pragma unroll
        for (int b = 0; b < blocks; b++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float &score = scores[b][n][e];
                if (8 * n + column + e % 2 > room[b][e / 2]) score = -INFINITY;
                best[b][e] = n == 0 ? fmaxf(score, -INFINITY) : fmaxf(best[b][e], score);
            }
        }
    }
#pragma unroll
    for (int b = 0; b < blocks; b++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = bw_quad_max(fmaxf(best[b][2 * half], best[b][2 * half + 1])) * scale;
            const bool rises = top > sums[b].top[half] + bw_softmax_slack;
            if (!rises) top = sums[b].top[half];
            reference[b][half] = bw_softmax_reference(top);
            if (__any_sync(bw_all_lanes, rises)) bw_softmax_rescale(sums[b], half, top, reference[b][half]);
        }
    }
#pragma unroll
    for (int n = 0; n < eights; n++) {
#pragma unroll
        for (int b = 0; b < blocks; b++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float weight = bw_exp2(fmaf(scores[b][n][e], scale, -reference[b][e / 2]));
                scores[b][n][e] = weight;
                sums[b].sum[e / 2] += weight;
            }
        }
    }
}

// The same for tiles that nothing masks, behind the first: weights stand on the maximum so far, so that none waits for
// other scores. False for the warp, with sums as they were, where a sum says that weights grow too large, or that
// something is no number: bw_flash_softmax_update then takes the scores, worked out again.
template <int padded, int blocks, int eights>
BW_DEVICE bool bw_flash_softmax_try_quick(float (&scores)[blocks][eights][4], float scale,
                                          bw_softmax_sums<padded, 2> (&sums)[blocks]) {
    float total[blocks][2] = {};
#pragma unroll
    for (int n = 0; n < eights; n++) {
#pragma unroll
        for (int b = 0; b < blocks; b++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float weight = bw_exp2(fmaf(scores[b][n][e], scale, -sums[b].top[e / 2]));
                scores[b][n][e] = weight;
                total[b][e / 2] += weight;
            }
        }
    }
    bool fits = true;
#pragma unroll
    for (int b = 0; b < blocks; b++) fits = fits && total[b][0] <= bw_softmax_most && total[b][1] <= bw_softmax_most;
    if (!__all_sync(bw_all_lanes, fits)) return false;
#pragma unroll
    for (int b = 0; b < blocks; b++) {
        sums[b].sum[0] += total[b][0];
        sums[b].sum[1] += total[b][1];
    }
    return true;
}
