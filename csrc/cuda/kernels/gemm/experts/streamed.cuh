// moe_gemm with few tokens an expert, weights of 16, 8 or 4 bits, activations of 16 or 8: one launch for all experts,
// whose time is that of reading the weights of those that have tokens once.
//   - as many blocks as run at once walk over tiles: up to 16 rows of D of an expert with 16 to 64 rows of its B. Which
//     these are each warp finds from the offsets (routing.cuh). Where B's rows are no multiple of that, the last tile
//     begins earlier and repeats some of the one before;
//   - a block's warps share a tile's columns: each takes every `warps`-th piece of 256 and copies it asynchronously,
//     B as it lies and A by the routing, into a ring of its own in shared memory. The ring goes on into the next tile
//     while this one is in use, so that the memory does not wait for a tile's end. What the warp will find where is
//     written down beside the ring;
//   - instructions decide for narrow weights: B's rows are the 16 rows of m16n8k16, A's rows its 8 columns, weights
//     become pairs of FP16 or BF16 as the formats say (narrow/weights.cuh), and several tiles of 16 rows share what is
//     done for A. A zero point or a minimum times the sum of A is taken off at the end of what shares a factor: that
//     sum is one more product, of A with ones, for all of them;
//   - A comes through L1, which B passes by: from L2 each tile's copies would wait behind all others' of the same few
//     lines (that took a tenth of the time of 8-bit weights). Scales are copied once a tile, or with each piece;
//   - activations of 8 bits meet weights of 8 bits as they are, in m16n8k32.
#pragma once

#include "cuda/kernels/gemm/eight/types.cuh"
#include "cuda/kernels/gemm/experts/experts.h"
#include "cuda/kernels/gemm/experts/routing.cuh"
#include "cuda/kernels/gemm/narrow/operands.cuh"

namespace {

constexpr int a_tile_rows = 8, tile_rows = 16;  // of A and of B, for one instruction of tensor cores
constexpr int most_rows = 16;                   // of D in a tile
constexpr int most_tile_rows = 64;              // of B in a tile
constexpr int most_warps = 8, most_stages = 4;
constexpr int64_t most_k = 1 << 20, most_n = 1 << 30;
constexpr int64_t ring_bytes = 14 * 1024, most_shared_bytes = 99 * 1024, resident_shared_bytes = 220 * 1024;

// Weights of 16 bits, as activations are: nothing is to be unpacked.
struct half_weights : bw_weights {
    static constexpr bw_order order = BW_ORDER_RUN;
    static constexpr int chunks = 32, pitch = 576;
    template <int>
    struct row {
        const unsigned char *from;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<0>, bw_raw<0>, int lane, int) {
            return {tile + lane * 16};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            const uint4 four = *(const uint4 *)(from + group * 64);
            out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
        }
    };
};

// Weights of 8 bits that activations of 8 bits meet; `grouped`: each 128 of K have scales of their own. A lane's 16
// bytes are of two groups of 32.
template <bool grouped>
struct eight_weights : bw_weights {
    static constexpr bw_order order = BW_ORDER_RUN;
    static constexpr int chunks = 16, pitch = 320, activation_bytes = 1, per_factor = grouped ? 4 : 0;
    static constexpr int scale_bytes = grouped ? 8 : 0, scale_rows = grouped ? bw_scaled_block : 1;
    static constexpr bw_last_factor last = grouped ? BW_LAST_NONE : BW_LAST_ROW;
    template <int>
    struct row {
        const unsigned char *from;
        bw_raw<scale_bytes> scales;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<scale_bytes> scales, bw_raw<0>, int lane, int) {
            return {tile + lane * 16, scales};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            const uint4 four = *(const uint4 *)(from + group / 2 * 64);
            out[0] = group % 2 ? four.z : four.x, out[1] = group % 2 ? four.w : four.y;
        }
        __device__ __forceinline__ float factor(int i) const {
            return __uint_as_float(scales.word[i]);
        }
    };
};

// Groups of a piece that share a factor, or all; a row of a piece, with all of its factors.
template <typename Weights>
constexpr int groups_of = Weights::per_factor == 0 ? bw_tile_groups : Weights::per_factor;
template <typename TA>
using sum_of = typename bw_gemm_types<TA>::sum;
template <typename Weights>
using row_of = typename Weights::template row<bw_tile_groups / groups_of<Weights>>;

