/* Element-wise operations, n elements each, and a chain of them.
 *   relu          x -> out: max(x, 0)
 *   gelu          x -> out: x times the normal distribution function of x (the exact form, by erf)
 *   residual_add  x, residual -> out: x + residual
 *   silu_mul      gate, up -> out: gate / (1 + e^-gate) * up
 *   bias_relu_dropout_residual  x(T, d), bias(d), residual(T, d) -> out(T, d):
 *                 dropout(relu(x + bias)) + residual; which elements stay says base/types/dropout.h */
#pragma once

#include "base/types/dropout.h"
#include "ops/op.h"

#define BW_ELEMENTWISE_OPERATIONS(X)  \
    X(relu, KERNELS, KERNELS)         \
    X(gelu, KERNELS, KERNELS)         \
    X(residual_add, KERNELS, KERNELS) \
    X(silu_mul, KERNELS, KERNELS)     \
    X(bias_relu_dropout_residual, KERNELS, KERNELS)

enum { BW_ELEMENTWISE_ELEMENTS };
enum { BW_ELEMENTWISE_A, BW_ELEMENTWISE_B, BW_ELEMENTWISE_OUT, BW_ELEMENTWISE_OPERANDS }; /* B: of two inputs */

enum { BW_CHAIN_TOKENS, BW_CHAIN_HIDDEN, BW_CHAIN_DROPOUT_PERCENT, BW_CHAIN_MASK_SEED };
enum { BW_CHAIN_X, BW_CHAIN_BIAS, BW_CHAIN_RESIDUAL, BW_CHAIN_OUT, BW_CHAIN_OPERANDS };

/* What an unfused chain stores between its steps: an array at the places of two, by turns; it is read and written
 * thrice. An array's bytes are rounded up, so that the second is aligned, too. */
static inline bw_checked_int bw_chain_bytes(const bw_dims *dims, const bw_precision *precision) {
    return bw_mul3(dims->value[BW_CHAIN_TOKENS], dims->value[BW_CHAIN_HIDDEN],
                   bw_dtype_bytes(precision->activation, 1));
}
static inline int64_t bw_chain_place_bytes(const bw_dims *dims, const bw_precision *precision) {
    return bw_ceil_div(bw_chain_bytes(dims, precision).value, 256) * 256;
}

struct bw_device_facts;
/* As bw_variant has them. */
BW_C int64_t bw_chain_unfused_scratch(const bw_dims *dims, const bw_precision *precision,
                                      const struct bw_device_facts *facts);
BW_C bw_status bw_chain_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                     const struct bw_device_facts *facts, bw_cost *cost);

/* The share of a normal distribution that lies above a, 0 <= a <= BW_TAIL_END, is 2 to the power of this polynomial in
 * a, here from its highest power on, within 4.1e-8; fitted to erfc. */
#define BW_TAIL_END 6.0f
#define BW_TAIL_POWERS                                                                                     \
    {                                                                                                      \
        -9.58616397e-7f, 1.67316720e-5f, -8.00728012e-5f, -3.84055515e-4f, 7.36747775e-3f, -5.2689787e-2f, \
            -0.459150463f, -1.15111148f, -0.999999881f                                                     \
    }
enum { BW_TAIL_TERMS = 9 };
