// Division by a number that is known at the launch: a multiplication by its reciprocal, which the host computes.
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define BW_DIVIDE_BOTH __host__ __device__ __forceinline__
#else
#define BW_DIVIDE_BOTH inline
#endif

static BW_DIVIDE_BOTH uint64_t bw_product_high(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return (uint64_t)(((unsigned __int128)a * b) >> 64);
#endif
}

// With 2^bits the first power of 2 that is not below d, and magic = ceil(2^(63 + bits) / d), which 64 bits hold,
// floor(n * magic / 2^(63 + bits)) is floor(n / d) for every n below 2^63: the reciprocal is too large by less than
// 2^bits / d / 2^(63 + bits), which n makes less than the 1 / d that would carry n / d to the next integer.
struct bw_divider {
    uint64_t magic, ones;  // for d = 1, whose reciprocal does not fit, magic is 0 and ones takes n as it is
    int64_t divisor;
    unsigned shift;  // bits - 1

    BW_DIVIDE_BOTH int64_t quotient(int64_t n) const {
        return (int64_t)((bw_product_high((uint64_t)n, magic) >> shift) + ((uint64_t)n & ones));
    }
};

// `divisor` is at least 1.
static inline bw_divider bw_divider_make(int64_t divisor) {
    const uint64_t d = (uint64_t)divisor;
    unsigned bits = 0;
    while (bits < 63 && (uint64_t)1 << bits < d) bits++;
    if (bits == 0) return {0, UINT64_MAX, divisor, 0};
    const unsigned __int128 power = (unsigned __int128)1 << (63 + bits);
    return {(uint64_t)((power + d - 1) / d), 0, divisor, bits - 1};
}

#undef BW_DIVIDE_BOTH
