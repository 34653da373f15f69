/* Products with weights, row-major; weights N x K as models store them.
 *   gemm      A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C]
 *   moe_gemm  A(T, K), B(E, N, K), rows(T top_k), offsets(E + 1) -> D(T top_k, N)
 *     rows of D are sorted by expert: those of expert e are offsets[e] to offsets[e + 1] - 1, row r being that of token
 *     rows[r]: D[r] = A[rows[r]] B[e]^T. Each token takes top_k different experts. */
#pragma once

#define BW_GEMM_OPERATIONS(X) X(gemm, KERNELS, KERNELS) X(moe_gemm, KERNELS, KERNELS)

enum { BW_GEMM_M, BW_GEMM_N, BW_GEMM_K, BW_GEMM_BETA };
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
