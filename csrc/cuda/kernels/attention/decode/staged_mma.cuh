// attention_decode, FP16 and BF16: the query heads of a group are the rows of a 16-row matrix, so that tensor cores
// give every K and V element to all of them at once; even a group of 1, padded to 16 rows, costs them less than reading
// it.
//   - a warp meets keys 16 at a time; they come by asynchronous copies, `stages` steps ahead, through shared memory of
//     its own. Where that does not hold the whole group, 2 or 4 warps with different heads share these keys;
//   - groups above 8 with rows of up to 128 elements (`wide`): blocks of 16, 32 or 64 heads, whichever the plan finds
//     faster; a larger group takes several, which find each other's keys in the L2. wide.cuh puts them together.
// Measured on an H200 for groups above 8, FP16, cold: however 16 x 8192 keys are divided, fetching takes as long as a
// plain read. The rest follows a block's last key (16 heads of 128 elements: 30.6 us of fetching, 35.3 in all).
// What brought something: 16 heads a warp, not 32 (2 to 25 %); two warps that meet 32 keys at a time and four that meet
// 64, not 16 (3 to 19 %), and weigh them at once, on one maximum (3 to 17 %); cells of fragments (2 to 6 %).
// What brought nothing: rings twice as long; sums scaled only where a maximum rises by more than 2^8; small pieces of
// keys for whoever is done first; blocks whose warps share the weights of 64 to 256 keys; L2 prefetches of 256 bytes.
// Keys that the L2 drops first bring 1 to 9 %; not done, as nobody has counted what else then stays there.
#pragma once

#include "cuda/kernels/attention/decode/wide.cuh"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/kernels/common/swizzled_tile.cuh"

namespace {

// A matrix instruction is 16 keys deep (V) and 16 heads tall.
constexpr int tile_keys = 16, largest_warps = 4;

// A block's four rings take 64 KiB, 96 KiB or (256 columns) 192 KiB: three, two, one of them fit in 227 KiB. Wide
// groups' blocks have up to eight rings and their q, and a multiprocessor to themselves.
template <int padded>
constexpr int stages_for = padded <= 64 ? 4 : 3;

// Two neighboring elements of a row, zeros in place of those that are not `left`.
template <bool vectors, typename T>
BW_DEVICE uint32_t load_pair(const T *from, int left) {
    if constexpr (vectors) return left > 0 ? *(const uint32_t *)from : 0;
    return bw_pack_pair(left > 0 ? bw_to_float(from[0]) : 0.0f, left > 1 ? bw_to_float(from[1]) : 0.0f, T());
}

// The A fragments of q: in registers, but for the last ones of long rows, which are as they are in shared memory.
template <int padded>
struct query_fragments {
    static constexpr int spares = bw_decode_spare_steps(padded), in_registers = padded / 16 - spares;
    uint32_t fragments[in_registers][4];
    uint32_t spare;  // this lane's place there

    __device__ __forceinline__ void get(int step, uint32_t (&out)[4]) const {
        if (step < in_registers) {
#pragma unroll
            for (int i = 0; i < 4; i++) out[i] = fragments[step < in_registers ? step : 0][i];
        } else {
            const uint4 bits = bw_spare_load(spare + (step - in_registers) * 512);
            out[0] = bits.x, out[1] = bits.y, out[2] = bits.z, out[3] = bits.w;
        }
    }
    __device__ __forceinline__ void set(int step, const uint32_t (&in)[4]) {
        if (step < in_registers) {
#pragma unroll
            for (int i = 0; i < 4; i++) fragments[step < in_registers ? step : 0][i] = in[i];
        } else {
            bw_spare_store(spare + (step - in_registers) * 512, make_uint4(in[0], in[1], in[2], in[3]));
        }
    }
};

// Straight from global memory: heads past the block's last are zeros.
template <int padded, int halves, bool vectors, typename T>
BW_DEVICE void load_queries(const T *q, int heads, int head_dim, query_fragments<padded> &out) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < padded / 16; step++) {
        uint32_t fragment[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i % 2 >= halves) continue;
            const int head = lane / 4 + i % 2 * 8, column = lane % 4 * 2 + i / 2 * 8 + 16 * step;
            fragment[i] = load_pair<vectors>(q + head * head_dim + column, head < heads ? head_dim - column : 0);
        }
        out.set(step, fragment);
    }
}

// Rows are query heads; up to 8 of them leave the lower half of a fragment empty. Scores of 16 keys a tile, of which
// the first `valid` count, become weights; what was summed so far shrinks with them.
template <int padded, int halves, int tiles, typename T>
BW_DEVICE void weigh_keys(float (&scores)[tiles][2][4], int valid, float scale, bw_softmax_sums<padded, halves> &sums,
                          uint32_t (&weights)[tiles][4], T type) {
    if (valid < tiles * tile_keys) {
        const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < 8 * tiles; i++) {
            if (i / 4 * 8 + column + i % 2 >= valid) scores[i / 8][i / 4 % 2][i % 4] = -INFINITY;
        }
    }
