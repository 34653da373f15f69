/* gemm: A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C]; and moe_gemm, which is gemm for each expert in turn.
 * The variants:
 *   naive    one dot product per element of D: B is read again for every row of A;
 *   gemv     up to eight rows of A at once: each row of B is read once, straight from memory, several in flight;
 *            weights in narrow types are decoded in registers (gemv_narrow.h);
 *   blocked  panels of A and B copied to fp32 into the caches and multiplied tile by tile in registers: each element
 *            loaded there serves 12 (or 32) multiplications instead of one;
 *   separate narrow weights become FP16 or BF16 in memory, then a product of that type;
 *   words    of INT8: whole numbers, multiplied as words (gemm_bytes.h);
 *   bytes    the same, multiplied as bytes where the processor adds such products. */
#include "cpu/simd/product.h"

#include "cpu/simd/gemm/linear_end.h"
#include "cpu/simd/gemm/weights.h"
#include "cpu/simd/gemm_bytes.h"
#include "cpu/simd/gemv_narrow.h"

enum { TILE_ROWS = 240, TILE_COLUMNS = 512, TASKS_PER_THREAD = 4 };

BW_INLINE void put(bw_dtype dtype, const product *p, int64_t at, float value) {
    bw_vf_store_as_upto(dtype, p->d, at, finish(dtype, p, bw_vf_set(value), at, at % p->n, 1), 1);
}

BW_INLINE void naive_stretch(bw_dtype dtype, const product *p, int64_t first, int64_t last) {
    for (int64_t at = first; at < last; at++) {
        int64_t row = at / p->n * p->k, column = at % p->n * p->k;
        bw_vf total = bw_vf_set(0.0f);
        int64_t k = 0;
        for (; k + BW_SIMD_FLOATS <= p->k; k += BW_SIMD_FLOATS) {
            total = bw_vf_fma(bw_vf_load_as(dtype, p->a, row + k), bw_vf_load_as(dtype, p->b, column + k), total);
        }
        if (k < p->k) {
            total = bw_vf_fma(bw_vf_load_as_upto(dtype, p->a, row + k, p->k - k),
                              bw_vf_load_as_upto(dtype, p->b, column + k, p->k - k), total);
        }
        put(dtype, p, at, bw_vf_sum(total));
    }
}

/* ---- weights in narrow types ---- */

static stored_matrix stored_activations(const product *p) {
    const bw_precision *precision = p->launch->precision;
    return (stored_matrix){.dtype = precision->activation,
                           .scaling = precision->activation_scales,
                           .data = p->a,
                           .scales = p->launch->operand[BW_GEMM_A_SCALE]};
}

/* The sum of products of floats. */
BW_INLINE float dot_piece(const float *a, const float *b, int64_t count) {
    bw_vf total = bw_vf_set(0.0f);
    int64_t i = 0;
    for (; i + BW_SIMD_FLOATS <= count; i += BW_SIMD_FLOATS) {
        total = bw_vf_fma(bw_vf_load(a + i), bw_vf_load(b + i), total);
    }
    if (i < count) {
        total = bw_vf_fma(bw_vf_load_as_upto(BW_FP32, a, i, count - i), bw_vf_load_as_upto(BW_FP32, b, i, count - i),
                          total);
    }
    return bw_vf_sum(total);
}

BW_INLINE bool is_narrow(const bw_precision *precision) {
    return bw_dtype_get(precision->weight)->kind == BW_KIND_BITS;
}

static void naive_narrow_stretch(const product *p, int64_t first, int64_t last) {
    for (int64_t at = first; at < last; at++) {
        float total = 0.0f;
        for (int64_t k = 0; k < p->k; k += PIECE) {
            const int64_t count = bw_min64(PIECE, p->k - k);
            float a[PIECE], b[PIECE];
            if (p->launch->precision->activation_scales->type != BW_NONE) {
                read_stored(stored_activations(p), p->k, at / p->n, k, count, a);
            } else {
                BW_DTYPE_SWITCH(p->launch->precision->activation, bw_unpack, p->a, at / p->n * p->k + k, count, a);
            }
            read_stored(stored_weights(p), p->k, at % p->n, k, count, b);
            total += dot_piece(a, b, count);
        }
        BW_DTYPE_SWITCH(p->launch->precision->result, put, p, at, total);
    }
}

/* Elements [first, last) of D. */
static void naive_elements(const product *p, int64_t first, int64_t last) {
    if (is_narrow(p->launch->precision)) {
        naive_narrow_stretch(p, first, last);
        return;
    }
    BW_DTYPE_SWITCH(p->launch->precision->weight, naive_stretch, p, first, last);
}

static void naive_share(void *context, int rank, int ranks) {
    const product *p = context;
    int64_t first, last;
    bw_pool_share(p->m * p->n, rank, ranks, &first, &last);
    naive_elements(p, first, last);
}

