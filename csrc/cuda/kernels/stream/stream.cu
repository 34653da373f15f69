// The four streams: the yardstick that every other kernel is held against, so they must be as fast as the memory at
// any size: kernels/common/tile.cuh says how.
#include "cuda/kernels/stream/stream.h"

#include "base/types/input.h"
#include "cuda/kernels/common/tile.cuh"
#include "ops/families/memory/stream.h"

namespace {

constexpr int THREADS = 64;  // of stream_read

// ---- read ----

constexpr int SEGMENT_VECTORS = BW_STREAM_SEGMENT_BYTES / 16;
constexpr int LANE_VECTORS = SEGMENT_VECTORS / 32;
static_assert(LANE_VECTORS * 32 * 16 == BW_STREAM_SEGMENT_BYTES, "a warp reads a segment in whole vectors");

__device__ uint32_t word_sum(uint4 v) {
    return v.x + v.y + v.z + v.w;
}

// The last segment, which may end anywhere: whole vectors, then 16-bit halves of words; missing bytes count as zeros.
// Loads that are not in flight at once would take longer than the rest of a small array (9 % of 2.4 MiB).
__device__ uint32_t short_segment_sum(const char *segment, int bytes, int lane) {
    const int vectors = bytes / 16;
    const int half = vectors * 8 + lane;
    uint4 inputs[LANE_VECTORS];
#pragma unroll
    for (int u = 0; u < LANE_VECTORS; u++) {
        const int i = lane + u * 32;
        inputs[u] = i < vectors ? bw_load_once((const uint4 *)segment + i) : make_uint4(0, 0, 0, 0);
    }
    const uint32_t tail = half * 2 < bytes ? ((const uint16_t *)segment)[half] : 0;
    __syncwarp();  // every load is issued before
    uint32_t sum = tail << (16 * (half & 1));
#pragma unroll
    for (int u = 0; u < LANE_VECTORS; u++) sum += word_sum(inputs[u]);
    return sum;
}

// One warp per segment: 8 vectors per lane, all in flight at once.
__global__ void __launch_bounds__(THREADS, 16) stream_read_kernel(const char *a, int32_t *checksum, int64_t bytes) {
    const int lane = threadIdx.x & 31;
    const int64_t at = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const char *segment = a + at * BW_STREAM_SEGMENT_BYTES;
    const int64_t left = bytes - at * BW_STREAM_SEGMENT_BYTES;
    if (left <= 0) return;
    uint32_t sum = 0;
    if (left >= BW_STREAM_SEGMENT_BYTES) {
        uint4 inputs[LANE_VECTORS];
#pragma unroll
        for (int u = 0; u < LANE_VECTORS; u++) inputs[u] = bw_load_once((const uint4 *)segment + lane + u * 32);
        __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
        for (int u = 0; u < LANE_VECTORS; u++) sum += word_sum(inputs[u]);
    } else {
        sum = short_segment_sum(segment, (int)left, lane);
    }
    sum = __reduce_add_sync(0xffffffffu, sum);
    if (lane == 0) checksum[at] = (int32_t)sum;
}

// ---- write, copy, triad: the same tile, given what to load and what to store for a vector and for an element ----

template <typename Element>
struct write_op {
    using T = Element;
    static constexpr int elems = 16 / (int)sizeof(T);
    T *b;
    // The pattern repeats every 64 elements; tiles and their rows are multiples of that, so that a thread writes the
    // same vector everywhere and only makes it once.
    struct constants {
        uint4 pattern;
    };
    struct inputs {};
    __device__ constants begin() const {
        float values[elems];
#pragma unroll
        for (int e = 0; e < elems; e++) values[e] = bw_pattern_value(threadIdx.x * elems + e);
        return {bw_pack(values, T())};
    }
    __device__ inputs load(int64_t) const {
        return {};
    }
    __device__ void store(int64_t i, const constants &constants, const inputs &) const {
        bw_store_once((uint4 *)b + i, constants.pattern);
    }
    __device__ void element(int64_t i) const {
        bw_from_float(bw_pattern_value((uint64_t)i), &b[i]);
    }
};

template <typename Element>
struct copy_op {
    using T = Element;
    const T *a;
    T *b;
    struct constants {};
    struct inputs {
        uint4 a;
    };
    __device__ constants begin() const {
        return {};
    }
    __device__ inputs load(int64_t i) const {
        return {bw_load_once((const uint4 *)a + i)};
    }
    __device__ void store(int64_t i, const constants &, const inputs &inputs) const {
        bw_store_once((uint4 *)b + i, inputs.a);
    }
    __device__ void element(int64_t i) const {
        b[i] = a[i];
    }
};

template <typename Element>
struct triad_op {
    using T = Element;
    static constexpr int elems = 16 / (int)sizeof(T);
    const T *a, *b;
    T *c;
    struct constants {};
    struct inputs {
        uint4 a, b;
    };
    __device__ constants begin() const {
        return {};
    }
    __device__ inputs load(int64_t i) const {
        return {bw_load_once((const uint4 *)a + i), bw_load_once((const uint4 *)b + i)};
    }
    __device__ void store(int64_t i, const constants &, const inputs &inputs) const {
        float x[elems], y[elems];
        bw_unpack(inputs.a, x, T());
        bw_unpack(inputs.b, y, T());
#pragma unroll
        for (int e = 0; e < elems; e++) x[e] = fmaf(BW_STREAM_TRIAD_FACTOR, y[e], x[e]);
        bw_store_once((uint4 *)c + i, bw_pack(x, T()));
    }
    __device__ void element(int64_t i) const {
        bw_from_float(fmaf(BW_STREAM_TRIAD_FACTOR, bw_to_float(b[i]), bw_to_float(a[i])), &c[i]);
    }
};

}  // namespace

