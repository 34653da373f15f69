// kv_append to caches of 8 bits: a head of a token is divided by its scale, the largest of its numbers over the type's
// largest, and rounded.
//
// A head of up to 256 elements whose rows are whole 16 bytes is met by 4, 8 or 16 lanes, twice 16 bytes each; any other
// one by a warp, element by element. An H200 moves INT8 as fast as a copy moves as many bytes, where blocks are small,
// have K or V alone, and leave what they read in the L2 (256 threads with both, told to drop it: 91 %). E4M3's
// arithmetic takes 5 % longer. Instructions that convert to E4M3 are far slower (1.6 ms with them where INT8 took 1.0).
#include <stddef.h>

#include "cuda/kernels/common/element8.cuh"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/kv/kv.h"
#include "cuda/kernels/kv/maps.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/kv.h"

namespace {

constexpr int threads = 64, any_threads = 256;

struct quantize_work {
    const __half *k, *v;
    void *k_cache, *v_cache;
    float *k_scale, *v_scale;
    int64_t rows;  // heads of all new tokens
    int head_dim;
    float largest, inverse;  // of the cache's type
};

// Of any numbers: zeros have no scale, and what is no number becomes the least one.
BW_DEVICE float divide_any(float x, float scale, float largest) {
    const float quotient = scale == 0.0f ? 0.0f : __fdiv_rn(x, scale);
    return fminf(fmaxf(quotient, -largest), largest);
}

// IEEE division in FP32 by a number whose reciprocal is rounded to nearest, where nothing underflows (Markstein).
BW_DEVICE float divide(float x, float by, float reciprocal) {
    const float near = x * reciprocal;
    return fmaf(-fmaf(near, by, -x), reciprocal, near);  // of -0 still -0
}

// The reciprocal of a number from 2^-100 to 2^100, rounded to nearest.
BW_DEVICE float invert(float x) {
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
    return fmaf(-fmaf(near, x, -1.0f), near, near);
}

// What a scale is taken times, so that quotients have the bits of the cache's type where they are wanted.
template <typename T>
constexpr float quotient_unit = 1.0f;
template <>
constexpr float quotient_unit<bw_e4m3> = 256.0f;

// Two pairs of FP16 over a scale.
BW_DEVICE uint32_t quantize(uint32_t first, uint32_t second, float scale, float reciprocal, bw_e4m3) {
    const float2 x[2] = {bw_unpack_pair(first, __half()), bw_unpack_pair(second, __half())};
    uint32_t pair[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        pair[i] = 2 * bw_pack_pair(bw_round_e4m3(divide(fabsf(x[i].x), scale, reciprocal)),
                                   bw_round_e4m3(divide(fabsf(x[i].y), scale, reciprocal)), __half());
    }
    return __byte_perm(pair[0], pair[1], 0x7531) | (__byte_perm(first, second, 0x7531) & 0x80808080u);
}
BW_DEVICE uint32_t quantize(uint32_t first, uint32_t second, float scale, float reciprocal, int8_t) {
    const float2 x[2] = {bw_unpack_pair(first, __half()), bw_unpack_pair(second, __half())};
    uint32_t pair[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {  // 1.5 * 2^23: whole numbers are in the lowest byte
        const uint32_t low = __float_as_uint(divide(x[i].x, scale, reciprocal) + 12582912.0f);
        const uint32_t high = __float_as_uint(divide(x[i].y, scale, reciprocal) + 12582912.0f);
        pair[i] = __byte_perm(low, high, 0x0040);
    }
    return __byte_perm(pair[0], pair[1], 0x5410);
}
// Stands for a head with infinities or NaN, of the same quantized numbers: what has no quotient is the least number,
// beside infinities all others are zeros.
BW_DEVICE void replace_odd(uint32_t &word, float most) {
    const float2 pair = bw_unpack_pair(word, __half());
    const auto replace = [&](float x) {
        if (!(fabsf(x) < INFINITY)) return most < INFINITY ? -most : -1.0f;
        return most < INFINITY ? x : x * 0.0f;
    };
    word = bw_pack_pair(replace(pair.x), replace(pair.y), __half());
}

BW_DEVICE __half2 pair_of(uint32_t bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}

// Over `lanes` neighbors; `numbers`: a NaN is ignored, else it is the largest of all.
template <int lanes, bool numbers>
BW_DEVICE float largest_of(const uint4 (&bits)[2]) {
    const auto larger = [](__half2 a, __half2 b) { return numbers ? __hmax2(a, b) : __hmax2_nan(a, b); };
    const uint32_t word[8] = {bits[0].x, bits[0].y, bits[0].z, bits[0].w, bits[1].x, bits[1].y, bits[1].z, bits[1].w};
    __half2 most = pair_of(0);
#pragma unroll
    for (int i = 0; i < 8; i++) most = larger(most, __habs2(pair_of(word[i])));
#pragma unroll
    for (int offset = 1; offset < lanes; offset *= 2) most = larger(most, __shfl_xor_sync(bw_all_lanes, most, offset));
    return __low2float(larger(most, __lowhigh2highlow(most)));
}

// A lane's part of a head, over the scale, which is returned. All lanes of a warp come here.
template <int lanes, typename T>
BW_DEVICE float quantize_head(uint4 (&bits)[2], const quantize_work &work, uint2 (&out)[2], T type) {
    float most = largest_of<lanes, false>(bits), scale = divide(most, work.largest, work.inverse), unit = scale;
    if (!__all_sync(bw_all_lanes, most > 0.0f && most < INFINITY)) {
        most = largest_of<lanes, true>(bits);
        scale = most < INFINITY ? divide(most, work.largest, work.inverse) : INFINITY;
        unit = most == 0.0f ? 1.0f : most < INFINITY ? scale : work.inverse;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            replace_odd(bits[i].x, most);
            replace_odd(bits[i].y, most);
            replace_odd(bits[i].z, most);
            replace_odd(bits[i].w, most);
        }
    }
    unit *= quotient_unit<T>;
    const float reciprocal = invert(unit);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        out[i].x = quantize(bits[i].x, bits[i].y, unit, reciprocal, type);
        out[i].y = quantize(bits[i].z, bits[i].w, unit, reciprocal, type);
    }
    return scale;
}

