// Element types in kernels (float, __half, __nv_bfloat16; of caches also bw_e4m3 and int8_t): conversions to and from
// float, one by one and as 16-byte vectors, and choosing a kernel's instantiation from a precision.
#pragma once

// Nothing converts or computes unasked; and without these the headers are read in half of the time.
#define __CUDA_NO_HALF_OPERATORS__
#define __CUDA_NO_HALF2_OPERATORS__
#define __CUDA_NO_HALF_CONVERSIONS__
#define __CUDA_NO_BFLOAT16_OPERATORS__
#define __CUDA_NO_BFLOAT162_OPERATORS__
#define __CUDA_NO_BFLOAT16_CONVERSIONS__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "base/types/dtype.h"

#define BW_DEVICE static __device__ __forceinline__

// OCP E4M3; whole numbers of eight bits are int8_t.
struct bw_e4m3 {
    uint8_t bits;
};

BW_DEVICE float bw_to_float(float value) {
    return value;
}
BW_DEVICE float bw_to_float(__half value) {
    return __half2float(value);
}
// Not by __bfloat162float: newer architectures have other code for it, and here the oldest one's is assembled for all.
BW_DEVICE float bw_to_float(__nv_bfloat16 value) {
    return __uint_as_float((uint32_t)__bfloat16_as_ushort(value) << 16);
}
BW_DEVICE float bw_to_float(bw_e4m3 value) {
    return bw_fp8_e4m3_to_float(value.bits);
}
BW_DEVICE float bw_to_float(int8_t value) {
    return value;
}

BW_DEVICE void bw_from_float(float value, float *out) {
    *out = value;
}
BW_DEVICE void bw_from_float(float value, __half *out) {
    *out = __float2half_rn(value);
}
BW_DEVICE void bw_from_float(float value, __nv_bfloat16 *out) {
    *out = __float2bfloat16_rn(value);
}

// Two neighboring 16-bit elements in one register, the first in the low half.
BW_DEVICE float2 bw_unpack_pair(uint32_t bits, __half) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return __half22float2(pair);
}
BW_DEVICE float2 bw_unpack_pair(uint32_t bits, __nv_bfloat16) {
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}
BW_DEVICE uint32_t bw_pack_pair(float low, float high, __half) {
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
BW_DEVICE uint32_t bw_pack_pair(float low, float high, __nv_bfloat16) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

BW_DEVICE void bw_unpack(uint4 bits, float (&out)[4], float) {
    out[0] = __uint_as_float(bits.x);
    out[1] = __uint_as_float(bits.y);
    out[2] = __uint_as_float(bits.z);
    out[3] = __uint_as_float(bits.w);
}
template <typename T>
BW_DEVICE void bw_unpack(uint4 bits, float (&out)[8], T type) {
    const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 pair = bw_unpack_pair(words[i], type);
        out[2 * i] = pair.x;
        out[2 * i + 1] = pair.y;
    }
}

BW_DEVICE uint4 bw_pack(const float (&in)[4], float) {
    return make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]), __float_as_uint(in[3]));
}
template <typename T>
BW_DEVICE uint4 bw_pack(const float (&in)[8], T type) {
    return make_uint4(bw_pack_pair(in[0], in[1], type), bw_pack_pair(in[2], in[3], type),
                      bw_pack_pair(in[4], in[5], type), bw_pack_pair(in[6], in[7], type));
}

BW_DEVICE uint32_t bw_bits(__half value) {
    return __half_as_ushort(value);
}
BW_DEVICE uint32_t bw_bits(__nv_bfloat16 value) {
    return __bfloat16_as_ushort(value);
}

// Up to 16 bytes of elements one by one; zeros behind them.
BW_DEVICE uint4 bw_gather_chunk(const float *from, int count) {
    float value[4];
#pragma unroll
    for (int i = 0; i < 4; i++) value[i] = i < count ? from[i] : 0.0f;
    return bw_pack(value, float());
}
template <typename T>
BW_DEVICE uint4 bw_gather_chunk(const T *from, int count) {
    uint32_t word[4] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) word[i / 2] |= (i < count ? bw_bits(from[i]) : 0) << i % 2 * 16;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <typename T>
struct bw_type {
    using type = T;
};

// bw_cuda_by_type(dtype, [&](auto tag) { using T = typename decltype(tag)::type; ... }): TF32 is stored as float.
template <typename Body>
static bw_status bw_cuda_by_type(bw_dtype dtype, Body body) {
    switch (dtype) {
        case BW_FP32:
        case BW_TF32: return body(bw_type<float>{});
        case BW_FP16: return body(bw_type<__half>{});
        case BW_BF16: return body(bw_type<__nv_bfloat16>{});
        default: break;
    }
    return bw_fail(BW_CODE_UNSUPPORTED, "no CUDA kernel for precision %s", bw_dtype_get(dtype)->name);
}

// The same for the 16-bit types alone: kernels on tensor cores.
template <typename Body>
static bw_status bw_cuda_by_half_type(bw_dtype dtype, Body body) {
    if (dtype == BW_FP16) return body(bw_type<__half>{});
    if (dtype == BW_BF16) return body(bw_type<__nv_bfloat16>{});
    return bw_fail(BW_CODE_UNSUPPORTED, "no tensor-core kernel for precision %s", bw_dtype_get(dtype)->name);
}
