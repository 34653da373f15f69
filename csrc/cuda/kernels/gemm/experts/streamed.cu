// moe_gemm with few tokens an expert, weights of 16, 8 or 4 bits: one launch for all experts, whose time is that of
// reading the weights of those that have tokens once.
//   - as many blocks as run at once walk over tiles: up to 16 rows of D of an expert with 16 or 32 rows of its B. Which
//     these are each warp finds from the offsets (routing.cuh);
//   - a block's warps share a tile's columns: each takes every so-many-th piece of 256 and copies it asynchronously,
//     B as it lies and A by the routing, into a ring of its own in shared memory. The ring goes on into the next tile
//     while this one is in use, so that the memory never waits for a tile's end: short rows of small experts are no
//     slower than long ones. What the warp will find where is written down beside the ring;
//   - products are those of narrow/fused.cu: B's rows are the 16 rows of m16n8k16, A's rows its 8 columns.
#include <stdlib.h>

#include "cuda/kernels/gemm/experts/experts.h"
#include "cuda/kernels/gemm/experts/routing.cuh"
#include "cuda/kernels/gemm/narrow/products.cuh"
#include "cuda/libraries/plans.h"

namespace {

constexpr int a_tile_rows = 8, tile_rows = 16;  // of A and of B, for one instruction of tensor cores
constexpr int most_rows = 16;                   // of D in a tile
constexpr int most_warps = 8, most_stages = 4;
constexpr int64_t most_k = 1 << 20;
constexpr int64_t ring_bytes = 20 * 1024, most_shared_bytes = 99 * 1024, resident_shared_bytes = 220 * 1024;

// Weights of 16 bits, as activations are: nothing is to be unpacked.
struct half_weights : bw_weights {
    static constexpr bw_order order = BW_ORDER_RUN;
    static constexpr int chunks = 32, pitch = 576;
    struct row {
        const unsigned char *from;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<0>, bw_raw<0>, int lane) {
            return {tile + lane * 16};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) {
            const uint4 four = *(const uint4 *)(from + group * 64);
            out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
        }
    };
};

struct streamed_shape {
    int64_t n;
    int k, row_bytes, experts, column_tiles;
};

// Rows `first` to first + count - 1 of D with rows row0 to row0 + last of B, that matrix having those of all experts;
// they are columns from `column` on. count 0: there are no more tiles.
struct expert_tile {
    int64_t row0, column;
    int last, first, count, unused;
};

// What a warp's shared memory holds. A's rows lie at a distance that puts what is read at once in different banks.
template <typename Weights, int a_rows>
struct ring {
    static constexpr bool runs = Weights::order == BW_ORDER_RUN || Weights::order == BW_ORDER_RUN_NIBBLES;
    static constexpr int resident_warps = a_rows > 8 ? 8 : 16;  // of a multiprocessor, whose registers they share
    static constexpr int row_tiles = a_rows > 4 ? 2 : 1, rows = row_tiles * tile_rows;
    static constexpr int a_pitch = bw_tile_weights * 2 + (a_rows == 1 ? 0 : runs ? 64 : 32);
    static constexpr int b_bytes = rows * Weights::pitch, stage_bytes = b_bytes + a_rows * a_pitch;
    static constexpr int wanted = (int)(ring_bytes / stage_bytes);
    static constexpr int stages = wanted < 2 ? 2 : wanted > most_stages ? most_stages : wanted;
    static constexpr int sums = a_rows * rows;  // of a tile, twice: the next one's while these are added up
    static constexpr int bytes = stages * (stage_bytes + (int)sizeof(expert_tile)) + 2 * sums * (int)sizeof(float);
};

template <bw_order order>
BW_DEVICE uint4 read_activations(const unsigned char *row, int group, int in_quad) {
    if constexpr (order == BW_ORDER_RUN || order == BW_ORDER_RUN_NIBBLES) {
        return order_activations<order>(*(const uint4 *)(row + group * 64 + in_quad * 16));
    }
    const unsigned char *from = row + group * 64 + in_quad * 8;
    const uint2 low = *(const uint2 *)from, high = *(const uint2 *)(from + 32);
    return order_activations<order>(make_uint4(low.x, low.y, high.x, high.y));
}