#pragma unroll
    for (int half = 0; half < halves; half++) {
        float best = sums.top[half];
#pragma unroll
        for (int c = 0; c < 4 * tiles; c++) {
            float &score = scores[c / 4][c / 2 % 2][2 * half + c % 2];
            score *= scale;
            best = fmaxf(best, score);
        }
        best = bw_quad_max(best);
        const float reference = bw_softmax_reference(best);
        bw_softmax_rescale(sums, half, best, reference);
#pragma unroll
        for (int c = 0; c < 4 * tiles; c++) {
            float &score = scores[c / 4][c / 2 % 2][2 * half + c % 2];
            score = bw_exp2(score - reference);
            sums.sum[half] += score;
        }
    }
#pragma unroll
    for (int t = 0; t < tiles; t++) {
        if (halves == 1) scores[t][0][2] = scores[t][0][3] = scores[t][1][2] = scores[t][1][3] = 0.0f;
        bw_tensor_weights(weights[t], scores[t][0], scores[t][1], type);
    }
}

// `chains` of products that do not wait for one another, of each of `tiles` x 16 keys.
template <int padded, int chains, int halves, int tiles, typename T>
BW_DEVICE void meet_keys(const query_fragments<padded> &queries, T *keys, int valid, float scale,
                         bw_softmax_sums<padded, halves> &sums, uint32_t (&weights)[tiles][4]) {
    float scores[chains][tiles][2][4] = {};
#pragma unroll
    for (int step = 0; step < padded / 16; step++) {
        uint32_t left[4];
        queries.get(step, left);
#pragma unroll
        for (int t = 0; t < tiles; t++) {
            uint32_t right[4];
            bw_tensor_columns<padded>(right, keys, t * tile_keys, step);
            bw_multiply(scores[step % chains][t][0], left, right[0], right[1], T());
            bw_multiply(scores[step % chains][t][1], left, right[2], right[3], T());
        }
    }
    constexpr int count = 8 * tiles;
#pragma unroll
    for (int i = 0; i < count * (chains - 1); i++) {
        scores[0][i / 8 % tiles][i / 4 % 2][i % 4] += scores[1 + i / count][i / 8 % tiles][i / 4 % 2][i % 4];
    }
    weigh_keys(scores[0], valid, scale, sums, weights, T());
}

template <int padded, int halves, int tiles, typename T>
BW_DEVICE void meet_values(const uint32_t (&weights)[tiles][4], T *values, bw_softmax_sums<padded, halves> &sums) {
#pragma unroll
    for (int t = 0; t < tiles; t++) {
#pragma unroll
        for (int pair = 0; pair < padded / 16; pair++) {
            uint32_t right[4];
            bw_tensor_transposed<padded>(right, values, t * tile_keys, pair);
            bw_multiply(sums.out[2 * pair], weights[t], right[0], right[1], T());
            bw_multiply(sums.out[2 * pair + 1], weights[t], right[2], right[3], T());
        }
    }
}

template <int padded, int halves, typename Cells>
BW_DEVICE void spread(const bw_softmax_sums<padded, halves> &sums, const Cells &cells, int row0) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < halves; half++) {
        const float sum = bw_quad_sum(sums.sum[half]);
        const int row = row0 + lane / 4 + 8 * half;
        if (lane % 4 == 0) {
            cells.top[row] = sums.top[half];
            cells.sum[row] = sum;
        }
#pragma unroll
        for (int n = 0; n < padded / 8; n++) {
            const float2 pair = make_float2(sums.out[n][2 * half], sums.out[n][2 * half + 1]);
            *(float2 *)&cells.out[row * Cells::stride + 8 * n + lane % 4 * 2] = pair;
        }
    }
}

// The warps that hold different heads of the same keys wait for one another; `apart`: not for those of other keys.
template <bool apart>
BW_DEVICE void meet(int slots, int share) {
    if (slots == 1) {
        __syncwarp();
    } else if constexpr (apart) {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + share), "r"(32 * slots) : "memory");
    } else {
        __syncthreads();
    }
}

// What a thread copies of a share's keys: of each step's rows of K and of V one column, every `pace`-th row.
// `slots`: the share's warps, 0 where only the launch knows.
template <int padded, bool vectors, int slots, int step_keys, typename T>
struct key_reader {
    static constexpr int chunks = padded / 8, most = step_keys * chunks / (slots > 0 ? 32 * slots : 32);
    const T *from_k, *from_v;    // this thread's place in the next step
    int64_t stride;              // elements from one key to the next
    int row, chunk, pace, left;  // `left`: keys from the next step's first on
    int width;                   // elements from this column on

