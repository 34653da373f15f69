/* silu_mul_quantize: see ops/families/quantize.h. Bytes: gate, up, out and its scales once each; FLOPs: 5 T d, by
 * convention, those of silu(gate) * up. */
#include "ops/families/quantize.h"

#include <math.h>

#include "ops/operand.h"

static const bw_param params[] = {
    BW_PARAM("tokens", "tokens", "tokens", 1, INT32_MAX, .fallback = 512, .small = 5),
    BW_PARAM("hidden", "elements", "elements of a token", 1, 1 << 20, .fallback = 14336, .small = 37),
};

static int quantize_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t tokens = dims->value[BW_QUANTIZE_TOKENS], hidden = dims->value[BW_QUANTIZE_HIDDEN];
    bw_operand *values = &out[BW_QUANTIZE_OUT];
    out[BW_QUANTIZE_GATE] = bw_operand_make("gate", BW_IN, precision->result, BW_SHAPE(tokens, hidden));
    out[BW_QUANTIZE_UP] = bw_operand_make("up", BW_IN, precision->result, BW_SHAPE(tokens, hidden));
    *values = bw_operand_make("out", BW_OUT, precision->activation, BW_SHAPE(tokens, hidden));
    out[BW_QUANTIZE_OUT_SCALE] =
        bw_operand_scales("out_scale", values, hidden, precision->activation_scales, BW_SHAPE(tokens));
    return BW_QUANTIZE_OPERANDS;
}

static bw_checked_int quantize_flops(const bw_dims *dims) {
    return bw_mul3(5, dims->value[BW_QUANTIZE_TOKENS], dims->value[BW_QUANTIZE_HIDDEN]);
}

/* A token's elements, then its scale. */
static bw_rows quantize_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    return (bw_rows){
        .count = 2 * dims->value[BW_QUANTIZE_TOKENS], .elems = dims->value[BW_QUANTIZE_HIDDEN], .line = 2, .parts = 2};
}

static bw_status quantize_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                    bw_reference_row *out) {
    enum { PART = 256 };
    const int64_t hidden = dims->value[BW_QUANTIZE_HIDDEN], token = row / 2;
    const bw_input_key gate = bw_input_key_make(seed, BW_QUANTIZE_GATE), up = bw_input_key_make(seed, BW_QUANTIZE_UP);
    double largest = 0.0, squares = 0.0, part[PART];
    bw_input_doubles(precision->result, gate, token * hidden, hidden, out->values);
    for (int64_t i = 0; i < hidden; i += PART) {
        const int64_t some = bw_min64(PART, hidden - i);
        bw_input_doubles(precision->result, up, token * hidden + i, some, part);
        for (int64_t j = 0; j < some; j++) {
            double *y = &out->values[i + j];
            *y = *y / (1.0 + exp(-*y)) * part[j];
            largest = fmax(largest, fabs(*y));
            squares += *y * *y;
        }
    }
    const double scale = largest / (double)bw_dtype_largest(precision->activation);
    if (row % 2) {
        *out->values = scale;
        *out = (bw_reference_row){BW_QUANTIZE_OUT_SCALE, token, 1, scale, 0.0, out->values};
        return BW_OK;
    }
    for (int64_t i = 0; i < hidden && scale > 0.0; i++) out->values[i] /= scale;
    const double typical = scale > 0.0 ? sqrt(squares / (double)hidden) / scale : 1.0;
    *out = (bw_reference_row){BW_QUANTIZE_OUT, token * hidden, hidden, typical, 0.0, out->values};
    return BW_OK;
}

/* Of y, of the scale and of their quotient; a y that was kept as a result, and so the largest one, too, was rounded to
 * that. */
static bw_tolerance quantize_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)dims;
    const double kept = rounds_once ? 0.0 : 2.0 * bw_dtype_roundoff(precision->result);
    return (bw_tolerance){24.0 * bw_dtype_roundoff(BW_FP32) + kept, 0.0};
}

const bw_op bw_op_silu_mul_quantize = {
    .name = "silu_mul_quantize",
    .family = "quantize",
    .text = "multiply by a gate's SiLU, and make E4M3 numbers with a scale for each token",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .precisions = BW_MASK(FP8_E4M3),
    .formula = {"2*tokens*hidden*e_result", "tokens*hidden*e_activation + activation_scales(tokens, hidden)",
                "5*tokens*hidden"},
    .flops = quantize_flops,
    .operands = quantize_operands,
    .rows = quantize_rows,
    .reference = quantize_reference,
    .tolerance = quantize_tolerance,
};

/* Of y as a result. */
static bw_checked_int result_bytes(const bw_dims *dims, const bw_precision *precision) {
    return bw_mul3(dims->value[BW_QUANTIZE_TOKENS], dims->value[BW_QUANTIZE_HIDDEN],
                   bw_dtype_get(precision->result)->block_bytes);
}

int64_t bw_silu_unfused_scratch(const bw_dims *dims, const bw_precision *precision,
                                const struct bw_device_facts *facts) {
    (void)facts;
    return result_bytes(dims, precision).value;
}

bw_status bw_silu_unfused_cost(const bw_dims *dims, const bw_precision *precision, const struct bw_device_facts *facts,
                               bw_cost *cost) {
    (void)facts;
    return bw_cost_add_intermediates(result_bytes(dims, precision), cost);
}