struct streamed_shape {
    int64_t n;
    int k, row_bytes, experts, column_tiles;
    int row_lines;           // 128 bytes each, of row numbers
    int a_scales, b_scales;  // of a row of A and of one of B: 1, or groups of K; 0 where all rows share one
};

// `count` rows of D from `first` on with rows of B from row0 on, that matrix having those of all experts; they are
// columns from `column` on. count 0: there are no more tiles.
struct expert_tile {
    int64_t row0, column;
    int first, count;
};

// What a warp's shared memory holds, for up to `a_rows` rows of D and `row_tiles` times 16 of B. A's rows lie at a
// distance that puts what is read at once in different banks. There are just enough stages to have one under way: more
// warps hide more of each other's waits.
template <typename Weights, int a_rows, int row_tiles>
struct ring {
    // Of a multiprocessor, whose registers they share.
    static constexpr int resident_warps = a_rows > 8 || row_tiles > 2 ? 8 : 16;
    static constexpr bool runs = Weights::order == BW_ORDER_RUN || Weights::order == BW_ORDER_RUN_NIBBLES;
    static constexpr int rows = row_tiles * tile_rows, a_tiles = (a_rows + a_tile_rows - 1) / a_tile_rows;
    static constexpr bool eight = Weights::activation_bytes == 1;
    static constexpr int a_bytes = bw_tile_weights * Weights::activation_bytes, a_pitch = a_bytes + (runs ? 64 : 32);
    static constexpr bool row_scales = Weights::last == BW_LAST_ROW;
    // Scales of a row of A in a piece.
    static constexpr int factors = eight && Weights::per_factor != 0 ? bw_tile_groups / Weights::per_factor : 0;
    static constexpr int b_bytes = rows * Weights::pitch, scales_at = b_bytes + a_rows * a_pitch;
    static constexpr int stage_bytes = scales_at + a_rows * factors * (int)sizeof(float);
    static constexpr int wanted = (int)(ring_bytes / stage_bytes);
    static constexpr int stages = wanted < 2 ? 2 : wanted > most_stages ? most_stages : wanted;
    static constexpr int sums = a_rows * rows;  // of a tile, twice: the next one's while these are added up
    static constexpr int bytes = stages * (stage_bytes + (int)sizeof(expert_tile)) + 2 * sums * (int)sizeof(float);
    // Also shared by a block: scales of rows of B and of A, of the tiles under way and the one that is added up.
    static constexpr int tile_scales = row_scales ? rows + (eight ? a_rows : 0) : 0;
    static constexpr int scales_bytes = (stages + 1) * tile_scales * (int)sizeof(float);
};

// ---- products ----

template <bw_order order, bool eight>
BW_DEVICE uint4 read_activations(const unsigned char *row, int group, int in_quad) {
    if constexpr (eight) {
        const uint4 four = *(const uint4 *)(row + group / 2 * 64 + in_quad * 16);
        return group % 2 ? make_uint4(four.z, four.w, 0, 0) : four;
    } else if constexpr (order == BW_ORDER_RUN || order == BW_ORDER_RUN_NIBBLES) {
        return order_activations<order>(*(const uint4 *)(row + group * 64 + in_quad * 16));
    }
    const unsigned char *from = row + group * 64 + in_quad * 8;
    const uint2 low = *(const uint2 *)from, high = *(const uint2 *)(from + 32);
    return order_activations<order>(make_uint4(low.x, low.y, high.x, high.y));
}

// Of one tile of 16 rows of B with 8 of A: a lane's are of rows r and r + 8 of the former and of rows 2 c, 2 c + 1 of
// the latter.
template <typename Sum>
struct piece_sums {
    float total[4];
    Sum part[2][4];  // of what shares a factor: the first two pairs of each group, those of `ratio`
};

