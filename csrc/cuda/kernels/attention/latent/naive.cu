// mla_decode, the variant that takes every shape and every cache: a block a query head, whose warps take a token at a
// time, float arithmetic. Every head reads the whole cache; all but the first find it in L2, if at all.
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/attention.h"

namespace {

constexpr int warps = 8, threads = warps * 32;
constexpr int key_dim_most = BW_LATENT_DIM_MAX + BW_ROPE_DIM_MAX;
constexpr int parts = BW_LATENT_DIM_MAX / 32;  // of a value: element 32 i + lane is the lane's own

struct naive_shape {
    int64_t keys;
    int heads, key_dim, value_dim;
    float scale;  // log2(e) times the scores'
};

struct e4m3 {
    uint8_t bits;
};
struct int8 {
    int8_t value;
};

// FP16 has the same layout with more bits: exponents are 8 lower. 0x7f is no number there.
BW_DEVICE float to_float(e4m3 from) {
    const unsigned bits = from.bits & 0x7fu, sign = from.bits & 0x80u;
    const float value = bits == 0x7f ? NAN : 256.0f * __half2float(__ushort_as_half((unsigned short)(bits << 7)));
    return sign ? -value : value;
}
BW_DEVICE float to_float(int8 from) {
    return (float)from.value;
}
template <typename T>
BW_DEVICE float to_float(T from) {
    return bw_to_float(from);
}

template <typename Q, typename T>
__global__ void __launch_bounds__(threads)
    attention_latent_naive_kernel(const Q *q, const T *cache, const float *cache_scale, const int *kv_lens, Q *out,
                                  naive_shape shape) {
    __shared__ float query[key_dim_most], cells[warps][BW_LATENT_DIM_MAX], tops[warps], sums[warps];
    const int64_t row = blockIdx.x, batch = row / shape.heads;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int64_t length = kv_lens ? min(max((int64_t)kv_lens[batch], (int64_t)1), shape.keys) : shape.keys;
    for (int d = (int)threadIdx.x; d < shape.key_dim; d += threads) {
        query[d] = bw_to_float(q[row * shape.key_dim + d]) * shape.scale;
    }
    __syncthreads();
    float value[parts] = {}, top = -INFINITY, sum = 0.0f;
    for (int64_t key = warp; key < length; key += warps) {
        const int64_t at = batch * shape.keys + key;
        const T *from = cache + at * shape.key_dim;
        const float of_row = cache_scale ? cache_scale[at] : 1.0f;
        float score = 0.0f;
        for (int d = lane; d < shape.key_dim; d += 32) score = fmaf(query[d], to_float(from[d]), score);
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) score += __shfl_xor_sync(bw_all_lanes, score, offset);
        score *= of_row;
        const float before = top;
        top = fmaxf(top, score);
        const float reference = bw_softmax_reference(top);
        const float shrink = bw_exp2(before - reference), weight = bw_exp2(score - reference);
        sum = fmaf(sum, shrink, weight);
#pragma unroll
        for (int i = 0; i < parts; i++) {
            const float x = 32 * i + lane < shape.value_dim ? to_float(from[32 * i + lane]) * of_row : 0.0f;
            value[i] = fmaf(weight, x, value[i] * shrink);
        }
    }
#pragma unroll
    for (int i = 0; i < parts; i++) cells[warp][32 * i + lane] = value[i];
    if (lane == 0) {
        tops[warp] = top;
        sums[warp] = sum;
    }
    __syncthreads();
    float whole = -INFINITY, weight = 0.0f, factor[warps];
    for (int w = 0; w < warps; w++) whole = fmaxf(whole, tops[w]);
#pragma unroll
    for (int w = 0; w < warps; w++) {
        factor[w] = bw_exp2(tops[w] - bw_softmax_reference(whole));
        weight = fmaf(sums[w], factor[w], weight);
    }
    for (int d = (int)threadIdx.x; d < shape.value_dim; d += threads) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < warps; w++) total = fmaf(cells[w][d], factor[w], total);
        bw_from_float(total / weight, &out[row * shape.value_dim + d]);
    }
}

template <typename Q, typename T>
bw_status choose(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    const naive_shape shape = {sizes.kv_len, (int)sizes.heads, (int)sizes.key_dim, (int)sizes.value_dim,
                               (float)(1.4426950408889634 * sizes.scale)};
    bw_choose(out, attention_latent_naive_kernel<Q, T>, dim3((unsigned)(sizes.batch * sizes.heads)), dim3(threads), 0,
              bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K),
              bw_from_operand_if(precision->cache_scales->type != BW_NONE, BW_ATTENTION_K_SCALE),
              bw_from_operand_if(dims->list != nullptr, BW_ATTENTION_KV_LENS), bw_from_operand(BW_ATTENTION_OUT),
              shape);
    return BW_OK;
}

}  // namespace

const char *bw_latent_naive_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const bw_checked_int rows = bw_mul(bw_num(dims->value[BW_DECODE_BATCH]), bw_num(dims->value[BW_DECODE_NUM_HEADS]));
    return rows.overflow || !bw_cuda_grid_fits(rows.value) ? "more query heads than a grid holds (2^31 - 1)" : nullptr;
}

bw_status bw_latent_naive_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    if (precision->cache == BW_FP8_E4M3) return choose<__half, e4m3>(dims, precision, out);
    if (precision->cache == BW_INT8) return choose<__half, int8>(dims, precision, out);
    return bw_cuda_by_type(precision->cache, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choose<T, T>(dims, precision, out);
    });
}
