// transpose: tiles whose rows are a line of 128 bytes go through shared memory, and their columns leave as rows.
//
// Where both sides' rows are multiples of 16 bytes, a thread loads and stores 16 bytes. The 16-byte chunks of a tile's
// rows are swizzled then: `chunk ^ turn(row)` lets eight lanes that store a row, and those that load it across, find
// all banks. Elements of 16 bits are turned by ldmatrix, which gives a lane two of a column from each of four blocks of
// 8 x 8: its rows are given in such an order that these are eight neighbors.
// Where a side's rows are not, its elements are moved one by one: a row across is conflict-free where rows of the tile
// are padded by a word.
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/layout/layout.h"
#include "cuda/launch/choose.cuh"
#include "ops/families/layout.h"

namespace {

constexpr int THREADS = 128, TILE_ROWS = 64, LINE = 128, CHUNKS = LINE / 16;

// Tiles are walked over in stripes of GROUP columns of tiles, row by row, so that what blocks of the same time read
// and write lies together on both sides.
constexpr int GROUP = 16;

struct matrices {
    int64_t rows, columns;
    uint32_t down, across;  // tiles
};

struct place {
    int64_t matrix, row, column;
};

template <int tile_columns>
__device__ place place_of(const matrices &m, uint32_t block) {
    const uint32_t each = m.down * m.across, matrix = block / each;
    block -= matrix * each;
    const uint32_t group = block / (GROUP * m.down), width = min((uint32_t)GROUP, m.across - group * GROUP);
    block -= group * GROUP * m.down;
    const uint32_t row = block / width, column = group * GROUP + block % width;
    return {matrix, (int64_t)row * TILE_ROWS, (int64_t)column * tile_columns};
}

template <typename T>
struct tile_of {
    static constexpr int columns = LINE / sizeof(T), per_chunk = 16 / sizeof(T);
    // What a row's chunks are permuted by: of 16 bits, those that lanes of ldmatrix read together are 0, 1, 8, 9, ...;
    // of 32 bits, rows 0, 4, 8, ...
    static __device__ int turn(int row) {
        return sizeof(T) == 2 ? (row >> 3 & 3) << 1 | (row & 1) : row >> 2 & 7;
    }
    static __device__ int swizzled(int row, int column) {
        return row * columns + ((column / per_chunk) ^ turn(row)) * per_chunk + column % per_chunk;
    }
    static __device__ int padded(int row, int column) {
        return row * (columns + 4 / (int)sizeof(T)) + column;
    }
};

// Chunk `chunk` of 16 bytes of column `column`, down its rows; the lanes of a warp have whole columns of some rows.
template <typename T>
__device__ uint4 turned_chunk(const T *tile, int unit, int *column, int *chunk) {
    using of = tile_of<T>;
    const int lane = (int)threadIdx.x % 32;
    if constexpr (sizeof(T) == 2) {
        constexpr int blocks = TILE_ROWS / 32;
        const int rows = unit % blocks * 32, columns = unit / blocks * 8, block = lane / 8, i = lane % 8;
        uint32_t word[4];
        bw_load_matrix_transposed(word, tile + of::swizzled(rows + i / 2 * 8 + block * 2 + i % 2, columns));
        *column = columns + lane / 4;
        *chunk = rows / 8 + lane % 4;
        return make_uint4(word[0], word[1], word[2], word[3]);
    } else {
        constexpr int blocks = TILE_ROWS / 32;
        *column = unit / blocks * 4 + lane / 8;
        *chunk = unit % blocks * 8 + lane % 8;
        T word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = tile[of::swizzled(*chunk * 4 + i, *column)];
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
}

// T: uint16_t or uint32_t. `loads`, `stores`: whether that side moves 16 bytes a thread.
template <typename T, bool loads, bool stores>
__global__ void __launch_bounds__(THREADS) transpose_kernel(const T *in, T *out, matrices m) {
    using of = tile_of<T>;
    constexpr int columns = of::columns, per = of::per_chunk, VECTORS = TILE_ROWS * CHUNKS / THREADS;
    constexpr int ELEMS = VECTORS * per;
    __shared__ __align__(LINE) T tile[TILE_ROWS * (columns + (stores ? 0 : 4 / (int)sizeof(T)))];
    const place at = place_of<columns>(m, blockIdx.x);
    const int64_t rows_left = m.rows - at.row, columns_left = m.columns - at.column;
    in += (at.matrix * m.rows + at.row) * m.columns + at.column;
    out += (at.matrix * m.columns + at.column) * m.rows + at.row;
    const auto spot = [](int row, int column) { return stores ? of::swizzled(row, column) : of::padded(row, column); };
    if constexpr (loads) {
        uint4 chunk[VECTORS];
#pragma unroll
        for (int u = 0; u < VECTORS; u++) {
            const int i = (int)threadIdx.x + u * THREADS, row = i / CHUNKS, column = i % CHUNKS * per;
            const bool there = row < rows_left && column < columns_left;
            if (there) chunk[u] = bw_load_once((const uint4 *)(in + row * m.columns + column));
        }
        __syncwarp();  // every load is issued before
#pragma unroll
        for (int u = 0; u < VECTORS; u++) {
            const int i = (int)threadIdx.x + u * THREADS;
            T *to = tile + spot(i / CHUNKS, i % CHUNKS * per);
            if constexpr (stores) {
                *(uint4 *)to = chunk[u];
            } else {
                uint32_t *words = (uint32_t *)to;
                words[0] = chunk[u].x, words[1] = chunk[u].y, words[2] = chunk[u].z, words[3] = chunk[u].w;
            }
        }
    } else {
        T elem[ELEMS];
#pragma unroll
        for (int u = 0; u < ELEMS; u++) {
            const int i = (int)threadIdx.x + u * THREADS, row = i / columns, column = i % columns;
            if (row < rows_left && column < columns_left) elem[u] = __ldg(in + row * m.columns + column);
        }
        __syncwarp();  // every load is issued before
#pragma unroll
        for (int u = 0; u < ELEMS; u++) {
            const int i = (int)threadIdx.x + u * THREADS;
            tile[spot(i / columns, i % columns)] = elem[u];
        }
    }
    __syncthreads();
    if constexpr (stores) {
#pragma unroll
        for (int u = 0; u < VECTORS; u++) {
            int column, chunk;
            const uint4 value = turned_chunk<T>(tile, (int)threadIdx.x / 32 + u * (THREADS / 32), &column, &chunk);
            const bool there = column < columns_left && chunk * per < rows_left;
            if (there) bw_store_once((uint4 *)(out + column * m.rows + chunk * per), value);
        }
    } else {
#pragma unroll
        for (int u = 0; u < ELEMS; u++) {
            const int i = (int)threadIdx.x + u * THREADS, column = i / TILE_ROWS, row = i % TILE_ROWS;
            if (row < rows_left && column < columns_left) out[column * m.rows + row] = tile[spot(row, column)];
        }
    }
}

matrices matrices_of(const bw_dims *dims, int64_t elem) {
    const bw_swap s = bw_swap_of(dims);
    return {s.rows, s.columns, (uint32_t)bw_ceil_div(s.rows, TILE_ROWS), (uint32_t)bw_ceil_div(s.columns, LINE / elem)};
}

template <typename T>
bw_status choose(const bw_dims *dims, bool vectors, bw_cuda_launch_spec *out) {
    const matrices m = matrices_of(dims, sizeof(T));
    const bool loads = vectors && m.columns * sizeof(T) % 16 == 0, stores = vectors && m.rows * sizeof(T) % 16 == 0;
    auto kernel = loads ? transpose_kernel<T, true, false> : transpose_kernel<T, false, false>;
    if (stores) kernel = loads ? transpose_kernel<T, true, true> : transpose_kernel<T, false, true>;
    const int64_t blocks = dims->value[BW_TRANSPOSE_BATCH] * m.down * m.across;
    bw_choose(out, kernel, dim3((unsigned)blocks), dim3(THREADS), 0, bw_from_operand(BW_LAYOUT_IN),
              bw_from_operand(BW_LAYOUT_OUT), m);
    return BW_OK;
}

bw_status choose_sized(const bw_dims *dims, const bw_precision *precision, bool vectors, bw_cuda_launch_spec *out) {
    const bool wide = bw_dtype_get(precision->result)->block_bytes == 4;
    return wide ? choose<uint32_t>(dims, vectors, out) : choose<uint16_t>(dims, vectors, out);
}

}  // namespace

bw_status bw_transpose_tiled_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                    bw_cuda_launch_spec *out) {
    return choose_sized(dims, precision, false, out);
}

bw_status bw_transpose_swizzled_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                       bw_cuda_launch_spec *out) {
    return choose_sized(dims, precision, true, out);
}

const char *bw_transpose_tiles_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const matrices m = matrices_of(dims, bw_dtype_get(precision->result)->block_bytes);
    const bw_checked_int blocks = bw_mul3(dims->value[BW_TRANSPOSE_BATCH], m.down, m.across);
    const bool fits = !blocks.overflow && bw_cuda_grid_fits(blocks.value);
    return fits ? nullptr : "more tiles of 64 rows and 128 bytes than a grid holds (2^31 - 1)";
}
