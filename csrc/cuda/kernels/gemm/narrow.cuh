// gemm with up to 8 rows of A and weights of 8 or 4 bits: the time is that of reading B once.
//   - a block has 16 rows of B, whose tiles of 256 weights its warps share; a warp copies its own asynchronously to
//     shared memory, `stages` of them under way, in chunks of 16 bytes as they lie, blocks of 18 or 34 bytes too;
//   - what a block of weights takes of instructions decides: a multiprocessor gets 13 bytes a clock. Weights become
//     pairs of FP16 in registers, exactly, a mask and an addition for two, and go from there to tensor cores
//     (m16n8k16: 16 rows of B, 8 of A, sums in FP32). A group's sum then takes its scale: one for 32 weights or more;
//   - A's columns of a tile come with it, through L1, and are put in the order that unpacking leaves.
// Rows of another length than a multiple of 256 weights go element by element.
#pragma once

#include "cuda/kernels/gemm/weights.cuh"

constexpr int bw_narrow_rows = 16, bw_narrow_columns = 8, bw_narrow_most_warps = 16;

// 16 bytes to shared memory that other warps will ask for too.
BW_DEVICE void bw_copy_async_cached(void *to_shared, const void *from) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16;" ::"r"(bw_shared_address(to_shared)), "l"(from)
                 : "memory");
}

struct bw_narrow_shape {
    int m, k, row_bytes;
    int64_t n;
};

// A tile's columns of A lie beside it in shared memory, rows at a distance that puts what 8 lanes read at once in
// different banks. The warp puts each group of a row in the order in which weights come: lane c of four finds its 8
// elements as 16 bytes. Lane 4 g + c of the warp does so for those of lane c in group g.
template <int a_rows>
constexpr int bw_activation_pitch = bw_tile_weights * 2 + (a_rows == 1 ? 0 : 64);

template <bw_order order, int a_rows>
BW_DEVICE void bw_order_activations(unsigned char *a, int lane) {
    uint32_t word[a_rows][4];
#pragma unroll
    for (int i = 0; i < a_rows; i++) {
        const unsigned char *row = a + i * bw_activation_pitch<a_rows>;
        if constexpr (order == BW_ORDER_RUN_NIBBLES) {
            const uint4 run = *(const uint4 *)(row + lane * 16);
            word[i][0] = __byte_perm(run.x, run.z, 0x5410);
            word[i][1] = __byte_perm(run.x, run.z, 0x7632);
            word[i][2] = __byte_perm(run.y, run.w, 0x5410);
            word[i][3] = __byte_perm(run.y, run.w, 0x7632);
        } else {
            const unsigned char *from = row + lane / 4 * bw_group_weights * 2 + lane % 4 * 8;
            const uint2 low = *(const uint2 *)from, high = *(const uint2 *)(from + bw_group_weights);
            constexpr bool nibbles = order == BW_ORDER_SPLIT_NIBBLES;
            word[i][0] = nibbles ? __byte_perm(low.x, low.y, 0x5410) : low.x;
            word[i][1] = nibbles ? __byte_perm(high.x, high.y, 0x5410) : low.y;
            word[i][2] = nibbles ? __byte_perm(low.x, low.y, 0x7632) : high.x;
            word[i][3] = nibbles ? __byte_perm(high.x, high.y, 0x7632) : high.y;
        }
    }
    if (order != BW_ORDER_RUN_NIBBLES) __syncwarp();
#pragma unroll
    for (int i = 0; i < a_rows; i++) {
        *(uint4 *)(a + i * bw_activation_pitch<a_rows> + lane * 16) =
            make_uint4(word[i][0], word[i][1], word[i][2], word[i][3]);
    }
}

// A warp's sums: a lane's are of rows r and r + 8 of B and of rows 2 c, 2 c + 1 of A.
struct bw_narrow_sums {
    float total[4], part[2][4], mins[4];  // of parts two, so that a product does not wait for the one before it
};

