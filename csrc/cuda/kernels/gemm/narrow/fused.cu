// gemm with few rows of A and weights of 8 or 4 bits, unpacked in registers on their way to tensor cores: the time
// is that of reading B once.
//   - a block has 16 or 32 rows of B, whose tiles of 256 weights its warps share; a warp copies its own asynchronously
//     to shared memory, two of them under way, in chunks of 16 bytes as they lie, blocks of 18 or 34 bytes too;
//   - instructions decide: a multiprocessor gets 13 bytes a clock, 26 weights of 4 bits. Weights become pairs of FP16,
//     exactly, by little more than a mask for two, and go from registers to tensor cores (m16n8k16: 16 rows of B, 8 of
//     A, sums in FP32). A group's sum then takes its scale: one for 32 weights or more;
//   - A's columns of a tile come through L1, a tile ahead, and are put in the order that unpacking leaves.
// Rows of another length than a multiple of 256 weights go element by element: the variant `scalar`, which is what the
// formats' definitions say.
#include <stdlib.h>

#include "cuda/kernels/gemm/gemm.h"
#include "cuda/kernels/gemm/narrow/operands.cuh"
#include "cuda/libraries/plans.h"

namespace {

constexpr int most_rows = 16, most_elements = 1 << 25;  // of A in a block
constexpr int a_tile_rows = 8;                          // of A, for one instruction of tensor cores
constexpr int tile_rows = 16;                           // of B, for one instruction of tensor cores
constexpr int most_warps = 8, scalar_warps = 4, scalar_rows = 8;
constexpr int most_shared_bytes = 99 * 1024;  // of a block: what every device has
constexpr int stages = 2;                     // of a warp's tiles: the one in use and the one under way

struct fused_shape {
    int m, k, row_bytes;
    int64_t n;
};

// Of more than `most` rows of A a block takes so many; those that share rows of B are neighbors, so that all but one
// find them in L2. Moves the addresses to the block's rows of A, and returns which rows of B it has.
template <int most, typename TA, typename TD>
BW_DEVICE int64_t take_rows(const TA *&a, const TD *&c, TD *&d, fused_shape &shape) {
    const int parts = (shape.m + most - 1) / most, part = (int)(blockIdx.x % (unsigned)parts) * most;
    a += (int64_t)part * shape.k;
    c = c ? c + part * shape.n : c;
    d += part * shape.n;
    shape.m = min(shape.m - part, most);
    return blockIdx.x / (unsigned)parts;
}

// A tile's columns of A go to the warp's shared memory in the order in which weights come: lane c of four finds its 8
// elements of a group as 16 bytes. Lane 4 g + c puts those of lane c in group g there. Rows lie at a distance that puts
// what 8 lanes read at once in different banks.
template <int a_rows>
constexpr int activation_pitch = bw_tile_weights * 2 + (a_rows == 1 ? 0 : 64);

template <bw_order order, typename TA>
BW_DEVICE uint4 load_activations(const TA *a, int lane) {
    if constexpr (order == BW_ORDER_RUN_NIBBLES) return bw_load_cached(a + lane * 8);
    const TA *from = a + lane / 4 * bw_group_weights + lane % 4 * 4;
    const uint2 low = __ldg((const uint2 *)from), high = __ldg((const uint2 *)(from + bw_group_weights / 2));
    return make_uint4(low.x, low.y, high.x, high.y);
}

// Of one of the warp's tiles of 16 rows of B: a lane's are of rows r and r + 8 of it and of rows 2 c, 2 c + 1 of A.
struct fused_sums {
    float total[4], part[2][4];   // of parts two: those of `ratio` have one of their own, and none waits for the other
    float scaled[2][4], mins[4];  // where there are mins: of the tile's groups
};

// Adds a group of 32 weights, unpacked into `one` and `two`, to `part`, and at the end of what shares a factor that to
// `total`.
template <typename TA, typename Weights, bool single, int group>
BW_DEVICE void add_group(const uint4 &act, const float (&ones)[4], const uint32_t (&one)[4], const uint32_t (&two)[4],
                         typename Weights::row &first, typename Weights::row &second, fused_sums &sums) {
    constexpr int step = single ? 2 : 1, shared = Weights::per_factor;
    if constexpr (Weights::has_mins) {
        float part[4] = {};
        bw_multiply(part, one, act.x, act.y, TA());
        bw_multiply(part, two, act.z, act.w, TA());
        const float factor[2] = {first.template factor<group>(), second.template factor<group>()};
        const float min_factor[2] = {first.template min_factor<group>(), second.template min_factor<group>()};
#pragma unroll
        for (int i = 0; i < 4; i += step) {
            sums.scaled[group % 2][i] = fmaf(part[i], factor[i / 2], group < 2 ? 0.0f : sums.scaled[group % 2][i]);
            sums.mins[i] = fmaf(ones[i], min_factor[i / 2], group < 1 ? 0.0f : sums.mins[i]);
        }
        if constexpr (group + 1 == bw_tile_groups) {
#pragma unroll
            for (int i = 0; i < 4; i += step) {
                const float2 both = __half22float2(i < 2 ? first.both : second.both);
                const float scaled = fmaf(sums.scaled[1][i], Weights::ratio, sums.scaled[0][i]);
                sums.total[i] = fmaf(-sums.mins[i], both.y, fmaf(scaled, both.x, sums.total[i]));
            }
        }
    } else {
        constexpr bool begins = shared != 0 && group % (shared + (shared == 0)) == 0;
        constexpr int other = shared != 1 || Weights::has_offset;
        if constexpr (begins) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums.part[0][i] = sums.part[1][i] = 0.0f;
        }
        bw_multiply(sums.part[0], one, act.x, act.y, TA());
        bw_multiply(sums.part[other], two, act.z, act.w, TA());
        if constexpr (Weights::has_offset) {
            const uint32_t of_first = first.template zero<group>(), of_second = second.template zero<group>();
            constexpr uint32_t minus = 0x80008000u;
            const uint32_t less[2] = {of_first | minus, of_second | minus};
            const uint32_t upper[2] = {of_first << 4 | minus, of_second << 4 | minus};
            bw_multiply(sums.part[0], {less[0], less[1], less[0], less[1]}, act.x, act.y, TA());
            bw_multiply(sums.part[1], {upper[0], upper[1], upper[0], upper[1]}, act.z, act.w, TA());
        }
        if constexpr (shared != 0 && (group + 1) % (shared + (shared == 0)) == 0) {
            const float factor[2] = {first.template factor<group>(), second.template factor<group>()};
#pragma unroll
            for (int i = 0; i < 4; i += step) {
                const float part = other ? fmaf(sums.part[1][i], Weights::ratio, sums.part[0][i]) : sums.part[0][i];
                sums.total[i] = fmaf(part, factor[i / 2], sums.total[i]);
            }
        }
    }
}

