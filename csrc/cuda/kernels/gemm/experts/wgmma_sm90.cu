// moe_gemm with many tokens an expert, on Hopper's tensor cores: gemm's blocks (wgmma.cuh), here walking over tiles of
// all experts. Rows of A are first put in D's order, in scratch, from where TMA copies them; and narrow weights become
// FP16 or BF16 there, behind them (`separate`).
#include "cuda/kernels/gemm/experts/experts.h"
#include "cuda/kernels/gemm/experts/routing.cuh"
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/wgmma.cuh"
#include "cuda/libraries/plans.h"

namespace {

constexpr int gather_threads = 128;
constexpr int64_t scratch_unit = 256, most = INT32_MAX / 2;

// A row of D each: `chunks` of 16 bytes of its row of A, and its scales.
__global__ void __launch_bounds__(gather_threads)
    moe_gather_kernel(const uint4 *a, const float *a_scale, const int *rows, uint4 *to, float *to_scale, int chunks,
                      int scales) {
    const int64_t row = blockIdx.x, token = __ldg(rows + row);
    for (int i = (int)threadIdx.x; i < chunks; i += gather_threads) to[row * chunks + i] = a[token * chunks + i];
    for (int i = (int)threadIdx.x; i < scales; i += gather_threads) {
        to_scale[row * scales + i] = a_scale[token * scales + i];
    }
}

struct experts_shape {
    wgmma_shape all;  // m counts rows of D
    int experts;
};

template <typename tile>
BW_DEVICE bw_expert_tile find_tile(const int *offsets, const experts_shape &shape, int index) {
    return bw_find_tile<tile::rows>(offsets, shape.experts, shape.all.tiles_n, index, (int)threadIdx.x % 32);
}

// One warp.
template <typename tile, typename T>
BW_DEVICE void produce_tiles(const CUtensorMap &a_map, const CUtensorMap &b_map, const int *offsets,
                             const experts_shape &shape, uint32_t stages, uint32_t full, uint32_t empty) {
    constexpr int step_elems = step_bytes / (int)sizeof(T);
    ring at = {shape.all.stages};
    for (int index = (int)blockIdx.x;; index += (int)gridDim.x) {
        const bw_expert_tile found = find_tile<tile>(offsets, shape, index);
        if (found.expert < 0) break;
        const int b_row = found.expert * shape.all.n + found.column * tile::columns;
        for (int step = 0; step < shape.all.steps; step++, at.advance()) {
            if (threadIdx.x != 0) continue;
            const uint32_t a = stages + at.stage * tile::stage_bytes, barrier = full + 8 * at.stage;
            bw_barrier_wait(empty + 8 * at.stage, at.parity ^ 1);
            bw_barrier_expect(barrier, (shape.all.rows + tile::columns) * step_bytes);
            bw_tensor_load(a, a_map, barrier, step * step_elems, found.row0);
            bw_tensor_load(a + tile::a_bytes, b_map, barrier, step * step_elems, b_row);
        }
        __syncwarp();
    }
}

template <typename tile, typename T, bool grouped, typename TD>
BW_DEVICE void consume_tiles(TD *d, const int *offsets, const bw_gemm_scales &scales, const experts_shape &shape,
                             uint32_t stages, uint32_t full, uint32_t empty) {
    // As in gemm's.
    const int group = __shfl_sync(bw_all_lanes, (int)threadIdx.x / bw_warpgroup, 0) - 1;
    int lane = (int)threadIdx.x % 32;
    uint32_t left = (stages + group * 64 * step_bytes & 0x3ffff) >> 4, right = (stages + tile::a_bytes & 0x3ffff) >> 4;
    asm volatile("" : "+r"(lane), "+r"(left), "+r"(right), "+r"(full), "+r"(empty));
    const int row_in_tile = 64 * group + (int)threadIdx.x % bw_warpgroup / 32 * 16 + lane / 4;
    consumer<tile> self = {full, empty, left, right, lane, {shape.all.stages}};
    for (int index = (int)blockIdx.x;; index += (int)gridDim.x) {
        const bw_expert_tile found = find_tile<tile>(offsets, shape, index);
        if (found.expert < 0) break;
        const int row = found.row0 + row_in_tile, column0 = found.column * tile::columns;
        const int64_t b_row = (int64_t)found.expert * shape.all.n;
        wgmma_shape own = shape.all;
        own.m = found.end;
        bw_gemm_scales own_scales = scales;
        own_scales.b += grouped ? b_row / bw_scaled_block * scales.groups : b_row * scales.of_rows;
        typename bw_gemm_types<T>::sum sums[tile::columns / 8][4] = {};
        const TD *none = nullptr;
        tile_scales<tile::columns> of_tile;
        constexpr bool scaled = bw_gemm_types<T>::scaled && !grouped;
        if (scaled) of_tile.load(own_scales, own, row, column0);
        if constexpr (std::is_same_v<T, bw_e4m3>) {
            short_sums<tile, grouped>{self, sums, own_scales, own, row, column0, own.steps, {}, 0}.sum();
        } else {
            sum_steps(self, own.steps, sums, T(), none);
        }
        finish_tile<scaled, false>(sums, none, d, of_tile, own, row, column0);
    }
}

template <typename tile, typename T, typename TD, bool grouped>
__global__ void __launch_bounds__(tile::threads, tile::residents)
    moe_wgmma_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, TD *d,
                     const int *offsets, bw_gemm_scales scales, experts_shape shape) {
    const uint32_t stages = bw_panels_shared(), full = stages + tile::stages * tile::stage_bytes;
    const uint32_t empty = full + 8 * tile::stages;
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(a_map);
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
        if (threadIdx.x < 32) produce_tiles<tile, T>(a_map, b_map, offsets, shape, stages, full, empty);
    } else {
        bw_registers_more<tile::registers_many>();
        consume_tiles<tile, T, grouped>(d, offsets, scales, shape, stages, full, empty);
    }
}

