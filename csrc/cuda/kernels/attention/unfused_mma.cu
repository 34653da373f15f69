// The products of unfused attention in 16-bit precisions, by mma.sync: tiles of 128 x 128 sums a block and 64 x 32 a
// warp, 64 elements of depth a stage, three stages deep, as gemm's `tensor` has them.
//   scores   queries by keys over head_dim: both factors' rows are their depth
//   output   queries by columns of head_dim over all keys (masked ones weigh 0): V's rows are the depth, so that its
//            fragments are read transposed
#include "cuda/kernels/attention/unfused.h"

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/common/swizzled_tile.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int edge = 128, depth = 64, threads = 256, stages = 3;
constexpr int warp_rows = 64, warp_columns = 32;
constexpr int tile_elems = edge * depth;

// Of a block: (batch, head), tile of queries, tile of keys or of columns.
struct product_place {
    int64_t pair, batch, head;
    int64_t row0, column0;
};

BW_DEVICE product_place place_of(const bw_attention_shape &shape, int64_t column_tiles) {
    const int64_t row_tiles = (shape.queries + edge - 1) / edge, rest = (int64_t)blockIdx.x / column_tiles;
    product_place at;
    at.column0 = (int64_t)blockIdx.x % column_tiles * edge;
    at.row0 = rest % row_tiles * edge;
    at.pair = rest / row_tiles;
    at.batch = at.pair / shape.heads;
    at.head = at.pair % shape.heads;
    return at;
}

// A matrix whose rows are `stride` elements apart; so many rows and columns are there.
template <typename T>
struct product_view {
    const T *first;
    int64_t stride, rows, columns;
    bool vectors;  // rows start at multiples of 16 bytes
};

// Factor b's rows are columns of the product, or with `transposed` its depth.
template <bool transposed, typename T>
BW_DEVICE void fetch_tiles(T *tiles, const product_view<T> &a, const product_view<T> &b, int64_t k0) {
    const int thread = (int)threadIdx.x;
    const auto left = [](int64_t count) { return (int)min((int64_t)edge, max((int64_t)0, count)); };
    bw_tensor_fetch<depth>(tiles, a.first + k0, a.stride, edge, left(a.rows), left(a.columns - k0), a.vectors, thread,
                           threads);
    if constexpr (transposed) {
        bw_tensor_fetch<edge>(tiles + tile_elems, b.first + k0 * b.stride, b.stride, depth, left(b.rows - k0),
                              left(b.columns), b.vectors, thread, threads);
    } else {
        bw_tensor_fetch<depth>(tiles + tile_elems, b.first + k0, b.stride, edge, left(b.rows), left(b.columns - k0),
                               b.vectors, thread, threads);
    }
    bw_copy_commit();
}

template <bool transposed, typename T>
BW_DEVICE void multiply_tiles(const product_view<T> &a, const product_view<T> &b, float (&acc)[4][4][4]) {
    T *shared = (T *)bw_dynamic_shared();
    const int warp = (int)threadIdx.x / 32;
    const int warp_row = warp / 4 * warp_rows, warp_column = warp % 4 * warp_columns;
    // Past the last tile zeros are stored, which nobody reads.
#pragma unroll
    for (int stage = 0; stage < stages - 1; stage++) {
        fetch_tiles<transposed>(shared + stage * 2 * tile_elems, a, b, stage * depth);
    }
    int now = 0;
    for (int64_t k0 = 0; k0 < a.columns; k0 += depth) {
        bw_copy_wait<stages - 2>();
        __syncthreads();  // this tile is there, and nobody reads the last one any more, whose stage is filled next
        fetch_tiles<transposed>(shared + (now == 0 ? stages - 1 : now - 1) * 2 * tile_elems, a, b,
                                k0 + (stages - 1) * depth);
        T *left = shared + now * 2 * tile_elems, *right = left + tile_elems;
        now = now == stages - 1 ? 0 : now + 1;
#pragma unroll
        for (int step = 0; step < depth / 16; step++) {
            uint32_t rows[4][4], columns[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) bw_tensor_rows<depth>(rows[i], left, warp_row + 16 * i, step);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if constexpr (transposed) {
                    bw_tensor_transposed<edge>(columns[j], right, 16 * step, warp_column / 16 + j);
                } else {
                    bw_tensor_columns<depth>(columns[j], right, warp_column + 16 * j, step);
                }
            }
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

// Calls store(row, column, low, high) for two neighboring sums of the tile, the first in an even column.
template <typename Store>
BW_DEVICE void for_sums(const float (&acc)[4][4][4], Store store) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row0 = warp / 4 * warp_rows + lane / 4, column0 = warp % 4 * warp_columns + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                store(row0 + 16 * i + 8 * half, column0 + 8 * j, acc[i][j][2 * half], acc[i][j][2 * half + 1]);
            }
        }
    }
}

