/* rmsnorm, layernorm, residual_rmsnorm, softmax, logsumexp: see ops/families/rows.h. Bytes: each operand once. FLOPs by
 * convention, for each element: 5 of a softmax and of rmsnorm, 7 of layernorm, 6 of residual_rmsnorm, and 4 of
 * logsumexp, a softmax without its division. */
#include "ops/families/rows.h"

#include <math.h>

#include "ops/operand.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16), COLUMNS_MOST = 1 << 20 };

static const bw_param token_params[] = {
    BW_PARAM("tokens", "tokens", "tokens", 1, INT32_MAX, .fallback = 1, .small = 5),
    BW_PARAM("hidden", "elements", "elements of a token", 1, COLUMNS_MOST, .fallback = 4096, .small = 37),
};

static const bw_param row_params[] = {
    BW_PARAM("rows", "rows", "rows of the matrix", 1, INT32_MAX, .fallback = 4096, .small = 5),
    BW_PARAM("columns", "elements", "elements of a row", 1, COLUMNS_MOST, .fallback = 4096, .small = 37),
};

/* ---- operands ---- */

/* What an operation has beside x and out. */
typedef enum beside { NOTHING, RESIDUAL = 1, WEIGHT = 2, BIAS = 4, ONE_RESULT = 8 } beside;

static int operands_of(beside has, const bw_dims *dims, const bw_precision *precision,
                       bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t rows = dims->value[BW_ROWS_COUNT], columns = dims->value[BW_ROWS_ELEMS];
    const bw_dtype type = precision->result, none = BW_NONE;
    out[BW_ROWS_X] = bw_operand_make("x", BW_IN, type, BW_SHAPE(rows, columns));
    out[BW_ROWS_RESIDUAL] = bw_operand_make("residual", BW_IN, has & RESIDUAL ? type : none, BW_SHAPE(rows, columns));
    out[BW_ROWS_WEIGHT] = bw_operand_make("weight", BW_IN, has & WEIGHT ? type : none, BW_SHAPE(columns));
    out[BW_ROWS_WEIGHT].recipe = BW_RECIPE_POSITIVE;
    out[BW_ROWS_WEIGHT].value = 2.0;
    out[BW_ROWS_BIAS] = bw_operand_make("bias", BW_IN, has & BIAS ? type : none, BW_SHAPE(columns));
    out[BW_ROWS_SUM] = bw_operand_make("sum", BW_OUT, has & RESIDUAL ? type : none, BW_SHAPE(rows, columns));
    out[BW_ROWS_OUT] = has & ONE_RESULT ? bw_operand_make("out", BW_OUT, type, BW_SHAPE(rows))
                                        : bw_operand_make("out", BW_OUT, type, BW_SHAPE(rows, columns));
    return BW_ROWS_OPERANDS;
}

/* ---- reference rows ---- */

enum { PART = 256 };

typedef struct row {
    bw_operand operands[BW_MAX_OPERANDS];
    int count;
    uint64_t seed;
    int64_t first, columns;
} row;

static bw_status row_of(beside has, const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t index,
                        row *out) {
    out->count = operands_of(has, dims, precision, out->operands);
    out->seed = seed;
    out->columns = dims->value[BW_ROWS_ELEMS];
    out->first = index * out->columns;
    return bw_operand_measure("a row", out->operands, out->count);
}

static void read_elements(const row *of, int operand, int64_t first, int64_t count, double *out) {
    const bw_source source = bw_source_of(of->operands, of->count, operand, of->seed);
    bw_source_read(&source, first, count, out);
}

/* All of the row that `out` is of. */
static void begin_row(const row *of, bw_reference_row *out) {
    out->operand = BW_ROWS_OUT;
    out->offset = of->first;
    out->count = of->columns;
    read_elements(of, BW_ROWS_X, of->first, of->columns, out->values);
}

/* out = values * factor * weight + bias; the norm makes the mean square of values one. */
static void end_norm(const row *of, double factor, bw_reference_row *out) {
    const bw_source weight = bw_source_of(of->operands, of->count, BW_ROWS_WEIGHT, of->seed);
    const bool biased = of->operands[BW_ROWS_BIAS].present;
    double weights[PART], biases[PART] = {0.0};
    out->scale = 1.0 / sqrt(bw_source_inverse_square(&weight));
    for (int64_t i = 0; i < of->columns; i += PART) {
        const int64_t some = bw_min64(PART, of->columns - i);
        bw_source_read(&weight, i, some, weights);
        if (biased) read_elements(of, BW_ROWS_BIAS, i, some, biases);
        for (int64_t j = 0; j < some; j++) out->values[i + j] = out->values[i + j] * factor * weights[j] + biases[j];
    }
}

