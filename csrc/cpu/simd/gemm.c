/* gemm: A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C].
 * The variants:
 *   naive    one dot product per element of D: B is read again for every row of A;
 *   gemv     up to eight rows of A at once: each row of B is read once, straight from memory, several in flight;
 *            weights in narrow types are decoded in registers (gemv_narrow.h);
 *   blocked  panels of A and B copied to fp32 into the caches and multiplied tile by tile in registers: each element
 *            loaded there serves 12 (or 32) multiplications instead of one;
 *   separate narrow weights become FP16 in memory, then a product of FP16.
 * weight_dequantize and weight_repack: one variant each, pieces and tiles shared among the threads. */
#include "cpu/simd/product.h"

#include "base/types/blocks.h"
#include "cpu/simd/gemv_narrow.h"

enum { TILE_ROWS = 240, TILE_COLUMNS = 512, TASKS_PER_THREAD = 4 };

BW_INLINE void put(bw_dtype dtype, const product *p, int64_t at, float value) {
    bw_vf x = bw_vf_set(value);
    if (p->c) x = x + bw_vf_load_as_upto(dtype, p->c, at, 1);
    bw_vf_store_as_upto(dtype, p->d, at, x, 1);
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

/* ---- weights in narrow types, decoded to floats a piece at a time ---- */

enum { PIECE = 256 }; /* of K: whole blocks and groups of every type */

#define DECODE_BLOCKS(id, decode, from, blocks, out) \
    for (int64_t i = 0; i < (blocks); i++) decode((from) + i * BW_##id##_BYTES, (out) + i * BW_##id##_ELEMS)

/* `count` elements, at most PIECE and up to whole blocks, as they are stored. */
static void decode_stored(bw_dtype dtype, const uint8_t *from, int64_t count, float out[PIECE]) {
    const int64_t bytes = bw_ceil_div(count, 2);
    float value[16]; /* no branch for each sign and exponent */
    int64_t done = 0;
    switch (dtype) {
        case BW_INT8:
            for (int64_t i = 0; i < count; i++) out[i] = (float)(int8_t)from[i];
            break;
        case BW_FP8_E4M3:
            for (; done + 2 * BW_SIMD_FLOATS <= count; done += 2 * BW_SIMD_FLOATS) {
                for (int v = 0; v < 2; v++) {
                    const bw_vf x = bw_vf_load_e4m3((const char *)from + done, v) * bw_narrow_factor(dtype);
                    bw_vf_store(out + done + v * BW_SIMD_FLOATS, x);
                }
            }
            for (int64_t i = done; i < count; i++) out[i] = bw_fp8_e4m3_to_float(from[i]);
            break;
        case BW_UINT4:
            for (int64_t i = 0; i < bytes; i++) {
                out[2 * i] = (float)(from[i] & 15);
                out[2 * i + 1] = (float)(from[i] >> 4);
            }
            break;
        case BW_FP4_E2M1:
            for (int i = 0; i < 16; i++) value[i] = bw_fp4_e2m1_to_float((uint8_t)i);
            for (int64_t i = 0; i < bytes; i++) {
                out[2 * i] = value[from[i] & 15];
                out[2 * i + 1] = value[from[i] >> 4];
            }
            break;
        case BW_Q4_0: DECODE_BLOCKS(Q4_0, bw_q4_0_decode, from, bw_ceil_div(count, BW_Q4_0_ELEMS), out); break;
        case BW_Q8_0: DECODE_BLOCKS(Q8_0, bw_q8_0_decode, from, bw_ceil_div(count, BW_Q8_0_ELEMS), out); break;
        case BW_Q4_K: DECODE_BLOCKS(Q4_K, bw_q4_k_decode, from, bw_ceil_div(count, BW_Q4_K_ELEMS), out); break;
        default: abort();
    }
}

/* Elements [k, k + count) of row `row` of B, scaled; k is a multiple of PIECE. */
static void read_piece(const product *p, int64_t row, int64_t k, int64_t count, float out[PIECE]) {
    const bw_precision *precision = p->launch->precision;
    const bw_scaling *scaling = precision->weight_scales;
    const bw_dtype_info *info = bw_dtype_get(precision->weight);
    const char *from = (const char *)p->b + row * bw_ceil_div(p->k, info->block_elems) * info->block_bytes;
    decode_stored(precision->weight, (const uint8_t *)from + k / info->block_elems * info->block_bytes, count, out);
    if (scaling->type == BW_NONE) return;
    void *const *operand = p->launch->operand;
    const int64_t each = scaling->columns ? scaling->columns : p->k;
    const int64_t groups = bw_ceil_div(p->k, each), high = scaling->rows ? row / scaling->rows : 0;
    float whole = 1.0f;
    if (scaling->whole != BW_NONE) whole = load_scalar(scaling->whole, operand[BW_GEMM_B_WHOLE_SCALE], 0);
    for (int64_t i = 0; i < count;) {
        const int64_t group = (k + i) / each, end = bw_min64(count, (group + 1) * each - k);
        const float scale = whole * load_scalar(scaling->type, operand[BW_GEMM_B_SCALE], high * groups + group);
        float zero = 0.0f;
        if (scaling->zero != BW_NONE) {
            const int64_t stored_row = bw_dtype_bytes(scaling->zero, groups);
            zero = load_scalar(scaling->zero, (const char *)operand[BW_GEMM_B_ZERO] + high * stored_row, group);
        }
        for (; i < end; i++) out[i] = (out[i] - zero) * scale;
    }
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
            BW_DTYPE_SWITCH(p->launch->precision->activation, bw_unpack, p->a, at / p->n * p->k + k, count, a);
            read_piece(p, at % p->n, k, count, b);
            total += dot_piece(a, b, count);
        }
        BW_DTYPE_SWITCH(p->launch->precision->result, put, p, at, total);
    }
}

