// gemm with 2 to 16 rows of A (in FP32 from 9 to 32: skinny_fp32.cu) on tensor cores (mma.sync): the time is that of
// reading B once, whatever M is, where gemv's arithmetic grows with M until it takes longer than the memory does.
//   - B goes from memory to registers to tensor cores: no shared memory, no ldmatrix, no shuffles. A warp loads 128
//     bytes of 4 rows at a time, lane 8 i + j the j-th 16 bytes of row i, and lanes hold them as they come: k may be in
//     any order where both operands have it in the same one, and a column of m16n8k16 (m16n8k8 for 4-byte elements)
//     that lanes 4 r to 4 r + 3 hold is then half a line: row r / 2 of B, its even or its odd 64 bytes. Rows of A are
//     loaded and held alike. So of each product's 16 x 8 sums the half counts whose row and column are alike;
//   - `steps` such loads of each of `tiles` times 4 rows are under way in each lane before the first is waited for; A,
//     read again by every block, comes from L1, which B passes by;
//   - a block's warps share its rows of B: each takes every so-many-th piece of K; their sums meet in shared memory.
// FP32 is three products of TF32: x = high + low, 11 bits each, high high + high low + low high; what is left out is up
// to 2^-19 of a product. What such a part cannot hold, an infinity, becomes NaN.
#pragma once

#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/gemm/eight/types.cuh"
#include "cuda/kernels/gemm/linear/end.cuh"
#include "cuda/kernels/gemm/skinny.h"

namespace {

constexpr int most_rows = 16;
constexpr int tile = 4;         // rows, of A or of B, whose 128 bytes a warp loads at once
constexpr int step_chunks = 8;  // those 128 bytes, in chunks of 16

template <bool exact>
struct arithmetic {};

BW_DEVICE void split(const uint32_t (&bits)[4], uint32_t (&high)[4], uint32_t (&low)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        high[i] = bits[i] & 0xffffe000u;
        low[i] = __float_as_uint(__uint_as_float(bits[i]) - __uint_as_float(high[i]));
    }
}

// One product of fragments; FP32 is `exact`.
template <typename T>
BW_DEVICE void add_product(typename bw_gemm_types<T>::sum (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                           arithmetic<false>) {
    bw_multiply(sum, a, b0, b1, T());
}
template <typename T>
BW_DEVICE void add_product(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, arithmetic<true>) {
    uint32_t a_high[4], a_low[4], b_high[4], b_low[4];
    const uint32_t b[4] = {b0, b1, 0, 0};
    split(a, a_high, a_low);
    split(b, b_high, b_low);
    bw_multiply(sum, a_low, b_high[0], b_high[1], T());
    bw_multiply(sum, a_high, b_low[0], b_low[1], T());
    bw_multiply(sum, a_high, b_high[0], b_high[1], T());
}

// 16 bytes of B, or zeros where they are not `there`.
BW_DEVICE uint4 load_there(const uint4 *from, bool there) {
    uint4 bits;
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
        "@p ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];}"
        : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
        : "l"(from), "r"((int)there));
    return bits;
}

// Where groups of K have scales: those of a warp's turn, each of whose steps is a group, of a lane's row of A and of
// all of the block's rows of B.
struct step_scales {
    const bw_gemm_scales &all;
    int64_t column;
    int group, row, last_row;
    __device__ __forceinline__ int group_of(int step) const {
        return min(group + step, all.groups - 1);
    }
    __device__ __forceinline__ float of_columns(int step) const {
        return bw_gemm_scale_of_column(all, column, group_of(step));
    }
    __device__ __forceinline__ float of_row(int step, int further) const {
        return bw_gemm_scale_of_row(all, min(row + further, last_row), group_of(step));
    }
};

