/* gemm, moe_gemm, linear_relu_dropout and what becomes of weights: see ops/families/gemm.h. Bytes: M K e_A + K N e_B [+
 * M N e_C] [+ scales] read, M N e_D written. FLOPs: 2 M N K.
 *
 * Experts: who takes which is an input that decides the bytes, so a case has it among its parameters: `active` experts
 * have tokens, as evenly many as can be; by default as many as have on average where each token chooses at random,
 * which is what a model's step counts too. Bytes: B of active experts alone, each token's row of A once, and 4 for each
 * row of D and each offset. Token t's rows are numbers t top_k and those behind it, number i goes to the active expert
 * i mod active, and active experts lie evenly among all. */
#include "ops/families/gemm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/types/blocks.h"
#include "base/types/dropout.h"
#include "base/types/input.h"
#include "ops/operand.h"

enum { TILE = 16 }; /* a reference row is up to so many neighboring columns of one row of D: A's row serves them all */

static const bw_param gemm_params[] = {
    BW_PARAM("M", "rows", "rows of A and D (tokens)", 1, INT32_MAX, .fallback = 1, .small = 3),
    BW_PARAM("N", "columns", "rows of B, columns of D (output features)", 1, INT32_MAX, .fallback = 4096, .small = 37),
    BW_PARAM("K", "columns", "columns of A and B (input features)", 1, INT32_MAX, .fallback = 4096, .small = 29),
    BW_PARAM("beta", "", "1 adds C(M, N) to the product", 0, 1, .fallback = 0, .small = 1),
};

static const bw_param moe_params[] = {
    BW_PARAM("tokens", "tokens", "rows of A", 1, INT32_MAX, .fallback = 1, .small = 5),
    BW_PARAM("experts", "experts", "matrices of weights", 1, 65536, .fallback = 128, .small = 4),
    BW_PARAM("top_k", "experts", "experts that each token takes", 1, 65536, .fallback = 8, .small = 2),
    BW_PARAM("active", "experts", "experts that have tokens; 0: as many as on average by chance", 0, 65536,
             .fallback = 0, .small = 3),
    BW_PARAM("N", "columns", "rows of an expert's B, columns of D (output features)", 1, INT32_MAX, .fallback = 1536,
             .small = 37),
    BW_PARAM("K", "columns", "columns of A and B (input features)", 1, INT32_MAX, .fallback = 2048, .small = 29),
};

static const bw_param linear_params[] = {
    BW_PARAM("M", "rows", "rows of A and D (tokens)", 1, INT32_MAX, .fallback = 1, .small = 3),
    BW_PARAM("N", "columns", "rows of B, columns of D (output features)", 1, INT32_MAX, .fallback = 4096, .small = 37),
    BW_PARAM("K", "columns", "columns of A and B (input features)", 1, INT32_MAX, .fallback = 4096, .small = 29),
    BW_PARAM("dropout_percent", "", "percentage of elements set to 0", 0, 99, .fallback = 10, .small = 30),
    BW_PARAM("mask_seed", "", "seed of dropout's random numbers", 0, INT64_MAX, .fallback = 0, .small = 7),
};

extern const bw_op bw_op_moe_gemm, bw_op_linear_relu_dropout;

/* One shape for all: but for moe_gemm there is one expert, whose rows are all tokens in their order. */
typedef struct shape {
    const char *op_name;
    int64_t tokens, rows, experts, top_k, active, n, k; /* rows: of D */
    bool adds, routed;
    bool is_linear;
} shape;

static shape shape_of(const bw_dims *dims) {
    const int64_t *v = dims->value;
    if (dims->op == &bw_op_moe_gemm) {
        return (shape){"moe_gemm",
                       v[BW_MOE_TOKENS],
                       v[BW_MOE_TOKENS] * v[BW_MOE_TOP_K],
                       v[BW_MOE_EXPERTS],
                       v[BW_MOE_TOP_K],
                       v[BW_MOE_ACTIVE],
                       v[BW_MOE_N],
                       v[BW_MOE_K],
                       false,
                       true,
                       false};
    }
    if (dims->op == &bw_op_linear_relu_dropout) {
        return (shape){"linear_relu_dropout", v[BW_LINEAR_M], v[BW_LINEAR_M], 1,     1,   1,
                       v[BW_LINEAR_N],        v[BW_LINEAR_K], true,           false, true};
    }
    return (shape){"gemm",       v[BW_GEMM_M], v[BW_GEMM_M],         1,     1,    1,
                   v[BW_GEMM_N], v[BW_GEMM_K], v[BW_GEMM_BETA] != 0, false, false};
}

