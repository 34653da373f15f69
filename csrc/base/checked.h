/* Sizes are int64_t, and every product or sum of sizes is checked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value that remembers whether anything overflowed: build it with bw_mul and bw_add, then look at `overflow`. */
typedef struct bw_checked_int {
    int64_t value;
    bool overflow;
} bw_checked_int;

static inline bw_checked_int bw_num(int64_t value) {
    bw_checked_int result = {value, false};
    return result;
}

#define BW_CHECKED(name)                                                                          \
    static inline bw_checked_int bw_##name(bw_checked_int a, bw_checked_int b) {                  \
        bw_checked_int result = {0, a.overflow || b.overflow};                                    \
        if (__builtin_##name##_overflow(a.value, b.value, &result.value)) result.overflow = true; \
        return result;                                                                            \
    }
BW_CHECKED(mul)
BW_CHECKED(add)
BW_CHECKED(sub)
#undef BW_CHECKED

/* The product of up to five factors, as shapes need it. */
static inline bw_checked_int bw_mul3(int64_t a, int64_t b, int64_t c) {
    return bw_mul(bw_mul(bw_num(a), bw_num(b)), bw_num(c));
}

static inline bw_checked_int bw_mul4(int64_t a, int64_t b, int64_t c, int64_t d) {
    return bw_mul(bw_mul3(a, b, c), bw_num(d));
}

static inline bw_checked_int bw_mul5(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
    return bw_mul(bw_mul4(a, b, c, d), bw_num(e));
}

static inline int64_t bw_ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

static inline int64_t bw_min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t bw_max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t bw_gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A step that visits each of `count` places once (it is coprime to the count) and spreads neighbors evenly: near the
 * golden section. */
static inline int64_t bw_spread_step(int64_t count) {
    int64_t step = bw_max64(1, (int64_t)((double)count * 0.6180339887498949));
    while (bw_gcd(step, count) != 1) step++;
    return step;
}
