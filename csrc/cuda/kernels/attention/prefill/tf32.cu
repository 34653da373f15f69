// attention_prefill on tensor cores in TF32, and in FP32 as products of two TF32 numbers each (`split`): online
// softmax, as in mma.cu. What 32-bit elements change:
//   - mma takes 8 columns of head_dim, or 8 keys, at a time. Of which key is which of a step's 8 only the weights and V
//     must agree: keys 2 c and 2 c + 1 are c and c + 4, so that C fragments of scores are A fragments of weights;
//   - ldmatrix does not transpose them: a lane reads four neighbors of V at once, its column in four products;
//   - rows are padded by 16 bytes: both ways of reading find all banks.
// FP32: products of common/split_tf32.cuh.
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/prefill/order.cuh"
#include "cuda/kernels/attention/prefill/softmax.cuh"
#include "cuda/kernels/common/split_tf32.cuh"
#include "cuda/launch/choose.cuh"
#include "cuda/runtime/facts.h"

namespace {

constexpr int group = 32;  // columns of head_dim that are met at once: those beyond it are zeros

// head_dim up to `padded`; a warp owns `blocks` times 16 queries.
template <int padded, int blocks, int keys, int warps>
struct tf32_layout {
    static constexpr int stride = padded + 4, rows = warps * 16 * blocks, threads = warps * 32;
    // Q and K, which ldmatrix reads, with permuted chunks instead of padded rows, where every byte counts.
    static constexpr bool tight = padded == 256 && keys == 48;
    static constexpr int tight_stride = tight ? padded : stride;
    static constexpr int shared_bytes = ((rows + keys) * tight_stride + keys * stride) * (int)sizeof(float);
};

// Rows [0, valid) of a strided matrix into shared memory, everything else zero; asynchronous where rows are aligned.
template <int padded, int rows, int threads, bool tight>
BW_DEVICE void fetch(float *to, const float *from, int64_t stride, int64_t valid, int head_dim, bool vectors) {
    constexpr int chunks = padded / 4;
    for (int i = (int)threadIdx.x; i < rows * chunks; i += threads) {
        const int row = i / chunks, column = i % chunks * 4;
        const bool there = row < valid && column < head_dim;
        const float *at = there ? from + row * stride + column : from;
        float *cell = tight ? to + row * padded + (column ^ row % 8 * 4) : to + row * (padded + 4) + column;
        if (vectors) {
            bw_copy_async(cell, at, there);
        } else {
            *(uint4 *)cell = bw_gather_chunk(at, there ? head_dim - column : 0);
        }
    }
}

BW_DEVICE uint32_t round_tf32(float value) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

// A group of columns of Q K^T; the addresses are a lane's in its first fragments.
template <int padded, int blocks, int keys, bool exact, bool tight>
BW_DEVICE void multiply_columns(uint32_t queries, uint32_t tile, bw_sums_of<exact> (&sums)[blocks][keys / 8]) {
    constexpr int row_bytes = (tight ? padded : padded + 4) * (int)sizeof(float);
#pragma unroll
    for (int step = 0; step < group / 8; step++) {
        bw_factors<4, exact> left[blocks];
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            uint32_t bits[4];
            bw_load_matrix(bits, (tight ? queries ^ 32 * step : queries + 32 * step) + 16 * b * row_bytes);
#pragma unroll
            for (int i = 0; i < 4; i++) left[b].set(i, bits[i]);
        }
#pragma unroll
        for (int n = 0; n < keys / 16; n++) {
            uint32_t bits[4];
            bw_factors<4, exact> right;
            bw_load_matrix(bits, (tight ? tile ^ 32 * step : tile + 32 * step) + 16 * n * row_bytes);
#pragma unroll
            for (int i = 0; i < 4; i++) right.set(i, bits[i]);
#pragma unroll
            for (int b = 0; b < blocks; b++) {
                sums[b][2 * n].multiply_add(left[b], right, 0);
                sums[b][2 * n + 1].multiply_add(left[b], right, 2);
            }
        }
    }
}

