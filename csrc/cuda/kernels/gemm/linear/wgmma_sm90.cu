// linear_relu_dropout through wgmma.cuh: gemm's tiles, whose sums become D's elements while they are in registers.
#include "cuda/kernels/gemm/linear/end.cuh"
#include "cuda/kernels/gemm/linear/linear.h"
#include "cuda/kernels/gemm/wgmma.cuh"

namespace {

// In place of C. Rows are a multiple of eight elements, so that eights of a fragment are calls of the random numbers:
// of four in a row, each lane of a quad makes one, and they exchange words.
template <typename T>
BW_DEVICE void add_tile(float (&sums)[4][4], const bw_linear_end<T> &end, const wgmma_shape &shape, int row,
                        int column0) {
    const int lane = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64_t first = (int64_t)(row + 8 * half) * shape.n + column0;
        bw_dropout_numbers numbers = bw_dropout_draw(end.seed, first / BW_DROPOUT_CALL + lane);
        bw_quad_transpose(numbers.word);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            const int column = min(column0 + 8 * n + 2 * lane, shape.n - 2);
            float &low = sums[n][2 * half], &high = sums[n][2 * half + 1];
            low = bw_relu(low + bw_to_float(end.bias[column]));
            high = bw_relu(high + bw_to_float(end.bias[column + 1]));
            low *= bw_dropout_stays(&numbers, 2 * n, end.threshold) ? end.factor : 0.0f;
            high *= bw_dropout_stays(&numbers, 2 * n + 1, end.threshold) ? end.factor : 0.0f;
        }
    }
}

}  // namespace

bw_status bw_linear_wgmma_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                 bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        choose_columns<T>(dims, precision, facts->units, bw_linear_end_of<T>(dims), out);
        return bw_linear_place_bias(out, 3);
    });
}
