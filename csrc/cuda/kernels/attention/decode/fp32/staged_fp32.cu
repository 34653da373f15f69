// attention_decode, FP32, on CUDA cores: up to 4 query heads per K/V head, of rows of up to 64 elements 8, and rows
// that split_fp32.cu does not take.
//   - a part of a warp (16 lanes for head_dim up to 64 and for 132 to 192, else all 32) holds a key, each lane 4
//     neighboring elements of every 4 x 16 or 4 x 32; a lane copies what it will use itself, a step or more ahead,
//     through shared memory: nobody waits for anybody;
//   - a warp keeps 4 or 8 query heads in registers; a group's other heads are other warps', which read the same keys at
//     about the same time, from the L2;
//   - a step's 8 or 16 scores (heads times keys) are summed over the lanes together, each lane ending with one of them:
//     a quarter of the shuffles of summing them one by one;
#include "cuda/kernels/attention/decode/combine.cuh"

namespace {

// Lane l holds elements 4 l .. + 3 of a row and, where there are more quads, those `pace` and twice `pace` further on.
template <typename Lanes>
struct row_part {
    float value[Lanes::quads * 4];
};

// Four neighboring elements, zeros in place of those that are not `left`.
BW_DEVICE float4 load_four(const float *from, int left) {
    float value[4];
#pragma unroll
    for (int e = 0; e < 4; e++) value[e] = e < left ? from[e] : 0.0f;
    return make_float4(value[0], value[1], value[2], value[3]);
}

// What a lane copies, and reads back itself: its elements of its part's keys. A stage holds a step's rows of K, then of
// V.
template <typename Lanes, bool vectors>
struct key_reader {
    static constexpr int v_floats = Lanes::parts * Lanes::steps * Lanes::padded;
    const float *from_k, *from_v;  // this lane's place in the next step's first key
    int64_t stride;                // elements from one key to the next
    int left;                      // keys from there on
    int width;                     // elements of a row from this lane's first on