/* A token leaves an expert alone with a chance of 1 - top_k / experts. */
static void moe_settle(bw_dims *dims) {
    const shape s = shape_of(dims);
    if (s.active != 0) return;
    const double alone = pow(1.0 - (double)s.top_k / (double)s.experts, (double)s.tokens);
    const int64_t mean = (int64_t)round((double)s.experts * (1.0 - alone));
    dims->value[BW_MOE_ACTIVE] = bw_max64(s.top_k, bw_min64(mean, s.rows));
}

static bw_status moe_validate(const bw_dims *dims) {
    const shape s = shape_of(dims);
    if (s.top_k > s.experts) {
        return bw_fail(BW_CODE_INVALID, "moe_gemm: top_k = %" PRId64 ": allowed is 1 to experts = %" PRId64, s.top_k,
                       s.experts);
    }
    if (s.rows > INT32_MAX) {
        return bw_fail(BW_CODE_INVALID, "moe_gemm: tokens * top_k = %" PRId64 ": allowed is up to 2^31 - 1", s.rows);
    }
    const int64_t most = bw_min64(s.experts, s.rows);
    if (s.active >= s.top_k && s.active <= most) return BW_OK;
    return bw_fail(BW_CODE_INVALID,
                   "moe_gemm: active = %" PRId64 ": allowed is top_k = %" PRId64
                   ", as each token takes different experts, to %" PRId64 ", experts or tokens * top_k",
                   s.active, s.top_k, most);
}

/* Rows of D that come before those of the active expert `slot`. */
static int64_t rows_before(const shape *s, int64_t slot) {
    return slot * (s->rows / s->active) + bw_min64(slot, s->rows % s->active);
}

typedef struct place {
    int64_t token, expert;
} place;

static place place_of(const shape *s, int64_t row) {
    const int64_t each = s->rows / s->active, larger = s->rows % s->active, of_larger = larger * (each + 1);
    const int64_t slot = row < of_larger ? row / (each + 1) : larger + (row - of_larger) / each;
    return (place){(slot + (row - rows_before(s, slot)) * s->active) / s->top_k, slot * s->experts / s->active};
}

static void moe_host_input(const bw_dims *dims, uint64_t seed, int operand, void *out) {
    (void)seed;
    const shape s = shape_of(dims);
    int32_t *to = out;
    if (operand == BW_MOE_ROWS) {
        for (int64_t row = 0; row < s.rows; row++) to[row] = (int32_t)place_of(&s, row).token;
    } else {
        for (int64_t expert = 0; expert <= s.experts; expert++) {
            to[expert] = (int32_t)rows_before(&s, bw_ceil_div(expert * s.active, s.experts));
        }
    }
}

/* Stored elements of so many rows: whole blocks. */
static int64_t elements_of(const bw_operand *operand, int64_t rows, int64_t columns) {
    const int block = bw_dtype_get(operand->dtype)->block_elems;
    return bw_mul3(rows, bw_ceil_div(columns, block), block).value;
}

static void moe_add_routing(const shape *s, const bw_scaling *scaling, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t rows = s->active * s->n, wide = scaling->columns ? bw_ceil_div(s->k, scaling->columns) : 1;
    const int64_t high = scaling->rows ? bw_ceil_div(rows, scaling->rows) : 1;
    out[BW_GEMM_B].moved = elements_of(&out[BW_GEMM_B], rows, s->k);
    out[BW_GEMM_B_SCALE].moved = elements_of(&out[BW_GEMM_B_SCALE], high, wide);
    out[BW_GEMM_B_ZERO].moved = elements_of(&out[BW_GEMM_B_ZERO], high, wide);
    out[BW_MOE_ROWS] = bw_operand_indices("rows", BW_RECIPE_HOST, BW_I32, 0, s->tokens - 1, BW_SHAPE(s->rows));
    out[BW_MOE_OFFSETS] = bw_operand_indices("offsets", BW_RECIPE_HOST, BW_I32, 0, s->rows, BW_SHAPE(s->experts + 1));
}

