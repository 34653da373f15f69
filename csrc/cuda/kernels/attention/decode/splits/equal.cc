// Splits of entries that are equally long (ragged.cc: of others), and what both kinds of batches need.
#include "cuda/kernels/attention/decode/splits/splits.h"

int64_t bw_decode_parts(const bw_dims *dims, int64_t split_keys) {
    const int64_t *value = dims->value, batch = value[BW_DECODE_BATCH];
    int64_t parts = dims->list ? 0 : batch * bw_ceil_div(value[BW_DECODE_KV_LEN], split_keys);
    for (int64_t b = 0; dims->list && b < batch; b++) parts += bw_ceil_div(dims->list[b], split_keys);
    return parts;
}

double bw_decode_blocks(const bw_decode_plan &plan, const bw_dims *dims, int64_t split_keys) {
    return (double)bw_decode_parts(dims, split_keys) * (double)dims->value[BW_DECODE_NUM_KV_HEADS] *
           (double)plan.chunks;
}

double bw_decode_wide_products(const bw_decode_plan &plan) {
    return (plan.wide == 4 ? 9.2 : plan.wide == 2 ? 5.1 : 3.1) / plan.warps;
}

size_t bw_decode_mailbox_bytes(int padded, int64_t blocks) {
    return 16 + (size_t)(blocks * bw_ceil_div(bw_decode_units(padded), blocks) * bw_decode_unit_bytes);
}

namespace {

// As many splits as there may be where they all run at once. Else the number that leaves the fewest multiprocessors
// idle at the end, few splits before many: each one adds to what is read back.
int64_t choose_splits(double columns, int64_t slots, int64_t limit) {
    if (columns * (double)limit <= (double)slots) return limit;
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

// What blocks take besides their keys. A turn is what as many blocks take as run at once.
struct split_costs {
    double key;         // of a key: what memory takes, or products, if that is longer
    double ends;        // before a turn's first keys come and after the last
    double first_turn;  // of a turn's time, what the first one takes of few blocks: each is faster, but not so much
    bool gradual;       // from there on, of more blocks, up to all of it; else as much as they have keys
    double last_turn;   // what the last of several takes of few blocks
    double wait;        // splits wait for each other,
    double queue;       // and longer where those that wait take the places of others;
    double record;      // their records, an element: stored, read and emptied
};

split_costs direct_costs(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype) {
    const double dim = (double)dims->value[BW_DECODE_HEAD_DIM];
    const bool alone = plan.resident == 1, floats = dtype == BW_FP32;
    split_costs costs = {};
    costs.key = dim * (floats ? 2 * 4 * 1.23 : 2 * 2);  // FP32's products by three take longer than memory does
    costs.ends = alone ? 40e3 : floats ? 30e3 : dim <= 64 ? 12e3 : 0;
    costs.first_turn = alone ? 0.35 : 0.3;
    costs.gradual = true;
    costs.last_turn = alone ? 0.5 : 0.2;
    costs.wait = 13e3;
    costs.queue = 54e3;
    costs.record = 16;
    return costs;
}

// One block of staged_fp32.cu has nearly as many bytes on their way as a multiprocessor gets, unless long rows leave a
// part of its rings empty.
split_costs float_costs(const bw_decode_plan &plan, const bw_dims *dims) {
    const int64_t *value = dims->value;
    const bool many = value[BW_DECODE_NUM_HEADS] > 4 * value[BW_DECODE_NUM_KV_HEADS];
    // (On an H200, 16 x 8192 keys of 8 K/V heads of 160 take 315 us with a block a multiprocessor, 300 with two.)
    const bool fills = value[BW_DECODE_HEAD_DIM] <= 128 || value[BW_DECODE_HEAD_DIM] % 64 == 0;
    split_costs costs = {};
    costs.key = (double)value[BW_DECODE_HEAD_DIM] * 2 * 4 * (many ? 1.1 : 1);
    costs.first_turn = (fills ? 0.9 : 1.15) / plan.resident;
    costs.last_turn = 0.2;
    costs.wait = costs.queue = 40e3;
    costs.record = 60;
    return costs;
}

// The figures are those that came nearest to measured times: of direct.cu's blocks 711 of 264 shapes, 3 % off on
// average; of staged_fp32.cu's 1 100 of 79. What they choose took 0.4 and 1.1 % longer than the best.
double splits_time(const bw_decode_plan &plan, const split_costs &costs, const bw_dims *dims, double places,
                   int64_t splits) {
    const int64_t *value = dims->value,
                  split_keys = bw_decode_round_up(bw_ceil_div(value[BW_DECODE_KV_LEN], splits), 16);
    const double heads = (double)value[BW_DECODE_NUM_HEADS] / (double)(value[BW_DECODE_NUM_KV_HEADS] * plan.chunks);
    const double turn_time = plan.resident * (double)split_keys * costs.key + costs.ends;
    const double blocks = bw_decode_blocks(plan, dims, split_keys);
    const double turns = blocks / places, last = costs.last_turn * (ceil(turns) - turns);
    const double rest = costs.gradual ? 1 - costs.first_turn : 0;
    const double first = fmax(costs.first_turn + rest * turns, turns);
    const double records = costs.record * (blocks / places) * plan.resident * heads * (double)value[BW_DECODE_HEAD_DIM];
    const double exchange = costs.wait + (blocks > places ? costs.queue : 0) + records;
    return (blocks > places ? turns + last : first) * turn_time + (splits > 1 ? exchange : 0);
}

bw_decode_timed choose_timed_splits(const bw_decode_plan &plan, const split_costs &costs, const bw_dims *dims,
                                    int64_t units, double columns, int64_t limit) {
    const double places = (double)(units * plan.resident);
    bw_decode_timed best = {1, INFINITY, false};
    for (int64_t splits = columns * (double)limit <= places ? limit : 1; splits <= limit; splits++) {
        const double time = splits_time(plan, costs, dims, places, splits);
        if (time < best.time) best = {splits, time, false};
    }
    return best;
}

// A device's parts (GPCs) hold different numbers of multiprocessors, and a cluster lies in one of them: of an H200's
// 132, with a block to each, 66 clusters of 2 run at once, 30 of 4, 15 of 8. Where many do, or of another size, some
// parts' blocks share what a part gets of memory with more others, and end late. (9 to 16 heads of 128 elements: 4 x
// 4096 keys as 8 clusters of 8 7.9 us, 9.1 without, of 6 8.4; 8 x 8192 as 16 of 4 19.0 and 20.6, of 5 19.3 to 21.1, of
// 6 20.1; 16 x 8192 as 32 of 2 35.4 and 35.7, of 3 37.9. With two warps for each key, 32 heads, 4 x 4096 keys as 8 of
// 8 9.1, 9.1 without, 16 x 8192 as 32 of 3 40.2 and 36.6.)
bool cluster_pays(const bw_decode_plan &plan, int64_t blocks, double turns) {
    return plan.wide == 1 && plan.chunks == 1 && turns <= 0.5 && (blocks == 2 || blocks == 4 || blocks == 8);
}

}  // namespace

bw_decode_timed bw_decode_direct_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype,
                                        int64_t units) {
    const double columns = plan.entries * (double)dims->value[BW_DECODE_NUM_KV_HEADS];
    const int64_t limit = bw_min64(bw_decode_split_limit, bw_ceil_div(plan.longest, plan.step_keys));
    if (dims->list) return bw_decode_ragged_splits(plan, dims, dtype, units, limit);
    return choose_timed_splits(plan, direct_costs(plan, dims, dtype), dims, units, columns, limit);
}

