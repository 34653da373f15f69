// Formats of narrow weights for activations in BF16: those of weights.cuh, unpacked to pairs of BF16 that hold them
// exactly. FP32 sums of BF16's subnormals would lose bits, unlike those of FP16's.
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
    template <int count, typename From = const unsigned char *>
    struct row : bw_weights_e4m3::row<count, From> {
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

// Nibbles in the last bits of a BF16 are 2^-133 of their value, the next ones 2^-129: a product makes them what FP16
// has.
template <int in_group>
struct bw_weights_int4_bf16 : bw_weights_int4<in_group> {
    using activation = __nv_bfloat16;
    static constexpr uint32_t one = 0x3f803f80u;
    template <int count, typename From = const unsigned char *>
    struct row : bw_weights_int4<in_group>::template row<count, From> {
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            bw_unpack_nibbles(bw_shared_word<group * 16>(this->from), out);
#pragma unroll
            for (int i = 0; i < 4; i++) out[i] = bw_bf16_product(out[i], 0x76007600u);  // 2^109
        }
    };
};

// E2M1's bits, moved to where BF16 has them, are 2^-126 of the number. One product moves both the sign and the others.
struct bw_weights_mxfp4_bf16 : bw_weights_mxfp4 {
    using activation = __nv_bfloat16;
    static constexpr float unit = 1.0f;
    template <int count, typename From = const unsigned char *>
    struct row : bw_weights_mxfp4::row<count, From> {
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            bw_unpack_nibbles(bw_shared_word<group * 16>(this->from), out);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t moved = out[i] * (i < 2 ? 1u << 12 | 1u << 6 : 1u << 8 | 1u << 2);
                out[i] = bw_bf16_product(moved & 0x81c081c0u, 0x7e807e80u);  // 2^126
            }
        }
    };
};
