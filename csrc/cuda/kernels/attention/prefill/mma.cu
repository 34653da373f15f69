// attention_prefill, flash, FP16 and BF16: online softmax with both products on tensor cores, accumulated in float.
//   - a warp owns 16 queries and meets all keys, 64 (or 32) at a time; scores and weights never leave its registers;
//   - K and V tiles arrive by asynchronous copies: V while the scores are worked out, the next K during the product
//     with V;
//   - a causal block stops at its diagonal, and blocks with the longest rows start first.
// head_dim is padded to 64, 128 or 256 with zeros in shared memory. 64 or 128 queries a block, as suits the grid.
#include "cuda/kernels/attention/prefill/order.cuh"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/kernels/common/swizzled_tile.cuh"
#include "cuda/launch/choose.cuh"

namespace {

// 128 queries a block: K and V pass through shared memory once per 128 rows.
constexpr int largest_warps = 8;

// Keys of a tile. A lane holds padded / 2 sums and a score per two keys: 64 + 32 registers at 128 columns, 128 + 16 at
// 256.
template <int padded>
constexpr int tile_keys_for = padded <= 128 ? 64 : 32;

// Scores to weights, in place. `room[half]` is the last key, from the tile's first on, that the lane's rows attend;
// where the whole tile lies before it, `masked` is false. The first tile holds key 0, which every row attends, so that
// maxima are finite.
template <bool masked, int padded, int eights>
BW_DEVICE void soften(float (&scores)[eights][4], const int (&room)[2], float scale, bw_softmax_sums<padded, 2> &sums) {
    const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float best = -INFINITY;
#pragma unroll
        for (int n = 0; n < eights; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float &score = scores[n][2 * half + c];
                if (masked && 8 * n + column + c > room[half]) score = -INFINITY;
                best = fmaxf(best, score);
            }
        }
        best = fmaxf(sums.top[half], bw_quad_max(best) * scale);
        bw_softmax_rescale(sums, half, best, best);
#pragma unroll
        for (int n = 0; n < eights; n++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const float weight = bw_exp2(fmaf(scores[n][2 * half + c], scale, -best));
                scores[n][2 * half + c] = weight;
                sums.sum[half] += weight;
            }
        }
    }
}

template <int padded, int eights, typename T>
BW_DEVICE void multiply_values(const float (&weights)[eights][4], T *values, bw_softmax_sums<padded, 2> &sums) {
#pragma unroll
    for (int step = 0; step < eights / 2; step++) {
        uint32_t left[4];
        bw_tensor_weights(left, weights[2 * step], weights[2 * step + 1], T());
#pragma unroll
        for (int pair = 0; pair < padded / 16; pair++) {
            uint32_t right[4];
            bw_tensor_transposed<padded>(right, values, 16 * step, pair);
            bw_multiply(sums.out[2 * pair], left, right[0], right[1], T());
            bw_multiply(sums.out[2 * pair + 1], left, right[2], right[3], T());
        }
    }
}

// Rows first_row and first_row + 8 of a lane's output, normalised.
template <int padded, typename T>
BW_DEVICE void store_rows(bw_softmax_sums<padded, 2> &sums, T *out, int64_t stride, int64_t first_row, int64_t rows,
                          int head_dim) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float inverse = 1.0f / bw_quad_sum(sums.sum[half]);
        if (first_row + 8 * half >= rows) continue;
        T *to = out + (first_row + 8 * half) * stride;
#pragma unroll
        for (int n = 0; n < padded / 8; n++) {
            const int column = 8 * n + (int)threadIdx.x % 4 * 2;
            const float low = sums.out[n][2 * half] * inverse, high = sums.out[n][2 * half + 1] * inverse;
            if (head_dim % 2 == 0) {
                if (column < head_dim) *(uint32_t *)&to[column] = bw_pack_pair(low, high, T());
            } else {
                if (column < head_dim) bw_from_float(low, &to[column]);
                if (column + 1 < head_dim) bw_from_float(high, &to[column + 1]);
            }
        }
    }
}

