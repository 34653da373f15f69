// attention_decode, FP32, on CUDA cores (tensor cores would round to TF32): K and V go straight from memory to
// registers, several keys ahead of their use.
//   - 16 lanes (head_dim up to 64) or 32 hold a key, 4 or 8 elements each; scores are sums over them by shuffles;
//   - a warp keeps 4 or 8 query heads in registers; a group's other heads are other warps', which read the same keys at
//     about the same time, from cache;
//   - warps share out a block's keys, blocks the entry's (attention_merge.cuh puts them together).
#include "cuda/attention_merge.cuh"
#include "cuda/launch.cuh"

namespace {

constexpr int warps = 4;

// How a head's elements lie over lanes: lane l of a part holds elements 4 l .. + 3 and, when `quads` is 2, those + 128.
template <int padded>
struct decode_lanes {
    static constexpr int lanes = padded / 4 < 32 ? padded / 4 : 32, quads = padded / (4 * lanes), parts = 32 / lanes;
    static constexpr int steps = quads == 1 ? 4 : 2;  // keys of a part that are read together
};

template <int padded>
struct key_part {
    float value[decode_lanes<padded>::quads * 4];
};

template <int padded>
BW_DEVICE key_part<padded> load_part(const float *from, int lane, int head_dim, bool vectors, bool there) {
    key_part<padded> part;
#pragma unroll
    for (int quad = 0; quad < decode_lanes<padded>::quads; quad++) {
        const int column = 4 * lane + 128 * quad;
        if (vectors) {
            uint4 bits = make_uint4(0, 0, 0, 0);
            if (there && column < head_dim) bits = bw_load_cached(from + column);
            part.value[4 * quad] = __uint_as_float(bits.x);
            part.value[4 * quad + 1] = __uint_as_float(bits.y);
            part.value[4 * quad + 2] = __uint_as_float(bits.z);
            part.value[4 * quad + 3] = __uint_as_float(bits.w);
        } else {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                part.value[4 * quad + e] = there && column + e < head_dim ? from[column + e] : 0.0f;
            }
        }
    }
    return part;
}

template <int padded, int heads>
struct decode_sums {
    float out[heads][decode_lanes<padded>::quads * 4];
    float top[heads], sum[heads];
};

// One head against `steps` keys of which the first `valid` count.
template <int padded, int heads>
BW_DEVICE void meet_keys(const key_part<padded> &query, int head, const key_part<padded> *keys,
                         const key_part<padded> *values, int64_t valid, float scale, decode_sums<padded, heads> &sums) {
    using layout = decode_lanes<padded>;
    float scores[layout::steps];
    float best = sums.top[head];
#pragma unroll
    for (int s = 0; s < layout::steps; s++) {
        float score = 0.0f;
#pragma unroll
        for (int e = 0; e < layout::quads * 4; e++) score = fmaf(query.value[e], keys[s].value[e], score);
#pragma unroll
        for (int offset = layout::lanes / 2; offset > 0; offset /= 2) {
            score += __shfl_xor_sync(bw_all_lanes, score, offset);
        }
        scores[s] = s < valid ? score * scale : -INFINITY;
        best = fmaxf(best, scores[s]);
    }
    const float reference = bw_decode_reference(best), shrink = bw_exp2(sums.top[head] - reference);
    sums.top[head] = best;
    sums.sum[head] *= shrink;
#pragma unroll
    for (int e = 0; e < layout::quads * 4; e++) sums.out[head][e] *= shrink;
#pragma unroll
    for (int s = 0; s < layout::steps; s++) {
        const float weight = bw_exp2(scores[s] - reference);
        sums.sum[head] += weight;
#pragma unroll
        for (int e = 0; e < layout::quads * 4; e++) {
            sums.out[head][e] = fmaf(weight, values[s].value[e], sums.out[head][e]);
        }
    }
}

