/* Results on their way to activations of 8 bits.
 *   silu_mul_quantize  gate, up(T, d) -> out(T, d), out_scale(T)
 * y = gate / (1 + e^-gate) * up is worked out in FP32, a scale is a token's largest |y| / the type's largest number
 * (bw_dtype_largest), and an element y / scale, to the nearest number of the type; a token of zeros has a scale of 0
 * and zeros. Inputs are results. */
#pragma once

#include "ops/op.h"

#define BW_QUANTIZE_OPERATIONS(X) X(silu_mul_quantize, KERNELS, KERNELS)

enum { BW_QUANTIZE_TOKENS, BW_QUANTIZE_HIDDEN };
enum { BW_QUANTIZE_GATE, BW_QUANTIZE_UP, BW_QUANTIZE_OUT, BW_QUANTIZE_OUT_SCALE, BW_QUANTIZE_OPERANDS };

struct bw_device_facts;
/* As bw_variant has them, of two kernels with y as a result between them. */
BW_C int64_t bw_silu_unfused_scratch(const bw_dims *dims, const bw_precision *precision,
                                     const struct bw_device_facts *facts);
BW_C bw_status bw_silu_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                    const struct bw_device_facts *facts, bw_cost *cost);