static bw_status naive_launch(const bw_launch *launch) {
    product p = product_of(launch);
    bw_pool_run(launch->device->pool, naive_share, &p);
    return BW_OK;
}

/* `rows` rows of A (fp32) against `columns` rows of B from `column` on. */
BW_INLINE void gemv_block(const int rows, bw_dtype dtype, const int columns, const product *p, const float *a,
                          int64_t column) {
    bw_vf total[GEMV_ROWS_MAX][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) total[i][j] = bw_vf_set(0.0f);
    }
    int64_t k = 0;
    for (; k + BW_SIMD_FLOATS <= p->k; k += BW_SIMD_FLOATS) {
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
            bw_vf b = bw_vf_load_as(dtype, p->b, (column + j) * p->k + k);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) total[i][j] = bw_vf_fma(bw_vf_load(a + i * p->k + k), b, total[i][j]);
        }
    }
    for (int j = 0; j < columns && k < p->k; j++) {
        bw_vf b = bw_vf_load_as_upto(dtype, p->b, (column + j) * p->k + k, p->k - k);
        for (int i = 0; i < rows; i++) {
            total[i][j] = bw_vf_fma(bw_vf_load_as_upto(BW_FP32, a, i * p->k + k, p->k - k), b, total[i][j]);
        }
    }
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < columns; j++) put(dtype, p, i * p->n + column + j, bw_vf_sum(total[i][j]));
    }
}

BW_INLINE void gemv_rows(const int rows, bw_dtype dtype, const product *p, const float *a, int64_t first,
                         int64_t last) {
    if (rows > GEMV_ROWS_MAX) return;
    const int columns = rows * 4 <= GEMV_TOTALS ? 4 : rows * 3 <= GEMV_TOTALS ? 3 : rows * 2 <= GEMV_TOTALS ? 2 : 1;
    int64_t column = first;
    for (; column + columns <= last; column += columns) gemv_block(rows, dtype, columns, p, a, column);
    for (; column < last; column++) gemv_block(rows, dtype, 1, p, a, column);
}

BW_INLINE void gemv_stretch(bw_dtype dtype, const product *p, const float *a, int64_t first, int64_t last) {
    BW_COUNT_SWITCH(p->m, gemv_rows, dtype, p, a, first, last);
}

/* Floats of one thread's workspace. */
static int64_t gemv_room(const bw_precision *precision, int64_t m, int64_t k) {
    if (is_narrow(precision)) return narrow_room(precision->weight_scales, m, k);
    return precision->activation == BW_FP32 ? 0 : bw_round_up(m * k, 64);
}

/* Columns [first, last) of D. Each thread converts A for itself: that is cheaper than waiting for another to do it. */
static void gemv_columns(const product *p, float *room, int64_t first, int64_t last) {
    const bw_dtype dtype = p->launch->precision->activation;
    if (first == last) return;
    if (is_narrow(p->launch->precision)) {
        if (narrow_stretch(p, room, first, last)) return;
        for (int64_t i = 0; i < p->m; i++) naive_narrow_stretch(p, i * p->n + first, i * p->n + last);
        return;
    }
    const float *a = p->a;
    if (dtype != BW_FP32) {
        BW_DTYPE_SWITCH(dtype, bw_unpack, p->a, 0, p->m * p->k, room);
        a = room;
    }
    BW_DTYPE_SWITCH(dtype, gemv_stretch, p, a, first, last);
}

static void gemv_share(void *context, int rank, int ranks) {
    const product *p = context;
    int64_t first, last;
    bw_pool_share(p->n, rank, ranks, &first, &last);
    float *room = (float *)p->launch->workspace + rank * gemv_room(p->launch->precision, p->m, p->k);
    gemv_columns(p, room, first, last);
}

static bw_status gemv_launch(const bw_launch *launch) {
    product p = product_of(launch);
    bw_pool_run(launch->device->pool, gemv_share, &p);
    return BW_OK;
}

static const char *gemv_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision, (void)facts;
    return dims->value[BW_GEMM_M] > GEMV_ROWS_MAX ? "gemv keeps all rows of A in registers: M is at most 8" : NULL;
}

static bool gemv_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)facts;
    return dims->value[BW_GEMM_M] <= GEMV_ROWS_MAX && precision->activation != BW_INT8;
}

static int64_t gemv_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return 4 * facts->units * gemv_room(precision, dims->value[BW_GEMM_M], dims->value[BW_GEMM_K]);
}

/* One thread's part of the workspace. */
typedef struct blocked_room {
    float a[TILE_ROWS * BW_MICRO_STRIDE];
    float b[BW_MICRO_PANEL_FLOATS];
    float d[TILE_ROWS * TILE_COLUMNS];
} blocked_room;

