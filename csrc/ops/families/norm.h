/* Norms: each token's elements by what is typical of them.
 *   rmsnorm  x(T, d), weight(d) -> out(T, d): out = x / sqrt(mean of x^2 + epsilon) * weight */
#pragma once

#define BW_NORM_OPERATIONS(X) X(rmsnorm, KERNELS, NONE)

enum { BW_NORM_TOKENS, BW_NORM_HIDDEN };
enum { BW_NORM_X, BW_NORM_WEIGHT, BW_NORM_OUT, BW_NORM_OPERANDS };

#define BW_NORM_EPSILON 1e-5f
