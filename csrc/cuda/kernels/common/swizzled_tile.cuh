// Tiles of 16-bit elements in shared memory, as the matrix instructions want them: rows of `padded` elements, whose
// 16-byte chunks are permuted (chunk ^ row % 8) so that eight rows' equal chunks lie in different banks.
#pragma once

#include "cuda/kernels/common/sm80.cuh"

template <int padded, typename T>
BW_DEVICE T *bw_tensor_chunk(T *tile, int row, int chunk) {
    return tile + row * padded + (chunk ^ (row & 7)) * 8;
}

// Rows [0, rows) of a tile from a strided matrix: the first `valid` of them hold head_dim elements each, everything
// else becomes zero. Asynchronous (not committed) where rows are aligned. Shared out over `threads` threads.
template <int padded, typename T>
BW_DEVICE void bw_tensor_fetch(T *tile, const T *from, int64_t stride, int rows, int64_t valid, int head_dim,
                               bool vectors, int thread, int threads) {
    constexpr int chunks = padded / 8;
    for (int i = thread; i < rows * chunks; i += threads) {
        const int row = i / chunks, chunk = i % chunks;
        const bool there = row < valid && chunk * 8 < head_dim;
        T *to = bw_tensor_chunk<padded>(tile, row, chunk);
        const T *at = there ? from + row * stride + chunk * 8 : from;
        if (vectors) {
            bw_copy_async(to, at, there);
        } else {
            *(uint4 *)to = bw_gather_chunk(at, there ? head_dim - chunk * 8 : 0);
        }
    }
}

// The A fragment of rows row0 .. + 15, columns 16 step .. + 15.
template <int padded, typename T>
BW_DEVICE void bw_tensor_rows(uint32_t (&out)[4], T *tile, int row0, int step) {
    const int lane = (int)threadIdx.x % 32, block = lane / 8;
    bw_load_matrix(out, bw_tensor_chunk<padded>(tile, row0 + block % 2 * 8 + lane % 8, 2 * step + block / 2));
}

// The compiler keeps the places of all steps over a whole loop, and of long rows they take too many registers. The
// first tells them all: tiles begin at a multiple of a row's bytes, and a step's bits are its chunks' alone.
template <int padded, typename T>
BW_DEVICE uint32_t bw_tensor_step(T *tile, int row, int chunk, int step) {
    static_assert((padded & (padded - 1)) == 0, "a row's bytes are a power of 2");
    return bw_shared_address(bw_tensor_chunk<padded>(tile, row, chunk)) ^ 32 * step;
}

// Two B fragments whose columns are the tile's rows row0 .. + 15 (K in q k^T): {out[0], out[1]} for the first eight,
// {out[2], out[3]} for the others.
template <int padded, typename T>
BW_DEVICE void bw_tensor_columns(uint32_t (&out)[4], T *tile, int row0, int step) {
    const int lane = (int)threadIdx.x % 32, block = lane / 8;
    if constexpr (padded > 128) {
        bw_load_matrix(out, bw_tensor_step<padded>(tile, row0 + block / 2 * 8 + lane % 8, block % 2, step));
    } else {
        bw_load_matrix(out, bw_tensor_chunk<padded>(tile, row0 + block / 2 * 8 + lane % 8, 2 * step + block % 2));
    }
}

// Two B fragments whose rows are the tile's rows row0 .. + 15 (V in P v), for columns 16 pair .. + 7 and + 8 .. + 15.
template <int padded, typename T>
BW_DEVICE void bw_tensor_transposed(uint32_t (&out)[4], T *tile, int row0, int pair) {
    const int lane = (int)threadIdx.x % 32, block = lane / 8;
    if constexpr (padded > 128) {
        bw_load_matrix_transposed(out, bw_tensor_step<padded>(tile, row0 + block % 2 * 8 + lane % 8, block / 2, pair));
    } else {
        bw_load_matrix_transposed(out,
                                  bw_tensor_chunk<padded>(tile, row0 + block % 2 * 8 + lane % 8, 2 * pair + block / 2));
    }
}

// The A fragment of weights that two neighboring C fragments hold.
template <typename T>
BW_DEVICE void bw_tensor_weights(uint32_t (&out)[4], const float (&left)[4], const float (&right)[4], T type) {
    out[0] = bw_pack_pair(left[0], left[1], type);
    out[1] = bw_pack_pair(left[2], left[3], type);
    out[2] = bw_pack_pair(right[0], right[1], type);
    out[3] = bw_pack_pair(right[2], right[3], type);
}