/* D's tile at (row, column) from the fp32 sums. */
BW_INLINE void finish_tile(bw_dtype dtype, const product *p, const float *sums, int64_t row, int64_t rows,
                           int64_t column, int64_t columns) {
    const float *b_scale = p->launch->operand[BW_GEMM_B_SCALE]; /* one a row, as A has them */
    for (int64_t i = 0; i < rows; i++) {
        const bw_vf scale = bw_vf_set(row_scale_of(p, BW_GEMM_A_SCALE, row + i));
        for (int64_t j = 0; j < columns; j += BW_SIMD_FLOATS) {
            int64_t at = (row + i) * p->n + column + j;
            bw_vf x = bw_vf_load(sums + i * TILE_COLUMNS + j);
            if (b_scale) x = x * (scale * bw_vf_load_as_upto(BW_FP32, b_scale, column + j, columns - j));
            x = finish(dtype, p, x, at, column + j, columns - j);
            bw_vf_store_as_upto(dtype, p->d, at, x, columns - j);
        }
    }
}

BW_INLINE void blocked_tile(bw_dtype dtype, const product *p, blocked_room *room, int64_t row, int64_t column) {
    int64_t rows = bw_min64(p->tile_rows, p->m - row), columns = bw_min64(p->tile_columns, p->n - column);
    for (int64_t k = 0; k < p->k; k += BW_MICRO_DEPTH) {
        int64_t depth = bw_min64(BW_MICRO_DEPTH, p->k - k);
        for (int64_t i = 0; i < rows; i++) {
            bw_unpack(dtype, p->a, (row + i) * p->k + k, depth, room->a + i * BW_MICRO_STRIDE);
        }
        for (int64_t j = 0; j < columns; j += BW_MICRO_COLUMNS) {
            int64_t wide = bw_min64(BW_MICRO_COLUMNS, columns - j);
            int vectors = bw_micro_vectors(wide);
            bw_pack_rows(dtype, p->b, (column + j) * p->k + k, p->k, wide, depth, vectors, room->b);
            bw_micro_rows(rows, vectors, room->a, room->b, depth, room->d + j, TILE_COLUMNS, k > 0);
        }
    }
    BW_DTYPE_SWITCH(p->launch->precision->result, finish_tile, p, room->d, row, rows, column, columns);
}

static void blocked_share(void *context, int rank, int ranks) {
    (void)ranks;
    const product *p = context;
    blocked_room *room = (blocked_room *)p->launch->workspace + rank;
    int64_t tiles_down = bw_ceil_div(p->m, p->tile_rows), tiles = tiles_down * bw_ceil_div(p->n, p->tile_columns);
    for (int64_t tile; (tile = bw_pool_next(p->launch->device->pool)) < tiles;) {
        int64_t row = tile % tiles_down * p->tile_rows, column = tile / tiles_down * p->tile_columns;
        BW_CACHE_SWITCH(p->launch->precision->weight, blocked_tile, p, room, row, column);
    }
}

/* Tiles as large as the workspace has room for, but several for each thread. */
static bw_status blocked_launch(const bw_launch *launch) {
    product p = product_of(launch);
    int64_t wanted = TASKS_PER_THREAD * (int64_t)bw_pool_size(launch->device->pool);
    int64_t down = bw_ceil_div(p.m, TILE_ROWS);
    p.tile_rows = bw_ceil_div(p.m, down);
    int64_t columns = bw_round_up(bw_ceil_div(p.n * down, wanted), BW_MICRO_COLUMNS);
    p.tile_columns = bw_max64(BW_MICRO_COLUMNS, bw_min64(columns, TILE_COLUMNS));
    bw_pool_run(launch->device->pool, blocked_share, &p);
    return BW_OK;
}

static int64_t blocked_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)dims, (void)precision;
    return facts->units * (int64_t)sizeof(blocked_room);
}

/* Products of precisions that are not narrow, of any M. */
static bw_status plain_launch(const bw_launch *launch) {
    return launch->dims->value[BW_GEMM_M] <= GEMV_ROWS_MAX ? gemv_launch(launch) : blocked_launch(launch);
}

static int64_t plain_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return (dims->value[BW_GEMM_M] <= GEMV_ROWS_MAX ? gemv_workspace : blocked_workspace)(dims, precision, facts);
}

/* Narrow weights as results are stored, in scratch; then the product of such. */
static bw_status separate_launch(const bw_launch *launch) {
    product p = product_of(launch);
    bw_launch plain = *launch;
    p.d = launch->scratch;
    bw_pool_run(launch->device->pool, dequantize_share, &p);
    plain.precision = bw_precision_of_activations(launch->precision);
    plain.operand[BW_GEMM_B] = launch->scratch;
    plain.operand[BW_GEMM_B_SCALE] = plain.operand[BW_GEMM_B_ZERO] = plain.operand[BW_GEMM_B_WHOLE_SCALE] = NULL;
    return plain_launch(&plain);
}

