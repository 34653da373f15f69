// attention_prefill, flash, FP16 and BF16: online softmax with both products on tensor cores, accumulated in float.
//   - a warp owns 16 or 32 queries and meets all keys, 32 to 128 at a time; scores and weights never leave its
//     registers; 32 queries halve what it reads of K and V from shared memory for each product;
//   - K and V tiles arrive by asynchronous copies: V while the scores are worked out, the next K during the product
//     with V; two blocks on a multiprocessor fill each other's waits;
//   - behind the first tile, weights stand on the maximum so far without looking for a new one: exponentials need not
//     wait for all scores, so that the compiler puts them between the products, and tensor cores work on;
//   - a causal block stops at its diagonal, and blocks with the longest rows start first.
// On an H200 the third brought 285 -> 331 TFLOP/s at 4 x 4096 x 32/8 x 64 and 333 -> 383 with 128 columns.
// head_dim is padded to 64, 128 or 256 with zeros in shared memory. 64 or 128 queries a block, as suits the grid.
#include "cuda/kernels/attention/prefill/order.cuh"
#include "cuda/kernels/attention/prefill/softmax.cuh"
#include "cuda/kernels/common/swizzled_tile.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int warps = 4, threads = warps * 32;

// bw_tensor_fetch for rows that are aligned: a thread's rows are a multiple of eight apart, so that its chunks' places
// differ by constants.
template <int padded, int rows, typename T>
BW_DEVICE void fetch_aligned(T *tile, const T *from, int64_t stride, int valid, int head_dim) {
    constexpr int chunks = padded / 8, step = threads / chunks;
    static_assert(step % 8 == 0 && rows % step == 0, "whole turns of the permutation");
    const int row = (int)threadIdx.x / chunks, chunk = (int)threadIdx.x % chunks;
    const int there = chunk * 8 < head_dim ? valid - row : 0;
    T *to = bw_tensor_chunk<padded>(tile, row, chunk);
    const T *at = from + row * stride + chunk * 8;
#pragma unroll
    for (int i = 0; i < rows; i += step, at += step * stride) {
        bw_copy_async(to + i * padded, at, i < there);
    }
}

template <int padded, int rows, bool vectors, typename T>
BW_DEVICE void fetch(T *tile, const T *from, int64_t stride, int64_t valid, int head_dim) {
    if constexpr (vectors && padded <= 128) {
        fetch_aligned<padded, rows>(tile, from, stride, (int)min(valid, (int64_t)rows), head_dim);
    } else {
        bw_tensor_fetch<padded>(tile, from, stride, rows, valid, head_dim, vectors, (int)threadIdx.x, threads);
    }
}

// A lane's address in bw_tensor_rows, bw_tensor_columns and bw_tensor_transposed for row 0 and step (pair) 0: those of
// other steps differ in bits that 32 step flips, those of other rows by their bytes. Tiles start at multiples of a row.
enum class fragment { rows, columns, transposed };
template <fragment kind, int padded, typename T>
BW_DEVICE uint32_t fragment_address(const T *tile) {
    const int lane = (int)threadIdx.x % 32, block = lane / 8;
    const int row = lane % 8 + (kind == fragment::columns ? block / 2 : block % 2) * 8;
    const int chunk = kind == fragment::columns ? block % 2 : block / 2;
    return bw_shared_address(tile) + (row * padded + (chunk ^ row % 8) * 8) * (uint32_t)sizeof(T);
}
template <int padded>
BW_DEVICE uint32_t move_address(uint32_t address, int row, int step) {
    return (address ^ step * 32) + row * padded * 2;
}

template <int padded, int blocks, int eights, typename T>
BW_DEVICE void multiply_values(const uint32_t (&weights)[blocks][eights / 2][4], uint32_t values,
                               bw_softmax_sums<padded, 2> (&sums)[blocks], T) {
#pragma unroll
    for (int step = 0; step < eights / 2; step++) {
#pragma unroll
        for (int pair = 0; pair < padded / 16; pair++) {
            uint32_t right[4];
            bw_load_matrix_transposed(right, move_address<padded>(values, 16 * step, pair));
#pragma unroll
            for (int b = 0; b < blocks; b++) {
                bw_multiply(sums[b].out[2 * pair], weights[b][step], right[0], right[1], T());
                bw_multiply(sums[b].out[2 * pair + 1], weights[b][step], right[2], right[3], T());
            }
        }
    }
}

