// gemm with up to 8 rows of A and weights of 8 or 4 bits: the time is that of reading B once.
//   - a block has 16 rows of B, whose tiles of 256 weights its warps share; a warp copies its own asynchronously to
//     shared memory, `stages` of them under way, in chunks of 16 bytes as they lie, blocks of 18 or 34 bytes too;
//   - what a block of weights takes of instructions decides: a multiprocessor gets 13 bytes a clock. Weights become
//     pairs of FP16 in registers, exactly, a mask and an addition for two, and go from there to tensor cores
//     (m16n8k16: 16 rows of B, 8 of A, sums in FP32). A group's sum then takes its scale: one for 32 weights or more;
//   - A's columns of a tile come through L1 and are put in the order that unpacking leaves.
// Rows of another length than a multiple of 256 weights go element by element.
#pragma once

#include "cuda/kernels/gemm/weights.cuh"

constexpr int bw_narrow_rows = 16, bw_narrow_columns = 8;

struct bw_narrow_shape {
    int m, k, row_bytes;
    int64_t n;
};

// A tile's columns of A go to the warp's shared memory in the order in which weights come: lane c of four finds its 8
// elements of a group as 16 bytes. Lane 4 g + c puts those of lane c in group g there. Rows lie at a distance that puts
// what 8 lanes read at once in different banks.
template <int a_rows>
constexpr int bw_activation_pitch = bw_tile_weights * 2 + (a_rows == 1 ? 0 : 64);

template <bw_order order, typename TA>
BW_DEVICE uint4 bw_load_activations(const TA *a, int lane) {
    if constexpr (order == BW_ORDER_RUN_NIBBLES) return bw_load_cached(a + lane * 8);
    const TA *from = a + lane / 4 * bw_group_weights + lane % 4 * 4;
    const uint2 low = __ldg((const uint2 *)from), high = __ldg((const uint2 *)(from + bw_group_weights / 2));
    return make_uint4(low.x, low.y, high.x, high.y);
}
template <bw_order order>
BW_DEVICE uint4 bw_order_activations(uint4 pairs) {
    if constexpr (order == BW_ORDER_SPLIT) return pairs;
    constexpr bool run = order == BW_ORDER_RUN_NIBBLES;
    const uint4 in = run ? make_uint4(pairs.x, pairs.z, pairs.y, pairs.w) : pairs;
    const uint32_t low[2] = {__byte_perm(in.x, in.y, 0x5410), __byte_perm(in.z, in.w, 0x5410)};
    const uint32_t high[2] = {__byte_perm(in.x, in.y, 0x7632), __byte_perm(in.z, in.w, 0x7632)};
    return run ? make_uint4(low[0], low[1], high[0], high[1]) : make_uint4(low[0], high[0], low[1], high[1]);
}

// Of one of the warp's tiles of 16 rows of B: a lane's are of rows r and r + 8 of it and of rows 2 c, 2 c + 1 of A.
struct bw_narrow_sums {
    float total[4], part[2][4];   // of parts two: those of `ratio` have one of their own, and none waits for the other
    float scaled[2][4], mins[4];  // where there are mins: of the tile's groups
};

