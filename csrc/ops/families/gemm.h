/* gemm: A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C], row-major; weights N x K as models store them. */
#pragma once

#define BW_GEMM_OPERATIONS(X) X(gemm, KERNELS, KERNELS)

enum { BW_GEMM_M, BW_GEMM_N, BW_GEMM_K, BW_GEMM_BETA };
/* A is an activation, B a weight, C (there only when beta is 1) and D are results. A_SCALE(M) and B_SCALE(N), one for
 * each row, are there for precisions with scales beside the values. */
enum { BW_GEMM_A, BW_GEMM_B, BW_GEMM_D, BW_GEMM_C, BW_GEMM_A_SCALE, BW_GEMM_B_SCALE, BW_GEMM_OPERANDS };
