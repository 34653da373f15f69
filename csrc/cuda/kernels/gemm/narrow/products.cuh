// Products of 16 rows of weights with 8 rows of activations on tensor cores (m16n8k16), a group of 32 weights at a
// time: what kernels for narrow weights share.
#pragma once

#include "base/types/precision.h"
#include "cuda/kernels/gemm/narrow/weights.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

namespace {

// A lane's 8 activations of a group as 4 pairs, in the order in which weights come.
template <bw_order order>
BW_DEVICE uint4 order_activations(uint4 pairs) {
    if constexpr (order == BW_ORDER_SPLIT || order == BW_ORDER_RUN) return pairs;
    constexpr bool run = order == BW_ORDER_RUN_NIBBLES;
    const uint4 in = run ? make_uint4(pairs.x, pairs.z, pairs.y, pairs.w) : pairs;
    const uint32_t low[2] = {__byte_perm(in.x, in.y, 0x5410), __byte_perm(in.z, in.w, 0x5410)};
    const uint32_t high[2] = {__byte_perm(in.x, in.y, 0x7632), __byte_perm(in.z, in.w, 0x7632)};
    return run ? make_uint4(low[0], low[1], high[0], high[1]) : make_uint4(low[0], high[0], low[1], high[1]);
}

// Of one of the warp's tiles of 16 rows of B: a lane's are of rows r and r + 8 of it and of rows 2 c, 2 c + 1 of A.
struct fused_sums {
    float total[4], part[2][4];   // of parts two: those of `ratio` have one of their own, and none waits for the other
    float scaled[2][4], mins[4];  // where there are mins: of the tile's groups
};

// Adds a group of 32 weights, unpacked into `one` and `two`, to `part`, and at the end of what shares a factor that to
// `total`.
template <typename TA, typename Weights, bool single, int group>
BW_DEVICE void add_group(const uint4 &act, const float (&ones)[4], const uint32_t (&one)[4], const uint32_t (&two)[4],
                         typename Weights::row &first, typename Weights::row &second, fused_sums &sums) {
    constexpr int step = single ? 2 : 1, shared = Weights::per_factor;
    if constexpr (Weights::has_mins) {
        float part[4] = {};
        bw_multiply(part, one, act.x, act.y, TA());
        bw_multiply(part, two, act.z, act.w, TA());
        const float factor[2] = {first.template factor<group>(), second.template factor<group>()};
        const float min_factor[2] = {first.template min_factor<group>(), second.template min_factor<group>()};
#pragma unroll
        for (int i = 0; i < 4; i += step) {
            sums.scaled[group % 2][i] = fmaf(part[i], factor[i / 2], group < 2 ? 0.0f : sums.scaled[group % 2][i]);
            sums.mins[i] = fmaf(ones[i], min_factor[i / 2], group < 1 ? 0.0f : sums.mins[i]);
        }
        if constexpr (group + 1 == bw_tile_groups) {
#pragma unroll
            for (int i = 0; i < 4; i += step) {
                const float2 both = __half22float2(i < 2 ? first.both : second.both);
                const float scaled = fmaf(sums.scaled[1][i], Weights::ratio, sums.scaled[0][i]);
                sums.total[i] = fmaf(-sums.mins[i], both.y, fmaf(scaled, both.x, sums.total[i]));
            }
        }
    } else {
        constexpr bool begins = shared != 0 && group % (shared + (shared == 0)) == 0;
        constexpr int other = shared != 1 || Weights::has_offset;
        if constexpr (begins) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums.part[0][i] = sums.part[1][i] = 0.0f;
        }
        bw_multiply(sums.part[0], one, act.x, act.y, TA());
        bw_multiply(sums.part[other], two, act.z, act.w, TA());
        if constexpr (Weights::has_offset) {
            const uint32_t of_first = first.template zero<group>(), of_second = second.template zero<group>();
            constexpr uint32_t minus = 0x80008000u;
            const uint32_t less[2] = {of_first | minus, of_second | minus};
            const uint32_t upper[2] = {of_first << 4 | minus, of_second << 4 | minus};
            bw_multiply(sums.part[0], {less[0], less[1], less[0], less[1]}, act.x, act.y, TA());
            bw_multiply(sums.part[1], {upper[0], upper[1], upper[0], upper[1]}, act.z, act.w, TA());
        }
        if constexpr (shared != 0 && (group + 1) % (shared + (shared == 0)) == 0) {
            const float factor[2] = {first.template factor<group>(), second.template factor<group>()};
#pragma unroll
            for (int i = 0; i < 4; i += step) {
                const float part = other ? fmaf(sums.part[1][i], Weights::ratio, sums.part[0][i]) : sums.part[0][i];
                sums.total[i] = fmaf(part, factor[i / 2], sums.total[i]);
            }
        }
    }
}

// The addresses of B and of what belongs to it, in argument `argument`.
void place_weights(bw_cuda_kernel *kernel, int argument, const bw_scaling *scales) {
    bw_choose_place(kernel, argument, offsetof(bw_weights_stored, bytes), bw_from_operand(BW_GEMM_B));
    bw_choose_place(kernel, argument, offsetof(bw_weights_stored, scale),
                    bw_from_operand_if(scales->type != BW_NONE, BW_GEMM_B_SCALE));
    bw_choose_place(kernel, argument, offsetof(bw_weights_stored, zero),
                    bw_from_operand_if(scales->zero != BW_NONE, BW_GEMM_B_ZERO));
    bw_choose_place(kernel, argument, offsetof(bw_weights_stored, whole_scale),
                    bw_from_operand_if(scales->whole != BW_NONE, BW_GEMM_B_WHOLE_SCALE));
}

// by_weights(precision, [&](auto tag) { using Weights = typename decltype(tag)::type; ... })
template <typename Body>
bw_status by_weights(const bw_precision *precision, Body body) {
    switch (precision->id) {
        case BW_PRECISION_INT8_W8A16: return body(bw_type<bw_weights_int8>{});
        case BW_PRECISION_FP8_W8A16: return body(bw_type<bw_weights_e4m3>{});
        case BW_PRECISION_FP8_E5M2: return body(bw_type<bw_weights_e5m2>{});
        case BW_PRECISION_Q8_0: return body(bw_type<bw_weights_q8_0>{});
        case BW_PRECISION_Q4_0: return body(bw_type<bw_weights_q4_0>{});
        case BW_PRECISION_Q4_K: return body(bw_type<bw_weights_q4_k>{});
        case BW_PRECISION_INT4_G32: return body(bw_type<bw_weights_int4<32>>{});
        case BW_PRECISION_INT4_G64: return body(bw_type<bw_weights_int4<64>>{});
        case BW_PRECISION_INT4_G128: return body(bw_type<bw_weights_int4<128>>{});
        case BW_PRECISION_MXFP4: return body(bw_type<bw_weights_mxfp4>{});
        case BW_PRECISION_NVFP4: return body(bw_type<bw_weights_nvfp4>{});
        default: break;
    }
    return bw_fail(BW_CODE_UNSUPPORTED, "no CUDA kernel for weights of %s", precision->name);
}

}  // namespace
