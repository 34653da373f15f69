// What is left of a product of INT8 that a library leaves as whole sums: D = sums x scales. A thread takes eight
// columns of a row.
#include "cuda/kernels/gemm/eight/types.cuh"
#include "cuda/kernels/gemm/gemm.h"

namespace {

constexpr int threads = 256, columns_each = 8;

__global__ void __launch_bounds__(threads)
    gemm_scale_kernel(const int *sums, bw_gemm_scales scales, __half *d, int64_t m, int64_t n) {
    const int64_t at = ((int64_t)blockIdx.x * threads + threadIdx.x) * columns_each;
    if (at >= m * n) return;
    const int64_t row = at / n, column = at - row * n;
    const int4 whole[2] = {__ldcs((const int4 *)(sums + at)), __ldcs((const int4 *)(sums + at) + 1)};
    const float4 of_column[2] = {__ldg((const float4 *)&scales.b[column]),
                                 __ldg((const float4 *)&scales.b[column + 4])};
    const float of_row = __ldg(&scales.a[row]);
    float value[columns_each];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        value[4 * i] = (float)whole[i].x * (of_row * of_column[i].x);
        value[4 * i + 1] = (float)whole[i].y * (of_row * of_column[i].y);
        value[4 * i + 2] = (float)whole[i].z * (of_row * of_column[i].z);
        value[4 * i + 3] = (float)whole[i].w * (of_row * of_column[i].w);
    }
    bw_store_once((uint4 *)(d + at), bw_pack(value, __half()));
}

}  // namespace

bw_status bw_gemm_scale_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                               bw_cuda_launch_spec *out) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N];
    bw_cuda_kernel *chosen =
        bw_choose(out, gemm_scale_kernel, dim3((unsigned)bw_ceil_div(m * n, threads * columns_each)), dim3(threads), 0,
                  bw_from_scratch(0), bw_gemm_scales_of(dims, precision), bw_from_operand(BW_GEMM_D), m, n);
    bw_gemm_place_scales(chosen, 1, precision);
    return BW_OK;
}