    __device__ __forceinline__ void fetch_rows(T *tile, const T *at) const {
#pragma unroll(vectors &&most <= 8 ? most : 1)
        for (int i = 0; i < most; i++) {
            const int to = row + i * pace;
            if (slots == 0 && to >= step_keys) break;
            if constexpr (vectors) {
                bw_copy_async(bw_tensor_chunk<padded>(tile, to, chunk), at, to < left && width > 0);
            } else {
                *(uint4 *)bw_tensor_chunk<padded>(tile, to, chunk) = bw_gather_chunk(at, to < left ? width : 0);
            }
            at += pace * stride;
        }
    }
    // Rows without a key become zeros. K and V are groups of their own, so that scores need not wait for V.
    __device__ __forceinline__ void fetch(T *stage, int step_pace) {
        if (left > 0) fetch_rows(stage, from_k);
        bw_copy_commit();
        if (left > 0) fetch_rows(stage + step_keys * padded, from_v);
        bw_copy_commit();
        from_k += step_pace * stride;
        from_v += step_pace * stride;
        left -= step_pace;
    }
};

// `wide`: 0, or for more than 8 query heads of rows of up to 128 elements the warps, with 16 heads each, that share
// keys: 16 for each of them at a time, so that they seldom wait for one another.
// `cluster`: an entry's splits are one (9.0), and no entry has fewer than others; a block of up to 16 heads.
template <int padded, bool vectors, int wide, bool cluster, typename T>
__global__ void __launch_bounds__((wide > 0 ? most_warps : largest_warps) * 32, wide > 0       ? 1
                                                                                : padded <= 64 ? 4
                                                                                               : 2)
    attention_decode_tensor_kernel(const T *q, const T *k, const T *v, T *out, bw_decode_work work,
                                   bw_attention_shape shape) {
    constexpr bool few_heads = wide == 0 && padded <= 128;  // at most 8, so that all warps hold the same ones
    constexpr int halves = few_heads ? 1 : 2, stages = stages_for<padded>;
    constexpr int step_keys = tile_keys * (wide > 0 ? wide : 1), stage_elems = 2 * step_keys * padded;
    const bw_decode_place place = bw_decode_locate(shape, work);
    const int slot_bits = few_heads ? 0 : wide > 0 ? wide / 2 : work.slot_bits, slots = 1 << slot_bits;
    const int warp = (int)threadIdx.x / 32, slot = warp & (slots - 1), share = warp >> slot_bits;
    const int shares = few_heads ? largest_warps : work.shares, step_pace = shares * step_keys;
    T *ring = (T *)bw_dynamic_shared() + share * stages * stage_elems;
    T *behind_rings = (T *)bw_dynamic_shared() + shares * stages * stage_elems;

    // Keys first: everything else happens while they are on their way. But many heads are asked for before them: behind
    // all that the rings hold, they would come late.
    if constexpr (wide > 0) {
        bw_tensor_fetch<padded>(behind_rings, q + place.row0 * shape.head_dim, shape.head_dim, wide * row_heads,
                                place.heads, shape.head_dim, true, (int)threadIdx.x, (int)blockDim.x);
        bw_copy_commit();
    }
    float2 *stands = (float2 *)(behind_rings + wide * row_heads * padded);
    const wide_mailbox<padded> box(bw_shared_address(stands + (shares << slot_bits) * row_heads));
    if constexpr (cluster) box.open();
    key_reader<padded, vectors, few_heads ? 1 : wide, step_keys, T> reader;
    const int loader = slot * 32 + (int)threadIdx.x % 32;
    reader.chunk = loader % reader.chunks;
    reader.row = loader / reader.chunks;
    reader.pace = (32 << slot_bits) / reader.chunks;
    reader.stride = work.key_elems;
    reader.left = place.keys - share * step_keys;
    reader.width = shape.head_dim - reader.chunk * 8;
    const int64_t at = place.kv_at + (share * step_keys + reader.row) * reader.stride + reader.chunk * 8;
    reader.from_k = k + at;
    reader.from_v = v + at;
    int valid = reader.left;
#pragma unroll 1
    for (int s = 0; s < stages - 1; s++) reader.fetch(ring + s * stage_elems, step_pace);

    unsigned ticket = 0;
    if (!cluster) ticket = bw_decode_ticket(work.exchange, place.column, place.splits);
    query_fragments<padded> queries;
    if constexpr (wide > 0) {
        bw_copy_wait<2 * (stages - 1)>();
        __syncthreads();
#pragma unroll
        for (int step = 0; step < padded / 16; step++) {
            uint32_t fragment[4];
            bw_tensor_rows<padded>(fragment, behind_rings, slot * row_heads, step);
            queries.set(step, fragment);
        }
    } else {
        queries.spare = bw_shared_address(behind_rings) + warp * queries.spares * 512 + (int)threadIdx.x % 32 * 16;
        load_queries<padded, halves, vectors>(q + (place.row0 + slot * row_heads) * shape.head_dim,
                                              place.heads - slot * row_heads, shape.head_dim, queries);
    }
    bw_softmax_sums<padded, halves> sums = {};
#pragma unroll
    for (int half = 0; half < halves; half++) sums.top[half] = -INFINITY;
    int stage_at = 0, next_at = (stages - 1) * stage_elems;
#pragma unroll 1
    for (int left = place.keys; left > 0; left -= step_pace, valid -= step_pace) {
        T *stage = ring + stage_at, *values = stage + step_keys * padded;
        uint32_t weights[wide > 0 ? wide : 1][4];
        if constexpr (wide > 0) {
            bw_copy_wait<2 * (stages - 2)>();
            meet<true>(slots, share);  // this step's K and V are there, and the stage that is filled next has been used
            reader.fetch(ring + next_at, step_pace);
            if (valid > 0) {
                meet_keys<padded, wide == 1 ? 2 : 1>(queries, stage, valid, shape.scale, sums, weights);
                meet_values<padded>(weights, values, sums);
            }
        } else {
            bw_copy_wait<2 * (stages - 2) + 1>();
            meet<false>(slots, share);  // this step's keys are there, and the stage that is filled next has been used
            if (valid > 0) meet_keys<padded, 1>(queries, stage, valid, shape.scale, sums, weights);
            bw_copy_wait<2 * (stages - 2)>();
            meet<false>(slots, share);
            reader.fetch(ring + next_at, step_pace);
            if (valid > 0) meet_values<padded>(weights, values, sums);
        }
        next_at = stage_at;
        stage_at = stage_at == (stages - 1) * stage_elems ? 0 : stage_at + stage_elems;
    }
    bw_copy_wait<0>();
    if constexpr (wide > 0) {
        const wide_cells<padded, most_warps / wide> cells = {
            (float4 *)((T *)bw_dynamic_shared() + stage_at) + slot * padded * 4,
            stands,
            (unsigned *)(stands + (shares << slot_bits) * row_heads),
            stages * stage_elems * (int)sizeof(T) / (int)sizeof(float4),
            shares,
            slot_bits,
            slot};
        cells.put(sums, share);
        if (!cluster && threadIdx.x == 0) *cells.ticket = ticket;
        __syncthreads();
        if constexpr (cluster) {
            finish_cluster(cells, box, place, shape.head_dim, share, out);
        } else {
            finish_wide(cells, work.exchange, wide * row_heads, place, shape.head_dim, share, out);
        }
    } else {
        __syncthreads();  // the rings become the cells
        const bw_decode_cells<8 * halves, padded, 1, few_heads ? largest_warps : 0> cells(
            (float *)bw_dynamic_shared(), (int)blockDim.x / 32, work.shares, slot_bits);
        spread(sums, cells, warp * 8 * halves);
        bw_decode_finish(cells, work.exchange, place, {shape.head_dim, shape.vectors}, ticket, false, out);
    }
}

}  // namespace

