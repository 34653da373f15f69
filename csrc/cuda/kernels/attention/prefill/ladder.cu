// attention_prefill, the variants between unfused and flash: online softmax, so that no score goes to memory, but float
// arithmetic and one query a warp, whose elements lie in its lanes' registers.
//   strided  a lane walks its own key's row: the 32 lanes of a load touch 32 lines of memory
//   shared   32 rows of K and V pass through shared memory, read from memory line by line, once for 8 queries; lanes
//            walk their rows there, whose equal columns lie in one bank where head_dim is a multiple of 32
//   padded   rows of head_dim + 1 floats: neighbors' equal columns lie in neighboring banks
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/shape.h"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int warps = 8, threads = warps * 32;  // a block's queries, one a warp
constexpr int resident = 3;                     // blocks a multiprocessor: 80 registers a thread
constexpr int tile_keys = 32;                   // one a lane
constexpr int parts = 8;                        // of head_dim, 32 columns each: column 32 i + lane is the lane's own

struct row_sums {
    float out[parts] = {}, top = -INFINITY, sum = 0.0f;  // of `sum`, the lane's share
};

// One tile of `count` keys: the lane's own key's row, and the tile's first value's, `stride` elements before the next.
template <typename T>
BW_DEVICE void meet(row_sums &sums, const float (&query)[parts], int count, int head_dim, float scale, const T *key,
                    const T *values, int64_t stride) {
    const int lane = (int)threadIdx.x % 32;
    values += lane;
    float score = 0.0f;
#pragma unroll 1
    for (int i = 0; 32 * i < head_dim; i++, key += 32) {
        const int columns = min(32, head_dim - 32 * i);
        float part = query[0];  // of an array in registers, picked without an index
#pragma unroll
        for (int x = 1; x < parts; x++) part = i == x ? query[x] : part;
#pragma unroll 8
        for (int d = 0; d < columns; d++) score = fmaf(__shfl_sync(bw_all_lanes, part, d), bw_to_float(key[d]), score);
    }
    score = lane < count ? score * scale : -INFINITY;
    float best = fmaxf(sums.top, score);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) best = fmaxf(best, __shfl_xor_sync(bw_all_lanes, best, offset));
    const float reference = bw_softmax_reference(best);
    const float shrink = bw_exp2(sums.top - reference), weight = bw_exp2(score - reference);
    sums.top = best;
    sums.sum = sums.sum * shrink + weight;
#pragma unroll
    for (int i = 0; i < parts; i++) sums.out[i] *= shrink;
#pragma unroll 2
    for (int j = 0; j < count; j++, values += stride) {
        const float part = __shfl_sync(bw_all_lanes, weight, j);
#pragma unroll
        for (int i = 0; i < parts; i++) {
            if (32 * i + lane < head_dim) sums.out[i] = fmaf(part, bw_to_float(values[32 * i]), sums.out[i]);
        }
    }
}

// Where a warp's query lies, and its keys.
struct place {
    int64_t query;
    int64_t end, block_end;  // of the keys that the query attends, and any query of the block
    int64_t q_at, kv_at, kv_stride;
};

// Block: (batch, head) and tile of queries, the longest rows first.
BW_DEVICE place place_of(const bw_attention_shape &shape, int64_t tiles) {
    const int64_t pairs = shape.batch * shape.heads, pair = (int64_t)blockIdx.x % pairs;
    const int64_t batch = pair / shape.heads, head = pair % shape.heads;
    const int64_t query0 = (tiles - 1 - (int64_t)blockIdx.x / pairs) * warps, query = query0 + threadIdx.x / 32;
    const int64_t reach = shape.keys - shape.queries;
    place at;
    at.query = query;
    at.end = shape.causal ? min(shape.keys, reach + query + 1) : shape.keys;
    at.block_end = shape.causal ? min(shape.keys, reach + query0 + warps) : shape.keys;
    at.q_at = ((batch * shape.queries + query) * shape.heads + head) * shape.head_dim;
    at.kv_stride = shape.kv_heads * shape.head_dim;
    at.kv_at = batch * shape.keys * at.kv_stride + head / shape.group * shape.head_dim;
    return at;
}

template <typename T>
BW_DEVICE void load_query(float (&query)[parts], const T *from, int head_dim) {
#pragma unroll
    for (int i = 0; i < parts; i++) {
        const int column = 32 * i + (int)threadIdx.x % 32;
        query[i] = column < head_dim ? bw_to_float(from[column]) : 0.0f;
    }
}

template <typename T>
BW_DEVICE void store_row(const row_sums &sums, T *to, int head_dim) {
    float sum = sums.sum;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
#pragma unroll
    for (int i = 0; i < parts; i++) {
        const int column = 32 * i + (int)threadIdx.x % 32;
        if (column < head_dim) bw_from_float(sums.out[i] / sum, &to[column]);
    }
}

