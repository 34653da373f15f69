/* Element-wise operations: see ops/families/elementwise.h. Bytes: each array once. FLOPs of an element, by convention:
 * a function (e^x, erf) and a comparison count as one, so that relu has 1, gelu 5, residual_add 1, silu_mul 5 and the
 * chain 4 (bias, relu, the mask's factor, residual). */
#include "ops/families/elementwise.h"

#include <math.h>

#include "ops/operand.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };
/* Elements that one reference row compares, and rows of a stretch of which one is looked at before a second is. */
enum { ROW_ELEMS = 64, ROW_PARTS = 16 };

/* Where a result is rounded more than once, or worked out by an approximation. */
static bw_tolerance tolerance_of(double roundoffs) {
    return (bw_tolerance){roundoffs * bw_dtype_roundoff(BW_FP32), 0.0};
}

static void row_range(int64_t elements, int64_t row, int operand, bw_reference_row *out) {
    out->operand = operand;
    out->offset = row * ROW_ELEMS;
    out->count = bw_min64(ROW_ELEMS, elements - out->offset);
}

static bw_rows rows_of(int64_t elements) {
    return (bw_rows){.count = bw_ceil_div(elements, ROW_ELEMS), .elems = ROW_ELEMS, .line = 1, .parts = ROW_PARTS};
}

/* ---- one function of one or two arrays: a row of ELEMENTWISE each ---- */

static const bw_param params[] = {
    BW_PARAM("elements", "elements", "elements of each array", 1, (int64_t)1 << 42, .fallback = 1 << 28, .small = 5000),
};

/* Name, inputs (the second NULL where there is one), how many arrays are read, FLOPs of an element, the root mean
 * square of results, their error in units of FP32's roundoff, what an element becomes, a text. */
#define ELEMENTWISE(X)                                                                                \
    X(relu, "x", NULL, 1, 1, 0.41, 0.0, a < 0.0 ? 0.0 : a, "each element, or 0 where it is negative") \
    X(gelu, "x", NULL, 1, 5, 0.34, 12.0, 0.5 * a * erfc(-a * sqrt(0.5)),                              \
      "each element times the share of a normal distribution below it")                               \
    X(residual_add, "x", "residual", 2, 1, 0.82, 2.0, a + b, "the sum of two arrays")                 \
    X(silu_mul, "gate", "up", 2, 5, 0.18, 12.0, a / (1.0 + exp(-a)) * b, "up times gate / (1 + e^-gate)")

typedef struct element_row {
    const bw_op *op;
    const char *inputs[2];
    int flops;
    double scale, roundoffs;
    double (*value)(double a, double b);
} element_row;

#define ROW(name, first, second, arrays, flops, scale, roundoffs, value, text) \
    extern const bw_op bw_op_##name;                                           \
    static double name##_value(double a, double b) {                           \
        (void)b;                                                               \
        return value;                                                          \
    }
ELEMENTWISE(ROW)
#undef ROW

static const element_row element_rows[] = {
#define ROW(name, first, second, arrays, flops, scale, roundoffs, value, text) \
    {&bw_op_##name, {first, second}, flops, scale, roundoffs, name##_value},
    ELEMENTWISE(ROW)
#undef ROW
};

static const element_row *row_of(const bw_dims *dims) {
    const element_row *row = element_rows;
    while (row->op != dims->op) row++;
    return row;
}

static int element_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const element_row *row = row_of(dims);
    const int64_t elements = dims->value[BW_ELEMENTWISE_ELEMENTS];
    const bw_dtype dtype = precision->activation;
    for (int i = 0; i < 2; i++) {
        const char *name = row->inputs[i];
        out[i] = bw_operand_make(name ? name : "", BW_IN, name ? dtype : BW_NONE, BW_SHAPE(elements));
    }
    out[BW_ELEMENTWISE_OUT] = bw_operand_make("out", BW_OUT, dtype, BW_SHAPE(elements));
    return BW_ELEMENTWISE_OPERANDS;
}

static bw_checked_int element_flops(const bw_dims *dims) {
    return bw_mul(bw_num(row_of(dims)->flops), bw_num(dims->value[BW_ELEMENTWISE_ELEMENTS]));
}

static bw_rows element_reference_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    return rows_of(dims->value[BW_ELEMENTWISE_ELEMENTS]);
}

static bw_status element_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                   bw_reference_row *out) {
    const element_row *of = row_of(dims);
    double input[2][ROW_ELEMS] = {{0.0}};
    row_range(dims->value[BW_ELEMENTWISE_ELEMENTS], row, BW_ELEMENTWISE_OUT, out);
    out->scale = of->scale;
    for (int i = 0; i < 2 && of->inputs[i]; i++) {
        bw_input_doubles(precision->activation, bw_input_key_make(seed, i), out->offset, out->count, input[i]);
    }
    for (int64_t i = 0; i < out->count; i++) out->values[i] = of->value(input[0][i], input[1][i]);
    return BW_OK;
}

static bw_tolerance element_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)precision, (void)rounds_once;
    return tolerance_of(row_of(dims)->roundoffs);
}

#define TIMES_1
#define TIMES_2 "2*"
#define TIMES_5 "5*"
#define ROW(name_, first, second, arrays, flops_, scale, roundoffs, value, text_)                                \
    const bw_op bw_op_##name_ = {                                                                                \
        .name = #name_,                                                                                          \
        .family = "elementwise",                                                                                 \
        .text = text_,                                                                                           \
        .params = params,                                                                                        \
        .param_count = 1,                                                                                        \
        .precisions = PRECISIONS,                                                                                \
        .formula = {TIMES_##arrays "elements*e_activation", "elements*e_activation", TIMES_##flops_ "elements"}, \
        .flops = element_flops,                                                                                  \
        .operands = element_operands,                                                                            \
        .rows = element_reference_rows,                                                                          \
        .reference = element_reference,                                                                          \
        .tolerance = element_tolerance,                                                                          \
    };
