// gemm with few rows of A (M up to 16): the time is that of reading B once.
//   - a lane reads 16 bytes at a time, past L1: `steps` steps of each of `b_rows` rows of B, all of them under way
//     before the first is waited for;
//   - A is small and comes from L1, once for those rows;
//   - `split` warps share a row and add their sums in shared memory: a row is read in one turn, and the next block's
//     begins while this one's sums are added up;
//   - K that is no multiple of 16 bytes makes rows start anywhere: elements are then read one by one.
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/gemm/linear/end.cuh"
#include "cuda/kernels/gemm/linear/linear.h"

namespace {

constexpr int warps_per_block = 4;  // as many as may share a row of B
// A lane holds a sum for each row of A with each of its rows of B, and 16 bytes of each as floats: 4, or 8 in 16 bits.
constexpr int largest_m_float = 16, largest_m_half = 8;

struct gemv_shape {
    int64_t m, n, k;
};

template <typename T, bool vectors>
struct gemv_step {
    static constexpr int elems = vectors ? 16 / (int)sizeof(T) : 1;
    float value[elems];
};

template <typename T>
BW_DEVICE void unpack_step(uint4 bits, gemv_step<T, true> &out) {
    bw_unpack(bits, out.value, T());
}
template <typename T>
BW_DEVICE void unpack_step(T element, gemv_step<T, false> &out) {
    out.value[0] = bw_to_float(element);
}
template <bool vectors, typename T>
BW_DEVICE auto load_b(const T *from) {
    if constexpr (vectors) {
        return bw_load_streaming(from);
    } else {
        return *from;
    }
}
template <bool vectors, typename T>
BW_DEVICE auto load_a(const T *from) {
    if constexpr (vectors) {
        return bw_load_cached(from);
    } else {
        return *from;
    }
}

BW_DEVICE uint4 zero_unless(bool there, uint4 bits) {
    return there ? bits : make_uint4(0, 0, 0, 0);
}
template <typename T>
BW_DEVICE T zero_unless(bool there, T element) {
    return there ? element : T();
}

// One turn of a warp: all of its loads, those of few rows of A among them, are issued before the first is waited for.
// That takes constant strides and loads without conditions, or the compiler moves some behind arithmetic
// (tests/benchmarks/sass.py looks). So what lies beyond `left` reads the last step again and counts as 0.
template <bool full, typename T, int a_rows, int b_rows, int steps, int split, bool vectors>
BW_DEVICE void add_turn(const T *a, const T *const (&b)[b_rows], const gemv_shape &shape, int left,
                        float (&acc)[a_rows][b_rows]) {
    constexpr int elems = gemv_step<T, vectors>::elems, stride = 32 * split, a_ahead = a_rows <= 2 ? a_rows : 0;
    using loaded = decltype(load_b<vectors>(a));
    loaded of_b[steps][b_rows], of_a[steps][a_ahead + 1];
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const int at = full ? s * stride : min(s * stride, left - 1);
#pragma unroll
        for (int r = 0; r < b_rows; r++) of_b[s][r] = load_b<vectors>(b[r] + at * elems);
#pragma unroll
        for (int row = 0; row < a_ahead; row++) {
            of_a[s][row] = load_a<vectors>(a + (row == 0 ? 0 : min((int64_t)row, shape.m - 1) * shape.k) + at * elems);
        }
    }
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const bool there = full || s * stride < left;
        const int at = full ? s * stride : min(s * stride, left - 1);
        gemv_step<T, vectors> right[b_rows];
#pragma unroll
        for (int r = 0; r < b_rows; r++) unpack_step<T>(zero_unless(there, of_b[s][r]), right[r]);
#pragma unroll
        for (int row = 0; row < a_rows; row++) {
            gemv_step<T, vectors> of_row;
            loaded bits;
            if constexpr (a_ahead > 0) {
                bits = of_a[s][row];
            } else {
                bits = load_a<vectors>(a + min((int64_t)row, shape.m - 1) * shape.k + at * elems);
            }
            unpack_step<T>(zero_unless(there, bits), of_row);
#pragma unroll
            for (int r = 0; r < b_rows; r++) {
#pragma unroll
                for (int e = 0; e < elems; e++) acc[row][r] = fmaf(of_row.value[e], right[r].value[e], acc[row][r]);
            }
        }
    }
}