template <int padded, int heads>
__global__ void __launch_bounds__(warps * 32)
    attention_decode_float_kernel(const float *q, const float *k, const float *v, float *out, bw_attention_shape shape,
                                  bw_decode_work work) {
    using layout = decode_lanes<padded>;
    const bw_decode_place place = bw_decode_locate(shape, work);
    if (place.split >= place.splits) return;
    const int warp = (int)threadIdx.x / 32, slots = work.head_slots, shares = warps / slots;
    const int slot = warp % slots, share = warp / slots;
    const int part = (int)threadIdx.x % 32 / layout::lanes, lane = (int)threadIdx.x % layout::lanes;
    const int64_t stride = shape.kv_heads * shape.head_dim;
    const int64_t kv_at = place.batch * shape.keys * stride + place.kv_head * shape.head_dim;
    const int64_t q_at = (place.batch * shape.heads + place.head0 + slot * heads) * shape.head_dim;

    key_part<padded> queries[heads];
    decode_sums<padded, heads> sums = {};
#pragma unroll
    for (int h = 0; h < heads; h++) {
        queries[h] = load_part<padded>(q + q_at + h * shape.head_dim, lane, shape.head_dim, shape.vectors,
                                       slot * heads + h < place.heads);
        sums.top[h] = -INFINITY;
    }
    // A round: each part of each warp takes `steps` neighbouring keys. Its warps agree on the number of rounds.
    const int64_t pace = (int64_t)shares * layout::parts * layout::steps;
    for (int64_t round = place.first; round < place.end; round += pace) {
        const int64_t key = round + (share * layout::parts + part) * layout::steps, valid = place.end - key;
        key_part<padded> keys[layout::steps], values[layout::steps];
#pragma unroll
        for (int s = 0; s < layout::steps; s++) {
            const int64_t at = kv_at + (key + s) * stride;
            keys[s] = load_part<padded>(k + at, lane, shape.head_dim, shape.vectors, s < valid);
            values[s] = load_part<padded>(v + at, lane, shape.head_dim, shape.vectors, s < valid);
        }
#pragma unroll
        for (int h = 0; h < heads; h++) meet_keys(queries[h], h, keys, values, valid, shape.scale, sums);
    }
    bw_decode_cells<heads, padded, layout::parts> cells;
    cells.shares = shares;
    cells.head_slots = slots;
    cells.place_at((float *)bw_dynamic_shared(), warps * layout::parts);
#pragma unroll
    for (int h = 0; h < heads; h++) {
        const int row = (warp * layout::parts + part) * heads + h;
        if (lane == 0) {
            cells.top[row] = sums.top[h];
            cells.sum[row] = sums.sum[h];
        }
#pragma unroll
        for (int quad = 0; quad < layout::quads; quad++) {
            const float *from = &sums.out[h][4 * quad];
            *(float4 *)&cells.out[row * padded + 4 * lane + 128 * quad] =
                make_float4(from[0], from[1], from[2], from[3]);
        }
    }
    __syncthreads();
    bw_decode_finish(cells, shape, work, place, (float *)bw_dynamic_shared(), out);
}

template <int padded, int heads>
bw_status start(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                const bw_decode_work &work) {
    void *const *operand = launch->operand;
    const int64_t blocks = shape.batch * shape.kv_heads * plan.chunks * plan.splits;
    return bw_cuda_launch(launch->device, attention_decode_float_kernel<padded, heads>, dim3((unsigned)blocks),
                          dim3(warps * 32), plan.shared_bytes, (const float *)operand[BW_ATTENTION_Q],
                          (const float *)operand[BW_ATTENTION_K], (const float *)operand[BW_ATTENTION_V],
                          (float *)operand[BW_ATTENTION_OUT], shape, work);
}

}  // namespace

bw_status bw_decode_float_launch(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                 const bw_decode_work &work) {
    const bool four = plan.block_heads / plan.head_slots == 4;
    if (shape.head_dim <= 64) {
        return four ? start<64, 4>(launch, shape, plan, work) : start<64, 8>(launch, shape, plan, work);
    }
    if (shape.head_dim <= 128) {
        return four ? start<128, 4>(launch, shape, plan, work) : start<128, 8>(launch, shape, plan, work);
    }
    return start<256, 4>(launch, shape, plan, work);  // the plan gives such heads 4 to a warp: registers
}
