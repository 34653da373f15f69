// gemm by 64 x 64 tiles through shared memory, float arithmetic: each element of A and B is read from memory once per
// tile instead of once per product.
#include "cuda/kernels/gemm/gemm.h"

#include "cuda/kernels/common/fma_tile.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

// One block per 64 x 64 tile of D; blocks that share rows of B are neighbours.
template <typename T>
static __global__ void __launch_bounds__(bw_tile_threads)
    gemm_tiled_kernel(const T *a, const T *b, const T *c, T *d, int64_t m, int64_t n, int64_t k, int64_t tiles_m) {
    __shared__ bw_tile_shared shared;
    const int64_t row0 = (int64_t)blockIdx.x % tiles_m * bw_tile_rows;
    const int64_t column0 = (int64_t)blockIdx.x / tiles_m * bw_tile_rows;
    const bw_tile_view<T> left = {a + row0 * k, m - row0, k, k};
    const bw_tile_view<T> right = {b + column0 * k, n - column0, k, k};
    float acc[4][4] = {};
    bw_tile_multiply<true>(shared, left, right, acc);
    const int64_t row = row0 + threadIdx.x / 16, column = column0 + threadIdx.x % 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (row + 16 * i >= m || column + 16 * j >= n) continue;
            const int64_t at = (row + 16 * i) * n + column + 16 * j;
            bw_from_float(acc[i][j] + (c ? bw_to_float(c[at]) : 0.0f), &d[at]);
        }
    }
}

static int64_t tile_count(int64_t rows) {
    return bw_ceil_div(rows, bw_tile_rows);
}

const char *bw_tiled_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const bw_checked blocks =
        bw_mul(bw_num(tile_count(dims->value[BW_GEMM_M])), bw_num(tile_count(dims->value[BW_GEMM_N])));
    return blocks.overflow || !bw_cuda_grid_fits(blocks.value) ? "more 64 x 64 tiles than a grid holds (2^31 - 1)"
                                                               : nullptr;
}

bw_status bw_tiled_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                          bw_cuda_prepared *out) {
    const int64_t *value = dims->value;
    const int64_t m = value[BW_GEMM_M], n = value[BW_GEMM_N], k = value[BW_GEMM_K];
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_choose(out, gemm_tiled_kernel<T>, dim3((unsigned)(tile_count(m) * tile_count(n))), dim3(bw_tile_threads), 0,
                  bw_from_operand(BW_GEMM_A), bw_from_operand(BW_GEMM_B),
                  bw_from_operand_if(value[BW_GEMM_BETA] != 0, BW_GEMM_C), bw_from_operand(BW_GEMM_D), m, n, k,
                  tile_count(m));
        return BW_OK;
    });
}