// Block: (batch, head) and tile of queries, in bw_flash_order. `vectors`: shape.vectors.
template <int padded, bool vectors, typename T>
__global__ void __launch_bounds__(largest_warps * 32, padded <= 64 ? 2 : 1)
    attention_flash_tensor_kernel(const T *q, const T *k, const T *v, T *out, bw_attention_shape shape,
                                  bw_flash_order order) {
    constexpr bool queries_in_registers = padded <= 128;
    constexpr int tile_keys = tile_keys_for<padded>;
    const int threads = (int)blockDim.x, thread = (int)threadIdx.x, rows = threads / 32 * 16;
    T *queries = (T *)bw_dynamic_shared(), *keys = queries + rows * padded, *values = keys + tile_keys * padded;
    int64_t pair, tile_index;
    bw_flash_place(shape, order, blockIdx.x, &pair, &tile_index);
    const int64_t query0 = tile_index * rows;
    const int64_t batch = pair / shape.heads, head = pair % shape.heads;
    const int64_t q_stride = shape.heads * shape.head_dim, kv_stride = shape.kv_heads * shape.head_dim;
    const int64_t q_at = (batch * shape.queries + query0) * q_stride + head * shape.head_dim;
    int64_t kv_at = batch * shape.keys * kv_stride + head / shape.group * shape.head_dim;
    const int all_keys = (int)shape.keys, reach = (int)(shape.keys - shape.queries + query0);
    const int key_end = shape.causal ? min(all_keys, reach + rows) : all_keys;
    const int warp_row = thread / 32 * 16;
    // The warp's first row attends the fewest keys: tiles that end before them need no mask.
    const int open_keys = shape.causal ? min(all_keys, reach + warp_row + 1) : all_keys;
    int last[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = reach + warp_row + thread % 32 / 4 + 8 * half;
        last[half] = shape.causal ? min(all_keys - 1, row) : all_keys - 1;
    }
    bw_softmax_sums<padded, 2> sums = {};
    sums.top[0] = sums.top[1] = -INFINITY;

    bw_tensor_fetch<padded>(queries, q + q_at, q_stride, rows, shape.queries - query0, shape.head_dim, vectors, thread,
                            threads);
    bw_tensor_fetch<padded>(keys, k + kv_at, kv_stride, tile_keys, shape.keys, shape.head_dim, vectors, thread,
                            threads);
    bw_copy_commit();
    bw_copy_wait<0>();
    __syncthreads();
    uint32_t left[queries_in_registers ? padded / 16 : 1][4];
    if constexpr (queries_in_registers) {
#pragma unroll
        for (int step = 0; step < padded / 16; step++) bw_tensor_rows<padded>(left[step], queries, warp_row, step);
    }
    for (int key0 = 0; key0 < key_end; key0 += tile_keys) {
        // This tile's K is there, and nobody reads the last tile's V any more.
        bw_tensor_fetch<padded>(values, v + kv_at, kv_stride, tile_keys, all_keys - key0, shape.head_dim, vectors,
                                thread, threads);
        bw_copy_commit();
        kv_at += tile_keys * kv_stride;
        float scores[tile_keys / 8][4] = {};
#pragma unroll
        for (int step = 0; step < padded / 16; step++) {
            if constexpr (!queries_in_registers) bw_tensor_rows<padded>(left[0], queries, warp_row, step);
            const uint32_t(&now)[4] = left[queries_in_registers ? step : 0];
#pragma unroll
            for (int n = 0; n < tile_keys / 16; n++) {
                uint32_t right[4];
                bw_tensor_columns<padded>(right, keys, 16 * n, step);
                bw_multiply(scores[2 * n], now, right[0], right[1], T());
                bw_multiply(scores[2 * n + 1], now, right[2], right[3], T());
            }
        }
        const int room[2] = {last[0] - key0, last[1] - key0};
        if (key0 + tile_keys > open_keys) {
            soften<true>(scores, room, shape.scale, sums);
        } else {
            soften<false>(scores, room, shape.scale, sums);
        }
        bw_copy_wait<0>();
        __syncthreads();  // V is there, and nobody reads this tile's K any more
        if (key0 + tile_keys < key_end) {
            bw_tensor_fetch<padded>(keys, k + kv_at, kv_stride, tile_keys, all_keys - key0 - tile_keys, shape.head_dim,
                                    vectors, thread, threads);
        }
        bw_copy_commit();
        multiply_values(scores, values, sums);
        bw_copy_wait<0>();
        __syncthreads();
    }
    store_rows(sums, out + q_at, q_stride, warp_row + thread % 32 / 4, shape.queries - query0, shape.head_dim);
}

template <int padded, bool vectors, typename T>
bw_status choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_prepared *out) {
    // Long tiles read K and V less often; short ones fill more multiprocessors. 256 columns leave room for short ones.
    const int64_t long_tiles = shape.batch * shape.heads * bw_ceil_div(shape.queries, 128);
    const int warps = padded <= 128 && long_tiles >= 2 * facts->units ? 8 : 4;
    const int64_t tiles = bw_ceil_div(shape.queries, warps * 16);
    const bw_flash_order order = bw_flash_order_make(shape, tiles, sizeof(T), facts->cache_bytes);
    const size_t shared_bytes = (size_t)(warps * 16 + 2 * tile_keys_for<padded>)*padded * sizeof(T);
    bw_choose(out, attention_flash_tensor_kernel<padded, vectors, T>,
              dim3((unsigned)(tiles * shape.batch * shape.heads)), dim3((unsigned)warps * 32), shared_bytes,
              bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K), bw_from_operand(BW_ATTENTION_V),
              bw_from_operand(BW_ATTENTION_OUT), shape, order);
    return BW_OK;
}

template <int padded, typename T>
bw_status choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_prepared *out) {
    return shape.vectors ? choose<padded, true, T>(shape, facts, out) : choose<padded, false, T>(shape, facts, out);
}

}  // namespace

bw_status bw_flash_mma_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_device_facts *facts,
                              bw_cuda_prepared *out) {
    return bw_cuda_by_half_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (shape.head_dim <= 64) return choose<64, T>(shape, facts, out);
        if (shape.head_dim <= 128) return choose<128, T>(shape, facts, out);
        return choose<256, T>(shape, facts, out);
    });
}