static int shape_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const shape s = shape_of(dims);
    out[BW_GEMM_A] = bw_operand_make("A", BW_IN, precision->activation, BW_SHAPE(s.tokens, s.k));
    out[BW_GEMM_B] = bw_operand_make("B", BW_IN, precision->weight, s.routed ? 3 : 2,
                                     s.routed ? (const int64_t[]){s.experts, s.n, s.k} : (const int64_t[]){s.n, s.k});
    out[BW_GEMM_D] = bw_operand_make("D", BW_OUT, precision->result, BW_SHAPE(s.rows, s.n));
    out[BW_GEMM_C] = s.is_linear ? bw_operand_make("bias", BW_IN, precision->result, BW_SHAPE(s.n))
                                 : bw_operand_make("C", BW_IN, precision->result, BW_SHAPE(s.rows, s.n));
    out[BW_GEMM_C].present = s.adds;
    bw_operand none[2];
    bw_operand_scale_matrix((const char *const[]){"A_scale", NULL, NULL}, &out[BW_GEMM_A], s.tokens, s.k,
                            precision->activation_scales, &out[BW_GEMM_A_SCALE], &none[0], &none[1]);
    bw_operand_scale_matrix((const char *const[]){"B_scale", "B_zero", "B_whole_scale"}, &out[BW_GEMM_B],
                            s.experts * s.n, s.k, precision->weight_scales, &out[BW_GEMM_B_SCALE], &out[BW_GEMM_B_ZERO],
                            &out[BW_GEMM_B_WHOLE_SCALE]);
    out[BW_GEMM_A].row_elems = out[BW_GEMM_B].row_elems = s.k; /* blocks lie along K and end with a row */
    if (!s.routed) return BW_GEMM_OPERANDS;
    moe_add_routing(&s, precision->weight_scales, out);
    return BW_MOE_OPERANDS;
}

static bw_checked_int shape_flops(const bw_dims *dims) {
    const shape s = shape_of(dims);
    return bw_mul4(2, s.rows, s.n, s.k);
}

static bw_rows shape_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    const shape s = shape_of(dims);
    int64_t tiles = bw_ceil_div(s.n, TILE);
    return (bw_rows){.count = s.rows * tiles, .elems = TILE, .line = tiles};
}

/* Whether a variant may store weights in the activations' type, rounded to it, or tensor cores cut products. */
static bool has_noise(const bw_precision *precision) {
    return precision->weight != precision->activation || precision->compute == BW_FP8_E4M3;
}

/* relu and dropout: kept elements grow, so that the mean stays. */
static void end_linear(const bw_dims *dims, bw_reference_row *row) {
    const int64_t percent = dims->value[BW_LINEAR_DROPOUT_PERCENT];
    const uint64_t mask_seed = (uint64_t)dims->value[BW_LINEAR_MASK_SEED];
    const double factor = 100.0 / (double)(100 - percent);
    row->scale *= factor;
    for (int64_t j = 0; j < row->count; j++) {
        const bool stays = bw_dropout_keeps(mask_seed, (uint64_t)(row->offset + j), bw_dropout_threshold(percent));
        row->values[j] = stays ? fmax(row->values[j], 0.0) * factor : 0.0;
    }
}

static bw_status shape_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                 bw_reference_row *out) {
    const shape s = shape_of(dims);
    const int64_t n = s.n, k = s.k, tiles = bw_ceil_div(n, TILE);
    const int64_t m = row / tiles, column = row % tiles * TILE;
    const place at = s.routed ? place_of(&s, m) : (place){m, 0};
    bw_operand operands[BW_MAX_OPERANDS];
    int count = shape_operands(dims, precision, operands);
    BW_TRY(bw_operand_measure(s.op_name, operands, count));
    bw_source a_source = bw_source_of(operands, count, BW_GEMM_A, seed);
    bw_source b_source = bw_source_of(operands, count, BW_GEMM_B, seed);
    double c[TILE];
    double *a = malloc(2 * (size_t)k * sizeof *a);
    if (!a) return bw_fail(BW_CODE_MEMORY, "no host memory for a reference row of %lld values", (long long)k);
    double *b = a + k;
    bw_source_read(&a_source, at.token * k, k, a);
    out->operand = BW_GEMM_D;
    out->offset = m * n + column;
    out->count = bw_min64(TILE, n - column);
    /* Its elements have A's factors in common. */
    if (has_noise(precision)) out->freedom = 1.0 / (1.0 / (double)out->count + 1.0 / (double)k);
    /* A product's mean square is that of its factors: 1/9 of two that are uniform in [-1, 1). */
    out->scale = sqrt((double)k) / sqrt(bw_source_inverse_square(&a_source) * bw_source_inverse_square(&b_source));
    for (int64_t j = 0; j < out->count; j++) {
        bw_source_read(&b_source, (at.expert * n + column + j) * k, k, b);
        out->values[j] = bw_dot(a, b, k);
    }
    if (operands[BW_GEMM_C].present) {
        const int64_t first = s.is_linear ? column : out->offset;
        bw_input_doubles(precision->result, bw_input_key_make(seed, BW_GEMM_C), first, out->count, c);
        for (int64_t j = 0; j < out->count; j++) out->values[j] += c[j];
    }
    if (s.is_linear) end_linear(dims, out);
    free(a);
    return BW_OK;
}

