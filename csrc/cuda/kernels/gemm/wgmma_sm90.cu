// gemm on Hopper's tensor cores: a warpgroup's products read A and B from shared memory, where TMA puts them.
//   - a block per multiprocessor walks over tiles of D (128 x 256, of E4M3 128 x 192, or 128 x 128 where those fill the
//     device better); a producer thread keeps four to six steps of K, 128 bytes of each row, on their way, past the end
//     of a tile too. Fewer than 128 rows of A are copied alone: what the others hold goes nowhere;
//   - two warpgroups take 64 rows of the tile each, all sums in registers, which the producer's warpgroup gives up;
//   - blocks that run at the same time share rows of A and of B in the L2: tiles go down a band of 16 before the next
//     column. (Pairs of blocks that send each other half of B, as a cluster, brought nothing on H200; steps of K in
//     another order in each block, and 64 columns for few rows of A, cost time.)
// Rows of A, B and D are multiples of 16 bytes; TMA fills what lies beyond the matrices with zeros.
#include "cuda/kernels/common/sm90.cuh"
#include "cuda/kernels/gemm/eight/products_sm90.cuh"
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

namespace {

constexpr int consumers = 2, threads = (1 + consumers) * bw_warpgroup;
constexpr int tile_rows = 64 * consumers, band = 16;
constexpr int step_bytes = bw_panel_bytes;  // of K

struct wgmma_shape {
    int m, n, steps;  // of K
    int tiles_m, tiles_n;
    int rows;  // of A that a step copies
};

template <int columns>
struct wgmma_layout {
    static constexpr int stages = columns == 256 ? 4 : columns == 192 ? 5 : 6;
    static constexpr int a_bytes = tile_rows * step_bytes, stage_bytes = a_bytes + columns * step_bytes;
    static constexpr int shared_bytes = bw_panels_spare + stages * stage_bytes + 2 * stages * (int)sizeof(uint64_t);
};

// A place in the ring of stages, and its barriers' parity.
template <int stages>
struct ring {
    int stage = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void advance() {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

BW_DEVICE void place_tile(const wgmma_shape &shape, int index, int *row0, int *column0, int columns) {
    const int first = index / (band * shape.tiles_n) * band, within = index - first * shape.tiles_n;
    const int rows = min(band, shape.tiles_m - first);
    *row0 = (first + within % rows) * tile_rows;
    *column0 = within / rows * columns;
}

template <int columns, typename T>
BW_DEVICE void produce(const CUtensorMap &a_map, const CUtensorMap &b_map, const wgmma_shape &shape, uint32_t stages,
                       uint32_t full, uint32_t empty) {
    using layout = wgmma_layout<columns>;
    constexpr int step_elems = step_bytes / (int)sizeof(T);
    ring<layout::stages> at;
    for (int tile = (int)blockIdx.x; tile < shape.tiles_m * shape.tiles_n; tile += (int)gridDim.x) {
        int row0, column0;
        place_tile(shape, tile, &row0, &column0, columns);
        for (int step = 0; step < shape.steps; step++, at.advance()) {
            const uint32_t a = stages + at.stage * layout::stage_bytes, barrier = full + 8 * at.stage;
            bw_barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
            bw_barrier_expect(barrier, (shape.rows + columns) * step_bytes);
            bw_tensor_load(a, a_map, barrier, step * step_elems, row0);
            bw_tensor_load(a + layout::a_bytes, b_map, barrier, step * step_elems, column0);
        }
    }
}

// d = the fragment (+ c).
template <int eights>
BW_DEVICE void store_tile(float (&sums)[eights][4], float *d, const wgmma_shape &shape, int row, int column0) {
#pragma unroll
    for (int n = 0; n < eights; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int column = column0 + 8 * n + (int)threadIdx.x % 4 * 2;
            if (row + 8 * half >= shape.m || column >= shape.n) continue;
            *(float2 *)&d[(int64_t)(row + 8 * half) * shape.n + column] =
                make_float2(sums[n][2 * half], sums[n][2 * half + 1]);
        }
    }
}
template <int eights, typename T>
BW_DEVICE void store_tile(float (&sums)[eights][4], T *d, const wgmma_shape &shape, int row, int column0) {
    bw_store_fragment(sums, d + column0, shape.n, row, shape.m, shape.n - column0, {1.0f, 1.0f});
}

template <int eights, typename T>
BW_DEVICE void add_tile(float (&sums)[eights][4], const T *c, const wgmma_shape &shape, int row, int column0) {
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

// D of a lane's sums, 32 columns at a time: as numbers, times the scales of their rows and columns, + c.
template <typename T, int eights, typename Sum, typename TD>
BW_DEVICE void finish_tile(const Sum (&sums)[eights][4], const TD *c, TD *d, const bw_gemm_scales &scales,
                           const wgmma_shape &shape, int row, int column0) {
    constexpr int at_once = 4;
    constexpr bool scaled = bw_gemm_types<T>::scaled;
    const float of_row[2] = {scaled ? bw_gemm_scale_of_row(scales, min(row, shape.m - 1)) : 1.0f,
                             scaled ? bw_gemm_scale_of_row(scales, min(row + 8, shape.m - 1)) : 1.0f};
#pragma unroll
    for (int first = 0; first < eights; first += at_once) {
        float part[at_once][4];
#pragma unroll
        for (int n = 0; n < at_once; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                part[n][i] = (float)sums[first + n][i];
                if (!scaled) continue;
                const int column = column0 + 8 * (first + n) + (int)threadIdx.x % 4 * 2 + i % 2;
                part[n][i] *= of_row[i / 2] * bw_gemm_scale_of_column(scales, min(column, shape.n - 1));
            }
        }
        if (c) add_tile(part, c, shape, row, column0 + 8 * first);
        store_tile(part, d, shape, row, column0 + 8 * first);
    }
}

// The consumers' view of the ring of stages.
template <int columns>
struct consumer {
    using layout = wgmma_layout<columns>;
    uint32_t stages, full, empty;
    int group;  // warpgroup
    ring<layout::stages> at;

