// Elements of 8 bits in kernels: E4M3 (bw_e4m3) and whole numbers (int8_t), as FP16, which holds them exactly.
#pragma once

#include "cuda/kernels/common/element.cuh"

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

// A pair of FP16, times another or less another.
BW_DEVICE uint32_t bw_pair_product(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}
BW_DEVICE uint32_t bw_pair_difference(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}

// Four elements of a word, as pairs: bytes 0 and 2, then 1 and 3; so many times their value. (The instruction that
// converts E4M3 is slow: decode took 3.4 times as long with it.)
//
// E4M3's bits, moved to where FP16 has them, are 2^-8 of the number; a NaN would be 480. Of numbers up to 448 the 140
// fold still is one of FP16, exactly; of 480 it is an infinity.
template <typename T>
constexpr float bw_widened = 1.0f;
template <>
constexpr float bw_widened<bw_e4m3> = 140.0f;

// Bits of one word where a mask has ones, else of another.
BW_DEVICE uint32_t bw_blend(uint32_t mask, uint32_t ones, uint32_t zeros) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(mask), "r"(ones), "r"(zeros));
    return result;
}
// Where bytes have their signs; in memory, as the assembler makes a second mask of a constant. (The compiler would fold
// a plain read, and a variable that is not const would be one of the process.)
static __constant__ const uint32_t bw_byte_signs = 0x80808080u;
BW_DEVICE uint32_t bw_load_byte_signs() {
    uint32_t signs;
    asm("{\n.reg .u64 from;\ncvta.to.const.u64 from, %1;\nld.const.u32 %0, [from];\n}"
        : "=r"(signs)
        : "l"(&bw_byte_signs));
    return signs;
}

// Four numbers, each 2^-8 of its own, a NaN 480.
BW_DEVICE void bw_move_e4m3(uint32_t word, uint32_t (&out)[2]) {
    constexpr uint32_t others = 0x3f803f80u;
    const uint32_t signs = word & bw_load_byte_signs();  // zeros wherever FP16 has neither sign nor number
    out[0] = bw_blend(others, word << 7, signs << 8);
    out[1] = bw_blend(others, word >> 1, signs);
}
BW_DEVICE void bw_widen(uint32_t word, uint32_t (&out)[2], bw_e4m3) {
    constexpr uint32_t factor = 0x78607860u;  // 140 * 2^8
    bw_move_e4m3(word, out);
    out[0] = bw_pair_product(out[0], factor);
    out[1] = bw_pair_product(out[1], factor);
}
// A byte in the mantissa of 1024 makes 1024 + byte.
BW_DEVICE uint32_t bw_from_1152(uint32_t word) {
    constexpr uint32_t bytes = 0x00ff00ffu, offset = 0x64806480u;  // 1024 + 128
    uint32_t sum;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(sum) : "r"(word), "r"(bytes), "r"(offset));  // word & bytes ^ offset
    return bw_pair_difference(sum, offset);
}
BW_DEVICE void bw_widen(uint32_t word, uint32_t (&out)[2], int8_t) {
    out[0] = bw_from_1152(word);
    out[1] = bw_from_1152(word >> 8);
}

// To the nearest, the even one of two.
BW_DEVICE uint8_t bw_narrow(float value, bw_e4m3) {
    return bw_float_to_fp8_e4m3(value);
}
BW_DEVICE uint8_t bw_narrow(float value, int8_t) {
    return (uint8_t)bw_float_to_int8(value);
}

// 2^-8 of an E4M3 number, whose bits are then where FP16 has them. To add 2^20 of its power of two rounds to 3 bits,
// and of what is below the normal ones to a multiple of the least.
BW_DEVICE float bw_round_e4m3(float quotient) {
    const uint32_t power = max(__float_as_uint(quotient) & 0x7f800000u, (127u - 14u) << 23);
    const float large = __uint_as_float(power) * 1048576.0f;
    return (quotient + large) - large;
}

// Four E4M3 numbers, to the nearest each, from 2^-8 of them.
BW_DEVICE uint32_t bw_narrow_four(float a, float b, float c, float d) {
    const __half type = __half();
    const uint32_t first = bw_pack_pair(bw_round_e4m3(fabsf(a)), bw_round_e4m3(fabsf(b)), type);
    const uint32_t second = bw_pack_pair(bw_round_e4m3(fabsf(c)), bw_round_e4m3(fabsf(d)), type);
    const uint32_t low = __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0073);
    const uint32_t high = __byte_perm(__float_as_uint(c), __float_as_uint(d), 0x0073);
    return __byte_perm(2 * first, 2 * second, 0x7531) | (__byte_perm(low, high, 0x5410) & 0x80808080u);
}

// bw_cuda_by_type (element.cuh), of what a cache holds.
template <typename Body>
static bw_status bw_cuda_by_cache_type(bw_dtype dtype, Body body) {
    if (dtype == BW_FP8_E4M3) return body(bw_type<bw_e4m3>{});
    if (dtype == BW_INT8) return body(bw_type<int8_t>{});
    return bw_cuda_by_type(dtype, body);
}