// What a launch is made of: rows of A and their scales in scratch, and weights of 16 bits there.
struct experts_case {
    const bw_dims *dims;
    const bw_precision *precision;  // of the product
    const bw_device_facts *facts;
    int64_t rows, n, k, scales;  // scales: of a row of A
    int64_t scales_at, weights_at, scratch_bytes;
    bool separate;
};

experts_case case_of(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    const bool separate = precision->weight != precision->activation;
    const bw_scaling *scaling = precision->activation_scales;
    experts_case of = {};
    of.dims = dims, of.facts = facts, of.separate = separate;
    of.precision = separate ? bw_precision_of_activations(precision) : precision;
    of.rows = value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K];
    of.n = value[BW_MOE_N], of.k = value[BW_MOE_K];
    of.scales = scaling->columns ? bw_ceil_div(of.k, scaling->columns) : scaling->rows;
    of.scales_at = bw_ceil_div(of.rows * bw_dtype_bytes(precision->activation, of.k), scratch_unit) * scratch_unit;
    of.weights_at =
        of.scales_at + bw_ceil_div(of.rows * of.scales * (int64_t)sizeof(float), scratch_unit) * scratch_unit;
    of.scratch_bytes = of.weights_at + (separate ? value[BW_MOE_EXPERTS] * of.n * of.k * (int64_t)sizeof(uint16_t) : 0);
    return of;
}

void choose_gather(const experts_case &of, bw_cuda_launch_spec *out) {
    const int64_t row_bytes = bw_dtype_bytes(of.precision->activation, of.k);
    bw_choose(out, moe_gather_kernel, dim3((unsigned)of.rows), dim3(gather_threads), 0, bw_from_operand(BW_GEMM_A),
              bw_from_operand_if(of.scales > 0, BW_GEMM_A_SCALE), bw_from_operand(BW_MOE_ROWS), bw_from_scratch(0),
              bw_from_scratch(of.scales_at), (int)(row_bytes / 16), (int)of.scales);
}

template <typename tile, typename T, bool grouped>
void choose_tile(const experts_case &of, bw_cuda_launch_spec *out) {
    const bw_dtype dtype = of.precision->weight;
    constexpr int bytes = (int)sizeof(T);
    const int64_t *value = of.dims->value;
    const int64_t active = value[BW_MOE_ACTIVE], columns = bw_ceil_div(of.n, tile::columns);
    const int64_t tiles = columns * active * bw_ceil_div(bw_ceil_div(of.rows, active), tile::rows);
    const experts_shape shape = {{(int)of.rows, (int)of.n, (int)bw_ceil_div(of.k * bytes, step_bytes), 0, (int)columns,
                                  (int)bw_min64(of.rows, tile::rows), 0, tile::stages},
                                 (int)value[BW_MOE_EXPERTS]};
    bw_tensor_view b = rows_of(of.separate ? (int)BW_CUDA_SCRATCH : (int)BW_GEMM_B, dtype, bytes,
                               value[BW_MOE_EXPERTS] * of.n, of.k, tile::columns);
    b.offset = of.separate ? of.weights_at : 0;
    bw_cuda_kernel *chosen = bw_choose(
        out, moe_wgmma_kernel<tile, T, typename bw_gemm_types<T>::result, grouped>,
        dim3((unsigned)bw_min64(tiles, (int64_t)of.facts->units * tile::residents)), dim3(tile::threads),
        tile::shared_bytes, rows_of(BW_CUDA_SCRATCH, dtype, bytes, of.rows, of.k, shape.all.rows), b,
        bw_from_operand(BW_GEMM_D), bw_from_operand(BW_MOE_OFFSETS), bw_gemm_scales_of(of.k, of.precision), shape);
    if (of.precision->activation_scales->type == BW_NONE) return;
    bw_choose_place(chosen, 4, offsetof(bw_gemm_scales, a),
                    of.scales > 0 ? bw_from_scratch(of.scales_at) : bw_from_operand(BW_GEMM_A_SCALE));
    bw_choose_place(chosen, 4, offsetof(bw_gemm_scales, b), bw_from_operand(BW_GEMM_B_SCALE));
}

