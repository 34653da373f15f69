// transpose: tiles go through shared memory, and their columns leave as rows.
//
// Where both sides' rows are multiples of 16 bytes, a thread loads and stores 16 bytes. The 16-byte chunks of a tile's
// rows are swizzled: `chunk ^ turn(row)` lets the lanes that store a row, and those that load across rows, find all
// banks. Elements of 16 bits are turned by ldmatrix, which gives a lane two neighbors of a column from each of four
// blocks of 8 x 8: its rows are given in such an order that these are eight neighbors.
// Where they are not, a thread loads words, and stores 16 bytes all the same, from where a multiple of 16 bytes begins.
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/layout/layout.h"
#include "cuda/launch/choose.cuh"
#include "ops/families/memory/layout.h"

namespace {

// Of a tile's rows, in bytes, on both sides: an H200 is 3 % slower with half as much.
constexpr int LINE = 256;

template <typename T>
struct tile {
    static constexpr int side = LINE / sizeof(T), per = 16 / sizeof(T), chunks = LINE / 16, threads = 4 * side;
    static constexpr int vectors = side * chunks / threads;
};

struct matrices {
    int64_t batch, rows, columns;
    uint32_t down, across;  // tiles
};

struct place {
    int64_t matrix, row, column;
};

// Tiles are walked over in stripes of so many columns of tiles, row by row: blocks of the same time then write long
// parts of rows, and read parts that are long enough (H200, FP16, 16384 x 16384, of a copy: 99 % so, 98 % by 8 columns,
// 97 % by 32).
constexpr uint32_t STRIPE = 2;

__device__ place place_of(const matrices &m, int rows, int columns) {
    const uint32_t each = m.down * m.across, matrix = blockIdx.x / each, tile = blockIdx.x - matrix * each;
    const uint32_t stripe = tile / (STRIPE * m.down), within = tile - stripe * (STRIPE * m.down);
    const uint32_t width = min(STRIPE, m.across - stripe * STRIPE), row = within / width;
    return {matrix, (int64_t)row * rows, (int64_t)(stripe * STRIPE + within - row * width) * columns};
}

// ---- elements, in padded tiles ----

constexpr int PLAIN_SIDE = 32, PLAIN_THREADS = 256;

template <typename T>
__global__ void __launch_bounds__(PLAIN_THREADS) transpose_elements_kernel(const T *in, T *out, matrices m) {
    constexpr int EACH = PLAIN_SIDE * PLAIN_SIDE / PLAIN_THREADS, STEP = PLAIN_THREADS / PLAIN_SIDE;
    __shared__ T tile[PLAIN_SIDE][PLAIN_SIDE + 4 / sizeof(T)];
    const place at = place_of(m, PLAIN_SIDE, PLAIN_SIDE);
    const int64_t rows = m.rows - at.row, columns = m.columns - at.column;
    const int x = (int)threadIdx.x % PLAIN_SIDE, y = (int)threadIdx.x / PLAIN_SIDE;
    in += (at.matrix * m.rows + at.row) * m.columns + at.column;
    out += (at.matrix * m.columns + at.column) * m.rows + at.row;
#pragma unroll
    for (int i = y; i < EACH * STEP; i += STEP) {
        if (i < rows && x < columns) tile[i][x] = in[i * m.columns + x];
    }
    __syncthreads();
#pragma unroll
    for (int i = y; i < EACH * STEP; i += STEP) {
        if (i < columns && x < rows) out[i * m.rows + x] = tile[x][i];
    }
}

// ---- rows of whole chunks, in swizzled tiles ----

// Lanes of ldmatrix read rows 0, 1, 8, 9, ... together; those that read words, rows 0, 4, 8, ...
template <typename T>
__device__ int swizzled(int row, int chunk) {
    const int turn = sizeof(T) == 2 ? (row >> 3 & 3) << 1 | (row & 1) : row >> 2 & 7;
    return (row * tile<T>::chunks + (chunk ^ turn)) * tile<T>::per;
}

// A warp's unit `unit`: each lane's chunk of a column.
template <typename T>
__device__ uint4 column_chunk(const T *shared, int unit, int *column, int *chunk) {
    constexpr int blocks = tile<T>::side / 32;
    const int lane = (int)threadIdx.x % 32;
    uint32_t word[4];
    if constexpr (sizeof(T) == 2) {
        const int row = unit % blocks * 32, i = lane % 8;
        bw_load_matrix_transposed(word, shared + swizzled<T>(row + i / 2 * 8 + lane / 8 * 2 + i % 2, unit / blocks));
        *column = unit / blocks * 8 + lane / 4;
        *chunk = row / 8 + lane % 4;
    } else {
        *column = unit / blocks * 4 + lane / 8;
        *chunk = unit % blocks * 8 + lane % 8;
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = shared[swizzled<T>(*chunk * 4 + i, *column / 4) + *column % 4];
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <typename T>
__global__ void __launch_bounds__(tile<T>::threads) transpose_chunks_kernel(const T *in, T *out, matrices m) {
    constexpr int side = tile<T>::side, per = tile<T>::per, chunks = tile<T>::chunks, threads = tile<T>::threads;
    constexpr int vectors = tile<T>::vectors;
    __shared__ __align__(128) T shared[side * side];
    const place at = place_of(m, side, side);
    const int64_t rows = m.rows - at.row, columns = m.columns - at.column;
    in += (at.matrix * m.rows + at.row) * m.columns + at.column;
    out += (at.matrix * m.columns + at.column) * m.rows + at.row;
    uint4 value[vectors];
#pragma unroll
    for (int u = 0; u < vectors; u++) {
        const int i = (int)threadIdx.x + u * threads, row = i / chunks, column = i % chunks * per;
        if (row < rows && column < columns) value[u] = bw_load_once((const uint4 *)(in + row * m.columns + column));
    }
    __syncwarp();  // every load is issued before
#pragma unroll
    for (int u = 0; u < vectors; u++) {
        const int i = (int)threadIdx.x + u * threads;
        *(uint4 *)(shared + swizzled<T>(i / chunks, i % chunks)) = value[u];
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < vectors; u++) {
        int column, chunk;
        const uint4 turned = column_chunk(shared, (int)threadIdx.x / 32 + u * (threads / 32), &column, &chunk);
        if (column < columns && chunk * per < rows)
            bw_store_once((uint4 *)(out + column * m.rows + chunk * per), turned);
    }
}

// ---- any rows ----

// A tile is loaded in words, from where a word begins: a row of 16-bit elements may begin with one of what lies before
// it. Above it are `per` rows more: each column's first chunk of 16 bytes begins in one of those. A row is an odd
// number of words, so that lanes that read across rows find other banks.
template <typename T>
struct shifted {
    static constexpr int pair = 4 / sizeof(T), words = 64, columns = pair * words - (pair == 2 ? 2 : 0);
    static constexpr int rows = tile<T>::side + tile<T>::per, pitch = pair * (words + 1);
};

template <typename T>
__global__ void __launch_bounds__(tile<T>::threads) transpose_shifted_kernel(const T *in, T *out, matrices m) {
    using of = shifted<T>;
    constexpr int per = tile<T>::per, warps = tile<T>::threads / 32, chunks = tile<T>::side / per;
    constexpr int LANES = 8;  // that store neighboring chunks: whole sectors
    constexpr int units = chunks / LANES * ((of::columns * LANES + 31) / 32);
    static_assert(units % warps == 0, "warps share them evenly");
    __shared__ __align__(16) T shared[of::rows * of::pitch];
    const place at = place_of(m, tile<T>::side, of::columns);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t top = at.row - per, end = m.batch * m.rows * m.columns;
    const int64_t origin = (at.matrix * m.rows + top) * m.columns + at.column;  // negative above the first matrix
    const int first = top < 0 ? (int)-top : 0, last = (int)min(m.rows - top, (int64_t)of::rows);
    const int columns = (int)min(m.columns - at.column, (int64_t)of::columns);
#pragma unroll
    for (int row = warp; row < of::rows; row += warps) {
        const int64_t begin = origin + row * m.columns, word = begin & -(int64_t)of::pair;
#pragma unroll
        for (int u = 0; u < of::words / 32; u++) {
            const int i = lane + u * 32;
            const int64_t from = word + i * of::pair;
            if (row < first || row >= last || from >= begin + columns) continue;
            T *to = shared + row * of::pitch + i * of::pair;
            if (from + of::pair <= end) {
                bw_copy_async_shared<4>(to, in + from);
            } else {
                *to = in[from];
            }
        }
    }
    bw_copy_commit();
    bw_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int u = 0; u < units / warps; u++) {
        const int unit = warp + u * warps;
        const int chunk = unit % (chunks / LANES) * LANES + lane % LANES;
        const int column = unit / (chunks / LANES) * (32 / LANES) + lane / LANES;
        if (column >= columns) continue;
        const int64_t line = (at.matrix * m.columns + at.column + column) * m.rows + at.row;
        const int before = (int)(line & (per - 1)), row = per - before + chunk * per;
        const int64_t begin = origin + row * m.columns;
        const T *across[2];  // even and odd rows begin differently
#pragma unroll
        for (int e = 0; e < 2; e++) {
            across[e] = shared + row * of::pitch + column + ((begin + e * m.columns) & (of::pair - 1));
        }
        T elem[per];
#pragma unroll
        for (int e = 0; e < per; e++) elem[e] = across[e % 2][e * of::pitch];
        T *to = out + (line - before + chunk * per);
        if (row >= first && row + per <= last) {
            uint4 turned;
            memcpy(&turned, elem, sizeof turned);
            bw_store_once((uint4 *)to, turned);
        } else {
#pragma unroll
            for (int e = 0; e < per; e++) {
                if (row + e >= first && row + e < last) to[e] = elem[e];
            }
        }
    }
}

// ---- choosing ----

bool is_wide(const bw_precision *precision) {
    return bw_dtype_get(precision->result)->block_bytes == 4;
}

// `above`: rows more that tiles begin above the first.
matrices matrices_of(const bw_dims *dims, int rows, int above, int columns) {
    const bw_swap s = bw_swap_of(dims);
    return {s.batch, s.rows, s.columns, (uint32_t)bw_ceil_div(s.rows + above, rows),
            (uint32_t)bw_ceil_div(s.columns, columns)};
}

template <typename T>
bw_status choose(bw_cuda_launch_spec *out, void (*kernel)(const T *, T *, matrices), int threads, const matrices &m) {
    bw_choose(out, kernel, dim3((unsigned)(m.batch * m.down * m.across)), dim3(threads), 0,
              bw_from_operand(BW_LAYOUT_IN), bw_from_operand(BW_LAYOUT_OUT), m);
    return BW_OK;
}

template <typename T>
bw_status choose_chunks(const bw_dims *dims, bw_cuda_launch_spec *out) {
    constexpr int side = tile<T>::side, per = tile<T>::per, threads = tile<T>::threads;
    if ((dims->value[BW_TRANSPOSE_ROWS] | dims->value[BW_TRANSPOSE_COLUMNS]) % per == 0) {
        return choose<T>(out, transpose_chunks_kernel<T>, threads, matrices_of(dims, side, 0, side));
    }
    return choose<T>(out, transpose_shifted_kernel<T>, threads, matrices_of(dims, side, per - 1, shifted<T>::columns));
}

// Of tiles of at least so many rows and columns.
const char *refuses(const bw_dims *dims, int side) {
    const matrices m = matrices_of(dims, side, side, side);
    const bw_checked_int blocks = bw_mul3(m.batch, m.down, m.across);
    return !blocks.overflow && bw_cuda_grid_fits(blocks.value) ? nullptr : "more tiles than a grid holds (2^31 - 1)";
}

}  // namespace

bw_status bw_transpose_tiled_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                    bw_cuda_launch_spec *out) {
    const matrices m = matrices_of(dims, PLAIN_SIDE, 0, PLAIN_SIDE);
    return is_wide(precision) ? choose<uint32_t>(out, transpose_elements_kernel<uint32_t>, PLAIN_THREADS, m)
                              : choose<uint16_t>(out, transpose_elements_kernel<uint16_t>, PLAIN_THREADS, m);
}

bw_status bw_transpose_swizzled_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                       bw_cuda_launch_spec *out) {
    return is_wide(precision) ? choose_chunks<uint32_t>(dims, out) : choose_chunks<uint16_t>(dims, out);
}

const char *bw_transpose_tiled_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return refuses(dims, PLAIN_SIDE);
}

const char *bw_transpose_swizzled_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return refuses(dims, is_wide(precision) ? shifted<uint32_t>::columns : shifted<uint16_t>::columns);
}