// At the end of what shares a factor. `of_a`: the sum of A, or its scales where it has 8 bits.
template <typename Weights, int group, typename Sum>
BW_DEVICE void take_factor(const row_of<Weights> (&rows)[2], const float (&of_a)[4], piece_sums<Sum> &sums) {
    constexpr int index = group / Weights::per_factor;
    // q4_k's groups are all of the first pairs' unit or all of the others', and then of one part.
    constexpr float unit = Weights::has_mins && group % 2 == 1 ? Weights::ratio : 1.0f;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const row_of<Weights> &row = rows[i / 2];
        float part = (float)sums.part[0][i];
        if constexpr (Weights::activation_bytes == 1)
            part *= of_a[i];
        else if constexpr (!Weights::has_mins)
            part = fmaf(sums.part[1][i], Weights::ratio, part);
        if constexpr (Weights::has_offset) part = fmaf(-row.zero(index), of_a[i], part);
        sums.total[i] = fmaf(part, unit * row.factor(index), sums.total[i]);
        if constexpr (Weights::has_mins) sums.total[i] = fmaf(-row.min_factor(index), of_a[i], sums.total[i]);
    }
}

// A piece from its group `group` on. `a`: the lane's row of A; `a_factors`: scales of all of them.
template <typename TA, typename Weights, int a_rows, int row_tiles, int group>
BW_DEVICE void add_groups(const unsigned char *a, const float *a_factors, int in_quad,
                          row_of<Weights> (&rows)[row_tiles][2],
                          piece_sums<sum_of<TA>> (&sums)[ring<Weights, a_rows, row_tiles>::a_tiles][row_tiles],
                          float (&of_a)[ring<Weights, a_rows, row_tiles>::a_tiles][4]) {
    using layout = ring<Weights, a_rows, row_tiles>;
    constexpr int shared = Weights::per_factor, each = groups_of<Weights>;
    constexpr bool begins = shared != 0 && group % each == 0, ends = shared != 0 && (group + 1) % each == 0;
    uint4 act[layout::a_tiles];
#pragma unroll
    for (int i = 0; i < layout::a_tiles; i++) {
        act[i] = read_activations<Weights::order, layout::eight>(a + i * a_tile_rows * layout::a_pitch, group, in_quad);
        if constexpr (layout::factors > 0 && ends) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int a_row = min(i * a_tile_rows + in_quad * 2 + j % 2, a_rows - 1);
                of_a[i][j] = a_factors[a_row * layout::factors + group / each];
            }
        }
        if constexpr (Weights::has_mins || Weights::has_offset) {
            const uint32_t ones[4] = {Weights::one, Weights::one, Weights::one, Weights::one};
#pragma unroll
            for (int j = 0; j < 4 && begins; j++) of_a[i][j] = 0.0f;
            bw_multiply(of_a[i], ones, act[i].x, act[i].y, TA());
            bw_multiply(of_a[i], ones, act[i].z, act[i].w, TA());
        }
    }
#pragma unroll
    for (int t = 0; t < row_tiles; t++) {
        uint32_t low[4], high[4];
        rows[t][0].template unpack<group>(low);
        rows[t][1].template unpack<group>(high);
        const uint32_t one[4] = {low[0], high[0], low[1], high[1]}, two[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
        for (int i = 0; i < layout::a_tiles; i++) {
#pragma unroll
            for (int j = 0; j < 4 && begins; j++) sums[i][t].part[0][j] = sums[i][t].part[1][j] = 0.0f;
            bw_multiply(sums[i][t].part[0], one, act[i].x, act[i].y, TA());
            if constexpr (!layout::eight)
                bw_multiply(sums[i][t].part[!Weights::has_mins], two, act[i].z, act[i].w, TA());
            if constexpr (ends) take_factor<Weights, group>(rows[t], of_a[i], sums[i][t]);
        }
    }
    if constexpr (group + 1 < bw_tile_groups)
        add_groups<TA, Weights, a_rows, row_tiles, group + 1>(a, a_factors, in_quad, rows, sums, of_a);
}

// ---- copies ----

// A warp's way through its tiles' pieces, as it copies them.
template <typename TA, typename Weights, int a_rows, int row_tiles>
struct copier {
    using layout = ring<Weights, a_rows, row_tiles>;
    const TA *a;
    const float *a_scale;
    const int *rows, *offsets;
    bw_weights_stored b;
    streamed_shape shape;
    unsigned char *stages;
    expert_tile *found;  // of each tile that is under way
    float *row_scales;   // of tiles under way, shared by all warps
    int warp, warps, lane;
    int part, column;  // of the next tile
    int step, next_found, next_scales;
    int token, count;  // of row `lane` of the tile; rows that it has
    int64_t row0;      // of B
    const unsigned char *from,
        *extra;  // the lane's first chunk of the piece, and its last one of those beyond a power of 2

