// gemm by 64 x 64 tiles through shared memory, float arithmetic: an element is read once per tile, not per product.
#include "cuda/kernels/common/fma_tile.cuh"
#include "cuda/kernels/gemm/tiles.cuh"

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
            bw_gemm_store(c, d, (row + 16 * i) * n + column + 16 * j, acc[i][j]);
        }
    }
}

const char *bw_tiled_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return bw_gemm_tiles_refuse(dims, bw_tile_rows, bw_tile_rows);
}

bw_status bw_tiled_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                          bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_gemm_choose_tiles(dims, gemm_tiled_kernel<T>, bw_tile_rows, bw_tile_rows, bw_tile_threads, 0, out);
    });
}
