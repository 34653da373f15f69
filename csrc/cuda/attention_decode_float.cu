// attention_decode, FP32, on CUDA cores (tensor cores would round to TF32).
//   - a part of a warp (16 lanes for head_dim up to 64, else all 32) holds a key, each lane 4 neighbouring elements;
//     a lane copies what it will use itself, several steps ahead, through shared memory: nobody waits for anybody;
//   - a warp keeps 4 or 8 query heads in registers; a group's other heads are other warps', which read the same keys at
//     about the same time, from cache;
//   - a step's 16 scores (heads times keys) are summed over the lanes together, each lane ending with one of them:
//     a quarter of the shuffles of summing them one by one;
//   - warps share out a block's keys, blocks the entry's (attention_merge.cuh puts them together).
#include "cuda/attention_merge.cuh"
#include "cuda/launch.cuh"

namespace {

// 16 bytes from global to shared memory through L1, for keys that several warps read; zeros when not `there`.
BW_DEVICE void copy_cached(void *to_shared, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(bw_shared_address(to_shared)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

// Lane l holds elements 4 l .. + 3 of a row and, when there are two quads, those + 128.
template <typename Lanes>
struct row_part {
    float value[Lanes::quads * 4];
};

BW_DEVICE float4 load_four(const float *row, int column, int head_dim, bool there) {
    float value[4];
#pragma unroll
    for (int e = 0; e < 4; e++) value[e] = there && column + e < head_dim ? row[column + e] : 0.0f;
    return make_float4(value[0], value[1], value[2], value[3]);
}

// This lane's elements of one row of K or V into its own place in a stage: row `slot` of the warp's rows.
template <typename Lanes>
BW_DEVICE void fetch_row(float *stage, int slot, const float *row, const bw_attention_shape &shape, int lane,
                         bool there, bool shared_by_warps) {
#pragma unroll
    for (int quad = 0; quad < Lanes::quads; quad++) {
        const int column = 4 * lane + 128 * quad;
        float *to = stage + slot * Lanes::padded + column;
        const bool any = there && column < shape.head_dim;
        if (!shape.vectors) {
            *(float4 *)to = load_four(row, column, shape.head_dim, there);
        } else if (shared_by_warps) {
            copy_cached(to, any ? row + column : row, any);
        } else {
            bw_copy_async(to, any ? row + column : row, any);
        }
    }
}

template <typename Lanes>
BW_DEVICE row_part<Lanes> read_row(const float *stage, int slot, int lane) {
    row_part<Lanes> part;
#pragma unroll
    for (int quad = 0; quad < Lanes::quads; quad++) {
        const float4 four = *(const float4 *)(stage + slot * Lanes::padded + 4 * lane + 128 * quad);
        part.value[4 * quad] = four.x;
        part.value[4 * quad + 1] = four.y;
        part.value[4 * quad + 2] = four.z;
        part.value[4 * quad + 3] = four.w;
    }
    return part;
}

// A score is (head, key of the step) number head * steps + key; after the sums, lane l of a part holds score l % 16.
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
    static_assert(Lanes::scores == 16 && Lanes::lanes >= 16, "four exchanges leave one score");
    exchange<8>(score, lane);
    exchange<4>(score, lane);
    exchange<2>(score, lane);
    exchange<1>(score, lane);
    if (Lanes::lanes == 32) score[0] += __shfl_xor_sync(bw_all_lanes, score[0], 16);
    return score[0];
}

// The step's scores, of which those of the first `valid` keys count, become weights, one per lane.
template <typename Lanes>
BW_DEVICE float meet_keys(const row_part<Lanes> (&queries)[Lanes::heads], const float *stage, int first_row,
                          int64_t valid, float scale, int lane, decode_sums<Lanes> &sums) {
    float scores[Lanes::scores];
#pragma unroll
    for (int s = 0; s < Lanes::steps; s++) {
        const row_part<Lanes> key = read_row<Lanes>(stage, first_row + s, lane);
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
    const float reference = bw_decode_reference(best);
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
BW_DEVICE void meet_values(float weight, const float *stage, int first_row, int lane, decode_sums<Lanes> &sums) {
#pragma unroll
    for (int s = 0; s < Lanes::steps; s++) {
        const row_part<Lanes> value = read_row<Lanes>(stage, first_row + s, lane);
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

// This part's registers into its cell.
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
            *(float4 *)&cells.out[(cell * Lanes::heads + h) * Cells::stride + 4 * lane + 128 * quad] =
                make_float4(from[0], from[1], from[2], from[3]);
        }
    }
}

template <typename Lanes>
__global__ void __launch_bounds__(Lanes::warps * 32, 2)
    attention_decode_float_kernel(const float *q, const float *k, const float *v, float *out, bw_attention_shape shape,
                                  bw_decode_work work) {
    constexpr int stages = Lanes::stages, part_keys = Lanes::steps, v_rows = Lanes::parts * part_keys;
    const unsigned ticket = bw_decode_ticket(work);
    const bw_decode_place place = bw_decode_locate(shape, work);
    const int warp = (int)threadIdx.x / 32, slots = work.head_slots, shares = Lanes::warps / slots;
    const int slot = warp % slots, share = warp / slots;
    const int part = (int)threadIdx.x % 32 / Lanes::lanes, lane = (int)threadIdx.x % Lanes::lanes;
    float *ring = (float *)bw_dynamic_shared() + warp * (stages * Lanes::stage_floats);
    const int64_t stride = shape.kv_heads * shape.head_dim;
    const int64_t kv_at = place.batch * shape.keys * stride + place.kv_head * shape.head_dim;
    // A step: each part of each share takes `part_keys` neighbouring keys.
    const int64_t pace = (int64_t)shares * Lanes::parts * part_keys;
    const int64_t first = place.first + (share * Lanes::parts + part) * part_keys;
    const int steps = (int)((place.end - place.first + pace - 1) / pace);

    auto fetch = [&](const float *from, int row0, int step) {
        float *stage = ring + step % stages * Lanes::stage_floats;
        const int64_t key = first + step * pace;
#pragma unroll
        for (int s = 0; s < part_keys; s++) {
            const bool there = key + s < place.end;
            const int64_t at = kv_at + (there ? key + s : place.first) * stride;
            fetch_row<Lanes>(stage, row0 + part * part_keys + s, from + at, shape, lane, there, slots > 1);
        }
    };
    // K and V are groups of their own, so that scores need not wait for V.
    auto fetch_step = [&](int step) {
        if (step < steps) fetch(k, 0, step);
        bw_copy_commit();
        if (step < steps) fetch(v, v_rows, step);
        bw_copy_commit();
    };
    for (int s = 0; s < stages - 1; s++) fetch_step(s);
    row_part<Lanes> queries[Lanes::heads];
#pragma unroll
    for (int h = 0; h < Lanes::heads; h++) {
        const float *row = q + (place.row0 + slot * Lanes::heads + h) * shape.head_dim;
#pragma unroll
        for (int quad = 0; quad < Lanes::quads; quad++) {
            const float4 four =
                load_four(row, 4 * lane + 128 * quad, shape.head_dim, slot * Lanes::heads + h < place.heads);
            queries[h].value[4 * quad] = four.x;
            queries[h].value[4 * quad + 1] = four.y;
            queries[h].value[4 * quad + 2] = four.z;
            queries[h].value[4 * quad + 3] = four.w;
        }
    }
    bw_decode_touch(work, place);
    decode_sums<Lanes> sums = {};
    sums.top = -INFINITY;
    for (int step = 0; step < steps; step++) {
        const float *stage = ring + step % stages * Lanes::stage_floats;
        fetch_step(step + stages - 1);
        bw_copy_wait<2 * (stages - 1) + 1>();
        const float weight = meet_keys<Lanes>(queries, stage, part * part_keys, place.end - (first + step * pace),
                                              shape.scale, lane, sums);
        bw_copy_wait<2 * (stages - 1)>();
        meet_values<Lanes>(weight, stage, v_rows + part * part_keys, lane, sums);
    }
    bw_copy_wait<0>();
    __syncthreads();  // the rings become the cells
    bw_decode_cells<Lanes::heads, Lanes::padded, Lanes::parts> cells;
    cells.shares = shares;
    cells.head_slots = slots;
    cells.place_at((float *)bw_dynamic_shared(), Lanes::warps * Lanes::parts);
    spread(sums, cells, warp * Lanes::parts + part, lane);
    bw_decode_finish(cells, shape, work, place, ticket, out);
}

template <typename Lanes>
bw_status start(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                const bw_decode_work &work) {
    void *const *operand = launch->operand;
    return bw_cuda_launch(launch->device, attention_decode_float_kernel<Lanes>,
                          dim3((unsigned)plan.columns, (unsigned)plan.splits), dim3(Lanes::warps * 32),
                          plan.shared_bytes, (const float *)operand[BW_ATTENTION_Q],
                          (const float *)operand[BW_ATTENTION_K], (const float *)operand[BW_ATTENTION_V],
                          (float *)operand[BW_ATTENTION_OUT], shape, work);
}

template <int padded>
bw_status start_for(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                    const bw_decode_work &work) {
    if (plan.block_heads / plan.head_slots == 4) return start<bw_decode_lanes<padded, 4>>(launch, shape, plan, work);
    return start<bw_decode_lanes<padded, 8>>(launch, shape, plan, work);
}

}  // namespace

bw_status bw_decode_float_launch(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                 const bw_decode_work &work) {
    if (shape.head_dim <= 64) return start_for<64>(launch, shape, plan, work);
    if (shape.head_dim <= 128) return start_for<128>(launch, shape, plan, work);
    return start_for<256>(launch, shape, plan, work);
}
