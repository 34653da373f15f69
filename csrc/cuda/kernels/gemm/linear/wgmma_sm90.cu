// linear_relu_dropout through wgmma.cuh: gemm's tiles, whose sums become D's elements while they are in registers.
#include "cuda/kernels/gemm/linear/end.cuh"
#include "cuda/kernels/gemm/linear/linear.h"
#include "cuda/kernels/gemm/wgmma.cuh"

namespace {

// A thread's part of a tile. Rows are a multiple of eight elements, so that eights of a fragment are calls of the
// random numbers: of four in a row, each lane of a quad makes one, and they exchange words. Tensor cores multiply
// meanwhile: at 4096^3 in FP16 an H200 took 4 % longer than for gemm, and 5 % where all of this came behind.
template <int columns, typename T>
struct linear_tile {
    static constexpr int draws = columns / 16;  // for 32 columns of one of two rows each
    const bw_linear_end<T> &end;
    int64_t first_call;
    int row_calls, drawn = 0;
    uint32_t stays[columns / 64] = {};  // a bit for each sum, eight a draw
    tile_scales<columns> bias;          // times the factor
    __device__ __forceinline__ linear_tile(const bw_linear_end<T> &end_) : end(end_) {
    }
    __device__ explicit operator bool() const {
        return true;
    }
    __device__ __forceinline__ void draw() {
        const int64_t call = first_call + drawn % 2 * 8 * row_calls + drawn / 2 * 4;
        bw_dropout_numbers numbers = bw_dropout_draw(end.seed, call);
        bw_quad_transpose(numbers.word);
        uint32_t bits = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) bits |= (uint32_t)bw_dropout_stays(&numbers, i, end.threshold) << i;
#pragma unroll
        for (int i = 0; i < columns / 64; i++) stays[i] |= i == drawn / 4 ? bits << drawn % 4 * 8 : 0;
        drawn++;
    }
};

template <int columns, typename T>
struct kept_of_tile<columns, bw_linear_end<T>> {
    using type = linear_tile<columns, T>;
};

template <int columns, typename T>
BW_DEVICE void begin_tile(linear_tile<columns, T> &own, const wgmma_shape &shape, int row, int column0) {
    own.row_calls = shape.n / BW_DROPOUT_CALL;
    own.first_call = (int64_t)row * own.row_calls + column0 / BW_DROPOUT_CALL + (int)threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < own.bias.parts; i++) {
        const int column = min(column0 + 64 * i + (int)threadIdx.x % 32 * 2, shape.n - 2);
        const float low = bw_to_float(own.end.bias[column]), high = bw_to_float(own.end.bias[column + 1]);
        own.bias.of_columns[i] = make_float2(low * own.end.factor, high * own.end.factor);
    }
}

template <int columns, typename T>
BW_DEVICE void work_ahead(linear_tile<columns, T> &own, bool all) {
    while (own.drawn < own.draws) {
        own.draw();
        if (!all) break;
    }
}

template <int columns, typename T>
BW_DEVICE void add_tile(float (&sums)[4][4], const linear_tile<columns, T> &own, const wgmma_shape &, int, int,
                        int first) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const float2 bias = own.bias.find(first + n);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int draw = first / 2 + i / 2, bit = draw % 4 * 8 + 2 * n + i % 2;
            const float value = bw_relu(fmaf(sums[n][i], own.end.factor, i % 2 ? bias.y : bias.x));
            sums[n][i] = own.stays[draw / 4] >> bit & 1 ? value : 0.0f;
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
