// gemm on Hopper's tensor cores: a warpgroup's products read A and B from shared memory, where TMA puts them.
//   - a block per multiprocessor, two for few rows of A, walks over tiles of D; a producer thread keeps four to seven
//     steps of K, 128 bytes of each row, on their way, past the end of a tile too. Rows beyond A are not copied: TMA is
//     slower there, and their results are dropped;
//   - one or two warpgroups take 64 rows of the tile each, all sums in registers; the producer's warpgroup gives up
//     its own;
//   - where tiles are too few for the multiprocessors, the blocks of a cluster make one together, each a share of K;
//   - blocks that run at the same time share rows of A and of B in the L2: tiles go down a band of 16 before the next
//     column.
// Tried on an H200 without gain, or slower: pairs of blocks that send each other half of B; steps of K in another order
// in each block; one warpgroup some steps behind the other; A from registers; two steps a copy.
// Rows of A, B and D are multiples of 16 bytes; TMA fills what lies beyond the matrices with zeros.
#pragma once

#include "cuda/kernels/common/sm90.cuh"
#include "cuda/kernels/gemm/eight/products_sm90.cuh"
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/linear/end.cuh"

namespace {

constexpr int step_bytes = bw_panel_bytes;  // of K
constexpr int band = 16;

// What a block makes at a time: `groups` warpgroups' 64 rows and `columns`. `residents` blocks share a multiprocessor.
template <int groups_, int columns_, int residents_ = 1>
struct wgmma_tile {
    static constexpr int groups = groups_, columns = columns_, residents = residents_;
    static constexpr int rows = 64 * groups, threads = (1 + groups) * bw_warpgroup;
    static constexpr int a_bytes = rows * step_bytes, stage_bytes = a_bytes + columns * step_bytes;
    static constexpr int stages_fit = ((residents == 1 ? 227 : 113) * 1024 - bw_panels_spare - 256) / stage_bytes;
    static constexpr int stages = stages_fit < 8 ? stages_fit : 8;
    static constexpr int shared_bytes = bw_panels_spare + stages * (stage_bytes + 2 * (int)sizeof(uint64_t));
    // Of a cluster's exchange: the sums of 32 columns.
    static constexpr int parts = (columns + 31) / 32, part_bytes = rows * 32 * 4;
    // Of a thread: the producer's warpgroup gives up what the others take.
    static constexpr int registers_few = groups == 1 ? 56 : 24, registers_many = groups == 1 ? 192 : 240;
    static_assert(residents == (groups == 1 ? 2 : 1), "other blocks have other numbers of registers");
};

struct wgmma_shape {
    int m, n, steps;  // of K
    int tiles_m, tiles_n;
    int rows, last_rows;  // of A that a step copies, and of the last tile's
    int stages;           // that are used
};

// The steps of K that a block takes: all, or a share where a cluster's blocks make a tile together.
struct wgmma_share {
    int first, steps;
};
BW_DEVICE wgmma_share share_of(const wgmma_shape &shape) {
    const int first = (int)((int64_t)shape.steps * blockIdx.y / gridDim.y);
    return {first, (int)((int64_t)shape.steps * (blockIdx.y + 1) / gridDim.y) - first};
}

// A place in the ring of stages, and its barriers' parity.
struct ring {
    const int stages;
    int stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <typename tile>
BW_DEVICE void place_tile(const wgmma_shape &shape, int index, int *row0, int *column0) {
    const int first = index / (band * shape.tiles_n) * band, within = index - first * shape.tiles_n;
    const int rows = min(band, shape.tiles_m - first);
    *row0 = (first + within % rows) * tile::rows;
    *column0 = within / rows * tile::columns;
}

template <typename tile, typename T>
BW_DEVICE void produce(const CUtensorMap &a_map, const CUtensorMap &last_map, const CUtensorMap &b_map,
                       const wgmma_shape &shape, uint32_t stages, uint32_t full, uint32_t empty) {
    constexpr int step_elems = step_bytes / (int)sizeof(T);
    const wgmma_share share = share_of(shape);
    ring at = {shape.stages};
    for (int index = (int)blockIdx.x; index < shape.tiles_m * shape.tiles_n; index += (int)gridDim.x) {
        int row0, column0;
        place_tile<tile>(shape, index, &row0, &column0);
        const bool is_last = row0 + tile::rows >= shape.m;
        const int rows = is_last ? shape.last_rows : shape.rows;
        for (int step = share.first; step < share.first + share.steps; step++, at.advance()) {
            const uint32_t a = stages + at.stage * tile::stage_bytes, barrier = full + 8 * at.stage;
            bw_barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
            bw_barrier_expect(barrier, (rows + tile::columns) * step_bytes);
            bw_tensor_load(a, is_last ? last_map : a_map, barrier, step * step_elems, row0);
            bw_tensor_load(a + tile::a_bytes, b_map, barrier, step * step_elems, column0);
        }
    }
}

// The columns before `end` of a fragment.
template <int eights>
BW_DEVICE void store_tile(float (&sums)[eights][4], float *d, const wgmma_shape &shape, int row, int column0, int end) {
#pragma unroll
    for (int n = 0; n < eights; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int column = column0 + 8 * n + (int)threadIdx.x % 4 * 2;
            if (row + 8 * half >= shape.m || column >= end) continue;
            *(float2 *)&d[(int64_t)(row + 8 * half) * shape.n + column] =
                make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
        }
    }
}
template <int eights, typename T>
BW_DEVICE void store_tile(float (&sums)[eights][4], T *d, const wgmma_shape &shape, int row, int column0, int end) {
    bw_store_fragment(sums, d + column0, shape.n, row, shape.m, end - column0, {1.0f, 1.0f});
}

// What a thread keeps of C for a tile, and does while products go on, a piece each step and what is left at the end:
// nothing. In C's place linear/wgmma_sm90.cu has more to do.
template <int columns, typename C>
struct kept_of_tile {
    using type = const C &;
};
template <typename T>
BW_DEVICE void begin_tile(const T *, const wgmma_shape &, int, int) {
}
template <typename T>
BW_DEVICE void work_ahead(const T *, bool) {
}

// The fragment's eights from number `first` on, whose first column is column0.
template <int eights, typename T>
BW_DEVICE void add_tile(float (&sums)[eights][4], const T *c, const wgmma_shape &shape, int row, int column0, int) {
#pragma unroll
    for (int n = 0; n < eights; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at_row = row + i / 2 * 8, column = column0 + 8 * n + (int)threadIdx.x % 4 * 2 + i % 2;
            if (at_row < shape.m && column < shape.n) {
                sums[n][i] += bw_to_float(c[(int64_t)at_row * shape.n + column]);
            }
        }
    }
}

