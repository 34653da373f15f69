// Elements of 8 bits in kernels: E4M3 (bw_e4m3) and whole numbers (int8_t), as FP16, which holds them exactly.
#pragma once

#include "base/types/convert.h"
#include "cuda/kernels/common/element.cuh"

struct bw_e4m3 {
    uint8_t bits;
};

// What operations of such caches compute with: the type of matrix products' factors, of queries and of results.
template <typename T>
struct bw_wide_type {
    using type = T;
};
template <>
struct bw_wide_type<bw_e4m3> {
    using type = __half;
};
template <>
struct bw_wide_type<int8_t> {
    using type = __half;
};
template <typename T>
constexpr bool bw_is_narrow = sizeof(T) == 1;

BW_DEVICE float bw_to_float(bw_e4m3 value) {
    return bw_fp8_e4m3_to_float(value.bits);
}
BW_DEVICE float bw_to_float(int8_t value) {
    return (float)value;
}

BW_DEVICE uint32_t bw_half2_subtract(uint32_t a, uint32_t b) {
    __half2 left, right;
    memcpy(&left, &a, sizeof left);
    memcpy(&right, &b, sizeof right);
    left = __hsub2(left, right);
    memcpy(&a, &left, sizeof a);
    return a;
}

// Two neighbors in the low half of `bits`.
BW_DEVICE uint32_t bw_widen_pair(uint16_t bits) {
#if __CUDA_ARCH__ >= 890
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bits));
    return pair;
#else
    const float low = bw_fp8_e4m3_to_float((uint8_t)bits), high = bw_fp8_e4m3_to_float((uint8_t)(bits >> 8));
    return bw_pack_pair(low, high, __half());
#endif
}

// Four elements of a word, the first two in out[0].
BW_DEVICE void bw_widen(uint32_t word, uint32_t (&out)[2], bw_e4m3) {
    out[0] = bw_widen_pair((uint16_t)word);
    out[1] = bw_widen_pair((uint16_t)(word >> 16));
}
// A byte in the mantissa of 1024 makes 1024 + byte.
BW_DEVICE void bw_widen(uint32_t word, uint32_t (&out)[2], int8_t) {
    constexpr uint32_t thousands = 0x64006400u, offset = thousands + 128 * 0x00010001u;
    const uint32_t from_zero = word ^ 0x80808080u;
    out[0] = bw_half2_subtract(__byte_perm(from_zero, thousands, 0x7150), offset);
    out[1] = bw_half2_subtract(__byte_perm(from_zero, thousands, 0x7352), offset);
}

// bw_cuda_by_type (element.cuh), of what a cache holds.
template <typename Body>
static bw_status bw_cuda_by_cache_type(bw_dtype dtype, Body body) {
    if (dtype == BW_FP8_E4M3) return body(bw_type<bw_e4m3>{});
    if (dtype == BW_INT8) return body(bw_type<int8_t>{});
    return bw_cuda_by_type(dtype, body);
}
