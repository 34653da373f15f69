// Moves that swap two axes, without shared memory: permute, whose runs of head_dim elements stay together, in chunks of
// 16 bytes; and the plain one of both operations, an element a thread.
#include "cuda/kernels/common/divide.cuh"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/layout/layout.h"
#include "cuda/launch/choose.cuh"
#include "ops/families/memory/layout.h"

namespace {

constexpr int NAIVE_THREADS = 256, THREADS = 64, UNROLL = 4;

// From a unit's place in the input to its place in the output.
struct swap_map {
    bw_divider rows, columns, run;  // units
    __device__ int64_t operator()(int64_t i) const {
        const int64_t runs = run.quotient(i), lines = columns.quotient(runs), batch = rows.quotient(lines);
        const int64_t column = runs - lines * columns.divisor, row = lines - batch * rows.divisor;
        return ((batch * columns.divisor + column) * rows.divisor + row) * run.divisor + (i - runs * run.divisor);
    }
};

template <typename T>
__global__ void __launch_bounds__(NAIVE_THREADS) layout_naive_kernel(const T *in, T *out, swap_map map, int64_t elems) {
    const int64_t i = (int64_t)blockIdx.x * NAIVE_THREADS + threadIdx.x;
    if (i < elems) out[map(i)] = in[i];
}

template <typename Unit>
__global__ void __launch_bounds__(THREADS) permute_kernel(const Unit *in, Unit *out, swap_map map, int64_t units) {
    const int64_t first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
    Unit unit[UNROLL] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (first + u * THREADS < units) unit[u] = bw_load_once(in + first + u * THREADS);
    }
    __syncwarp();  // every load is issued before
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        if (first + u * THREADS < units) bw_store_once(out + map(first + u * THREADS), unit[u]);
    }
}

swap_map map_of(const bw_swap &s, int64_t run_units) {
    return {bw_divider_make(s.rows), bw_divider_make(s.columns), bw_divider_make(run_units)};
}

template <typename T>
bw_status choose_naive(const bw_swap &s, bw_cuda_launch_spec *out) {
    const int64_t elems = s.batch * s.rows * s.columns * s.run;
    bw_choose(out, layout_naive_kernel<T>, dim3((unsigned)bw_ceil_div(elems, NAIVE_THREADS)), dim3(NAIVE_THREADS), 0,
              bw_from_operand(BW_LAYOUT_IN), bw_from_operand(BW_LAYOUT_OUT), map_of(s, s.run), elems);
    return BW_OK;
}

template <typename Unit>
bw_status choose_permute(const bw_swap &s, int64_t run_bytes, bw_cuda_launch_spec *out) {
    const int64_t run = run_bytes / (int64_t)sizeof(Unit), units = s.batch * s.rows * s.columns * run;
    bw_choose(out, permute_kernel<Unit>, dim3((unsigned)bw_ceil_div(units, THREADS * UNROLL)), dim3(THREADS), 0,
              bw_from_operand(BW_LAYOUT_IN), bw_from_operand(BW_LAYOUT_OUT), map_of(s, run), units);
    return BW_OK;
}

int64_t elem_bytes(const bw_precision *precision) {
    return bw_dtype_get(precision->result)->block_bytes;
}

}  // namespace

bw_status bw_layout_naive_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    const bw_swap s = bw_swap_of(dims);
    return elem_bytes(precision) == 4 ? choose_naive<uint32_t>(s, out) : choose_naive<uint16_t>(s, out);
}

// By the largest unit that a run is a multiple of.
bw_status bw_permute_vector_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                   bw_cuda_launch_spec *out) {
    const bw_swap s = bw_swap_of(dims);
    const int64_t bytes = s.run * elem_bytes(precision);
    if (bytes % 16 == 0) return choose_permute<uint4>(s, bytes, out);
    if (bytes % 8 == 0) return choose_permute<uint2>(s, bytes, out);
    return bytes % 4 == 0 ? choose_permute<uint32_t>(s, bytes, out) : choose_permute<uint16_t>(s, bytes, out);
}

const char *bw_layout_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const bw_swap s = bw_swap_of(dims);
    const bw_checked_int elems = bw_mul4(s.batch, s.rows, s.columns, s.run);
    const bool fits = !elems.overflow && bw_cuda_grid_fits(bw_ceil_div(elems.value, NAIVE_THREADS));
    return fits ? nullptr : "more elements than the blocks of a grid move (2^31 - 1 blocks of 256)";
}
