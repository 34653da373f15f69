/* gemm: see ops/gemm.h. Bytes and FLOPs: M K e_A + K N e_B [+ M N e_C] read, M N e_D written, 2 M N K. */
#include "ops/gemm.h"

#include <math.h>
#include <stdlib.h>

#include "base/input.h"
#include "ops/cost.h"
#include "ops/op.h"
#include "ops/reference.h"

enum { TILE = 16 }; /* a reference row is up to so many neighbouring columns of one row of D: A's row serves them all */

#define DIMENSION_MAX (((int64_t)1 << 31) - 1)

static const bw_param params[] = {
    {.name = "M",
     .unit = "rows",
     .text = "rows of A and D (tokens)",
     .fallback = 1,
     .minimum = 1,
     .maximum = DIMENSION_MAX},
    {.name = "N",
     .unit = "columns",
     .text = "rows of B, columns of D (output features)",
     .fallback = 4096,
     .minimum = 1,
     .maximum = DIMENSION_MAX},
    {.name = "K",
     .unit = "columns",
     .text = "columns of A and B (input features)",
     .fallback = 4096,
     .minimum = 1,
     .maximum = DIMENSION_MAX},
    {.name = "beta", .unit = "", .text = "1 adds C(M, N) to the product", .fallback = 0, .minimum = 0, .maximum = 1},
};

static bw_status gemm_cost(const bw_dims *dims, const bw_precision *precision, bw_cost *out) {
    int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    bw_checked d = bw_bytes_of(precision->result, bw_mul(bw_num(m), bw_num(n)));
    bw_checked read = bw_add(bw_bytes_of(precision->activation, bw_mul(bw_num(m), bw_num(k))),
                             bw_bytes_of(precision->weight, bw_mul(bw_num(n), bw_num(k))));
    if (dims->value[BW_GEMM_BETA]) read = bw_add(read, d);
    return bw_cost_set("gemm", read, d, bw_mul4(2, m, n, k), out);
}

static bw_operand matrix(const char *name, bw_role role, bw_dtype dtype, int64_t rows, int64_t columns) {
    return (bw_operand){.name = name,
                        .role = role,
                        .dtype = dtype,
                        .recipe = role == BW_IN ? BW_RECIPE_HASH : BW_RECIPE_POISON,
                        .rank = 2,
                        .shape = {rows, columns}};
}

static int gemm_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    out[BW_GEMM_A] = matrix("A", BW_IN, precision->activation, m, k);
    out[BW_GEMM_B] = matrix("B", BW_IN, precision->weight, n, k);
    out[BW_GEMM_D] = matrix("D", BW_OUT, precision->result, m, n);
    if (!dims->value[BW_GEMM_BETA]) return 3;
    out[BW_GEMM_C] = matrix("C", BW_IN, precision->result, m, n);
    return 4;
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
    bw_input_key a_key = bw_input_key_make(seed, BW_GEMM_A), b_key = bw_input_key_make(seed, BW_GEMM_B);
    double c[TILE];
    double *a = malloc(2 * (size_t)k * sizeof *a);
    if (!a) return bw_fail(BW_CODE_MEMORY, "no host memory for a reference row of %lld values", (long long)k);
    double *b = a + k;
    bw_input_doubles(precision->activation, a_key, m * k, k, a);
    out->operand = BW_GEMM_D;
    out->offset = m * n + column;
    out->count = bw_min64(TILE, n - column);
    out->scale = sqrt((double)k) / 3.0; /* a product of two uniform values has variance 1/9 */
    for (int64_t j = 0; j < out->count; j++) {
        bw_input_doubles(precision->weight, b_key, (column + j) * k, k, b);
        out->values[j] = bw_dot(a, b, k);
    }
    if (dims->value[BW_GEMM_BETA]) {
        bw_input_doubles(precision->result, bw_input_key_make(seed, BW_GEMM_C), out->offset, out->count, c);
        for (int64_t j = 0; j < out->count; j++) out->values[j] += c[j];
    }
    free(a);
    return BW_OK;
}

/* FP32 accumulation errs like a random walk, tensor cores (which truncate) a little in one direction, which grows with
 * K. One product left out would be 0.25 / (sqrt(K) / 3): far above this. */
static bw_tolerance gemm_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)precision, (void)rounds_once; /* every variant accumulates in FP32 */
    double k = (double)dims->value[BW_GEMM_K];
    return (bw_tolerance){bw_dtype_roundoff(BW_FP32) * (8.0 * sqrt(k) + k / 4.0), 0.0};
}

const bw_op bw_op_gemm = {
    .name = "gemm",
    .family = "gemm",
    .text = "D = A B^T [+ C], weights B stored N x K",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .precisions = BW_MASK(FP32) | BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16),
    .is_product = true,
    .cost = gemm_cost,
    .operands = gemm_operands,
    .rows = gemm_rows,
    .reference = gemm_reference,
    .tolerance = gemm_tolerance,
};