// Adds this warp's share of K. Rows past the end are clamped to the last one: read again, never stored.
template <typename T, int a_rows, int b_rows, int steps, int split, bool vectors>
BW_DEVICE void accumulate(const T *a, const T *b, const gemv_shape &shape, int64_t b_row, int slice,
                          float (&acc)[a_rows][b_rows]) {
    constexpr int elems = gemv_step<T, vectors>::elems, stride = 32 * split, turn = steps * stride;
    const int count = (int)shape.k / elems, first = slice * 32 + (int)threadIdx.x % 32;
    const int turns = count / turn;  // the same for all lanes
    const T *b_from[b_rows];
#pragma unroll
    for (int r = 0; r < b_rows; r++) b_from[r] = b + min(b_row + r, shape.n - 1) * shape.k + (int64_t)first * elems;
    a += (int64_t)first * elems;
    int left = count - first;
#pragma unroll 1
    for (int i = 0; i < turns; i++) {
        add_turn<true, T, a_rows, b_rows, steps, split, vectors>(a, b_from, shape, left, acc);
        left -= turn;
        a += turn * elems;
#pragma unroll
        for (int r = 0; r < b_rows; r++) b_from[r] += turn * elems;
    }
    if (turns * turn < count) add_turn<false, T, a_rows, b_rows, steps, split, vectors>(a, b_from, shape, left, acc);
}

template <typename T, int a_rows, int b_rows, int steps, int split, bool vectors, typename C>
__global__ void __launch_bounds__(warps_per_block * 32, a_rows >= 16 ? 3 : 1)
    gemm_gemv_kernel(const T *a, const T *b, C c, T *d, gemv_shape shape) {
    __shared__ float sums[warps_per_block][a_rows * b_rows];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int slice = warp % split;
    const int64_t group = (int64_t)blockIdx.x * (warps_per_block / split) + warp / split;
    const int64_t b_row = group * b_rows;
    float acc[a_rows][b_rows] = {};
    accumulate<T, a_rows, b_rows, steps, split, vectors>(a, b, shape, b_row, slice, acc);
#pragma unroll
    for (int i = 0; i < a_rows * b_rows; i++) {
        float sum = acc[i / b_rows][i % b_rows];
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
        if (lane == 0) sums[warp][i] = sum;
    }
    __syncthreads();
    if (slice != 0) return;
    for (int i = lane; i < a_rows * b_rows; i += 32) {
        const int64_t row = i / b_rows, column = b_row + i % b_rows;
        if (row >= shape.m || column >= shape.n) continue;
        float sum = sums[warp][i];
        for (int other = 1; other < split; other++) sum += sums[warp + other][i];
        const int64_t at = row * shape.n + column;
        bw_from_float(bw_gemm_add(c, at, column, sum), &d[at]);
    }
}

int template_rows(int64_t m) {
    return m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : m <= 8 ? 8 : 16;
}

bool rows_aligned(int64_t k, bw_dtype dtype) {
    return k * bw_dtype_get(dtype)->block_bytes % 16 == 0;
}

template <typename T, int a_rows, int b_rows, int steps, int split, bool vectors = true, typename C>
bw_status choose(const gemv_shape &shape, const C &c, bw_cuda_launch_spec *out) {
    const int64_t blocks = bw_ceil_div(bw_ceil_div(shape.n, b_rows) * split, warps_per_block);
    bw_choose(out, gemm_gemv_kernel<T, a_rows, b_rows, steps, split, vectors, bw_gemm_addend<T, C>>,
              dim3((unsigned)blocks), dim3(warps_per_block * 32), 0, bw_from_operand(BW_GEMM_A),
              bw_from_operand(BW_GEMM_B), c, bw_from_operand(BW_GEMM_D), shape);
    return BW_OK;
}

// A block reads its rows in one turn where it can, and 8 loads of B a lane are what a turn should have: short rows come
// four at a time. Long ones take turns of 2 steps where the last turn of 4 would be half empty.
template <typename T, int a_rows, typename C>
bw_status choose_few(const gemv_shape &shape, const C &c, bw_cuda_launch_spec *out) {
    const int64_t steps = bw_ceil_div(shape.k / gemv_step<T, true>::elems, 32);  // of a warp
    if (steps <= 2) return choose<T, a_rows, 4, 2, 1>(shape, c, out);
    if (steps <= 4) return choose<T, a_rows, 4, 1, 4>(shape, c, out);
    if (bw_ceil_div(steps, 8) * 10 < bw_ceil_div(steps, 16) * 18) return choose<T, a_rows, 2, 2, 4>(shape, c, out);
    return choose<T, a_rows, 2, 4, 4>(shape, c, out);
}

// More rows of A: sums take the registers. A warp has a row of B to itself where there are enough of them to keep every
// multiprocessor reading, because it has fewer sums to add up then; FP32 has fewer to begin with.
template <typename T, int a_rows>
bw_status choose_more(const gemv_shape &shape, const bw_address &c, const bw_device_facts *facts,
                      bw_cuda_launch_spec *out) {
    if constexpr (sizeof(T) == 4) {
        if constexpr (a_rows <= 4) {
            return choose<T, a_rows, 2, 4, 4>(shape, c, out);
        } else if (bw_ceil_div(shape.n, 4) >= (int64_t)facts->units * 16) {
            return choose<T, a_rows, 4, 1, a_rows / 8>(shape, c, out);
        } else {
            return choose<T, a_rows, 4, 1, a_rows / 4>(shape, c, out);
        }
    } else {
        constexpr int b_rows = a_rows > 4 ? 4 : 2;
        if (bw_ceil_div(shape.n, b_rows) >= (int64_t)facts->units * 16) {
            return choose<T, a_rows, b_rows, 4 / b_rows, 1>(shape, c, out);
        }
        return choose<T, a_rows, b_rows, 4 / b_rows, 4>(shape, c, out);
    }
}