    // Starts the products of a step that is there.
    template <typename T, typename Sum>
    __device__ __forceinline__ void multiply(Sum (&sums)[columns / 8][4], bool adds, T) const {
        const uint32_t a = stages + at.stage * layout::stage_bytes;
        const uint64_t left = bw_describe_rows(a + group * 64 * step_bytes);
        const uint64_t right = bw_describe_rows(a + layout::a_bytes);
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
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(empty + 8 * stage);
    }
};

template <int columns, typename T, typename Sum>
BW_DEVICE void sum_steps(consumer<columns> &self, int steps, Sum (&sums)[columns / 8][4], T) {
    int before = 0;
    for (int step = 0; step < steps; step++, self.at.advance()) {
        self.wait();
        self.multiply(sums, step != 0, T());
        // The step before has been read, this one's products go on.
        bw_products_wait<1>();
        if (step > 0) self.release(before);
        before = self.at.stage;
    }
    bw_products_wait<0>();
    bw_registers_hold(sums);
    self.release(before);
}

// Tensor cores add up E4M3 less exactly than FP32 does: each step has a sum of its own, and the other warpgroup's
// products go on while it is added to the totals. A step is a group of K, which may have scales: 64 columns share one.
template <int columns>
BW_DEVICE void sum_steps(consumer<columns> &self, int steps, float (&totals)[columns / 8][4],
                         const bw_gemm_scales &scales, const wgmma_shape &shape, int row, int column) {
    constexpr int parts = columns / 64;
    float sums[columns / 8][4], factor[parts][2];
#pragma unroll
    for (int i = 0; i < parts; i++) factor[i][0] = factor[i][1] = 1.0f;
    for (int step = 0; step < steps; step++, self.at.advance()) {
        self.wait();
        self.multiply(sums, false, bw_e4m3());
        if (scales.groups) {
            const float of_row[2] = {bw_gemm_scale_of_row(scales, min(row, shape.m - 1), step),
                                     bw_gemm_scale_of_row(scales, min(row + 8, shape.m - 1), step)};
#pragma unroll
            for (int i = 0; i < parts; i++) {
                const float of_columns = bw_gemm_scale_of_column(scales, min(column + 64 * i, shape.n - 1), step);
                factor[i][0] = of_row[0] * of_columns, factor[i][1] = of_row[1] * of_columns;
            }
        }
        bw_products_wait<0>();
        bw_registers_hold(sums);
        self.release(self.at.stage);
#pragma unroll
        for (int n = 0; n < columns / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) totals[n][i] = fmaf(sums[n][i], factor[n / 8][i / 2], totals[n][i]);
        }
    }
}

template <int columns, typename T, typename TD>
BW_DEVICE void consume(const TD *c, TD *d, const bw_gemm_scales &scales, const wgmma_shape &shape, uint32_t stages,
                       uint32_t full, uint32_t empty) {
    const int group = (int)threadIdx.x / bw_warpgroup - 1, lane = (int)threadIdx.x % 32;
    const int row_in_tile = 64 * group + (int)threadIdx.x % bw_warpgroup / 32 * 16 + lane / 4;
    consumer<columns> self = {stages, full, empty, group, {}};
    for (int tile = (int)blockIdx.x; tile < shape.tiles_m * shape.tiles_n; tile += (int)gridDim.x) {
        int row0, column0;
        place_tile(shape, tile, &row0, &column0, columns);
        const int row = row0 + row_in_tile;
        typename bw_gemm_types<T>::sum sums[columns / 8][4] = {};
        if constexpr (std::is_same_v<T, bw_e4m3>) {
            sum_steps(self, shape.steps, sums, scales, shape, row, column0);
        } else {
            sum_steps(self, shape.steps, sums, T());
        }
        finish_tile<T>(sums, c, d, scales, shape, row, column0);
    }
}

template <int columns, typename T, typename TD>
__global__ void __launch_bounds__(threads, 1)
    gemm_wgmma_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, const TD *c,
                      TD *d, bw_gemm_scales scales, wgmma_shape shape) {
    using layout = wgmma_layout<columns>;
    const uint32_t stages = bw_panels_shared(), full = stages + layout::stages * layout::stage_bytes;
    const uint32_t empty = full + 8 * layout::stages;
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(a_map);
        bw_tensor_prefetch(b_map);
        for (int i = 0; i < layout::stages; i++) {
            bw_barrier_init(full + 8 * i, 1);
            bw_barrier_init(empty + 8 * i, 4 * consumers);  // warps
        }
        bw_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < bw_warpgroup) {
        bw_registers_fewer<40>();
        if (threadIdx.x == 0) produce<columns, T>(a_map, b_map, shape, stages, full, empty);
    } else {
        bw_registers_more<232>();
        consume<columns, T>(c, d, scales, shape, stages, full, empty);
    }
}