// `a`: the lane's row of A.
template <typename TA, typename Weights, int a_rows, int group>
BW_DEVICE void add_all_groups(
    const unsigned char *a, int in_quad, typename Weights::row (&rows)[ring<Weights, a_rows>::row_tiles][2],
    fused_sums (&sums)[(a_rows + a_tile_rows - 1) / a_tile_rows][ring<Weights, a_rows>::row_tiles]) {
    using layout = ring<Weights, a_rows>;
    constexpr int a_tiles = (a_rows + a_tile_rows - 1) / a_tile_rows;
    uint4 act[a_tiles];
    float ones[a_tiles][4] = {};
#pragma unroll
    for (int i = 0; i < a_tiles; i++) {
        act[i] = read_activations<Weights::order>(a + i * a_tile_rows * layout::a_pitch, group, in_quad);
        if constexpr (Weights::has_mins) {
            const uint32_t one[4] = {0x00010001u, 0x00010001u, 0x00010001u, 0x00010001u};  // 2^-24, as nibbles are
            bw_multiply(ones[i], one, act[i].x, act[i].y, TA());
            bw_multiply(ones[i], one, act[i].z, act[i].w, TA());
        }
    }
#pragma unroll
    for (int t = 0; t < layout::row_tiles; t++) {
        uint32_t low[4], high[4];
        rows[t][0].template unpack<group>(low);
        rows[t][1].template unpack<group>(high);
        const uint32_t one[4] = {low[0], high[0], low[1], high[1]}, two[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
        for (int i = 0; i < a_tiles; i++) {
            add_group<TA, Weights, a_rows == 1, group>(act[i], ones[i], one, two, rows[t][0], rows[t][1], sums[i][t]);
        }
    }
    if constexpr (group + 1 < bw_tile_groups) add_all_groups<TA, Weights, a_rows, group + 1>(a, in_quad, rows, sums);
}

// A warp's way through its tiles' pieces, as it copies them.
template <typename TA, typename Weights, int a_rows>
struct copier {
    using layout = ring<Weights, a_rows>;
    const TA *a;
    const int *rows, *offsets;
    bw_weights_stored b;
    streamed_shape shape;
    unsigned char *stages;
    expert_tile *found;  // of each tile that is under way, the first at 0
    int warp, warps, lane;
    int tile, step, next_found, token;  // token: of row `lane` of the tile
    bool is_more;
    expert_tile at;

    __device__ __forceinline__ void begin_tile() {
        const int part = tile / shape.column_tiles, column = tile % shape.column_tiles * layout::rows;
        const bw_expert_part rows_of_d = bw_find_part<a_rows>(offsets, shape.experts, part, lane);
        at.row0 = rows_of_d.expert * shape.n + column;
        at.column = column;
        at.last = (int)min(shape.n - column, (int64_t)layout::rows) - 1;  // rows behind it: that one again
        at.first = rows_of_d.first;
        at.count = rows_of_d.count;
        is_more = rows_of_d.count > 0;
        if (lane == 0) found[next_found] = at;
        next_found = next_found + 1 == layout::stages ? 0 : next_found + 1;
        token = lane < rows_of_d.count ? __ldg(rows + rows_of_d.first + lane) : 0;
        tile += (int)gridDim.x;
    }

    // One piece, into stage `slot`.
    __device__ __forceinline__ void copy(int slot) {
        constexpr int chunks = layout::rows * Weights::chunks, copies = (chunks + 31) / 32;
        if (is_more && step == warp) begin_tile();
        if (is_more) {
            unsigned char *stage = stages + slot * layout::stage_bytes;
            const unsigned char *from = b.bytes + at.row0 * shape.row_bytes + step * (Weights::chunks * 16);
#pragma unroll
            for (int i = 0; i < copies; i++) {
                const unsigned chunk = (unsigned)lane + 32 * i, row = chunk / Weights::chunks;
                const unsigned column = chunk % Weights::chunks * 16;
                if (chunks % 32 == 0 || chunk < chunks)
                    bw_copy_async(stage + row * Weights::pitch + column,
                                  from + min((int)row, at.last) * shape.row_bytes + column, true);
            }
            const TA *a_from = a + step * bw_tile_weights + lane * 8;
#pragma unroll
            for (int i = 0; i < a_rows; i++) {
                const int of_row = __shfl_sync(bw_all_lanes, token, i);
                if (i < at.count)
                    bw_copy_async(stage + layout::b_bytes + i * layout::a_pitch + lane * 16,
                                  a_from + (int64_t)of_row * shape.k, true);
            }
            prefetch_scales();
            step += warps;
            if (step * bw_tile_weights >= shape.k) step = warp;
        }
        bw_copy_commit();
    }

    // Scales are read one piece ahead, and are in L2 by then.
    __device__ __forceinline__ void prefetch_scales() {
        if constexpr (Weights::scale_bytes > 0) {
            const int64_t row = at.row0 + min(lane % 16, at.last);
            const int64_t piece = row * (shape.k / bw_tile_weights) + step;
            const unsigned char *scale = b.scale + piece * Weights::scale_bytes;
            const unsigned char *zero = b.zero + piece * Weights::zero_bytes;
            const bool takes_zero = Weights::zero_bytes > 0 && lane >= 16;
            if (Weights::zero_bytes > 0 || lane < 16)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(takes_zero ? zero : scale));
            if (layout::rows > 16 && at.last >= 16) {
                const int more = min(16, at.last - lane % 16) * (shape.k / bw_tile_weights);
                if (Weights::zero_bytes > 0 || lane < 16)
                    asm volatile("prefetch.global.L2 [%0];" ::"l"(takes_zero ? zero + more * Weights::zero_bytes
                                                                             : scale + more * Weights::scale_bytes));
            }
        }
    }
};