static double norm_factor(const row *of, const bw_reference_row *out) {
    const double squares = bw_dot(out->values, out->values, of->columns);
    return 1.0 / sqrt(squares / (double)of->columns + (double)BW_ROWS_EPSILON);
}

static bw_status rmsnorm_reference(const row *of, bw_reference_row *out) {
    begin_row(of, out);
    end_norm(of, norm_factor(of, out), out);
    return BW_OK;
}

static bw_status layernorm_reference(const row *of, bw_reference_row *out) {
    double sum = 0.0;
    begin_row(of, out);
    for (int64_t i = 0; i < of->columns; i++) sum += out->values[i];
    for (int64_t i = 0; i < of->columns; i++) out->values[i] -= sum / (double)of->columns;
    end_norm(of, norm_factor(of, out), out);
    return BW_OK;
}

/* The sum as it is stored: float, then the type, as any kernel adds. */
static void add_residual(const row *of, bw_reference_row *out) {
    const bw_dtype type = of->operands[BW_ROWS_SUM].dtype;
    double residual[PART];
    float sums[PART];
    char stored[PART * sizeof(float)];
    for (int64_t i = 0; i < of->columns; i += PART) {
        const int64_t some = bw_min64(PART, of->columns - i);
        read_elements(of, BW_ROWS_RESIDUAL, of->first + i, some, residual);
        for (int64_t j = 0; j < some; j++) sums[j] = (float)out->values[i + j] + (float)residual[j];
        bw_dtype_get(type)->encode_blocks(sums, some, stored);
        bw_dtype_get(type)->decode_blocks(stored, some, out->values + i);
    }
}

static bw_status softmax_reference(const row *of, bw_reference_row *out) {
    double largest = -INFINITY, sum = 0.0;
    begin_row(of, out);
    for (int64_t i = 0; i < of->columns; i++) largest = fmax(largest, out->values[i]);
    for (int64_t i = 0; i < of->columns; i++) sum += out->values[i] = exp(out->values[i] - largest);
    for (int64_t i = 0; i < of->columns; i++) out->values[i] /= sum;
    out->scale = 1.0 / (double)of->columns;
    return BW_OK;
}

static bw_status logsumexp_reference(const row *of, bw_reference_row *out) {
    double largest = -INFINITY, sum = 0.0;
    begin_row(of, out);
    for (int64_t i = 0; i < of->columns; i++) largest = fmax(largest, out->values[i]);
    for (int64_t i = 0; i < of->columns; i++) sum += exp(out->values[i] - largest);
    out->offset = of->first / of->columns;
    out->count = 1;
    out->scale = 1.0;
    out->values[0] = largest + log(sum);
    return BW_OK;
}

/* A token's sum and its result are rows of their own, one after the other. */
static bw_status residual_rmsnorm_reference(const row *of, bool of_sum, bw_reference_row *out) {
    begin_row(of, out);
    add_residual(of, out);
    if (!of_sum) {
        end_norm(of, norm_factor(of, out), out);
        return BW_OK;
    }
    out->operand = BW_ROWS_SUM;
    out->scale = 1.0;
    return BW_OK;
}

/* ---- tolerances ---- */

/* A sum of so many errs like a random walk, and goes into every element; `more` errors of half a unit beside it. */
static double walk_error(const bw_dims *dims, double more) {
    return bw_dtype_roundoff(BW_FP32) * (more + 2.0 * sqrt((double)dims->value[BW_ROWS_ELEMS]));
}

/* A root, a division and two products. */
static bw_tolerance rmsnorm_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)precision, (void)rounds_once;
    return (bw_tolerance){walk_error(dims, 8.0), 0.0};
}

/* The mean's error is relative to the mean square of x, and divided by the deviation: where elements are few, they may
 * all be so close that nothing but epsilon divides. */
static bw_tolerance layernorm_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)precision, (void)rounds_once;
    const double largest = dims->value[BW_ROWS_ELEMS] < 16 ? 1.0 / sqrt((double)BW_ROWS_EPSILON) : 4.0;
    return (bw_tolerance){walk_error(dims, 8.0) * largest, 0.0};
}

/* An exponential errs by two units in the last place, and its exponent by rounding. */
static bw_tolerance softmax_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)precision, (void)rounds_once;
    return (bw_tolerance){walk_error(dims, 16.0), 0.0};
}

/* Exponentials that are stored in between are rounded, and their sum by no larger a part; a logarithm makes that its
 * absolute error. */
static bw_tolerance logsumexp_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    const double size = fmax(1.0, log((double)dims->value[BW_ROWS_ELEMS])); /* of results, at least */
    const double stored = rounds_once ? 0.0 : bw_dtype_roundoff(precision->result) / size;
    return (bw_tolerance){walk_error(dims, 16.0) + stored, 0.0};
}

/* ---- descriptors ---- */

