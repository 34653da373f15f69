// The tile of element-wise kernels. A block has one tile of 4 KiB of each array; a thread of 64 has several 16-byte
// accesses in flight, which caches do not keep. On an H200 (64 KiB to 4 GiB) resident blocks that walk over the memory
// were up to 8 % slower and nowhere faster. Larger blocks cost a copy 3 %, smaller tiles a write half of its bandwidth,
// the default cache policy 10 % at 1 MiB.
//
// An Op says what to do with an element and with a vector of 16 bytes:
//   T                              the elements' type
//   constants begin()              what a thread works out once
//   inputs load(vector)            its loads; none waits for another
//   store(vector, constants, inputs)
//   element(index)                 one of those behind the last whole vector
// Its first members are its operands' addresses.
#pragma once

#include <initializer_list>

#include "cuda/kernels/common/sm80.cuh"
#include "cuda/launch/choose.cuh"

constexpr int bw_tile_bytes = 4096;

template <typename Op, int threads = 64>
__global__ void __launch_bounds__(threads, 1024 / threads) bw_tile_kernel(Op op, int64_t elements) {
    constexpr int unroll = bw_tile_bytes / 16 / threads;
    constexpr int elems = 16 / sizeof(typename Op::T);
    const int64_t vectors = elements / elems;
    const typename Op::constants constants = op.begin();
    const int64_t i = (int64_t)blockIdx.x * (threads * unroll) + threadIdx.x;
    typename Op::inputs inputs[unroll] = {};
#pragma unroll
    for (int u = 0; u < unroll; u++) {
        if (i + u * threads < vectors) inputs[u] = op.load(i + u * threads);
    }
    __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
    for (int u = 0; u < unroll; u++) {
        if (i + u * threads < vectors) op.store(i + u * threads, constants, inputs[u]);
    }
    const int64_t last = vectors * elems + threadIdx.x;
    if (blockIdx.x == 0 && last < elements) op.element(last);
}

// One launch of it; `addresses` in the order of the Op's members.
template <int threads = 64, typename Op>
static bw_status bw_choose_tiles(int64_t elements, bw_cuda_launch_spec *out, Op op,
                                 std::initializer_list<bw_address> addresses) {
    const int64_t tiles = bw_ceil_div(elements, bw_tile_bytes / (int)sizeof(typename Op::T));
    bw_cuda_kernel *kernel =
        bw_choose(out, bw_tile_kernel<Op, threads>, dim3((unsigned)tiles), dim3(threads), 0, op, elements);
    assert(sizeof op >= addresses.size() * sizeof(void *));
    size_t offset = 0;
    for (const bw_address &address : addresses) {
        bw_choose_place(kernel, 0, offset, address);
        offset += sizeof(void *);
    }
    return BW_OK;
}

// Of an Op that does little with one array in and one out: from 256 MiB on a vector a thread, 1.5 % faster on an H200.
template <typename Op>
static bw_status bw_choose_copy_tiles(int64_t elements, bw_cuda_launch_spec *out, Op op, bw_address from,
                                      bw_address to) {
    const bool large = elements >= ((int64_t)256 << 20) / (int)sizeof(typename Op::T);
    return large ? bw_choose_tiles<256>(elements, out, op, {from, to}) : bw_choose_tiles(elements, out, op, {from, to});
}

// Why a grid has no block for each `block_bytes` of an array; NULL where it has.
static inline const char *bw_tiles_refuse(int64_t elements, const bw_precision *precision, int64_t block_bytes) {
    const bw_checked_int bytes = bw_mul(bw_num(elements), bw_num(bw_dtype_get(precision->activation)->block_bytes));
    const bool fits = !bytes.overflow && bw_cuda_grid_fits(bw_ceil_div(bytes.value, block_bytes));
    return fits ? nullptr : "larger than what the blocks of a grid walk over (2^31 - 1 blocks)";
}
