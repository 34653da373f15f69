/* What the variants of gemm know of a launch. */
#pragma once

#include "base/types/dropout.h"
#include "ops/families/gemm.h"

#include "cpu/device.h"
#include "cpu/simd/micro.h"

/* Rows of A that gemv takes, and running sums of it that fit the registers beside its operands. */
enum { GEMV_ROWS_MAX = 8, GEMV_TOTALS = BW_SIMD_FLOATS == 16 ? 24 : 8 };

/* What a linear layer does to a sum when its bias is added. */
typedef struct linear_end {
    uint64_t seed;
    uint32_t threshold;
    float factor; /* of elements that stay; 0: this is no linear layer */
} linear_end;

typedef struct product {
    const bw_launch *launch;
    int64_t m, n, k;
    const void *a, *b, *c; /* c NULL: beta is 0; of a linear layer the bias */
    void *d;
    int64_t tile_rows, tile_columns;
    linear_end end;
    int64_t row0; /* of B's first row, among those that have scales */
} product;

extern const bw_op bw_op_linear_relu_dropout;

BW_INLINE product product_of(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    const bool ends = launch->dims->op == &bw_op_linear_relu_dropout;
    product p = {.launch = launch,
                 .m = dims[BW_GEMM_M],
                 .n = dims[BW_GEMM_N],
                 .k = dims[BW_GEMM_K],
                 .a = launch->operand[BW_GEMM_A],
                 .b = launch->operand[BW_GEMM_B],
                 .c = ends || dims[BW_GEMM_BETA] ? launch->operand[BW_GEMM_C] : NULL,
                 .d = launch->operand[BW_GEMM_D]};
    if (ends) {
        const int64_t percent = dims[BW_LINEAR_DROPOUT_PERCENT];
        p.end = (linear_end){(uint64_t)dims[BW_LINEAR_MASK_SEED], bw_dropout_threshold(percent),
                             bw_dropout_growth(percent)};
    }
    return p;
}

static float load_scalar(bw_dtype dtype, const void *from, int64_t index) {
    switch (dtype) {
        case BW_FP32: return ((const float *)from)[index];
        case BW_FP16: return bw_fp16_to_float(((const uint16_t *)from)[index]);
        case BW_FP8_E4M3: return bw_fp8_e4m3_to_float(((const uint8_t *)from)[index]);
        case BW_E8M0: return bw_e8m0_to_float(((const uint8_t *)from)[index]);
        case BW_UINT4: return (float)(((const uint8_t *)from)[index / 2] >> index % 2 * 4 & 15);
        default: abort();
    }
}

/* Of row `row` of the matrix whose scales, in FP32 and one a row, are operand `scales`; 1 where there are none. */
BW_INLINE float row_scale_of(const product *p, int scales, int64_t row) {
    const float *from = p->launch->operand[scales];
    return from ? from[row] : 1.0f;
}
