// gemm with few rows of A and weights of 8 or 4 bits, unpacked in registers on their way to tensor cores: the time
// is that of reading B once.
//   - a block has a few tiles of 16 rows of B. Its warps share the tiles of 256 weights along K, and a warp goes
//     through all rows with one of them: A's 256 columns stay in registers, in the order in which weights come. It
//     copies its own of B asynchronously to shared memory, in chunks of 16 bytes as they lie, blocks of 18 or 34 bytes
//     too, and their scales and zero points beside them: loaded one tile ahead these would wait behind the weights of
//     later tiles. More under way than memory needs would only keep the next requests waiting, and warps that copied
//     for each other would wait for the slowest;
//   - A comes through shared memory, whole rows of a tile at once and its next tile while the present one is in use:
//     loads of fragments would ask for 64 bytes of each of 8 rows, and the second tile would stop the warp once more;
//   - instructions decide: an H200's multiprocessor gets 20 bytes a clock, 40 weights of 4 bits. Weights become pairs
//     of FP16 or BF16, exactly, by little more than a mask for two, and go from registers to tensor cores (m16n8k16: 16
//     rows of B, 8 columns, sums in FP32);
//   - fewer rows of A than 8 leave columns over: there A's groups of 32 take turns, with zeros in the columns of the
//     others, and a lane finds sums of several groups to give their scales. Zero points and mins take the sums of A's
//     groups, worked out once for all rows of B.
// Rows of B of another length than a multiple of 32 weights go element by element: the variant `scalar`, which is what
// the formats' definitions say.
#include <stdlib.h>

#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/narrow/operands.cuh"
#include "cuda/libraries/plans.h"

namespace {

constexpr int most_rows = 16, most_elements = 1 << 25;  // of A in a block
constexpr int tile_columns = 8, tile_rows = 16;         // of tensor cores: of A and of B
constexpr int a_row_bytes = bw_tile_weights * 2;        // of a tile
constexpr int batch_tiles = 8;                          // of rows of B, whose sums a block keeps
constexpr int stages = 2;                               // of a warp's weights: in use and under way
constexpr int most_warps = 16, scalar_warps = 4, scalar_rows = 8;

struct fused_shape {
    int m, k, row_bytes;
    int row_scales, row_zeros;   // bytes of a row
    int tiles, row_tiles, more;  // of K, and of rows of a block; so many of the first blocks have one more
    int64_t n, blocks;           // rows of B, and blocks that share them
};

// Of more than `most` rows of A a block takes so many; those that share rows of B are neighbors, so that all but one
// find them in L2. Moves the addresses to the block's rows of A, and returns which rows of B it has.
template <int most, typename TA, typename TD>
BW_DEVICE int64_t take_rows(const TA *&a, const TD *&c, TD *&d, fused_shape &shape) {
    if (shape.m <= most) return blockIdx.x;
    const int parts = (shape.m + most - 1) / most, part = (int)(blockIdx.x % (unsigned)parts) * most;
    a += (int64_t)part * shape.k;
    c = c ? c + part * shape.n : c;
    d += part * shape.n;
    shape.m = min(shape.m - part, most);
    return blockIdx.x / (unsigned)parts;
}

// How a tile's groups of 32 and their factors lie in columns of tensor cores. A tile of A's rows is `columns` of them,
// and `apart` factors have columns of their own; a tile of weights takes `turns` of these. Place p and turn t have the
// factor p turns + t, so that a lane's factors are neighbors.
template <typename Weights, int a_rows>
struct fused_columns {
    static constexpr int per_factor = Weights::per_factor == 0 ? bw_tile_groups : Weights::per_factor;
    static constexpr int factors = bw_tile_groups / per_factor;
    static constexpr int columns = a_rows < tile_columns ? a_rows : tile_columns, apart = tile_columns / columns;
    static constexpr int turns = factors / apart, count = turns + (columns == 1);  // of factors: a lane has two columns
    static constexpr int a_tiles = (a_rows + tile_columns - 1) / tile_columns, steps = apart * per_factor;
    static_assert(turns >= 1, "as few rows of A as there are columns for factors");
    static __device__ constexpr int group_at(int step) {
        return (step % steps / per_factor * turns + step / steps) * per_factor + step % per_factor;
    }
    static constexpr int scale_bytes =
        Weights::per_factor == 0 ? Weights::scale_bytes : Weights::scale_bytes * count / factors;
    static constexpr int zero_bytes = Weights::zero_bytes == 0 ? 0 : (count + 1) / 2;
    static constexpr bool has_sums = Weights::has_mins || Weights::has_offset;
    // A warp's memory: tiles of weights, those in use and those under way, and its sums of a tile of rows. A tile's
    // rows have their scales behind them; their zero points follow, a word each.
    static constexpr int zeros_at = tile_rows * Weights::pitch;
    static constexpr int stage_bytes = zeros_at + (Weights::zero_bytes == 0 ? 0 : tile_rows * 4);
    static_assert(Weights::scale_bytes <= Weights::pitch - Weights::chunks * 16, "scales fit in behind a row");
    static constexpr int kept = columns == 1 ? 2 : 4;
    struct alignas(kept * sizeof(float)) kept_sums {
        float of[kept];
    };
    static constexpr int sums = batch_tiles * a_tiles * 32;  // of a warp
};

// What stays as a warp goes through rows of B: a tile of A's columns, zeros where the lane's column is another
// factor's, and where zero points or mins want them its groups' sums.
template <typename TA, typename Weights, int a_rows>
struct activations {
    using at = fused_columns<Weights, a_rows>;
    static constexpr int own = bw_tile_groups / at::apart;  // groups, of the lane's column
    uint4 part[at::a_tiles][bw_tile_groups];                // in the order of steps
    float sum[at::a_tiles][at::has_sums ? at::turns : 1][2];

