/* What becomes of a product's sums: + C, or as a linear layer ends. */
#pragma once

#include "cpu/simd/product.h"

BW_INLINE bw_vf add_c(bw_dtype dtype, const product *p, bw_vf x, int64_t at, int64_t count) {
    return x + bw_vf_load_as_upto(dtype, p->c, at, count);
}

/* What is no number stays so. */
BW_INLINE bw_vf relu(bw_vf x) {
    return (bw_vf)((bw_vi)x & ~(x < bw_vf_set(0.0f)));
}

/* Up to a vector's elements of D from `first` on. */
static bw_vf drop(const linear_end *end, bw_vf x, int64_t first, int64_t count) {
    bw_dropout_numbers numbers = {{0}};
    bw_vf factors = bw_vf_set(0.0f);
    for (int i = 0; i < bw_min64(count, BW_SIMD_FLOATS); i++) {
        const int which = (int)((first + i) % BW_DROPOUT_CALL);
        if (i == 0 || which == 0) numbers = bw_dropout_draw(end->seed, (uint64_t)(first + i) / BW_DROPOUT_CALL);
        if (bw_dropout_stays(&numbers, which, end->threshold)) factors[i] = end->factor;
    }
    return x * factors;
}

/* D's elements from `at` on, which are in column `column`. */
BW_INLINE bw_vf finish(bw_dtype dtype, const product *p, bw_vf x, int64_t at, int64_t column, int64_t count) {
    if (!p->c) return x;
    if (p->end.factor == 0.0f) return add_c(dtype, p, x, at, count);
    return drop(&p->end, relu(add_c(dtype, p, x, column, count)), at, count);
}
