// silu_mul_quantize: a block has a token, and keeps its numbers in shared memory until it knows the largest: as it has
// read them, then as floats in their place. So several tokens of 14 336 are on their way to a multiprocessor, which has
// registers for two: an H200 reaches 103 % of a copy of as many bytes, four fifths of which are read, by registers 97 %
// (of 28 672 elements 103 and 91 %). A token that shared memory has no room for, or that is no whole 16 bytes, is
// worked out twice.
#include "cuda/kernels/quantize/quantize.h"

#include <stddef.h>

#include "cuda/kernels/common/element8.cuh"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/common/tile.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/quantize.h"

namespace {

constexpr int elems = 8, most_threads = 512;  // elements of a vector
constexpr float most_e4m3 = 448.0f;
constexpr int static_bytes = 1024;  // dynamic shared memory begins behind them

// What is quantized: from one vector of each of so many arrays, and from one element.
struct silu_source {
    static constexpr int arrays = 2;
    const __half *from[arrays];  // gate, up
    static __device__ float value(float gate, float up) {
        return __fdividef(gate, 1.0f + __expf(-gate)) * up;
    }
    static __device__ void values(const uint4 (&in)[arrays], float (&out)[elems]) {
        float up[elems];
        bw_unpack(in[0], out, __half());
        bw_unpack(in[1], up, __half());
#pragma unroll
        for (int e = 0; e < elems; e++) out[e] = value(out[e], up[e]);
    }
    __device__ float element(int64_t i) const {
        return value(bw_to_float(from[0][i]), bw_to_float(from[1][i]));
    }
};

struct kept_source {
    static constexpr int arrays = 1;
    const __half *from[arrays];
    static __device__ void values(const uint4 (&in)[arrays], float (&out)[elems]) {
        bw_unpack(in[0], out, __half());
    }
    __device__ float element(int64_t i) const {
        return bw_to_float(from[0][i]);
    }
};

// The largest |y| of a block, from those of its threads.
BW_DEVICE float largest_of(float most) {
    __shared__ uint32_t of_warp[most_threads / 32];
    const unsigned warps = blockDim.x / 32, lane = threadIdx.x % 32;
    uint32_t bits = __reduce_max_sync(bw_all_lanes, __float_as_uint(most));  // in the order of positive numbers
    if (warps == 1) return __uint_as_float(bits);
    if (lane == 0) of_warp[threadIdx.x / 32] = bits;
    __syncthreads();
    bits = lane < warps ? of_warp[lane] : 0;
    return __uint_as_float(__reduce_max_sync(bw_all_lanes, bits));
}

struct quantize_work {
    uint8_t *out;
    float *scale;
    int64_t hidden;
};

// What each number is taken times; the first thread writes the scale. Of numbers so small that a scale has no
// reciprocal all become zeros.
BW_DEVICE float inverse_scale(const quantize_work &work, float most) {
    most = largest_of(most);
    const float scale = __fdiv_rn(most, most_e4m3);
    if (threadIdx.x == 0) work.scale[blockIdx.x] = scale;
    return scale > 0x1p-100f ? __frcp_rn(scale) : 0.0f;
}

// A thread reads from shared memory only what it has written.
template <typename Source>
__global__ void __launch_bounds__(most_threads, 3) quantize_row_kernel(Source source, quantize_work work) {
    constexpr bool keeps_floats = Source::arrays * sizeof(uint4) == elems * sizeof(float);
    uint4 *shared = (uint4 *)bw_dynamic_shared();
    const int vectors = (int)(work.hidden / elems);
    const int64_t row = blockIdx.x * (int64_t)vectors;
    for (int i = (int)threadIdx.x; i < vectors; i += (int)blockDim.x) {
#pragma unroll
        for (int a = 0; a < Source::arrays; a++) {
            bw_copy_async(shared + a * vectors + i, (const uint4 *)source.from[a] + row + i, true);
        }
    }
    bw_copy_commit();
    bw_copy_wait<0>();
    float y[elems], most = 0.0f;
    uint4 in[Source::arrays];
    for (int i = (int)threadIdx.x; i < vectors; i += (int)blockDim.x) {
#pragma unroll
        for (int a = 0; a < Source::arrays; a++) in[a] = shared[a * vectors + i];
        Source::values(in, y);
#pragma unroll
        for (int e = 0; e < elems; e++) most = fmaxf(most, fabsf(y[e]));
        if constexpr (keeps_floats) {
            shared[i] = bw_pack({y[0], y[1], y[2], y[3]}, float());
            shared[vectors + i] = bw_pack({y[4], y[5], y[6], y[7]}, float());
        }
    }
    const float inverse = inverse_scale(work, most) / 256.0f;
    for (int i = (int)threadIdx.x; i < vectors; i += (int)blockDim.x) {
#pragma unroll
        for (int a = 0; a < Source::arrays; a++) in[a] = shared[a * vectors + i];
        if constexpr (keeps_floats) {
            memcpy(y, in, sizeof y);
        } else {
            Source::values(in, y);
        }
#pragma unroll
        for (int e = 0; e < elems; e++) y[e] *= inverse;
        const uint2 bytes = {bw_narrow_four(y[0], y[1], y[2], y[3]), bw_narrow_four(y[4], y[5], y[6], y[7])};
        bw_store_once((uint2 *)work.out + row + i, bytes);
    }
}

template <typename Source>
__global__ void __launch_bounds__(most_threads) quantize_any_kernel(Source source, quantize_work work) {
    const int64_t row = blockIdx.x * work.hidden;
    float most = 0.0f;
    for (int64_t i = threadIdx.x; i < work.hidden; i += blockDim.x) most = fmaxf(most, fabsf(source.element(row + i)));
    const float inverse = inverse_scale(work, most);
    for (int64_t i = threadIdx.x; i < work.hidden; i += blockDim.x) {
        const float quotient = source.element(row + i) * inverse;
        work.out[row + i] = bw_narrow(fminf(fmaxf(quotient, -most_e4m3), most_e4m3), bw_e4m3());
    }
}

template <typename Source>
bw_cuda_kernel *choose_rows(const bw_dims *dims, const bw_device_facts *facts, Source source,
                            bw_cuda_launch_spec *out) {
    const int64_t hidden = dims->value[BW_QUANTIZE_HIDDEN], vectors = hidden / elems;
    const int64_t shared_bytes = Source::arrays * vectors * (int64_t)sizeof(uint4);
    const bool fits = hidden % elems == 0 && facts->own && shared_bytes <= facts->own->shared_bytes - static_bytes;
    const int64_t rounds = bw_max64(4, bw_ceil_div(vectors, most_threads));
    const int64_t threads = fits ? bw_ceil_div(bw_ceil_div(vectors, rounds), 32) * 32 : most_threads;
    quantize_work work = {};
    work.hidden = hidden;
    const dim3 grid((unsigned)dims->value[BW_QUANTIZE_TOKENS]);
    bw_cuda_kernel *kernel = bw_choose(out, fits ? quantize_row_kernel<Source> : quantize_any_kernel<Source>, grid,
                                       dim3((unsigned)threads), fits ? (size_t)shared_bytes : 0, source, work);
    bw_choose_place(kernel, 1, offsetof(quantize_work, out), bw_from_operand(BW_QUANTIZE_OUT));
    bw_choose_place(kernel, 1, offsetof(quantize_work, scale), bw_from_operand(BW_QUANTIZE_OUT_SCALE));
    return kernel;
}

struct silu_op {
    using T = __half;
    silu_source source;
    T *y;
    struct constants {};
    struct inputs {
        uint4 of[silu_source::arrays];
    };
    __device__ constants begin() const {
        return {};
    }
    __device__ inputs load(int64_t i) const {
        return {bw_load_cached((const uint4 *)source.from[0] + i), bw_load_cached((const uint4 *)source.from[1] + i)};
    }
    __device__ void store(int64_t i, const constants &, const inputs &inputs) const {
        float values[elems];
        source.values(inputs.of, values);
        bw_store_once((uint4 *)y + i, bw_pack(values, T()));
    }
    __device__ void element(int64_t i) const {
        bw_from_float(source.element(i), &y[i]);
    }
};

}  // namespace