template <typename TA, typename Weights, bool single, int group>
BW_DEVICE void bw_add_group(const unsigned char *a, typename Weights::row &first, typename Weights::row &second,
                            bw_narrow_sums &sums) {
    const uint4 act = *(const uint4 *)(a + group * bw_group_weights * 2);
    uint32_t low[4], high[4];
    first.template unpack<group>(low);
    second.template unpack<group>(high);
    const uint32_t one[4] = {low[0], high[0], low[1], high[1]}, two[4] = {low[2], high[2], low[3], high[3]};
    constexpr int other = Weights::per_factor != 1;
    bw_multiply(sums.part[0], one, act.x, act.y, TA());
    bw_multiply(sums.part[other], two, act.z, act.w, TA());
    if constexpr (Weights::has_mins) {
        const uint32_t of_first = first.template mins<group>(), of_second = second.template mins<group>();
        const uint32_t mins[4] = {of_first, of_second, of_first, of_second};
        bw_multiply(sums.mins, mins, act.x, act.y, TA());
        bw_multiply(sums.mins, mins, act.z, act.w, TA());
    }
    if constexpr (Weights::per_factor != 0 && (group + 1) % (Weights::per_factor + (Weights::per_factor == 0)) == 0) {
        const float factor[2] = {first.template factor<group>(), second.template factor<group>()};
#pragma unroll
        for (int i = 0; i < 4; i += single ? 2 : 1) {
            const float part = other ? sums.part[0][i] + sums.part[1][i] : sums.part[0][i];
            sums.total[i] = fmaf(part, factor[i / 2], sums.total[i]);
            if constexpr (Weights::has_mins) {
                const float min_factor = i < 2 ? first.min_factor() : second.min_factor();
                sums.total[i] = fmaf(-sums.mins[i], min_factor, sums.total[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) sums.part[0][i] = sums.part[1][i] = sums.mins[i] = 0.0f;
    }
    if constexpr (group + 1 < bw_tile_groups) bw_add_group<TA, Weights, single, group + 1>(a, first, second, sums);
}

template <typename Weights, int a_rows>
constexpr int bw_narrow_stage_bytes =
    bw_narrow_rows * Weights::pitch + a_rows * bw_activation_pitch<a_rows>;

// `a_rows`: at least as many as A has.
template <typename TA, typename Weights, typename TD, int a_rows, int stages>
__global__ void __launch_bounds__(bw_narrow_most_warps * 32)
    gemm_narrow_kernel(const TA *a, bw_narrow_weights b, const TD *c, TD *d, bw_narrow_shape shape) {
    constexpr int copies = (bw_narrow_rows * Weights::chunks + 31) / 32, tile_bytes = Weights::chunks * 16;
    constexpr int stage_bytes = bw_narrow_stage_bytes<Weights, a_rows>, a_begin = bw_narrow_rows * Weights::pitch;
    constexpr int a_pitch = bw_activation_pitch<a_rows>;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, tiles = shape.k / bw_tile_weights;
    const int64_t row0 = (int64_t)blockIdx.x * bw_narrow_rows;
    const int last = (int)min(shape.n - row0, (int64_t)bw_narrow_rows) - 1;  // rows behind it: that one again
    unsigned char *own = bw_dynamic_shared() + warp * (stages * stage_bytes);

    // Addresses go on from tile to tile: fewer instructions than to work them out.
    const unsigned char *begin = b.bytes + row0 * shape.row_bytes + warp * tile_bytes, *from[copies];
    int to[copies];
#pragma unroll
    for (int i = 0; i < copies; i++) {
        const int chunk = lane + 32 * i, row = chunk / Weights::chunks, column = chunk % Weights::chunks * 16;
        from[i] = begin + (min(row, last) * shape.row_bytes + column);
        to[i] = row * Weights::pitch + column;
    }
    const TA *a_from = a + warp * bw_tile_weights + lane * 8;
    int to_copy = tiles - warp;
    const auto copy_next = [&](int slot) {
        if (to_copy > 0) {
#pragma unroll
            for (int i = 0; i < copies; i++) {
                if (bw_narrow_rows * Weights::chunks % 32 == 0 || i + 1 < copies || lane < 16)
                    bw_copy_async(own + slot * stage_bytes + to[i], from[i], true);
                from[i] += warps * tile_bytes;
            }
#pragma unroll
            for (int i = 0; i < a_rows; i++) {
                bw_copy_async_cached(own + slot * stage_bytes + a_begin + i * a_pitch + lane * 16,
                                     a_from + (int64_t)(i == 0 ? 0 : min(i, shape.m - 1)) * shape.k);
            }
            a_from += warps * bw_tile_weights;
        }
        to_copy -= warps;
        bw_copy_commit();
    };

    // A row's scales and zero points of the next tile are under way while this one's are in use.
    const unsigned char *scale[2], *zero[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int tile = min(quad + 8 * i, last) * tiles + warp;
        scale[i] = b.scale + row0 * tiles * Weights::scale_bytes + tile * Weights::scale_bytes;
        zero[i] = b.zero + row0 * tiles * Weights::zero_bytes + tile * Weights::zero_bytes;
    }
    bw_raw<Weights::scale_bytes> next_scale[2] = {};
    bw_raw<Weights::zero_bytes> next_zero[2] = {};
    const auto load_next = [&] {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            next_scale[i] = bw_load_raw<Weights::scale_bytes>(scale[i]);
            next_zero[i] = bw_load_raw<Weights::zero_bytes>(zero[i]);
            scale[i] += warps * Weights::scale_bytes;
            zero[i] += warps * Weights::zero_bytes;
        }
    };

#pragma unroll
    for (int s = 0; s + 1 < stages; s++) copy_next(s);
    if (warp < tiles) load_next();
    const int a_offset = a_begin + min(quad, a_rows - 1) * a_pitch + in_quad * 16;
    bw_narrow_sums sums = {};
    uint32_t nan[2] = {};
    int slot = 0;
#pragma unroll 1
    for (int tile = warp; tile < tiles; tile += warps) {
        copy_next(slot == 0 ? stages - 1 : slot - 1);
        bw_copy_wait<stages - 1>();
        __syncwarp();
        unsigned char *stage = own + slot * stage_bytes;
        const unsigned char *held = stage + quad * Weights::pitch;
        bw_order_activations<Weights::order, a_rows>(stage + a_begin, lane);
        auto first = Weights::row::begin(held, next_scale[0], next_zero[0], in_quad);
        auto second = Weights::row::begin(held + 8 * Weights::pitch, next_scale[1], next_zero[1], in_quad);
        if (tile + warps < tiles) load_next();
        __syncwarp();
        bw_add_group<TA, Weights, a_rows == 1, 0>(stage + a_offset, first, second, sums);
        if constexpr (Weights::has_nan) nan[0] |= first.nan, nan[1] |= second.nan;
        __syncwarp();
        slot = slot + 1 == stages ? 0 : slot + 1;
    }

    if constexpr (Weights::per_factor == 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) sums.total[i] = sums.part[0][i] + sums.part[1][i];
    }
    if constexpr (Weights::has_nan) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            nan[i] |= __shfl_xor_sync(bw_all_lanes, nan[i], 1);
            nan[i] |= __shfl_xor_sync(bw_all_lanes, nan[i], 2);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (nan[i / 2]) sums.total[i] = __uint_as_float(0x7fffffffu);
        }
    }
    bw_copy_wait<0>();
    __syncthreads();  // the tiles' memory is free
    float *shared = (float *)bw_dynamic_shared();
    float *mine = shared + warp * bw_narrow_rows * bw_narrow_columns + in_quad * 2 * bw_narrow_rows + quad;
