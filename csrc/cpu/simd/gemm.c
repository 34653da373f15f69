/* gemm: A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C].
 * The variants:
 *   naive    one dot product per element of D: B is read again for every row of A;
 *   gemv     up to eight rows of A at once: each row of B is read once, straight from memory, several in flight;
 *   blocked  panels of A and B copied to fp32 into the caches and multiplied tile by tile in registers: each element
 *            loaded there serves 12 (or 32) multiplications instead of one. */
#include "ops/families/gemm.h"

#include "base/types/blocks.h"
#include "cpu/device.h"
#include "cpu/simd/copy.h"
#include "cpu/simd/narrow.h"

/* Running sums of gemv that fit the registers beside its operands. */
enum { GEMV_TOTALS = BW_SIMD_FLOATS == 16 ? 24 : 8 };
enum { GEMV_ROWS_MAX = 8, TILE_ROWS = 240, TILE_COLUMNS = 512, TASKS_PER_THREAD = 4 };

typedef struct product {
    const bw_launch *launch;
    int64_t m, n, k;
    const void *a, *b, *c; /* c NULL: beta is 0 */
    void *d;
    int64_t tile_rows, tile_columns;
} product;

static product product_of(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    product p = {.launch = launch,
                 .m = dims[BW_GEMM_M],
                 .n = dims[BW_GEMM_N],
                 .k = dims[BW_GEMM_K],
                 .a = launch->operand[BW_GEMM_A],
                 .b = launch->operand[BW_GEMM_B],
                 .c = dims[BW_GEMM_BETA] ? launch->operand[BW_GEMM_C] : NULL,
                 .d = launch->operand[BW_GEMM_D]};
    return p;
}

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

/* `count` elements, up to whole blocks, as they are stored. */
static void decode_stored(bw_dtype dtype, const uint8_t *from, int64_t count, float *out) {
    switch (dtype) {
        case BW_INT8:
            for (int64_t i = 0; i < count; i++) out[i] = (float)(int8_t)from[i];
            break;
        case BW_FP8_E4M3:
            for (int64_t i = 0; i < count; i++) out[i] = bw_fp8_e4m3_to_float(from[i]);
            break;
        case BW_UINT4:
            for (int64_t i = 0; i < count; i++) out[i] = (float)(from[i / 2] >> i % 2 * 4 & 15);
            break;
        case BW_FP4_E2M1:
            for (int64_t i = 0; i < count; i++) out[i] = bw_fp4_e2m1_to_float(from[i / 2] >> i % 2 * 4 & 15);
            break;
        case BW_Q4_0: DECODE_BLOCKS(Q4_0, bw_q4_0_decode, from, bw_ceil_div(count, BW_Q4_0_ELEMS), out); break;
        case BW_Q8_0: DECODE_BLOCKS(Q8_0, bw_q8_0_decode, from, bw_ceil_div(count, BW_Q8_0_ELEMS), out); break;
        case BW_Q4_K: DECODE_BLOCKS(Q4_K, bw_q4_k_decode, from, bw_ceil_div(count, BW_Q4_K_ELEMS), out); break;
        default: abort();
    }
}

