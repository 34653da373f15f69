/* Operations on the rows of a matrix x(R, C), each row by what is typical of it. A norm's rows are tokens of `hidden`
 * elements.
 *   rmsnorm           out = x / sqrt(mean of x^2 + epsilon) * weight
 *   layernorm         out = (x - mean) / sqrt(mean of (x - mean)^2 + epsilon) * weight + bias
 *   residual_rmsnorm  sum = x + residual, rounded as it is stored; out = rmsnorm of sum
 *   softmax           out = e^x / sum of e^x
 *   logsumexp         out(R) = log(sum of e^x) */
#pragma once

#include "ops/op.h"

#define BW_ROWS_OPERATIONS(X)             \
    X(rmsnorm, KERNELS, KERNELS)          \
    X(layernorm, KERNELS, KERNELS)        \
    X(residual_rmsnorm, KERNELS, KERNELS) \
    X(softmax, KERNELS, KERNELS)          \
    X(logsumexp, KERNELS, KERNELS)

enum { BW_ROWS_COUNT, BW_ROWS_ELEMS };
/* Of all of them: an operation lacks those that its formula does not name. */
enum { BW_ROWS_X, BW_ROWS_RESIDUAL, BW_ROWS_WEIGHT, BW_ROWS_BIAS, BW_ROWS_SUM, BW_ROWS_OUT, BW_ROWS_OPERANDS };

#define BW_ROWS_EPSILON 1e-5f

/* logsumexp in three passes, for either backend's variant: maxima, exponentials relative to them, sums. The scratch has
 * a row's maximum in FP32, and behind all of them, from this byte on, the exponentials as x. */
static inline int64_t bw_logsumexp_exponentials(const bw_dims *dims) {
    return bw_ceil_div(dims->value[BW_ROWS_COUNT] * (int64_t)sizeof(float), 256) * 256;
}

struct bw_device_facts;
/* As bw_variant has them: logsumexp's, and residual_rmsnorm's as an addition, whose sum is read again, and a norm. */
BW_C int64_t bw_logsumexp_scratch(const bw_dims *dims, const bw_precision *precision,
                                  const struct bw_device_facts *facts);
BW_C bw_status bw_logsumexp_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                         const struct bw_device_facts *facts, bw_cost *cost);
BW_C bw_status bw_residual_rmsnorm_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                                const struct bw_device_facts *facts, bw_cost *cost);
