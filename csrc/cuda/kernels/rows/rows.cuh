// Kernels on the rows of a matrix. A row's threads, part of a warp up to a whole block, have all of it in registers:
// it is read once, in 16-byte accesses that are all in flight before the first is used. A row that is too long for
// that is walked over tile by tile and read again, from the L2 where it is large enough.
// Where a row begins or ends within 16 bytes, these are read and written element by element.
#pragma once

#include "cuda/kernels/common/softmax.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/rows.h"

enum class row_work {
    RMSNORM,
    LAYERNORM,
    RESIDUAL_RMSNORM,
    SOFTMAX,
    LOGSUMEXP,
    // a kernel each of what is unfused:
    ADD,           // sum = x + residual
    TOP,           // tops = a row's largest element
    EXPONENTIALS,  // out = e^(x - top)
    TOTAL          // out = top + log(sum of x)
};

template <row_work work>
constexpr bool row_adds = work == row_work::RESIDUAL_RMSNORM || work == row_work::ADD;
template <row_work work>
constexpr bool row_norms =
    work == row_work::RMSNORM || work == row_work::LAYERNORM || work == row_work::RESIDUAL_RMSNORM;

// NULL: the work has no such thing.
template <typename T>
struct row_arrays {
    const T *x, *residual, *weight, *bias;
    T *sum, *out;
    float *tops;
};

template <typename T>
constexpr int row_vector = 16 / (int)sizeof(T);  // elements

// Where a row lies among the 16-byte vectors of its matrix, which are counted from the one that it begins in.
template <typename T, bool ragged>
struct row_place {
    int64_t start;  // the first vector's first element
    int shift;      // elements in it that belong to the row before
    int columns;    // 0: there is no such row

    __device__ row_place(int64_t row, int64_t rows, int length) {
        const int64_t first = row * length;
        shift = ragged ? (int)(first % row_vector<T>) : 0;
        start = first - shift;
        columns = row < rows ? length : 0;
    }
    __device__ int element(int vector) const {
        return vector * row_vector<T> - shift;
    }
    __device__ bool whole(int vector) const {
        return element(vector) >= 0 && element(vector) + row_vector<T> <= columns;
    }
    __device__ bool cut(int vector) const {
        return ragged && element(vector) < columns && !whole(vector);
    }
    __device__ bool holds(int vector, int i) const {
        return element(vector) + i >= 0 && element(vector) + i < columns;
    }
};

// What elements outside a row are, so that they make no difference.
template <row_work work, typename T>
BW_DEVICE uint4 row_nothing() {
    float nothing[row_vector<T>];
#pragma unroll
    for (int i = 0; i < row_vector<T>; i++) {
        nothing[i] = row_norms<work> || row_adds<work> || work == row_work::TOTAL ? 0.0f : -INFINITY;
    }
    return bw_pack(nothing, T());
}

template <row_work work, typename T>
static __device__ __noinline__ uint4 row_gather(const T *from, row_place<T, true> place, int vector) {
    float value[row_vector<T>];
    bw_unpack(row_nothing<work, T>(), value, T());
#pragma unroll
    for (int i = 0; i < row_vector<T>; i++) {
        if (place.holds(vector, i)) value[i] = bw_to_float(from[vector * row_vector<T> + i]);
    }
    return bw_pack(value, T());
}

// Vectors `first`, `first` + `stride`, ... of a row, of an array of the matrix's shape.
template <row_work work, int vectors, typename T, bool ragged>
BW_DEVICE void row_load(const T *array, const row_place<T, ragged> &place, int first, int stride, bool again,
                        uint4 (&out)[vectors]) {
    const T *from = array + place.start;
#pragma unroll
    for (int u = 0; u < vectors; u++) {
        const int vector = first + u * stride;
        out[u] = row_nothing<work, T>();
        if (!place.whole(vector)) continue;
        out[u] = again ? ((const uint4 *)from)[vector] : bw_load_once((const uint4 *)from + vector);
    }
}
template <row_work work, int vectors, typename T>
BW_DEVICE void row_load_edges(const T *array, const row_place<T, true> &place, int first, int stride,
                              uint4 (&out)[vectors]) {
#pragma unroll
    for (int u = 0; u < vectors; u++) {
        const int vector = first + u * stride;
        if (place.cut(vector)) out[u] = row_gather<work>(array + place.start, place, vector);
    }
}