static float load_scalar(bw_dtype dtype, const void *from, int64_t index) {
    switch (dtype) {
        case BW_FP32: return ((const float *)from)[index];
        case BW_FP16: return bw_fp16_to_float(((const uint16_t *)from)[index]);
        case BW_FP8_E4M3: return bw_fp8_e4m3_to_float(((const uint8_t *)from)[index]);
        case BW_E8M0: return bw_e8m0_to_float(((const uint8_t *)from)[index]);
        case BW_UINT4: return (float)(((const uint8_t *)from)[index / 2] >> index % 2 * 4 & 15);
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

/* ---- gemv with weights in narrow types ---- */

enum { NARROW_COLUMNS = 4, NARROW_AHEAD = 8192, NARROW_AHEAD_MOST = 128 << 10, NARROW_SCALES_AHEAD = 4 };

/* One rank's: A packed and its sums, the scales of a block's rows of B. */
typedef struct narrow_share {
    const product *p;
    const float *a, *sums;
    bw_narrow_row row[NARROW_COLUMNS];
    int64_t row_bytes, groups, scales_bytes, zeros_bytes; /* of a row of B */
    int group_bits;                                       /* 2^group_bits elements share a scale */
} narrow_share;

static int64_t scales_room(const bw_scaling *scaling, int64_t k) {
    return scaling->columns ? bw_round_up(bw_ceil_div(k, scaling->columns), BW_SIMD_FLOATS) + BW_SIMD_FLOATS : 0;
}

/* Floats of one rank's workspace. */
static int64_t narrow_room(const bw_scaling *scaling, int64_t m, int64_t k) {
    const int64_t packed = bw_narrow_packed_floats(m, k) + m * bw_narrow_sums_floats(k);
    return bw_round_up(packed + 2 * NARROW_COLUMNS * scales_room(scaling, k), 64);
}

/* What a row's sum is multiplied by: its own scale, or that of the whole matrix. */
static float read_row_scale(const product *p, int64_t row) {
    const bw_scaling *scaling = p->launch->precision->weight_scales;
    void *const *operand = p->launch->operand;
    if (scaling->whole != BW_NONE) return load_scalar(scaling->whole, operand[BW_GEMM_B_WHOLE_SCALE], 0);
    if (scaling->type == BW_NONE || scaling->columns) return 1.0f;
    return load_scalar(scaling->type, operand[BW_GEMM_B_SCALE], scaling->rows ? row / scaling->rows : 0);
}

/* Row `row` of a matrix with rows of `bytes` bytes; rows that come later are asked for. */
BW_INLINE const char *scales_row(const void *matrix, int64_t row, int64_t bytes) {
    const char *at = (const char *)matrix + row * bytes;
    for (int64_t i = 0; i < bytes; i += BW_LINE_BYTES) __builtin_prefetch(at + NARROW_SCALES_AHEAD * bytes + i);
    return at;
}

/* The scales of a row's groups, and what the zero points add to a sum of A. */
static void read_group_scales(const narrow_share *share, int64_t row, const bw_narrow_row *out) {
    const bw_scaling *scaling = share->p->launch->precision->weight_scales;
    void *const *operand = share->p->launch->operand;
    const int64_t groups = share->groups, high = scaling->rows == 1 ? row : scaling->rows ? row / scaling->rows : 0;
    float *restrict scales = out->scales, *shifts = out->shifts;
    const char *from = scales_row(operand[BW_GEMM_B_SCALE], high, share->scales_bytes);
    int64_t i = 0;
    bw_vf_store(scales + groups / BW_SIMD_FLOATS * BW_SIMD_FLOATS, bw_vf_set(0.0f));
    switch (scaling->type) {
        case BW_FP16: bw_unpack(BW_FP16, from, 0, groups, scales); break;
        case BW_E8M0:
            for (; i < groups; i++) scales[i] = bw_e8m0_to_float((uint8_t)from[i]);
            break;
        case BW_FP8_E4M3:
            for (; i + 2 * BW_SIMD_FLOATS <= groups; i += 2 * BW_SIMD_FLOATS) {
                for (int v = 0; v < 2; v++) {
                    const bw_vf scale = bw_vf_load_e4m3(from + i, v);
                    bw_vf_store(scales + i + v * BW_SIMD_FLOATS, scale * bw_narrow_factor(BW_FP8_E4M3));
                }
            }
            for (; i < groups; i++) scales[i] = bw_fp8_e4m3_to_float((uint8_t)from[i]);
            break;
        default: abort();
    }
    if (scaling->zero == BW_NONE) return;
    const char *zeros = scales_row(operand[BW_GEMM_B_ZERO], high, share->zeros_bytes); /* UINT4 */
    for (i = 0; i < groups; i += BW_SIMD_FLOATS) {
        uint64_t bits = 0;
        if (i + BW_SIMD_FLOATS <= groups) {
            memcpy(&bits, zeros + i / 2, BW_SIMD_FLOATS / 2);
        } else {
            memcpy(&bits, zeros + i / 2, (size_t)(groups - i + 1) / 2);
        }
        bw_vf_store(shifts + i, -bw_vf_from_uint4(bw_vu_nibbles(bits), 0) * bw_vf_load(scales + i));
    }
}

/* One row of A takes one stream of B, which the memory likes best, and several sums, which need not wait for each
 * other; several rows share what they load. */
BW_INLINE int narrow_columns(int rows) {
    if (rows == 1) return 1;
    return rows * 4 <= GEMV_TOTALS ? 4 : rows * 3 <= GEMV_TOTALS ? 3 : rows * 2 <= GEMV_TOTALS ? 2 : 1;
}

/* Sums of one row of A with one of B, side by side. */
BW_INLINE int narrow_chains(const bw_dtype dtype, int rows) {
    return rows > 1 ? 1 : bw_narrow_of(dtype).scales ? 2 : 4;
}

/* One unit of `columns` rows of B. A single row of A meets weights as they are stored, and its sum over a unit is
 * scaled; several meet weights that are scaled once for all of them. */
BW_INLINE void narrow_unit(const int rows, const bw_dtype dtype, const int columns, const narrow_share *share,
                           int64_t k, const char *const chunk[], int unit, const float *a,
                           const float inner[][BW_Q4_K_SCALES], bw_vf total[GEMV_ROWS_MAX][NARROW_COLUMNS]) {
    const bw_narrow narrow = bw_narrow_of(dtype);
    const int chains = narrow_chains(dtype, rows);
    const bool late = rows == 1 && narrow.scales;
    bw_narrow_scales scales[NARROW_COLUMNS];
    bw_vf part[4][NARROW_COLUMNS], b[NARROW_COLUMNS];
    bw_vu word[NARROW_COLUMNS];
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
        word[j] = bw_narrow_word(dtype, chunk[j], unit);
        scales[j] = bw_narrow_scales_of(dtype, &share->row[j], k, share->group_bits, chunk[j], unit, inner[j]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < narrow.vectors; v++) {
        const int s = narrow.scales ? v % narrow.scales : 0;
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
            b[j] = bw_narrow_load(dtype, word[j], chunk[j], unit, v);
            if (rows > 1 && narrow.scales) b[j] *= scales[j].scale[s];
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const bw_vf x = bw_vf_load(a + (i * narrow.vectors + v) * BW_SIMD_FLOATS);
#pragma GCC unroll 4
            for (int j = 0; j < columns; j++) {
                bw_vf *sum = late ? &part[v % chains][j] : &total[rows == 1 ? v % chains : i][j];
                *sum = late && v < chains ? x * b[j] : bw_vf_fma(x, b[j], *sum);
            }
        }
    }
    if (!late) return;
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
#pragma GCC unroll 2
        for (int i = 0; i < chains; i++) {
            total[i][j] = bw_vf_fma(part[i][j], scales[j].scale[i % narrow.scales], total[i][j]);
        }
    }
}