// `a`: the lane's 16 bytes of the first group, in its row of each tile of A.
template <typename TA, typename Weights, int a_rows, int a_tiles, int row_tiles, int group>
BW_DEVICE void add_groups(const unsigned char *a, typename Weights::row (&rows)[row_tiles][2],
                          fused_sums (&sums)[a_tiles][row_tiles]) {
    uint4 act[a_tiles];
    float ones[a_tiles][4] = {};
#pragma unroll
    for (int i = 0; i < a_tiles; i++) {
        act[i] = *(const uint4 *)(a + i * a_tile_rows * activation_pitch<a_rows> + group * bw_group_weights * 2);
        if constexpr (Weights::has_mins) {
            const uint32_t one[4] = {0x00010001u, 0x00010001u, 0x00010001u, 0x00010001u};  // 2^-24, as nibbles are
            bw_multiply(ones[i], one, act[i].x, act[i].y, TA());
            bw_multiply(ones[i], one, act[i].z, act[i].w, TA());
        }
    }
#pragma unroll
    for (int t = 0; t < row_tiles; t++) {
        uint32_t low[4], high[4];
        rows[t][0].template unpack<group>(low);
        rows[t][1].template unpack<group>(high);
        const uint32_t one[4] = {low[0], high[0], low[1], high[1]}, two[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
        for (int i = 0; i < a_tiles; i++) {
            add_group<TA, Weights, a_rows == 1, group>(act[i], ones[i], one, two, rows[t][0], rows[t][1], sums[i][t]);
        }
    }
    if constexpr (group + 1 < bw_tile_groups) {
        add_groups<TA, Weights, a_rows, a_tiles, row_tiles, group + 1>(a, rows, sums);
    }
}

template <typename Weights, int a_rows, int row_tiles>
struct warp_memory {
    static constexpr int bytes = stages * row_tiles * tile_rows * Weights::pitch + a_rows * activation_pitch<a_rows>;
};

// `a_rows`: at least as many as A has. A block takes `row_tiles` times 16 rows of B.
template <typename TA, typename Weights, typename TD, int a_rows, int row_tiles>
__global__ void __launch_bounds__(most_warps * 32)
    gemm_fused_kernel(const TA *a, bw_weights_stored b, const TD *c, TD *d, fused_shape shape) {
    constexpr int block_rows = row_tiles * tile_rows, chunks = block_rows * Weights::chunks;
    constexpr int copies = (chunks + 31) / 32, tile_bytes = Weights::chunks * 16, a_pitch = activation_pitch<a_rows>;
    constexpr int stage_bytes = block_rows * Weights::pitch, a_tiles = (a_rows + a_tile_rows - 1) / a_tile_rows;
    constexpr int sum_rows = a_tiles * a_tile_rows;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, tiles = shape.k / bw_tile_weights;
    const int64_t row0 = take_rows<most_rows>(a, c, d, shape) * block_rows;
    const int last = (int)min(shape.n - row0, (int64_t)block_rows) - 1;  // rows behind it: that one again
    unsigned char *own = bw_dynamic_shared() + warp * warp_memory<Weights, a_rows, row_tiles>::bytes;
    unsigned char *own_a = own + stages * stage_bytes;

    // One address goes on from tile to tile; the lane's distances from it stay.
    const unsigned char *begin = b.bytes + row0 * shape.row_bytes + warp * tile_bytes;
    int from[copies], to[copies];
#pragma unroll
    for (int i = 0; i < copies; i++) {
        const unsigned chunk = (unsigned)lane + 32 * i, row = chunk / Weights::chunks;
        const unsigned column = chunk % Weights::chunks * 16;
        from[i] = min((int)row, last) * shape.row_bytes + (int)column;
        to[i] = Weights::pitch == Weights::chunks * 16 ? (int)chunk * 16 : (int)(row * Weights::pitch + column);
    }
    int to_copy = tiles - warp;
    const auto copy_next = [&](int slot) {
        if (to_copy > 0) {
            unsigned char *stage = own + slot * stage_bytes;
#pragma unroll
            for (int i = 0; i < copies; i++) {
                if (chunks % 32 == 0 || i + 1 < copies || lane < chunks % 32)
                    bw_copy_async(stage + to[i], begin + from[i], true);
            }
            begin += warps * tile_bytes;
        }
        to_copy -= warps;
        bw_copy_commit();
    };

    // A and each row's scales and zero points of the next tile are under way while this one's are in use.
    const TA *a_from = a + warp * bw_tile_weights;
    uint4 next_a[a_rows];
    const unsigned char *scales = b.scale + (row0 * tiles + warp) * Weights::scale_bytes;
    const unsigned char *zeros = b.zero + (row0 * tiles + warp) * Weights::zero_bytes;
    bw_raw<Weights::scale_bytes> next_scale[row_tiles][2] = {};
    bw_raw<Weights::zero_bytes> next_zero[row_tiles][2] = {};
    int row_tile[2 * row_tiles];
#pragma unroll
    for (int i = 0; i < 2 * row_tiles; i++) row_tile[i] = min(quad + 8 * i, last) * tiles;
    const auto load_next = [&] {
#pragma unroll
        for (int i = 0; i < 2 * row_tiles; i++) {
            next_scale[i / 2][i % 2] =
                bw_load_raw<Weights::scale_bytes>(scales + (uint32_t)(row_tile[i] * Weights::scale_bytes));
            next_zero[i / 2][i % 2] =
                bw_load_raw<Weights::zero_bytes>(zeros + (uint32_t)(row_tile[i] * Weights::zero_bytes));
        }
#pragma unroll
        for (int i = 0; i < a_rows; i++) {
            const int64_t row = i == 0 ? 0 : (int64_t)min(i, shape.m - 1) * shape.k;
            next_a[i] = load_activations<Weights::order>(a_from + row, lane);
        }
        a_from += warps * bw_tile_weights;
        scales += warps * Weights::scale_bytes;
        zeros += warps * Weights::zero_bytes;
    };

#pragma unroll
    for (int s = 0; s + 1 < stages; s++) copy_next(s);
    if (warp < tiles) load_next();
    float last_factor = Weights::unit;  // of the row whose sums this thread adds up at the end
    if constexpr (Weights::last == BW_LAST_ROW)
        last_factor *= __ldg((const float *)b.scale + row0 + min((int)threadIdx.x % block_rows, last));
    if constexpr (Weights::last == BW_LAST_WHOLE) last_factor *= __ldg(b.whole_scale);
    fused_sums sums[a_tiles][row_tiles] = {};
    uint32_t nan[row_tiles][2] = {};
    int slot = 0;
#pragma unroll 1
    for (int tile = warp; tile < tiles; tile += warps) {
        copy_next(slot == 0 ? stages - 1 : slot - 1);
#pragma unroll
        for (int i = 0; i < a_rows; i++)
            *(uint4 *)(own_a + i * a_pitch + lane * 16) = order_activations<Weights::order>(next_a[i]);
        bw_copy_wait<stages - 1>();
        __syncwarp();
        const unsigned char *stage = own + slot * stage_bytes + quad * Weights::pitch;
        typename Weights::row rows[row_tiles][2];
#pragma unroll
        for (int i = 0; i < 2 * row_tiles; i++) {
            rows[i / 2][i % 2] = Weights::row::begin(stage + 8 * i * Weights::pitch, next_scale[i / 2][i % 2],
                                                     next_zero[i / 2][i % 2], in_quad);
        }
        if (tile + warps < tiles) load_next();
        add_groups<TA, Weights, a_rows, a_tiles, row_tiles, 0>(own_a + min(quad, a_rows - 1) * a_pitch + in_quad * 16,
                                                               rows, sums);
        if constexpr (Weights::has_nan) {
#pragma unroll
            for (int i = 0; i < 2 * row_tiles; i++) nan[i / 2][i % 2] |= rows[i / 2][i % 2].nan;
        }
        __syncwarp();
        slot = slot + 1 == stages ? 0 : slot + 1;
    }

    bw_copy_wait<0>();
    __syncthreads();  // the tiles' memory is free
    float *shared = (float *)bw_dynamic_shared();
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
            fused_sums &own_sums = sums[at][t];
            const int a_row = warp * sum_rows + at * a_tile_rows + in_quad * 2;
            float *mine = shared + a_row * block_rows + t * tile_rows + quad;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float total = own_sums.total[i];
                if constexpr (Weights::per_factor == 0) total = own_sums.part[0][i] + own_sums.part[1][i];
                mine[i % 2 * block_rows + i / 2 * 8] = is_nan[i / 2] ? __uint_as_float(0x7fffffffu) : total;
            }
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < shape.m * block_rows; i += (int)blockDim.x) {
        const int64_t row = row0 + i % block_rows, at = i / block_rows * shape.n + row;
        if (row >= shape.n) continue;
        float sum = 0.0f;
#pragma unroll 4
        for (int other = 0; other < warps; other++) sum += shared[other * block_rows * sum_rows + i];
        sum *= last_factor;
        bw_from_float(sum + (c ? bw_to_float(c[at]) : 0.0f), &d[at]);
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

using kernel = void (*)(const __half *, bw_weights_stored, const __half *, __half *, fused_shape);

// A block has `rows` of B and `most` of A.
bw_status choose(kernel function, int64_t rows, int64_t most, int warps, size_t shared_bytes, const fused_shape &shape,
                 bool adds, const bw_scaling *scales, bw_cuda_launch_spec *out) {
    bw_cuda_kernel *chosen =
        bw_choose(out, function, dim3((unsigned)(bw_ceil_div(shape.n, rows) * bw_ceil_div(shape.m, most))),
                  dim3((unsigned)warps * 32), shared_bytes, bw_from_operand(BW_GEMM_A), bw_weights_stored{},
                  bw_from_operand_if(adds, BW_GEMM_C), bw_from_operand(BW_GEMM_D), shape);
    place_weights(chosen, 1, scales);
    return BW_OK;
}

template <typename Weights, int a_rows, int row_tiles>
bw_status choose_warps(int warps, const fused_shape &shape, bool adds, const bw_scaling *scales,
                       bw_cuda_launch_spec *out) {
    constexpr int bytes = warp_memory<Weights, a_rows, row_tiles>::bytes;
    warps = (int)bw_min64(bw_min64(warps, shape.k / bw_tile_weights), most_shared_bytes / bytes);
    return choose(gemm_fused_kernel<__half, Weights, __half, a_rows, row_tiles>, row_tiles * tile_rows, most_rows,
                  warps, (size_t)warps * bytes, shape, adds, scales, out);
}

// How a launch is shared out: fewer warps have less to begin and to add up, and more of a row's bytes are read at once
// by more of them; blocks of 32 rows of B read A half as often. Which is best depends on the device: `prepare` times
// them.
struct fused_plan {
    int row_tiles, warps;
};
constexpr int most_plans = 7;

// The first is a guess for single launches.
int list_plans(const fused_shape &shape, const bw_device_facts *facts, fused_plan out[most_plans]) {
    const bool many = shape.n > (int64_t)facts->units * 4 * tile_rows, is_long = shape.k >= 32 * bw_tile_weights;
    const int most_row_tiles = shape.m > 2 ? 2 : 1;
    int count = 0;
    out[count++] = {most_row_tiles == 2 && (many || is_long) ? 2 : 1, many ? 2 : is_long ? 8 : 4};
    for (int row_tiles = 1; row_tiles <= most_row_tiles; row_tiles++) {
        for (int warps = 2; warps <= most_warps; warps *= 2) {
            if (row_tiles != out[0].row_tiles || warps != out[0].warps) out[count++] = {row_tiles, warps};
        }
    }
    return count;
}

template <typename Weights>
bw_status choose_for(const fused_shape &shape, const fused_plan &plan, bool adds, const bw_scaling *scales,
                     bw_cuda_launch_spec *out) {
    const int warps = plan.warps;
    if (plan.row_tiles == 2) {
        if (shape.m <= 4) return choose_warps<Weights, 4, 2>(warps, shape, adds, scales, out);
        if (shape.m <= 8) return choose_warps<Weights, 8, 2>(warps, shape, adds, scales, out);
        return choose_warps<Weights, most_rows, 2>(warps, shape, adds, scales, out);
    }
    if (shape.m <= 1) return choose_warps<Weights, 1, 1>(warps, shape, adds, scales, out);
    if (shape.m <= 2) return choose_warps<Weights, 2, 1>(warps, shape, adds, scales, out);
    if (shape.m <= 4) return choose_warps<Weights, 4, 1>(warps, shape, adds, scales, out);
    if (shape.m <= 8) return choose_warps<Weights, 8, 1>(warps, shape, adds, scales, out);
    return choose_warps<Weights, most_rows, 1>(warps, shape, adds, scales, out);
}

fused_shape shape_of(const bw_dims *dims, const bw_precision *precision) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    return {(int)m, (int)k, (int)bw_dtype_bytes(precision->weight, k), n};
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
        return choose(gemm_scalar_kernel<__half, Weights, __half>, scalar_warps, scalar_rows, scalar_warps, 0,
                      shape_of(dims, precision), adds, precision->weight_scales, out);
    });
}

