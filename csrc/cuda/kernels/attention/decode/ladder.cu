// attention_decode, the variants before splitkv: float arithmetic, a key a warp at a time, whose lanes read it side by
// side, each element for itself, and wait for it.
//   simple   a block a query head
//   split    the keys of a head divided among blocks, whose parts a second kernel adds up
//   grouped  blocks that take up to 8 query heads of a K/V head, for which a key is read once
// A part is a head's weighted values (all exponentials are powers of 2), the maximum of its scores, and the sum of its
// weights.
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/shape.h"
#include "cuda/kernels/common/element8.cuh"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/launch/choose.cuh"
#include "cuda/runtime/facts.h"

namespace {

constexpr int warps = 8, threads = warps * 32;
constexpr int parts = 8;  // of head_dim, 32 columns each: column 32 i + lane is the lane's own
constexpr int group_heads = 8;
constexpr int64_t default_units = 132, blocks_a_unit = 3, least_keys = 64, most_splits = 128;

// Grid: (column, split), a column being the query heads that a block takes of a K/V head.
struct rows_plan {
    int64_t heads, chunks, columns, splits, split_keys;
};

struct rows_work {
    float *parts;  // [row][split][head_dim + 2]; NULL: straight to out
    const int *kv_lens;
    const float *k_scale, *v_scale;  // (batch, keys, K/V heads); of caches of 8 bits
    int64_t chunks, split_keys;
    int splits;
};

struct head_sums {
    float out[parts] = {}, top = -INFINITY, sum = 0.0f;

    __device__ __forceinline__ void shrink_to(float best) {
        const float shrink = bw_exp2(top - bw_softmax_reference(best));
        top = best;
        sum *= shrink;
#pragma unroll
        for (int i = 0; i < parts; i++) out[i] *= shrink;
    }
};

template <typename T>
BW_DEVICE void load_row(float (&row)[parts], const T *from, int head_dim) {
#pragma unroll
    for (int i = 0; i < parts; i++) {
        const int column = 32 * i + (int)threadIdx.x % 32;
        row[i] = column < head_dim ? bw_to_float(from[column]) : 0.0f;
    }
}

template <int heads, typename T>
BW_DEVICE void meet(head_sums (&sums)[heads], const float (&query)[heads][parts], const T *key, const T *value,
                    int head_dim, float scale, float value_scale) {
    float k[parts], v[parts];
    load_row(k, key, head_dim);
    load_row(v, value, head_dim);
#pragma unroll
    for (int i = 0; i < parts; i++) v[i] *= value_scale;
#pragma unroll
    for (int h = 0; h < heads; h++) {
        float score = 0.0f;
#pragma unroll
        for (int i = 0; i < parts; i++) score = fmaf(query[h][i], k[i], score);
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) score += __shfl_xor_sync(bw_all_lanes, score, offset);
        score *= scale;
        sums[h].shrink_to(fmaxf(sums[h].top, score));
        const float weight = bw_exp2(score - bw_softmax_reference(sums[h].top));
        sums[h].sum += weight;
#pragma unroll
        for (int i = 0; i < parts; i++) sums[h].out[i] = fmaf(weight, v[i], sums[h].out[i]);
    }
}

// A row's parts, one warp's or one block's each, `stride` floats from one to the next: the value of column d. `top` and
// `sum` lie behind the values.
BW_DEVICE float add_parts(const float *from, int count, int64_t stride, int head_dim, int d, float *top, float *sum) {
    float value = 0.0f;
    *top = -INFINITY;
    *sum = 0.0f;
    for (int i = 0; i < count; i++) *top = fmaxf(*top, from[i * stride + head_dim]);
    const float reference = bw_softmax_reference(*top);
    for (int i = 0; i < count; i++) {
        const float *part = from + i * stride, scale = bw_exp2(part[head_dim] - reference);
        value = fmaf(part[d], scale, value);
        *sum = fmaf(part[head_dim + 1], scale, *sum);
    }
    return value;
}

// Warps' sums of one head into the block's, which is stored.
template <typename T>
BW_DEVICE void store_head(const head_sums &sums, float *cells, int head_dim, const rows_work &work, int64_t row,
                          T *out) {
    const int lane = (int)threadIdx.x % 32, stride = head_dim + 2;
    float *cell = cells + (int)threadIdx.x / 32 * stride;
#pragma unroll
    for (int i = 0; i < parts; i++) {
        if (32 * i + lane < head_dim) cell[32 * i + lane] = sums.out[i];
    }
    if (lane == 0) {
        cell[head_dim] = sums.top;
        cell[head_dim + 1] = sums.sum;
    }
    __syncthreads();
    for (int d = (int)threadIdx.x; d < head_dim; d += threads) {
        float top, sum;
        const float value = add_parts(cells, warps, stride, head_dim, d, &top, &sum);
        if (work.parts) {
            float *part = work.parts + (row * work.splits + blockIdx.y) * stride;
            part[d] = value;
            if (d == 0) {
                part[head_dim] = top;
                part[head_dim + 1] = sum;
            }
        } else {
            bw_from_float(value / sum, &out[row * head_dim + d]);
        }
    }
    __syncthreads();  // the cells are the next head's
}

