/* gemm of INT8 activations with INT8 weights: exact sums of whole numbers in 32 bits, scaled once. Rows of A and B are
 * read as they lie; a block of a few of each keeps one vector of sums for each pair. */
#pragma once

#include "cpu/simd/product.h"

enum {
    BYTES_ROWS = 4,                               /* of A in a block */
    BYTES_COLUMNS = BW_SIMD_FLOATS == 16 ? 6 : 2, /* rows of B */
    BYTES_GROUP = 48,                             /* of B whose sums are scaled together */
    BYTES_TILE_ROWS = 128,                        /* of A that meet such a group, ... */
    BYTES_TILE = 1 << 19,                         /* ... of so many bytes, which stay in a cache */
    BYTES_DEPTH_MAX = (1 << 17) - 1               /* 128 * 128 so many times fit 32 bits */
};
_Static_assert(BYTES_GROUP % BYTES_COLUMNS == 0 && BYTES_GROUP % BW_SIMD_FLOATS == 0, "groups are whole");

/* One thread's part of the workspace. */
typedef struct bytes_room {
    int32_t sums[BYTES_TILE_ROWS * BYTES_GROUP];
    int32_t shift[BYTES_TILE_ROWS]; /* what a row's sums are too large by */
} bytes_room;

/* One block: `rows` rows of A, BYTES_COLUMNS of B, each read from a pointer of its own. */
typedef struct bytes_block {
    const int8_t *a[BYTES_ROWS], *b[BYTES_COLUMNS];
} bytes_block;

BW_INLINE bw_vu load_bytes(const int8_t *p, int64_t left) {
    if (left >= BW_SIMD_BYTES) return bw_vu_load(p);
    int8_t part[BW_SIMD_BYTES] = {0};
    memcpy(part, p, (size_t)left);
    return bw_vu_load(part);
}

/* Elements k up to a vector of them, `left` at most. As words, or as bytes, B's larger by 128: from 0 to 255. */
BW_INLINE void bytes_step(const int rows, const bool dots, const bytes_block *block, int64_t k, int64_t left,
                          bw_vi total[BYTES_ROWS][BYTES_COLUMNS]) {
    bw_vu a[BYTES_ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        a[i] = dots ? load_bytes(block->a[i] + k, left) : (bw_vu)bw_vw_load_upto(block->a[i] + k, left);
    }
#pragma GCC unroll 6
    for (int j = 0; j < BYTES_COLUMNS; j++) {
        const bw_vu b =
            dots ? load_bytes(block->b[j] + k, left) ^ 0x80808080u : (bw_vu)bw_vw_load_upto(block->b[j] + k, left);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            if (dots) {
                total[i][j] = bw_vi_add_bytes(total[i][j], b, a[i]);
            } else {
                total[i][j] += bw_vw_dot((bw_vw)a[i], (bw_vw)b);
            }
        }
    }
}

/* Sums of rows [row, row + rows) of A and [column, column + count) of B, to `sums`. */
BW_INLINE void bytes_sums(const int rows, const bool dots, const product *p, int64_t row, int64_t column, int64_t count,
                          int32_t *sums) {
    if (rows > BYTES_ROWS) return;
    const int step = dots ? BW_SIMD_BYTES : BW_SIMD_BYTES / 2;
    bytes_block block;
    bw_vi total[BYTES_ROWS][BYTES_COLUMNS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        block.a[i] = (const int8_t *)p->a + (row + i) * p->k;
#pragma GCC unroll 6
        for (int j = 0; j < BYTES_COLUMNS; j++) total[i][j] = (bw_vi){0};
    }
    for (int j = 0; j < BYTES_COLUMNS; j++) { /* the last one again is not stored */
        block.b[j] = (const int8_t *)p->b + (column + bw_min64(j, count - 1)) * p->k;
    }
    int64_t k = 0;
    for (; k + step <= p->k; k += step) bytes_step(rows, dots, &block, k, step, total);
    if (k < p->k) bytes_step(rows, dots, &block, k, p->k - k, total);
    enum { PAIRS = BYTES_ROWS * BYTES_COLUMNS, VECTORS = (PAIRS + BW_SIMD_FLOATS - 1) / BW_SIMD_FLOATS };
    bw_vi of_pairs[VECTORS * BW_SIMD_FLOATS];
    int32_t found[VECTORS * BW_SIMD_FLOATS];
#pragma GCC unroll 32
    for (int i = 0; i < VECTORS * BW_SIMD_FLOATS; i++) {
        of_pairs[i] = i < rows * BYTES_COLUMNS ? total[i / BYTES_COLUMNS][i % BYTES_COLUMNS] : (bw_vi){0};
    }
    for (int i = 0; i * BW_SIMD_FLOATS < rows * BYTES_COLUMNS; i++) {
        const bw_vi some = bw_vi_sums(of_pairs + i * BW_SIMD_FLOATS);
        memcpy(found + i * BW_SIMD_FLOATS, &some, sizeof some);
    }
    for (int i = 0; i < rows; i++) memcpy(sums + i * BYTES_GROUP, found + i * BYTES_COLUMNS, (size_t)count * 4);
}

