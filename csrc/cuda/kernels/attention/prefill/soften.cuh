// Softmax of the flash kernels by mma.sync: of a tile of scores that lies in C fragments.
#ifndef BW_CUDA_PREFILL_SOFTEN_CUH
#define BW_CUDA_PREFILL_SOFTEN_CUH

#include "cuda/kernels/common/softmax.cuh"

// Scores to weights, in place. `room[half]` is the last key, from the tile's first on, that the lane's rows attend;
// where the whole tile lies before it, `masked` is false. The first tile holds key 0, which every row attends, so that
// maxima are finite.
template <bool masked, int padded, int eights>
BW_DEVICE void bw_flash_soften(float (&scores)[eights][4], const int (&room)[2], float scale,
                               bw_softmax_sums<padded, 2> &sums) {
    const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float best = -INFINITY;
#pragma unroll
        for (int n = 0; n < eights; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &score = scores[n][2 * half + c];
                if (masked && 8 * n + column + c > room[half]) score = -INFINITY;
                best = fmaxf(best, score);
            }
        }
        best = bw_quad_max(best) * scale;
        const bool rises = best > sums.top[half] + bw_softmax_slack;
        if (!rises) best = sums.top[half];
        if (__any_sync(bw_all_lanes, rises)) bw_softmax_rescale(sums, half, best, best);
#pragma unroll
        for (int n = 0; n < eights; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const float weight = bw_exp2(fmaf(scores[n][2 * half + c], scale, -best));
                scores[n][2 * half + c] = weight;
                sums.sum[half] += weight;
            }
        }
    }
}

#endif