// One turn of a warp: all of its loads are issued before the first is waited for, which the compiler undoes unless
// something stands between (tests/benchmarks/sass.py looks). Where the turn is not `full`, what lies behind the lane's
// `left` chunks counts as 0, of A too: a product with whatever is there might be no number.
template <bool full, typename T, bool exact, bool grouped, int quads, int tiles, int steps, bool ahead>
BW_DEVICE void add_turn(const uint4 *a, const int (&a_rows)[quads], const uint4 *b, const int (&b_rows)[tiles],
                        int left, const step_scales &scales,
                        typename bw_gemm_types<T>::sum (&sum)[tiles][(quads + 1) / 2][4]) {
    constexpr int pairs = (quads + 1) / 2;
    uint4 of_b[steps][tiles], of_a[steps][quads + quads % 2];
    float factor[steps][pairs][2];
    const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int s = 0; s < steps; s++) {
#pragma unroll
        for (int t = 0; t < tiles; t++) {
            const uint4 *from = b + b_rows[t] + s * step_chunks;
            of_b[s][t] = full ? bw_load_streaming(from) : load_there(from, s * step_chunks < left);
        }
    }
    if (!ahead) __syncwarp();
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const bool there = full || s * step_chunks < left;
#pragma unroll
        for (int q = 0; q < quads + quads % 2; q++) {
            of_a[s][q] = q < quads && there ? bw_load_cached(a + a_rows[q < quads ? q : 0] + s * step_chunks) : none;
        }
    }
    if constexpr (grouped) {
#pragma unroll
        for (int s = 0; s < steps; s++) {
            const float of_columns = scales.of_columns(s);
#pragma unroll
            for (int i = 0; i < 2 * pairs; i++) factor[s][i / 2][i % 2] = of_columns * scales.of_row(s, i * tile);
        }
    }
    if (ahead) __syncwarp();
#pragma unroll
    for (int s = 0; s < steps; s++) {
        if constexpr (std::is_same_v<T, bw_e4m3>) {
            // Devices without such products convert to 16 bits: B's once for all of A.
#pragma unroll
            for (int t = 0; t < tiles; t++) {
#pragma unroll
                for (int pair = 0; pair < pairs; pair++) {
                    const uint4 low = of_a[s][2 * pair], high = of_a[s][2 * pair + 1];
                    float part[4] = {};
                    float(&to)[4] = grouped ? part : sum[t][pair];
                    add_product<T>(to, {low.x, high.x, low.y, high.y}, of_b[s][t].x, of_b[s][t].y, arithmetic<exact>());
                    add_product<T>(to, {low.z, high.z, low.w, high.w}, of_b[s][t].z, of_b[s][t].w, arithmetic<exact>());
                    if constexpr (grouped) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            sum[t][pair][i] = fmaf(part[i], factor[s][pair][i / 2], sum[t][pair][i]);
                        }
                    }
                }
            }
        } else {
#pragma unroll
            for (int pair = 0; pair < pairs; pair++) {
                const uint4 low = of_a[s][2 * pair], high = of_a[s][2 * pair + 1];
                const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
                for (int t = 0; t < tiles; t++) {
                    add_product<T>(sum[t][pair], first, of_b[s][t].x, of_b[s][t].y, arithmetic<exact>());
                }
#pragma unroll
                for (int t = 0; t < tiles; t++) {
                    add_product<T>(sum[t][pair], second, of_b[s][t].z, of_b[s][t].w, arithmetic<exact>());
                }
            }
        }
    }
}

// `quads` times 4 rows of A.
template <typename T, typename TD, bool exact, bool grouped, int quads, int tiles, int steps, bool ahead,
          int most_warps, int residents, typename C>
