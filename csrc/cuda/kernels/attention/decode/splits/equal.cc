// Splits of a decode's entries that are equally long, by models of the time that their blocks take.
#include "cuda/kernels/attention/decode/splits/splits.h"

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

// What direct.cu's blocks take besides their keys. A turn is what as many blocks take as run at once.
struct split_costs {
    double key;         // of a key: what memory takes, or products, if that is longer
    double ends;        // before a turn's first keys come and after the last
    double first_turn;  // of a turn's time, what the first one takes of few blocks; from there on, of more, up to all
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
    costs.last_turn = alone ? 0.5 : 0.2;
    costs.wait = 13e3;
    costs.queue = 54e3;
    costs.record = 16;
    return costs;
}

// The figures are those that came nearest to 711 measured times of 264 shapes, 3 % off on average; what they choose
// took 0.4 % longer than the best.
double direct_time(const bw_decode_plan &plan, const split_costs &costs, const bw_dims *dims, double places,
                   int64_t splits) {
    const int64_t *value = dims->value,
                  split_keys = bw_decode_round_up(bw_ceil_div(value[BW_DECODE_KV_LEN], splits), 16);
    const double heads = (double)value[BW_DECODE_NUM_HEADS] / (double)(value[BW_DECODE_NUM_KV_HEADS] * plan.chunks);
    const double turn_time = plan.resident * (double)split_keys * costs.key + costs.ends;
    const double blocks = bw_decode_blocks(plan, dims, split_keys);
    const double turns = blocks / places, last = costs.last_turn * (ceil(turns) - turns);
    const double first = fmax(costs.first_turn + (1 - costs.first_turn) * turns, turns);
    const double records = costs.record * (blocks / places) * plan.resident * heads * (double)value[BW_DECODE_HEAD_DIM];
    const double exchange = costs.wait + (blocks > places ? costs.queue : 0) + records;
    return (blocks > places ? turns + last : first) * turn_time + (splits > 1 ? exchange : 0);
}

struct card {
    double units, bytes_per_ns;
};

// How often combine.cuh's warps wait for records, one time after another.
double combining_trips(const bw_decode_plan &plan, const bw_dims *dims, double blocks, double places, int64_t splits) {
    const int64_t *value = dims->value;
    const int64_t heads = bw_min64(value[BW_DECODE_NUM_HEADS] / value[BW_DECODE_NUM_KV_HEADS], plan.block_heads);
    const int64_t records = heads * bw_ceil_div(value[BW_DECODE_HEAD_DIM], bw_decode_record_dims);
    const double columns = blocks / (double)splits;
    const double combiners =
        blocks > places ? 1 : fmin(1 + floor((places - 1) / columns), (double)bw_min64(splits, 64));
    const double each = ceil((double)records / combiners), warps = plan.warps;
    if (splits > 16) return ceil(4 * each / warps) * ceil((double)splits / 64);
    if (splits > 8) return ceil(each / warps);
    const int sharers = splits > 4 ? 4 : splits > 2 ? 2 : 1;
    return ceil(each * sharers / (8 * warps)) * ceil((double)splits / (2 * sharers));
}

