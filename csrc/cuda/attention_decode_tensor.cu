// attention_decode, FP16 and BF16: the query heads of a group are the rows of a 16-row matrix, so that tensor cores
// give every K and V element to all of them at once; even a group of 1, padded to 16 rows, costs them less than reading
// it.
//   - a warp (or, for groups above 16, the 2 or 4 warps that hold different heads) meets 16 keys at a time; its keys
//     come by asynchronous copies, `stages` steps ahead, through shared memory of its own;
//   - warps share out a block's keys, blocks the entry's (attention_merge.cuh puts them together).
#include "cuda/attention_merge.cuh"
#include "cuda/launch.cuh"
#include "cuda/tensor_tile.cuh"

namespace {

constexpr int step_keys = 16, row_heads = 16, largest_warps = 4;

template <int padded>
constexpr int stages_for = padded <= 64 ? 4 : 3;

// A warp's position and what it carries: rows are query heads, as in a C fragment.
template <int padded>
struct decode_sums {
    float out[padded / 8][4];
    float top[2], sum[2];
};

// Two neighbouring elements of a row of head_dim, zeros past its end.
template <typename T>
BW_DEVICE uint32_t load_pair(const T *row, int column, int head_dim) {
    if (column >= head_dim) return 0;
    if (head_dim % 2 == 0) return *(const uint32_t *)(row + column);
    return bw_pack_pair(bw_to_float(row[column]), column + 1 < head_dim ? bw_to_float(row[column + 1]) : 0.0f, T());
}

// The A fragments of a slot's query heads, straight from global memory: heads past the block's last are zeros.
template <int padded, typename T>
BW_DEVICE void load_queries(const T *q, int heads, int head_dim, uint32_t (&out)[padded / 16][4]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < padded / 16; step++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int head = lane / 4 + i % 2 * 8, column = 16 * step + lane % 4 * 2 + i / 2 * 8;
            out[step][i] = head < heads ? load_pair(q + head * head_dim, column, head_dim) : 0;
        }
    }
}

template <int padded, typename T>
BW_DEVICE void meet_keys(const uint32_t (&queries)[padded / 16][4], T *keys, T *values, int64_t valid, float scale,
                         decode_sums<padded> &sums) {
    float scores[2][4] = {};
#pragma unroll
    for (int step = 0; step < padded / 16; step++) {
        uint32_t right[4];
        bw_tensor_columns<padded>(right, keys, 0, step);
        bw_multiply(scores[0], queries[step], right[0], right[1], T());
        bw_multiply(scores[1], queries[step], right[2], right[3], T());
    }
    const int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float best = sums.top[half];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float &score = scores[c / 2][2 * half + c % 2];
            score = c / 2 * 8 + column + c % 2 < valid ? score * scale : -INFINITY;
            best = fmaxf(best, score);
        }
        best = fmaxf(best, __shfl_xor_sync(bw_all_lanes, best, 1));
        best = fmaxf(best, __shfl_xor_sync(bw_all_lanes, best, 2));
        const float reference = bw_decode_reference(best), shrink = bw_exp2(sums.top[half] - reference);
        sums.top[half] = best;
        sums.sum[half] *= shrink;
#pragma unroll
        for (int n = 0; n < padded / 8; n++) {
            sums.out[n][2 * half] *= shrink;
            sums.out[n][2 * half + 1] *= shrink;
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float &score = scores[c / 2][2 * half + c % 2];
            score = bw_exp2(score - reference);
            sums.sum[half] += score;
        }
    }
    uint32_t weights[4];
    bw_tensor_weights(weights, scores[0], scores[1], T());
#pragma unroll
    for (int pair = 0; pair < padded / 16; pair++) {
        uint32_t right[4];
        bw_tensor_transposed<padded>(right, values, 0, pair);
        bw_multiply(sums.out[2 * pair], weights, right[0], right[1], T());
        bw_multiply(sums.out[2 * pair + 1], weights, right[2], right[3], T());
    }
}

// This warp's registers into its cell.
template <int padded, typename Cells>
BW_DEVICE void spread(const decode_sums<padded> &sums, const Cells &cells, int cell) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = sums.sum[half];
        sum += __shfl_xor_sync(bw_all_lanes, sum, 1);
        sum += __shfl_xor_sync(bw_all_lanes, sum, 2);
        const int row = cell * row_heads + lane / 4 + 8 * half;
        if (lane % 4 == 0) {
            cells.top[row] = sums.top[half];
            cells.sum[row] = sum;
        }