static bw_rows all_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    return (bw_rows){.count = dims->value[BW_ROWS_COUNT], .elems = dims->value[BW_ROWS_ELEMS], .line = 1};
}

static bw_rows row_pairs(const bw_dims *dims, const bw_precision *precision) {
    bw_rows rows = all_rows(dims, precision);
    rows.count *= 2;
    rows.parts = 2;
    return rows;
}

/* What each operation does by itself: its operands, its FLOPs, and its rows of a matrix of them. */
#define ROWS(name_, params_, has, flops_each, rows_, of_row, ...)                                                      \
    static int name_##_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) { \
        return operands_of(has, dims, precision, out);                                                                 \
    }                                                                                                                  \
    static bw_checked_int name_##_flops(const bw_dims *dims) {                                                         \
        return bw_mul3(flops_each, dims->value[BW_ROWS_COUNT], dims->value[BW_ROWS_ELEMS]);                            \
    }                                                                                                                  \
    static bw_status name_##_row(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t index,     \
                                 bw_reference_row *out) {                                                              \
        row of;                                                                                                        \
        BW_TRY(row_of(has, dims, precision, seed, (has)&RESIDUAL ? index / 2 : index, &of));                           \
        return of_row;                                                                                                 \
    }                                                                                                                  \
    const bw_op bw_op_##name_ = {.name = #name_,                                                                       \
                                 .family = "rows",                                                                     \
                                 .params = params_,                                                                    \
                                 .param_count = sizeof params_ / sizeof params_[0],                                    \
                                 .precisions = PRECISIONS,                                                             \
                                 .flops = name_##_flops,                                                               \
                                 .operands = name_##_operands,                                                         \
                                 .rows = rows_,                                                                        \
                                 .reference = name_##_row,                                                             \
                                 __VA_ARGS__};

ROWS(rmsnorm, token_params, WEIGHT, 5, all_rows, rmsnorm_reference(&of, out), .tolerance = rmsnorm_tolerance,
     .text = "each token divided by the root of its mean square, times weights",
     .formula = {"(tokens + 1)*hidden*e_result", "tokens*hidden*e_result", "5*tokens*hidden"})

ROWS(layernorm, token_params, WEIGHT | BIAS, 7, all_rows, layernorm_reference(&of, out),
     .tolerance = layernorm_tolerance,
     .text = "each token less its mean, divided by its standard deviation, times weights, plus biases",
     .formula = {"(tokens + 2)*hidden*e_result", "tokens*hidden*e_result", "7*tokens*hidden"})

ROWS(residual_rmsnorm, token_params, RESIDUAL | WEIGHT, 6, row_pairs,
     residual_rmsnorm_reference(&of, index % 2 == 0, out), .tolerance = rmsnorm_tolerance,
     .text = "the sum of each token and its residual, and the sum's rmsnorm",
     .formula = {"(2*tokens + 1)*hidden*e_result", "2*tokens*hidden*e_result", "6*tokens*hidden"})

ROWS(softmax, row_params, NOTHING, 5, all_rows, softmax_reference(&of, out), .tolerance = softmax_tolerance,
     .text = "each row's exponentials divided by their sum",
     .formula = {"rows*columns*e_result", "rows*columns*e_result", "5*rows*columns"})

ROWS(logsumexp, row_params, ONE_RESULT, 4, all_rows, logsumexp_reference(&of, out), .tolerance = logsumexp_tolerance,
     .text = "the logarithm of the sum of each row's exponentials",
     .formula = {"rows*columns*e_result", "rows*e_result", "4*rows*columns"})

/* ---- what is unfused; bytes of any shape are below 2^55 ---- */

static int64_t matrix_bytes(const bw_dims *dims, const bw_precision *precision) {
    return bw_dtype_bytes(precision->result, dims->value[BW_ROWS_COUNT] * dims->value[BW_ROWS_ELEMS]);
}

int64_t bw_logsumexp_scratch(const bw_dims *dims, const bw_precision *precision, const struct bw_device_facts *facts) {
    (void)facts;
    return bw_logsumexp_exponentials(dims) + matrix_bytes(dims, precision);
}

/* x is read again, the exponentials are written and read, the maxima written and read twice. */
bw_status bw_logsumexp_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                    const struct bw_device_facts *facts, bw_cost *cost) {
    (void)facts;
    const int64_t matrix = matrix_bytes(dims, precision), maxima = dims->value[BW_ROWS_COUNT] * (int64_t)sizeof(float);
    cost->algorithmic_bytes_read += 2 * matrix + 2 * maxima;
    cost->algorithmic_bytes_written += matrix + maxima;
    return BW_OK;
}

bw_status bw_residual_rmsnorm_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                           const struct bw_device_facts *facts, bw_cost *cost) {
    (void)facts;
    cost->algorithmic_bytes_read += matrix_bytes(dims, precision);
    return BW_OK;
}