// Rows first_row and first_row + 8 of a lane's output, normalized.
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

template <int padded, int blocks, int eights, typename T>
BW_DEVICE void multiply_keys(uint32_t queries, uint32_t keys, const uint32_t (*fragments)[4],
                             float (&scores)[blocks][eights][4], T) {
    memset(scores, 0, sizeof scores);
#pragma unroll
    for (int step = 0; step < padded / 16; step++) {
        uint32_t left[blocks][4];
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            if (fragments) {
#pragma unroll
                for (int i = 0; i < 4; i++) left[b][i] = fragments[step * blocks + b][i];
            } else {
                bw_load_matrix(left[b], move_address<padded>(queries, 16 * b, step));
            }
        }
#pragma unroll
        for (int n = 0; n < eights / 2; n++) {
            uint32_t right[4];
            bw_load_matrix(right, move_address<padded>(keys, 16 * n, step));
#pragma unroll
            for (int b = 0; b < blocks; b++) {
                bw_multiply(scores[b][2 * n], left[b], right[0], right[1], T());
                bw_multiply(scores[b][2 * n + 1], left[b], right[2], right[3], T());
            }
        }
    }
}

// Of scores that have become weights.
template <int blocks, int eights, typename T>
BW_DEVICE void pack_weights(const float (&scores)[blocks][eights][4], uint32_t (&weights)[blocks][eights / 2][4], T) {
#pragma unroll
    for (int i = 0; i < eights / 2; i++) {
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            bw_tensor_weights(weights[b][i], scores[b][2 * i], scores[b][2 * i + 1], T());
        }
    }
}

// Block: (batch, head) and tile of queries, in bw_flash_order. A warp owns `blocks` times 16 rows. `vectors`:
// shape.vectors.
template <int padded, int blocks, int tile_keys, bool hold_queries, int resident, bool vectors, typename T>
__global__ void __launch_bounds__(threads, resident)
    attention_flash_tensor_kernel(const T *q, const T *k, const T *v, T *out, bw_attention_shape shape,
                                  bw_flash_order order) {
    constexpr int rows = warps * 16 * blocks, steps = padded / 16;
    const int thread = (int)threadIdx.x, warp_row = thread / 32 * 16 * blocks;
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
    // The warp's first row attends the fewest keys: tiles that end before them need no mask.
    const int open_keys = shape.causal ? min(all_keys, reach + warp_row + 1) : all_keys;
    const int first_last = reach + warp_row + thread % 32 / 4;  // the last key of the lane's first row, if causal
    bw_softmax_sums<padded, 2> sums[blocks] = {};
#pragma unroll
    for (int b = 0; b < blocks; b++) sums[b].top[0] = sums[b].top[1] = -INFINITY;

    fetch<padded, rows, vectors>(queries, q + q_at, q_stride, shape.queries - query0, shape.head_dim);
    fetch<padded, tile_keys, vectors>(keys, k + kv_at, kv_stride, shape.keys, shape.head_dim);
    bw_copy_commit();
    bw_copy_wait<0>();
    __syncthreads();
    const uint32_t q_fragment = fragment_address<fragment::rows, padded>(queries + warp_row * padded);
    const uint32_t k_fragment = fragment_address<fragment::columns, padded>(keys);
    const uint32_t v_fragment = fragment_address<fragment::transposed, padded>(values);
    uint32_t fragments[hold_queries ? steps * blocks : 1][4];
    if constexpr (hold_queries) {
#pragma unroll
        for (int i = 0; i < steps * blocks; i++) {
            bw_load_matrix(fragments[i], move_address<padded>(q_fragment, i % blocks * 16, i / blocks));
        }
    }
    for (int key0 = 0; key0 < key_end; key0 += tile_keys) {
        // This tile's K is there, and nobody reads the last tile's V any more.
        fetch<padded, tile_keys, vectors>(values, v + kv_at, kv_stride, all_keys - key0, shape.head_dim);
        bw_copy_commit();
        kv_at += tile_keys * kv_stride;
        float scores[blocks][tile_keys / 8][4];
        uint32_t weights[blocks][tile_keys / 16][4];  // half of the scores' registers
        const uint32_t(*left)[4] = hold_queries ? fragments : nullptr;
        bool done = false;
        // Most tiles: behind the first, and nothing masks them.
        if (vectors && key0 > 0 && key0 + tile_keys <= open_keys) {
            multiply_keys<padded, blocks>(bw_forget(q_fragment), bw_forget(k_fragment), left, scores, T());
            done = bw_flash_softmax_try_quick(scores, shape.scale, sums);
            pack_weights(scores, weights, T());
        }
        if (!done) {
            multiply_keys<padded, blocks>(bw_forget(q_fragment), bw_forget(k_fragment), left, scores, T());
            bw_flash_softmax_update(scores, all_keys - 1 - key0, first_last - key0, shape.causal, shape.scale, sums);
            pack_weights(scores, weights, T());
        }
        bw_copy_wait<0>();
        __syncthreads();  // V is there, and nobody reads this tile's K any more
        if (key0 + tile_keys < key_end) {
            fetch<padded, tile_keys, vectors>(keys, k + kv_at, kv_stride, all_keys - key0 - tile_keys, shape.head_dim);
        }
        bw_copy_commit();
        multiply_values<padded, blocks, tile_keys / 8>(weights, bw_forget(v_fragment), sums, T());
        bw_copy_wait<0>();
        __syncthreads();
    }
    // Worked out again: kept, it would take registers from the loop.
    bw_flash_place(shape, order, bw_forget(blockIdx.x), &pair, &tile_index);
    const int64_t out_row = pair / shape.heads * shape.queries + tile_index * rows;
    T *to = out + out_row * q_stride + pair % shape.heads * shape.head_dim;
#pragma unroll
    for (int b = 0; b < blocks; b++) {
        store_rows(sums[b], to, q_stride, warp_row + 16 * b + thread % 32 / 4, shape.queries - tile_index * rows,
                   shape.head_dim);
    }
}

