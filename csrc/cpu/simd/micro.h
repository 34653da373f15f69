/* The register-tiled product that gemm and attention are made of, on fp32 panels in a thread's own workspace:
 *   out(rows, columns) [+]= a(rows, depth) b(depth, columns)
 * a is row-major with BW_MICRO_STRIDE floats per row; b is packed: `columns` (one or two vectors) floats per step of
 * depth. Up to BW_MICRO_ROWS rows and two vectors of columns stay in registers through the whole depth. */
#pragma once

#include "cpu/simd/simd.h"

enum {
    BW_MICRO_DEPTH = 256,
    /* Not a multiple of 256 floats, so that rows do not compete for the same sets of the L1 cache. */
    BW_MICRO_STRIDE = BW_MICRO_DEPTH + 16,
    BW_MICRO_COLUMNS = 2 * BW_SIMD_FLOATS
};

BW_INLINE void bw_micro_tile(const int rows, const int vectors, const float *a, const float *b, int64_t depth,
                             float *out, int64_t out_stride, bool add) {
    if (rows > BW_MICRO_ROWS) return;
    bw_vf total[BW_MICRO_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) total[i][v] = bw_vf_set(0.0f);
    }
    for (int64_t k = 0; k < depth; k++) {
        bw_vf column[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) column[v] = bw_vf_load(b + (k * vectors + v) * BW_SIMD_FLOATS);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            bw_vf row = bw_vf_set(a[i * BW_MICRO_STRIDE + k]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) total[i][v] = bw_vf_fma(row, column[v], total[i][v]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *p = out + i * out_stride + v * BW_SIMD_FLOATS;
            bw_vf_store(p, add ? bw_vf_load(p) + total[i][v] : total[i][v]);
        }
    }
}

/* Not inlined into its callers, so that its loops keep to the registers. */
static __attribute__((noinline, unused)) void bw_micro_run(int rows, int vectors, const float *a, const float *b,
                                                           int64_t depth, float *out, int64_t out_stride, bool add) {
    if (vectors == 1) {
        BW_COUNT_SWITCH(rows, bw_micro_tile, 1, a, b, depth, out, out_stride, add);
    } else {
        BW_COUNT_SWITCH(rows, bw_micro_tile, 2, a, b, depth, out, out_stride, add);
    }
}

/* Any number of rows against one panel of b: stretches of nearly equal height, none above BW_MICRO_ROWS. */
BW_INLINE void bw_micro_rows(int64_t rows, int vectors, const float *a, const float *b, int64_t depth, float *out,
                             int64_t out_stride, bool add) {
    int stretches = (int)bw_ceil_div(rows, BW_MICRO_ROWS);
    for (int i = 0; i < stretches; i++) {
        int64_t first, last;
        bw_pool_share(rows, i, stretches, &first, &last);
        bw_micro_run((int)(last - first), vectors, a + first * BW_MICRO_STRIDE, b, depth, out + first * out_stride,
                     out_stride, add);
    }
}

/* Columns left to vectors: a panel is two wide, or one where that is enough. */
BW_INLINE int bw_micro_vectors(int64_t columns) {
    return columns > BW_SIMD_FLOATS ? 2 : 1;
}

/* Elements [first, first + count) as fp32. */
BW_INLINE void bw_unpack(bw_dtype dtype, const void *data, int64_t first, int64_t count, float *out) {
    int64_t i = 0;
    for (; i + BW_SIMD_FLOATS <= count; i += BW_SIMD_FLOATS) {
        bw_vf_store(out + i, bw_vf_load_as(dtype, data, first + i));
    }
    if (i == count) return;
    bw_vf_store_as_upto(BW_FP32, out, i, bw_vf_load_as_upto(dtype, data, first + i, count - i), count - i);
}

/* Packs rows as the columns of b: row j, `stride` elements after row j - 1, becomes column j. Columns from `count` up
 * to the panel's width are zero. Steps of depth beyond the last are written too, up to a multiple of a vector. */
BW_INLINE void bw_pack_rows(bw_dtype dtype, const void *data, int64_t first, int64_t stride, int64_t count,
                            int64_t depth, int vectors, float *out) {
    for (int v = 0; v < vectors; v++) {
        int64_t rows = bw_min64(count - v * BW_SIMD_FLOATS, BW_SIMD_FLOATS);
        for (int64_t k = 0; k < depth; k += BW_SIMD_FLOATS) {
            bw_vf square[BW_SIMD_FLOATS];
            for (int j = 0; j < BW_SIMD_FLOATS; j++) {
                int64_t at = first + (v * BW_SIMD_FLOATS + j) * stride + k;
                square[j] = j < rows ? bw_vf_load_as_upto(dtype, data, at, depth - k) : bw_vf_set(0.0f);
            }
            bw_vf_transpose(square);
            for (int j = 0; j < BW_SIMD_FLOATS; j++) {
                bw_vf_store(out + ((k + j) * vectors + v) * BW_SIMD_FLOATS, square[j]);
            }
        }
    }
}

/* Packs rows as the steps of depth: row k becomes step k, `columns` of it from element `first` on. */
BW_INLINE void bw_pack_steps(bw_dtype dtype, const void *data, int64_t first, int64_t stride, int64_t columns,
                             int64_t depth, int vectors, float *out) {
    for (int64_t k = 0; k < depth; k++) {
        for (int v = 0; v < vectors; v++) {
            int64_t at = first + k * stride + v * BW_SIMD_FLOATS;
            bw_vf_store(out + (k * vectors + v) * BW_SIMD_FLOATS,
                        bw_vf_load_as_upto(dtype, data, at, columns - v * BW_SIMD_FLOATS));
        }
    }
}

/* A packed panel's room, in floats. */
enum { BW_MICRO_PANEL_FLOATS = BW_MICRO_DEPTH * BW_MICRO_COLUMNS };