    // Of a tile, to the warp's shared memory: a row is 512 bytes, its chunks of 16 in such an order that rows read at
    // once are in different banks.
    BW_DEVICE void copy(unsigned char *to, const TA *a, const fused_shape &shape, int tile, int lane) {
        const int column = tile * bw_tile_weights + lane * 8;
#pragma unroll
        for (int row = 0; row < a_rows; row++) {
            if (row < shape.m && column < shape.k)
                bw_copy_async_shared<16>(to + row * a_row_bytes + (lane ^ (row % 8 * 4)) * 16,
                                         a + (int64_t)row * shape.k + column);
        }
    }

    __device__ __forceinline__ void load(const unsigned char *from, const fused_shape &shape, int tile, int lane) {
        const int quarter = lane % 4, row_of = lane / 4 % at::columns, place = lane / 4 / at::columns;
#pragma unroll
        for (int i = 0; i < at::a_tiles; i++) {
            const int row = i * tile_columns + row_of;
            const auto chunk = [&](int j) { return from + row * a_row_bytes + (j ^ (row % 8 * 4)) * 16; };
            const int left = row < shape.m ? shape.k - tile * bw_tile_weights : 0;
#pragma unroll
            for (int j = 0; j < own; j++) {
                const int group = place * own + j;
                part[i][j] = make_uint4(0, 0, 0, 0);
                if (group * bw_group_weights >= left) continue;
                if constexpr (Weights::order == BW_ORDER_RUN_NIBBLES) {
                    part[i][j] = *(const uint4 *)chunk(group * 4 + quarter);
                } else {
                    const uint2 low = *(const uint2 *)(chunk(group * 4 + quarter / 2) + quarter % 2 * 8);
                    const uint2 high = *(const uint2 *)(chunk(group * 4 + 2 + quarter / 2) + quarter % 2 * 8);
                    part[i][j] = make_uint4(low.x, low.y, high.x, high.y);
                }
            }
        }
    }

