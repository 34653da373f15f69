// attention_prefill, unfused: three kernels that meet in memory.
//   scores   S(B, H, Sq, L) = q k^T / sqrt(D), in the precision's type; masked entries are -infinity
//   softmax  P overwrites S row by row
//   output   P v
// Every score is written and read twice: what flash attention saves is this traffic.
// The products are sums of FP32 products in FP32, and on tensor cores (unfused_mma.cu) in 16-bit precisions.
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/unfused.h"
#include "cuda/kernels/common/fma_tile.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int softmax_threads = 128;           // of a row: a short one leaves few of them idle
constexpr int64_t softmax_shared_keys = 8192;  // 32 KiB of floats: no block needs to ask for its shared memory

int64_t tile_count(int64_t rows) {
    return bw_ceil_div(rows, bw_tile_rows);
}

// Element (batch, row, head, 0) of a (batch, rows, heads, head_dim) array.
BW_DEVICE int64_t row_at(int64_t batch, int64_t row, int64_t head, int64_t rows, int64_t heads, int head_dim) {
    return ((batch * rows + row) * heads + head) * head_dim;
}

// Block: ((batch, head), tile of queries, tile of keys).
__global__ void __launch_bounds__(bw_tile_threads)
    attention_scores_kernel(const float *q, const float *k, float *scores, bw_attention_shape shape,
                            int64_t query_tiles, int64_t key_tiles) {
    __shared__ bw_tile_shared shared;
    const int64_t key0 = (int64_t)blockIdx.x % key_tiles * bw_tile_rows;
    const int64_t rest = (int64_t)blockIdx.x / key_tiles;
    const int64_t query0 = rest % query_tiles * bw_tile_rows, pair = rest / query_tiles;
    const int64_t batch = pair / shape.heads, head = pair % shape.heads;
    const int64_t reach = shape.keys - shape.queries;  // query s attends keys up to reach + s
    const bool masked = shape.causal && key0 > reach + min(query0 + bw_tile_rows, shape.queries) - 1;
    float acc[4][4] = {};
    if (!masked) {
        const bw_tile_view<float> left = {q + row_at(batch, query0, head, shape.queries, shape.heads, shape.head_dim),
                                          shape.queries - query0, shape.head_dim, shape.heads * shape.head_dim};
        const bw_tile_view<float> right = {
            k + row_at(batch, key0, head / shape.group, shape.keys, shape.kv_heads, shape.head_dim), shape.keys - key0,
            shape.head_dim, shape.kv_heads * shape.head_dim};
        bw_tile_multiply<true>(shared, left, right, acc);
    }
    const float scale = rsqrtf((float)shape.head_dim);
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t query = query0 + threadIdx.x / 16 + 16 * i, key = key0 + threadIdx.x % 16 + 16 * j;
            if (query >= shape.queries || key >= shape.keys) continue;
            const bool hidden = shape.causal && key > reach + query;
            bw_from_float(hidden ? -INFINITY : acc[i][j] * scale,
                          &scores[(pair * shape.queries + query) * shape.keys + key]);
        }
    }
}

struct take_max {
    static __device__ __forceinline__ float of(float a, float b) {
        return fmaxf(a, b);
    }
};
struct take_sum {
    static __device__ __forceinline__ float of(float a, float b) {
        return a + b;
    }
};

// Over the block's threads; every thread gets the result.
template <typename Take>
BW_DEVICE float reduce(float value, float (&shared)[softmax_threads / 32]) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value = Take::of(value, __shfl_xor_sync(bw_all_lanes, value, offset));
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
#pragma unroll
    for (int i = 1; i < softmax_threads / 32; i++) value = Take::of(value, shared[i]);
    return value;
}

// One block per row, in place. Key 0 is never masked, so that the maximum is finite. A row that fits is kept in shared
// memory and read once; a longer one is read three times, the last two from the L2 where it is large enough.
template <bool in_shared, typename T>
__global__ void __launch_bounds__(softmax_threads) attention_softmax_kernel(T *scores, int64_t keys) {
    __shared__ float shared_max[softmax_threads / 32], shared_sum[softmax_threads / 32];
    float *values = (float *)bw_dynamic_shared();
    T *row = scores + (int64_t)blockIdx.x * keys;
    float top = -INFINITY, sum = 0.0f;
    for (int64_t i = threadIdx.x; i < keys; i += softmax_threads) {
        const float value = bw_to_float(row[i]);
        if (in_shared) values[i] = value;
        top = fmaxf(top, value);
    }
    top = reduce<take_max>(top, shared_max);
    for (int64_t i = threadIdx.x; i < keys; i += softmax_threads) {
        const float value = __expf((in_shared ? values[i] : bw_to_float(row[i])) - top);
        if (in_shared) values[i] = value;
        sum += value;
    }
    const float inverse = 1.0f / reduce<take_sum>(sum, shared_sum);
    for (int64_t i = threadIdx.x; i < keys; i += softmax_threads) {
        bw_from_float((in_shared ? values[i] : __expf(bw_to_float(row[i]) - top)) * inverse, &row[i]);
    }
}