// Tiles of 128 x 128; in 16 bits, whose sums leave room, also of 128 x 256, for many rows.
constexpr int most_plans = 2;
int count_plans(const bw_precision *precision) {
    return bw_dtype_bytes(precision->activation, 1) == 1 ? 1 : most_plans;
}

template <typename T>
void choose_half(const experts_case &of, int plan, bw_cuda_launch_spec *out) {
    if (plan == 0) return choose_tile<wgmma_tile<2, 128>, T, false>(of, out);
    choose_tile<wgmma_tile<2, 256>, T, false>(of, out);
}

bw_status choose_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int plan,
                      bw_cuda_launch_spec *out) {
    using tile = wgmma_tile<2, 128>;
    const experts_case of = case_of(dims, precision, facts);
    if (of.separate) {
        BW_TRY(bw_dequantize_into_scratch(dims->value[BW_MOE_EXPERTS] * of.n, of.k, precision, of.weights_at, out));
    }
    choose_gather(of, out);
    if (of.precision->id == BW_PRECISION_BF16) {
        choose_half<__nv_bfloat16>(of, plan, out);
    } else if (of.precision->id == BW_PRECISION_INT8) {
        choose_tile<tile, int8_t, false>(of, out);
    } else if (of.precision->weight == BW_FP8_E4M3 && bw_gemm_has_groups(of.precision)) {
        choose_tile<tile, bw_e4m3, true>(of, out);
    } else if (of.precision->weight == BW_FP8_E4M3) {
        choose_tile<tile, bw_e4m3, false>(of, out);
    } else {
        choose_half<__half>(of, plan, out);
    }
    return BW_OK;
}

bw_status first_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                     bw_cuda_launch_spec *out) {
    return choose_plan(dims, precision, facts, 0, out);
}

}  // namespace

const char *bw_moe_wgmma_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    const int64_t rows = value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K], n = value[BW_MOE_N], k = value[BW_MOE_K];
    if (!facts->own || facts->own->major != 9) return "wgmma and TMA need compute capability 9.0";
    if (rows > most || k > most || value[BW_MOE_EXPERTS] * n > most || bw_ceil_div(n, 64) * rows > most)
        return "wgmma takes at most 2^30 rows, columns and tiles";
    if (bw_dtype_bytes(case_of(dims, precision, facts).precision->weight, k) % 16 != 0 || n % 8 != 0)
        return "wgmma takes rows of A, B and D of a multiple of 16 bytes";
    if (precision->weight != precision->activation) {
        const char *reason = bw_dequantize_refuses_rows(value[BW_MOE_EXPERTS] * n, k);
        if (reason) return reason;
    }
    if (precision->id == BW_PRECISION_FP8_BLOCK && n % bw_scaled_block != 0)
        return "fp8_block takes N of a multiple of 128: experts would share scales";
    return precision->compute == BW_INT8 && k > INT32_MAX / (128 * 128)
               ? "sums of more than 131071 products of INT8 may pass 2^31"
               : nullptr;
}

// Where streamed would read B more than once; narrow weights more than four times, as unpacking costs more than that.
bool bw_moe_wgmma_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const experts_case of = case_of(dims, precision, facts);
    return of.rows > (of.separate ? 64 : 16) * dims->value[BW_MOE_ACTIVE];
}

int64_t bw_moe_wgmma_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return case_of(dims, precision, facts).scratch_bytes;
}

bw_status bw_moe_wgmma_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                  bw_cost *cost) {
    return bw_cost_add_intermediates(bw_num(case_of(dims, precision, facts).scratch_bytes), cost);
}

bw_status bw_moe_wgmma_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    const bw_precision *precision = sets[0].precision;
    uint64_t key = bw_plan_key_mix(bw_plan_key_mix(BW_PLAN_KEY, precision->id), bw_warpgroup);
    for (int i = BW_MOE_TOKENS; i <= BW_MOE_K; i++) key = bw_plan_key_mix(key, sets[0].dims->value[i]);
    return bw_cuda_prepare_fastest(sets, set_count, key, choose_plan, count_plans(precision), state);
}

bw_status bw_moe_wgmma_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision,
                                bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, first_plan, out);
}
