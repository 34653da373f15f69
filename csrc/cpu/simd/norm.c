/* Norms. One variant: `rows`, tokens shared among the threads, each read twice: for its squares, and while it is still
 * in the cache for its result. */
#include "ops/families/norm.h"

#include <math.h>

#include "cpu/device.h"
#include "cpu/simd/simd.h"

BW_INLINE void norm_row(bw_dtype dtype, const bw_launch *launch, int64_t row) {
    const void *x = launch->operand[BW_NORM_X], *weight = launch->operand[BW_NORM_WEIGHT];
    const int64_t hidden = launch->dims->value[BW_NORM_HIDDEN], first = row * hidden;
    bw_vf squares = bw_vf_set(0.0f);
    for (int64_t i = 0; i < hidden; i += BW_SIMD_FLOATS) {
        bw_vf some = bw_vf_load_as_upto(dtype, x, first + i, hidden - i);
        squares = bw_vf_fma(some, some, squares);
    }
    const bw_vf factor = bw_vf_set(1.0f / sqrtf(bw_vf_sum(squares) / (float)hidden + BW_NORM_EPSILON));
    for (int64_t i = 0; i < hidden; i += BW_SIMD_FLOATS) {
        bw_vf some = bw_vf_load_as_upto(dtype, x, first + i, hidden - i);
        some = some * factor * bw_vf_load_as_upto(dtype, weight, i, hidden - i);
        bw_vf_store_as_upto(dtype, launch->operand[BW_NORM_OUT], first + i, some, hidden - i);
    }
}

static void norm_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    int64_t first, last;
    bw_pool_share(launch->dims->value[BW_NORM_TOKENS], rank, ranks, &first, &last);
    for (int64_t row = first; row < last; row++) BW_DTYPE_SWITCH(launch->precision->result, norm_row, launch, row);
}

static bw_status norm_launch(const bw_launch *launch) {
    bw_pool_run(launch->device->pool, norm_share, (void *)(uintptr_t)launch);
    return BW_OK;
}

static const bw_variant rows[] = {
    BW_CPU_ROW("rows", norm, .text = "a token at a time, tokens shared among the threads",
               .prediction = {.changes = "the only variant: a token at a time, tokens shared among the threads"}),
};

const bw_variant_table BW_CPU_TABLE(rmsnorm) = {rows, sizeof rows / sizeof rows[0], NULL};
