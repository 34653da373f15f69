// Products of a warpgroup (common/sm90.cuh) of elements of eight bits: a step of K is 32 elements, 32 bytes.
// Those of E4M3 add up with 13 bits behind the largest summand's first, so that a long sum is made of short ones.
#pragma once

#include "cuda/kernels/common/sm90.cuh"
#include "cuda/kernels/gemm/eight/types.cuh"

BW_PRODUCT(64, 32, bw_e4m3, "k32.f32.e4m3.e4m3", "", 32, 33, 34)
BW_PRODUCT(128, 64, bw_e4m3, "k32.f32.e4m3.e4m3", "", 64, 65, 66)

#define BW_WHOLE_4(d, i) "+r"(d[i][0]), "+r"(d[i][1]), "+r"(d[i][2]), "+r"(d[i][3])
#define BW_WHOLE_16(d, i) BW_WHOLE_4(d, i), BW_WHOLE_4(d, i + 1), BW_WHOLE_4(d, i + 2), BW_WHOLE_4(d, i + 3)
#define BW_WHOLE_32(d, i) BW_WHOLE_16(d, i), BW_WHOLE_16(d, i + 4)
#define BW_WHOLE_64(d, i) BW_WHOLE_32(d, i), BW_WHOLE_32(d, i + 8)
#define BW_WHOLE_PRODUCT(columns, words, a_at, b_at, more_at)                                            \
    BW_DEVICE void bw_product(int(&d)[columns / 8][4], uint64_t a, uint64_t b, int more, int8_t) {       \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #more_at                                       \
                     ", 0;\n"                                                                            \
                     "wgmma.mma_async.sync.aligned.m64n" #columns "k32.s32.s8.s8 {" BW_REGISTERS_##words \
                     "}, %" #a_at ", %" #b_at ", p;\n}"                                                  \
                     : BW_WHOLE_##words(d, 0)                                                            \
                     : "l"(a), "l"(b), "r"(more));                                                       \
    }
BW_WHOLE_PRODUCT(64, 32, 32, 33, 34)
BW_WHOLE_PRODUCT(128, 64, 64, 65, 66)

template <int n, int m>
BW_DEVICE void bw_registers_hold(int (&registers)[n][m]) {
#pragma unroll
    for (int i = 0; i < n; i++) {
#pragma unroll
        for (int j = 0; j < m; j++) asm volatile("" : "+r"(registers[i][j])::"memory");
    }
}