// Of staged blocks, which are to have a step for each of their warps.
int64_t bw_decode_staged_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype, int64_t units) {
    const int64_t *value = dims->value;
    const double columns = plan.entries * (double)value[BW_DECODE_NUM_KV_HEADS] * (double)plan.chunks;
    const int64_t limit = bw_min64(bw_decode_split_limit, bw_ceil_div(plan.longest, 64));
    if (dims->list) return bw_decode_ragged_splits(plan, dims, dtype, units, limit).splits;
    if (dtype == BW_FP32 && value[BW_DECODE_NUM_HEADS] <= 8 * value[BW_DECODE_NUM_KV_HEADS]) {
        return choose_timed_splits(plan, float_costs(plan, dims), dims, units, columns, limit).splits;
    }
    // Of larger groups products take longer than memory does, and multiprocessors that are busy are all that counts:
    // of 92 shapes this took 1.4 % longer than the best, and no model of time less.
    return choose_splits(columns, units * plan.resident, limit);
}

// Many heads' records weigh as much as keys. A multiprocessor's blocks, one after another, each with its steps and with
// what passes before the first keys come and after the last, and its part of the records, which are stored, read and
// emptied. A step takes what its products take or, if that is longer, its share of memory: more where fewer blocks run,
// and less where chunks of a group's heads ask for the same keys, which they do together in the first turn only. A
// cluster's blocks store no records.
bw_decode_timed bw_decode_wide_splits(const bw_decode_plan &plan, const bw_dims *dims, int padded, int64_t units,
                                      int64_t cluster_limit) {
    const int64_t *value = dims->value, keys = plan.longest, step_keys = 16 * plan.warps;
    const int64_t limit = bw_min64(bw_decode_split_limit, bw_ceil_div(keys, 64));
    if (dims->list) return bw_decode_ragged_splits(plan, dims, BW_FP16, units, limit);
    const double group = (double)value[BW_DECODE_NUM_HEADS] / (double)value[BW_DECODE_NUM_KV_HEADS];
    const double chunks = (double)plan.chunks, dim = (double)value[BW_DECODE_HEAD_DIM];
    const double products = bw_decode_wide_products(plan);
    const double ends = plan.wide == 4 ? 220e3 : plan.wide == 2 ? 160e3 : 120e3;
    bw_decode_timed best = {1, INFINITY, false};
    for (int64_t splits = 1; splits <= limit; splits++) {
        const int64_t split_keys = bw_decode_round_up(bw_ceil_div(keys, splits), 16);
        const double turns = bw_decode_blocks(plan, dims, split_keys) / (double)units;
        if (turns > 1 && splits > 16) continue;  // one block adds all of them up: choose_combiners
        const double share = (turns < 1 ? turns : turns > 1 && chunks > 1 ? 1.3 : 1) / chunks;
        const double keys_time =
            (double)bw_decode_round_up(split_keys, step_keys) * dim * 4 * (share > products ? share : products);
        const double records = splits > 1 ? turns * group / chunks * dim * 13.5 : 0;
        const double time = ceil(turns) * (keys_time + ends) + records;
        if (time < best.time) best = {splits, time, false};
        const bool fits = (int64_t)(plan.shared_bytes + bw_decode_mailbox_bytes(padded, splits)) <= cluster_limit;
        const double together = keys_time + ends - 45e3;
        if (fits && cluster_pays(plan, bw_ceil_div(keys, split_keys), turns) && together < best.time) {
            best = {splits, together, true};
        }
    }
    return best;
}