// Unaligned rows are the slow path anyway: two instantiations do.
template <typename T>
bw_status choose_for(const gemv_shape &shape, bool aligned, const bw_address &c, const bw_device_facts *facts,
                     bw_cuda_launch_spec *out) {
    constexpr int largest_m = sizeof(T) == 4 ? largest_m_float : largest_m_half;
    if (!aligned) {
        if (shape.m == 1) return choose<T, 1, 2, 4, 4, false>(shape, c, out);
        return choose<T, largest_m, 4, 2, 4, false>(shape, c, out);
    }
    switch (template_rows(shape.m)) {
        case 1: return choose_few<T, 1>(shape, c, out);
        case 2: return choose_few<T, 2>(shape, c, out);
        case 4: return choose_more<T, 4>(shape, c, facts, out);
        case 8: return choose_more<T, 8>(shape, c, facts, out);
        default: break;
    }
    if constexpr (sizeof(T) == 4) return choose_more<T, 16>(shape, c, facts, out);
    return bw_fail(BW_CODE_UNSUPPORTED, "gemv takes at most %d rows of A", largest_m_half);
}

// Where gemv beats cuBLASLt: up to so many rows of A, between so many rows of B per multiprocessor, for so long a K.
// Timed on an H200 at 608 shapes (M of 1 to 16, N of 896 to 151936, K of 896 to 8192), checked there and on an H100.
constexpr int64_t no_end = INT64_MAX;
constexpr unsigned half_precisions = BW_MASK(FP16) | BW_MASK(BF16);
const struct {
    unsigned precisions;
    int64_t m_most, unit_n_least, unit_n_most, k_least, k_most;
} faster[] = {
    {BW_MASK(FP32), largest_m_float, 0, no_end, 0, no_end},
    {BW_MASK(TF32), 2, 0, no_end, 0, no_end},
    {BW_MASK(TF32), 4, 0, no_end, 0, 8192},
    {BW_MASK(TF32), 6, 512, no_end, 0, no_end},
    {BW_MASK(TF32), 8, 512, no_end, 0, 4096},
    {BW_MASK(TF32), largest_m_float, 0, 8, 0, 1536},
    {half_precisions, 1, 0, no_end, 0, no_end},
    {half_precisions, 2, 0, 64, 0, no_end},
    {half_precisions, 2, 160, no_end, 8192, no_end},
    {half_precisions, 4, 0, 24, 0, 5120},
    {half_precisions, 4, 0, 8, 0, 8192},
    {half_precisions, largest_m_half, 0, 8, 0, 4096},
};

}  // namespace

const char *bw_gemv_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bool half = bw_dtype_get(precision->weight)->block_bytes == 2;
    if (dims->value[BW_GEMM_M] > (half ? largest_m_half : largest_m_float)) {
        return half ? "gemv takes at most 8 rows of A in 16-bit precisions" : "gemv takes at most 16 rows of A";
    }
    if (!bw_cuda_grid_fits(dims->value[BW_GEMM_N])) return "gemv takes at most 2^31 - 1 rows of B";
    return nullptr;
}

// Unaligned rows are read element by element: cuBLASLt is up to twice as fast there, a single row of A included.
bool bw_gemv_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t m = dims->value[BW_GEMM_M], k = dims->value[BW_GEMM_K];
    const double unit_n = (double)dims->value[BW_GEMM_N] / (double)bw_max64(1, facts->units);
    if (!rows_aligned(k, precision->weight)) return false;
    for (const auto &row : faster) {
        if (!bw_precision_in(row.precisions, precision) || m > row.m_most || k < row.k_least || k > row.k_most)
            continue;
        if (unit_n >= (double)row.unit_n_least && unit_n <= (double)row.unit_n_most) return true;
    }
    return false;
}

bw_status bw_gemv_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                         bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const gemv_shape shape = {value[BW_GEMM_M], value[BW_GEMM_N], value[BW_GEMM_K]};
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return choose_for<T>(shape, rows_aligned(shape.k, precision->weight),
                             bw_from_operand_if(value[BW_GEMM_BETA] != 0, BW_GEMM_C), facts, out);
    });
}

bw_status bw_linear_gemv_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    const gemv_shape shape = {1, dims->value[BW_LINEAR_N], dims->value[BW_LINEAR_K]};
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const bw_linear_end<T> end = bw_linear_end_of<T>(dims);
        const bool aligned = rows_aligned(shape.k, precision->weight);
        BW_TRY((aligned ? choose_few<T, 1>(shape, end, out) : choose<T, 1, 2, 4, 4, false>(shape, end, out)));
        return bw_linear_place_bias(out, 2);
    });
}