// Block: ((batch, head), tile of queries, tile of head_dim). All keys are walked: masked ones weigh 0.
__global__ void __launch_bounds__(bw_tile_threads)
    attention_output_kernel(const float *weights, const float *v, float *out, bw_attention_shape shape,
                            int64_t query_tiles, int64_t dim_tiles) {
    __shared__ bw_tile_shared shared;
    const int64_t dim0 = (int64_t)blockIdx.x % dim_tiles * bw_tile_rows;
    const int64_t rest = (int64_t)blockIdx.x / dim_tiles;
    const int64_t query0 = rest % query_tiles * bw_tile_rows, pair = rest / query_tiles;
    const int64_t batch = pair / shape.heads, head = pair % shape.heads;
    const bw_tile_view<float> left = {weights + (pair * shape.queries + query0) * shape.keys, shape.queries - query0,
                                      shape.keys, shape.keys};
    const bw_tile_view<float> right = {
        v + row_at(batch, 0, head / shape.group, shape.keys, shape.kv_heads, shape.head_dim) + dim0,
        shape.head_dim - dim0, shape.keys, shape.kv_heads * shape.head_dim};
    float acc[4][4] = {};
    bw_tile_multiply<false>(shared, left, right, acc);
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t query = query0 + threadIdx.x / 16 + 16 * i, dim = dim0 + threadIdx.x % 16 + 16 * j;
            if (query >= shape.queries || dim >= shape.head_dim) continue;
            float *to = out + row_at(batch, query, head, shape.queries, shape.heads, shape.head_dim) + dim;
            bw_from_float(acc[i][j], to);
        }
    }
}

bw_status choose_scores(const bw_attention_shape &shape, bw_cuda_launch_spec *out) {
    const int64_t query_tiles = tile_count(shape.queries), key_tiles = tile_count(shape.keys);
    bw_choose(out, attention_scores_kernel, dim3((unsigned)(shape.batch * shape.heads * query_tiles * key_tiles)),
              dim3(bw_tile_threads), 0, bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K),
              bw_from_scratch(0), shape, query_tiles, key_tiles);
    return BW_OK;
}

template <typename T>
bw_status choose_softmax(const bw_attention_shape &shape, bw_cuda_launch_spec *out) {
    const bool in_shared = shape.keys <= softmax_shared_keys;
    bw_choose(out, in_shared ? attention_softmax_kernel<true, T> : attention_softmax_kernel<false, T>,
              dim3((unsigned)(shape.batch * shape.heads * shape.queries)), dim3(softmax_threads),
              in_shared ? (size_t)shape.keys * sizeof(float) : 0, bw_from_scratch(0), shape.keys);
    return BW_OK;
}

bw_status choose_output(const bw_attention_shape &shape, bw_cuda_launch_spec *out) {
    const int64_t query_tiles = tile_count(shape.queries), dim_tiles = tile_count(shape.head_dim);
    bw_choose(out, attention_output_kernel, dim3((unsigned)(shape.batch * shape.heads * query_tiles * dim_tiles)),
              dim3(bw_tile_threads), 0, bw_from_scratch(0), bw_from_operand(BW_ATTENTION_V),
              bw_from_operand(BW_ATTENTION_OUT), shape, query_tiles, dim_tiles);
    return BW_OK;
}

}  // namespace

const char *bw_unfused_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    const bw_checked_int rows = bw_mul3(shape.batch, shape.heads, shape.queries);
    const bw_checked_int tiles = bw_mul4(shape.batch, shape.heads, tile_count(shape.queries), tile_count(shape.keys));
    const bw_checked_int dim_tiles =
        bw_mul4(shape.batch, shape.heads, tile_count(shape.queries), tile_count(shape.head_dim));
    if (rows.overflow || tiles.overflow || dim_tiles.overflow || !bw_cuda_grid_fits(rows.value) ||
        !bw_cuda_grid_fits(tiles.value) || !bw_cuda_grid_fits(dim_tiles.value)) {
        return "more rows or 64 x 64 tiles of scores than a grid holds (2^31 - 1)";
    }
    return nullptr;
}

int64_t bw_unfused_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    const bw_checked_int elems = bw_mul4(shape.batch, shape.heads, shape.queries, shape.keys);
    const bw_checked_int bytes = bw_mul(elems, bw_num(bw_dtype_get(precision->result)->block_bytes));
    return bytes.overflow ? INT64_MAX : bytes.value;
}

// S and P.
bw_status bw_unfused_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                bw_cost *cost) {
    const int64_t scores = bw_unfused_scratch_bytes(dims, precision, facts);
    BW_TRY(bw_attention_add_traffic(cost, scores));
    return bw_attention_add_traffic(cost, scores);
}

bw_status bw_unfused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                            bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    const bw_dtype dtype = precision->cache;
    const bool tensor = dtype != BW_FP32;
    BW_TRY(tensor ? bw_unfused_mma_scores(dtype, shape, out) : choose_scores(shape, out));
    BW_TRY(bw_cuda_by_type(dtype, [&](auto tag) { return choose_softmax<typename decltype(tag)::type>(shape, out); }));
    return tensor ? bw_unfused_mma_output(dtype, shape, out) : choose_output(shape, out);
}