    // Chunks of a row, but for one more that some formats have.
    static constexpr int whole = Weights::chunks / 2 * 2, at_once = 32 / whole;
    static constexpr int a_chunks = layout::a_bytes / 16, a_at_once = 32 / a_chunks;
    static_assert(32 % whole == 0 && a_rows % a_at_once == 0, "a warp copies whole rows at once");

    __device__ __forceinline__ void begin_tile() {
        const bw_expert_part at = bw_find_part<a_rows>(offsets, shape.experts, part, lane);
        const int64_t first_column = min((int64_t)column * layout::rows, shape.n - layout::rows);
        row0 = at.expert * shape.n + first_column;
        if (lane == 0) found[next_found] = {row0, first_column, at.first, at.count};
        next_found = next_found + 1 == layout::stages ? 0 : next_found + 1;
        count = at.count;
        if (count == 0) return;
        token = lane < count ? __ldg(rows + at.first + lane) : 0;
        const unsigned char *piece = b.bytes + row0 * shape.row_bytes + warp * (Weights::chunks * 16);
        from = piece + lane / whole * shape.row_bytes + lane % whole * 16;
        extra = piece + lane * shape.row_bytes + whole * 16;
        prefetch_rows<Weights::scale_bytes>(b.scale, row0);
        prefetch_rows<Weights::zero_bytes>(b.zero, row0);
        column += (int)gridDim.x;
        part += column / shape.column_tiles;
        column %= shape.column_tiles;
    }

    // Copies the scales that a tile's sums take at its end.
    __device__ __forceinline__ void copy_scales() {
        float *to = row_scales + next_scales * layout::tile_scales;
        for (int i = lane; i < layout::rows; i += 32)
            bw_copy_async_shared<4>(to + i, (const float *)b.scale + (row0 + i) * shape.b_scales);
        if (layout::eight && lane < count)
            bw_copy_async_shared<4>(to + layout::rows + lane, a_scale + (int64_t)token * shape.a_scales);
        next_scales = next_scales == layout::stages ? 0 : next_scales + 1;
    }

    // Scales are read one piece ahead: they are in L2 by then. A tile's lie behind each other.
    template <int bytes>
    __device__ __forceinline__ void prefetch_rows(const unsigned char *scales, int64_t row0) {
        constexpr int line = 128, each = Weights::scale_rows;
        const int row_bytes = shape.k / bw_tile_weights * bytes;
        const unsigned char *begin = scales + row0 / each * row_bytes;
        const int count = each == 1 ? layout::rows : (int)(row0 % each + layout::rows - 1) / each + 1;
        for (int i = (warp * 32 + lane) * line; i < count * row_bytes; i += warps * 32 * line)
            asm volatile("prefetch.global.L2 [%0];" ::"l"(begin + i));
    }

    // One piece, into stage `slot`.
    __device__ __forceinline__ void copy(int slot) {
        const bool begins = step == warp;
        if (count > 0 && begins) begin_tile();
        if (count > 0) {
            unsigned char *stage = stages + slot * layout::stage_bytes;
            unsigned char *to = stage + lane / whole * Weights::pitch + lane % whole * 16;
#pragma unroll
            for (int i = 0; i < layout::rows / at_once; i++)
                bw_copy_async(to + i * at_once * Weights::pitch, from + (int64_t)i * at_once * shape.row_bytes, true);
            if constexpr (whole != Weights::chunks) {
#pragma unroll
                for (int i = 0; i < layout::rows; i += 32) {
                    if (layout::rows % 32 == 0 || lane < layout::rows % 32)
                        bw_copy_async(stage + (lane + i) * Weights::pitch + whole * 16,
                                      extra + (int64_t)i * shape.row_bytes, true);
                }
            }
            const TA *a_from = a + step * bw_tile_weights + lane % a_chunks * (16 / (int)sizeof(TA));
#pragma unroll
            for (int i = 0; i < a_rows; i += a_at_once) {
                const int row = i + lane / a_chunks, of_row = __shfl_sync(bw_all_lanes, token, row);
                if (row < count)
                    bw_copy_async_shared<16>(stage + layout::b_bytes + row * layout::a_pitch + lane % a_chunks * 16,
                                             a_from + (int64_t)of_row * shape.k);
            }
            if constexpr (layout::factors > 0) {
                constexpr int factors = layout::factors;
                if (lane < count)
                    bw_copy_async_shared<factors * 4>(stage + layout::scales_at + lane * factors * 4,
                                                      a_scale + (int64_t)token * shape.a_scales + step * factors);
            }
            if (layout::row_scales && begins && warp == 0) copy_scales();
            from += warps * (Weights::chunks * 16);
            extra += warps * (Weights::chunks * 16);
            step += warps;
            if (step * bw_tile_weights >= shape.k) step = warp;
        }
        bw_copy_commit();
    }
};

