// gemm with 2 to 16 rows of A on tensor cores (mma.sync): the time is that of reading B once, whatever M is, where
// gemv's arithmetic grows with M until it takes longer than the memory does.
//   - rows of A are the 16 rows of m16n8k16 (m16n8k8 for 4-byte elements), 8 rows of B its columns: one instruction
//     serves all rows of A, and what lies behind the last of them is never loaded;
//   - k may be in any order if both operands have it in the same one. Lane 4 r + c loads 16 bytes of row r of each, the
//     c-th of 64: words 0 and 1 are its fragments of one product, words 2 and 3 those of the next. So B goes from
//     memory to registers to tensor cores: no shared memory, no ldmatrix, no shuffles;
//   - `steps` such loads of each of `tiles` times 8 rows of B are under way in each lane before the first is waited
//     for; A, read again by every block, comes from L1, which B passes by;
//   - a block's warps share its rows of B, each takes every so-many-th piece of K, and their sums meet in shared
//   memory.
// FP32 is three products of TF32: x = high + low, 11 bits each, high high + high low + low high; what is left out is
// 2^-22 of a product.
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/tiles.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

namespace {

constexpr int most_rows = 16;
constexpr int tile = 8;         // rows of B
constexpr int step_chunks = 4;  // chunks of 16 bytes of a row in a step: one for each of four lanes

struct skinny_shape {
    int m, chunks;  // of K
    int64_t n;
};

// Fragments of one step of all rows of A: of row r, and r + 8.
struct left_step {
    uint4 low, high;
};

template <bool exact>
struct arithmetic {};

BW_DEVICE float tf32_part(float x) {
    return __uint_as_float(__float_as_uint(x) & 0xffffe000u);
}
BW_DEVICE void split(const uint32_t (&bits)[4], uint32_t (&high)[4], uint32_t (&low)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float x = __uint_as_float(bits[i]), part = tf32_part(x);
        high[i] = __float_as_uint(part), low[i] = __float_as_uint(x - part);
    }
}

// One product of fragments; FP32 is `exact`.
template <typename T>
BW_DEVICE void add_product(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, arithmetic<false>) {
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

// One turn of a warp: all of its loads are issued before the first is waited for, which the compiler undoes unless
// something stands between (tests/benchmarks/sass.py looks). `left` chunks there are from the lane's first one on;
// where the turn is not `full`, what lies behind them counts as 0, of A too: a product with whatever is there might be
// no number.
template <bool full, typename T, bool exact, bool wide, int tiles, int steps, bool ahead>
BW_DEVICE void add_turn(const uint4 *const (&a)[2], const uint4 *const (&b)[tiles], int left,
                        float (&sum)[tiles][2][4]) {
    uint4 of_b[steps][tiles], of_a[steps][2];
    const uint4 none = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int s = 0; s < steps; s++) {
#pragma unroll
        for (int t = 0; t < tiles; t++) {
            const uint4 *from = b[t] + s * step_chunks;
            of_b[s][t] = full ? bw_load_streaming(from) : load_there(from, s * step_chunks < left);
        }
    }
    if (!ahead) __syncwarp();
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const bool there = full || s * step_chunks < left;
        of_a[s][0] = there ? bw_load_cached(a[0] + s * step_chunks) : none;
        of_a[s][1] = wide && there ? bw_load_cached(a[1] + s * step_chunks) : none;
    }
    if (ahead) __syncwarp();
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const uint4 low = of_a[s][0], high = of_a[s][1];
        const uint32_t first[4] = {low.x, high.x, low.y, high.y}, second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int t = 0; t < tiles; t++) {
            add_product<T>(sum[t][0], first, of_b[s][t].x, of_b[s][t].y, arithmetic<exact>());
            add_product<T>(sum[t][1], second, of_b[s][t].z, of_b[s][t].w, arithmetic<exact>());
        }
    }
}