template <int padded, int blocks, int keys, bool exact, bool whole, bool tight>
BW_DEVICE void multiply_keys(uint32_t queries, uint32_t tile, int head_dim, float (&scores)[blocks][keys / 8][4]) {
    bw_sums_of<exact> sums[blocks][keys / 8] = {};
    if constexpr (whole) {
#pragma unroll
        for (int d = 0; d < padded; d += group) {
            multiply_columns<padded, blocks, keys, exact, tight>(queries + 4 * d, tile + 4 * d, sums);
        }
    } else {
        for (int d = 0; d < head_dim; d += group, queries += group * 4, tile += group * 4) {
            multiply_columns<padded, blocks, keys, exact, tight>(queries, tile, sums);
        }
    }
#pragma unroll
    for (int b = 0; b < blocks; b++) {
#pragma unroll
        for (int n = 0; n < keys / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) scores[b][n][e] = sums[b][n].total(e);
        }
    }
}

// out += weights V of a tile. Which column element e of out[n] is:
//   FP32  32 (n / 4) + 4 (2 c + e % 2) + n % 4: a lane's columns of four products lie side by side in V
//   TF32  8 n + 2 c + e % 2, as everywhere: two loads put the two registers of a product side by side
template <bool exact>
BW_DEVICE int column_of(int n, int e) {
    const int c = (int)threadIdx.x % 4;
    return exact ? n / 4 * group + 4 * (2 * c + e % 2) + n % 4 : 8 * n + 2 * c + e % 2;
}

template <int padded, int keys>
BW_DEVICE void multiply_group(const bw_factors<4, true> (&left)[keys / 8], const float *values,
                              float (&out)[padded / 8][4], int g) {
    bw_sums_of<true> part[4] = {};
#pragma unroll
    for (int n = 0; n < keys / 8; n++) {
        const uint4 even = *(const uint4 *)&values[8 * n * (padded + 4)];
        const uint4 odd = *(const uint4 *)&values[(8 * n + 1) * (padded + 4)];
        const uint32_t word[4][2] = {{even.x, odd.x}, {even.y, odd.y}, {even.z, odd.z}, {even.w, odd.w}};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            bw_factors<4, true> right;
            right.set(0, word[j][0]);
            right.set(1, word[j][1]);
            part[j].multiply_add(left[n], right, 0);
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) out[4 * g + j][e] += part[j].total(e);
    }
}

template <int padded, int blocks, int keys, bool exact, bool whole>
BW_DEVICE void multiply_values(const float (&weights)[blocks][keys / 8][4], const float *values, int head_dim,
                               bw_softmax_sums<padded, 2> (&sums)[blocks]) {
    constexpr int stride = padded + 4;
    bw_factors<4, exact> left[blocks][keys / 8];
#pragma unroll
    for (int b = 0; b < blocks; b++) {
#pragma unroll
        for (int n = 0; n < keys / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float weight = weights[b][n][i % 2 * 2 + i / 2];
                left[b][n].set(i, exact ? __float_as_uint(weight) : round_tf32(weight));
            }
        }
    }
#pragma unroll
    for (int g = 0; g < padded / group; g++) {
        if (!whole && g > 0 && g * group >= head_dim) break;
        if constexpr (exact) {
#pragma unroll
            for (int b = 0; b < blocks; b++) {
                multiply_group<padded, keys>(left[b], values + g * group, sums[b].out, g);
            }
        } else {
#pragma unroll
            for (int n = 0; n < keys / 8; n++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float *at = &values[8 * n * stride + g * group + 8 * j];
                    const uint32_t even = __float_as_uint(at[0]), odd = __float_as_uint(at[stride]);
#pragma unroll
                    for (int b = 0; b < blocks; b++)
                        bw_multiply(sums[b].out[4 * g + j], left[b][n].high, even, odd, float());
                }
            }
        }
    }
}

// Rows first_row and first_row + 8 of a lane's output, normalized; `to` is row 0.
template <bool exact, int padded>
BW_DEVICE void store_rows(const bw_softmax_sums<padded, 2> &sums, float *to, int64_t stride, int64_t first_row,
                          int64_t rows, int head_dim, bool vectors) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float inverse = 1.0f / bw_quad_sum(sums.sum[half]);
        if (first_row + 8 * half >= rows) continue;
        float *row = to + (first_row + 8 * half) * stride;