// The scales and zero points of a lane's rows for one piece.
template <typename Weights, int row_tiles>
struct piece_scales {
    bw_raw<Weights::scale_bytes> scale[row_tiles][2];
    bw_raw<Weights::zero_bytes> zero[row_tiles][2];

    __device__ __forceinline__ void load(const bw_weights_stored &b, const expert_tile &tile, int pieces, int step,
                                         int quad) {
        if constexpr (Weights::scale_bytes > 0) {
#pragma unroll
            for (int i = 0; i < 2 * row_tiles; i++) {
                const int64_t piece = (tile.row0 + min(quad + 8 * i, tile.last)) * pieces + step;
                scale[i / 2][i % 2] = bw_load_raw<Weights::scale_bytes>(b.scale + piece * Weights::scale_bytes);
                zero[i / 2][i % 2] = bw_load_raw<Weights::zero_bytes>(b.zero + piece * Weights::zero_bytes);
            }
        }
    }
};

template <typename Weights>
BW_DEVICE float last_factor_of(const bw_weights_stored &b, const expert_tile &tile, int column) {
    if constexpr (Weights::last == BW_LAST_ROW)
        return Weights::unit * __ldg((const float *)b.scale + tile.row0 + min(column, tile.last));
    if constexpr (Weights::last == BW_LAST_WHOLE) return Weights::unit * __ldg(b.whole_scale);
    return Weights::unit;
}

// A warp's sums of a tile, for the others to add up.
template <typename Weights, int a_rows, int a_tiles, int row_tiles>
BW_DEVICE void store_sums(float *to, const fused_sums (&sums)[a_tiles][row_tiles], const uint32_t (&nan)[row_tiles][2],
                          int quad, int in_quad) {
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
                if constexpr (Weights::per_factor == 0) total = sums[at][t].part[0][i] + sums[at][t].part[1][i];
                if (a_row < a_rows)
                    to[a_row * rows + t * tile_rows + quad + i / 2 * 8] =
                        is_nan[i / 2] ? __uint_as_float(0x7fffffffu) : total;
            }
        }
    }
}