// The scales and zero points of a lane's rows: of the next piece, and where they are.
template <typename Weights, int row_tiles>
struct piece_scales {
    bw_raw<Weights::scale_bytes> scale[row_tiles][2];
    bw_raw<Weights::zero_bytes> zero[row_tiles][2];
    const unsigned char *scale_from, *zero_from;
    int first;  // the lane's first row, among those that share scales

    __device__ __forceinline__ void begin_tile(const bw_weights_stored &b, const expert_tile &tile, int pieces,
                                               int step, int quad) {
        const int64_t piece = (tile.row0 + quad) / Weights::scale_rows * pieces + step;
        first = (int)((tile.row0 + quad) % Weights::scale_rows);
        scale_from = b.scale + piece * Weights::scale_bytes;
        zero_from = b.zero + piece * Weights::zero_bytes;
    }

    template <int bytes, int unit>
    BW_DEVICE bw_raw<bytes> load(const unsigned char *from, int piece) {
        return bw_load_raw<bytes, unit>(from + piece * bytes, true, bytes);
    }

    // Loads, then goes on by `warps` pieces.
    __device__ __forceinline__ void load(int pieces, int warps) {
        if constexpr (Weights::scale_bytes > 0) {
#pragma unroll
            for (int i = 0; i < 2 * row_tiles; i++) {
                const int piece = (first + 8 * i) / Weights::scale_rows * pieces;
                scale[i / 2][i % 2] = load<Weights::scale_bytes, Weights::scale_unit>(scale_from, piece);
                zero[i / 2][i % 2] = load<Weights::zero_bytes, 1>(zero_from, piece);
            }
            scale_from += warps * Weights::scale_bytes;
            zero_from += warps * Weights::zero_bytes;
        }
    }
};

// Of a sum of row `row` of a tile of B and row `a_row` of A.
template <typename Weights, typename layout>
BW_DEVICE float last_factor_of(const bw_weights_stored &b, const float *row_scales, int row, int a_row) {
    if constexpr (layout::row_scales && layout::eight) return row_scales[row] * row_scales[layout::rows + a_row];
    if constexpr (layout::row_scales) return Weights::unit * row_scales[row];
    if constexpr (Weights::last == BW_LAST_WHOLE) return Weights::unit * __ldg(b.whole_scale);
    return Weights::unit;
}

// A warp's sums of a tile, for the others to add up.
template <typename Weights, int a_rows, int a_tiles, int row_tiles, typename Sum>
BW_DEVICE void store_sums(float *to, const piece_sums<Sum> (&sums)[a_tiles][row_tiles],
                          const uint32_t (&nan)[row_tiles][2], int quad, int in_quad) {
    constexpr int rows = row_tiles * tile_rows;
#pragma unroll
    for (int t = 0; t < row_tiles; t++) {
        bool is_nan[2] = {};
        if constexpr (Weights::has_nan) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t found = nan[t][i];
                found |= __shfl_xor_sync(bw_all_lanes, found, 1);
                found |= __shfl_xor_sync(bw_all_lanes, found, 2);
                is_nan[i] = (found & bw_nan_bits) != 0;
            }
        }
#pragma unroll
        for (int at = 0; at < a_tiles; at++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int a_row = at * a_tile_rows + in_quad * 2 + i % 2;
                float total = sums[at][t].total[i];
                if constexpr (Weights::per_factor == 0)
                    total = (float)(sums[at][t].part[0][i] + sums[at][t].part[1][i]);
                if (a_row < a_rows)
                    to[a_row * rows + t * tile_rows + quad + i / 2 * 8] =
                        is_nan[i / 2] ? __uint_as_float(0x7fffffffu) : total;
            }
        }
    }
}