#pragma unroll
        for (int n = 0; n < padded / 8; n += exact ? 4 : 1) {
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                const int e = 2 * half + odd, column = column_of<exact>(n, e);
                if (exact && vectors) {
                    if (column >= head_dim) continue;
                    *(float4 *)&row[column] = make_float4(sums.out[n][e] * inverse, sums.out[n + 1][e] * inverse,
                                                          sums.out[n + 2][e] * inverse, sums.out[n + 3][e] * inverse);
                } else if (!exact && vectors) {
                    if (odd || column >= head_dim) continue;
                    *(float2 *)&row[column] = make_float2(sums.out[n][e] * inverse, sums.out[n][e + 1] * inverse);
                } else {
#pragma unroll
                    for (int j = 0; j < (exact ? 4 : 1); j++) {
                        if (column + j < head_dim) row[column + j] = sums.out[n + j][e] * inverse;
                    }
                }
            }
        }
    }
}

// Block: (batch, head) and tile of queries, in bw_flash_order. `exact`: FP32. `whole`: head_dim is `padded`.
template <int padded, int blocks, int keys, bool exact, bool whole, int resident, int warps>
__global__ void __launch_bounds__(warps * 32, resident)
    attention_tf32_kernel(const float *q, const float *k, const float *v, float *out, bw_attention_shape shape,
                          bw_flash_order order) {
    using layout = tf32_layout<padded, blocks, keys, warps>;
    constexpr int stride = layout::stride, rows = layout::rows, threads = layout::threads;
    constexpr int tight_stride = layout::tight_stride;
    constexpr bool tight = layout::tight;
    const int lane = (int)threadIdx.x % 32, warp_row = (int)threadIdx.x / 32 * 16 * blocks;
    float *queries = (float *)bw_dynamic_shared(), *key_tile = queries + rows * tight_stride;
    float *value_tile = key_tile + keys * tight_stride;
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
    // Its last row attends the most: tiles that begin behind its keys are nothing to the warp.
    const int end_keys = shape.causal ? min(all_keys, reach + warp_row + 16 * blocks) : all_keys;
    const int first_last = reach + warp_row + lane / 4;  // the last key of the lane's first row, if causal
    bw_softmax_sums<padded, 2> sums[blocks] = {};
#pragma unroll
    for (int b = 0; b < blocks; b++) sums[b].top[0] = sums[b].top[1] = -INFINITY;

    fetch<padded, rows, threads, tight>(queries, q + q_at, q_stride, shape.queries - query0, shape.head_dim,
                                        shape.vectors);
    fetch<padded, keys, threads, tight>(key_tile, k + kv_at, kv_stride, all_keys, shape.head_dim, shape.vectors);
    bw_copy_commit();
    bw_copy_wait<0>();
    __syncthreads();
    if (!exact) {  // a warp's own queries
        for (int i = lane; i < 16 * blocks * tight_stride; i += 32) {
            float *cell = &queries[warp_row * tight_stride + i];
            *(uint32_t *)cell = round_tf32(*cell);
        }
        __syncwarp();
    }
    const int turn = tight ? lane % 8 * 4 : 0;  // of a row's chunks
    const int q_row = warp_row + lane % 16, k_row = lane % 8 + lane / 16 * 8;
    const uint32_t q_fragment = bw_shared_address(&queries[q_row * tight_stride + (lane / 16 * 4 ^ turn)]);
    const uint32_t k_fragment = bw_shared_address(&key_tile[k_row * tight_stride + (lane / 8 % 2 * 4 ^ turn)]);
    const float *v_fragment = &value_tile[lane % 4 * 2 * stride + lane / 4 * (exact ? 4 : 1)];
    for (int key0 = 0; key0 < key_end; key0 += keys) {
        // This tile's K is there, and nobody reads the last tile's V any more.
        fetch<padded, keys, threads, false>(value_tile, v + kv_at, kv_stride, all_keys - key0, shape.head_dim,
                                            shape.vectors);
        bw_copy_commit();
        kv_at += keys * kv_stride;
        float scores[blocks][keys / 8][4];
        bool done = false;
        // Most tiles: behind the first, and nothing masks them.
        if (key0 > 0 && key0 + keys <= open_keys) {
            multiply_keys<padded, blocks, keys, exact, whole, tight>(q_fragment, k_fragment, shape.head_dim, scores);
            done = bw_flash_softmax_try_quick(scores, shape.scale, sums);
        }
        if (!done && key0 < end_keys) {
            multiply_keys<padded, blocks, keys, exact, whole, tight>(q_fragment, k_fragment, shape.head_dim, scores);
            bw_flash_softmax_update(scores, all_keys - 1 - key0, first_last - key0, shape.causal, shape.scale, sums);
        }
        bw_copy_wait<0>();
        __syncthreads();  // V is there, and nobody reads this tile's K any more
        if (key0 + keys < key_end) {
            fetch<padded, keys, threads, tight>(key_tile, k + kv_at, kv_stride, all_keys - key0 - keys, shape.head_dim,
                                                shape.vectors);
        }
        bw_copy_commit();
        if (key0 < end_keys) {
            multiply_values<padded, blocks, keys, exact, whole>(scores, v_fragment, shape.head_dim, sums);
        }
        bw_copy_wait<0>();
        __syncthreads();
    }
    // Worked out again: kept, it would take registers from the loop.
    bw_flash_place(shape, order, bw_forget(blockIdx.x), &pair, &tile_index);
    const int64_t out_row = pair / shape.heads * shape.queries + tile_index * rows;
    float *to = out + out_row * q_stride + pair % shape.heads * shape.head_dim;
#pragma unroll
    for (int b = 0; b < blocks; b++) {
        store_rows<exact>(sums[b], to, q_stride, warp_row + 16 * b + lane / 4, shape.queries - tile_index * rows,
                          shape.head_dim, shape.vectors);
    }
}

