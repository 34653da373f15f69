/* Layouts: moves that swap two neighboring axes.
 *   transpose  in(B, R, C) -> out(B, C, R)
 *   permute    in(B, S, H, D) -> out(B, H, S, D): tokens of all heads become heads of all tokens */
#pragma once

#include "ops/op.h"

#define BW_LAYOUT_OPERATIONS(X)    \
    X(transpose, KERNELS, KERNELS) \
    X(permute, KERNELS, KERNELS)

enum { BW_TRANSPOSE_BATCH, BW_TRANSPOSE_ROWS, BW_TRANSPOSE_COLUMNS };
enum { BW_PERMUTE_BATCH, BW_PERMUTE_SEQ_LEN, BW_PERMUTE_NUM_HEADS, BW_PERMUTE_HEAD_DIM };
enum { BW_LAYOUT_IN, BW_LAYOUT_OUT, BW_LAYOUT_OPERANDS };

/* What both are: in(batch, rows, columns, run) -> out(batch, columns, rows, run). */
typedef struct bw_swap {
    int64_t batch, rows, columns, run;
} bw_swap;

extern const bw_op bw_op_permute;

static inline bw_swap bw_swap_of(const bw_dims *dims) {
    const int64_t *v = dims->value;
    const int64_t run = dims->op == &bw_op_permute ? v[BW_PERMUTE_HEAD_DIM] : 1;
    return (bw_swap){v[BW_TRANSPOSE_BATCH], v[BW_TRANSPOSE_ROWS], v[BW_TRANSPOSE_COLUMNS], run};
}
