// What follows a library's product in a linear layer, a kernel each: relu(D + bias), dropout(D). A thread has several
// groups of eight elements, each a call of the random numbers; all are loaded before the first is stored.
#include "cuda/kernels/common/divide.cuh"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/gemm/linear/end.cuh"
#include "cuda/kernels/gemm/linear/linear.h"

namespace {

constexpr int threads = 64, turns = 4, group = BW_DROPOUT_CALL;
constexpr int64_t block_elems = threads * turns * group;

template <typename T>
constexpr int chunk_elems = 16 / (int)sizeof(T);

template <bool drops, typename T, int chunks, int elems>
BW_DEVICE void finish(const bw_linear_end<T> &end, int64_t at, int64_t column, int64_t n, int count,
                      float (&value)[chunks][elems]) {
    const bw_dropout_numbers numbers = drops ? bw_dropout_draw(end.seed, at / group) : bw_dropout_numbers();
#pragma unroll
    for (int e = 0; e < group; e++) {
        float &one = value[e / elems][e % elems];
        if (drops) {
            one *= bw_dropout_stays(&numbers, e, end.threshold) ? end.factor : 0.0f;
        } else if (e < count) {
            one = bw_relu(one + bw_to_float(end.bias[column]));
            if (++column == n) column = 0;
        }
    }
}

template <typename T, bool drops>
__global__ void __launch_bounds__(threads)
    linear_step_kernel(T *d, bw_linear_end<T> end, bw_divider columns, int64_t elements) {
    constexpr int elems = chunk_elems<T>, chunks = group / elems;
    const int64_t first = blockIdx.x * block_elems + (int)threadIdx.x * group;
    uint4 bits[turns][chunks];
#pragma unroll
    for (int t = 0; t < turns; t++) {
        const int64_t at = first + t * threads * group;
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            if (at + group <= elements) bits[t][i] = bw_load_once((const uint4 *)(d + at) + i);
        }
    }
    __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
    for (int t = 0; t < turns; t++) {
        const int64_t at = first + t * threads * group;
        const int count = (int)min((int64_t)group, elements - at);
        if (count <= 0) return;
        const int64_t column = drops ? 0 : at - columns.quotient(at) * columns.divisor;
        float value[chunks][elems];
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            if (count < group) bits[t][i] = bw_gather_chunk(d + at + i * elems, count - i * elems);
            bw_unpack(bits[t][i], value[i], T());
        }
        finish<drops>(end, at, column, columns.divisor, count, value);
#pragma unroll
        for (int e = 0; e < group; e++) {
            if (count < group && e < count) bw_from_float(value[e / elems][e % elems], &d[at + e]);
        }
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            if (count == group) bw_store_once((uint4 *)(d + at) + i, bw_pack(value[i], T()));
        }
    }
}

template <bool drops, typename T>
void choose_step(const bw_dims *dims, bw_cuda_launch_spec *out, T) {
    const int64_t n = dims->value[BW_LINEAR_N], elements = dims->value[BW_LINEAR_M] * n;
    bw_choose(out, linear_step_kernel<T, drops>, dim3((unsigned)bw_ceil_div(elements, block_elems)), dim3(threads), 0,
              bw_from_operand(BW_GEMM_D), bw_linear_end_of<T>(dims), bw_divider_make(n), elements);
    bw_linear_place_bias(out, 1);
}

}  // namespace

const char *bw_linear_steps_refuse(const bw_dims *dims) {
    const int64_t elements = dims->value[BW_LINEAR_M] * dims->value[BW_LINEAR_N];  // below 2^62
    return bw_cuda_grid_fits(bw_ceil_div(elements, block_elems)) ? nullptr : "more elements than 2^31 - 1 blocks take";
}

bw_status bw_linear_steps_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        choose_step<false>(dims, out, T());
        choose_step<true>(dims, out, T());
        return BW_OK;
    });
}