    __device__ __forceinline__ void fetch_rows(float *to, const float *at) const {
#pragma unroll
        for (int s = 0; s < Lanes::steps; s++) {
#pragma unroll
            for (int quad = 0; quad < Lanes::quads; quad++) {
                const bool there = s < left && width > Lanes::pace * quad;
                if constexpr (vectors) {
                    bw_copy_async(to + s * Lanes::padded + Lanes::pace * quad, at + Lanes::pace * quad, there);
                } else {
                    *(float4 *)(to + s * Lanes::padded + Lanes::pace * quad) =
                        load_four(at + Lanes::pace * quad, there ? width - Lanes::pace * quad : 0);
                }
            }
            at += stride;
        }
    }
    // Rows without a key become zeros. K and V are groups of their own, so that scores need not wait for V.
    __device__ __forceinline__ void fetch(float *to, int step_pace, bool any) {
        if (any) fetch_rows(to, from_k);
        bw_copy_commit();
        if (any) fetch_rows(to + v_floats, from_v);
        bw_copy_commit();
        from_k += step_pace * stride;
        from_v += step_pace * stride;
        left -= step_pace;
    }
};

template <typename Lanes, bool vectors>
BW_DEVICE row_part<Lanes> load_query(const float *row, int head_dim, int lane, bool there) {
    row_part<Lanes> part;
#pragma unroll
    for (int quad = 0; quad < Lanes::quads; quad++) {
        const int column = 4 * lane + Lanes::pace * quad;
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if constexpr (vectors) {
            if (there && column < head_dim) four = *(const float4 *)(row + column);
        } else {
            four = load_four(row + column, there ? head_dim - column : 0);
        }
        part.value[4 * quad] = four.x;
        part.value[4 * quad + 1] = four.y;
        part.value[4 * quad + 2] = four.z;
        part.value[4 * quad + 3] = four.w;
    }
    return part;
}

template <typename Lanes>
BW_DEVICE row_part<Lanes> read_row(const float *from) {
    row_part<Lanes> part;
#pragma unroll
    for (int quad = 0; quad < Lanes::quads; quad++) {
        const float4 four = *(const float4 *)(from + Lanes::pace * quad);
        part.value[4 * quad] = four.x;
        part.value[4 * quad + 1] = four.y;
        part.value[4 * quad + 2] = four.z;
        part.value[4 * quad + 3] = four.w;
    }
    return part;
}

// A score is (head, key of the step) number head * steps + key; after the sums, lane l of a part holds score
// l % scores.
template <typename Lanes>
struct decode_sums {
    float out[Lanes::heads][Lanes::quads * 4];
    float top, sum;  // of the head of this lane's score; sum over this lane's key of each step only
};

// Halves what a lane holds: it keeps the scores whose number has its own bit `half` and gives the others away.
template <int half>
BW_DEVICE void exchange(float *score, int lane) {
    const bool upper = lane & half;
#pragma unroll
    for (int i = 0; i < half; i++) {
        const float keep = upper ? score[i + half] : score[i], give = upper ? score[i] : score[i + half];
        score[i] = keep + __shfl_xor_sync(bw_all_lanes, give, half);
    }
}

template <typename Lanes>
BW_DEVICE float sum_over_lanes(float (&score)[Lanes::scores], int lane) {
    static_assert((Lanes::scores == 8 || Lanes::scores == 16) && Lanes::lanes >= 16, "exchanges leave one score");
    if constexpr (Lanes::scores == 16) exchange<8>(score, lane);
    exchange<4>(score, lane);
    exchange<2>(score, lane);
    exchange<1>(score, lane);
#pragma unroll
    for (int offset = Lanes::scores; offset < Lanes::lanes; offset *= 2) {
        score[0] += __shfl_xor_sync(bw_all_lanes, score[0], offset);
    }
    return score[0];
}

// The step's scores, of which those of the first `valid` keys count, become weights, one per lane.
template <typename Lanes>
BW_DEVICE float meet_keys(const row_part<Lanes> (&queries)[Lanes::heads], const float *stage, int valid, float scale,
                          int lane, decode_sums<Lanes> &sums) {
    float scores[Lanes::scores];
#pragma unroll
    for (int s = 0; s < Lanes::steps; s++) {
        const row_part<Lanes> key = read_row<Lanes>(stage + s * Lanes::padded);
#pragma unroll
        for (int h = 0; h < Lanes::heads; h++) {
            float score = 0.0f;
#pragma unroll
            for (int e = 0; e < Lanes::quads * 4; e++) score = fmaf(queries[h].value[e], key.value[e], score);
            scores[h * Lanes::steps + s] = score;
        }
    }
    float score = sum_over_lanes<Lanes>(scores, lane) * scale;
    if (lane % Lanes::steps >= valid) score = -INFINITY;
    float best = fmaxf(sums.top, score);
#pragma unroll
    for (int offset = 1; offset < Lanes::steps; offset *= 2) {
        best = fmaxf(best, __shfl_xor_sync(bw_all_lanes, best, offset));
    }
    const float reference = bw_softmax_reference(best);
    if (__any_sync(bw_all_lanes, best > sums.top)) {
        const float shrink = bw_exp2(sums.top - reference);
        sums.sum *= shrink;
#pragma unroll
        for (int h = 0; h < Lanes::heads; h++) {
            const float head_shrink = __shfl_sync(bw_all_lanes, shrink, h * Lanes::steps, Lanes::lanes);
#pragma unroll
            for (int e = 0; e < Lanes::quads * 4; e++) sums.out[h][e] *= head_shrink;
        }
        sums.top = best;
    }
    const float weight = bw_exp2(score - reference);
    sums.sum += weight;
    return weight;
}

template <typename Lanes>
BW_DEVICE void meet_values(float weight, const float *stage, decode_sums<Lanes> &sums) {
#pragma unroll
    for (int s = 0; s < Lanes::steps; s++) {
        const row_part<Lanes> value = read_row<Lanes>(stage + s * Lanes::padded);
#pragma unroll
        for (int h = 0; h < Lanes::heads; h++) {
            const float head_weight = __shfl_sync(bw_all_lanes, weight, h * Lanes::steps + s, Lanes::lanes);
#pragma unroll
            for (int e = 0; e < Lanes::quads * 4; e++) {
                sums.out[h][e] = fmaf(head_weight, value.value[e], sums.out[h][e]);
            }
        }
    }
}

template <typename Lanes, typename Cells>
BW_DEVICE void spread(const decode_sums<Lanes> &sums, const Cells &cells, int cell, int lane) {
    float sum = sums.sum;
#pragma unroll
    for (int offset = 1; offset < Lanes::steps; offset *= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
    if (lane < Lanes::scores && lane % Lanes::steps == 0) {
        cells.top[cell * Lanes::heads + lane / Lanes::steps] = sums.top;
        cells.sum[cell * Lanes::heads + lane / Lanes::steps] = sum;
    }
#pragma unroll
    for (int h = 0; h < Lanes::heads; h++) {
#pragma unroll
        for (int quad = 0; quad < Lanes::quads; quad++) {
            const float *from = &sums.out[h][4 * quad];
            *(float4 *)&cells.out[(cell * Lanes::heads + h) * Cells::stride + 4 * lane + Lanes::pace * quad] =
                make_float4(from[0], from[1], from[2], from[3]);
        }
    }
}

// `one_slot`: all warps hold the same query heads.
template <typename Lanes, bool vectors, bool one_slot>
__global__ void __launch_bounds__(Lanes::warps * 32, 2)
    attention_decode_float_kernel(const float *q, const float *k, const float *v, float *out, bw_decode_work work,
                                  bw_attention_shape shape) {
    constexpr int stages = Lanes::stages, stage_floats = Lanes::stage_floats;
    const bw_decode_place place = bw_decode_locate(shape, work);
    const int slot_bits = one_slot ? 0 : work.slot_bits, shares = one_slot ? Lanes::warps : work.shares;
    const int warp = (int)threadIdx.x / 32, slot = warp & ((1 << slot_bits) - 1), share = warp >> slot_bits;
    const int part = (int)threadIdx.x % 32 / Lanes::lanes, lane = (int)threadIdx.x % Lanes::lanes;
    // A step: each part of each share takes `steps` neighboring keys.
    const int step_pace = shares * Lanes::parts * Lanes::steps;
    const int first = (share * Lanes::parts + part) * Lanes::steps;
    float *ring =
        (float *)bw_dynamic_shared() + warp * stages * stage_floats + part * Lanes::steps * Lanes::padded + 4 * lane;

    // Keys first: everything else happens while they are on their way.
    key_reader<Lanes, vectors> reader;
    reader.stride = work.key_elems;
    reader.left = place.keys - first;
    reader.width = shape.head_dim - 4 * lane;
    const int64_t at = place.kv_at + first * reader.stride + 4 * lane;
    reader.from_k = k + at;
    reader.from_v = v + at;
    int valid = reader.left;
#pragma unroll 1
    for (int s = 0; s < stages - 1; s++) {
        reader.fetch(ring + s * stage_floats, step_pace, s * step_pace < place.keys);
    }

    const unsigned ticket = bw_decode_ticket(work.exchange, place.column, place.splits);
    row_part<Lanes> queries[Lanes::heads];
    const int heads = place.heads - slot * Lanes::heads;
    const float *query = q + (place.row0 + slot * Lanes::heads) * shape.head_dim;
#pragma unroll
    for (int h = 0; h < Lanes::heads; h++) {
        queries[h] = load_query<Lanes, vectors>(query, shape.head_dim, lane, h < heads);
        query += shape.head_dim;
    }
    decode_sums<Lanes> sums = {};
    sums.top = -INFINITY;
    int stage_at = 0, next_at = (stages - 1) * stage_floats;
#pragma unroll 1
    for (int left = place.keys; left > 0; left -= step_pace, valid -= step_pace) {
        const float *stage = ring + stage_at;
        reader.fetch(ring + next_at, step_pace, left > (stages - 1) * step_pace);
        bw_copy_wait<2 * (stages - 1) + 1>();
        const float weight = meet_keys<Lanes>(queries, stage, valid, shape.scale, lane, sums);
        bw_copy_wait<2 * (stages - 1)>();
        meet_values<Lanes>(weight, stage + reader.v_floats, sums);
        next_at = stage_at;
        stage_at = stage_at == (stages - 1) * stage_floats ? 0 : stage_at + stage_floats;
    }
    bw_copy_wait<0>();
    __syncthreads();  // the rings become the cells
    const bw_decode_cells<Lanes::heads, Lanes::padded, Lanes::parts, one_slot ? Lanes::warps : 0> cells(
        (float *)bw_dynamic_shared(), Lanes::warps * Lanes::parts, work.shares, work.slot_bits);
    spread(sums, cells, warp * Lanes::parts + part, lane);
    bw_decode_finish(cells, work.exchange, place, {shape.head_dim, shape.vectors}, ticket, false, out);
}

template <int padded>
bw_status choose_for(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_work &work,
                     bw_cuda_launch_spec *out) {
    using four = bw_decode_lanes<padded, 4>;
    auto *function = attention_decode_float_kernel<four, true, true>;
    if constexpr (padded != 128) {
        using eight = bw_decode_lanes<padded, 8>;
        if (plan.block_heads > 4) function = attention_decode_float_kernel<eight, true, true>;
        if constexpr (padded > 128) {
            if (plan.head_slots > 1) function = attention_decode_float_kernel<eight, true, false>;
        }
    }
    return bw_decode_choose_staged(function, shape, plan, work, out);
}

}  // namespace

bw_status bw_decode_fp32_choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_work &work,
                                bw_cuda_launch_spec *out) {
    if (!shape.vectors) {
        return bw_decode_choose_staged(plan.block_heads == 4
                                           ? attention_decode_float_kernel<bw_decode_lanes<256, 4>, false, false>
                                           : attention_decode_float_kernel<bw_decode_lanes<256, 8>, false, false>,
                                       shape, plan, work, out);
    }
    if (shape.head_dim <= 64) return choose_for<64>(shape, plan, work, out);
    if (shape.head_dim <= 128) return choose_for<128>(shape, plan, work, out);
    if (shape.head_dim <= 192) return choose_for<192>(shape, plan, work, out);
    return choose_for<256>(shape, plan, work, out);
}
