// Division by a number that only the launch knows: a multiplication by its reciprocal, worked out on the host.
#ifndef BW_CUDA_DIVIDE_CUH
#define BW_CUDA_DIVIDE_CUH

#include <stdint.h>

// With magic = ceil(2^64 / d), floor(n * magic / 2^64) is floor(n / d) as long as n * d < 2^64: the reciprocal's error
// is below n / 2^64 * (d - 1) / d, less than the 1 / d that would carry n / d to the next integer.
struct bw_divider {
    uint64_t magic, ones;  // for d = 1, whose reciprocal does not fit, magic is 0 and ones takes n as it is
    int64_t divisor;

#ifdef __CUDACC__
    __device__ int64_t quotient(int64_t n) const {
        return (int64_t)(__umul64hi((uint64_t)n, magic) + ((uint64_t)n & ones));
    }
#endif
};

static inline bw_divider bw_divider_make(int64_t divisor) {
    const uint64_t d = (uint64_t)divisor;
    return {d == 1 ? 0 : UINT64_MAX / d + 1, d == 1 ? UINT64_MAX : 0, divisor};
}

#endif
