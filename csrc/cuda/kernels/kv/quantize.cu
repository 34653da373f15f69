// kv_append to caches of 8 bits: a head of a token is divided by its scale, the largest of its numbers over the type's
// largest, and rounded.
//
// A head of up to 256 elements whose rows are whole 16 bytes is met by 8, 16 or 32 lanes, 16 bytes each, read once; any
// other one by a warp, element by element, which reads it twice. K comes before V.
#include <stddef.h>

#include "cuda/kernels/common/element8.cuh"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/kv/kv.h"
#include "cuda/kernels/kv/maps.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/kv.h"

namespace {

constexpr int threads = 256;

struct quantize_work {
    const __half *k, *v;
    void *k_cache, *v_cache;
    float *k_scale, *v_scale;
    int64_t rows;  // heads of all new tokens
    int head_dim;
    float largest;  // of the cache's type
};

// IEEE division in FP32 by a number whose reciprocal is rounded to nearest, where nothing underflows (Markstein).
BW_DEVICE float divide(float x, float by, float reciprocal) {
    const float near = x * reciprocal;
    return fmaf(-fmaf(near, by, -x), reciprocal, near);  // of -0 still -0
}

// Of any numbers: zeros have no scale, and what is no number becomes the least one.
BW_DEVICE float divide_any(float x, float scale, float largest) {
    const float quotient = scale == 0.0f ? 0.0f : __fdiv_rn(x, scale);
    return fminf(fmaxf(quotient, -largest), largest);
}

// Each lane's largest becomes that of its `lanes` neighbors. fmaxf ignores what is no number.
template <int lanes>
BW_DEVICE float largest_of(float value) {
#pragma unroll
    for (int offset = 1; offset < lanes; offset *= 2)
        value = fmaxf(value, __shfl_xor_sync(bw_all_lanes, value, offset));
    return value;
}

template <typename T, int lanes, typename To>
__global__ void __launch_bounds__(threads) kv_quantize_kernel(quantize_work work, To to) {
    const int lane = (int)threadIdx.x % lanes, column = lane * 8;
    const int64_t row = (int64_t)blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
    const bool in = row < work.rows && column < work.head_dim;
    const __half *from = blockIdx.y == 0 ? work.k : work.v;
    uint4 bits = make_uint4(0, 0, 0, 0);
    if (in) bits = bw_load_once((const uint4 *)(from + row * work.head_dim + column));
    const int64_t target = to(row < work.rows ? row : work.rows - 1);
    T *cache = (T *)(blockIdx.y == 0 ? work.k_cache : work.v_cache) + target * work.head_dim + column;
    float *scales = blockIdx.y == 0 ? work.k_scale : work.v_scale;
    float x[8], most = 0.0f;
    bw_unpack(bits, x, __half());
    bool numbers = true;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        most = fmaxf(most, fabsf(x[i]));
        numbers = numbers && x[i] == x[i];
    }
    most = largest_of<lanes>(most);
    const float scale = __fdiv_rn(most, work.largest);
    if (__all_sync(bw_all_lanes, numbers && scale > 0.0f && scale < INFINITY)) {
        const float reciprocal = __frcp_rn(scale);
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = divide(x[i], scale, reciprocal);
    } else {
#pragma unroll 1
        for (int i = 0; i < 8; i++) x[i] = divide_any(x[i], scale, work.largest);
    }
    const float low[4] = {x[0], x[1], x[2], x[3]}, high[4] = {x[4], x[5], x[6], x[7]};
    if (in) bw_store_once((uint2 *)cache, make_uint2(bw_narrow(low, T()), bw_narrow(high, T())));
    if (in && lane == 0) scales[target] = scale;
}

