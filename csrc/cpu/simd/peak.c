/* The arithmetic roof: multiply-adds on registers alone, enough independent chains to keep every unit busy. */
#include "cpu/simd/simd.h"

enum { CHAINS = 12 };

float BW_CPU_NAME(multiply_adds)(int64_t rounds);
extern const int BW_CPU_NAME(flops_per_round);
const int BW_CPU_NAME(flops_per_round) = 2 * CHAINS * BW_SIMD_FLOATS;

/* Stays finite: x -> 0.5 x + 0.25 settles at 0.5. */
float BW_CPU_NAME(multiply_adds)(int64_t rounds) {
    const bw_vf half = bw_vf_set(0.5f), quarter = bw_vf_set(0.25f);
    bw_vf chains[CHAINS];
    for (int i = 0; i < CHAINS; i++) chains[i] = bw_vf_set((float)i);
    for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            chains[i] = bw_vf_fma(chains[i], half, quarter);
        }
    }
    float sum = 0.0f;
    for (int i = 0; i < CHAINS; i++) sum += chains[i][0];
    return sum;
}