// Loads that start where they are written.
BW_DEVICE float load_early(const float *from) {
    float value;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
}
BW_DEVICE float2 load_early(const float2 *from) {
    float2 value;
    asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "l"(from));
    return value;
}

// Scales of a tile's sums over all of K, asked for when the tile begins: those of a lane's rows, and a warp's columns,
// of which lane l holds number 2 l and the next of each 64.
template <int columns>
struct tile_scales {
    static constexpr int parts = (columns + 63) / 64;
    float of_row[2];
    float2 of_columns[parts];
    __device__ __forceinline__ void load(const bw_gemm_scales &scales, const wgmma_shape &shape, int row, int column0) {
        float2 all = {};
        of_row[0] = load_early(&scales.a[(int64_t)min(row, shape.m - 1) * scales.of_rows]);
        of_row[1] = load_early(&scales.a[(int64_t)min(row + 8, shape.m - 1) * scales.of_rows]);
        if (!scales.of_rows) all.x = all.y = load_early(scales.b);
#pragma unroll
        for (int i = 0; i < parts; i++) {
            const int column = column0 + 64 * i + (int)threadIdx.x % 32 * 2;
            of_columns[i] = all;
            if (scales.of_rows) of_columns[i] = load_early((const float2 *)&scales.b[min(column, shape.n - 2)]);
        }
    }
    // Of a lane's two columns of the eight that are number n.
    __device__ __forceinline__ float2 find(int n) const {
        const int holder = n % 8 * 4 + (int)threadIdx.x % 4;
        return make_float2(__shfl_sync(bw_all_lanes, of_columns[n / 8].x, holder),
                           __shfl_sync(bw_all_lanes, of_columns[n / 8].y, holder));
    }
};