    __device__ __forceinline__ void arrange(int lane) {
        const int place = lane / 4 / at::columns;
#pragma unroll
        for (int i = 0; i < at::a_tiles; i++) {
            uint4 loaded[own];
#pragma unroll
            for (int j = 0; j < own; j++) loaded[j] = order_activations<Weights::order>(part[i][j]);
#pragma unroll
            for (int step = 0; step < bw_tile_groups; step++) {
                const bool is_own = step % at::steps / at::per_factor == place;
                const uint4 mine = loaded[at::group_at(step) % own];
                part[i][step] = make_uint4(bw_forget(is_own ? mine.x : 0), bw_forget(is_own ? mine.y : 0),
                                           bw_forget(is_own ? mine.z : 0), bw_forget(is_own ? mine.w : 0));
            }
            if constexpr (at::has_sums) {
#pragma unroll
                for (int turn = 0; turn < at::turns; turn++) {
                    float total[4] = {};
                    const uint32_t one[4] = {Weights::one, Weights::one, Weights::one, Weights::one};
#pragma unroll
                    for (int j = turn * at::per_factor; j < (turn + 1) * at::per_factor; j++) {
                        bw_multiply(total, one, loaded[j].x, loaded[j].y, TA());
                        bw_multiply(total, one, loaded[j].z, loaded[j].w, TA());
                    }
                    sum[i][turn][0] = total[0];
                    sum[i][turn][1] = total[1];
                }
            }
        }
    }
};

// Of a tile of 16 rows of B: a lane's are of rows r and r + 8 of it and of columns 2 c, 2 c + 1.
struct fused_sums {
    float total[4], part[2][4];  // of parts two: those of `ratio` have one of their own, and none waits for the other
};

// Adds a turn's sums to `total`.
template <typename Weights, int a_rows, int turn, typename Row>
BW_DEVICE void add_turn(const float (&a_sum)[2], const Row (&rows)[2], fused_sums &sums) {
    using at = fused_columns<Weights, a_rows>;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Row &row = rows[i / 2];
        float part = fmaf(sums.part[1][i], Weights::ratio, sums.part[0][i]);
        if constexpr (Weights::per_factor == 0) {
            sums.total[i] = part;
        } else {
            const int index = turn + (at::columns == 1 ? i % 2 : 0);
            if constexpr (Weights::has_offset) part = fmaf(-row.zero(index), a_sum[i % 2], part);
            sums.total[i] = fmaf(part, row.factor(index), sums.total[i]);
            if constexpr (Weights::has_mins) sums.total[i] = fmaf(-row.min_factor(index), a_sum[i % 2], sums.total[i]);
        }
    }
}

template <typename TA, typename Weights, int a_rows, int step, typename Row>
BW_DEVICE void add_steps(const activations<TA, Weights, a_rows> &a, Row (&rows)[2],
                         fused_sums (&sums)[fused_columns<Weights, a_rows>::a_tiles]) {
    using at = fused_columns<Weights, a_rows>;
    constexpr int group = at::group_at(step), turn = step / at::steps;
    uint32_t low[4], high[4];
    rows[0].template unpack<group>(low);
    rows[1].template unpack<group>(high);
    const uint32_t one[4] = {low[0], high[0], low[1], high[1]}, two[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
    for (int i = 0; i < at::a_tiles; i++) {
        if constexpr (step % at::steps == 0) {
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i].part[0][j] = sums[i].part[1][j] = 0.0f;
        }
        // q4_k's groups are all of the first pairs' unit or all of the others'.
        constexpr bool upper = Weights::has_mins && group % 2 == 1;
        bw_multiply(sums[i].part[upper], one, a.part[i][step].x, a.part[i][step].y, TA());
        bw_multiply(sums[i].part[upper || !Weights::has_mins], two, a.part[i][step].z, a.part[i][step].w, TA());
        if constexpr ((step + 1) % at::steps == 0)
            add_turn<Weights, a_rows, turn>(a.sum[i][at::has_sums ? turn : 0], rows, sums[i]);
    }
    if constexpr (step + 1 < bw_tile_groups) add_steps<TA, Weights, a_rows, step + 1>(a, rows, sums);
}

