// What kernels for narrow weights share: the order of activations, B's addresses, the format of a precision.
#pragma once

#include "base/types/precision.h"
#include "cuda/kernels/gemm/narrow/weights_bf16.cuh"
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
        case BW_PRECISION_FP8_W8A16_BF16: return body(bw_type<bw_weights_e4m3_bf16>{});
        case BW_PRECISION_INT4_G128_BF16: return body(bw_type<bw_weights_int4_bf16<128>>{});
        case BW_PRECISION_MXFP4_BF16: return body(bw_type<bw_weights_mxfp4_bf16>{});
        default: break;
    }
    return bw_fail(BW_CODE_UNSUPPORTED, "no CUDA kernel for weights of %s", precision->name);
}

}  // namespace