// Where a cluster's blocks make a tile together, each adds up and finishes some of its columns, 32 at a time. The
// others put their sums of these in its ring of stages, which is free by then.
template <typename tile, typename Sum>
BW_DEVICE void add_up_cluster(Sum (&sums)[tile::columns / 8][4], uint32_t stages) {
    constexpr int eights = tile::columns / 8, eight_bytes = tile::part_bytes / 4;
    const int blocks = (int)gridDim.y, own = (int)blockIdx.y;
    const uint32_t thread = stages + ((int)threadIdx.x - bw_warpgroup) * 16;
    bw_cluster_sync();
    int owner = 0, turn = 0;
#pragma unroll
    for (int n = 0; n < eights; n++) {
        if (n != 0 && n % 4 == 0 && ++owner == blocks) owner = 0, turn++;
        const uint32_t to = thread + (turn * blocks + own) * tile::part_bytes + n % 4 * eight_bytes;
        if (owner != own) bw_cluster_store(bw_cluster_address(to, owner), sums[n]);
    }
    bw_cluster_sync();
    owner = turn = 0;
#pragma unroll
    for (int n = 0; n < eights; n++) {
        if (n != 0 && n % 4 == 0 && ++owner == blocks) owner = 0, turn++;
        if (owner != own) continue;
#pragma unroll 1
        for (int source = 0; source < blocks; source++) {
            const uint32_t from = thread + (turn * blocks + source) * tile::part_bytes + n % 4 * eight_bytes;
            if (source != own) bw_shared_add(sums[n], from);
        }
    }
}

// D of a lane's sums, 32 columns at a time: as numbers, times the scales of their rows and columns, + c.
template <bool scaled, bool adds, int eights, typename Sum, typename C, typename TD>
BW_DEVICE void finish_tile(const Sum (&sums)[eights][4], const C &c, TD *d, const tile_scales<8 * eights> &scales,
                           const wgmma_shape &shape, int row, int column0) {
    constexpr int at_once = 4;
    const int end = min(column0 + 8 * eights, shape.n);
#pragma unroll
    for (int first = 0; first < eights; first += at_once) {
        if (gridDim.y != 1 && first / at_once % (int)gridDim.y != (int)blockIdx.y) continue;
        float part[at_once][4] = {};
#pragma unroll
        for (int n = 0; n < at_once && first + n < eights; n++) {
            float2 of_column = {};
            if (scaled) of_column = scales.find(first + n);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                part[n][i] = (float)sums[first + n][i];
                if (scaled) part[n][i] *= scales.of_row[i / 2] * (i % 2 ? of_column.y : of_column.x);
            }
        }
        if (adds) add_tile(part, c, shape, row, column0 + 8 * first, first);
        store_tile(part, d, shape, row, column0 + 8 * first, end);
    }
}

// The consumers' view of the ring of stages.
template <typename tile>
struct consumer {
    uint32_t full, empty;
    uint32_t left, right;  // where the first stage's A and B are, as descriptors have it
    int lane;
    ring at;

    // Starts the products of a step that is there.
    template <typename T, typename Sum>
    __device__ __forceinline__ void multiply(Sum (&sums)[tile::columns / 8][4], bool adds, T) const {
        const uint64_t high = bw_describe_rows(0);
        const uint32_t further = at.stage * (tile::stage_bytes >> 4);
        const uint64_t left = high | (this->left + further), right = high | (this->right + further);
        bw_registers_hold(sums);
        bw_products_begin();
#pragma unroll
        for (int i = 0; i < 4; i++) bw_product(sums, left + 2 * i, right + 2 * i, adds || i != 0, T());
        bw_products_commit();
        bw_registers_hold(sums);
    }
    __device__ __forceinline__ void wait() const {
        bw_barrier_wait(full + 8 * at.stage, at.parity);
    }
    // This warp has read a stage.
    __device__ __forceinline__ void release(int stage) const {
        if (lane == 0) bw_barrier_arrive(empty + 8 * stage);
    }
};