// A NaN among a row's weights makes all of its sums one.
template <typename Row, int a_tiles>
BW_DEVICE void add_nan(const Row (&rows)[2], fused_sums (&sums)[a_tiles]) {
    constexpr uint32_t nan = 0x7e007e00u, one = 0x3c003c00u;
    const uint32_t found[4] = {rows[0].nan & bw_nan_bits ? nan : 0, rows[1].nan & bw_nan_bits ? nan : 0, 0, 0};
#pragma unroll
    for (int i = 0; i < a_tiles; i++) bw_multiply(sums[i].total, found, one, one, __half());
}

// The block's tiles of rows of B: blocks take turns, so that they read one stretch of memory at a time. The last tile
// ends with B, and may have rows of the one before it too.
struct row_share {
    int64_t first, step, last;
    int count;
    __device__ __forceinline__ row_share(const fused_shape &shape, int64_t block) {
        first = block * tile_rows;
        step = shape.blocks * tile_rows;
        last = shape.n - tile_rows;
        count = shape.row_tiles + (block < shape.more);
    }
    __device__ __forceinline__ int64_t row(int tile) const {
        return min(first + tile * step, last);
    }
};

// A warp's next tile of the block's: a batch's tiles of rows, these so many tiles further along K, then another batch.
struct tile_walk {
    int tile, rows, batch;
    __device__ __forceinline__ void go(int count, int tiles, int warp, int warps) {
        if (++rows < min(batch + batch_tiles, count)) return;
        tile += warps;
        if (tile >= tiles) {
            tile = warp;
            batch += batch_tiles;
        }
        rows = batch;
    }
};