BW_DEVICE int64_t length_of(const bw_attention_shape &shape, const int *kv_lens, int64_t batch) {
    return kv_lens ? min(max((int64_t)kv_lens[batch], (int64_t)1), shape.keys) : shape.keys;
}

template <int heads, typename Q, typename T>
__global__ void __launch_bounds__(threads, heads == 1 ? 2 : 1)
    attention_decode_rows_kernel(const Q *q, const T *k, const T *v, Q *out, rows_work work, bw_attention_shape shape) {
    float *cells = (float *)bw_dynamic_shared();
    const int head_dim = shape.head_dim;
    const int64_t kv_column = (int64_t)blockIdx.x / work.chunks, chunk = (int64_t)blockIdx.x % work.chunks;
    const int64_t batch = kv_column / shape.kv_heads, kv_head = kv_column % shape.kv_heads;
    const int64_t row0 = kv_column * shape.group + chunk * heads, stride = shape.kv_heads * head_dim;
    const int rows = (int)min((int64_t)heads, shape.group - chunk * heads);
    const int64_t first = (int64_t)blockIdx.y * work.split_keys;
    const int64_t end = min(length_of(shape, work.kv_lens, batch), first + work.split_keys);
    if (first >= end) return;  // of an entry that is not the longest
    float query[heads][parts];
    head_sums sums[heads];
#pragma unroll
    for (int h = 0; h < heads; h++) load_row(query[h], q + (row0 + min(h, rows - 1)) * head_dim, head_dim);
    const int64_t at = (batch * shape.keys * shape.kv_heads + kv_head) * head_dim;
    for (int64_t key = first + threadIdx.x / 32; key < end; key += warps) {
        float k_scale = 1.0f, v_scale = 1.0f;
        if constexpr (bw_is_narrow<T>) {
            const int64_t row = (batch * shape.keys + key) * shape.kv_heads + kv_head;
            k_scale = work.k_scale[row];
            v_scale = work.v_scale[row];
        }
        meet(sums, query, k + at + key * stride, v + at + key * stride, head_dim, shape.scale * k_scale, v_scale);
    }
#pragma unroll
    for (int h = 0; h < heads; h++) {
        if (h < rows) store_head(sums[h], cells, head_dim, work, row0 + h, out);
    }
}

// A block a row.
template <typename T>
__global__ void __launch_bounds__(threads)
    attention_decode_add_kernel(T *out, rows_work work, bw_attention_shape shape) {
    const int64_t row = blockIdx.x, stride = shape.head_dim + 2;
    const int64_t length = length_of(shape, work.kv_lens, row / shape.heads);
    const int splits = (int)((length + work.split_keys - 1) / work.split_keys);
    for (int d = (int)threadIdx.x; d < shape.head_dim; d += threads) {
        float top, sum;
        const float value =
            add_parts(work.parts + row * work.splits * stride, splits, stride, shape.head_dim, d, &top, &sum);
        bw_from_float(value / sum, &out[row * shape.head_dim + d]);
    }
}

rows_plan plan_make(const bw_attention_shape &shape, const bw_device_facts *facts, int64_t heads, bool split) {
    rows_plan plan = {};
    plan.heads = heads;
    plan.chunks = bw_ceil_div(shape.group, heads);
    const bw_checked_int columns = bw_mul3(shape.batch, shape.kv_heads, plan.chunks);
    plan.columns = columns.overflow ? INT64_MAX : columns.value;
    plan.split_keys = shape.keys;
    if (split) {
        const int64_t places = blocks_a_unit * (facts && facts->units > 0 ? facts->units : default_units);
        const int64_t most = bw_min64(most_splits, bw_ceil_div(shape.keys, least_keys));
        const int64_t wanted = bw_max64(1, bw_min64(most, places / plan.columns));
        plan.split_keys = bw_ceil_div(shape.keys, wanted);
    }
    plan.splits = bw_ceil_div(shape.keys, plan.split_keys);
    return plan;
}

// Bytes of `count` parts of every head.
bw_checked_int part_bytes(const bw_attention_shape &shape, int64_t count) {
    return bw_mul4(shape.heads, count, shape.head_dim + 2, (int64_t)sizeof(float));
}