bw_status bw_stream_read_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    const int64_t bytes = dims->value[BW_STREAM_ELEMENTS] * bw_dtype_get(precision->activation)->block_bytes;
    const int64_t segments = bw_ceil_div(bytes, BW_STREAM_SEGMENT_BYTES);
    const int64_t blocks = bw_ceil_div(segments, THREADS / 32);
    bw_choose(out, stream_read_kernel, dim3((unsigned)blocks), dim3(THREADS), 0, bw_from_operand(BW_STREAM_READ_A),
              bw_from_operand(BW_STREAM_READ_CHECKSUM), bytes);
    return BW_OK;
}

bw_status bw_stream_write_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_choose_tiles(dims->value[BW_STREAM_ELEMENTS], out, write_op<T>{},
                               {bw_from_operand(BW_STREAM_WRITE_B)});
    });
}

bw_status bw_stream_copy_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using type = typename decltype(tag)::type;
        using T = std::conditional_t<sizeof(type) == 4, uint32_t, uint16_t>;  // a move of bits
        return bw_choose_copy_tiles(dims->value[BW_STREAM_ELEMENTS], out, copy_op<T>{},
                                    bw_from_operand(BW_STREAM_COPY_A), bw_from_operand(BW_STREAM_COPY_B));
    });
}

bw_status bw_stream_triad_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_choose_tiles(dims->value[BW_STREAM_ELEMENTS], out, triad_op<T>{},
                               {bw_from_operand(BW_STREAM_TRIAD_A), bw_from_operand(BW_STREAM_TRIAD_B),
                                bw_from_operand(BW_STREAM_TRIAD_C)});
    });
}

// A block reads THREADS / 32 segments.
const char *bw_stream_read_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const int64_t elements = dims->value[BW_STREAM_ELEMENTS];
    return bw_tiles_refuse(elements, precision, THREADS / 32 * BW_STREAM_SEGMENT_BYTES);
}
const char *bw_stream_tiles_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return bw_tiles_refuse(dims->value[BW_STREAM_ELEMENTS], precision, bw_tile_bytes);
}