// Blocks of fp32/, in nanoseconds. Memory is shared out to multiprocessors, not to blocks: where some have two and
// others one, those with one are done in half of the time, and the others get more from then on, but no more than their
// copies bring. (4 x 15264 keys of 28/4 heads of 128 on an H200: 128 blocks take 62 us, 144 83, 256 64; on an H100 88,
// 105, 91.) Where more blocks than run at once wait for each other, one of each column puts all of its splits together:
// 272 blocks take 119 us. Of 270 times of 35 shapes on an H200 what this chooses takes 0.4 % longer than the best.
double float_time(const bw_decode_plan &plan, const bw_dims *dims, const card &card, int64_t splits) {
    const int64_t *value = dims->value, head_dim = value[BW_DECODE_HEAD_DIM];
    const int64_t split_keys = bw_decode_round_up(bw_ceil_div(value[BW_DECODE_KV_LEN], splits), 16);
    // What a multiprocessor gets by one block's copies, and by two: staged_fp32.cu's rings are not full of long rows,
    // and 32 heads' products take longer than memory does.
    const bool many = plan.split && plan.block_heads > 16, fills = head_dim <= 128 || head_dim % 64 == 0;
    const double one_block = many ? 17 : fills ? 36 : 30, two_blocks = many ? 20 : head_dim <= 128 ? 60 : 90;
    const double ends = 1200, trip = 1000;
    const double bytes = (double)split_keys * (double)head_dim * 2 * 4, share = card.bytes_per_ns / card.units;
    const double blocks = bw_decode_blocks(plan, dims, split_keys), places = card.units * (double)plan.resident;
    const double more = blocks - card.units, turns = blocks / places;
    // Fewer blocks than multiprocessors find a little less of the memory busy, and so do second ones by themselves.
    double time = bytes / fmin(one_block, share * (0.85 * card.units / blocks + 0.15)) + ends;
    if (turns > 1) {
        time = (bytes / fmin(share, two_blocks) + ends) * plan.resident * (turns + 0.2 * (ceil(turns) - turns));
    } else if (more > 0) {
        const double both = bytes / share + bytes / fmin(two_blocks, share * (0.5 * card.units / more + 0.5));
        time = fmax(both, 2 * bytes / two_blocks) + 2 * ends;
    }
    if (splits == 1) return time;
    return time + 600 + trip * combining_trips(plan, dims, blocks, places, splits);
}

template <typename Time>
bw_decode_split_choice choose_fastest(int64_t first, int64_t limit, Time time_of) {
    bw_decode_split_choice best = {1, INFINITY, false};
    for (int64_t splits = first; splits <= limit; splits++) {
        const double time = time_of(splits);
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

bw_decode_split_choice bw_decode_direct_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype,
                                               int64_t units) {
    const double columns = plan.entries * (double)dims->value[BW_DECODE_NUM_KV_HEADS];
    const int64_t limit = bw_decode_most_splits(plan, plan.step_keys);
    const split_costs costs = direct_costs(plan, dims, dtype);
    const double places = (double)(units * plan.resident);
    return choose_fastest(columns * (double)limit <= places ? limit : 1, limit,
                          [&](int64_t splits) { return direct_time(plan, costs, dims, places, splits); });
}

// Of staged blocks, which are to have a step for each of their warps.
int64_t bw_decode_staged_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype, int64_t units,
                                double bytes_per_ns) {
    const int64_t *value = dims->value;
    const double columns = plan.entries * (double)value[BW_DECODE_NUM_KV_HEADS] * (double)plan.chunks;
    const int64_t limit = bw_decode_most_splits(plan, bw_decode_staged_keys);
    if (plan.split || (dtype == BW_FP32 && value[BW_DECODE_NUM_HEADS] <= 8 * value[BW_DECODE_NUM_KV_HEADS])) {
        const card card = {(double)units, bytes_per_ns};
        return choose_fastest(1, limit, [&](int64_t splits) { return float_time(plan, dims, card, splits); }).splits;
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
bw_decode_split_choice bw_decode_wide_splits(const bw_decode_plan &plan, const bw_dims *dims, int padded, int64_t units,
                                             int64_t cluster_limit) {
    const int64_t *value = dims->value, keys = plan.longest, step_keys = 16 * plan.warps;
    const int64_t limit = bw_decode_most_splits(plan, bw_decode_staged_keys);
    const double group = (double)value[BW_DECODE_NUM_HEADS] / (double)value[BW_DECODE_NUM_KV_HEADS];
    const double chunks = (double)plan.chunks, dim = (double)value[BW_DECODE_HEAD_DIM];
    const double products = bw_decode_wide_products(plan);
    const double ends = plan.wide == 4 ? 220e3 : plan.wide == 2 ? 160e3 : 120e3;
    bw_decode_split_choice best = {1, INFINITY, false};
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