__global__ void __launch_bounds__(most_warps * 32, residents)
    gemm_skinny_kernel(const T *a, const T *b, C c, TD *d, bw_gemm_scales scales, bw_skinny_shape shape) {
    constexpr int columns = tiles * tile, rows = (quads + quads % 2) * tile, turn = steps * step_chunks;
    float *shared = (float *)bw_dynamic_shared();
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = lane / step_chunks, pace = warps * turn;
    const int64_t column0 = (int64_t)blockIdx.x * columns, last = shape.n - 1;
    const int first = warp * turn + lane % step_chunks;
    const uint4 *a_from = (const uint4 *)a + first, *b_from = (const uint4 *)b + column0 * shape.chunks + first;
    int a_rows[quads], b_rows[tiles];  // where they begin, in chunks: half the registers that addresses would take
#pragma unroll
    for (int t = 0; t < tiles; t++) b_rows[t] = (int)min((int64_t)(t * tile + row), last - column0) * shape.chunks;
#pragma unroll
    for (int q = 0; q < quads; q++) a_rows[q] = min(q * tile + row, shape.m - 1) * shape.chunks;
    typename bw_gemm_types<T>::sum sum[tiles][(quads + 1) / 2][4] = {};
    int left = shape.chunks - warp * turn;  // the same for all lanes
    step_scales of_turn = {scales, column0, warp * steps, row, shape.m - 1};
#pragma unroll 1
    for (; left >= turn; left -= pace) {
        add_turn<true, T, exact, grouped, quads, tiles, steps, ahead>(a_from, a_rows, b_from, b_rows, left, of_turn,
                                                                      sum);
        a_from += pace, b_from += pace, of_turn.group += warps * steps;
    }
    if (left > 0) {
        add_turn<false, T, exact, grouped, quads, tiles, steps, ahead>(a_from, a_rows, b_from, b_rows,
                                                                       left - lane % step_chunks, of_turn, sum);
    }

    // A lane's sums are of rows r and r + 8 and of columns 2 j, 2 j + 1: halves r % 2, r % 2, 0 and 1 of a line. Those
    // of the other half are with the neighbor, lane ^ 4: each keeps one row's and gives the other's away.
    const bool odd = lane / 4 % 2 != 0;
    float *own = shared + (warp * rows + (odd ? tile : 0) + lane / 8) * columns + lane % 4;
#pragma unroll
    for (int t = 0; t < tiles; t++) {
#pragma unroll
        for (int pair = 0; pair < (quads + 1) / 2; pair++) {
            const auto &four = sum[t][pair];
            const auto low = odd ? four[1] : four[0], high = odd ? four[3] : four[2];
            const auto other = __shfl_xor_sync(bw_all_lanes, odd ? low : high, 4);
            own[pair * 2 * tile * columns + t * tile] = (float)((odd ? high : low) + other);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < shape.m * columns; i += (int)blockDim.x) {
        const int64_t column = column0 + i % columns;
        if (column > last) continue;
        float total = 0.0f;
        for (int other = 0; other < warps; other++) total += shared[other * rows * columns + i];
        const int of_a = i / columns;
        if (bw_gemm_types<T>::scaled) {
            total *= bw_gemm_scale_of_row(scales, of_a) * bw_gemm_scale_of_column(scales, column);
        }
        const int64_t at = of_a * shape.n + column;
        bw_from_float(bw_gemm_add(c, at, column, total), &d[at]);
    }
}

template <typename C>
struct skinny_case {
    const bw_dims *dims;
    const bw_precision *precision;
    const bw_device_facts *facts;
    C c;
};
static inline skinny_case<bw_address> skinny_case_of(const bw_dims *dims, const bw_precision *precision,
                                                     const bw_device_facts *facts) {
    return {dims, precision, facts, bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C)};
}

// At most `warps` of them share a row, each in as many turns.
template <typename T, bool exact, bool grouped, int quads, int tiles, int steps, bool ahead, int most_warps,
          int residents, typename C>