#if BW_SIMD_PAIRS
/* The same of one row of A, packed as pairs. */
BW_INLINE void narrow_unit_pairs(const bw_dtype dtype, const narrow_share *share, int64_t k, const char *chunk,
                                 int unit, const float *a, const float inner[], bw_vf total[][NARROW_COLUMNS]) {
    const int scales = bw_narrow_of(dtype).scales;
    const bw_vu word = bw_narrow_word(dtype, chunk, unit);
    const bw_narrow_scales scale = bw_narrow_scales_of(dtype, &share->row[0], k, share->group_bits, chunk, unit, inner);
    bw_vf part[2] = {bw_vf_set(0.0f), bw_vf_set(0.0f)};
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++, a += 2 * BW_SIMD_FLOATS) {
        const bw_vw b = bw_narrow_pairs(dtype, word, n);
        part[n % 2] = bw_vf_add_pairs(bw_vf_add_pairs(part[n % 2], b, a), b, a + BW_SIMD_FLOATS);
    }
    total[0][0] = bw_vf_fma(part[0], scale.scale[0], total[0][0]);
    total[1][0] = bw_vf_fma(part[1], scale.scale[1 % scales], total[1][0]);
}
#endif

/* The last units of rows, whose bytes are followed by zeros in `room`. */
static void copy_rest(const narrow_share *share, int columns, const char *chunk[],
                      char room[NARROW_COLUMNS][BW_CHUNK_BYTES_MAX]) {
    memset(room, 0, sizeof(char[NARROW_COLUMNS][BW_CHUNK_BYTES_MAX]));
    for (int j = 0; j < columns; j++) {
        memcpy(room[j], chunk[j], (size_t)(share->row[j].data + share->row_bytes - chunk[j]));
        chunk[j] = room[j];
    }
}

