/* rmsnorm: see ops/families/norm.h. Bytes: x, weights and out once each; FLOPs: 5 T d, by convention. */
#include "ops/families/norm.h"

#include <math.h>

#include "ops/operand.h"

static const bw_param params[] = {
    BW_PARAM("tokens", "tokens", "tokens", 1, INT32_MAX, .fallback = 1, .small = 5),
    BW_PARAM("hidden", "elements", "elements of a token", 1, 1 << 20, .fallback = 4096, .small = 37),
};

static int norm_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    int64_t tokens = dims->value[BW_NORM_TOKENS], hidden = dims->value[BW_NORM_HIDDEN];
    out[BW_NORM_X] = bw_operand_make("x", BW_IN, precision->result, BW_SHAPE(tokens, hidden));
    out[BW_NORM_WEIGHT] = bw_operand_make("weight", BW_IN, precision->result, BW_SHAPE(hidden));
    out[BW_NORM_WEIGHT].recipe = BW_RECIPE_POSITIVE;
    out[BW_NORM_WEIGHT].value = 2.0;
    out[BW_NORM_OUT] = bw_operand_make("out", BW_OUT, precision->result, BW_SHAPE(tokens, hidden));
    return BW_NORM_OPERANDS;
}

static bw_checked_int norm_flops(const bw_dims *dims) {
    return bw_mul3(5, dims->value[BW_NORM_TOKENS], dims->value[BW_NORM_HIDDEN]);
}

/* A token each. */
static bw_rows norm_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    return (bw_rows){.count = dims->value[BW_NORM_TOKENS], .elems = dims->value[BW_NORM_HIDDEN], .line = 1};
}

static bw_status norm_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                bw_reference_row *out) {
    enum { PART = 256 };
    bw_operand operands[BW_MAX_OPERANDS];
    const int count = norm_operands(dims, precision, operands);
    const int64_t hidden = dims->value[BW_NORM_HIDDEN];
    double part[PART], squares = 0.0;
    BW_TRY(bw_operand_measure("rmsnorm", operands, count));
    bw_source x = bw_source_of(operands, count, BW_NORM_X, seed);
    bw_source weight = bw_source_of(operands, count, BW_NORM_WEIGHT, seed);
    out->operand = BW_NORM_OUT;
    out->offset = row * hidden;
    out->count = hidden;
    out->scale = 1.0 / sqrt(bw_source_inverse_square(&weight)); /* the norm makes the mean square of x one */
    bw_source_read(&x, out->offset, hidden, out->values);
    for (int64_t i = 0; i < hidden; i++) squares += out->values[i] * out->values[i];
    const double factor = 1.0 / sqrt(squares / (double)hidden + (double)BW_NORM_EPSILON);
    for (int64_t i = 0; i < hidden; i += PART) {
        const int64_t some = bw_min64(PART, hidden - i);
        bw_source_read(&weight, i, some, part);
        for (int64_t j = 0; j < some; j++) out->values[i + j] *= factor * part[j];
    }
    return BW_OK;
}

/* A sum of squares errs like a random walk, and goes into every element; then a root, a division and two products. */
static bw_tolerance norm_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)precision, (void)rounds_once;
    return (bw_tolerance){bw_dtype_roundoff(BW_FP32) * (8.0 + 2.0 * sqrt((double)dims->value[BW_NORM_HIDDEN])), 0.0};
}

const bw_op bw_op_rmsnorm = {
    .name = "rmsnorm",
    .family = "norm",
    .text = "each token divided by the root of its mean square, times weights",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .precisions = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16),
    .formula = {"(tokens + 1)*hidden*e_result", "tokens*hidden*e_result", "5*tokens*hidden"},
    .flops = norm_flops,
    .operands = norm_operands,
    .rows = norm_rows,
    .reference = norm_reference,
    .tolerance = norm_tolerance,
};