/* D's tile at (row, column) from the sums. */
BW_INLINE void bytes_finish(bw_dtype dtype, const product *p, const bytes_room *room, int64_t row, int64_t rows,
                            int64_t column, int64_t count) {
    const float *a_scale = p->launch->operand[BW_GEMM_A_SCALE], *b_scale = p->launch->operand[BW_GEMM_B_SCALE];
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < count; j += BW_SIMD_FLOATS) {
            const int64_t at = (row + i) * p->n + column + j;
            const bw_vu sums = bw_vu_load(room->sums + i * BYTES_GROUP + j) - (uint32_t)room->shift[i];
            bw_vf x = bw_vf_load_as_upto(BW_FP32, b_scale, column + j, count - j) * bw_vf_set(a_scale[row + i]);
            x = x * bw_vf_from_vi((bw_vi)sums);
            if (p->c) x = x + bw_vf_load_as_upto(dtype, p->c, at, count - j);
            bw_vf_store_as_upto(dtype, p->d, at, x, count - j);
        }
    }
}

/* Rows [first, last) of B against all rows of A. Not inlined, so that its loops keep to the registers. */
BW_INLINE void bytes_stretch(const bool dots, const product *p, bytes_room *room, int64_t first, int64_t last) {
    for (int64_t row = 0, rows; row < p->m; row += rows) {
        rows = bw_min64(p->tile_rows, p->m - row);
        for (int64_t i = 0; i < rows; i++) {
            const int8_t *a = (const int8_t *)p->a + (row + i) * p->k;
            int32_t sum = 0;
            for (int64_t k = 0; dots && k < p->k; k++) sum += a[k];
            room->shift[i] = (int32_t)(128u * (uint32_t)sum);
        }
        for (int64_t group = first; group < last; group += BYTES_GROUP) {
            const int64_t count = bw_min64(BYTES_GROUP, last - group);
            for (int64_t j = 0; j < count; j += BYTES_COLUMNS) {
                const int64_t wide = bw_min64(BYTES_COLUMNS, count - j);
                for (int64_t i = 0; i < rows; i += BYTES_ROWS) {
                    BW_COUNT_SWITCH(bw_min64(BYTES_ROWS, rows - i), bytes_sums, dots, p, row + i, group + j, wide,
                                    room->sums + i * BYTES_GROUP + j);
                }
            }
            BW_DTYPE_SWITCH(p->launch->precision->result, bytes_finish, p, room, row, rows, group, count);
        }
    }
}

#define BYTES_LAUNCH(name, dots)                                                        \
    static void name##_share(void *context, int rank, int ranks) {                      \
        const product *p = context;                                                     \
        int64_t first, last;                                                            \
        bw_pool_share(p->n, rank, ranks, &first, &last);                                \
        bytes_stretch(dots, p, (bytes_room *)p->launch->workspace + rank, first, last); \
    }                                                                                   \
    static bw_status name##_launch(const bw_launch *launch) {                           \
        product p = product_of(launch);                                                 \
        const int64_t rows = BYTES_TILE / p.k / BYTES_ROWS * BYTES_ROWS;                \
        p.tile_rows = bw_min64(BYTES_TILE_ROWS, bw_max64(BYTES_ROWS, rows));            \
        bw_pool_run(launch->device->pool, name##_share, &p);                            \
        return BW_OK;                                                                   \
    }
BYTES_LAUNCH(words, false)
BYTES_LAUNCH(bytes, true)

static const char *words_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision, (void)facts;
    return dims->value[BW_GEMM_K] > BYTES_DEPTH_MAX ? "sums of 32 bits hold K up to 131071" : NULL;
}

static const char *bytes_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return bw_has_dots() ? words_refuses(dims, precision, facts) : "bytes needs AVX-512 VNNI";
}

static int64_t bytes_workspace(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)dims, (void)precision;
    return facts->units * (int64_t)sizeof(bytes_room);
}
