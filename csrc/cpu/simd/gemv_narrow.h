/* gemv with weights in narrow types: they are decoded in registers, a unit at a time (narrow.h), and never written. */
#pragma once

#include "cpu/simd/copy.h"
#include "cpu/simd/narrow.h"
#include "cpu/simd/product.h"

enum { NARROW_COLUMNS = 4, NARROW_AHEAD = 6144, NARROW_AHEAD_MOST = 128 << 10, NARROW_SCALES_AHEAD = 8 };

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

/* One row of A takes one row of B at a time, a single stream, and several sums, which need not wait for each other.
 * Several rows of A share what they load, and so do rows of B where pairs leave registers and time for it. */
BW_INLINE int narrow_columns(int rows, int parts) {
    if (rows == 1) return parts ? NARROW_COLUMNS : 1;
    return rows * 4 <= GEMV_TOTALS ? 4 : rows * 3 <= GEMV_TOTALS ? 3 : rows * 2 <= GEMV_TOTALS ? 2 : 1;
}

/* Sums of one row of A with one of B, side by side. */
BW_INLINE int narrow_chains(const bw_dtype dtype, int rows) {
    return rows > 1 ? 1 : bw_narrow_of(dtype).scales ? 2 : 4;
}

/* One unit of `columns` rows of B against one row of A, split into `parts` BF16 numbers, in pairs. */
BW_INLINE void narrow_unit_pairs(const bw_dtype dtype, const int columns, const int parts, const narrow_share *share,
                                 int64_t k, const char *const chunk[], int unit, const float *a,
                                 const float inner[][BW_Q4_K_SCALES], bw_vf total[][NARROW_COLUMNS]) {
    const int scales = bw_narrow_of(dtype).scales;
    bw_vu word[NARROW_COLUMNS];
    bw_vf part[2][NARROW_COLUMNS];
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
        word[j] = bw_narrow_word(dtype, chunk[j], unit);
        part[0][j] = part[1][j] = bw_vf_set(0.0f);
    }
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++, a += 2 * BW_SIMD_FLOATS) {
        const bw_vf upper = bw_vf_load(a), lower = bw_vf_load(a + BW_SIMD_FLOATS);
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
            const bw_vw b = bw_narrow_pairs(dtype, word[j], n);
            part[n % 2][j] = bw_vf_add_pairs(part[n % 2][j], b, upper);
            if (parts == 2) part[n % 2][j] = bw_vf_add_pairs(part[n % 2][j], b, lower);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < columns; j++) {
        const bw_narrow_scales scale =
            bw_narrow_scales_of(dtype, &share->row[j], k, share->group_bits, chunk[j], unit, inner[j]);
        total[0][j] = bw_vf_fma(part[0][j], scale.scale[0], total[0][j]);
        total[1][j] = bw_vf_fma(part[1][j], scale.scale[1 % scales], total[1][j]);
    }
}

/* One unit of `columns` rows of B. A single row of A meets weights as they are stored, and its sum over a unit is
 * scaled; several meet weights that are scaled once for all of them. */