// blockIdx.y: of K or of V. Two heads for each of a warp's groups of lanes, all of them neighbors.
template <typename T, int lanes, typename To>
__global__ void __launch_bounds__(threads, 16) kv_quantize_kernel(quantize_work work, To to) {
    constexpr int items = 2, groups = 32 / lanes;
    const bool is_v = blockIdx.y != 0;
    const unsigned lane = threadIdx.x % lanes;
    const int64_t warp = (int64_t)blockIdx.x * (threads / 32) + threadIdx.x / 32;
    const int64_t first = warp * (items * groups) + threadIdx.x % 32 / lanes;
    uint4 bits[items][2] = {};
    bool there[items][2];
#pragma unroll
    for (int t = 0; t < items; t++) {
        const int64_t row = first + t * groups;
        const __half *from = (is_v ? work.v : work.k) + row * work.head_dim;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned column = (lane + i * lanes) * 8;
            there[t][i] = row < work.rows && (int)column < work.head_dim;
            if (there[t][i]) bits[t][i] = bw_load_cached(from + column);
        }
    }
    float scale[items];
    int64_t target[items];
#pragma unroll
    for (int t = 0; t < items; t++) {
        target[t] = to(min(first + t * groups, work.rows - 1));
        uint2 out[2];
        scale[t] = quantize_head<lanes>(bits[t], work, out, T());
        uint8_t *cache = (uint8_t *)(is_v ? work.v_cache : work.k_cache) + target[t] * work.head_dim;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (there[t][i]) bw_store_once((uint2 *)(cache + (lane + i * lanes) * 8), out[i]);
        }
    }
    // By one instruction, which writes whole 32 bytes where tokens have 8 heads.
    if (lane < items && first + lane * groups < work.rows) {
        (is_v ? work.v_scale : work.k_scale)[lane ? target[1] : target[0]] = lane ? scale[1] : scale[0];
    }
}

template <typename T, typename To>
__global__ void __launch_bounds__(any_threads) kv_quantize_any_kernel(quantize_work work, To to) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (any_threads / 32) + threadIdx.x / 32;
    if (row >= work.rows) return;
    const __half *from = (blockIdx.y == 0 ? work.k : work.v) + row * work.head_dim;
    const int64_t target = to(row);
    uint8_t *cache = (uint8_t *)(blockIdx.y == 0 ? work.k_cache : work.v_cache) + target * work.head_dim;
    float most = 0.0f;
    for (int i = lane; i < work.head_dim; i += 32) most = fmaxf(most, fabsf(bw_to_float(from[i])));
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) most = fmaxf(most, __shfl_xor_sync(bw_all_lanes, most, offset));
    const float scale = __fdiv_rn(most, work.largest);
    for (int i = lane; i < work.head_dim; i += 32) {
        cache[i] = bw_narrow(divide_any(bw_to_float(from[i]), scale, work.largest), T());
    }
    if (lane == 0) (blockIdx.y == 0 ? work.k_scale : work.v_scale)[target] = scale;
}

template <typename T, typename To>
bw_cuda_kernel *choose(const quantize_work &work, To to, bw_cuda_launch_spec *out) {
    int block = any_threads, block_heads = any_threads / 32;
    void (*function)(quantize_work, To) = kv_quantize_any_kernel<T, To>;
    if (work.head_dim % 8 == 0 && work.head_dim <= 256) {
        const int lanes = work.head_dim <= 64 ? 4 : work.head_dim <= 128 ? 8 : 16;
        block = threads;
        block_heads = 2 * threads / lanes;
        function = lanes == 4   ? kv_quantize_kernel<T, 4, To>
                   : lanes == 8 ? kv_quantize_kernel<T, 8, To>
                                : kv_quantize_kernel<T, 16, To>;
    }
    const dim3 grid((unsigned)bw_ceil_div(work.rows, block_heads), 2);
    bw_cuda_kernel *kernel = bw_choose(out, function, grid, dim3(block), 0, work, to);
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
    work.inverse = 1.0f / work.largest;
    return precision->cache == BW_INT8 ? choose_append<int8_t>(dims, work, out)
                                       : choose_append<bw_e4m3>(dims, work, out);
}