// `a_rows`: rows of D in a tile, at most.
template <typename TA, typename Weights, int a_rows>
__global__ void __launch_bounds__(most_warps * 32, ring<Weights, a_rows>::resident_warps / most_warps)
    moe_streamed_kernel(const TA *a, bw_weights_stored b, const int *rows, const int *offsets, TA *d,
                        streamed_shape shape) {
    using layout = ring<Weights, a_rows>;
    constexpr int a_tiles = (a_rows + a_tile_rows - 1) / a_tile_rows, row_tiles = layout::row_tiles;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, pieces = shape.k / bw_tile_weights;
    unsigned char *stages = bw_dynamic_shared() + warp * (layout::stages * layout::stage_bytes);
    unsigned char *behind = bw_dynamic_shared() + warps * (layout::stages * layout::stage_bytes);
    expert_tile *found = (expert_tile *)behind + warp * layout::stages;
    float *all_sums = (float *)(behind + warps * layout::stages * (int)sizeof(expert_tile));

    copier<TA, Weights, a_rows> copies = {a,     rows, offsets,         b,    shape, stages, found, warp,
                                          warps, lane, (int)blockIdx.x, warp, 0,     0,      true,  {}};
#pragma unroll
    for (int s = 0; s + 1 < layout::stages; s++) copies.copy(s);
    __syncwarp();
    expert_tile tile = found[0];
    piece_scales<Weights, row_tiles> next_scales = {};
    if (tile.count > 0) next_scales.load(b, tile, pieces, warp, quad);
    int slot = 0, place = 0, turn = 0;
#pragma unroll 1
    while (tile.count > 0) {
        const float last_factor = last_factor_of<Weights>(b, tile, (int)threadIdx.x % layout::rows);
        fused_sums sums[a_tiles][row_tiles] = {};
        uint32_t nan[row_tiles][2] = {};
        place = place + 1 == layout::stages ? 0 : place + 1;
        expert_tile next = tile;
#pragma unroll 1
        for (int step = warp; step < pieces; step += warps) {
            copies.copy(slot == 0 ? layout::stages - 1 : slot - 1);
            bw_copy_wait<layout::stages - 1>();
            __syncwarp();
            const unsigned char *stage = stages + slot * layout::stage_bytes;
            typename Weights::row b_rows[row_tiles][2];
#pragma unroll
            for (int i = 0; i < 2 * row_tiles; i++) {
                b_rows[i / 2][i % 2] =
                    Weights::row::begin(stage + (quad + 8 * i) * Weights::pitch, next_scales.scale[i / 2][i % 2],
                                        next_scales.zero[i / 2][i % 2], in_quad);
            }
            if (step + warps < pieces) {
                next_scales.load(b, tile, pieces, step + warps, quad);
            } else {
                next = found[place];
                if (next.count > 0) next_scales.load(b, next, pieces, warp, quad);
            }
            add_all_groups<TA, Weights, a_rows, 0>(stage + layout::b_bytes + min(quad, a_rows - 1) * layout::a_pitch,
                                                   in_quad, b_rows, sums);
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
            const int column = i % layout::rows;
            if (column > tile.last) continue;
            float sum = 0.0f;
#pragma unroll 4
            for (int other = 0; other < warps; other++) sum += tile_sums[other * layout::sums + i];
            bw_from_float(sum * last_factor, &d[(tile.first + i / layout::rows) * shape.n + tile.column + column]);
        }
        turn ^= 1;
        tile = next;
    }
    bw_copy_wait<0>();
}

int64_t rows_of_fullest(const bw_dims *dims) {
    const int64_t *value = dims->value;
    return bw_ceil_div(value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K], value[BW_MOE_ACTIVE]);
}

template <typename TA, typename Weights, int a_rows>
bw_status choose_warps(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int warps,
                       bw_cuda_launch_spec *out) {
    using layout = ring<Weights, a_rows>;
    const int64_t *value = dims->value;
    const int64_t n = value[BW_MOE_N], k = value[BW_MOE_K], columns = bw_ceil_div(n, layout::rows);
    const streamed_shape shape = {n, (int)k, (int)bw_dtype_bytes(precision->weight, k), (int)value[BW_MOE_EXPERTS],
                                  (int)columns};
    warps = (int)bw_min64(warps, most_shared_bytes / layout::bytes);
    const int64_t tiles = columns * value[BW_MOE_ACTIVE] * bw_ceil_div(rows_of_fullest(dims), a_rows);
    const int64_t resident =
        bw_min64(layout::resident_warps / warps, resident_shared_bytes / (warps * layout::bytes + 1024));
    bw_cuda_kernel *chosen =
        bw_choose(out, moe_streamed_kernel<TA, Weights, a_rows>,
                  dim3((unsigned)bw_min64(tiles, facts->units * bw_max64(resident, 1))), dim3((unsigned)warps * 32),
                  (size_t)(warps * layout::bytes), bw_from_operand(BW_GEMM_A), bw_weights_stored{},
                  bw_from_operand(BW_MOE_ROWS), bw_from_operand(BW_MOE_OFFSETS), bw_from_operand(BW_GEMM_D), shape);
    place_weights(chosen, 1, precision->weight_scales);
    return BW_OK;
}