// `a_rows`: rows of D in a tile, at most.
template <typename TA, typename Weights, int a_rows, int row_tiles>
__global__ void __launch_bounds__(most_warps * 32, ring<Weights, a_rows, row_tiles>::resident_warps / most_warps)
    moe_streamed_kernel(const TA *a, const float *a_scale, bw_weights_stored b, const int *rows, const int *offsets,
                        typename bw_gemm_types<TA>::result *d, streamed_shape shape) {
    using layout = ring<Weights, a_rows, row_tiles>;
    constexpr int a_tiles = layout::a_tiles;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, pieces = shape.k / bw_tile_weights;
    unsigned char *stages = bw_dynamic_shared() + warp * (layout::stages * layout::stage_bytes);
    unsigned char *behind = bw_dynamic_shared() + warps * (layout::stages * layout::stage_bytes);
    expert_tile *found = (expert_tile *)behind + warp * layout::stages;
    float *all_sums = (float *)(behind + warps * layout::stages * (int)sizeof(expert_tile));
    float *row_scales = all_sums + 2 * warps * layout::sums;

    // Row numbers are needed as soon as the offsets are known: both come at once.
    if (warp == 0 && lane < shape.row_lines) asm volatile("prefetch.global.L2 [%0];" ::"l"(rows + lane * 32));
    const int part = (int)blockIdx.x / shape.column_tiles, column = (int)blockIdx.x % shape.column_tiles;
    copier<TA, Weights, a_rows, row_tiles> copies = {
        a,    a_scale, rows,   offsets, b, shape, stages, found, row_scales, warp,    warps,
        lane, part,    column, warp,    0, 0,     0,      1,     0,          nullptr, nullptr};
#pragma unroll 1
    for (int s = 0; s + 1 < layout::stages; s++) copies.copy(s);
    __syncwarp();
    expert_tile tile = found[0];
    piece_scales<Weights, row_tiles> scales = {};
    if (tile.count > 0) {
        scales.begin_tile(b, tile, pieces, warp, quad);
        scales.load(pieces, warps);
    }
    int slot = 0, place = 0, turn = 0, scales_place = 0;
#pragma unroll 1
    while (tile.count > 0) {
        piece_sums<sum_of<TA>> sums[a_tiles][row_tiles] = {};
        float of_a[a_tiles][4] = {};
        uint32_t nan[row_tiles][2] = {};
        place = place + 1 == layout::stages ? 0 : place + 1;
        expert_tile next = tile;
#pragma unroll 1
        for (int step = warp; step < pieces; step += warps) {
            copies.copy(slot == 0 ? layout::stages - 1 : slot - 1);
            bw_copy_wait<layout::stages - 1>();
            __syncwarp();
            const unsigned char *stage = stages + slot * layout::stage_bytes;
            row_of<Weights> b_rows[row_tiles][2];
#pragma unroll
            for (int i = 0; i < 2 * row_tiles; i++) {
                b_rows[i / 2][i % 2] = {row_of<Weights>::begin(stage + (quad + 8 * i) * Weights::pitch,
                                                               scales.scale[i / 2][i % 2], scales.zero[i / 2][i % 2],
                                                               in_quad, 0)};
            }
            if (step + warps >= pieces) {
                next = found[place];
                if (next.count > 0) scales.begin_tile(b, next, pieces, warp, quad);
            }
            if (next.count > 0) scales.load(pieces, warps);
            add_groups<TA, Weights, a_rows, row_tiles, 0>(
                stage + layout::b_bytes + min(quad, a_rows - 1) * layout::a_pitch,
                (const float *)(stage + layout::scales_at), in_quad, b_rows, sums, of_a);
            if constexpr (Weights::has_nan) {
#pragma unroll
                for (int i = 0; i < 2 * row_tiles; i++) nan[i / 2][i % 2] |= b_rows[i / 2][i % 2].nan;
            }
            __syncwarp();
            slot = slot + 1 == layout::stages ? 0 : slot + 1;
        }
        float *tile_sums = all_sums + turn * warps * layout::sums;
        store_sums<Weights, a_rows>(tile_sums + warp * layout::sums, sums, nan, quad, in_quad);
        __syncthreads();
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < tile.count * layout::rows; i += (int)blockDim.x) {
            float sum = 0.0f;
#pragma unroll 4
            for (int other = 0; other < warps; other++) sum += tile_sums[other * layout::sums + i];
            const int row = i / layout::rows, column = i % layout::rows;
            const float *scales = row_scales + scales_place * layout::tile_scales;
            bw_from_float(sum * last_factor_of<Weights, layout>(b, scales, column, row),
                          &d[(int64_t)(tile.first + row) * shape.n + tile.column + column]);
        }
        scales_place = scales_place == layout::stages ? 0 : scales_place + 1;
        turn ^= 1;
        tile = next;
    }
    bw_copy_wait<0>();
}

