// 16-byte vectors of a precision, and loads and stores that do not ask the caches to keep what they touch.
#ifndef BW_CUDA_VECTOR_CUH
#define BW_CUDA_VECTOR_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

// The C++ types that stand for the precisions in kernel templates: float, __half, __nv_bfloat16.
// bw_vector<T>: 16 bytes of T as `elems` values in FP32; `get` and `put` are one element's conversions.
template <typename T>
struct bw_vector;

template <>
struct bw_vector<float> {
    static constexpr int elems = 4;
    static __device__ float get(float value) {
        return value;
    }
    static __device__ float put(float value) {
        return value;
    }
    static __device__ void unpack(uint4 bits, float (&out)[elems]) {
        out[0] = __uint_as_float(bits.x);
        out[1] = __uint_as_float(bits.y);
        out[2] = __uint_as_float(bits.z);
        out[3] = __uint_as_float(bits.w);
    }
    static __device__ uint4 pack(const float (&in)[elems]) {
        return make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
                          __float_as_uint(in[3]));
    }
};

// Two 16-bit values share a word, the first in the low half.
template <typename T>
static __device__ float2 bw_pair_unpack(uint32_t word);
template <typename T>
static __device__ uint32_t bw_pair_pack(float first, float second);

template <>
__device__ float2 bw_pair_unpack<__half>(uint32_t word) {
    __half2 pair;
    memcpy(&pair, &word, sizeof pair);
    return __half22float2(pair);
}

template <>
__device__ uint32_t bw_pair_pack<__half>(float first, float second) {
    __half2 pair = __floats2half2_rn(first, second);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

template <>
__device__ float2 bw_pair_unpack<__nv_bfloat16>(uint32_t word) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

template <>
__device__ uint32_t bw_pair_pack<__nv_bfloat16>(float first, float second) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

template <typename T>
struct bw_vector_of_pairs {
    static constexpr int elems = 8;
    static __device__ void unpack(uint4 bits, float (&out)[elems]) {
        const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 pair = bw_pair_unpack<T>(words[i]);
            out[2 * i] = pair.x;
            out[2 * i + 1] = pair.y;
        }
    }
    static __device__ uint4 pack(const float (&in)[elems]) {
        return make_uint4(bw_pair_pack<T>(in[0], in[1]), bw_pair_pack<T>(in[2], in[3]), bw_pair_pack<T>(in[4], in[5]),
                          bw_pair_pack<T>(in[6], in[7]));
    }
};

template <>
struct bw_vector<__half> : bw_vector_of_pairs<__half> {
    static __device__ float get(__half value) {
        return __half2float(value);
    }
    static __device__ __half put(float value) {
        return __float2half_rn(value);
    }
};

template <>
struct bw_vector<__nv_bfloat16> : bw_vector_of_pairs<__nv_bfloat16> {
    static __device__ float get(__nv_bfloat16 value) {
        return __bfloat162float(value);
    }
    static __device__ __nv_bfloat16 put(float value) {
        return __float2bfloat16_rn(value);
    }
};

// The data will not be touched again soon, so the caches may drop it first.
template <typename Unit>
static __device__ Unit bw_load_once(const Unit *from) {
    return __ldcs(from);
}

template <typename Unit>
static __device__ void bw_store_once(Unit *to, Unit value) {
    __stcs(to, value);
}

#endif