template <typename tile, typename T, typename Sum, typename C>
BW_DEVICE void sum_steps(consumer<tile> &self, int steps, Sum (&sums)[tile::columns / 8][4], T, C &c) {
    int before = 0;
    for (int step = 0; step < steps; step++, self.at.advance()) {
        self.wait();
        self.multiply(sums, step != 0, T());
        work_ahead(c, false);
        // The step before has been read, this one's products go on.
        bw_products_wait<1>();
        if (step > 0) self.release(before);
        before = self.at.stage;
    }
    work_ahead(c, true);
    bw_products_wait<0>();
    bw_registers_hold(sums);
    self.release(before);
}

// Factors of a step's sums where each 128 of K have scales of their own: a lane asks for those of every fourth step, of
// its two rows and of each `width` columns, four steps ahead, and all lanes of a quad take them from each other.
template <int columns>
struct step_factors {
    static constexpr int width = columns < 128 ? columns : 128, parts = columns / width;
    float of_row[2], of_columns[parts];  // that are asked for
    float products[parts][2], factor[parts][2] = {};
    __device__ __forceinline__ void load(const bw_gemm_scales &scales, const wgmma_shape &shape, int row, int column,
                                         int first, int steps) {
        const int step = min(first + (int)threadIdx.x % 4, steps - 1);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            of_row[i] = load_early(&scales.a[(int64_t)min(row + 8 * i, shape.m - 1) * scales.groups + step]);
        }
#pragma unroll
        for (int i = 0; i < parts; i++) {
            const int square = min(column + width * i, shape.n - 1) / bw_scaled_block;
            of_columns[i] = load_early(&scales.b[(int64_t)square * scales.groups + step]);
        }
    }
    __device__ __forceinline__ void find(const bw_gemm_scales &scales, const wgmma_shape &shape, int row, int column,
                                         int step, int steps) {
        if (step % 4 == 0) {
#pragma unroll
            for (int i = 0; i < 2 * parts; i++) products[i / 2][i % 2] = of_row[i % 2] * of_columns[i / 2];
            load(scales, shape, row, column, step + 4, steps);
        }
#pragma unroll
        for (int i = 0; i < 2 * parts; i++) {
            factor[i / 2][i % 2] = __shfl_sync(bw_all_lanes, products[i / 2][i % 2], step % 4, 4);
        }
    }
};

// Tensor cores add up E4M3 less exactly than FP32 does: each step has a sum of its own, which is added to the totals
// while the next step's products go on. A step is a group of K, which may have scales.
template <typename tile, bool grouped>
struct short_sums {
    static constexpr int eights = tile::columns / 8;
    using factors = step_factors<tile::columns>;
    consumer<tile> &self;
    float (&totals)[eights][4];
    const bw_gemm_scales &scales;
    const wgmma_shape &shape;
    const int row, column, steps;
    factors own;
    int before;  // stage

    __device__ __forceinline__ void add(const float (&sums)[eights][4]) {
#pragma unroll
        for (int n = 0; n < eights; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                totals[n][i] += grouped ? sums[n][i] * own.factor[8 * n / factors::width][i / 2] : sums[n][i];
            }
        }
    }
    // Starts a step, and adds the sum of the one before, which is zero at the first.
    __device__ __forceinline__ void take(float (&sums)[eights][4], float (&done)[eights][4], int step) {
        self.wait();
        self.multiply(sums, false, bw_e4m3());
        bw_products_wait<1>();
        bw_registers_hold(done);
        if (step > 0) self.release(before);
        add(done);
        if (grouped) own.find(scales, shape, row, column, step, steps);
        before = self.at.stage;
        self.at.advance();
    }
    __device__ __forceinline__ void take_last(float (&sums)[eights][4]) {
        bw_products_wait<0>();
        bw_registers_hold(sums);
        add(sums);
    }
    __device__ __forceinline__ void sum() {
        float even[eights][4], odd[eights][4] = {};
        if (grouped) own.load(scales, shape, row, column, 0, steps);
        int step = 0;
        for (; step + 1 < steps; step += 2) {
            take(even, odd, step);
            take(odd, even, step + 1);
        }
        if (step < steps) {
            take(even, odd, step);
            take_last(even);
        } else {
            take_last(odd);
        }
        self.release(before);
    }
};