template <typename T>
static __device__ __noinline__ void row_scatter(T *to, row_place<T, true> place, int vector, uint4 bits) {
    float value[row_vector<T>];
    bw_unpack(bits, value, T());
#pragma unroll
    for (int i = 0; i < row_vector<T>; i++) {
        if (place.holds(vector, i)) bw_from_float(value[i], &to[vector * row_vector<T> + i]);
    }
}
template <typename T, bool ragged>
BW_DEVICE void row_store(T *array, const row_place<T, ragged> &place, int vector, uint4 bits) {
    T *to = array + place.start;
    if (place.whole(vector)) bw_store_once((uint4 *)to + vector, bits);
    if constexpr (ragged) {
        if (place.cut(vector)) row_scatter(to, place, vector, bits);
    }
}

// The weights of a row's vector, which begin where the row does.
template <row_work work, typename T, bool ragged>
BW_DEVICE uint4 row_weights(const T *weights, const row_place<T, ragged> &place, int vector) {
    const bool whole = place.whole(vector);
    if (whole && place.shift == 0) return bw_load_cached((const uint4 *)weights + vector);
    if constexpr (ragged) {
        if (whole || place.cut(vector)) return row_gather<work>(weights - place.shift, place, vector);
    }
    return row_nothing<work, T>();
}

// ---- sums over a row's threads; every one of them gets the result ----

struct row_take_max {
    static __device__ __forceinline__ float of(float a, float b) {
        return fmaxf(a, b);
    }
    static constexpr float nothing = -INFINITY;
};
struct row_take_sum {
    static __device__ __forceinline__ float of(float a, float b) {
        return a + b;
    }
    static constexpr float nothing = 0.0f;
};

template <typename Take>
BW_DEVICE float row_reduce_lanes(float value, int lanes) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        if (offset < lanes) value = Take::of(value, __shfl_xor_sync(bw_all_lanes, value, offset));
    }
    return value;
}