/* `count` neighbors in row `row` of D, from the running sums of each. */
BW_INLINE void put_sums(bw_dtype dtype, const product *p, int64_t row, int64_t column, int64_t count, float factor,
                        bw_vf sums[BW_SIMD_FLOATS]) {
    const int64_t at = row * p->n + column;
    float scale[BW_SIMD_FLOATS];
    for (int64_t i = 0; i < BW_SIMD_FLOATS; i++) scale[i] = i < count ? factor * read_row_scale(p, column + i) : 0.0f;
    bw_vf x = bw_vf_sums(sums) * bw_vf_load(scale);
    if (p->c) x = x + bw_vf_load_as_upto(dtype, p->c, at, count);
    bw_vf_store_as_upto(dtype, p->d, at, x, count);
}

/* Not inlined: it takes little time, and much code in each of many loops. */
static __attribute__((noinline)) void narrow_finish(const product *p, float factor, int64_t column, int64_t count,
                                                    bw_vf (*sums)[BW_SIMD_FLOATS]) {
    for (int64_t i = 0; i < p->m; i++) {
        BW_DTYPE_SWITCH(p->launch->precision->result, put_sums, p, i, column, count, factor, sums[i]);
    }
}

/* What the zero points of a row of B add, group by group. */
BW_INLINE bw_vf add_shifts(const narrow_share *share, int j, int64_t row, bw_vf total) {
    const float *sums = share->sums + row * bw_narrow_sums_floats(share->p->k), *shifts = share->row[j].shifts;
    for (int64_t i = 0; i < share->groups; i += BW_SIMD_FLOATS) {
        total = bw_vf_fma(bw_vf_load(shifts + i), bw_vf_load(sums + i), total);
    }
    return total;
}

/* Q4_K's minima of a chunk against the sums of A. */
BW_INLINE void narrow_minima(const int rows, const int columns, const narrow_share *share, int64_t k,
                             const float inner[][BW_Q4_K_SCALES], bw_vf total[GEMV_ROWS_MAX][NARROW_COLUMNS]) {
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const float *sums = share->sums + i * bw_narrow_sums_floats(share->p->k) + k / 16;
#pragma GCC unroll 4
        for (int at = BW_SIMD_FLOATS == 16 ? 0 : 8; at < BW_Q4_K_SCALES; at += BW_SIMD_FLOATS) {
#pragma GCC unroll 4
            for (int j = 0; j < columns; j++) {
                total[i][j] = bw_vf_fma(bw_vf_load(sums + at), bw_vf_load(inner[j] + at), total[i][j]);
            }
        }
    }
}