// `a_rows`: at least as many as A has, and as many as leave no column empty.
template <typename TA, typename Weights, typename TD, int a_rows>
__global__ void __launch_bounds__(a_rows > tile_columns ? most_warps * 16 : most_warps * 32)
    gemm_fused_kernel(const TA *a, bw_weights_stored b, const TD *c, TD *d, fused_shape shape) {
    using at = fused_columns<Weights, a_rows>;
    constexpr int chunks = tile_rows * Weights::chunks, copies = (chunks + 31) / 32;
    constexpr int tile_bytes = Weights::chunks * 16;
    constexpr bool whole_rows = Weights::chunks % 8 != 0;  // blocks lie at multiples of 16 bytes in these alone
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, tiles = shape.tiles;
    const bool whole = whole_rows || shape.k % bw_tile_weights == 0;
    const row_share share(shape, take_rows<most_rows>(a, c, d, shape));
    unsigned char *own = bw_dynamic_shared() + warp * stages * at::stage_bytes;
    using kept_sums = typename at::kept_sums;
    kept_sums *all_sums = (kept_sums *)(bw_dynamic_shared() + warps * stages * at::stage_bytes);
    unsigned char *own_a = (unsigned char *)(all_sums + warps * at::sums) + warp * shape.m * a_row_bytes;

    // The lane's first factor of a tile, and where a row's scales and zero points are.
    const int first = (at::columns == 1 ? in_quad * 2 : in_quad * 2 / at::columns) * at::turns;
    const int first_scale = Weights::per_factor == 0 ? 0 : first * (Weights::scale_bytes / at::factors);
    const int row_scales = shape.row_scales, row_zeros = shape.row_zeros;
    const bool whole_zeros = row_zeros % 4 == 0;

    const auto row_of = [&](int i) { return (lane + 32 * i) / Weights::chunks; };
    const auto column_of = [&](int i) { return (lane + 32 * i) % Weights::chunks * 16; };
    constexpr bool dense = Weights::pitch == Weights::chunks * 16;
    int from[copies], to[copies];
#pragma unroll
    for (int i = 0; i < copies; i++) {
        from[i] = row_of(i) * shape.row_bytes + column_of(i);
        to[i] = dense ? (lane + 32 * i) * 16 : row_of(i) * Weights::pitch + column_of(i);
    }
    tile_walk to_copy = {warp, 0, 0};
    const auto copy_next = [&](unsigned slot) {
        if (to_copy.rows < share.count) {
            const int column = to_copy.tile * tile_bytes;
            const int64_t row = share.row(to_copy.rows);
            const unsigned char *begin = b.bytes + row * shape.row_bytes + column;
            unsigned char *stage = own + slot * at::stage_bytes;
#pragma unroll
            for (int i = 0; i < copies; i++) {
                const bool there = whole_rows || column_of(i) < shape.row_bytes - column;
                if (chunks % 32 == 0 || i + 1 < copies || lane < chunks % 32)
                    bw_copy_async(stage + to[i], begin + from[i], there);
            }
            if constexpr (Weights::scale_bytes > 0) {
                const int64_t of_row = row + lane % tile_rows;
                const int scale = to_copy.tile * Weights::scale_bytes, zero = to_copy.tile * Weights::zero_bytes;
                if (lane < tile_rows) {
                    bw_copy_raw<Weights::scale_bytes, Weights::scale_unit>(stage + lane * Weights::pitch + tile_bytes,
                                                                           b.scale + of_row * row_scales + scale, whole,
                                                                           row_scales - scale);
                } else if (Weights::zero_bytes > 0) {
                    bw_copy_raw<4, 1>(stage + at::zeros_at + (lane - tile_rows) * 4,
                                      b.zero + of_row * row_zeros + (whole_zeros ? zero & ~3 : zero), whole_zeros,
                                      row_zeros - zero);
                }
            }
            to_copy.go(share.count, tiles, warp, warps);
        }
        bw_copy_commit();
    };

    unsigned slot = 0;
#pragma unroll 1
    for (int batch = 0; batch < share.count; batch += batch_tiles) {
        const int end = min(batch + batch_tiles, share.count);
        if (batch > 0) __syncthreads();  // the sums' memory is free
#pragma unroll 1
        for (int tile = warp; tile < tiles; tile += warps) {
            activations<TA, Weights, a_rows> act;
            if (batch == 0 && tile == warp) {
                activations<TA, Weights, a_rows>::copy(own_a, a, shape, tile, lane);  // not to queue behind weights
                bw_copy_commit();
#pragma unroll
                for (int s = 0; s + 1 < stages; s++) copy_next(s);
                bw_copy_wait<stages - 1>();
            } else if (end - batch < stages) {
                bw_copy_wait<0>();
            }
            __syncwarp();
            act.load(own_a, shape, tile, lane);
            __syncwarp();
            // The next one comes with the next weights.
            const int next = tile + warps < tiles ? tile + warps : batch + batch_tiles < share.count ? warp : tile;
            if (next != tile) activations<TA, Weights, a_rows>::copy(own_a, a, shape, next, lane);
            act.arrange(lane);
            const int zero_bits = (whole_zeros ? tile * Weights::zero_bytes % 4 * 8 : 0) + first * 4;
#pragma unroll 1
            for (int t = batch; t < end; t++) {
                copy_next((slot + stages - 1) % stages);
                bw_copy_wait<stages - 1>();
                __syncwarp();
                const unsigned char *stage = own + slot * at::stage_bytes;
                using words = std::conditional_t<(Weights::words > 0), bw_words<Weights::words>, const unsigned char *>;
                using row = typename Weights::template row<at::count, words>;
                row rows[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int in_tile = quad + 8 * i;
                    const unsigned char *from = stage + in_tile * Weights::pitch;
                    bw_raw<at::zero_bytes> zero = {};
                    if constexpr (Weights::zero_bytes > 0)
                        zero.word[0] = *(const uint32_t *)(stage + at::zeros_at + in_tile * 4) >> zero_bits;
                    rows[i] = {row::begin(from, bw_shared_raw<at::scale_bytes>(from + tile_bytes + first_scale), zero,
                                          in_quad, first)};
                }
                if constexpr (Weights::words > 0) {
                    constexpr int head = (Weights::chunks - Weights::words) * 16;
                    bw_words_shared(stage + head, Weights::pitch, lane, rows[0].from, rows[1].from);
                }
                fused_sums sums[at::a_tiles] = {};
                add_steps<TA, Weights, a_rows, 0>(act, rows, sums);
                if constexpr (Weights::has_nan) add_nan(rows, sums);
                kept_sums *mine = all_sums + ((t - batch) * warps + warp) * at::a_tiles * 32 + lane;
#pragma unroll
                for (int i = 0; i < at::a_tiles; i++) {
                    const float *total = sums[i].total;
                    kept_sums out = tile == warp ? kept_sums{} : mine[i * 32];
#pragma unroll
                    for (int j = 0; j < at::kept; j++)
                        out.of[j] += at::kept == 2 ? total[2 * j] + total[2 * j + 1] : total[j];
                    mine[i * 32] = out;
                }
                __syncwarp();
                slot = (slot + 1) % stages;
            }
        }

        __syncthreads();
#pragma unroll 1
        for (int t = batch + warp; t < end; t += warps) {
            const int64_t row0 = share.row(t);
#pragma unroll
            for (int i = 0; i < at::a_tiles; i++) {
                float total[at::kept] = {};
#pragma unroll 4
                for (int other = 0; other < warps; other++) {
                    const kept_sums one = all_sums[(((t - batch) * warps + other) * at::a_tiles + i) * 32 + lane];
#pragma unroll
                    for (int j = 0; j < at::kept; j++) total[j] += one.of[j];
                }
#pragma unroll
                for (int j = 0; j < at::kept; j++) {
                    if (at::columns <= 2) total[j] += __shfl_xor_sync(bw_all_lanes, total[j], 1);
                    if (at::columns <= 4) total[j] += __shfl_xor_sync(bw_all_lanes, total[j], 2);
                    const int pair = at::kept / 2;  // of columns
                    const int64_t row = row0 + quad + j / pair * 8;
                    const int a_row = i * tile_columns + in_quad * 2 + j % pair;
                    if (a_row >= min(shape.m, i * tile_columns + at::columns)) continue;
                    float sum = total[j] * Weights::unit;
                    if constexpr (Weights::last == BW_LAST_ROW) sum *= __ldg((const float *)b.scale + row);
                    if constexpr (Weights::last == BW_LAST_WHOLE) sum *= __ldg(b.whole_scale);
                    const int64_t out = a_row * shape.n + row;
                    bw_from_float(sum + (c ? bw_to_float(c[out]) : 0.0f), &d[out]);
                }
            }
        }
    }
}