#pragma unroll
    for (int i = 0; i < 4; i++) mine[i % 2 * bw_narrow_rows + i / 2 * 8] = sums.total[i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < shape.m * bw_narrow_rows; i += (int)blockDim.x) {
        const int64_t row = row0 + i % bw_narrow_rows, at = i / bw_narrow_rows * shape.n + row;
        if (row >= shape.n) continue;
        float sum = 0.0f;
        for (int other = 0; other < warps; other++) sum += shared[other * bw_narrow_rows * bw_narrow_columns + i];
        sum *= Weights::unit;
        if constexpr (Weights::last == BW_LAST_ROW) sum *= ((const float *)b.scale)[row];
        if constexpr (Weights::last == BW_LAST_TENSOR) sum *= b.tensor_scale[0];
        bw_from_float(sum + (c ? bw_to_float(c[at]) : 0.0f), &d[at]);
    }
}

// Rows of any length: a warp a row, element by element.
template <typename TA, typename Weights, typename TD>
__global__ void __launch_bounds__(128)
    gemm_narrow_any_kernel(const TA *a, bw_narrow_weights b, const TD *c, TD *d, bw_narrow_shape shape) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
    if (row >= shape.n) return;
    float sum[bw_narrow_columns] = {};
    for (int64_t at = lane; at < shape.k; at += 32) {
        const float weight = Weights::element(b, row, at, shape.k);
#pragma unroll
        for (int m = 0; m < bw_narrow_columns; m++) {
            if (m < shape.m) sum[m] = fmaf(bw_to_float(a[(int64_t)m * shape.k + at]), weight, sum[m]);
        }
    }
#pragma unroll
    for (int m = 0; m < bw_narrow_columns; m++) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum[m] += __shfl_xor_sync(bw_all_lanes, sum[m], offset);
        const int64_t at = (int64_t)m * shape.n + row;
        if (lane == 0 && m < shape.m) bw_from_float(sum[m] + (c ? bw_to_float(c[at]) : 0.0f), &d[at]);
    }
}
