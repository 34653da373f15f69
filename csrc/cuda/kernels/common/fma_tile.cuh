// A 64 x 64 tile of a matrix product through shared memory, accumulated in float: the plain kernels' work horse.
//   acc[i][j] = sum over k of A(ty + 16 i, k) * B(tx + 16 j, k)        tx = thread % 16, ty = thread / 16
// A and B are strided views; whichever index is contiguous in memory is the one that neighboring threads read.
#pragma once

#include "cuda/kernels/common/sm80.cuh"

// A thread has 4 x 4 sums: 8 loads from shared memory for 16 products. A row's 16 floats are a stretch of 64 bytes.
constexpr int bw_tile_rows = 64, bw_tile_depth = 16, bw_tile_threads = 256;

// Rows of 66 floats: stores by neighboring k and loads by neighboring rows both fall in different banks.
struct bw_tile_shared {
    float a[bw_tile_depth][bw_tile_rows + 2];
    float b[bw_tile_depth][bw_tile_rows + 2];
};

// A view of `rows` x `depth` elements from the tile's first row on.
template <typename T>
struct bw_tile_view {
    const T *first;
    int64_t rows, depth;
    int64_t stride;  // between rows, or between k where rows are neighbors in memory
};

template <bool depth_contiguous, typename T>
BW_DEVICE void bw_tile_fetch(float (&to)[bw_tile_depth][bw_tile_rows + 2], const bw_tile_view<T> &view, int64_t k0) {
    const int thread = (int)threadIdx.x;
#pragma unroll
    for (int i = 0; i < bw_tile_rows * bw_tile_depth / bw_tile_threads; i++) {
        const int row = depth_contiguous ? thread / bw_tile_depth + 16 * i : thread % bw_tile_rows;
        const int k = depth_contiguous ? thread % bw_tile_depth : thread / bw_tile_rows + 4 * i;
        float value = 0.0f;
        if (row < view.rows && k0 + k < view.depth) {
            const int64_t at = depth_contiguous ? row * view.stride + k0 + k : (k0 + k) * view.stride + row;
            value = bw_to_float(view.first[at]);
        }
        to[k][row] = value;
    }
}

template <bool b_depth_contiguous, typename T>
BW_DEVICE void bw_tile_multiply(bw_tile_shared &shared, const bw_tile_view<T> &a, const bw_tile_view<T> &b,
                                float (&acc)[4][4]) {
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    for (int64_t k0 = 0; k0 < a.depth; k0 += bw_tile_depth) {
        bw_tile_fetch<true>(shared.a, a, k0);
        bw_tile_fetch<b_depth_contiguous>(shared.b, b, k0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < bw_tile_depth; k++) {
            float left[4], right[4];
#pragma unroll
            for (int i = 0; i < 4; i++) left[i] = shared.a[k][ty + 16 * i];
#pragma unroll
            for (int j = 0; j < 4; j++) right[j] = shared.b[k][tx + 16 * j];
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] = fmaf(left[i], right[j], acc[i][j]);
            }
        }
        __syncthreads();
    }
}