static void naive_share(void *context, int rank, int ranks) {
    const product *p = context;
    int64_t first, last;
    bw_pool_share(p->m * p->n, rank, ranks, &first, &last);
    if (is_narrow(p->launch->precision)) {
        naive_narrow_stretch(p, first, last);
        return;
    }
    BW_DTYPE_SWITCH(p->launch->precision->weight, naive_stretch, p, first, last);
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

/* Each thread converts A for itself: that is cheaper than waiting for another to do it. */
static void gemv_share(void *context, int rank, int ranks) {
    const product *p = context;
    const bw_dtype dtype = p->launch->precision->activation;
    int64_t first, last;
    bw_pool_share(p->n, rank, ranks, &first, &last);
    if (first == last) return;
    if (is_narrow(p->launch->precision)) {
        const int64_t room = narrow_room(p->launch->precision->weight_scales, p->m, p->k);
        narrow_stretch(p, (float *)p->launch->workspace + rank * room, first, last);
        return;
    }
    const float *a = p->a;
    if (dtype != BW_FP32) {
        float *copy = (float *)p->launch->workspace + (int64_t)rank * bw_round_up(p->m * p->k, 64);
        BW_DTYPE_SWITCH(dtype, bw_unpack, p->a, 0, p->m * p->k, copy);
        a = copy;
    }
    BW_DTYPE_SWITCH(dtype, gemv_stretch, p, a, first, last);
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
    (void)precision, (void)facts;
    return dims->value[BW_GEMM_M] <= GEMV_ROWS_MAX;
}

static int64_t gemv_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t m = dims->value[BW_GEMM_M], k = dims->value[BW_GEMM_K];
    if (is_narrow(precision)) return 4 * facts->units * narrow_room(precision->weight_scales, m, k);
    return precision->activation == BW_FP32 ? 0 : 4 * facts->units * bw_round_up(m * k, 64);
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
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j += BW_SIMD_FLOATS) {
            int64_t at = (row + i) * p->n + column + j;
            bw_vf x = bw_vf_load(sums + i * TILE_COLUMNS + j);
            if (p->c) x = x + bw_vf_load_as_upto(dtype, p->c, at, columns - j);
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
    finish_tile(dtype, p, room->d, row, rows, column, columns);
}