static bw_checked_int separate_bytes(const bw_dims *dims) {
    return bw_mul3(dims->value[BW_GEMM_N], dims->value[BW_GEMM_K], sizeof(uint16_t));
}

static int64_t separate_scratch(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision, (void)facts;
    return separate_bytes(dims).overflow ? -1 : separate_bytes(dims).value;
}

static int64_t separate_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return plain_workspace(dims, bw_precision_of_activations(precision), facts);
}

static bw_status separate_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                               bw_cost *cost) {
    (void)precision, (void)facts;
    return bw_cost_add_intermediates(separate_bytes(dims), cost);
}

static const char bytes_at[] = "int8 M=128 N=4096 K=4096";

static const bw_variant gemm_rows[] = {
    {.name = "naive",
     .text = "one dot product per output element",
     .prediction = {.changes = "the baseline: one dot product per output element"},
     .precisions =
         BW_CPU_PRECISIONS | BW_NARROW_WEIGHT_PRECISIONS | BW_CPU_BYTES | BW_MASK(FP8_TENSOR) | BW_MASK(FP8_BLOCK),
     .rounds_once = true,
     .launch = naive_launch},
    {.name = "gemv",
     .text = "up to 8 rows of A against each row of B, which is read once",
     .precisions = BW_CPU_PRECISIONS | BW_NARROW_WEIGHT_PRECISIONS | BW_CPU_BYTES,
     .rounds_once = true,
     .launch = gemv_launch,
     .prediction = {.changes = "few rows of A: each row of B is read once, 8 of them side by side",
                    .predicted = 1.2,
                    .because = "one row of A needs B once either way; rows side by side keep more of the "
                               "memory busy; narrow weights gain more, decoded in registers",
                    .at = "fp32 M=1 N=4096 K=4096"},
     .refuses = gemv_refuses,
     .prefers = gemv_prefers,
     .workspace_bytes = gemv_workspace},
    BW_CPU_ROW_IN(BW_CPU_PRECISIONS | BW_CPU_BYTES, "blocked", blocked,
                  .text = "panels converted to fp32 in the caches, tiles of 2 vectors by 4 to 12 rows in registers",
                  .prediction = {.changes = "panels packed into the caches, tiles of 2 vectors by 4 to 12 rows in "
                                            "registers",
                                 .predicted = 6.0,
                                 .because = "14 loads for 24 products instead of 2 for 1, and no sums across a vector"},
                  .workspace_bytes = blocked_workspace),
    {.name = "separate",
     .text = "narrow weights become FP16 or BF16 in memory, then gemv or blocked",
     .prediction = {.changes = "weights unpacked to 16 bits in memory, once for all rows of A; then the 16-bit product",
                    .predicted = 16.0,
                    .because = "each weight is decoded once, not for each of 16 rows, which takes most of the time",
                    .at = "q4_0 M=16 N=4096 K=4096"},
     .precisions = BW_NARROW_WEIGHT_PRECISIONS,
     .scratch_bytes = separate_scratch,
     .workspace_bytes = separate_workspace,
     .extra_cost = separate_cost,
     .launch = separate_launch},
    {.name = "words",
     .text = "INT8 as 16-bit words, exact sums in 32 bits",
     .precisions = BW_MASK(INT8),
     .rounds_once = true,
     .launch = words_launch,
     .prediction = {.changes = "whole numbers of 16 bits instead of floats, nothing is packed",
                    .predicted = 1.5,
                    .because = "32 products in two instructions instead of 16 in one; bytes become words in one "
                               "instruction, floats in two",
                    .at = bytes_at},
     .refuses = words_refuses,
     .workspace_bytes = bytes_workspace},
    {.name = "bytes",
     .text = "INT8, four products and their sum in one instruction (AVX-512 VNNI)",
     .precisions = BW_MASK(INT8),
     .rounds_once = true,
     .launch = bytes_launch,
     .prediction = {.changes = "products of bytes are added as they are made",
                    .predicted = 2.5,
                    .because = "64 products in one instruction instead of 32 in two; at most four times as many",
                    .at = bytes_at},
     .refuses = bytes_refuses,
     .workspace_bytes = bytes_workspace},
};

const bw_variant_table BW_CPU_TABLE(gemm) = {gemm_rows, sizeof gemm_rows / sizeof gemm_rows[0],
                                             "fp32 M=512 N=512 K=512"};

/* Callers of the functions above. */
#include "cpu/simd/gemm/experts.h"
#include "cpu/simd/gemm/linear.h"