template <typename T>
__global__ void __launch_bounds__(threads, resident)
    attention_strided_kernel(const T *q, const T *k, const T *v, T *out, bw_attention_shape shape, int64_t tiles) {
    const place at = place_of(shape, tiles);
    if (at.query >= shape.queries) return;
    float query[parts];
    row_sums sums;
    load_query(query, q + at.q_at, shape.head_dim);
    for (int64_t key0 = 0; key0 < at.end; key0 += tile_keys) {
        const int count = (int)min((int64_t)tile_keys, at.end - key0), own = min((int)threadIdx.x % 32, count - 1);
        const int64_t from = at.kv_at + key0 * at.kv_stride;
        meet(sums, query, count, shape.head_dim, shape.scale, k + from + own * at.kv_stride, v + from, at.kv_stride);
    }
    store_row(sums, out + at.q_at, shape.head_dim);
}

// The tile's rows that some query of the block attends, times their scales where the type has some.
template <typename T>
BW_DEVICE void fetch(float *tile, const T *from, const float *scale, const bw_attention_shape &shape, int valid,
                     int shared_stride) {
    for (int row = (int)threadIdx.x / 32; row < valid; row += warps) {
        const float factor = sizeof(T) == 1 ? scale[row * shape.kv_heads] : 1.0f;
        for (int d = (int)threadIdx.x % 32; d < shape.head_dim; d += 32) {
            const float value = bw_to_float(from[row * shape.kv_heads * shape.head_dim + d]);
            tile[row * shared_stride + d] = sizeof(T) == 1 ? value * factor : value;
        }
    }
}

// `stride` is a row's in shared memory: head_dim or head_dim + 1. K and V are of type C, with scales where it is
// narrow.
template <typename T, typename C>
__global__ void __launch_bounds__(threads, resident)
    attention_shared_kernel(const T *q, const C *k, const C *v, const float *k_scale, const float *v_scale, T *out,
                            bw_attention_shape shape, int stride) {
    float *keys = (float *)bw_dynamic_shared(), *values = keys + tile_keys * stride;
    const place at = place_of(shape, (shape.queries + warps - 1) / warps);
    const bool there = at.query < shape.queries;
    float query[parts] = {};
    row_sums sums;
    if (there) load_query(query, q + at.q_at, shape.head_dim);
    for (int64_t key0 = 0; key0 < at.block_end; key0 += tile_keys) {
        const int64_t from = at.kv_at + key0 * at.kv_stride;
        const int valid = (int)min((int64_t)tile_keys, at.block_end - key0);
        const int64_t scales_from = from / shape.head_dim;
        fetch(keys, k + from, k_scale + scales_from, shape, valid, stride);
        fetch(values, v + from, v_scale + scales_from, shape, valid, stride);
        __syncthreads();
        if (there && key0 < at.end) {
            const int count = (int)min((int64_t)tile_keys, at.end - key0), own = min((int)threadIdx.x % 32, count - 1);
            meet(sums, query, count, shape.head_dim, shape.scale, keys + own * stride, values, stride);
        }
        __syncthreads();
    }
    if (there) store_row(sums, out + at.q_at, shape.head_dim);
}

// `padding`: floats more than head_dim a row.
template <typename T, typename C>
bw_status choose_types(const bw_attention_shape &shape, int padding, bw_cuda_launch_spec *out) {
    const int64_t tiles = bw_ceil_div(shape.queries, warps);
    const int stride = shape.head_dim + padding;
    const bool scaled = sizeof(C) == 1;
    bw_choose(out, attention_shared_kernel<T, C>, dim3((unsigned)(tiles * shape.batch * shape.heads)), dim3(threads),
              2 * tile_keys * (size_t)stride * sizeof(float), bw_from_operand(BW_ATTENTION_Q),
              bw_from_operand(BW_ATTENTION_K), bw_from_operand(BW_ATTENTION_V),
              bw_from_operand_if(scaled, BW_ATTENTION_K_SCALE), bw_from_operand_if(scaled, BW_ATTENTION_V_SCALE),
              bw_from_operand(BW_ATTENTION_OUT), shape, stride);
    return BW_OK;
}

bw_status choose_staged(const bw_dims *dims, const bw_precision *precision, int padding, bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    if (precision->cache == BW_FP8_E4M3) return choose_types<__half, bw_e4m3>(shape, padding, out);
    if (precision->cache == BW_INT8) return choose_types<__half, int8_t>(shape, padding, out);
    return bw_cuda_by_type(precision->cache, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choose_types<T, T>(shape, padding, out);
    });
}

}  // namespace

const char *bw_prefill_rows_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    const bw_checked_int blocks = bw_mul3(shape.batch, shape.heads, bw_ceil_div(shape.queries, warps));
    return blocks.overflow || !bw_cuda_grid_fits(blocks.value) ? "more tiles of 8 queries than a grid holds (2^31 - 1)"
                                                               : nullptr;
}

bw_status bw_prefill_strided_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                    bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    const int64_t tiles = bw_ceil_div(shape.queries, warps);
    return bw_cuda_by_type(precision->cache, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_choose(out, attention_strided_kernel<T>, dim3((unsigned)(tiles * shape.batch * shape.heads)), dim3(threads),
                  0, bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K), bw_from_operand(BW_ATTENTION_V),
                  bw_from_operand(BW_ATTENTION_OUT), shape, tiles);
        return BW_OK;
    });
}

bw_status bw_prefill_shared_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                   bw_cuda_launch_spec *out) {
    return choose_staged(dims, precision, 0, out);
}

bw_status bw_prefill_padded_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                   bw_cuda_launch_spec *out) {
    return choose_staged(dims, precision, 1, out);
}