template <int padded, int blocks, int keys, bool exact, bool whole, int resident, int warps = 4>
bw_status choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    using layout = tf32_layout<padded, blocks, keys, warps>;
    const int64_t tiles = bw_ceil_div(shape.queries, layout::rows);
    const bw_flash_order order =
        bw_flash_order_make(shape, tiles, sizeof(float), facts->cache_bytes, facts->units * resident);
    bw_choose(out, attention_tf32_kernel<padded, blocks, keys, exact, whole, resident, warps>,
              dim3((unsigned)(tiles * shape.batch * shape.heads)), dim3(layout::threads), layout::shared_bytes,
              bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K), bw_from_operand(BW_ATTENTION_V),
              bw_from_operand(BW_ATTENTION_OUT), shape, order);
    return BW_OK;
}

// At 256 columns eight warps read K and V once for 128 queries, and their queries once for 32 or 48 keys, where shared
// memory holds so much; tiles of 16 keys for 64 queries fit into 99 KiB.
bool eight_warps_fit(const bw_device_facts *facts) {
    return facts->own && facts->own->shared_bytes >= tf32_layout<256, 1, 48, 8>::shared_bytes;
}

}  // namespace

bw_status bw_flash_tf32_choose(const bw_attention_shape &shape, const bw_device_facts *facts,
                               bw_cuda_launch_spec *out) {
    if (shape.head_dim == 64) return choose<64, 2, 64, false, true, 2>(shape, facts, out);
    if (shape.head_dim < 64) return choose<64, 2, 64, false, false, 2>(shape, facts, out);
    if (shape.head_dim <= 128) return choose<128, 2, 32, false, false, 2>(shape, facts, out);
    if (!eight_warps_fit(facts)) return choose<256, 1, 16, false, false, 2>(shape, facts, out);
    if (shape.head_dim == 256) return choose<256, 1, 48, false, true, 1, 8>(shape, facts, out);
    return choose<256, 1, 48, false, false, 1, 8>(shape, facts, out);
}

bw_status bw_split_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                          bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_prefill_shape(dims, bw_attention_kv_dtype(precision));
    if (shape.head_dim <= 64) return choose<64, 1, 64, true, false, 2>(shape, facts, out);
    if (shape.head_dim <= 128) return choose<128, 1, 64, true, false, 2>(shape, facts, out);
    if (!eight_warps_fit(facts)) return choose<256, 1, 16, true, false, 2>(shape, facts, out);
    return choose<256, 1, 32, true, false, 1, 8>(shape, facts, out);
}
