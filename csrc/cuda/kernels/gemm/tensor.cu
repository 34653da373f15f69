// gemm and moe_gemm on tensor cores by mma.sync (from compute capability 8.0 on): FP16, BF16, TF32; accumulated in
// float.
//   - a block of 8 warps has a 128 x 128 tile of D, a warp 64 x 32 of it: 6 loads of fragments for 16 products;
//   - tiles of A and B, 128 bytes of each row, arrive by asynchronous copies, three stages deep;
//   - 16-byte chunks are permuted (swizzled_tile.cuh), so that fragments are read without bank conflicts.
//   - experts: as many blocks as run at once walk over the tiles of all of them; of an expert's, those that share rows
//     of B are neighbors. A thread's rows of A are where the routing says, else it is the same.
// A TF32 element takes the place of two 16-bit ones: a chunk has four, and the same fragments are those of m16n8k8.
#include "cuda/kernels/common/swizzled_tile.cuh"
#include "cuda/kernels/gemm/experts/experts.h"
#include "cuda/kernels/gemm/experts/routing.cuh"
#include "cuda/kernels/gemm/linear/end.cuh"
#include "cuda/kernels/gemm/linear/linear.h"

namespace {

constexpr int edge = 128, threads = 256, stages = 3;
constexpr int chunks = 8;                     // of 16 bytes, of a tile's row
constexpr int units = chunks * 8;             // the same in units of 16 bits
constexpr int fetch_rows = threads / chunks;  // that a block's threads fetch at once
static_assert(fetch_rows % 8 == 0 && edge % fetch_rows == 0, "chunks of a thread's rows lie alike");
constexpr int warp_rows = 64, warp_columns = 32;
constexpr int tile_units = edge * units;  // of A or of B
constexpr size_t shared_bytes = (size_t)stages * 2 * tile_units * sizeof(uint16_t);

constexpr int thread_rows = edge / fetch_rows;  // of a tile, that one thread fetches

// A matrix from a tile's first row on, as one thread fetches it: the same chunk of every 32nd row. T is const.
template <typename T>
struct source {
    T *at;         // the thread's chunk of its first row, in the tile that is next
    int64_t step;  // elements between its rows
    int64_t k;     // elements from its chunk to the row's end
    int rows;      // from its first one to the last that there is
    BW_DEVICE T *row(const source &self, int i) {
        return self.at + i * self.step;
    }
};

// The same, of rows that lie anywhere.
template <typename T>
struct scattered {
    T *at;
    int64_t begin[thread_rows];  // of each row
    int64_t k;
    int rows;
    BW_DEVICE T *row(const scattered &self, int i) {
        return self.at + self.begin[i];
    }
};

BW_DEVICE int first_row() {
    return (int)threadIdx.x / chunks;
}
template <typename T>
BW_DEVICE int first_column() {
    return (int)threadIdx.x % chunks * (16 / (int)sizeof(T));
}

template <typename T>
BW_DEVICE source<const T> source_of(const T *first, int64_t rows, int64_t k) {
    const int row = first_row(), column = first_column<T>();
    return {first + row * k + column, fetch_rows * k, k - column, (int)min((int64_t)edge, rows) - row};
}

// Row i of the tile is row numbers[i] of `a`, of which there are so many.
template <typename T>
BW_DEVICE scattered<const T> scattered_of(const T *a, const int *numbers, int rows, int64_t k) {
    const int row = first_row(), column = first_column<T>();
    scattered<const T> made = {a + column, {}, k - column, min(edge, rows) - row};
#pragma unroll
    for (int i = 0; i < thread_rows; i++) {
        if (i * fetch_rows < made.rows) made.begin[i] = __ldg(numbers + row + i * fetch_rows) * k;
    }
    return made;
}

// The next tile; zeros behind the last row and the last column.
template <typename Source>
BW_DEVICE void fetch(uint16_t *tile, Source &from, bool vectors) {
    constexpr int elems = 16 / (int)sizeof(*from.at);
    uint16_t *to = bw_tensor_chunk<units>(tile, first_row(), (int)threadIdx.x % chunks);
#pragma unroll
    for (int i = 0; i < thread_rows; i++, to += fetch_rows * units) {
        const bool there = i * fetch_rows < from.rows && from.k > 0;
        const auto *at = there ? Source::row(from, i) : from.at;
        if (vectors) {
            bw_copy_async(to, at, there);
        } else {
            *(uint4 *)to = bw_gather_chunk(at, there ? (int)min((int64_t)elems, from.k) : 0);
        }
    }
    from.at += chunks * elems;
    from.k -= chunks * elems;
}

// A tile's sums, of a thread.
template <typename T, typename Source>
BW_DEVICE void multiply_tile(Source a_from, source<const T> b_from, int64_t k, float (&acc)[4][4][4]) {
    constexpr int depth = chunks * 16 / (int)sizeof(T);
    uint16_t *shared = (uint16_t *)bw_dynamic_shared();
    const int warp = (int)threadIdx.x / 32, warp_row = warp / 4 * warp_rows, warp_column = warp % 4 * warp_columns;
    const bool vectors = k * (int)sizeof(T) % 16 == 0;
    // Past the last tile zeros are stored, which nobody reads.
    auto fetch_tiles = [&](int stage) {
        fetch(shared + stage * 2 * tile_units, a_from, vectors);
        fetch(shared + stage * 2 * tile_units + tile_units, b_from, vectors);
        bw_copy_commit();
    };
#pragma unroll
    for (int stage = 0; stage < stages - 1; stage++) fetch_tiles(stage);
    int now = 0;
    for (int64_t k0 = 0; k0 < k; k0 += depth) {
        bw_copy_wait<stages - 2>();
        __syncthreads();  // this tile is there, and nobody reads the last one any more, whose stage is filled next
        fetch_tiles(now == 0 ? stages - 1 : now - 1);
        uint16_t *left = shared + now * 2 * tile_units, *right = left + tile_units;
        now = now == stages - 1 ? 0 : now + 1;
#pragma unroll
        for (int step = 0; step < chunks / 2; step++) {
            uint32_t rows[4][4], columns[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) bw_tensor_rows<units>(rows[i], left, warp_row + 16 * i, step);
#pragma unroll
            for (int j = 0; j < 2; j++) bw_tensor_columns<units>(columns[j], right, warp_column + 16 * j, step);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    bw_multiply(acc[i][j], rows[i], columns[j / 2][j % 2 * 2], columns[j / 2][j % 2 * 2 + 1], T());
                }
            }
        }
    }
}

