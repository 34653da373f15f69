// moe_gemm as its formula says, for every precision and shape: a warp an element of D, weights read one by one. Which
// expert a row of D belongs to is found by halving.
#include "cuda/kernels/gemm/eight/types.cuh"
#include "cuda/kernels/gemm/experts/experts.h"
#include "cuda/kernels/gemm/narrow/operands.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

namespace {

constexpr int block_warps = 8;

struct naive_shape {
    int64_t elements, n, k;
    int experts;
};

// Weights of the same type as activations, without their scales.
template <typename T>
struct plain_weights {
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, int64_t at, int64_t k) {
        return bw_to_float(((const T *)w.bytes)[n * k + at]);
    }
};

template <typename TA, typename Weights>
__global__ void __launch_bounds__(block_warps * 32)
    moe_naive_kernel(const TA *a, bw_weights_stored b, bw_gemm_scales scales, const int *rows, const int *offsets,
                     typename bw_gemm_types<TA>::result *d, naive_shape shape) {
    constexpr bool scaled = bw_gemm_types<TA>::scaled;
    const int lane = (int)threadIdx.x % 32;
    const int64_t at = (int64_t)blockIdx.x * block_warps + threadIdx.x / 32;
    if (at >= shape.elements) return;
    const int row = (int)(at / shape.n);
    int expert = 0, end = shape.experts;  // the last one that begins at this row or before it
    while (end - expert > 1) {
        const int middle = (expert + end) / 2;
        (offsets[middle] <= row ? expert : end) = middle;
    }
    const int64_t token = rows[row], of_b = expert * shape.n + at % shape.n;
    const TA *from = a + token * shape.k;
    float sum = 0.0f;
    for (int64_t i = lane; i < shape.k; i += 32) {
        float weight = Weights::element(b, of_b, i, shape.k);
        if (scaled && scales.groups) {
            const int group = (int)(i / bw_scaled_block);
            weight *= bw_gemm_scale_of_row(scales, token, group) * bw_gemm_scale_of_column(scales, of_b, group);
        }
        sum = fmaf(bw_to_float(from[i]), weight, sum);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
    if (scaled) sum *= bw_gemm_scale_of_row(scales, token) * bw_gemm_scale_of_column(scales, of_b);
    if (lane == 0) bw_from_float(sum, &d[at]);
}

template <typename TA, typename Weights>
bw_status choose(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const int64_t elements = value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K] * value[BW_MOE_N];
    const naive_shape shape = {elements, value[BW_MOE_N], value[BW_MOE_K], (int)value[BW_MOE_EXPERTS]};
    bw_cuda_kernel *chosen = bw_choose(
        out, moe_naive_kernel<TA, Weights>, dim3((unsigned)bw_ceil_div(elements, block_warps)), dim3(block_warps * 32),
        0, bw_from_operand(BW_GEMM_A), bw_weights_stored{}, bw_gemm_scales_of(value[BW_MOE_K], precision),
        bw_from_operand(BW_MOE_ROWS), bw_from_operand(BW_MOE_OFFSETS), bw_from_operand(BW_GEMM_D), shape);
    place_weights(chosen, 1, precision->weight_scales);
    bw_gemm_place_scales(chosen, 2, precision);
    return BW_OK;
}

}  // namespace

const char *bw_moe_naive_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    const bw_checked_int elements = bw_mul3(value[BW_MOE_TOKENS], value[BW_MOE_TOP_K], value[BW_MOE_N]);
    return elements.overflow || !bw_cuda_grid_fits(bw_ceil_div(elements.value, block_warps))
               ? "more elements of D than 2^31 - 1 blocks of 8 warps"
               : nullptr;
}

bw_status bw_moe_naive_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                              bw_cuda_launch_spec *out) {
    if (precision->activation == precision->weight) {
        return bw_gemm_by_type(precision->weight, [&](auto tag) {
            using T = typename decltype(tag)::type;
            return choose<T, plain_weights<T>>(dims, precision, out);
        });
    }
    return by_weights(precision, [&](auto tag) {
        using Weights = typename decltype(tag)::type;
        return choose<typename Weights::activation, Weights>(dims, precision, out);
    });
}
