// The grid of the gemm variants with one block for each tile of D, and how sums become elements of D.
#pragma once

#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

// A sum + C, which is NULL where nothing is added. In its place a linear layer has how it ends (linear/end.cuh).
template <typename T>
BW_DEVICE float bw_gemm_add(const T *c, int64_t at, int64_t, float sum) {
    return sum + (c ? bw_to_float(c[at]) : 0.0f);
}

template <typename T>
BW_DEVICE void bw_gemm_store(const T *c, T *d, int64_t at, float sum) {
    bw_from_float(bw_gemm_add(c, at, 0, sum), &d[at]);
}

BW_DEVICE void bw_gemm_write_pair(float *to, float low, float high) {
    *(float2 *)to = make_float2(low, high);
}
template <typename T>
BW_DEVICE void bw_gemm_write_pair(T *to, float low, float high) {
    *(uint32_t *)to = bw_pack_pair(low, high, T());
}

// Two neighbors of row `row`, the first in an even column; those past the end are left out.
template <typename T>
BW_DEVICE void bw_gemm_store_pair(const T *c, T *d, int64_t row, int64_t column, int64_t n, float low, float high) {
    const int64_t at = row * n + column;
    if (n % 2 == 0 && column < n) {
        if (c) low += bw_to_float(c[at]), high += bw_to_float(c[at + 1]);
        bw_gemm_write_pair(d + at, low, high);
        return;
    }
    if (column < n) bw_gemm_store(c, d, at, low);
    if (column + 1 < n) bw_gemm_store(c, d, at + 1, high);
}

static inline const char *bw_gemm_tiles_refuse(const bw_dims *dims, int64_t rows, int64_t columns) {
    const bw_checked_int blocks =
        bw_mul(bw_num(bw_ceil_div(dims->value[BW_GEMM_M], rows)), bw_num(bw_ceil_div(dims->value[BW_GEMM_N], columns)));
    return blocks.overflow || !bw_cuda_grid_fits(blocks.value) ? "more tiles of D than a grid holds (2^31 - 1)"
                                                               : nullptr;
}

// A block per tile of rows x columns; blocks that share rows of B are neighbors. The kernel takes (a, b, c, d, m, n,
// k, tiles_m).
template <typename Kernel, typename C>
static bw_status bw_gemm_choose_tiles(const bw_dims *dims, Kernel kernel, const C &c, int64_t rows, int64_t columns,
                                      int threads, size_t shared_bytes, bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const int64_t tiles_m = bw_ceil_div(value[BW_GEMM_M], rows), tiles_n = bw_ceil_div(value[BW_GEMM_N], columns);
    bw_choose(out, kernel, dim3((unsigned)(tiles_m * tiles_n)), dim3((unsigned)threads), shared_bytes,
              bw_from_operand(BW_GEMM_A), bw_from_operand(BW_GEMM_B), c, bw_from_operand(BW_GEMM_D), value[BW_GEMM_M],
              value[BW_GEMM_N], value[BW_GEMM_K], tiles_m);
    return BW_OK;
}
template <typename Kernel>
static bw_status bw_gemm_choose_tiles(const bw_dims *dims, Kernel kernel, int64_t rows, int64_t columns, int threads,
                                      size_t shared_bytes, bw_cuda_launch_spec *out) {
    return bw_gemm_choose_tiles(dims, kernel, bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C), rows,
                                columns, threads, shared_bytes, out);
}