// Adds a group of 32 weights to `part`, and at the end of what shares a factor that to `total`.
template <typename TA, typename Weights, bool single, int group>
BW_DEVICE void bw_add_group(const uint4 &act, const float (&ones)[4], typename Weights::row &first,
                            typename Weights::row &second, bw_narrow_sums &sums) {
    constexpr int step = single ? 2 : 1, shared = Weights::per_factor;
    uint32_t low[4], high[4];
    first.template unpack<group>(low);
    second.template unpack<group>(high);
    const uint32_t one[4] = {low[0], high[0], low[1], high[1]}, two[4] = {low[2], high[2], low[3], high[3]};
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

template <typename TA, typename Weights, bool single, int row_tiles, int group>
BW_DEVICE void bw_add_groups(const unsigned char *a, typename Weights::row (&rows)[row_tiles][2],
                             bw_narrow_sums (&sums)[row_tiles]) {
    const uint4 act = *(const uint4 *)(a + group * bw_group_weights * 2);
    float ones[4] = {};
    if constexpr (Weights::has_mins) {
        const uint32_t one[4] = {0x00010001u, 0x00010001u, 0x00010001u, 0x00010001u};  // 2^-24, as nibbles are
        bw_multiply(ones, one, act.x, act.y, TA());
        bw_multiply(ones, one, act.z, act.w, TA());
    }
#pragma unroll
    for (int t = 0; t < row_tiles; t++)
        bw_add_group<TA, Weights, single, group>(act, ones, rows[t][0], rows[t][1], sums[t]);
    if constexpr (group + 1 < bw_tile_groups) {
        bw_add_groups<TA, Weights, single, row_tiles, group + 1>(a, rows, sums);
    }
}

// Of shared memory.
template <typename Weights, int a_rows, int row_tiles, int stages>
constexpr int bw_narrow_warp_bytes =
    stages * row_tiles * bw_narrow_rows * Weights::pitch + a_rows * bw_activation_pitch<a_rows>;

// `a_rows`: at least as many as A has. A block takes `row_tiles` times 16 rows of B.
template <typename TA, typename Weights, typename TD, int a_rows, int row_tiles, int stages, int most_warps, int residents>
__global__ void __launch_bounds__(most_warps * 32, residents)
    gemm_narrow_kernel(const TA *a, bw_narrow_weights b, const TD *c, TD *d, bw_narrow_shape shape) {
    constexpr int block_rows = row_tiles * bw_narrow_rows, chunks = block_rows * Weights::chunks;
    constexpr int copies = (chunks + 31) / 32, tile_bytes = Weights::chunks * 16, a_pitch = bw_activation_pitch<a_rows>;
    constexpr int stage_bytes = block_rows * Weights::pitch;
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int quad = lane / 4, in_quad = lane % 4, tiles = shape.k / bw_tile_weights;
    const int64_t row0 = (int64_t)blockIdx.x * block_rows;
    const int last = (int)min(shape.n - row0, (int64_t)block_rows) - 1;  // rows behind it: that one again
    unsigned char *own = bw_dynamic_shared() + warp * bw_narrow_warp_bytes<Weights, a_rows, row_tiles, stages>;
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
            next_a[i] = bw_load_activations<Weights::order>(a_from + row, lane);
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
    if constexpr (Weights::last == BW_LAST_TENSOR) last_factor *= __ldg(b.tensor_scale);
    bw_narrow_sums sums[row_tiles] = {};
    uint32_t nan[row_tiles][2] = {};
    int slot = 0;
#pragma unroll 1
    for (int tile = warp; tile < tiles; tile += warps) {
        copy_next(slot == 0 ? stages - 1 : slot - 1);
#pragma unroll
        for (int i = 0; i < a_rows; i++)
            *(uint4 *)(own_a + i * a_pitch + lane * 16) = bw_order_activations<Weights::order>(next_a[i]);
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
        bw_add_groups<TA, Weights, a_rows == 1, row_tiles, 0>(own_a + min(quad, a_rows - 1) * a_pitch + in_quad * 16, rows, sums);
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
        if constexpr (Weights::per_factor == 0) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums[t].total[i] = sums[t].part[0][i] + sums[t].part[1][i];
        }
        if constexpr (Weights::has_nan) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t found = nan[t][i];
                found |= __shfl_xor_sync(bw_all_lanes, found, 1);
                found |= __shfl_xor_sync(bw_all_lanes, found, 2);
                if (found & bw_nan_bits) sums[t].total[2 * i] = sums[t].total[2 * i + 1] = __uint_as_float(0x7fffffffu);
            }
        }
        float *mine = shared + warp * block_rows * bw_narrow_columns + in_quad * 2 * block_rows + t * bw_narrow_rows + quad;
#pragma unroll
        for (int i = 0; i < 4; i++) mine[i % 2 * block_rows + i / 2 * 8] = sums[t].total[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < shape.m * block_rows; i += (int)blockDim.x) {
        const int64_t row = row0 + i % block_rows, at = i / block_rows * shape.n + row;
        if (row >= shape.n) continue;
        float sum = 0.0f;
#pragma unroll 4
        for (int other = 0; other < warps; other++) sum += shared[other * block_rows * bw_narrow_columns + i];
        sum *= last_factor;
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
