// gemm on tensor cores by mma.sync (from compute capability 8.0 on): FP16, BF16, TF32; accumulated in float.
//   - a block of 8 warps has a 128 x 128 tile of D, a warp 64 x 32 of it: 6 loads of fragments for 16 products;
//   - tiles of A and B, 128 bytes of each row, arrive by asynchronous copies, three stages deep;
//   - 16-byte chunks are permuted (swizzled_tile.cuh), so that fragments are read without bank conflicts.
// A TF32 element takes the place of two 16-bit ones: a chunk has four, and the same fragments are those of m16n8k8.
#include "cuda/kernels/common/swizzled_tile.cuh"
#include "cuda/kernels/gemm/tiles.cuh"

namespace {

constexpr int edge = 128, threads = 256, stages = 3;
constexpr int chunks = 8;                     // of 16 bytes, of a tile's row
constexpr int units = chunks * 8;             // the same in units of 16 bits
constexpr int fetch_rows = threads / chunks;  // that a block's threads fetch at once
static_assert(fetch_rows % 8 == 0 && edge % fetch_rows == 0, "chunks of a thread's rows lie alike");
constexpr int warp_rows = 64, warp_columns = 32;
constexpr int tile_units = edge * units;  // of A or of B
constexpr size_t shared_bytes = (size_t)stages * 2 * tile_units * sizeof(uint16_t);

// A matrix from a tile's first row on, as one thread fetches it: the same chunk of every 32nd row.
template <typename T>
struct source {
    const T *at;   // the thread's chunk of its first row, in the tile that is next
    int64_t step;  // elements between its rows
    int64_t k;     // elements from its chunk to the row's end
    int rows;      // from its first one to the last that there is
};

template <typename T>
BW_DEVICE source<T> source_of(const T *first, int64_t rows, int64_t k) {
    const int row = (int)threadIdx.x / chunks, column = (int)threadIdx.x % chunks * (16 / (int)sizeof(T));
    return {first + row * k + column, fetch_rows * k, k - column, (int)min((int64_t)edge, rows) - row};
}

// The next tile; zeros behind the last row and the last column.
template <typename T>
BW_DEVICE void fetch(uint16_t *tile, source<T> &from, bool vectors) {
    constexpr int elems = 16 / (int)sizeof(T);
    uint16_t *to = bw_tensor_chunk<units>(tile, (int)threadIdx.x / chunks, (int)threadIdx.x % chunks);
#pragma unroll
    for (int i = 0; i < edge / fetch_rows; i++, to += fetch_rows * units) {
        const bool there = i * fetch_rows < from.rows && from.k > 0;
        const T *at = there ? from.at + i * from.step : from.at;
        if (vectors) {
            bw_copy_async(to, at, there);
        } else {
            *(uint4 *)to = bw_gather_chunk(at, there ? (int)min((int64_t)elems, from.k) : 0);
        }
    }
    from.at += chunks * elems;
    from.k -= chunks * elems;
}

template <typename T>
__global__ void __launch_bounds__(threads, 2)
    gemm_tensor_kernel(const T *a, const T *b, const T *c, T *d, int64_t m, int64_t n, int64_t k, int64_t tiles_m) {
    constexpr int depth = chunks * 16 / (int)sizeof(T);
    uint16_t *shared = (uint16_t *)bw_dynamic_shared();
    const int64_t row0 = (int64_t)blockIdx.x % tiles_m * edge, column0 = (int64_t)blockIdx.x / tiles_m * edge;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int warp_row = warp / 4 * warp_rows, warp_column = warp % 4 * warp_columns;
    const bool vectors = k * (int)sizeof(T) % 16 == 0;
    source<T> a_from = source_of(a + row0 * k, m - row0, k), b_from = source_of(b + column0 * k, n - column0, k);
    float acc[4][4][4] = {};
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
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = row0 + warp_row + 16 * i + 8 * half + lane / 4;
            if (row >= m) continue;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                bw_gemm_store_pair(c, d, row, column0 + warp_column + 8 * j + lane % 4 * 2, n, acc[i][j][2 * half],
                                   acc[i][j][2 * half + 1]);
            }
        }
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
        return bw_gemm_choose_tiles(dims, gemm_tensor_kernel<T>, edge, edge, threads, shared_bytes, out);
    });
}