template <typename T, bool exact, bool wide, int tiles, int steps, bool ahead, int most_warps, int residents>
__global__ void __launch_bounds__(most_warps * 32, residents)
    gemm_skinny_kernel(const T *a, const T *b, const T *c, T *d, skinny_shape shape) {
    constexpr int columns = tiles * tile, rows = wide ? 16 : 8, turn = steps * step_chunks;
    float *shared = (float *)bw_dynamic_shared();
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int row = lane / 4, pace = warps * turn;
    const int64_t column0 = (int64_t)blockIdx.x * columns, last = shape.n - 1;
    const int first = warp * turn + lane % 4;
    const uint4 *a_from[2], *b_from[tiles];
#pragma unroll
    for (int t = 0; t < tiles; t++) {
        b_from[t] = (const uint4 *)b + min(column0 + t * tile + row, last) * shape.chunks + first;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        a_from[half] = (const uint4 *)a + (int64_t)min(row + half * 8, shape.m - 1) * shape.chunks + first;
    }
    float sum[tiles][2][4] = {};
    int left = shape.chunks - warp * turn;  // the same for all lanes
#pragma unroll 1
    for (; left >= turn; left -= pace) {
        add_turn<true, T, exact, wide, tiles, steps, ahead>(a_from, b_from, left, sum);
#pragma unroll
        for (int t = 0; t < tiles; t++) b_from[t] += pace;
        a_from[0] += pace, a_from[1] += pace;
    }
    if (left > 0) add_turn<false, T, exact, wide, tiles, steps, ahead>(a_from, b_from, left - lane % 4, sum);

    float *own = shared + warp * rows * columns + row * columns + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < tiles; t++) {
#pragma unroll
        for (int half = 0; half < (wide ? 2 : 1); half++) {
            *(float2 *)(own + half * 8 * columns + t * tile) = make_float2(
                sum[t][0][2 * half] + sum[t][1][2 * half], sum[t][0][2 * half + 1] + sum[t][1][2 * half + 1]);
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < shape.m * columns; i += (int)blockDim.x) {
        const int64_t column = column0 + i % columns;
        if (column > last) continue;
        float total = 0.0f;
        for (int other = 0; other < warps; other++) total += shared[other * rows * columns + i];
        bw_gemm_store(c, d, i / columns * shape.n + column, total);
    }
}

template <typename T, bool exact, bool wide, int tiles, int steps, bool ahead, int most_warps, int residents>
bw_status choose(const skinny_shape &shape, bool adds, bw_cuda_prepared *out) {
    const int64_t turns = bw_ceil_div(shape.chunks, steps * step_chunks);
    const int64_t rounds = bw_ceil_div(turns, most_warps), warps = bw_ceil_div(turns, rounds);
    bw_choose(out, gemm_skinny_kernel<T, exact, wide, tiles, steps, ahead, most_warps, residents>,
              dim3((unsigned)bw_ceil_div(shape.n, tiles * tile)), dim3((unsigned)warps * 32),
              (size_t)warps * (wide ? 16 : 8) * tiles * tile * sizeof(float), bw_from_operand(BW_GEMM_A),
              bw_from_operand(BW_GEMM_B), bw_from_operand_if(adds, BW_GEMM_C), bw_from_operand(BW_GEMM_D), shape);
    return BW_OK;
}

template <typename T, bool exact>
bw_status choose_for(const skinny_shape &shape, bool adds, bw_cuda_prepared *out) {
    if (shape.m > 8) return choose<T, exact, true, 2, 4, true, 8, 1>(shape, adds, out);
    return choose<T, exact, false, 2, 4, true, 8, 1>(shape, adds, out);
}

}  // namespace

const char *bw_skinny_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    if (m > most_rows) return "skinny takes at most 16 rows of A";
    if (k * bw_dtype_get(precision->weight)->block_bytes % 16 != 0)
        return "skinny takes rows of a multiple of 16 bytes";
    if (!bw_cuda_grid_fits(n) || !bw_cuda_grid_fits(k))
        return "skinny takes at most 2^31 - 1 rows of B, and of as many elements";
    return nullptr;
}

bw_status bw_skinny_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                           bw_cuda_prepared *out) {
    const int64_t *value = dims->value;
    const bool adds = value[BW_GEMM_BETA] != 0;
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const skinny_shape shape = {(int)value[BW_GEMM_M], (int)(value[BW_GEMM_K] * (int64_t)sizeof(T) / 16),
                                    value[BW_GEMM_N]};
        if (sizeof(T) == 4 && precision->compute == BW_FP32) return choose_for<T, sizeof(T) == 4>(shape, adds, out);
        return choose_for<T, false>(shape, adds, out);
    });
}
