// The four streams: the yardstick that every other kernel is held against, so they must be as fast as the memory at
// any size. 16-byte accesses, several of them in flight per thread.
//
// One tile per block, as many blocks as it takes, with accesses that tell the caches not to keep anything. Resident
// blocks that walk over the memory were up to 8 % slower from 64 MiB on (H200) and nowhere faster; the default cache
// policy was up to 10 % slower at 1 MiB. Small sizes take fewer vectors per thread, then smaller blocks, until every
// multiprocessor has blocks to run.
#include "ops/stream.h"

#include <type_traits>

#include "base/input.h"
#include "cuda/launch.cuh"
#include "cuda/vector.cuh"

namespace {

constexpr int MAX_THREADS = 256, MAX_UNROLL = 4;

// Blocks wanted per multiprocessor before blocks grow: two even out the work among them.
constexpr int BLOCKS_WANTED_PER_UNIT = 2;

struct geometry {
    int64_t blocks;
    int threads, unroll;
};

// `items` are what one thread takes at a time, `most_unroll` how many of them at the most.
geometry choose_geometry(const bw_device *device, int most_unroll, int64_t items) {
    const int64_t wanted = bw_max64(1, device->facts.units) * BLOCKS_WANTED_PER_UNIT;
    geometry g = {0, MAX_THREADS, most_unroll};
    while (g.unroll > 1 && items < wanted * g.threads * g.unroll) g.unroll /= 2;
    while (g.threads > 32 && items < wanted * g.threads * g.unroll) g.threads /= 2;
    g.blocks = bw_max64(1, bw_ceil_div(items, (int64_t)g.threads * g.unroll));
    return g;
}

// ---- read ----

constexpr int SEGMENT_VECTORS = BW_STREAM_SEGMENT_BYTES / 16;
constexpr int LANE_VECTORS = SEGMENT_VECTORS / 32;
static_assert(LANE_VECTORS * 32 * 16 == BW_STREAM_SEGMENT_BYTES, "a warp reads a segment in whole vectors");

__device__ uint32_t word_sum(uint4 v) {
    return v.x + v.y + v.z + v.w;
}

// The last segment, which may end anywhere: whole vectors, then the 16-bit halves of words behind them. Bytes that
// are missing count as zeros.
__device__ uint32_t short_segment_sum(const char *segment, int bytes, int lane) {
    const int vectors = bytes / 16;
    uint32_t sum = 0;
    for (int i = lane; i < vectors; i += 32) sum += word_sum(((const uint4 *)segment)[i]);
    const int half = vectors * 8 + lane;
    if (half * 2 < bytes) sum += (uint32_t)((const uint16_t *)segment)[half] << (16 * (half & 1));
    return sum;
}

// One warp per segment: 8 vectors per lane, all in flight at once.
__global__ void __launch_bounds__(MAX_THREADS, 4) stream_read_kernel(const char *a, int32_t *checksum, int64_t bytes) {
    const int lane = threadIdx.x & 31;
    const int64_t segments = (bytes + BW_STREAM_SEGMENT_BYTES - 1) / BW_STREAM_SEGMENT_BYTES;
    const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    for (int64_t s = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; s < segments; s += warps) {
        const char *segment = a + s * BW_STREAM_SEGMENT_BYTES;
        const int64_t left = bytes - s * BW_STREAM_SEGMENT_BYTES;
        uint32_t sum = 0;
        if (left >= BW_STREAM_SEGMENT_BYTES) {
            uint4 held[LANE_VECTORS];
#pragma unroll
            for (int u = 0; u < LANE_VECTORS; u++) held[u] = bw_load_once((const uint4 *)segment + lane + u * 32);
            __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
            for (int u = 0; u < LANE_VECTORS; u++) sum += word_sum(held[u]);
        } else {
            sum = short_segment_sum(segment, (int)left, lane);
        }
        sum = __reduce_add_sync(0xffffffffu, sum);
        if (lane == 0) checksum[s] = (int32_t)sum;
    }
}

// ---- write, copy, triad: the same walk, given what to load and what to store for a vector and for an element ----

template <typename Element>
struct write_op {
    using T = Element;
    using vector = bw_vector<T>;
    T *b;
    // The pattern repeats every 64 elements; blocks and tiles are multiples of that, so that a thread writes the same
    // vector everywhere and only makes it once.
    struct made {
        uint4 pattern;
    };
    struct held {};
    __device__ made begin() const {
        float values[vector::elems];
#pragma unroll
        for (int e = 0; e < vector::elems; e++) values[e] = bw_pattern_value(threadIdx.x * vector::elems + e);
        return {vector::pack(values)};
    }
    __device__ held load(int64_t) const {
        return {};
    }
    __device__ void store(int64_t i, const made &made, const held &) const {
        bw_store_once((uint4 *)b + i, made.pattern);
    }
    __device__ void element(int64_t i) const {
        b[i] = vector::put(bw_pattern_value((uint64_t)i));
    }
};

template <typename Element>
struct copy_op {
    using T = Element;
    const T *a;
    T *b;
    struct made {};
    struct held {
        uint4 a;
    };
    __device__ made begin() const {
        return {};
    }
    __device__ held load(int64_t i) const {
        return {bw_load_once((const uint4 *)a + i)};
    }
    __device__ void store(int64_t i, const made &, const held &held) const {
        bw_store_once((uint4 *)b + i, held.a);
    }
    __device__ void element(int64_t i) const {
        b[i] = a[i];
    }
};

template <typename Element>
struct triad_op {
    using T = Element;
    using vector = bw_vector<T>;
    const T *a, *b;
    T *c;
    struct made {};
    struct held {
        uint4 a, b;
    };
    __device__ made begin() const {
        return {};
    }
    __device__ held load(int64_t i) const {
        return {bw_load_once((const uint4 *)a + i), bw_load_once((const uint4 *)b + i)};
    }
    __device__ void store(int64_t i, const made &, const held &held) const {
        float x[vector::elems], y[vector::elems];
        vector::unpack(held.a, x);
        vector::unpack(held.b, y);
#pragma unroll
        for (int e = 0; e < vector::elems; e++) x[e] = fmaf(BW_STREAM_TRIAD_FACTOR, y[e], x[e]);
        bw_store_once((uint4 *)c + i, vector::pack(x));
    }
    __device__ void element(int64_t i) const {
        c[i] = vector::put(fmaf(BW_STREAM_TRIAD_FACTOR, vector::get(b[i]), vector::get(a[i])));
    }
};

template <typename Op, int UNROLL>
__global__ void __launch_bounds__(MAX_THREADS, 4) stream_walk_kernel(Op op, int64_t elements) {
    constexpr int elems = 16 / sizeof(typename Op::T);
    const int64_t vectors = elements / elems;
    const int64_t tile = (int64_t)blockDim.x * UNROLL;
    const typename Op::made made = op.begin();
    for (int64_t first = blockIdx.x * tile; first < vectors; first += gridDim.x * tile) {
        const int64_t i = first + threadIdx.x;
        typename Op::held held[UNROLL] = {};
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (i + u * (int)blockDim.x < vectors) held[u] = op.load(i + u * (int)blockDim.x);
        }
        __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (i + u * (int)blockDim.x < vectors) op.store(i + u * (int)blockDim.x, made, held[u]);
        }
    }
    const int64_t last = vectors * elems + threadIdx.x;
    if (blockIdx.x == 0 && last < elements) op.element(last);
}