// A block's warps meet in shared memory that the last sum did not use: some may still read that.
template <typename Take>
BW_DEVICE float row_reduce(float value, int lanes, float (&shared)[32]) {
    value = row_reduce_lanes<Take>(value, lanes);
    if (lanes <= 32) return value;
    const int lane = (int)threadIdx.x % 32;
    if (lane == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    return row_reduce_lanes<Take>(lane < lanes / 32 ? shared[lane] : Take::nothing, 32);
}

constexpr float row_log2_e = 1.44269504f;

BW_DEVICE float row_exp(float x) {
    return bw_exp2(x * row_log2_e);
}

// A sum of exponentials relative to the largest exponent.
struct row_exponentials {
    float top, sum;

    __device__ void rise(float to) {
        sum *= row_exp(top - bw_softmax_reference(to));
        top = to;
    }
};

BW_DEVICE row_exponentials row_reduce_lanes(row_exponentials part, int lanes) {
    part.rise(row_reduce_lanes<row_take_max>(part.top, lanes));
    part.sum = row_reduce_lanes<row_take_sum>(part.sum, lanes);
    return part;
}
BW_DEVICE row_exponentials row_reduce(row_exponentials part, int lanes, float2 (&shared)[32]) {
    part = row_reduce_lanes(part, lanes);
    if (lanes <= 32) return part;
    const int lane = (int)threadIdx.x % 32;
    if (lane == 0) shared[threadIdx.x / 32] = make_float2(part.top, part.sum);
    __syncthreads();
    const float2 of_warp = lane < lanes / 32 ? shared[lane] : make_float2(-INFINITY, 0.0f);
    return row_reduce_lanes(row_exponentials{of_warp.x, of_warp.y}, 32);
}

// The largest element; 16-bit ones in pairs.
BW_DEVICE float row_top(uint4 bits, float) {
    return fmaxf(fmaxf(__uint_as_float(bits.x), __uint_as_float(bits.y)),
                 fmaxf(__uint_as_float(bits.z), __uint_as_float(bits.w)));
}
BW_DEVICE uint32_t row_larger(uint32_t a, uint32_t b, __half) {
    __half2 x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = __hmax2(x, y);
    memcpy(&a, &x, sizeof a);
    return a;
}
BW_DEVICE uint32_t row_larger(uint32_t a, uint32_t b, __nv_bfloat16) {
    __nv_bfloat162 x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = __hmax2(x, y);
    memcpy(&a, &x, sizeof a);
    return a;
}
template <typename T>
BW_DEVICE float row_top(uint4 bits, T type) {
    const uint32_t low = row_larger(bits.x, bits.y, type), high = row_larger(bits.z, bits.w, type);
    const float2 pair = bw_unpack_pair(row_larger(low, high, type), type);
    return fmaxf(pair.x, pair.y);
}

// What was worked out from it is not kept: that would take twice the registers.
BW_DEVICE uint4 row_forget(uint4 bits) {
    asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    return bits;
}

// ---- the kernel ----

constexpr int row_block = 512;

// `lanes` threads a row: a power of 2 in a warp, or a block of whole warps, each of which has neighboring vectors; they
// have `turns` rows, one after the other. `kept`: a row has no more than `vectors` vectors a thread.
template <row_work work, typename T, int vectors, bool kept, bool ragged, bool in_warp>
__global__ void __launch_bounds__(row_block, 1024 / row_block)
    rows_kernel(const __grid_constant__ row_arrays<T> arrays, int64_t rows, int columns, int lanes, int turns) {
    constexpr int elems = row_vector<T>;
    constexpr bool adds = row_adds<work>, norms = row_norms<work>, biased = work == row_work::LAYERNORM;
    constexpr bool weighs = work == row_work::SOFTMAX, sums_up = work == row_work::LOGSUMEXP;
    __shared__ float shared[2][32];
    __shared__ float2 shared_exponentials[2][32];
    const int groups = in_warp ? (int)blockDim.x / lanes : 1,
              lane = in_warp ? (int)threadIdx.x % lanes : (int)threadIdx.x;
    const int stride = in_warp ? lanes : 32;  // between a thread's vectors
    const int start = in_warp ? lane : lane / 32 * (32 * vectors) + lane % 32;
    const int end = (columns + (ragged ? 2 * elems - 2 : 0)) / elems;
    int64_t row = (int64_t)blockIdx.x * (groups * turns) + (in_warp ? (int)threadIdx.x / lanes : 0);
    row_place<T, ragged> place(row, rows, columns);

    uint4 held[vectors];
    // Vectors from `first` on, or what they become by an addition, whose sum is stored.
    const auto load = [&](int first, bool again) {
        uint4 residual[vectors];
        const T *from = adds && again ? arrays.sum : arrays.x;
        row_load<work>(from, place, first, stride, !kept && !again, held);
        if (adds && !again) row_load<work>(arrays.residual, place, first, stride, false, residual);
        __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
        if constexpr (ragged) {
            row_load_edges<work>(from, place, first, stride, held);
            if (adds && !again) row_load_edges<work>(arrays.residual, place, first, stride, residual);
        }
        if constexpr (adds) {
#pragma unroll
            for (int u = 0; u < vectors; u++) {
                float x[elems], y[elems];
                if (again) break;
                bw_unpack(held[u], x, T());
                bw_unpack(residual[u], y, T());
#pragma unroll
                for (int i = 0; i < elems; i++) x[i] += y[i];
                held[u] = bw_pack(x, T());
                row_store(arrays.sum, place, first + u * stride, held[u]);
            }
        }
    };
    // body(u, vector, elements) of each vector of the row, which is read again unless it is kept
    const auto for_each = [&](bool again, auto body) {
        for (int at = start; at < (kept ? start + 1 : end + start); at += vectors * lanes) {
            if (!kept) load(at, again);
#pragma unroll
            for (int u = 0; u < vectors; u++) {
                float x[elems];
                if (again) held[u] = row_forget(held[u]);
                bw_unpack(held[u], x, T());
                body(u, at + u * stride, x);
            }
        }
    };

    for (int turn = 0; turn < (sums_up ? turns : 1); turn++, row += groups) {
        place = {row, rows, columns};
        if (kept) load(start, false);
        const bool writes = lane == 0 && row < rows;  // a row's one result
        if constexpr (work == row_work::ADD) {
            for_each(false, [](int, int, const float(&)[elems]) {});
        } else if constexpr (norms) {
            float mean = 0.0f, squares = 0.0f;
            if constexpr (biased) {
                for_each(false, [&](int, int, const float(&x)[elems]) {
#pragma unroll
                    for (int i = 0; i < elems; i++) mean += x[i];
                });
                mean = row_reduce<row_take_sum>(mean, lanes, shared[0]) / (float)columns;
            }
            for_each(biased, [&](int, int vector, const float(&x)[elems]) {
                const bool whole = !biased || place.whole(vector);
#pragma unroll
                for (int i = 0; i < elems; i++) {
                    const float deviation = x[i] - mean;
                    if (whole || place.holds(vector, i)) squares = fmaf(deviation, deviation, squares);
                }
            });
            squares = row_reduce<row_take_sum>(squares, lanes, shared[biased ? 1 : turn % 2]) / (float)columns;
            const float factor = 1.0f / sqrtf(squares + BW_ROWS_EPSILON);
            for_each(true, [&](int u, int vector, float(&x)[elems]) {
                float weight[elems], bias[elems] = {};
                bw_unpack(row_weights<work>(arrays.weight, place, vector), weight, T());
                if constexpr (biased) bw_unpack(row_weights<work>(arrays.bias, place, vector), bias, T());
#pragma unroll
                for (int i = 0; i < elems; i++) x[i] = fmaf((x[i] - mean) * factor, weight[i], bias[i]);
                row_store(arrays.out, place, vector, bw_pack(x, T()));
            });
        } else if constexpr (weighs || sums_up) {
            constexpr bool in_place = kept && weighs && sizeof(T) == sizeof(float);
            constexpr bool keeps = kept && weighs && !in_place;  // exponentials
            row_exponentials part = {-INFINITY, 0.0f};
            float exponentials[keeps ? vectors : 1][elems];
            if constexpr (kept) {
#pragma unroll
                for (int u = 0; u < vectors; u++) part.top = fmaxf(part.top, row_top(held[u], T()));
            }
            for_each(false, [&](int u, int, float(&x)[elems]) {
                if constexpr (!kept) {
                    const float top = fmaxf(part.top, row_top(held[u], T()));
                    if (top > part.top) part.rise(top);
                }
                const float reference = bw_softmax_reference(part.top);
#pragma unroll
                for (int i = 0; i < elems; i++) {
                    x[i] = row_exp(x[i] - reference);
                    part.sum += x[i];
                    if constexpr (keeps) exponentials[u][i] = x[i];
                }
                if constexpr (in_place) held[u] = bw_pack(x, T());
            });
            const float own_top = part.top;
            part = row_reduce(part, lanes, shared_exponentials[turn % 2]);
            const float reference = bw_softmax_reference(part.top);
            if constexpr (weighs) {
                const float factor = (kept ? row_exp(own_top - reference) : 1.0f) / part.sum;
                for_each(true, [&](int u, int vector, float(&x)[elems]) {
#pragma unroll
                    for (int i = 0; i < elems; i++) {
                        if constexpr (keeps) x[i] = exponentials[u][i];
                        x[i] = (kept ? x[i] : row_exp(x[i] - reference)) * factor;
                    }
                    row_store(arrays.out, place, vector, bw_pack(x, T()));
                });
            } else if (writes) {
                bw_from_float(part.top == INFINITY ? part.top : reference + logf(part.sum), &arrays.out[row]);
            }
        } else if constexpr (work == row_work::EXPONENTIALS) {
            const float reference = bw_softmax_reference(arrays.tops[row < rows ? row : 0]);
            for_each(false, [&](int, int vector, float(&x)[elems]) {
#pragma unroll
                for (int i = 0; i < elems; i++) x[i] = row_exp(x[i] - reference);
                row_store(arrays.out, place, vector, bw_pack(x, T()));
            });
        } else {
            using take = std::conditional_t<work == row_work::TOP, row_take_max, row_take_sum>;
            float total = take::nothing;
            for_each(false, [&](int, int, const float(&x)[elems]) {
#pragma unroll
                for (int i = 0; i < elems; i++) total = take::of(total, x[i]);
            });
            total = row_reduce<take>(total, lanes, shared[turn % 2]);
            if (!writes) continue;
            if (work == row_work::TOP) {
                arrays.tops[row] = total;
            } else {
                const float top = arrays.tops[row];
                bw_from_float(top == INFINITY ? top : bw_softmax_reference(top) + logf(total), &arrays.out[row]);
            }
        }
    }
}

// ---- the launch ----

// Where an array lies; as row_arrays.
struct row_operands {
    bw_address x, residual, weight, bias, sum, out, tops;
};

constexpr bw_address row_absent = {bw_nothing, 0};

static inline row_operands row_operands_of(bool residual, bool weight, bool bias) {
    return {bw_from_operand(BW_ROWS_X),
            bw_from_operand_if(residual, BW_ROWS_RESIDUAL),
            bw_from_operand_if(weight, BW_ROWS_WEIGHT),
            bw_from_operand_if(bias, BW_ROWS_BIAS),
            bw_from_operand_if(residual, BW_ROWS_SUM),
            bw_from_operand(BW_ROWS_OUT),
            row_absent};
}

// A launch's matrix on its device.
struct row_launch {
    int64_t rows;
    int columns, units;
    bw_cuda_launch_spec *out;
};

static inline row_launch row_launch_of(const bw_dims *dims, const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    return {dims->value[BW_ROWS_COUNT], (int)dims->value[BW_ROWS_ELEMS], facts->units, out};
}

template <row_work work, typename T, int vectors, bool kept, bool ragged, bool in_warp>
static bw_status row_choose_kernel(const row_launch &launch, const row_operands &operands, int lanes) {
    const int block = in_warp ? 128 : lanes, groups = block / lanes;
    // What only reads is soon done with a row: a block has several, while all multiprocessors have many blocks.
    const bool several = work == row_work::LOGSUMEXP && launch.rows / groups > (int64_t)64 * launch.units;
    const int turns = several ? 4 : 1;
    const int64_t blocks = bw_ceil_div(launch.rows, groups * turns);
    bw_cuda_kernel *kernel =
        bw_choose(launch.out, rows_kernel<work, T, vectors, kept, ragged, in_warp>, dim3((unsigned)blocks),
                  dim3((unsigned)block), 0, row_arrays<T>{}, launch.rows, launch.columns, lanes, turns);
    const bw_address addresses[] = {operands.x,   operands.residual, operands.weight, operands.bias,
                                    operands.sum, operands.out,      operands.tops};
    static_assert(sizeof addresses / sizeof addresses[0] * sizeof(void *) == sizeof(row_arrays<T>), "an address each");
    size_t offset = 0;
    for (const bw_address &address : addresses) {
        bw_choose_place(kernel, 0, offset, address);
        offset += sizeof(void *);
    }
    return BW_OK;
}

// Threads of a row of so many elements that have up to `each` vectors.
template <typename T>
static int row_lanes(int columns, int each) {
    const int vectors = (columns + (columns % row_vector<T> ? 2 * row_vector<T> - 2 : 0)) / row_vector<T>;
    const int lanes = (vectors + each - 1) / each;
    if (lanes > 32) return (lanes + 31) / 32 * 32;
    int power = 1;
    while (power < lanes) power *= 2;
    return power;
}

// Fused: a row once, in registers where it fits.
template <row_work work, typename T>
static bw_status row_choose(const row_launch &launch, const row_operands &operands) {
    const int lanes = row_lanes<T>(launch.columns, 4);
    if (launch.columns % row_vector<T> == 0) {
        if (lanes <= 32) return row_choose_kernel<work, T, 4, true, false, true>(launch, operands, lanes);
        if (lanes <= row_block) return row_choose_kernel<work, T, 4, true, false, false>(launch, operands, lanes);
        if constexpr (sizeof(T) == sizeof(float)) {
            const int fewer = row_lanes<T>(launch.columns, 8);
            if (fewer <= row_block) {
                return row_choose_kernel<work, T, 8, true, false, false>(launch, operands, fewer);
            }
        }
    } else {
        if (lanes <= 32) return row_choose_kernel<work, T, 4, true, true, true>(launch, operands, lanes);
        if (lanes <= row_block) return row_choose_kernel<work, T, 4, true, true, false>(launch, operands, lanes);
    }
    return row_choose_kernel<work, T, 4, false, true, false>(launch, operands, row_block);
}

// One step of what is unfused.
template <row_work work, typename T>
static bw_status row_choose_step(const row_launch &launch, const row_operands &operands) {
    const int lanes = row_lanes<T>(launch.columns, 4);
    if (lanes <= 32) return row_choose_kernel<work, T, 4, true, true, true>(launch, operands, lanes);
    return row_choose_kernel<work, T, 4, false, true, false>(launch, operands, lanes < row_block ? lanes : row_block);
}