BW_INLINE void narrow_unit(const int rows, const bw_dtype dtype, const int columns, const int parts,
                           const narrow_share *share, int64_t k, const char *const chunk[], int unit, const float *a,
                           const float inner[][BW_Q4_K_SCALES], bw_vf total[GEMV_ROWS_MAX][NARROW_COLUMNS]) {
    const bw_narrow narrow = bw_narrow_of(dtype);
    if (parts) {
        narrow_unit_pairs(dtype, columns, parts, share, k, chunk, unit, a, inner, total);
        return;
    }
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
        const float scale = factor * row_scale_of(p, BW_GEMM_A_SCALE, i);
        BW_DTYPE_SWITCH(p->launch->precision->result, put_sums, p, i, column, count, scale, sums[i]);
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
BW_INLINE void narrow_block(const int rows, const bw_dtype dtype, const int columns, const int parts,
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
        if (rows == 1 && left == BW_CHUNK) {
            for (int unit = 0; unit < BW_CHUNK / unit_elems; unit++, a += unit_elems) {
                narrow_unit(1, dtype, columns, parts, share, k + unit * unit_elems, chunk, unit, a, inner, total);
            }
        } else {
            for (int unit = 0; unit * unit_elems < left; unit++, a += rows * unit_elems) {
                narrow_unit(rows, dtype, columns, parts, share, k + unit * unit_elems, chunk, unit, a, inner, total);
            }
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

BW_INLINE void narrow_rows(const int rows, const bw_dtype dtype, const int parts, narrow_share *share, int64_t first,
                           int64_t last) {
    if (rows > GEMV_ROWS_MAX) return;
    const int columns = narrow_columns(rows, parts), batch = BW_SIMD_FLOATS / columns * columns;
    const product *p = share->p;
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
            narrow_block(rows, dtype, columns, parts, share, out);
        }
        narrow_finish(p, bw_narrow_factor(dtype), column, count, sums);
    }
}

static bool are_finite(const float *numbers, int64_t count) {
    float odd = 0.0f;
    for (int64_t i = 0; i < count; i++) odd += numbers[i] - numbers[i];
    return odd == 0.0f;
}

BW_INLINE bool narrow_stretch_of(const bw_dtype dtype, const product *p, float *room, int64_t first, int64_t last) {
    const bw_precision *precision = p->launch->precision;
    const bw_scaling *scaling = precision->weight_scales;
    narrow_share share = {.p = p, .a = room, .row_bytes = bw_dtype_bytes(dtype, p->k)};
    while (1 << share.group_bits < scaling->columns) share.group_bits++;
    if (scaling->columns) {
        if (!bw_narrow_of(dtype).scales || 1 << share.group_bits != scaling->columns) abort(); /* no such precision */
        share.groups = bw_ceil_div(p->k, scaling->columns);
        share.scales_bytes = bw_dtype_bytes(scaling->type, share.groups);
        share.zeros_bytes = bw_dtype_bytes(scaling->zero, share.groups);
    }
    bw_narrow_pack(dtype, precision->activation, p->a, p->m, p->k, share.group_bits, room);
    room += bw_narrow_packed_floats(p->m, p->k);
    share.sums = room;
    const bool shifted = dtype == BW_UINT4 || dtype == BW_Q4_K;
    if (shifted && !are_finite(room, p->m * bw_narrow_sums_floats(p->k))) return false;
    room += p->m * bw_narrow_sums_floats(p->k);
    const int64_t scales = scales_room(scaling, p->k);
    for (int j = 0; j < NARROW_COLUMNS; j++) {
        share.row[j] = (bw_narrow_row){.scales = room + 2 * j * scales, .shifts = room + (2 * j + 1) * scales};
    }
    switch (bw_narrow_parts(dtype, precision->activation, p->m)) {
        case 1: narrow_rows(1, dtype, 1, &share, first, last); break;
        case 2: narrow_rows(1, dtype, 2, &share, first, last); break;
        default: BW_COUNT_SWITCH(p->m, narrow_rows, dtype, 0, &share, first, last);
    }
    return true;
}

/* A function a type, so that its loops keep to the registers. */
#define NARROW_STRETCH(id)                                                                                  \
    static __attribute__((noinline)) bool narrow_stretch_##id(const product *p, float *room, int64_t first, \
                                                              int64_t last) {                               \
        return narrow_stretch_of(BW_##id, p, room, first, last);                                            \
    }
BW_NARROW_TYPES(NARROW_STRETCH)
#undef NARROW_STRETCH

/* False, and nothing done, where zero points or minima are subtracted and A has infinities: a weight's own part of a
 * sum and its zero point's then have no difference. */
static bool narrow_stretch(const product *p, float *room, int64_t first, int64_t last) {
    switch (p->launch->precision->weight) {
#define NARROW_CASE(id) \
    case BW_##id: return narrow_stretch_##id(p, room, first, last);
        BW_NARROW_TYPES(NARROW_CASE)
#undef NARROW_CASE
        default: abort();
    }
}