// Rows of any length: a warp a row, element by element.
template <typename TA, typename Weights, typename TD>
__global__ void __launch_bounds__(scalar_warps * 32)
    gemm_scalar_kernel(const TA *a, bw_weights_stored b, const TD *c, TD *d, fused_shape shape) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = take_rows<scalar_rows>(a, c, d, shape) * scalar_warps + threadIdx.x / 32;
    if (row >= shape.n) return;
    float sum[scalar_rows] = {};
    for (int64_t at = lane; at < shape.k; at += 32) {
        const float weight = Weights::element(b, row, at, shape.k);
#pragma unroll
        for (int m = 0; m < scalar_rows; m++) {
            if (m < shape.m) sum[m] = fmaf(bw_to_float(a[(int64_t)m * shape.k + at]), weight, sum[m]);
        }
    }
#pragma unroll
    for (int m = 0; m < scalar_rows; m++) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum[m] += __shfl_xor_sync(bw_all_lanes, sum[m], offset);
        const int64_t at = (int64_t)m * shape.n + row;
        if (lane == 0 && m < shape.m) bw_from_float(sum[m] + (c ? bw_to_float(c[at]) : 0.0f), &d[at]);
    }
}

template <typename T>
using kernel = void (*)(const T *, bw_weights_stored, const T *, T *, fused_shape);