template <typename T, typename To>
__global__ void __launch_bounds__(threads) kv_quantize_any_kernel(quantize_work work, To to) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (threads / 32) + threadIdx.x / 32;
    if (row >= work.rows) return;
    const __half *from = (blockIdx.y == 0 ? work.k : work.v) + row * work.head_dim;
    const int64_t target = to(row);
    uint8_t *cache = (uint8_t *)(blockIdx.y == 0 ? work.k_cache : work.v_cache) + target * work.head_dim;
    float most = 0.0f;
    for (int i = lane; i < work.head_dim; i += 32) most = fmaxf(most, fabsf(bw_to_float(from[i])));
    const float scale = __fdiv_rn(largest_of<32>(most), work.largest);
    for (int i = lane; i < work.head_dim; i += 32) {
        const float x[4] = {divide_any(bw_to_float(from[i]), scale, work.largest)};
        cache[i] = (uint8_t)bw_narrow(x, T());
    }
    if (lane == 0) (blockIdx.y == 0 ? work.k_scale : work.v_scale)[target] = scale;
}

template <typename T, typename To>
bw_cuda_kernel *choose(const quantize_work &work, To to, bw_cuda_launch_spec *out) {
    int lanes = 32;
    void (*function)(quantize_work, To) = kv_quantize_any_kernel<T, To>;
    if (work.head_dim % 8 == 0 && work.head_dim <= 256) {
        lanes = work.head_dim <= 64 ? 8 : work.head_dim <= 128 ? 16 : 32;
        function = lanes == 8    ? kv_quantize_kernel<T, 8, To>
                   : lanes == 16 ? kv_quantize_kernel<T, 16, To>
                                 : kv_quantize_kernel<T, 32, To>;
    }
    const dim3 grid((unsigned)bw_ceil_div(work.rows, threads / lanes), 2);
    bw_cuda_kernel *kernel = bw_choose(out, function, grid, dim3(threads), 0, work, to);
    bw_choose_place(kernel, 0, offsetof(quantize_work, k), bw_from_operand(BW_APPEND_K));
    bw_choose_place(kernel, 0, offsetof(quantize_work, v), bw_from_operand(BW_APPEND_V));
    bw_choose_place(kernel, 0, offsetof(quantize_work, k_cache), bw_from_operand(BW_APPEND_K_CACHE));
    bw_choose_place(kernel, 0, offsetof(quantize_work, v_cache), bw_from_operand(BW_APPEND_V_CACHE));
    bw_choose_place(kernel, 0, offsetof(quantize_work, k_scale), bw_from_operand(BW_APPEND_K_CACHE_SCALE));
    bw_choose_place(kernel, 0, offsetof(quantize_work, v_scale), bw_from_operand(BW_APPEND_V_CACHE_SCALE));
    return kernel;
}

template <typename T>
bw_status choose_append(const bw_dims *dims, const quantize_work &work, bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value, heads = value[BW_APPEND_NUM_KV_HEADS];
    if (value[BW_APPEND_PAGE_SIZE] > 0) {
        bw_cuda_kernel *kernel = choose<T>(work, slot_map{nullptr, bw_divider_make(heads)}, out);
        bw_choose_place(kernel, 1, offsetof(slot_map, slots), bw_from_operand(BW_APPEND_SLOTS));
    } else {
        const bw_divider entry = bw_divider_make(value[BW_APPEND_SEQ_LEN] * heads);
        choose<T>(work, append_map{entry, value[BW_APPEND_KV_LEN] * heads}, out);
    }
    return BW_OK;
}

}  // namespace

bw_status bw_kv_quantize_choose(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    quantize_work work = {};
    work.rows = value[BW_APPEND_BATCH] * value[BW_APPEND_SEQ_LEN] * value[BW_APPEND_NUM_KV_HEADS];
    work.head_dim = (int)value[BW_APPEND_HEAD_DIM];
    work.largest = bw_dtype_largest(precision->cache);
    return precision->cache == BW_INT8 ? choose_append<int8_t>(dims, work, out)
                                       : choose_append<bw_e4m3>(dims, work, out);
}
