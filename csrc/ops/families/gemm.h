/* gemm: A(M, K), B(N, K) [, C(M, N)] -> D(M, N) = A B^T [+ C], row-major; weights N x K as models store them.
 * weight_dequantize: B(N, K) in a narrow type -> D(N, K), its values as results are stored.
 * weight_repack: B(N, K) in Q4_0 -> D, the same bytes in tiles, as the product's variant `repacked` reads them. */
#pragma once

/* clang-format off */
#define BW_GEMM_OPERATIONS(X) \
    X(gemm, KERNELS, KERNELS) \
    X(weight_dequantize, KERNELS, KERNELS) \
    X(weight_repack, KERNELS, KERNELS)
/* clang-format on */

enum { BW_GEMM_M, BW_GEMM_N, BW_GEMM_K, BW_GEMM_BETA };
enum { BW_WEIGHT_N, BW_WEIGHT_K }; /* of the other two, whose operands have gemm's numbers */
/* A is an activation, B a weight, C (there only when beta is 1) and D are results. Scales and zero points are there as
 * the precision has them (bw_scaling): A_SCALE and B_SCALE (M) and (N), one for each row, or (N, groups of K), B_ZERO
 * likewise, B_WHOLE_SCALE (1). */
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

/* Tiles of Q4_0: 16 rows of B by 4 blocks, fewer at the ends of B. Those of the same rows are neighbors: first words,
 * tile by tile, in each row by row and there word by word, so that 16 bytes are the same word of four blocks; then,
 * tile by tile and row by row, the scales. Word c of a block has its elements 8 c to 8 c + 7, in the order in which
 * masks of two halves of bytes find neighbors: from the lowest half byte on 0, 4, 2, 6, 1, 5, 3, 7. */
enum { BW_Q4_0_TILE_ROWS = 16, BW_Q4_0_TILE_BLOCKS = 4 };