// `c`: C, NULL where nothing is added; or what a linear layer has in its place.
template <typename tile, typename T, bool grouped, typename C, typename TD>
BW_DEVICE void consume(const C &c, TD *d, const bw_gemm_scales &scales, const wgmma_shape &shape, uint32_t stages,
                       uint32_t full, uint32_t empty) {
    // By shuffling, the compiler knows that all lanes have the same; what an asm has written it keeps, instead of
    // working it out anew in each step.
    const int group = __shfl_sync(bw_all_lanes, (int)threadIdx.x / bw_warpgroup, 0) - 1;
    int lane = (int)threadIdx.x % 32;
    uint32_t left = (stages + group * 64 * step_bytes & 0x3ffff) >> 4, right = (stages + tile::a_bytes & 0x3ffff) >> 4;
    asm volatile("" : "+r"(lane), "+r"(left), "+r"(right), "+r"(full), "+r"(empty));
    const int row_in_tile = 64 * group + (int)threadIdx.x % bw_warpgroup / 32 * 16 + lane / 4;
    consumer<tile> self = {full, empty, left, right, lane, {shape.stages}};
    const wgmma_share share = share_of(shape);
    bw_gemm_scales of_share = scales;
    if (grouped) of_share.a += share.first, of_share.b += share.first;
    for (int index = (int)blockIdx.x; index < shape.tiles_m * shape.tiles_n; index += (int)gridDim.x) {
        int row0, column0;
        place_tile<tile>(shape, index, &row0, &column0);
        const int row = row0 + row_in_tile;
        typename bw_gemm_types<T>::sum sums[tile::columns / 8][4] = {};
        typename kept_of_tile<tile::columns, C>::type of_tile = c;
        begin_tile(of_tile, shape, row, column0);
        tile_scales<tile::columns> own;
        if (bw_gemm_types<T>::scaled && !grouped) own.load(scales, shape, row, column0);
        if constexpr (std::is_same_v<T, bw_e4m3>) {
            short_sums<tile, grouped>{self, sums, of_share, shape, row, column0, share.steps, {}, 0}.sum();
        } else {
            sum_steps(self, share.steps, sums, T(), of_tile);
        }
        if (gridDim.y != 1) add_up_cluster<tile>(sums, stages);
        constexpr bool scaled = bw_gemm_types<T>::scaled && !grouped;
        if (of_tile) {
            finish_tile<scaled, true>(sums, of_tile, d, own, shape, row, column0);
        } else {
            finish_tile<scaled, false>(sums, of_tile, d, own, shape, row, column0);
        }
    }
}

template <typename tile, typename T, typename TD, bool grouped, typename C>
__global__ void __launch_bounds__(tile::threads, tile::residents)
    gemm_wgmma_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap last_map,
                      const __grid_constant__ CUtensorMap b_map, C c, TD *d, bw_gemm_scales scales, wgmma_shape shape) {
    const uint32_t stages = bw_panels_shared(), full = stages + tile::stages * tile::stage_bytes;
    const uint32_t empty = full + 8 * tile::stages;
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(a_map);
        bw_tensor_prefetch(last_map);
        bw_tensor_prefetch(b_map);
        for (int i = 0; i < tile::stages; i++) {
            bw_barrier_init(full + 8 * i, 1);
            bw_barrier_init(empty + 8 * i, 4 * tile::groups);  // warps
        }
        bw_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < bw_warpgroup) {
        bw_registers_fewer<tile::registers_few>();
        if (threadIdx.x == 0) produce<tile, T>(a_map, last_map, b_map, shape, stages, full, empty);
    } else {
        bw_registers_more<tile::registers_many>();
        consume<tile, T, grouped>(c, d, scales, shape, stages, full, empty);
    }
}