bw_status bw_silu_unfused_choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *facts,
                                 bw_cuda_launch_spec *out) {
    const int64_t elements = dims->value[BW_QUANTIZE_TOKENS] * dims->value[BW_QUANTIZE_HIDDEN];
    BW_TRY(bw_choose_tiles(elements, out, silu_op{},
                           {bw_from_operand(BW_QUANTIZE_GATE), bw_from_operand(BW_QUANTIZE_UP), bw_from_scratch(0)}));
    bw_cuda_kernel *rows = choose_rows(dims, facts, kept_source{}, out);
    bw_choose_place(rows, 0, offsetof(kept_source, from[0]), bw_from_scratch(0));
    return BW_OK;
}

bw_status bw_silu_fused_choose(const bw_dims *dims, const bw_precision *, const bw_device_facts *facts,
                               bw_cuda_launch_spec *out) {
    bw_cuda_kernel *rows = choose_rows(dims, facts, silu_source{}, out);
    bw_choose_place(rows, 0, offsetof(silu_source, from[0]), bw_from_operand(BW_QUANTIZE_GATE));
    bw_choose_place(rows, 0, offsetof(silu_source, from[1]), bw_from_operand(BW_QUANTIZE_UP));
    return BW_OK;
}

// Tokens are a grid's blocks, of which there are enough; those of silu_mul have tiles of elements.
const char *bw_silu_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return bw_tiles_refuse(dims->value[BW_QUANTIZE_TOKENS] * dims->value[BW_QUANTIZE_HIDDEN], precision,
                           bw_tile_bytes / (int)sizeof(__half));
}