/* Running sums of `rows` rows of A with `columns` rows of B. */
BW_INLINE void narrow_block(const int rows, const bw_dtype dtype, const int columns, const bool pairs,
                            const narrow_share *share, bw_vf (*sums)[BW_SIMD_FLOATS]) {
    const int64_t depth = share->p->k;
    const bw_narrow narrow = bw_narrow_of(dtype);
    const int unit_elems = narrow.vectors * BW_SIMD_FLOATS;
    const int totals = rows > 1 ? rows : narrow.scales ? 2 : 4;
    /* One stream goes on; several go on where the next ones begin. */
    const int64_t ahead = columns == 1 ? NARROW_AHEAD : bw_min64(columns * share->row_bytes, NARROW_AHEAD_MOST);
    const float *a = share->a;
    float inner[NARROW_COLUMNS][BW_Q4_K_SCALES];
    bw_vf total[GEMV_ROWS_MAX][NARROW_COLUMNS];
    const char *chunk[NARROW_COLUMNS];
    char rest[NARROW_COLUMNS][BW_CHUNK_BYTES_MAX];
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
        chunk[j] = share->row[j].data;
#pragma GCC unroll 8
        for (int i = 0; i < totals; i++) total[i][j] = bw_vf_set(0.0f);
    }
    for (int64_t k = 0; k < depth; k += BW_CHUNK) {
        int left = (int)bw_min64(depth - k, BW_CHUNK);
        if (left < BW_CHUNK) copy_rest(share, columns, chunk, rest);
        if (dtype == BW_Q4_K) left = BW_CHUNK; /* its last elements are in no simple place */
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
#pragma GCC unroll 8
            for (int i = 0; i < narrow.chunk_bytes; i += BW_LINE_BYTES) __builtin_prefetch(chunk[j] + i + ahead);
            if (dtype == BW_Q4_K) bw_q4_k_scales(chunk[j], inner[j]);
        }
        if (dtype == BW_Q4_K) narrow_minima(rows, columns, share, k, inner, total);
#pragma GCC unroll 2
        for (int unit = 0; unit * unit_elems < left; unit++, a += rows * unit_elems) {
#if !BW_SIMD_PAIRS
            (void)pairs;
#else
            if (pairs) {
                narrow_unit_pairs(dtype, share, k + unit * unit_elems, chunk[0], unit, a, inner[0], total);
                continue;
            }
#endif
            narrow_unit(rows, dtype, columns, share, k + unit * unit_elems, chunk, unit, a, inner, total);
        }
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) chunk[j] += narrow.chunk_bytes;
    }
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
#pragma GCC unroll 4
        for (int i = rows; i < totals; i++) total[0][j] += total[i][j];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            if (dtype == BW_UINT4) total[i][j] = add_shifts(share, j, i, total[i][j]);
            sums[i][j] = total[i][j];
        }
    }
}

BW_INLINE void narrow_rows(const int rows, const bw_dtype dtype, narrow_share *share, int64_t first, int64_t last) {
    if (rows > GEMV_ROWS_MAX) return;
    const int columns = narrow_columns(rows), batch = BW_SIMD_FLOATS / columns * columns;
    const product *p = share->p;
    const bool pairs = bw_narrow_pairs_run(dtype, p->launch->precision->activation, rows);
    bw_vf sums[GEMV_ROWS_MAX][BW_SIMD_FLOATS];
    memset(sums, 0, sizeof sums);
    for (int64_t column = first; column < last; column += batch) {
        const int64_t count = bw_min64(batch, last - column);
        for (int64_t block = 0; block < count; block += columns) {
            for (int j = 0; j < columns; j++) {
                const int64_t row = column + bw_min64(block + j, count - 1); /* the last one again is not stored */
                share->row[j].data = (const char *)p->b + row * share->row_bytes;
                if (share->groups) read_group_scales(share, row, &share->row[j]);
            }
            bw_vf(*out)[BW_SIMD_FLOATS] = (bw_vf(*)[BW_SIMD_FLOATS]) & sums[0][block];
            if (pairs) {
                narrow_block(rows, dtype, columns, true, share, out);
            } else {
                narrow_block(rows, dtype, columns, false, share, out);
            }
        }
        narrow_finish(p, bw_narrow_factor(dtype), column, count, sums);
    }
}