/* Hopper's tensor cores cut 32 products of E4M3, and the sum so far, 13 bits below the largest's first bit. While they
 * add up 128 of them (FP32 adds up the rest), that bit is worth 6.6 typical products (root mean square; 5.6 where the
 * sum is still small). Each cut loses up to 6.6 * 2^-13, whose mean square is a third of that squared; 33 of them for
 * every 32 products are 6.6 * sqrt(33 / 32 / 3) = 3.9 units of 2^-13 of a typical sum of K, whatever K is. A row's
 * mean square keeps to that; one that tensor cores add up by themselves exceeds it from K = 1024 on. Single elements
 * whose sum is large early err by more: of 10 million simulated sums of K = 144 (the worst) one by 31 units. The scales
 * of a row and of a column, up to 1.31 typical ones each, enlarge that. */
enum { E4M3_UNITS = 54 };
static const double E4M3_TYPICAL_UNITS = 3.9;

/* FP32 accumulation errs like a random walk, tensor cores (which truncate) a little in one direction, which grows with
 * K. One product left out would be 0.25 / (sqrt(K) / 3): far above this (of E4M3 the row's mean
 * square shows it, where all its elements lack one).
 * A variant that stores narrow weights in the activations' type adds up to one roundoff u to each one's relative error,
 * evenly distributed: a mean square of u^2 / 3 at most, which a sum of K such errors has relative to its scale, too. */
static bw_tolerance shape_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    const double k = (double)shape_of(dims).k;
    const double sums = bw_dtype_roundoff(BW_FP32) * (8.0 * sqrt(k) + k / 4.0);
    if (rounds_once) return (bw_tolerance){sums, 0.0}; /* each such variant accumulates in FP32 */
    if (precision->compute == BW_FP8_E4M3) {
        return (bw_tolerance){sums + ldexp(E4M3_UNITS, -13), hypot(sums, ldexp(E4M3_TYPICAL_UNITS, -13))};
    }
    if (!has_noise(precision)) return (bw_tolerance){sums, 0.0};
    const double rounding = bw_dtype_roundoff(precision->activation) / sqrt(3.0);
    return (bw_tolerance){sums + 5.0 * rounding, sqrt(rounding * rounding + sums * sums)};
}

const bw_op bw_op_gemm = {
    .name = "gemm",
    .family = "gemm",
    .text = "D = A B^T [+ C], weights B stored N x K",
    .params = gemm_params,
    .param_count = sizeof gemm_params / sizeof gemm_params[0],
    .precisions = BW_WEIGHT_PRECISIONS,
    .formula = {"M*K*e_activation + activation_scales(M, K) + N*K*e_weight + weight_scales(N, K) + beta*M*N*e_result",
                "M*N*e_result", "2*M*N*K"},
    .is_product = true,
    .flops = shape_flops,
    .operands = shape_operands,
    .rows = shape_rows,
    .reference = shape_reference,
    .tolerance = shape_tolerance,
};

const bw_op bw_op_moe_gemm = {
    .name = "moe_gemm",
    .family = "gemm",
    .text = "the product of each expert's weights with the tokens that take it",
    .params = moe_params,
    .param_count = sizeof moe_params / sizeof moe_params[0],
    .precisions = BW_WEIGHT_PRECISIONS,
    .formula = {"tokens*K*e_activation + activation_scales(tokens, K) + active*N*K*e_weight + weight_scales(active*N, "
                "K) + 4*tokens*top_k + 4*(experts + 1)",
                "tokens*top_k*N*e_result", "2*tokens*top_k*N*K"},
    .settle = moe_settle,
    .validate = moe_validate,
    .flops = shape_flops,
    .operands = shape_operands,
    .host_input = moe_host_input,
    .rows = shape_rows,
    .reference = shape_reference,
    .tolerance = shape_tolerance,
};