bw_status choose(const bw_skinny_shape &shape, int64_t warps, const skinny_case<C> &of, bw_cuda_launch_spec *out) {
    const int64_t turns = bw_ceil_div(shape.chunks, steps * step_chunks);
    constexpr int rows = (quads + quads % 2) * tile;
    warps = bw_ceil_div(turns, bw_ceil_div(turns, warps));
    using TD = typename bw_gemm_types<T>::result;
    bw_cuda_kernel *chosen = bw_choose(out,
                                       gemm_skinny_kernel<T, TD, exact, grouped, quads, tiles, steps, ahead, most_warps,
                                                          residents, bw_gemm_addend<TD, C>>,
                                       dim3((unsigned)bw_ceil_div(shape.n, tiles * tile)), dim3((unsigned)warps * 32),
                                       (size_t)warps * rows * tiles * tile * sizeof(float), bw_from_operand(BW_GEMM_A),
                                       bw_from_operand(BW_GEMM_B), of.c, bw_from_operand(BW_GEMM_D),
                                       bw_gemm_scales_of(of.dims, of.precision), shape);
    bw_gemm_place_scales(chosen, 4, of.precision);
    return BW_OK;
}

// More rows of B than the multiprocessors have in hand at once where each takes 32.
bool many_rows(const bw_skinny_shape &shape, const bw_device_facts *facts) {
    return shape.n > (int64_t)facts->units * 8 * tile;
}

// Where there is hardly more than a block a multiprocessor, twice as many warps share its rows. More than 8 rows of A
// leave registers for 4 blocks of 4 warps, or for one of 8 where 16-bit rows of B are 32 to each multiprocessor, which
// then reads A once. For many short rows of B a block's own time and its reads of A count: it takes 16 rows then, and
// for many of E4M3, where conversions of A count.
template <typename T, bool exact, bool grouped = false, typename C>
bw_status choose_for(const skinny_case<C> &of, bw_cuda_launch_spec *out) {
    const bw_device_facts *facts = of.facts;
    const int64_t *value = of.dims->value;
    const bw_skinny_shape shape = {(int)value[BW_GEMM_M], (int)(value[BW_GEMM_K] * (int64_t)sizeof(T) / 16),
                                   value[BW_GEMM_N]};
    constexpr bool converts = std::is_same_v<T, bw_e4m3>;
    const int64_t warps = shape.n <= (int64_t)facts->units * 2 * tile ? 16 : 8;
    if (shape.m > 8) {
        const bool small = shape.m <= most_rows && shape.n <= (int64_t)facts->units * 4 * tile;
        if (small) return choose<T, exact, grouped, 4, 2, 4, true, 8, 1>(shape, 8, of, out);
        // Blocks of 32 rows leave multiprocessors idle where there is one for each and a few more.
        const bool uneven = shape.m <= most_rows && many_rows(shape, facts) && shape.n < (int64_t)facts->units * 64;
        if (exact && !uneven) return bw_skinny_float_choose(shape, value[BW_GEMM_BETA] != 0, facts, out);
        if constexpr (sizeof(T) <= 2 && !converts) {
            if (!many_rows(shape, facts)) return choose<T, exact, grouped, 4, 8, 2, true, 8, 1>(shape, 8, of, out);
        }
        constexpr int residents = exact || grouped ? 3 : 4;
        return choose<T, exact, grouped, 4, 4, 2, true, 4, residents>(shape, 4, of, out);
    }
    const bool many = converts ? many_rows(shape, facts) : shape.chunks <= 128 && shape.n >= (int64_t)facts->units * 64;
    if (shape.m > 4 && many) return choose<T, exact, grouped, 2, 4, 2, true, 4, 4>(shape, 4, of, out);
    if (shape.m > 4) return choose<T, exact, grouped, 2, 2, 4, true, 16, 1>(shape, warps, of, out);
    if constexpr (converts) {
        if (many) return choose<T, exact, grouped, 1, 4, 2, true, 4, 4>(shape, 4, of, out);
    }
    return choose<T, exact, grouped, 1, 2, 4, true, 16, 1>(shape, warps, of, out);
}

}  // namespace
