/* The softmax that attention goes over tile by tile: a running maximum and sum for each row of scores.
 * Where K and V have scales, K's multiply scores and V's weights. */
#pragma once

#include <math.h>

#include "cpu/simd/simd.h"

/* A tile's `keys` scores of one row to exp(score - largest so far), in room for whole vectors. What was summed up under
 * a smaller maximum, `sum` and the `elems` of `out`, is scaled down. */
static void bw_softmax_update(float *scores, int64_t keys, float *out, int64_t elems, float *largest_so_far,
                              float *sum_so_far) {
    int64_t padded = bw_round_up(keys, BW_SIMD_FLOATS);
    for (int64_t j = keys; j < padded; j++) scores[j] = -INFINITY;
    float before = *largest_so_far;
    bw_vf largest = bw_vf_set(before), sum = bw_vf_set(0.0f);
    for (int64_t j = 0; j < padded; j += BW_SIMD_FLOATS) largest = bw_vf_max(largest, bw_vf_load(scores + j));
    float now = bw_vf_largest(largest);
    const bw_vf reference = bw_vf_set(now == -INFINITY ? 0.0f : now); /* so far all weigh nothing */
    for (int64_t j = 0; j < padded; j += BW_SIMD_FLOATS) {
        bw_vf x = bw_vf_exp(bw_vf_load(scores + j) - reference);
        bw_vf_store(scores + j, x);
        sum = sum + x;
    }
    if (now > before) {
        bw_vf factor = bw_vf_exp(bw_vf_set(before - now));
        for (int64_t d = 0; d < elems; d += BW_SIMD_FLOATS) bw_vf_store(out + d, bw_vf_load(out + d) * factor);
        *sum_so_far *= factor[0];
        *largest_so_far = now;
    }
    *sum_so_far += bw_vf_sum(sum);
}

/* Scales of a tile's keys, `stride` apart, side by side. */
static inline void bw_gather_scales(const float *from, int64_t stride, int64_t keys, float *to) {
    for (int64_t j = 0; j < keys; j++) to[j] = from[j * stride];
}

/* Multiplies a row of a tile, in room for whole vectors. */
BW_INLINE void bw_scale_row(float *row, const float *scales, int64_t keys) {
    for (int64_t j = 0; j < keys; j += BW_SIMD_FLOATS) {
        bw_vf_store(row + j, bw_vf_load(row + j) * bw_vf_load(scales + j));
    }
}
