// How a decode is divided among blocks and warps, worked out on the host: the same answer for the launch, for the
// scratch it needs and for the traffic that the scratch adds.
#include "cuda/attention.cuh"

namespace {

// What most devices would do, where no device is given.
constexpr int64_t default_units = 132, default_shared_bytes = 227 * 1024;

int64_t round_up(int64_t value, int64_t multiple) {
    return bw_ceil_div(value, multiple) * multiple;
}

int padded_dim(int64_t head_dim) {
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

// Warps that hold different heads: a power of 2.
int slots_for(int64_t group, int slot_heads, int warps) {
    int slots = 1;
    while (slots < warps && slots * slot_heads < group) slots *= 2;
    return slots;
}

size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

// Mirrors the rings of attention_decode_tensor.cu: 16 keys of K and V a stage, per share of the keys.
void divide_tensor(bw_decode_plan *plan, int64_t group, int padded, int64_t shared_limit) {
    const size_t ring = (size_t)(padded <= 64 ? 4 : 3) * 2 * 16 * (size_t)padded * 2;
    plan->warps = 4 * ring <= (size_t)shared_limit ? 4 : 2;
    plan->head_slots = slots_for(group, 16, plan->warps);
    plan->block_heads = 16 * plan->head_slots;
    const size_t rings = ring * (size_t)(plan->warps / plan->head_slots);
    const size_t cells = (size_t)plan->warps * 16 * (size_t)(padded + 2) * sizeof(float);
    plan->shared_bytes = larger(rings, cells);
}

// Mirrors the cells of attention_decode_float.cu; a part is 16 lanes for head_dim up to 64, else a warp.
void divide_float(bw_decode_plan *plan, int64_t group, int padded) {
    const int slot_heads = group <= 4 || padded == 256 ? 4 : 8, parts = padded <= 64 ? 2 : 1;
    plan->warps = 4;
    plan->head_slots = slots_for(group, slot_heads, plan->warps);
    plan->block_heads = slot_heads * plan->head_slots;
    plan->shared_bytes = (size_t)(plan->warps * parts * slot_heads * (padded + 2)) * sizeof(float);
}

// All entries' keys as a multiple of the longest one's.
double entries_of(const bw_dims *dims) {
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    if (!dims->kv_lens) return (double)batch;
    double keys = 0;
    for (int64_t b = 0; b < batch; b++) keys += (double)dims->kv_lens[b];
    return keys / (double)dims->value[BW_DECODE_KV_LEN];
}

// The number of splits that leaves the fewest multiprocessors idle at the end, few splits before many: each one adds
// to what the last block reads back.
int64_t choose_splits(double columns, int64_t slots, int64_t limit) {
    int64_t best = 1;
    double best_score = -1;
    for (int64_t splits = 1; splits <= limit; splits++) {
        const double waves = columns * (double)splits / (double)slots;
        const double score = waves / ceil(waves) - 0.002 * (double)splits;
        if (score > best_score) {
            best = splits;
            best_score = score;
        }
    }
    return best;
}

void place_scratch(bw_decode_plan *plan, const bw_dims *dims) {
    const int64_t batch = dims->value[BW_DECODE_BATCH], heads = dims->value[BW_DECODE_NUM_HEADS];
    const bw_checked rows = bw_mul3(batch, heads, plan->splits);
    const bw_checked outputs = bw_mul(rows, bw_num(4 * dims->value[BW_DECODE_HEAD_DIM]));
    plan->tickets = batch * dims->value[BW_DECODE_NUM_KV_HEADS] * plan->chunks;
    if (outputs.overflow || outputs.value > INT64_MAX / 4) {
        plan->scratch_bytes = INT64_MAX;
        return;
    }
    plan->sums_at = round_up(plan->tickets * (int64_t)sizeof(unsigned), 256);
    plan->outputs_at = plan->sums_at + round_up(rows.value * (int64_t)sizeof(float), 256);
    plan->scratch_bytes = plan->outputs_at + outputs.value;
}

}  // namespace

bw_decode_plan bw_decode_plan_make(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts, bool split) {
    const int64_t *value = dims->value;
    const int64_t keys = value[BW_DECODE_KV_LEN], group = value[BW_DECODE_NUM_HEADS] / value[BW_DECODE_NUM_KV_HEADS];
    const int64_t units = facts && facts->units > 0 ? facts->units : default_units;
    const int64_t shared_limit = facts && facts->shared_bytes > 0 ? facts->shared_bytes : default_shared_bytes;
    const int padded = padded_dim(value[BW_DECODE_HEAD_DIM]);
    bw_decode_plan plan = {};
    if (dtype == BW_FP32) {
        divide_float(&plan, group, padded);
    } else {
        divide_tensor(&plan, group, padded, shared_limit);
    }
    const int share_count = plan.warps / plan.head_slots;
    const int64_t round_keys = 16 * share_count;
    plan.chunks = bw_ceil_div(group, plan.block_heads);
    plan.splits = 1;
    plan.split_keys = round_up(keys, round_keys);
    if (!split) return plan;
    const int64_t per_unit = bw_max64(1, bw_min64(4, shared_limit / (int64_t)plan.shared_bytes));
    const int64_t shortest = dtype == BW_FP32 ? 64 : 128;
    const int64_t limit = bw_min64(bw_decode_split_limit, bw_ceil_div(keys, shortest));
    const double columns = entries_of(dims) * (double)value[BW_DECODE_NUM_KV_HEADS] * (double)plan.chunks;
    const int64_t splits = choose_splits(columns, units * per_unit, limit);
    plan.split_keys = round_up(bw_ceil_div(keys, splits), round_keys);
    plan.splits = bw_ceil_div(keys, plan.split_keys);
    // The last block keeps every head's shares in shared memory.
    const size_t shares = (size_t)plan.block_heads * bw_decode_split_limit * sizeof(float);
    if (plan.splits > 1) {
        plan.shared_bytes = larger(plan.shared_bytes, shares);
        place_scratch(&plan, dims);
    }
    return plan;
}