// Columns that are not there are left out.
template <typename T>
BW_DEVICE void store_pair(T *row, int64_t column, int64_t columns, bool aligned, float low, float high) {
    if (aligned && column < columns) {
        *(uint32_t *)&row[column] = bw_pack_pair(low, high, T());
        return;
    }
    if (column < columns) bw_from_float(low, &row[column]);
    if (column + 1 < columns) bw_from_float(high, &row[column + 1]);
}

template <typename T>
__global__ void __launch_bounds__(threads, 2)
    attention_scores_mma_kernel(const T *q, const T *k, T *scores, bw_attention_shape shape, int64_t key_tiles) {
    const product_place at = place_of(shape, key_tiles);
    const int64_t reach = shape.keys - shape.queries;  // query s attends keys up to reach + s
    float acc[4][4][4] = {};
    if (!shape.causal || at.column0 <= reach + min(at.row0 + edge, shape.queries) - 1) {
        const int64_t q_stride = shape.heads * shape.head_dim, k_stride = shape.kv_heads * shape.head_dim;
        const product_view<T> left = {q + (at.batch * shape.queries + at.row0) * q_stride + at.head * shape.head_dim,
                                      q_stride, shape.queries - at.row0, shape.head_dim, shape.vectors};
        const product_view<T> right = {
            k + (at.batch * shape.keys + at.column0) * k_stride + at.head / shape.group * shape.head_dim, k_stride,
            shape.keys - at.column0, shape.head_dim, shape.vectors};
        multiply_tiles<false>(left, right, acc);
    }
    const float scale = rsqrtf((float)shape.head_dim);
    const bool aligned = shape.keys % 2 == 0;
    T *to = scores + (at.pair * shape.queries + at.row0) * shape.keys;
    for_sums(acc, [&](int row, int column, float low, float high) {
        if (at.row0 + row >= shape.queries) return;
        const int64_t key = at.column0 + column, last = shape.causal ? reach + at.row0 + row : shape.keys;
        store_pair(to + row * shape.keys, key, shape.keys, aligned, key > last ? -INFINITY : low * scale,
                   key + 1 > last ? -INFINITY : high * scale);
    });
}

template <typename T>
__global__ void __launch_bounds__(threads, 2)
    attention_output_mma_kernel(const T *weights, const T *v, T *out, bw_attention_shape shape, int64_t column_tiles) {
    const product_place at = place_of(shape, column_tiles);
    const int64_t q_stride = shape.heads * shape.head_dim, v_stride = shape.kv_heads * shape.head_dim;
    const int64_t columns = shape.head_dim - at.column0;
    const product_view<T> left = {weights + (at.pair * shape.queries + at.row0) * shape.keys, shape.keys,
                                  shape.queries - at.row0, shape.keys, shape.keys % 8 == 0};
    const product_view<T> right = {
        v + at.batch * shape.keys * v_stride + at.head / shape.group * shape.head_dim + at.column0, v_stride,
        shape.keys, columns, shape.vectors};
    float acc[4][4][4] = {};
    multiply_tiles<true>(left, right, acc);
    T *to = out + (at.batch * shape.queries + at.row0) * q_stride + at.head * shape.head_dim + at.column0;
    const bool aligned = shape.head_dim % 2 == 0;
    for_sums(acc, [&](int row, int column, float low, float high) {
        if (at.row0 + row < shape.queries) store_pair(to + row * q_stride, column, columns, aligned, low, high);
    });
}

constexpr size_t shared_bytes = (size_t)stages * 2 * tile_elems * sizeof(uint16_t);

dim3 grid_of(const bw_attention_shape &shape, int64_t column_tiles) {
    return dim3((unsigned)(shape.batch * shape.heads * bw_ceil_div(shape.queries, edge) * column_tiles));
}

}  // namespace

bw_status bw_unfused_mma_scores(bw_dtype dtype, const bw_attention_shape &shape, bw_cuda_launch_spec *out) {
    return bw_cuda_by_half_type(dtype, [&](auto tag) {
        const int64_t tiles = bw_ceil_div(shape.keys, edge);
        bw_choose(out, attention_scores_mma_kernel<typename decltype(tag)::type>, grid_of(shape, tiles), dim3(threads),
                  shared_bytes, bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K), bw_from_scratch(0),
                  shape, tiles);
        return BW_OK;
    });
}

bw_status bw_unfused_mma_output(bw_dtype dtype, const bw_attention_shape &shape, bw_cuda_launch_spec *out) {
    return bw_cuda_by_half_type(dtype, [&](auto tag) {
        const int64_t tiles = bw_ceil_div(shape.head_dim, edge);
        bw_choose(out, attention_output_mma_kernel<typename decltype(tag)::type>, grid_of(shape, tiles), dim3(threads),
                  shared_bytes, bw_from_scratch(0), bw_from_operand(BW_ATTENTION_V), bw_from_operand(BW_ATTENTION_OUT),
                  shape, tiles);
        return BW_OK;
    });
}