template <typename TA, typename Weights>
bw_status choose_rows(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int warps,
                      bw_cuda_launch_spec *out) {
    const int64_t rows = rows_of_fullest(dims);
    if (rows <= 1) return choose_warps<TA, Weights, 1>(dims, precision, facts, warps, out);
    if (rows <= 4) return choose_warps<TA, Weights, 4>(dims, precision, facts, warps, out);
    if (rows <= 8) return choose_warps<TA, Weights, 8>(dims, precision, facts, warps, out);
    return choose_warps<TA, Weights, most_rows>(dims, precision, facts, warps, out);
}

bw_status choose_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int warps,
                      bw_cuda_launch_spec *out) {
    if (precision->id == BW_PRECISION_FP16)
        return choose_rows<__half, half_weights>(dims, precision, facts, warps, out);
    if (precision->id == BW_PRECISION_BF16)
        return choose_rows<__nv_bfloat16, half_weights>(dims, precision, facts, warps, out);
    return by_weights(precision, [&](auto tag) {
        return choose_rows<__half, typename decltype(tag)::type>(dims, precision, facts, warps, out);
    });
}

// Fewer warps have less to add up, more read a short tile at once: which is best is timed. The first is a guess for
// single launches.
constexpr int most_plans = 6;
int list_plans(const bw_dims *dims, int out[most_plans]) {
    const int pieces = (int)(dims->value[BW_MOE_K] / bw_tile_weights);
    int count = 0;
    out[count++] = pieces < 4 ? pieces : 4;
    for (const int warps : {1, 2, 3, 4, 6, most_warps}) {
        if (warps <= pieces && warps != out[0]) out[count++] = warps;
    }
    return count;
}

bw_status first_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                     bw_cuda_launch_spec *out) {
    int plans[most_plans];
    list_plans(dims, plans);
    return choose_plan(dims, precision, facts, plans[0], out);
}

struct plan_search {
    const bw_launch *sets;
    int64_t set_count;
    int plans[most_plans];     // warps of a block
    bw_cuda_launch_spec spec;  // of the candidate that is timed
};

bw_status ready_plan(void *context, int candidate, int64_t, int) {
    plan_search *self = (plan_search *)context;
    self->spec = {};
    const bw_launch *set = &self->sets[0];
    BW_TRY(choose_plan(set->dims, set->precision, &set->device->facts, self->plans[candidate], &self->spec));
    return bw_cuda_prepare_spec(self->sets, self->set_count, &self->spec);
}

bw_status enqueue_plan(void *context, int, int64_t launch) {
    plan_search *self = (plan_search *)context;
    bw_launch set = self->sets[launch % self->set_count];
    set.state = &self->spec;
    return bw_cuda_prepared_launch(&set);
}

}  // namespace

const char *bw_streamed_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    if (value[BW_MOE_K] % bw_tile_weights != 0) return "streamed takes rows of a multiple of 256 elements";
    if (value[BW_MOE_K] > most_k) return "streamed takes rows of at most 2^20 elements";
    const bw_checked_int tiles =
        bw_mul(bw_num(bw_ceil_div(value[BW_MOE_N], tile_rows)), bw_num(value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K]));
    if (tiles.overflow || tiles.value > INT32_MAX / 2) return "more than 2^30 tiles of 16 rows of B for a row of D";
    return nullptr;
}

bw_status bw_streamed_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, first_plan, out);
}

bw_status bw_streamed_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    plan_search search = {sets, set_count, {}, {}};
    const int count = list_plans(sets[0].dims, search.plans);
    const bw_search_calls calls = {ready_plan, enqueue_plan, &search};
    int best = 0;
    uint64_t key = bw_plan_key_mix(BW_PLAN_KEY, sets[0].precision->id);
    for (int i = BW_MOE_TOKENS; i <= BW_MOE_K; i++) key = bw_plan_key_mix(key, sets[0].dims->value[i]);
    BW_TRY(bw_cuda_choose_plan(sets, set_count, key, &calls, count, &best));
    BW_TRY(ready_plan(&search, best, 0, 0));
    bw_cuda_launch_spec *spec = (bw_cuda_launch_spec *)malloc(sizeof *spec);
    if (!spec) return bw_fail(BW_CODE_MEMORY, "out of host memory for a prepared launch");
    *spec = search.spec;
    *state = spec;
    return BW_OK;
}