/* Kernels of their own round the sum and what relu leaves: a roundoff of each, the sum being larger than that by up to
 * the bias, which is 1 at most where sums are sqrt(K) / 3. */
static bw_tolerance linear_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    bw_tolerance tolerance = shape_tolerance(dims, precision, rounds_once);
    const double k = (double)dims->value[BW_LINEAR_K];
    if (!rounds_once) tolerance.element += bw_dtype_roundoff(precision->result) * (2.0 + 3.0 / sqrt(k));
    return tolerance;
}

const bw_op bw_op_linear_relu_dropout = {
    .name = "linear_relu_dropout",
    .family = "gemm",
    .text = "D = dropout(relu(A B^T + bias)), weights B stored N x K, the mask made of a seed",
    .params = linear_params,
    .param_count = sizeof linear_params / sizeof linear_params[0],
    .precisions = BW_MASK(FP32) | BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16),
    .formula = {"M*K*e_activation + N*K*e_weight + N*e_result", "M*N*e_result", "2*M*N*K"},
    .flops = shape_flops,
    .operands = shape_operands,
    .rows = shape_rows,
    .reference = shape_reference,
    .tolerance = linear_tolerance,
};

/* ---- weights alone ---- */

enum { PART = 256 }; /* of a row of weights, for one reference row */

static const bw_param weight_params[] = {
    BW_PARAM("N", "rows", "rows of B (output features)", 1, INT32_MAX, .fallback = 4096, .small = 37),
    BW_PARAM("K", "columns", "columns of B (input features)", 1, INT32_MAX, .fallback = 4096, .small = 29),
};

/* B and what is beside it as gemm has them, and `d`. */
static int weight_operands(const bw_dims *dims, const bw_precision *precision, bw_operand d,
                           bw_operand out[BW_MAX_OPERANDS]) {
    const bw_dims product = {
        .value = {[BW_GEMM_M] = 1, [BW_GEMM_N] = dims->value[BW_WEIGHT_N], [BW_GEMM_K] = dims->value[BW_WEIGHT_K]}};
    const int count = shape_operands(&product, precision, out);
    out[BW_GEMM_A].present = out[BW_GEMM_A_SCALE].present = false;
    out[BW_GEMM_D] = d;
    return count;
}

static int dequantize_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t n = dims->value[BW_WEIGHT_N], k = dims->value[BW_WEIGHT_K];
    return weight_operands(dims, precision, bw_operand_make("D", BW_OUT, precision->result, BW_SHAPE(n, k)), out);
}

static bw_rows dequantize_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    const int64_t parts = bw_ceil_div(dims->value[BW_WEIGHT_K], PART);
    return (bw_rows){.count = dims->value[BW_WEIGHT_N] * parts, .elems = PART, .line = parts};
}

static bw_status dequantize_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                      bw_reference_row *out) {
    const int64_t k = dims->value[BW_WEIGHT_K], parts = bw_ceil_div(k, PART), column = row % parts * PART;
    bw_operand operands[BW_MAX_OPERANDS];
    const int count = dequantize_operands(dims, precision, operands);
    BW_TRY(bw_operand_measure("weight_dequantize", operands, count));
    const bw_source source = bw_source_of(operands, count, BW_GEMM_B, seed);
    out->operand = BW_GEMM_D;
    out->offset = row / parts * k + column;
    out->count = bw_min64(PART, k - column);
    out->scale = 1.0 / sqrt(bw_source_inverse_square(&source));
    bw_source_read(&source, out->offset, out->count, out->values);
    return BW_OK;
}

/* Values are rounded once, but for those whose exact product or difference FP32 does not hold: twice. */
static bw_tolerance dequantize_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)dims, (void)precision, (void)rounds_once;
    return (bw_tolerance){bw_dtype_roundoff(BW_FP32), 0.0};
}

const bw_op bw_op_weight_dequantize = {
    .name = "weight_dequantize",
    .family = "gemm",
    .text = "narrow weights, unpacked to FP16 or BF16",
    .params = weight_params,
    .param_count = sizeof weight_params / sizeof weight_params[0],
    .precisions = BW_NARROW_WEIGHT_PRECISIONS,
    .formula = {"N*K*e_weight + weight_scales(N, K)", "N*K*e_result", "0"},
    .operands = dequantize_operands,
    .rows = dequantize_rows,
    .reference = dequantize_reference,
    .tolerance = dequantize_tolerance,
};