int64_t rows_of_fullest(const bw_dims *dims) {
    const int64_t *value = dims->value;
    return bw_ceil_div(value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K], value[BW_MOE_ACTIVE]);
}

template <typename TA, typename Weights, int a_rows, int row_tiles>
bw_status choose_warps(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int warps,
                       bw_cuda_launch_spec *out) {
    using layout = ring<Weights, a_rows, row_tiles>;
    static_assert(layout::rows <= most_tile_rows, "what is refused");
    const int64_t *value = dims->value;
    const int64_t n = value[BW_MOE_N], k = value[BW_MOE_K], columns = bw_ceil_div(n, layout::rows);
    const streamed_shape shape = {
        n,
        (int)k,
        (int)bw_dtype_bytes(precision->weight, k),
        (int)value[BW_MOE_EXPERTS],
        (int)columns,
        (int)bw_ceil_div(value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K], 32),
        precision->activation_scales->columns ? (int)(k / bw_scaled_block) : precision->activation_scales->rows,
        precision->weight_scales->rows};
    warps = (int)bw_min64(warps, (most_shared_bytes - layout::scales_bytes) / layout::bytes);
    const int64_t block_bytes = warps * layout::bytes + layout::scales_bytes;
    const int64_t tiles = columns * value[BW_MOE_ACTIVE] * bw_ceil_div(rows_of_fullest(dims), a_rows);
    const int64_t resident = bw_min64(layout::resident_warps / warps, resident_shared_bytes / (block_bytes + 1024));
    bw_cuda_kernel *chosen =
        bw_choose(out, moe_streamed_kernel<TA, Weights, a_rows, row_tiles>,
                  dim3((unsigned)bw_min64(tiles, facts->units * bw_max64(resident, 1))), dim3((unsigned)warps * 32),
                  (size_t)block_bytes, bw_from_operand(BW_GEMM_A), bw_from_operand_if(layout::eight, BW_GEMM_A_SCALE),
                  bw_weights_stored{}, bw_from_operand(BW_MOE_ROWS), bw_from_operand(BW_MOE_OFFSETS),
                  bw_from_operand(BW_GEMM_D), shape);
    place_weights(chosen, 2, precision->weight_scales);
    return BW_OK;
}

template <typename TA, typename Weights, int a_rows, int row_tiles>
bw_status choose_tiles(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                       const bw_streamed_plan &plan, bw_cuda_launch_spec *out) {
    if constexpr (Weights::chunks >= 16 || a_rows <= 8) {
        if (!plan.taller) return choose_warps<TA, Weights, a_rows, row_tiles>(dims, precision, facts, plan.warps, out);
    }
    return choose_warps<TA, Weights, a_rows, 2 * row_tiles>(dims, precision, facts, plan.warps, out);
}

template <typename TA, typename Weights>
bw_status choose_rows(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                      const bw_streamed_plan &plan, bw_cuda_launch_spec *out) {
    constexpr int row_tiles = Weights::chunks < 16 ? 2 : 1;
    const int64_t rows = rows_of_fullest(dims);
    if (rows <= 4) return choose_tiles<TA, Weights, 4, row_tiles>(dims, precision, facts, plan, out);
    if (rows <= 8) return choose_tiles<TA, Weights, 8, row_tiles>(dims, precision, facts, plan, out);
    return choose_tiles<TA, Weights, most_rows, row_tiles>(dims, precision, facts, plan, out);
}

}  // namespace