static void blocked_share(void *context, int rank, int ranks) {
    (void)ranks;
    const product *p = context;
    blocked_room *room = (blocked_room *)p->launch->workspace + rank;
    int64_t tiles_down = bw_ceil_div(p->m, p->tile_rows), tiles = tiles_down * bw_ceil_div(p->n, p->tile_columns);
    for (int64_t tile; (tile = bw_pool_next(p->launch->device->pool)) < tiles;) {
        int64_t row = tile % tiles_down * p->tile_rows, column = tile / tiles_down * p->tile_columns;
        BW_DTYPE_SWITCH(p->launch->precision->weight, blocked_tile, p, room, row, column);
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

/* ---- weights alone, and products of what became of them ---- */

static product weights_of(const bw_launch *launch) {
    return (product){.launch = launch,
                     .n = launch->dims->value[BW_WEIGHT_N],
                     .k = launch->dims->value[BW_WEIGHT_K],
                     .b = launch->operand[BW_GEMM_B],
                     .d = launch->operand[BW_GEMM_D]};
}

BW_INLINE void put_piece(bw_dtype dtype, const float *values, int64_t count, void *to, int64_t at) {
    for (int64_t i = 0; i < count; i += BW_SIMD_FLOATS) {
        bw_vf_store_as_upto(dtype, to, at + i, bw_vf_load_as_upto(BW_FP32, values, i, count - i), count - i);
    }
}

static void dequantize_share(void *context, int rank, int ranks) {
    const product *p = context;
    const int64_t pieces = bw_ceil_div(p->k, PIECE);
    int64_t first, last;
    bw_pool_share(p->n * pieces, rank, ranks, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = i / pieces, k = i % pieces * PIECE, count = bw_min64(PIECE, p->k - k);
        float values[PIECE];
        read_piece(p, row, k, count, values);
        BW_DTYPE_SWITCH(p->launch->precision->result, put_piece, values, count, p->d, row * p->k + k);
    }
}

/* Narrow weights as results are stored, FP16, in scratch; then the product of FP16. */
static bw_status separate_launch(const bw_launch *launch) {
    product p = product_of(launch);
    bw_launch plain = *launch;
    p.d = launch->scratch;
    bw_pool_run(launch->device->pool, dequantize_share, &p);
    plain.precision = bw_precision_get(BW_PRECISION_FP16);
    plain.operand[BW_GEMM_B] = launch->scratch;
    return p.m <= GEMV_ROWS_MAX ? gemv_launch(&plain) : blocked_launch(&plain);
}

static bw_checked_int separate_bytes(const bw_dims *dims) {
    return bw_mul3(dims->value[BW_GEMM_N], dims->value[BW_GEMM_K], sizeof(uint16_t));
}

static int64_t separate_scratch(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision, (void)facts;
    return separate_bytes(dims).overflow ? -1 : separate_bytes(dims).value;
}

static int64_t separate_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision;
    const bw_precision *plain = bw_precision_get(BW_PRECISION_FP16);
    return dims->value[BW_GEMM_M] <= GEMV_ROWS_MAX ? gemv_workspace(dims, plain, facts)
                                                   : blocked_workspace(dims, plain, facts);
}

static bw_status separate_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                               bw_cost *cost) {
    (void)precision, (void)facts;
    return bw_cost_add_intermediates(separate_bytes(dims), cost);
}