// Where c is NULL nothing is added.
template <typename C, typename T>
BW_DEVICE void store_tile(const float (&acc)[4][4][4], const C &c, T *d, int64_t row0, int64_t column0, int64_t rows,
                          int64_t n) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int warp_row = warp / 4 * warp_rows, warp_column = warp % 4 * warp_columns;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = row0 + warp_row + 16 * i + 8 * half + lane / 4;
            if (row >= rows) continue;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                bw_gemm_store_pair(c, d, row, column0 + warp_column + 8 * j + lane % 4 * 2, n, acc[i][j][2 * half],
                                   acc[i][j][2 * half + 1]);
            }
        }
    }
}

template <typename T, typename C>
__global__ void __launch_bounds__(threads, 2)
    gemm_tensor_kernel(const T *a, const T *b, C c, T *d, int64_t m, int64_t n, int64_t k, int64_t tiles_m) {
    const int64_t row0 = (int64_t)blockIdx.x % tiles_m * edge, column0 = (int64_t)blockIdx.x / tiles_m * edge;
    float acc[4][4][4] = {};
    multiply_tile(source_of(a + row0 * k, m - row0, k), source_of(b + column0 * k, n - column0, k), k, acc);
    store_tile(acc, c, d, row0, column0, m, n);
}

struct experts_shape {
    int64_t n, k;
    int experts, tiles_n;
};

template <typename T>
__global__ void __launch_bounds__(threads, 2)
    moe_tensor_kernel(const T *a, const T *b, const int *rows, const int *offsets, T *d, experts_shape shape) {
    for (int tile = (int)blockIdx.x;; tile += (int)gridDim.x) {
        const bw_expert_tile found =
            bw_find_tile<edge>(offsets, shape.experts, shape.tiles_n, tile, (int)threadIdx.x % 32);
        if (found.expert < 0) break;
        const int row0 = found.row0, end = found.end;
        const int64_t column0 = found.column * edge;
        const T *of_b = b + (found.expert * shape.n + column0) * shape.k;
        float acc[4][4][4] = {};
        multiply_tile(scattered_of(a, rows + row0, end - row0, shape.k), source_of(of_b, shape.n - column0, shape.k),
                      shape.k, acc);
        store_tile(acc, (const T *)nullptr, d, row0, column0, end, shape.n);
        bw_copy_wait<0>();
        __syncthreads();  // nobody reads this tile any more
    }
}

}  // namespace

const char *bw_gemm_tensor_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    return bw_gemm_tiles_refuse(dims, edge, edge);
}

bw_status bw_gemm_tensor_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_gemm_choose_tiles(dims, gemm_tensor_kernel<T, const T *>, edge, edge, threads, shared_bytes, out);
    });
}

bw_status bw_linear_tensor_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                  bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        BW_TRY(bw_gemm_choose_tiles(dims, gemm_tensor_kernel<T, bw_linear_end<T>>, bw_linear_end_of<T>(dims), edge,
                                    edge, threads, shared_bytes, out));
        return bw_linear_place_bias(out, 2);
    });
}

const char *bw_moe_tensor_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    const bw_checked_int tiles =
        bw_mul(bw_num(bw_ceil_div(value[BW_MOE_N], edge)), bw_num(value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K]));
    return tiles.overflow || tiles.value > INT32_MAX / 2 ? "more than 2^30 tiles of 128 columns for a row of D"
                                                         : nullptr;
}

// Where streamed would read B more than once, or does not take it.
bool bw_moe_tensor_prefers(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    return value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K] > 32 * value[BW_MOE_ACTIVE];
}

bw_status bw_moe_tensor_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                               bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const int64_t rows = value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K], active = value[BW_MOE_ACTIVE];
    const int64_t tiles_n = bw_ceil_div(value[BW_MOE_N], edge), fullest = bw_ceil_div(rows, active);
    const experts_shape shape = {value[BW_MOE_N], value[BW_MOE_K], (int)value[BW_MOE_EXPERTS], (int)tiles_n};
    const int64_t blocks = bw_min64(tiles_n * active * bw_ceil_div(fullest, edge), 2 * (int64_t)facts->units);
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_choose(out, moe_tensor_kernel<T>, dim3((unsigned)blocks), dim3(threads), shared_bytes,
                  bw_from_operand(BW_GEMM_A), bw_from_operand(BW_GEMM_B), bw_from_operand(BW_MOE_ROWS),
                  bw_from_operand(BW_MOE_OFFSETS), bw_from_operand(BW_GEMM_D), shape);
        return BW_OK;
    });
}