#pragma unroll
        for (int n = 0; n < padded / 8; n++) {
            const float2 pair = make_float2(sums.out[n][2 * half], sums.out[n][2 * half + 1]);
            *(float2 *)&cells.out[row * padded + 8 * n + lane % 4 * 2] = pair;
        }
    }
}

// The warps that hold different heads of the same keys wait for one another.
BW_DEVICE void meet(int head_slots) {
    if (head_slots == 1) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

template <int padded, typename T>
__global__ void __launch_bounds__(largest_warps * 32)
    attention_decode_tensor_kernel(const T *q, const T *k, const T *v, T *out, bw_attention_shape shape,
                                   bw_decode_work work) {
    constexpr int stages = stages_for<padded>, stage_elems = 2 * step_keys * padded;
    const bw_decode_place place = bw_decode_locate(shape, work);
    if (place.split >= place.splits) return;
    const int warp = (int)threadIdx.x / 32, slots = work.head_slots, shares = (int)blockDim.x / 32 / slots;
    const int slot = warp % slots, share = warp / slots;
    const int loader = slot * 32 + (int)threadIdx.x % 32, loaders = slots * 32;
    T *ring = (T *)bw_dynamic_shared() + share * stages * stage_elems;
    const int64_t stride = shape.kv_heads * shape.head_dim;
    const int64_t kv_at = place.batch * shape.keys * stride + place.kv_head * shape.head_dim;
    const int64_t pace = (int64_t)shares * step_keys, steps = (place.end - place.first + pace - 1) / pace;

    uint32_t queries[padded / 16][4];
    const int64_t q_at = (place.batch * shape.heads + place.head0 + slot * row_heads) * shape.head_dim;
    load_queries<padded>(q + q_at, place.heads - slot * row_heads, shape.head_dim, queries);
    decode_sums<padded> sums = {};
    sums.top[0] = sums.top[1] = -INFINITY;
    // Step s of a share: keys first + (s * shares + share) * 16 on; zeros past the end. The copies of step `ahead`
    // start while step ahead - stages + 1 is worked on.
    for (int64_t ahead = 0; ahead < steps + stages - 1; ahead++) {
        const int64_t step = ahead - (stages - 1);
        if (step >= 0) {
            bw_copy_wait<stages - 2>();
            meet(slots);  // this step's keys are there, and the stage that is filled next has been used
        }
        if (ahead < steps) {
            const int64_t key = place.first + ahead * pace + share * step_keys;
            const int64_t at = kv_at + min(key, place.end - 1) * stride;
#pragma unroll 1
            for (int i = 0; i < 2; i++) {
                T *tile = ring + (ahead % stages * 2 + i) * step_keys * padded;
                bw_tensor_fetch<padded>(tile, (i == 0 ? k : v) + at, stride, step_keys, place.end - key, shape.head_dim,
                                        shape.vectors, loader, loaders);
            }
        }
        bw_copy_commit();
        if (step < 0) continue;
        T *stage = ring + step % stages * stage_elems;
        const int64_t valid = place.end - (place.first + step * pace + share * step_keys);
        meet_keys<padded>(queries, stage, stage + step_keys * padded, valid, shape.scale, sums);
    }
    bw_copy_wait<0>();
    __syncthreads();  // the rings become the cells
    bw_decode_cells<row_heads, padded, 1> cells;
    cells.shares = shares;
    cells.head_slots = slots;
    cells.place_at((float *)bw_dynamic_shared(), (int)blockDim.x / 32);
    spread(sums, cells, warp);
    __syncthreads();
    bw_decode_finish(cells, shape, work, place, (float *)bw_dynamic_shared(), out);
}

template <int padded, typename T>
bw_status start(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                const bw_decode_work &work) {
    void *const *operand = launch->operand;
    const int64_t blocks = shape.batch * shape.kv_heads * plan.chunks * plan.splits;
    return bw_cuda_launch(launch->device, attention_decode_tensor_kernel<padded, T>, dim3((unsigned)blocks),
                          dim3((unsigned)plan.warps * 32), plan.shared_bytes, (const T *)operand[BW_ATTENTION_Q],
                          (const T *)operand[BW_ATTENTION_K], (const T *)operand[BW_ATTENTION_V],
                          (T *)operand[BW_ATTENTION_OUT], shape, work);
}

}  // namespace

bw_status bw_decode_tensor_launch(const bw_launch *launch, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                  const bw_decode_work &work) {
    return bw_cuda_by_half_type(launch->dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (shape.head_dim <= 64) return start<64, T>(launch, shape, plan, work);
        if (shape.head_dim <= 128) return start<128, T>(launch, shape, plan, work);
        return start<256, T>(launch, shape, plan, work);
    });
}
