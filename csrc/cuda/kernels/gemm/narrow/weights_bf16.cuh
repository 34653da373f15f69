// Formats of narrow weights for activations in BF16: those of weights.cuh, unpacked to pairs of BF16 that hold them
// exactly. Small numbers are no use below BF16's normal ones, as FP16's are: they are FP32's, where sums would lose
// bits.
#pragma once

#include "cuda/kernels/gemm/narrow/weights.cuh"

// Two numbers times two others, exactly where the products are BF16.
BW_DEVICE uint32_t bw_bf16_product(uint32_t a, uint32_t b) {
    uint32_t result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(0x80008000u));
    return result;
}

// E4M3's bits, moved to where BF16 has them, are 2^-120 of the number.
struct bw_weights_e4m3_bf16 : bw_weights_e4m3 {
    using activation = __nv_bfloat16;
    static constexpr float unit = 1.0f;
    template <int count>
    struct row : bw_weights_e4m3::row<count> {
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) {
            constexpr uint32_t signs = 0x80008000u, others = 0x07f007f0u, scale = 0x7b807b80u;  // 2^120
            const uint32_t word[2] = {bw_shared_word<group * 32>(this->from),
                                      bw_shared_word<group * 32 + 16>(this->from)};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                out[2 * i] = bw_bf16_product((word[i] << 8 & signs) | (word[i] << 4 & others), scale);
                out[2 * i + 1] = bw_bf16_product((word[i] & signs) | (word[i] >> 4 & others), scale);
            }
            this->nan |= bw_find_e4m3_nan(word[0]) | bw_find_e4m3_nan(word[1]);
        }
    };
};

// Nibbles q in the first bits of the mantissa of 16: 16 + q. Zero points get the 16 too, and both go off the sums.
template <int in_group>
struct bw_weights_int4_bf16 : bw_weights_int4<in_group> {
    using activation = __nv_bfloat16;
    static constexpr float unit = 1.0f, ratio = 1.0f;
    static constexpr uint32_t one = 0x3f803f80u;
    template <int count>
    struct row : bw_weights_int4<in_group>::template row<count> {
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            constexpr uint32_t nibbles = 0x00780078u, sixteen = 0x41804180u;
            const uint32_t word = bw_shared_word<group * 16>(this->from);
            out[0] = (word << 3 & nibbles) | sixteen;
            out[1] = (word >> 5 & nibbles) | sixteen;
            out[2] = (word >> 1 & nibbles) | sixteen;
            out[3] = (word >> 9 & nibbles) | sixteen;
        }
        __device__ __forceinline__ float zero(int i) const {
            return __uint_as_float((this->zeros >> i * 4 & 15) << 19 | 0x41800000u);
        }
    };
};

// E2M1's bits, moved to where BF16 has them, are 2^-126 of the number.
struct bw_weights_mxfp4_bf16 : bw_weights_mxfp4 {
    using activation = __nv_bfloat16;
    static constexpr float unit = 1.0f;
    template <int count>
    struct row : bw_weights_mxfp4::row<count> {
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            constexpr uint32_t signs = 0x80008000u, others = 0x01c001c0u, scale = 0x7e807e80u;  // 2^126
            const uint32_t word = bw_shared_word<group * 16>(this->from);
            out[0] = bw_bf16_product((word << 12 & signs) | (word << 6 & others), scale);
            out[1] = bw_bf16_product((word << 4 & signs) | (word >> 2 & others), scale);
            out[2] = bw_bf16_product((word << 8 & signs) | (word << 2 & others), scale);
            out[3] = bw_bf16_product((word & signs) | (word >> 6 & others), scale);
        }
    };
};
