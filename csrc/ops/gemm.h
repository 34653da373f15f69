/* gemm: A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C], row-major; weights N x K as models store them. */
#ifndef BW_OPS_GEMM_H
#define BW_OPS_GEMM_H

enum { BW_GEMM_M, BW_GEMM_N, BW_GEMM_K, BW_GEMM_BETA };
/* C is there only when beta is 1. C and D have the precision's result type, A and B the precision itself. */
enum { BW_GEMM_A, BW_GEMM_B, BW_GEMM_D, BW_GEMM_C };

#endif