template <typename T>
bw_status choose(kernel<T> function, int64_t blocks, int warps, size_t shared_bytes, const fused_shape &shape,
                 bool adds, const bw_scaling *scales, bw_cuda_launch_spec *out) {
    bw_cuda_kernel *chosen = bw_choose(out, function, dim3((unsigned)blocks), dim3((unsigned)warps * 32), shared_bytes,
                                       bw_from_operand(BW_GEMM_A), bw_weights_stored{},
                                       bw_from_operand_if(adds, BW_GEMM_C), bw_from_operand(BW_GEMM_D), shape);
    place_weights(chosen, 1, scales);
    return BW_OK;
}

// How a launch is shared out: warps of a block, and of a multiprocessor. Which is best depends on shape and device:
// `prepare` times them. The first is a guess for single launches.
struct fused_plan {
    int warps, resident_warps;
};
constexpr fused_plan all_plans[] = {{16, 16}, {8, 8}, {8, 16}, {4, 16}};
constexpr int plan_count = sizeof all_plans / sizeof *all_plans;

template <typename Weights, int a_rows>
bw_status choose_blocks(const fused_plan &plan, fused_shape shape, bool adds, const bw_scaling *scales,
                        const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    using at = fused_columns<Weights, a_rows>;
    const int64_t tiles = bw_ceil_div(shape.k, bw_tile_weights), row_tiles = bw_ceil_div(shape.n, tile_rows);
    const int64_t bytes = stages * at::stage_bytes + at::sums * sizeof(typename at::kept_sums) +
                          bw_min64(shape.m, most_rows) * a_row_bytes;
    const int64_t most =
        bw_min64(a_rows > tile_columns ? most_warps / 2 : most_warps, facts->own->shared_bytes / bytes);
    const int64_t turns = bw_ceil_div(tiles, bw_min64(bw_min64(plan.warps, most), tiles));
    const int64_t warps = bw_ceil_div(tiles, turns);
    const int64_t resident = bw_max64(1, plan.resident_warps / (a_rows > tile_columns ? 2 : 1) / warps);
    const int64_t blocks = bw_min64(row_tiles, facts->units * resident);
    const int64_t factors = bw_ceil_div(shape.k, at::per_factor * bw_group_weights);
    shape.row_scales = (int)(Weights::per_factor == 0 ? bw_ceil_div(shape.k * Weights::scale_bytes, bw_tile_weights)
                                                      : factors * (Weights::scale_bytes / at::factors));
    shape.row_zeros = (int)bw_ceil_div(factors, 2);
    shape.tiles = (int)tiles;
    shape.blocks = blocks;
    shape.row_tiles = (int)(row_tiles / blocks);
    shape.more = (int)(row_tiles % blocks);
    using T = typename Weights::activation;
    return choose<T>(gemm_fused_kernel<T, Weights, T, a_rows>, blocks * bw_ceil_div(shape.m, most_rows), (int)warps,
                     (size_t)(warps * bytes), shape, adds, scales, out);
}

template <typename Weights, int a_rows, typename... Arguments>
bw_status choose_rows(const fused_plan &plan, const fused_shape &shape, Arguments... arguments) {
    constexpr int least = tile_columns / fused_columns<Weights, tile_columns>::factors;
    if constexpr (a_rows < most_rows) {
        if (a_rows < least || shape.m > a_rows)
            return choose_rows<Weights, (a_rows < least ? least : a_rows * 2)>(plan, shape, arguments...);
    }
    if constexpr (a_rows >= least) return choose_blocks<Weights, a_rows>(plan, shape, arguments...);
    return BW_OK;
}

fused_shape shape_of(const bw_dims *dims, const bw_precision *precision) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    fused_shape shape = {};
    shape.m = (int)m, shape.k = (int)k, shape.n = n, shape.row_bytes = (int)bw_dtype_bytes(precision->weight, k);
    return shape;
}

}  // namespace

const char *bw_scalar_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N];
    if (!bw_cuda_grid_fits(bw_ceil_div(n, scalar_warps) * bw_ceil_div(m, scalar_rows)))
        return "a block for 8 rows of A and 4 of B: at most 2^31 - 1 of them";
    if (dims->value[BW_GEMM_K] > most_elements) return "scalar and fused take rows of at most 2^25 elements";
    return nullptr;
}