ELEMENTWISE(ROW)
#undef ROW

/* ---- bias_relu_dropout_residual ---- */

static const bw_param chain_params[] = {
    BW_PARAM("tokens", "tokens", "tokens", 1, INT32_MAX, .fallback = 1, .small = 5),
    BW_PARAM("hidden", "elements", "elements of a token", 1, INT32_MAX, .fallback = 4096, .small = 37),
    BW_PARAM("dropout_percent", "", "percentage of elements set to 0", 0, 99, .fallback = 10, .small = 30),
    BW_PARAM("mask_seed", "", "seed of dropout's random numbers", 0, INT64_MAX, .fallback = 0, .small = 7),
};

static int chain_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t tokens = dims->value[BW_CHAIN_TOKENS], hidden = dims->value[BW_CHAIN_HIDDEN];
    const bw_dtype dtype = precision->activation;
    out[BW_CHAIN_X] = bw_operand_make("x", BW_IN, dtype, BW_SHAPE(tokens, hidden));
    out[BW_CHAIN_BIAS] = bw_operand_make("bias", BW_IN, dtype, BW_SHAPE(hidden));
    out[BW_CHAIN_RESIDUAL] = bw_operand_make("residual", BW_IN, dtype, BW_SHAPE(tokens, hidden));
    out[BW_CHAIN_OUT] = bw_operand_make("out", BW_OUT, dtype, BW_SHAPE(tokens, hidden));
    return BW_CHAIN_OPERANDS;
}

static bw_checked_int chain_flops(const bw_dims *dims) {
    return bw_mul3(4, dims->value[BW_CHAIN_TOKENS], dims->value[BW_CHAIN_HIDDEN]);
}

static bw_rows chain_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    return rows_of(dims->value[BW_CHAIN_TOKENS] * dims->value[BW_CHAIN_HIDDEN]);
}

static double chain_growth(const bw_dims *dims) {
    return (double)bw_dropout_growth(dims->value[BW_CHAIN_DROPOUT_PERCENT]);
}

/* The mean square of relu(x + bias) is 1/3, of the residual, too. */
static double chain_scale(const bw_dims *dims) {
    return sqrt((1.0 + chain_growth(dims)) / 3.0);
}

static bw_status chain_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                 bw_reference_row *out) {
    const int64_t hidden = dims->value[BW_CHAIN_HIDDEN];
    const uint64_t mask_seed = (uint64_t)dims->value[BW_CHAIN_MASK_SEED];
    const uint32_t threshold = bw_dropout_threshold(dims->value[BW_CHAIN_DROPOUT_PERCENT]);
    const bw_input_key bias_key = bw_input_key_make(seed, BW_CHAIN_BIAS);
    double residual[ROW_ELEMS];
    row_range(dims->value[BW_CHAIN_TOKENS] * hidden, row, BW_CHAIN_OUT, out);
    out->scale = chain_scale(dims);
    bw_input_doubles(precision->activation, bw_input_key_make(seed, BW_CHAIN_X), out->offset, out->count, out->values);
    bw_input_doubles(precision->activation, bw_input_key_make(seed, BW_CHAIN_RESIDUAL), out->offset, out->count,
                     residual);
    for (int64_t i = 0; i < out->count; i++) {
        const int64_t element = out->offset + i;
        double bias;
        bw_input_doubles(precision->activation, bias_key, element % hidden, 1, &bias);
        const bool stays = bw_dropout_keeps(mask_seed, (uint64_t)element, threshold);
        const double sum = stays ? (out->values[i] + bias) * chain_growth(dims) : 0.0;
        out->values[i] = (sum < 0.0 ? 0.0 : sum) + residual[i];
    }
    return BW_OK;
}

/* Three roundings to FP32; and two to the precision where intermediate results are stored: of x + bias, below 2, and of
 * as much grown. */
static bw_tolerance chain_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    const double stored = rounds_once ? 0.0 : 2.0 * bw_dtype_roundoff(precision->activation);
    const double largest = 1.0 + 1.0 / chain_scale(dims); /* grown values are at most |r| + 1 */
    return (bw_tolerance){largest * (3.0 * bw_dtype_roundoff(BW_FP32) + stored), 0.0};
}

const bw_op bw_op_bias_relu_dropout_residual = {
    .name = "bias_relu_dropout_residual",
    .family = "elementwise",
    .text = "dropout of relu(x + bias), plus residual; no mask is stored",
    .params = chain_params,
    .param_count = sizeof chain_params / sizeof chain_params[0],
    .precisions = PRECISIONS,
    .formula = {"(2*tokens + 1)*hidden*e_activation", "tokens*hidden*e_activation", "4*tokens*hidden"},
    .flops = chain_flops,
    .operands = chain_operands,
    .rows = chain_rows,
    .reference = chain_reference,
    .tolerance = chain_tolerance,
};

int64_t bw_chain_unfused_scratch(const bw_dims *dims, const bw_precision *precision,
                                 const struct bw_device_facts *facts) {
    (void)facts;
    return 2 * bw_chain_place_bytes(dims, precision);
}

bw_status bw_chain_unfused_cost(const bw_dims *dims, const bw_precision *precision, const struct bw_device_facts *facts,
                                bw_cost *cost) {
    (void)facts;
    return bw_cost_add_intermediates(bw_mul(bw_num(3), bw_chain_bytes(dims, precision)), cost);
}