bw_tensor_view rows_of(int operand, bw_dtype dtype, int element_bytes, int64_t rows, int64_t k, int box_rows) {
    bw_tensor_view view = {};
    view.operand = operand;
    view.dtype = dtype;
    view.rank = 2;
    view.extent[0] = k;
    view.extent[1] = rows;
    view.stride[1] = k * element_bytes;
    view.box[0] = step_bytes / element_bytes;
    view.box[1] = box_rows;
    return view;
}

// How many blocks of a cluster make a tile together. Clusters of more than two leave some multiprocessors idle, as each
// stays in one GPC; more than four blocks exchange more than they gain.
template <typename tile>
int blocks_of_tile(int64_t tiles, int units, int steps) {
    constexpr int most = 4;
    static_assert((tile::parts + most - 1) * tile::part_bytes <= tile::stages * tile::stage_bytes, "the exchange");
    const int64_t places = (int64_t)units * tile::residents, wide = places * 7 / 8 / tiles;
    const int64_t blocks = wide > 2 ? wide : places / tiles;
    return (int)bw_max64(1, bw_min64(bw_min64(blocks, most), steps / 4));
}

template <typename tile, typename T, bool grouped = false, typename C>
void choose(const bw_dims *dims, const bw_precision *precision, int units, const C &c, bw_cuda_launch_spec *out) {
    const bw_dtype dtype = precision->weight;
    constexpr int bytes = (int)sizeof(T), single_stages = 6;
    const int64_t *value = dims->value;
    const int64_t m = value[BW_GEMM_M], n = value[BW_GEMM_N], k = value[BW_GEMM_K];
    const int64_t tiles_m = bw_ceil_div(m, tile::rows), tiles_n = bw_ceil_div(n, tile::columns);
    const int64_t tiles = tiles_m * tiles_n, at_once = bw_min64(tiles, (int64_t)units * tile::residents);
    // A block that makes one tile begins earlier when fewer copies compete with its first ones.
    const int stages = tiles > at_once ? tile::stages : (int)bw_min64(tile::stages, single_stages);
    const wgmma_shape shape = {(int)m,
                               (int)n,
                               (int)bw_ceil_div(k * bytes, step_bytes),
                               (int)tiles_m,
                               (int)tiles_n,
                               (int)bw_min64(m, tile::rows),
                               (int)(m - (tiles_m - 1) * tile::rows),
                               stages};
    const int blocks = blocks_of_tile<tile>(tiles, units, shape.steps);
    using TD = typename bw_gemm_types<T>::result;
    bw_cuda_kernel *chosen = bw_choose(
        out, gemm_wgmma_kernel<tile, T, TD, grouped, bw_gemm_addend<TD, C>>, dim3((unsigned)at_once, (unsigned)blocks),
        dim3(tile::threads), tile::shared_bytes, rows_of(BW_GEMM_A, dtype, bytes, m, k, shape.rows),
        rows_of(BW_GEMM_A, dtype, bytes, m, k, shape.last_rows), rows_of(BW_GEMM_B, dtype, bytes, n, k, tile::columns),
        c, bw_from_operand(BW_GEMM_D), bw_gemm_scales_of(dims, precision), shape);
    if (blocks > 1) chosen->cluster = blocks;
    bw_gemm_place_scales(chosen, 5, precision);
}

int64_t tiles_of(const bw_dims *dims, int rows, int columns) {
    return bw_ceil_div(dims->value[BW_GEMM_M], rows) * bw_ceil_div(dims->value[BW_GEMM_N], columns);
}

// Elements of 16 and 32 bits. The last round of tiles leaves multiprocessors idle: fewer of them when tiles are small,
// which read more.
template <typename T, typename C>
void choose_columns(const bw_dims *dims, const bw_precision *precision, int units, const C &c,
                    bw_cuda_launch_spec *out) {
    const auto rounds = [&](int columns) { return bw_ceil_div(tiles_of(dims, 128, columns), units); };
    if (19 * rounds(256) <= 10 * rounds(128)) {
        choose<wgmma_tile<2, 256>, T>(dims, precision, units, c, out);
    } else {
        choose<wgmma_tile<2, 128>, T>(dims, precision, units, c, out);
    }
}

}  // namespace