int64_t tiles_of(const bw_dims *dims, int columns) {
    return bw_ceil_div(dims->value[BW_GEMM_M], tile_rows) * bw_ceil_div(dims->value[BW_GEMM_N], columns);
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

template <int columns, typename T>
void choose(const bw_dims *dims, const bw_precision *precision, int units, bw_cuda_launch_spec *out) {
    const bw_dtype dtype = precision->weight;
    using layout = wgmma_layout<columns>;
    constexpr int bytes = (int)sizeof(T);
    const int64_t *value = dims->value;
    const int64_t m = value[BW_GEMM_M], n = value[BW_GEMM_N], k = value[BW_GEMM_K];
    const int64_t tiles = tiles_of(dims, columns);
    const wgmma_shape shape = {(int)m,
                               (int)n,
                               (int)bw_ceil_div(k * bytes, step_bytes),
                               (int)bw_ceil_div(m, tile_rows),
                               (int)bw_ceil_div(n, columns),
                               (int)bw_min64(m, tile_rows)};
    bw_cuda_kernel *chosen = bw_choose(
        out, gemm_wgmma_kernel<columns, T, typename bw_gemm_types<T>::result>, dim3((unsigned)bw_min64(tiles, units)),
        dim3(threads), layout::shared_bytes, rows_of(BW_GEMM_A, dtype, bytes, m, k, shape.rows),
        rows_of(BW_GEMM_B, dtype, bytes, n, k, columns), bw_from_operand_if(value[BW_GEMM_BETA] != 0, BW_GEMM_C),
        bw_from_operand(BW_GEMM_D), bw_gemm_scales_of(dims, precision), shape);
    bw_gemm_place_scales(chosen, 4, precision);
}

}  // namespace

const char *bw_wgmma_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    if (!facts->own || facts->own->major != 9) return "wgmma and TMA need compute capability 9.0";
    if (value[BW_GEMM_K] * bw_dtype_get(precision->weight)->block_bytes % 16 != 0 ||
        value[BW_GEMM_N] * bw_dtype_get(precision->result)->block_bytes % 16 != 0)
        return "rows of A, B or D are no multiple of 16 bytes";
    const char *reason = bw_gemm_products_refuse(dims, precision, facts);
    if (reason) return reason;
    if (value[BW_GEMM_M] > INT32_MAX / 2 || value[BW_GEMM_N] > INT32_MAX / 2 || value[BW_GEMM_K] > INT32_MAX / 2) {
        return "2^30 rows or columns and more";
    }
    const bw_checked_int tiles =
        bw_mul(bw_num(bw_ceil_div(value[BW_GEMM_M], tile_rows)), bw_num(bw_ceil_div(value[BW_GEMM_N], 128)));
    return tiles.overflow || tiles.value > INT32_MAX / 2 ? "more than 2^30 tiles" : nullptr;
}

// Where it beats cuBLASLt, with a tile for most multiprocessors, and skinny. Of INT8 the library's sums take a kernel
// more; of E4M3 with scales of rows it is slow for few rows of A. Timed on an H100 and an H200, M of 1 to 4096.
bool bw_wgmma_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t m = dims->value[BW_GEMM_M];
    if (4 * tiles_of(dims, 128) < 3 * (int64_t)facts->units) return false;
    if (precision->compute == BW_INT8) return m > 16;
    return precision->compute == BW_FP8_E4M3 && precision->activation_scales->rows != 0 && m > 8 && m <= 64;
}

bw_status bw_wgmma_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                          bw_cuda_launch_spec *out) {
    // The last round of tiles leaves multiprocessors idle: fewer of them when tiles are small, which read more. Of 8
    // bits larger ones gain less, nothing of INT8.
    const auto rounds = [&](int columns) { return bw_ceil_div(tiles_of(dims, columns), facts->units); };
    return bw_gemm_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int wide = sizeof(T) > 1 ? 256 : std::is_same_v<T, bw_e4m3> ? 192 : 128;
        const bool gains = wide == 256 ? 10 * rounds(256) <= 6 * rounds(128) : 7 * rounds(192) <= 5 * rounds(128);
        if (gains) {
            choose<wide, T>(dims, precision, facts->units, out);
        } else {
            choose<128, T>(dims, precision, facts->units, out);
        }
        return BW_OK;
    });
}
