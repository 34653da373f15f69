/* Products with weights, row-major; weights N x K as models store them; and weights alone.
 *   gemm      A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C]
 *   moe_gemm  A(T, K), B(E, N, K), rows(T top_k), offsets(E + 1) -> D(T top_k, N)
 *     rows of D are sorted by expert: those of expert e are offsets[e] to offsets[e + 1] - 1, row r being that of token
 *     rows[r]: D[r] = A[rows[r]] B[e]^T. Each token takes top_k different experts.
 *   linear_relu_dropout  A(M, K), B(N, K), bias(N) -> D(M, N) = dropout(relu(A B^T + bias))
 *     the mask is that of base/types/dropout.h.
 *   weight_dequantize  B(N, K) in a narrow type -> D(N, K), its values as results are stored
 *   weight_repack      B(N, K) in Q4_0 -> D, the same bytes in tiles, as gemm's variant `repacked` reads them */
#pragma once

#include "ops/op.h"

/* clang-format off */
#define BW_GEMM_OPERATIONS(X) \
    X(gemm, KERNELS, KERNELS) \
    X(moe_gemm, KERNELS, KERNELS) \
    X(linear_relu_dropout, KERNELS, KERNELS) \
    X(weight_dequantize, KERNELS, KERNELS) \
    X(weight_repack, KERNELS, KERNELS)
/* clang-format on */

enum { BW_GEMM_M, BW_GEMM_N, BW_GEMM_K, BW_GEMM_BETA };
enum { BW_WEIGHT_N, BW_WEIGHT_K }; /* of weights alone, whose operands have gemm's numbers */
/* The first three are gemm's, and so are the operands: the bias is where gemm has C. */
enum { BW_LINEAR_M, BW_LINEAR_N, BW_LINEAR_K, BW_LINEAR_DROPOUT_PERCENT, BW_LINEAR_MASK_SEED };
/* A is an activation, B a weight, C (there only when beta is 1) and D are results. Scales and zero points are there as
 * the precision has them (bw_scaling): A_SCALE and B_SCALE (M) and (N), one for each row, (1) of a whole matrix, or (M
 * or N, groups of K), where squares have one each (groups of N, groups of K); B_ZERO likewise; B_WHOLE_SCALE (1). */
enum {
    BW_GEMM_A,
    BW_GEMM_B,
    BW_GEMM_D,
    BW_GEMM_C,
    BW_GEMM_A_SCALE,
    BW_GEMM_B_SCALE,
    BW_GEMM_B_ZERO,
    BW_GEMM_B_WHOLE_SCALE,
    BW_GEMM_OPERANDS
};
enum { BW_LINEAR_BIAS = BW_GEMM_C };

struct bw_device_facts;
/* As bw_variant has it, of a linear_relu_dropout in three steps. */
BW_C bw_status bw_linear_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                      const struct bw_device_facts *facts, bw_cost *cost);

enum {
    BW_MOE_TOKENS,
    BW_MOE_EXPERTS,
    BW_MOE_TOP_K,
    BW_MOE_ACTIVE, /* experts that have tokens */
    BW_MOE_N,
    BW_MOE_K
};
/* gemm's operands, C never there, and the routing: int32. B with its scales is a matrix of E N rows. */
enum { BW_MOE_ROWS = BW_GEMM_OPERANDS, BW_MOE_OFFSETS, BW_MOE_OPERANDS };

/* Tiles of Q4_0: 16 rows of B by 4 blocks, fewer at the ends of B. Those of the same rows are neighbors: first words,
 * tile by tile, in each row by row and there word by word, so that 16 bytes are the same word of four blocks; then,
 * tile by tile and row by row, the scales. Word c of a block has its elements 8 c to 8 c + 7, in the order in which
 * masks of two halves of bytes find neighbors: from the lowest half byte on 0, 4, 2, 6, 1, 5, 3, 7. */
enum { BW_Q4_0_TILE_ROWS = 16, BW_Q4_0_TILE_BLOCKS = 4 };
