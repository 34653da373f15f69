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
    const int64_t call = first / BW_DROPOUT_CALL, skipped = first % BW_DROPOUT_CALL;
    uint16_t numbers[BW_SIMD_FLOATS + 2 * BW_DROPOUT_CALL] = {0};
    for (int64_t i = 0; i < skipped + bw_min64(count, BW_SIMD_FLOATS); i += BW_DROPOUT_CALL) {
        const bw_dropout_numbers drawn = bw_dropout_draw(end->seed, (uint64_t)(call + i / BW_DROPOUT_CALL));
        memcpy(numbers + i, drawn.word, sizeof drawn.word);
    }
    const bw_vi number = __builtin_convertvector(bw_vh_load(numbers + skipped), bw_vi);
    return x * (bw_vf)((number >= (int32_t)end->threshold) & (bw_vi)bw_vf_set(end->factor));
}

/* D's elements from `at` on, which are in column `column`. */
BW_INLINE bw_vf finish(bw_dtype dtype, const product *p, bw_vf x, int64_t at, int64_t column, int64_t count) {
    if (!p->c) return x;
    if (p->end.factor == 0.0f) return add_c(dtype, p, x, at, count);
    return drop(&p->end, relu(add_c(dtype, p, x, column, count)), at, count);
}