template <typename Op>
bw_status launch_walk(const bw_launch *launch, Op op) {
    const int64_t elements = launch->dims->value[BW_STREAM_ELEMENTS];
    const geometry g = choose_geometry(launch->device, MAX_UNROLL, elements / (16 / (int)sizeof(typename Op::T)));
    void (*kernel)(Op, int64_t) = stream_walk_kernel<Op, 1>;
    if (g.unroll == 2) kernel = stream_walk_kernel<Op, 2>;
    if (g.unroll == 4) kernel = stream_walk_kernel<Op, 4>;
    return bw_cuda_launch(launch->device, kernel, dim3((unsigned)g.blocks), dim3(g.threads), 0, op, elements);
}

// Calls `body` with a value of the precision's type.
template <typename Body>
bw_status for_type(bw_dtype dtype, Body body) {
    switch (dtype) {
        case BW_FP32: return body(float());
        case BW_FP16: return body(__half());
        case BW_BF16: return body(__nv_bfloat16());
        default: return bw_fail(BW_CODE_UNSUPPORTED, "streams do not run in %s", bw_dtype_get(dtype)->name);
    }
}

bw_status launch_read(const bw_launch *launch) {
    const int64_t bytes = launch->dims->value[BW_STREAM_ELEMENTS] * bw_dtype_get(launch->dtype)->block_bytes;
    const int64_t segments = bw_ceil_div(bytes, BW_STREAM_SEGMENT_BYTES);
    const geometry g = choose_geometry(launch->device, 1, segments * 32);
    return bw_cuda_launch(launch->device, stream_read_kernel, dim3((unsigned)g.blocks), dim3(g.threads), 0,
                          (const char *)launch->operand[BW_STREAM_READ_A],
                          (int32_t *)launch->operand[BW_STREAM_READ_CHECKSUM], bytes);
}

bw_status launch_write(const bw_launch *launch) {
    return for_type(launch->dtype, [&](auto type) {
        using T = decltype(type);
        return launch_walk(launch, write_op<T>{(T *)launch->operand[BW_STREAM_WRITE_B]});
    });
}

bw_status launch_copy(const bw_launch *launch) {
    return for_type(launch->dtype, [&](auto type) {
        using T = std::conditional_t<sizeof(type) == 4, uint32_t, uint16_t>;  // a move of bits
        return launch_walk(
            launch, copy_op<T>{(const T *)launch->operand[BW_STREAM_COPY_A], (T *)launch->operand[BW_STREAM_COPY_B]});
    });
}

bw_status launch_triad(const bw_launch *launch) {
    return for_type(launch->dtype, [&](auto type) {
        using T = decltype(type);
        return launch_walk(launch, triad_op<T>{(const T *)launch->operand[BW_STREAM_TRIAD_A],
                                               (const T *)launch->operand[BW_STREAM_TRIAD_B],
                                               (T *)launch->operand[BW_STREAM_TRIAD_C]});
    });
}

constexpr unsigned PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16);

constexpr bw_variant make_variant(bw_status (*launch)(const bw_launch *)) {
    bw_variant variant = {};
    variant.name = "direct";
    variant.text = "one tile per block, 16-byte accesses, evict-first cache policy";
    variant.precisions = PRECISIONS;
    variant.launch = launch;
    return variant;
}

const bw_variant read_rows[] = {make_variant(launch_read)};
const bw_variant write_rows[] = {make_variant(launch_write)};
const bw_variant copy_rows[] = {make_variant(launch_copy)};
const bw_variant triad_rows[] = {make_variant(launch_triad)};

}  // namespace

const bw_variant_table bw_cuda_stream_read = {read_rows, 1};
const bw_variant_table bw_cuda_stream_write = {write_rows, 1};
const bw_variant_table bw_cuda_stream_copy = {copy_rows, 1};
const bw_variant_table bw_cuda_stream_triad = {triad_rows, 1};
