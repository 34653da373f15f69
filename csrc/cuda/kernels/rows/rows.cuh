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
template <typename T>
struct row_place {
    int64_t start;  // the first vector's first element
    int shift;      // elements in it that belong to the row before
    int columns;    // 0: there is no such row

    __device__ row_place(int64_t row, int64_t rows, int length) {
        const int64_t first = row * length;
        shift = (int)(first % row_vector<T>);
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
        return element(vector) < columns && !whole(vector);
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
static __device__ __noinline__ uint4 row_gather(const T *from, row_place<T> place, int vector) {
    float value[row_vector<T>];
    bw_unpack(row_nothing<work, T>(), value, T());
#pragma unroll
    for (int i = 0; i < row_vector<T>; i++) {
        if (place.holds(vector, i)) value[i] = bw_to_float(from[vector * row_vector<T> + i]);
    }
    return bw_pack(value, T());
}

// Vectors lane, lane + lanes, ... of a row from `first` on, of an array of the matrix's shape.
template <row_work work, int vectors, typename T>
BW_DEVICE void row_load(const T *array, const row_place<T> &place, int first, int lanes, bool again,
                        uint4 (&out)[vectors]) {
    const T *from = array + place.start;
#pragma unroll
    for (int u = 0; u < vectors; u++) {
        const int vector = first + u * lanes;
        out[u] = row_nothing<work, T>();
        if (!place.whole(vector)) continue;
        out[u] = again ? ((const uint4 *)from)[vector] : bw_load_once((const uint4 *)from + vector);
    }
}
template <row_work work, int vectors, typename T>
BW_DEVICE void row_load_edges(const T *array, const row_place<T> &place, int first, int lanes, uint4 (&out)[vectors]) {
#pragma unroll
    for (int u = 0; u < vectors; u++) {
        const int vector = first + u * lanes;
        if (place.cut(vector)) out[u] = row_gather<work>(array + place.start, place, vector);
    }
}

template <typename T>
static __device__ __noinline__ void row_scatter(T *to, row_place<T> place, int vector, uint4 bits) {
    float value[row_vector<T>];
    bw_unpack(bits, value, T());
#pragma unroll
    for (int i = 0; i < row_vector<T>; i++) {
        if (place.holds(vector, i)) bw_from_float(value[i], &to[vector * row_vector<T> + i]);
    }
}
template <typename T>
BW_DEVICE void row_store(T *array, const row_place<T> &place, int vector, uint4 bits) {
    T *to = array + place.start;
    if (place.whole(vector)) bw_store_once((uint4 *)to + vector, bits);
    if (place.cut(vector)) row_scatter(to, place, vector, bits);
}

// The weights of a row's vector; they begin where the row does. Memory is asked for them before they are needed.
template <typename T>
BW_DEVICE void row_ask_for_weights(const T *weights, const row_place<T> &place, int vector) {
    if (place.whole(vector)) asm volatile("prefetch.global.L2 [%0];" ::"l"(weights + place.element(vector)));
}
template <row_work work, typename T>
BW_DEVICE uint4 row_weights(const T *weights, const row_place<T> &place, int vector) {
    if (place.whole(vector) && place.shift == 0) return bw_load_cached((const uint4 *)weights + vector);
    return row_gather<work>(weights - place.shift, place, vector);
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

// A block's warps meet in shared memory that nothing else has used.
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
BW_DEVICE row_exponentials row_reduce(row_exponentials part, int lanes, float (&tops)[32], float (&sums)[32]) {
    part = row_reduce_lanes(part, lanes);
    if (lanes <= 32) return part;
    const int lane = (int)threadIdx.x % 32;
    if (lane == 0) {
        tops[threadIdx.x / 32] = part.top;
        sums[threadIdx.x / 32] = part.sum;
    }
    __syncthreads();
    const bool there = lane < lanes / 32;
    return row_reduce_lanes(row_exponentials{there ? tops[lane] : -INFINITY, there ? sums[lane] : 0.0f}, 32);
}

// What was worked out from it is not kept: that would take twice the registers.
BW_DEVICE uint4 row_forget(uint4 bits) {
    asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
    return bits;
}

// ---- the kernel ----

constexpr int row_block = 128, row_long_block = 512;

// `lanes` threads a row: a power of 2 up to a warp, and then each has `rows_each` rows; or a block. `kept`: a row has
// no more than `vectors` vectors a thread.
template <row_work work, typename T, int vectors, int rows_each, bool kept, int threads>
__global__ void __launch_bounds__(threads, threads == row_block ? 6 : 1024 / threads)
    rows_kernel(const __grid_constant__ row_arrays<T> arrays, int64_t rows, int columns, int lanes) {
    constexpr int elems = row_vector<T>;
    constexpr bool adds = row_adds<work>, norms = row_norms<work>, biased = work == row_work::LAYERNORM;
    constexpr bool weighs = work == row_work::SOFTMAX, sums_up = work == row_work::LOGSUMEXP;
    static_assert(kept || rows_each == 1, "long rows have a block each");
    __shared__ float shared[2][32];
    const int groups = (int)blockDim.x / lanes, lane = (int)threadIdx.x % lanes;
    const int64_t row0 = (int64_t)blockIdx.x * (groups * rows_each) + (int)threadIdx.x / lanes;
    const int ragged = columns % elems;
    const int step = vectors * lanes;
    const int end = (columns + (ragged ? 2 * elems - 2 : 0)) / elems;

    uint4 held[rows_each][vectors];
    // Vectors `first` on of all rows, or what they become by an addition, whose sum is stored.
    const auto load = [&](int first, bool again) {
        uint4 residual[rows_each][vectors];
        const T *from = adds && again ? arrays.sum : arrays.x;
#pragma unroll
        for (int r = 0; r < rows_each; r++) {
            const row_place<T> place(row0 + r * groups, rows, columns);
            row_load<work>(from, place, first, lanes, !kept && !again, held[r]);
            if (adds && !again) row_load<work>(arrays.residual, place, first, lanes, false, residual[r]);
        }
        __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
        for (int r = 0; r < rows_each; r++) {
            const row_place<T> place(row0 + r * groups, rows, columns);
            if (ragged) {
                row_load_edges<work>(from, place, first, lanes, held[r]);
                if (adds && !again) row_load_edges<work>(arrays.residual, place, first, lanes, residual[r]);
            }
            if constexpr (adds) {
#pragma unroll
                for (int u = 0; u < vectors; u++) {
                    float x[elems], y[elems];
                    if (again) break;
                    bw_unpack(held[r][u], x, T());
                    bw_unpack(residual[r][u], y, T());
#pragma unroll
                    for (int i = 0; i < elems; i++) x[i] += y[i];
                    held[r][u] = bw_pack(x, T());
                    row_store(arrays.sum, place, first + u * lanes, held[r][u]);
                }
            }
        }
    };
    // body(r, u, vector, values) of each vector, read again unless they are kept
    const auto for_each = [&](bool again, auto body) {
        for (int at = 0; at < (kept ? 1 : end); at += step) {
            if (!kept) load(at + lane, again);
#pragma unroll
            for (int r = 0; r < rows_each; r++) {
#pragma unroll
                for (int u = 0; u < vectors; u++) {
                    float value[elems];
                    if (again) held[r][u] = row_forget(held[r][u]);
                    bw_unpack(held[r][u], value, T());
                    body(r, u, at + lane + u * lanes, value);
                }
            }
        }
    };
    const auto place_of = [&](int r) { return row_place<T>(row0 + r * groups, rows, columns); };
    const auto first_thread_stores = [&](auto value) {
#pragma unroll
        for (int r = 0; r < rows_each; r++) {
            if (lane == 0 && row0 + r * groups < rows) value(r, row0 + r * groups);
        }
    };

    if constexpr (norms) {
        for (int at = lane; at < end + lane; at += lanes) {
            row_ask_for_weights(arrays.weight, place_of(0), at);
            if (biased) row_ask_for_weights(arrays.bias, place_of(0), at);
        }
    }
    if (kept) load(lane, false);

    if constexpr (work == row_work::ADD) {
        for_each(false, [&](int, int, int, const float(&)[elems]) {});
    } else if constexpr (norms) {
        float mean[rows_each] = {}, squares[rows_each] = {};
        if constexpr (biased) {
            for_each(false, [&](int r, int, int, const float(&x)[elems]) {
#pragma unroll
                for (int i = 0; i < elems; i++) mean[r] += x[i];
            });
#pragma unroll
            for (int r = 0; r < rows_each; r++) {
                mean[r] = row_reduce<row_take_sum>(mean[r], lanes, shared[0]) / (float)columns;
            }
        }
        for_each(biased, [&](int r, int, int vector, const float(&x)[elems]) {
            const bool whole = !biased || place_of(r).whole(vector);
#pragma unroll
            for (int i = 0; i < elems; i++) {
                const float deviation = x[i] - mean[r];
                if (whole || place_of(r).holds(vector, i)) squares[r] = fmaf(deviation, deviation, squares[r]);
            }
        });
#pragma unroll
        for (int r = 0; r < rows_each; r++) {
            const float square = row_reduce<row_take_sum>(squares[r], lanes, shared[1]) / (float)columns;
            squares[r] = 1.0f / sqrtf(square + BW_ROWS_EPSILON);
        }
        for_each(true, [&](int r, int, int vector, float(&x)[elems]) {
            float weight[elems], bias[elems] = {};
            bw_unpack(row_weights<work>(arrays.weight, place_of(r), vector), weight, T());
            if (biased) bw_unpack(row_weights<work>(arrays.bias, place_of(r), vector), bias, T());
#pragma unroll
            for (int i = 0; i < elems; i++) x[i] = fmaf((x[i] - mean[r]) * squares[r], weight[i], bias[i]);
            row_store(arrays.out, place_of(r), vector, bw_pack(x, T()));
        });
    } else if constexpr (weighs || sums_up) {
        row_exponentials part[rows_each];
        constexpr bool keeps = kept && weighs && vectors <= 4;  // exponentials; registers are short for more
        float weight[rows_each][keeps ? vectors : 1][elems];
#pragma unroll
        for (int r = 0; r < rows_each; r++) part[r] = {-INFINITY, 0.0f};
        if constexpr (kept) {
            for_each(false, [&](int r, int, int, const float(&x)[elems]) {
#pragma unroll
                for (int i = 0; i < elems; i++) part[r].top = fmaxf(part[r].top, x[i]);
            });
        }
        for_each(false, [&](int r, int u, int, const float(&x)[elems]) {
            if constexpr (!kept) {
                float top = part[r].top;
#pragma unroll
                for (int i = 0; i < elems; i++) top = fmaxf(top, x[i]);
                if (top > part[r].top) part[r].rise(top);
            }
            const float reference = bw_softmax_reference(part[r].top);
#pragma unroll
            for (int i = 0; i < elems; i++) {
                const float exponential = row_exp(x[i] - reference);
                part[r].sum += exponential;
                if constexpr (keeps) weight[r][u][i] = exponential;
            }
        });
        float factor[rows_each];
#pragma unroll
        for (int r = 0; r < rows_each; r++) {
            const float own_top = part[r].top;
            part[r] = row_reduce(part[r], lanes, shared[0], shared[1]);
            const float reference = bw_softmax_reference(part[r].top);
            factor[r] = (keeps ? row_exp(own_top - reference) : 1.0f) / part[r].sum;
        }
        if constexpr (weighs) {
            for_each(true, [&](int r, int u, int vector, float(&x)[elems]) {
                const float reference = bw_softmax_reference(part[r].top);
#pragma unroll
                for (int i = 0; i < elems; i++) {
                    x[i] = (keeps ? weight[r][keeps ? u : 0][i] : row_exp(x[i] - reference)) * factor[r];
                }
                row_store(arrays.out, place_of(r), vector, bw_pack(x, T()));
            });
        } else {
            first_thread_stores([&](int r, int64_t row) {
                const float top = part[r].top;
                const float result = bw_softmax_reference(top) + logf(part[r].sum);
                bw_from_float(top == INFINITY ? top : result, &arrays.out[row]);
            });
        }
    } else if constexpr (work == row_work::EXPONENTIALS) {
        const float reference = bw_softmax_reference(arrays.tops[row0 < rows ? row0 : 0]);
        for_each(false, [&](int r, int, int vector, float(&x)[elems]) {
#pragma unroll
            for (int i = 0; i < elems; i++) x[i] = row_exp(x[i] - reference);
            row_store(arrays.out, place_of(r), vector, bw_pack(x, T()));
        });
    } else {
        using take = std::conditional_t<work == row_work::TOP, row_take_max, row_take_sum>;
        float total = take::nothing;
        for_each(false, [&](int, int, int, const float(&x)[elems]) {
#pragma unroll
            for (int i = 0; i < elems; i++) total = take::of(total, x[i]);
        });
        total = row_reduce<take>(total, lanes, shared[0]);
        first_thread_stores([&](int, int64_t row) {
            if (work == row_work::TOP) {
                arrays.tops[row] = total;
            } else {
                const float top = arrays.tops[row];
                bw_from_float(top == INFINITY ? top : bw_softmax_reference(top) + logf(total), &arrays.out[row]);
            }
        });
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

template <row_work work, typename T, int vectors, int rows_each, bool kept, int threads>
static bw_status row_choose_kernel(const bw_dims *dims, const row_operands &operands, int lanes,
                                   bw_cuda_launch_spec *out) {
    const int64_t rows = dims->value[BW_ROWS_COUNT];
    const int block = lanes <= 32 ? row_block : lanes;
    const int64_t blocks = bw_ceil_div(rows, (int64_t)block / lanes * rows_each);
    bw_cuda_kernel *kernel = bw_choose(out, rows_kernel<work, T, vectors, rows_each, kept, threads>,
                                       dim3((unsigned)blocks), dim3((unsigned)block), 0, row_arrays<T>{}, rows,
                                       (int)dims->value[BW_ROWS_ELEMS], lanes);
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

template <typename T>
static int row_vector_count(const bw_dims *dims) {
    const int columns = (int)dims->value[BW_ROWS_ELEMS], ragged = columns % row_vector<T>;
    return (columns + (ragged ? 2 * row_vector<T> - 2 : 0)) / row_vector<T>;
}

static inline int row_whole_warps(int vectors, int each) {
    return (vectors + 32 * each - 1) / (32 * each) * 32;
}

// Fused: a row once, in registers where it fits.
template <row_work work, typename T>
static bw_status row_choose(const bw_dims *dims, const row_operands &operands, bw_cuda_launch_spec *out) {
    const int count = row_vector_count<T>(dims);
    if (count <= 32) {
        int lanes = 1;
        while (lanes < count) lanes *= 2;
        return row_choose_kernel<work, T, 1, 4, true, row_block>(dims, operands, lanes, out);
    }
    if (count <= 64) return row_choose_kernel<work, T, 2, 2, true, row_block>(dims, operands, 32, out);
    if (count <= 4 * row_long_block) {
        return row_choose_kernel<work, T, 4, 1, true, row_long_block>(dims, operands, row_whole_warps(count, 4), out);
    }
    if constexpr (sizeof(T) == sizeof(float)) {
        if (count <= 8 * row_long_block) {
            return row_choose_kernel<work, T, 8, 1, true, row_long_block>(dims, operands, row_whole_warps(count, 8),
                                                                          out);
        }
    }
    return row_choose_kernel<work, T, 4, 1, false, row_long_block>(dims, operands, row_long_block, out);
}

// One step of what is unfused.
template <row_work work, typename T>
static bw_status row_choose_step(const bw_dims *dims, const row_operands &operands, bw_cuda_launch_spec *out) {
    const int lanes = row_whole_warps(row_vector_count<T>(dims), 4);
    return row_choose_kernel<work, T, 4, 1, false, row_long_block>(
        dims, operands, lanes < row_long_block ? lanes : row_long_block, out);
}