bw_status bw_scalar_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                           bw_cuda_launch_spec *out) {
    const bool adds = dims->value[BW_GEMM_BETA] != 0;
    return by_weights(precision, [&](auto tag) {
        using Weights = typename decltype(tag)::type;
        const fused_shape shape = shape_of(dims, precision);
        const int64_t blocks = bw_ceil_div(shape.n, scalar_warps) * bw_ceil_div(shape.m, scalar_rows);
        using T = typename Weights::activation;
        return choose<T>(gemm_scalar_kernel<T, Weights, T>, blocks, scalar_warps, 0, shape, adds,
                         precision->weight_scales, out);
    });
}

const char *bw_fused_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const char *reason = bw_scalar_refuses(dims, precision, facts);
    if (reason) return reason;
    const int64_t k = dims->value[BW_GEMM_K];
    if (dims->value[BW_GEMM_N] < tile_rows) return "fused takes at least 16 rows of B";
    const bool in_blocks = precision->id == BW_PRECISION_Q4_0 || precision->id == BW_PRECISION_Q8_0;
    if ((in_blocks || precision->id == BW_PRECISION_Q4_K) && k % bw_tile_weights != 0)
        return "fused takes rows of a multiple of 256 elements, whose bytes are a multiple of 16";
    if (k % bw_group_weights != 0) return "fused takes rows of a multiple of 32 elements";
    return nullptr;
}

namespace {

bw_status choose_fused(const bw_dims *dims, const bw_precision *precision, const fused_plan &plan,
                       const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    const bool adds = dims->value[BW_GEMM_BETA] != 0;
    return by_weights(precision, [&](auto tag) {
        using Weights = typename decltype(tag)::type;
        return choose_rows<Weights, 1>(plan, shape_of(dims, precision), adds, precision->weight_scales, facts, out);
    });
}

// What a search for the fastest plan works with.
struct plan_search {
    const bw_launch *sets;
    int64_t set_count;
    bw_cuda_launch_spec spec;  // of the candidate that is timed
};

bw_status ready_plan(void *context, int candidate, int64_t, int) {
    plan_search *self = (plan_search *)context;
    self->spec = {};
    const bw_launch &launch = self->sets[0];
    BW_TRY(choose_fused(launch.dims, launch.precision, all_plans[candidate], &launch.device->facts, &self->spec));
    return bw_cuda_prepare_spec(self->sets, self->set_count, &self->spec);
}

bw_status enqueue_plan(void *context, int, int64_t launch) {
    plan_search *self = (plan_search *)context;
    bw_launch set = self->sets[launch % self->set_count];
    set.state = &self->spec;
    return bw_cuda_prepared_launch(&set);
}

bw_status fused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                       bw_cuda_launch_spec *out) {
    return choose_fused(dims, precision, all_plans[0], facts, out);
}

}  // namespace

bw_status bw_fused_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, fused_choose, out);
}

// Of one row, Q4_0 repacked is no faster on an H100 and a tenth slower on an H200.
bool bw_fused_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return precision->id == BW_PRECISION_Q4_0 && dims->value[BW_GEMM_M] == 1;
}

bw_status bw_fused_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    plan_search search = {sets, set_count, {}};
    const bw_search_calls calls = {ready_plan, enqueue_plan, &search};
    int best = 0;
    uint64_t key = bw_plan_key_mix(BW_PLAN_KEY, sets[0].precision->id);
    for (int i = 0; i < 4; i++) key = bw_plan_key_mix(key, sets[0].dims->value[i]);
    BW_TRY(bw_cuda_choose_plan(sets, set_count, key, &calls, plan_count, &best));
    BW_TRY(ready_plan(&search, best, 0, 0));
    bw_cuda_launch_spec *spec = (bw_cuda_launch_spec *)malloc(sizeof *spec);
    if (!spec) return bw_fail(BW_CODE_MEMORY, "out of host memory for a prepared launch");
    *spec = search.spec;
    *state = spec;
    return BW_OK;
}
