/* gemm: see ops/families/gemm.h. Bytes: M K e_A + K N e_B [+ M N e_C] [+ scales] read, M N e_D written.
 * FLOPs: 2 M N K. */
#include "ops/families/gemm.h"

#include <math.h>
#include <stdlib.h>

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
    bw_operand none[2];
    bw_operand_scale_matrix((const char *const[]){"A_scale", NULL, NULL}, &out[BW_GEMM_A], m, k,
                            precision->activation_scales, &out[BW_GEMM_A_SCALE], &none[0], &none[1]);
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

/* Hopper's tensor cores cut 32 products of E4M3, and the sum so far, 13 bits below the largest's first bit. While they
 * add up 128 of them (FP32 adds up the rest), that bit is worth 6.6 typical products (root mean square; 5.6 where the
 * sum is still small). Each cut loses up to 6.6 * 2^-13, whose mean square is a third of that squared; 33 of them for
 * every 32 products are 6.6 * sqrt(33 / 32 / 3) = 3.9 units of 2^-13 of a typical sum of K, whatever K is. Four times
 * that is allowed, which tensor cores that add up all of K by themselves pass at K = 512. */
enum { E4M3_UNITS = 16 };

/* FP32 accumulation errs like a random walk, tensor cores (which truncate) a little in one direction, which grows with
 * K. One product left out would be 0.25 / (sqrt(K) / 3): far above this. */
static bw_tolerance gemm_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    double k = (double)dims->value[BW_GEMM_K];
    double sums = bw_dtype_roundoff(BW_FP32) * (8.0 * sqrt(k) + k / 4.0);
    bool cuts = precision->compute == BW_FP8_E4M3 && !rounds_once; /* else every variant accumulates in FP32 */
    return (bw_tolerance){sums + (cuts ? ldexp(E4M3_UNITS, -13) : 0.0), 0.0};
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