// Files of their own instantiate these for each type: they compile side by side.
template <typename T>
static bw_status bw_decode_choose_mma(const bw_attention_shape &shape, const bw_decode_plan &plan,
                                      const bw_decode_work &work, bw_cuda_launch_spec *out) {
    auto *function = attention_decode_tensor_kernel<256, true, 0, false, T>;
    if (!shape.vectors) {
        function = attention_decode_tensor_kernel<256, false, 0, false, T>;
    } else if (shape.head_dim <= 64) {
        function = plan.wide == 4   ? attention_decode_tensor_kernel<64, true, 4, false, T>
                   : plan.wide == 2 ? attention_decode_tensor_kernel<64, true, 2, false, T>
                   : plan.wide == 1 ? attention_decode_tensor_kernel<64, true, 1, false, T>
                                    : attention_decode_tensor_kernel<64, true, 0, false, T>;
    } else if (shape.head_dim <= 128) {
        function = plan.wide == 4   ? attention_decode_tensor_kernel<128, true, 4, false, T>
                   : plan.wide == 2 ? attention_decode_tensor_kernel<128, true, 2, false, T>
                   : plan.wide == 1 ? attention_decode_tensor_kernel<128, true, 1, false, T>
                                    : attention_decode_tensor_kernel<128, true, 0, false, T>;
    }
    return bw_decode_choose_staged(function, shape, plan, work, out);
}
