/* Sums in float64 for reference rows, and the tolerance of moves. */
#pragma once

#include "ops/op.h"

/* In several sums, which a processor adds to side by side. */
static inline double bw_dot(const double *a, const double *b, int64_t count) {
    enum { SUMS = 8 };
    double sum[SUMS] = {0.0};
    int64_t i = 0;
    for (; i + SUMS <= count; i += SUMS) {
        for (int j = 0; j < SUMS; j++) sum[j] += a[i + j] * b[i + j];
    }
    for (; i < count; i++) sum[0] += a[i] * b[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static inline bw_tolerance bw_tolerance_exact(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)dims, (void)precision, (void)rounds_once;
    return (bw_tolerance){0.0, 0.0};
}

static inline void bw_add_scaled(double *to, double factor, const double *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}
