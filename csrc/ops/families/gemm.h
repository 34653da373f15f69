/* gemm: A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C], row-major; weights N x K as models store them. */
#pragma once

#define BW_GEMM_OPERATIONS(X) X(gemm, KERNELS, KERNELS)

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