static const bw_variant rows[] = {
    {.name = "naive",
     .text = "one dot product per output element",
     .prediction = {.changes = "the baseline: one dot product per output element"},
     .precisions = BW_CPU_PRECISIONS | BW_NARROW_WEIGHT_PRECISIONS,
     .rounds_once = true,
     .launch = naive_launch},
    {.name = "gemv",
     .text = "up to 8 rows of A against each row of B, which is read once",
     .precisions = BW_CPU_PRECISIONS | BW_NARROW_WEIGHT_PRECISIONS,
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
    BW_CPU_ROW("blocked", blocked,
               .text = "panels converted to fp32 in the caches, tiles of 2 vectors by 4 to 12 rows in registers",
               .prediction = {.changes = "panels packed into the caches, tiles of 2 vectors by 4 to 12 rows in "
                                         "registers",
                              .predicted = 6.0,
                              .because = "14 loads for 24 products instead of 2 for 1, and no sums across a vector"},
               .workspace_bytes = blocked_workspace),
    {.name = "separate",
     .text = "narrow weights become FP16 in memory, then gemv or blocked",
     .prediction = {.changes = "narrow weights as FP16 in memory, once for all rows of A; then the product of FP16",
                    .predicted = 16.0,
                    .because = "each weight is decoded once, not for each of 16 rows, which takes most of the time",
                    .at = "q4_0 M=16 N=4096 K=4096"},
     .precisions = BW_NARROW_WEIGHT_PRECISIONS,
     .scratch_bytes = separate_scratch,
     .workspace_bytes = separate_workspace,
     .extra_cost = separate_cost,
     .launch = separate_launch},
};

const bw_variant_table BW_CPU_TABLE(gemm) = {rows, sizeof rows / sizeof rows[0], "fp32 M=512 N=512 K=512"};

static bw_status dequantize_launch(const bw_launch *launch) {
    product p = weights_of(launch);
    bw_pool_run(launch->device->pool, dequantize_share, &p);
    return BW_OK;
}

static const bw_variant dequantize_rows[] = {
    {.name = "rows",
     .text = "256 weights of a row after the other, all threads",
     .prediction = {.changes = "the only variant: 256 weights of a row after the other, all threads"},
     .precisions = BW_NARROW_WEIGHT_PRECISIONS,
     .rounds_once = true,
     .launch = dequantize_launch},
};
const bw_variant_table BW_CPU_TABLE(weight_dequantize) = {dequantize_rows, 1, NULL};

/* Word `word` of a tile's block, see ops/families/gemm.h: of the block's lower halves of bytes, or of its upper ones.
 */
static uint32_t repack_word(const char *block, int word) {
    uint32_t first, second;
    memcpy(&first, block + 2 + word % 2 * 8, sizeof first);
    memcpy(&second, block + 6 + word % 2 * 8, sizeof second);
    const uint32_t pairs = (first >> word / 2 * 4 & 0x0f0f0f0fu) | (second >> word / 2 * 4 & 0x0f0f0f0fu) << 4;
    return (pairs & 0xff0000ffu) | (pairs & 0xff00u) << 8 | (pairs >> 8 & 0xff00u);
}

/* A tile: the words of its blocks, and their scales. */
static void repack_tile(const char *from, int64_t row_bytes, int64_t rows, int64_t blocks, char *words, char *scales) {
    for (int64_t r = 0; r < rows; r++, from += row_bytes) {
        for (int word = 0; word < BW_Q4_0_HALF / 4; word++) {
            for (int64_t g = 0; g < blocks; g++, words += 4) {
                const uint32_t repacked = repack_word(from + g * BW_Q4_0_BYTES, word);
                memcpy(words, &repacked, sizeof repacked);
            }
        }
        for (int64_t g = 0; g < blocks; g++, scales += 2) memcpy(scales, from + g * BW_Q4_0_BYTES, 2);
    }
}

static void repack_share(void *context, int rank, int ranks) {
    const product *p = context;
    const int64_t row_blocks = bw_ceil_div(p->k, BW_Q4_0_ELEMS), row_bytes = row_blocks * BW_Q4_0_BYTES;
    const int64_t wide = bw_ceil_div(row_blocks, BW_Q4_0_TILE_BLOCKS);
    int64_t first, last;
    bw_pool_share(bw_ceil_div(p->n, BW_Q4_0_TILE_ROWS) * wide, rank, ranks, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = i / wide * BW_Q4_0_TILE_ROWS, rows = bw_min64(BW_Q4_0_TILE_ROWS, p->n - row);
        const int64_t block = i % wide * BW_Q4_0_TILE_BLOCKS,
                      blocks = bw_min64(BW_Q4_0_TILE_BLOCKS, row_blocks - block);
        const char *from = (const char *)p->b + row * row_bytes + block * BW_Q4_0_BYTES;
        char *to = (char *)p->d + row * row_bytes;
        repack_tile(from, row_bytes, rows, blocks, to + block * rows * BW_Q4_0_HALF,
                    to + rows * (row_blocks * BW_Q4_0_HALF + block * 2));
    }
}

static bw_status repack_launch(const bw_launch *launch) {
    product p = weights_of(launch);
    bw_pool_run(launch->device->pool, repack_share, &p);
    return BW_OK;
}

static const bw_variant repack_rows[] = {
    {.name = "tiles",
     .text = "a tile after the other, all threads",
     .prediction = {.changes = "the only variant: a tile after the other, all threads"},
     .precisions = BW_MASK(Q4_0),
     .launch = repack_launch},
};
const bw_variant_table BW_CPU_TABLE(weight_repack) = {repack_rows, 1, NULL};