static int repack_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t n = dims->value[BW_WEIGHT_N], row_bytes = bw_dtype_bytes(precision->weight, dims->value[BW_WEIGHT_K]);
    return weight_operands(dims, precision, bw_operand_make("D", BW_OUT, BW_INT8, BW_SHAPE(n, row_bytes)), out);
}

/* Two reference rows are a tile: its words and its scales. */
static bw_rows repack_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    const int64_t wide = bw_ceil_div(dims->value[BW_WEIGHT_K], BW_Q4_0_TILE_BLOCKS * BW_Q4_0_ELEMS);
    return (bw_rows){.count = bw_ceil_div(dims->value[BW_WEIGHT_N], BW_Q4_0_TILE_ROWS) * 2 * wide,
                     .elems = BW_Q4_0_TILE_ROWS * BW_Q4_0_TILE_BLOCKS * BW_Q4_0_HALF,
                     .line = 2 * wide,
                     .parts = 2};
}

static bw_status repack_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                  bw_reference_row *out) {
    (void)precision;
    const int64_t row_blocks = bw_ceil_div(dims->value[BW_WEIGHT_K], BW_Q4_0_ELEMS), tile = row / 2;
    const int64_t wide = bw_ceil_div(row_blocks, BW_Q4_0_TILE_BLOCKS);
    const int64_t row0 = tile / wide * BW_Q4_0_TILE_ROWS, block0 = tile % wide * BW_Q4_0_TILE_BLOCKS;
    const int64_t rows = bw_min64(BW_Q4_0_TILE_ROWS, dims->value[BW_WEIGHT_N] - row0);
    const int64_t blocks = bw_min64(BW_Q4_0_TILE_BLOCKS, row_blocks - block0);
    const bool is_scales = row % 2;
    const bw_input_key key = bw_input_key_make(seed, BW_GEMM_B);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t g = 0; g < blocks; g++) {
            int8_t block[BW_Q4_0_BYTES];
            bw_q4_0_fill(key, (uint64_t)((row0 + r) * row_blocks + block0 + g), block);
            for (int i = 0; i < 2 && is_scales; i++) out->values[2 * (r * blocks + g) + i] = block[i];
            for (int i = 0; i < BW_Q4_0_HALF && !is_scales; i++) {
                /* Byte i has elements `low` and `low` + 4 of its word. */
                static const int order[4] = {0, 2, 1, 3};
                const int low = i / 4 * 8 + order[i % 4], upper = low / BW_Q4_0_HALF * 4, at = 2 + low % BW_Q4_0_HALF;
                const int halves = (block[at] >> upper & 15) | (block[at + 4] >> upper & 15) << 4;
                out->values[4 * ((r * 4 + i / 4) * blocks + g) + i % 4] = (int8_t)halves;
            }
        }
    }
    out->operand = BW_GEMM_D;
    out->offset = row0 * row_blocks * BW_Q4_0_BYTES + block0 * rows * (is_scales ? 2 : BW_Q4_0_HALF);
    if (is_scales) out->offset += rows * row_blocks * BW_Q4_0_HALF;
    out->count = rows * blocks * (is_scales ? 2 : BW_Q4_0_HALF);
    out->scale = 1.0;
    return BW_OK;
}

const bw_op bw_op_weight_repack = {
    .name = "weight_repack",
    .family = "gemm",
    .text = "Q4_0 weights, 18-byte blocks as they are stored, in tiles that threads read 16 bytes at a time",
    .params = weight_params,
    .param_count = sizeof weight_params / sizeof weight_params[0],
    .precisions = BW_MASK(Q4_0),
    .formula = {"N*K*e_weight", "N*K*e_weight", "0"},
    .operands = repack_operands,
    .rows = repack_rows,
    .reference = repack_reference,
    .tolerance = bw_tolerance_exact,
};

/* D twice: as the product leaves it, and as relu does. */
bw_status bw_linear_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                 const struct bw_device_facts *facts, bw_cost *cost) {
    (void)facts;
    const int64_t *v = dims->value, bytes = bw_dtype_get(precision->result)->block_bytes;
    return bw_cost_add_intermediates(bw_mul4(2, v[BW_LINEAR_M], v[BW_LINEAR_N], bytes), cost);
}