template <int heads, typename Q, typename T>
bw_status choose_rows(const bw_attention_shape &shape, const rows_plan &plan, bool split, bool ragged,
                      bw_cuda_launch_spec *out) {
    rows_work work = {};
    work.chunks = plan.chunks;
    work.split_keys = plan.split_keys;
    work.splits = (int)plan.splits;
    const int work_argument = 4;
    bw_cuda_kernel *kernel =
        bw_choose(out, attention_decode_rows_kernel<heads, Q, T>, dim3((unsigned)plan.columns, (unsigned)plan.splits),
                  dim3(threads), warps * (size_t)(shape.head_dim + 2) * sizeof(float), bw_from_operand(BW_ATTENTION_Q),
                  bw_from_operand(BW_ATTENTION_K), bw_from_operand(BW_ATTENTION_V), bw_from_operand(BW_ATTENTION_OUT),
                  work, shape);
    const bw_address lens = bw_from_operand_if(ragged, BW_ATTENTION_KV_LENS);
    bw_choose_place(kernel, work_argument, offsetof(rows_work, kv_lens), lens);
    const bw_address k_scale = bw_from_operand_if(bw_is_narrow<T>, BW_ATTENTION_K_SCALE);
    const bw_address v_scale = bw_from_operand_if(bw_is_narrow<T>, BW_ATTENTION_V_SCALE);
    bw_choose_place(kernel, work_argument, offsetof(rows_work, k_scale), k_scale);
    bw_choose_place(kernel, work_argument, offsetof(rows_work, v_scale), v_scale);
    if (!split) return BW_OK;
    bw_choose_place(kernel, work_argument, offsetof(rows_work, parts), bw_from_scratch(0));
    kernel = bw_choose(out, attention_decode_add_kernel<Q>, dim3((unsigned)(shape.batch * shape.heads)), dim3(threads),
                       0, bw_from_operand(BW_ATTENTION_OUT), work, shape);
    bw_choose_place(kernel, 1, offsetof(rows_work, kv_lens), lens);
    bw_choose_place(kernel, 1, offsetof(rows_work, parts), bw_from_scratch(0));
    return BW_OK;
}

template <int heads>
bw_status choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, bool split,
                 bw_cuda_launch_spec *out) {
    bw_attention_shape shape = bw_decode_shape(dims, precision->cache);
    const rows_plan plan = plan_make(shape, facts, heads, split);
    return bw_cuda_by_cache_type(precision->cache, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choose_rows<heads, typename bw_wide_type<T>::type, T>(shape, plan, split, dims->list != nullptr, out);
    });
}

}  // namespace

const char *bw_decode_rows_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_attention_shape shape = bw_decode_shape(dims, precision->cache);
    const bw_checked_int rows = bw_mul(bw_num(shape.batch), bw_num(shape.heads));
    return rows.overflow || !bw_cuda_grid_fits(rows.value) ? "more query heads than a grid holds (2^31 - 1)" : nullptr;
}

static int64_t scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                             int64_t heads) {
    const bw_attention_shape shape = bw_decode_shape(dims, precision->cache);
    const bw_checked_int bytes =
        bw_mul(bw_num(shape.batch), part_bytes(shape, plan_make(shape, facts, heads, true).splits));
    return bytes.overflow ? INT64_MAX : bytes.value;
}

// Parts are stored once and read once; an entry has as many as its own length takes.
static bw_status extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            int64_t heads, bw_cost *cost) {
    const bw_attention_shape shape = bw_decode_shape(dims, precision->cache);
    const rows_plan plan = plan_make(shape, facts, heads, true);
    bw_checked_int count = bw_mul(bw_num(shape.batch), bw_num(plan.splits));
    if (dims->list) count = bw_num(0);
    for (int64_t b = 0; dims->list && b < shape.batch; b++) {
        count = bw_add(count, bw_num(bw_ceil_div(dims->list[b], plan.split_keys)));
    }
    const bw_checked_int bytes = bw_mul(count, part_bytes(shape, 1));
    return bw_attention_add_traffic(cost, bytes.overflow ? INT64_MAX : bytes.value);
}

int64_t bw_decode_split_scratch_bytes(const bw_dims *dims, const bw_precision *precision,
                                      const bw_device_facts *facts) {
    return scratch_bytes(dims, precision, facts, 1);
}

int64_t bw_decode_grouped_scratch_bytes(const bw_dims *dims, const bw_precision *precision,
                                        const bw_device_facts *facts) {
    return scratch_bytes(dims, precision, facts, group_heads);
}

bw_status bw_decode_split_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                     bw_cost *cost) {
    return extra_cost(dims, precision, facts, 1, cost);
}

bw_status bw_decode_grouped_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                       bw_cost *cost) {
    return extra_cost(dims, precision, facts, group_heads, cost);
}

bw_status bw_decode_simple_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                  bw_cuda_launch_spec *out) {
    return choose<1>(dims, precision, facts, false, out);
}

bw_status bw_decode_split_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                 bw_cuda_launch_spec *out) {
    return choose<1>(dims, precision, facts, true, out);
}

bw_status bw_decode_grouped_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                   bw_cuda_launch_spec *out) {
    return choose<group_heads>(dims, precision, facts, true, out);
}