const char *bw_fused_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const char *reason = bw_scalar_refuses(dims, precision, facts);
    if (reason) return reason;
    if (dims->value[BW_GEMM_K] % bw_tile_weights != 0) return "fused takes rows of a multiple of 256 elements";
    return nullptr;
}

namespace {

bw_status choose_fused(const bw_dims *dims, const bw_precision *precision, const fused_plan &plan,
                       bw_cuda_launch_spec *out) {
    const bool adds = dims->value[BW_GEMM_BETA] != 0;
    return by_weights(precision, [&](auto tag) {
        using Weights = typename decltype(tag)::type;
        return choose_for<Weights>(shape_of(dims, precision), plan, adds, precision->weight_scales, out);
    });
}

// What a search for the fastest plan works with.
struct plan_search {
    const bw_launch *sets;
    int64_t set_count;
    fused_plan plans[most_plans];
    bw_cuda_launch_spec spec;  // of the candidate that is timed
};

bw_status ready_plan(void *context, int candidate, int64_t, int) {
    plan_search *self = (plan_search *)context;
    self->spec = {};
    BW_TRY(choose_fused(self->sets[0].dims, self->sets[0].precision, self->plans[candidate], &self->spec));
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
    fused_plan plans[most_plans];
    list_plans(shape_of(dims, precision), facts, plans);
    return choose_fused(dims, precision, plans[0], out);
}

}  // namespace

bw_status bw_fused_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, fused_choose, out);
}

bw_status bw_fused_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    plan_search search = {sets, set_count, {}, {}};
    const bw_search_calls calls = {ready_plan, enqueue_plan, &search};
    const int count = list_plans(shape_of(sets[0].dims, sets[0].precision), &sets[0].device->facts, search.plans);
    int best = 0;
    uint64_t key = bw_plan_key_mix(BW_PLAN_KEY, sets[0].precision->id);
    for (int i = 0; i < 4; i++) key = bw_plan_key_mix(key, sets[0].dims->value[i]);
    BW_TRY(bw_cuda_choose_plan(sets, set_count, key, &calls, count, &best));
    BW_TRY(ready_plan(&search, best, 0, 0));
    bw_cuda_launch_spec *spec = (bw_cuda_launch_spec *)malloc(sizeof *spec);
    if (!spec) return bw_fail(BW_CODE_MEMORY, "out of host memory for a prepared launch");
    *spec = search.spec;
    *state = spec;
    return BW_OK;
}