BW_INLINE void narrow_stretch_of(const bw_dtype dtype, const product *p, float *room, int64_t first, int64_t last) {
    const bw_precision *precision = p->launch->precision;
    const bw_scaling *scaling = precision->weight_scales;
    narrow_share share = {.p = p, .a = room, .row_bytes = bw_dtype_bytes(dtype, p->k)};
    while (1 << share.group_bits < scaling->columns) share.group_bits++;
    if (scaling->columns) {
        share.groups = bw_ceil_div(p->k, scaling->columns);
        share.scales_bytes = bw_dtype_bytes(scaling->type, share.groups);
        share.zeros_bytes = bw_dtype_bytes(scaling->zero, share.groups);
    }
    bw_narrow_pack(dtype, precision->activation, p->a, p->m, p->k, share.group_bits, room);
    room += bw_narrow_packed_floats(p->m, p->k);
    share.sums = room;
    room += p->m * bw_narrow_sums_floats(p->k);
    const int64_t scales = scales_room(scaling, p->k);
    for (int j = 0; j < NARROW_COLUMNS; j++) {
        share.row[j] = (bw_narrow_row){.scales = room + 2 * j * scales, .shifts = room + (2 * j + 1) * scales};
    }
    BW_COUNT_SWITCH(p->m, narrow_rows, dtype, &share, first, last);
}

/* A function a type, so that its loops keep to the registers. */
#define NARROW_STRETCH(id)                                                                                  \
    static __attribute__((noinline)) void narrow_stretch_##id(const product *p, float *room, int64_t first, \
                                                              int64_t last) {                               \
        narrow_stretch_of(BW_##id, p, room, first, last);                                                   \
    }
BW_NARROW_TYPES(NARROW_STRETCH)
#undef NARROW_STRETCH

static void narrow_stretch(const product *p, float *room, int64_t first, int64_t last) {
    switch (p->launch->precision->weight) {
#define NARROW_CASE(id) \
    case BW_##id: narrow_stretch_##id(p, room, first, last); break;
        BW_NARROW_TYPES(NARROW_CASE)
#undef NARROW_CASE
        default: abort();
    }
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

enum {
    NARROW_WEIGHTS = BW_MASK(Q4_0) | BW_MASK(FP8_W8A16) | BW_MASK(INT8_W8A16) | BW_MASK(Q8_0) | BW_MASK(Q4_K) |
                     BW_MASK(INT4_G32) | BW_MASK(INT4_G64) | BW_MASK(INT4_G128) | BW_MASK(MXFP4) | BW_MASK(NVFP4)
};

static const bw_variant rows[] = {
    {.name = "naive",
     .text = "one dot product per output element",
     .prediction = {.changes = "the baseline: one dot product per output element"},
     .precisions = BW_CPU_PRECISIONS | NARROW_WEIGHTS,
     .rounds_once = true,
     .launch = naive_launch},
    {.name = "gemv",
     .text = "up to 8 rows of A against each row of B, which is read once",
     .precisions = BW_CPU_PRECISIONS | NARROW_WEIGHTS,
     .rounds_once = true,
     .launch = gemv_launch,
     .prediction = {.changes = "few rows of A: each row of B is read once, 8 of them side by side",
                    .predicted = 1.2,
                    .because = "one row of A needs B once either way; rows side by side keep more of the "
                               "memory busy",
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
};

const bw_variant_table BW_CPU_TABLE(gemm) = {rows, sizeof rows / sizeof rows[0], "fp32 M=512 N=512 K=512"};
