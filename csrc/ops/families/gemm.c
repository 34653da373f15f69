/* gemm and what becomes of its weights: see ops/families/gemm.h. Bytes: M K e_A + K N e_B [+ M N e_C] [+ scales] read,
 * M N e_D written. FLOPs: 2 M N K. */
#include "ops/families/gemm.h"

#include <math.h>
#include <stdlib.h>

#include "base/types/blocks.h"
#include "base/types/input.h"
#include "ops/operand.h"

enum { TILE = 16 }; /* a reference row is up to so many neighboring columns of one row of D: A's row serves them all */

static const bw_param params[] = {
    BW_PARAM("M", "rows", "rows of A and D (tokens)", 1, INT32_MAX, .fallback = 1, .small = 3),
    BW_PARAM("N", "columns", "rows of B, columns of D (output features)", 1, INT32_MAX, .fallback = 4096, .small = 37),
    BW_PARAM("K", "columns", "columns of A and B (input features)", 1, INT32_MAX, .fallback = 4096, .small = 29),
    BW_PARAM("beta", "", "1 adds C(M, N) to the product", 0, 1, .fallback = 0, .small = 1),
};

static int gemm_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    out[BW_GEMM_A] = bw_operand_make("A", BW_IN, precision->activation, BW_SHAPE(m, k));
    out[BW_GEMM_B] = bw_operand_make("B", BW_IN, precision->weight, BW_SHAPE(n, k));
    out[BW_GEMM_D] = bw_operand_make("D", BW_OUT, precision->result, BW_SHAPE(m, n));
    out[BW_GEMM_C] = bw_operand_make("C", BW_IN, precision->result, BW_SHAPE(m, n));
    out[BW_GEMM_C].present = dims->value[BW_GEMM_BETA] != 0;
    out[BW_GEMM_A_SCALE] = bw_operand_scales("A_scale", &out[BW_GEMM_A], k, precision->activation_scales, BW_SHAPE(m));
    bw_operand_scale_matrix((const char *const[]){"B_scale", "B_zero", "B_whole_scale"}, &out[BW_GEMM_B], n, k,
                            precision->weight_scales, &out[BW_GEMM_B_SCALE], &out[BW_GEMM_B_ZERO],
                            &out[BW_GEMM_B_WHOLE_SCALE]);
    out[BW_GEMM_A].row_elems = out[BW_GEMM_B].row_elems = k; /* blocks lie along K and end with a row */
    return BW_GEMM_OPERANDS;
}

static bw_checked_int gemm_flops(const bw_dims *dims) {
    return bw_mul4(2, dims->value[BW_GEMM_M], dims->value[BW_GEMM_N], dims->value[BW_GEMM_K]);
}

static bw_rows gemm_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    int64_t tiles = bw_ceil_div(dims->value[BW_GEMM_N], TILE);
    return (bw_rows){.count = dims->value[BW_GEMM_M] * tiles, .elems = TILE, .line = tiles};
}

/* Whether a variant may store weights in the activations' type, rounded to it. */
static bool is_rounded(const bw_precision *precision) {
    return precision->weight != precision->activation;
}

static bw_status gemm_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                bw_reference_row *out) {
    int64_t n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    int64_t tiles = bw_ceil_div(n, TILE);
    int64_t m = row / tiles, column = row % tiles * TILE;
    bw_operand operands[BW_MAX_OPERANDS];
    int count = gemm_operands(dims, precision, operands);
    BW_TRY(bw_operand_measure("gemm", operands, count));
    bw_source a_source = bw_source_of(operands, count, BW_GEMM_A, seed);
    bw_source b_source = bw_source_of(operands, count, BW_GEMM_B, seed);
    double c[TILE];
    double *a = malloc(2 * (size_t)k * sizeof *a);
    if (!a) return bw_fail(BW_CODE_MEMORY, "no host memory for a reference row of %lld values", (long long)k);
    double *b = a + k;
    bw_source_read(&a_source, m * k, k, a);
    out->operand = BW_GEMM_D;
    out->offset = m * n + column;
    out->count = bw_min64(TILE, n - column);
    /* Its elements have A's factors in common. */
    if (is_rounded(precision)) out->freedom = 1.0 / (1.0 / (double)out->count + 1.0 / (double)k);
    /* A product's mean square is that of its factors: 1/9 of two that are uniform in [-1, 1). */
    out->scale = sqrt((double)k) / sqrt(bw_source_inverse_square(&a_source) * bw_source_inverse_square(&b_source));
    for (int64_t j = 0; j < out->count; j++) {
        bw_source_read(&b_source, (column + j) * k, k, b);
        out->values[j] = bw_dot(a, b, k);
    }
    if (operands[BW_GEMM_C].present) {
        bw_input_doubles(precision->result, bw_input_key_make(seed, BW_GEMM_C), out->offset, out->count, c);
        for (int64_t j = 0; j < out->count; j++) out->values[j] += c[j];
    }
    free(a);
    return BW_OK;
}

/* FP32 accumulation errs like a random walk, tensor cores (which truncate) a little in one direction, which grows with
 * K. One product left out would be 0.25 / (sqrt(K) / 3): far above this.
 * A variant that stores narrow weights in the activations' type adds up to one roundoff u to each one's relative error,
 * evenly distributed: a mean square of u^2 / 3 at most, which a sum of K such errors has relative to its scale, too. */
static bw_tolerance gemm_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    double k = (double)dims->value[BW_GEMM_K];
    double accumulation = bw_dtype_roundoff(BW_FP32) * (8.0 * sqrt(k) + k / 4.0);
    if (rounds_once || !is_rounded(precision)) return (bw_tolerance){accumulation, 0.0};
    double rounding = bw_dtype_roundoff(precision->activation) / sqrt(3.0);
    return (bw_tolerance){accumulation + 5.0 * rounding, sqrt(rounding * rounding + accumulation * accumulation)};
}

const bw_op bw_op_gemm = {
    .name = "gemm",
    .family = "gemm",
    .text = "D = A B^T [+ C], weights B stored N x K",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .precisions = BW_WEIGHT_PRECISIONS,
    .formula = {"M*K*e_activation + activation_scales(M, K) + N*K*e_weight + weight_scales(N, K) + beta*M*N*e_result",
                "M*N*e_result", "2*M*N*K"},
    .is_product = true,
    .flops = gemm_flops,
    .operands = gemm_operands,
    .rows = gemm_rows,
    .reference = gemm_reference,
    .tolerance = gemm_tolerance,
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
    const int count = gemm_operands(&product, precision, out);
    out[BW_GEMM_A].present = out[BW_GEMM_A_SCALE].present = false;
    out[BW_GEMM_D] = d;
    return count;
}

static int dequantize_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t n = dims->value[BW_WEIGHT_N], k = dims->value[BW_WEIGHT_K];
    return weight_operands(dims, precision, bw_operand_make("D", BW_OUT, precision->result, BW_SHAPE(n, k)), out);
}

/* A difference or none, and a product with a scale. */
static bw_checked_int dequantize_flops(const bw_dims *dims) {
    return bw_mul3(2, dims->value[BW_WEIGHT_N], dims->value[BW_WEIGHT_K]);
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
    .text = "weights in a narrow type as results are stored",
    .params = weight_params,
    .param_count = sizeof weight_params / sizeof weight_params[0],
    .precisions = BW_NARROW_WEIGHT_PRECISIONS,
    .formula = {"N*K*e_weight + weight_scales(N, K)", "N*K*e_result", "2*N*K"},
    .flops = dequantize_flops,
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