template <int padded, int blocks, int tile_keys, bool hold_queries, int resident, bool vectors, typename T>
bw_status choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    constexpr int rows = warps * 16 * blocks;
    const int64_t tiles = bw_ceil_div(shape.queries, rows);
    const bw_flash_order order =
        bw_flash_order_make(shape, tiles, sizeof(T), facts->cache_bytes, facts->units * resident);
    const size_t shared_bytes = (size_t)(rows + 2 * tile_keys) * padded * sizeof(T);
    bw_choose(out, attention_flash_tensor_kernel<padded, blocks, tile_keys, hold_queries, resident, vectors, T>,
              dim3((unsigned)(tiles * shape.batch * shape.heads)), dim3(threads), shared_bytes,
              bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K), bw_from_operand(BW_ATTENTION_V),
              bw_from_operand(BW_ATTENTION_OUT), shape, order);
    return BW_OK;
}

template <int padded, typename T>
bw_status choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    // Keys at once: as many as scores find registers for beside the sums. 256 columns leave no room for queries.
    constexpr int keys = padded == 64 ? 128 : padded == 128 ? 64 : 32;
    constexpr bool hold = padded <= 128;
    if (!shape.vectors) return choose < padded, 1, padded == 256 ? 32 : 64, hold, 2, false, T > (shape, facts, out);
    if constexpr (padded <= 128) {
        // Long tiles read K and V less often; short ones fill more multiprocessors.
        const int64_t long_tiles = shape.batch * shape.heads * bw_ceil_div(shape.queries, 128);
        if (long_tiles >= 2 * facts->units) return choose<padded, 2, 64, padded == 64, 2, true, T>(shape, facts, out);
    }
    return choose<padded, 1, keys, hold, 2, true, T>(shape, facts, out);
}

}  // namespace

bw_status bw_flash_mma_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    return bw_cuda_by_half_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (shape.head_dim <= 64) return choose<64, T>(shape, facts, out);
        if (shape.head_dim <= 128) return choose<128, T>(shape, facts, out);
        return choose<256, T>(shape, facts, out);
    });
}
