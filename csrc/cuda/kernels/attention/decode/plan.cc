// How a decode is divided among blocks and warps, worked out on the host: the same answer for the launch, for the
// scratch it needs and for the traffic that the scratch adds.
#include "cuda/kernels/attention/decode/plan.h"

#include <algorithm>

#include "cuda/runtime/facts.h"

namespace {

// What most devices would do, where no device is given.
constexpr int64_t default_units = 132, default_shared_bytes = 227 * 1024;

int64_t round_up(int64_t value, int64_t multiple) {
    return bw_ceil_div(value, multiple) * multiple;
}

// Rows that do not start at multiples of 16 bytes are rare: one kernel, the widest, serves them all.
int padded_dim(int64_t head_dim, bw_dtype dtype) {
    if (!bw_attention_vectors(head_dim, dtype)) return 256;
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : head_dim <= 192 && dtype == BW_FP32 ? 192 : 256;
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

// Of combine.cuh, the ticket behind them.
size_t cell_bytes(int cells, int cell_heads, int padded) {
    return (size_t)(cells * cell_heads) * (size_t)(padded + bw_decode_cell_gap + 2) * sizeof(float) + sizeof(unsigned);
}

// Mirrors the rings of staged_mma.cuh: 16 keys of K and V a stage, per share of the keys.
void divide_tensor(bw_decode_plan *plan, int64_t group, int padded, int64_t shared_limit) {
    const size_t ring = (size_t)(padded <= 64 ? 4 : 3) * 2 * 16 * (size_t)padded * 2;
    const size_t spare = (size_t)bw_decode_spare_steps(padded) * 512;
    plan->warps = 4 * (ring + spare) <= (size_t)shared_limit ? 4 : 2;
    plan->head_slots = slots_for(group, 16, plan->warps);
    plan->block_heads = 16 * plan->head_slots;
    const size_t rings = ring * (size_t)(plan->warps / plan->head_slots) + spare * (size_t)plan->warps;
    plan->shared_bytes = larger(rings, cell_bytes(plan->warps, 16, padded));
}

// More than 8 heads of rows of up to 128 elements: one block of up to 8 warps a multiprocessor, each with 16 heads and
// a ring of its own or, two or four times as long, with others (`wide`); behind the rings q, a maximum and a sum for
// each head of each warp, and the ticket. The cells lie in the rings.
void divide_wide(bw_decode_plan *plan, int64_t group, int wide, int padded, int64_t shared_limit) {
    const size_t ring = (size_t)((padded <= 64 ? 4 : 3) * 2 * 16 * wide * padded) * 2;
    int shares = 8 / wide + 1;
    do {
        plan->warps = --shares * wide;
        plan->shared_bytes =
            ring * (size_t)shares + (size_t)(16 * wide * padded) * 2 + (size_t)(plan->warps * 16) * sizeof(float2) + 16;
    } while (shares > 1 && plan->shared_bytes > (size_t)shared_limit);
    plan->wide = plan->head_slots = wide;
    plan->block_heads = 16 * wide;
    plan->chunks = bw_ceil_div(group, plan->block_heads);
}

template <typename Lanes>
void divide_float_lanes(bw_decode_plan *plan, int64_t group, int64_t shared_limit) {
    plan->warps = Lanes::warps;
    plan->head_slots = slots_for(group, Lanes::heads, Lanes::warps);
    plan->block_heads = Lanes::heads * plan->head_slots;
    const int cells = Lanes::warps * Lanes::parts;
    const size_t memory = larger(Lanes::warps * Lanes::ring_bytes, cell_bytes(cells, Lanes::heads, Lanes::padded));
    plan->shared_bytes = larger(memory, (size_t)shared_limit / 3);  // two blocks on a multiprocessor, not three
}

template <int padded>
void divide_float_heads(bw_decode_plan *plan, int64_t group, int64_t shared_limit) {
    if (group <= 4) return divide_float_lanes<bw_decode_lanes<padded, 4>>(plan, group, shared_limit);
    divide_float_lanes<bw_decode_lanes<padded, 8>>(plan, group, shared_limit);
}

void divide_float(bw_decode_plan *plan, int64_t group, int padded, int64_t shared_limit) {
    if (padded == 64) return divide_float_heads<64>(plan, group, shared_limit);
    if (padded == 128) return divide_float_heads<128>(plan, group, shared_limit);
    if (padded == 192) return divide_float_heads<192>(plan, group, shared_limit);
    divide_float_heads<256>(plan, group, shared_limit);
}

// All entries' keys as a multiple of the longest one's.
double entries_of(const bw_dims *dims) {
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    if (!dims->list) return (double)batch;
    double keys = 0;
    for (int64_t b = 0; b < batch; b++) keys += (double)dims->list[b];
    return keys / (double)dims->value[BW_DECODE_KV_LEN];
}

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

// Splits, over all entries.
int64_t parts_of(const bw_dims *dims, int64_t split_keys) {
    const int64_t *value = dims->value, batch = value[BW_DECODE_BATCH];
    int64_t parts = dims->list ? 0 : batch * bw_ceil_div(value[BW_DECODE_KV_LEN], split_keys);
    for (int64_t b = 0; dims->list && b < batch; b++) parts += bw_decode_divide(dims->list[b], split_keys).splits;
    return parts;
}

double blocks_of(const bw_decode_plan &plan, const bw_dims *dims, int64_t split_keys) {
    return (double)parts_of(dims, split_keys) * (double)dims->value[BW_DECODE_NUM_KV_HEADS] * (double)plan.chunks;
}

// What blocks take besides their keys, in bytes of keys that a multiprocessor gets of an H200's memory in the time
// (34.4 a nanosecond). A turn is what as many blocks take as run at once.
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

// One block of staged_fp32.cu has nearly as many bytes on their way as a multiprocessor gets.
split_costs float_costs(const bw_decode_plan &plan, const bw_dims *dims) {
    const int64_t *value = dims->value;
    const bool many = value[BW_DECODE_NUM_HEADS] > 4 * value[BW_DECODE_NUM_KV_HEADS];
    split_costs costs = {};
    costs.key = (double)value[BW_DECODE_HEAD_DIM] * 2 * 4 * (many ? 1.1 : 1);
    costs.first_turn = 0.9 / plan.resident;
    costs.last_turn = 0.2;
    costs.wait = costs.queue = 40e3;
    costs.record = 60;
    return costs;
}

// The figures are those that came nearest to measured times: of direct.cu's blocks 711 of 264 shapes, 3 % off on
// average, and 1 200 of 101 shapes of entries with lengths of their own; of staged_fp32.cu's 1 100 of 79. What they
// choose took 0.4, 2.1 and 1.1 % longer than the best.
double splits_time(const bw_decode_plan &plan, const split_costs &costs, const bw_dims *dims, double places,
                   double columns, int64_t splits) {
    const int64_t *value = dims->value, split_keys = round_up(bw_ceil_div(value[BW_DECODE_KV_LEN], splits), 16);
    const double heads = (double)value[BW_DECODE_NUM_HEADS] / (double)(value[BW_DECODE_NUM_KV_HEADS] * plan.chunks);
    const double turn_time = plan.resident * (double)split_keys * costs.key + costs.ends;
    const double blocks = blocks_of(plan, dims, split_keys);
    double turns = blocks / places, last = costs.last_turn * (ceil(turns) - turns);
    if (dims->list) {
        const double keys_time = plan.resident * columns * (double)value[BW_DECODE_KV_LEN] * costs.key;
        turns = (keys_time + blocks * costs.ends) / (places * turn_time);
        last = 0.2;  // they end at different times, and the last ones are not shorter than others
    }
    const double rest = costs.gradual ? 1 - costs.first_turn : 0;
    const double first = fmax(costs.first_turn + rest * turns, turns);
    const double records = costs.record * (blocks / places) * plan.resident * heads * (double)value[BW_DECODE_HEAD_DIM];
    const double exchange = costs.wait + (blocks > places ? costs.queue : 0) + records;
    return (blocks > places ? turns + last : first) * turn_time + (splits > 1 ? exchange : 0);
}

struct timed_splits {
    int64_t splits;
    double time;
};

timed_splits choose_timed_splits(const bw_decode_plan &plan, const split_costs &costs, const bw_dims *dims,
                                 int64_t units, double columns, int64_t step_keys) {
    const double places = (double)(units * plan.resident);
    const int64_t limit = bw_min64(bw_decode_split_limit, bw_ceil_div(dims->value[BW_DECODE_KV_LEN], step_keys));
    timed_splits best = {1, INFINITY};
    const bool most = !dims->list && columns * (double)limit <= places;
    // Lists may be long, and each number takes a walk along it.
    for (int64_t splits = most ? limit : 1; splits <= limit; splits += dims->list ? 1 + splits / 16 : 1) {
        const double time = splits_time(plan, costs, dims, places, columns, splits);
        if (time < best.time) best = {splits, time};
    }
    return best;
}

timed_splits choose_direct_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype, int64_t units,
                                  double columns) {
    return choose_timed_splits(plan, direct_costs(plan, dims, dtype), dims, units, columns, plan.step_keys);
}

struct wide_splits {
    int64_t splits;
    double time;
    bool cluster;
};

// What the blocks of a cluster have for each other.
size_t mailbox_bytes(int padded, int64_t blocks) {
    return 16 + (size_t)(blocks * bw_ceil_div(bw_decode_units(padded), blocks) * bw_decode_unit_bytes);
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

// Many heads' records weigh as much as keys. In bytes of keys that a multiprocessor gets of an H200's memory in the
// time: its blocks, one after another, each with its steps and with what passes before the first keys come and after
// the last, and its part of the records, which are stored, read and emptied. A step takes what its products take or,
// if that is longer, its share of memory: more where fewer blocks run, unless the longest entries' are alone at the
// end, and less where chunks of a group's heads ask for the same keys, which they do together in the first turn only.
// A cluster's blocks store no records. `cluster_limit`: bytes of shared memory that one of them may have.
wide_splits choose_wide_splits(const bw_decode_plan &plan, const bw_dims *dims, int padded, int64_t units,
                               int64_t cluster_limit) {
    const int64_t *value = dims->value, keys = value[BW_DECODE_KV_LEN], step_keys = 16 * plan.warps;
    const int64_t limit = bw_min64(bw_decode_split_limit, bw_ceil_div(keys, 64));
    const double group = (double)value[BW_DECODE_NUM_HEADS] / (double)value[BW_DECODE_NUM_KV_HEADS];
    const double chunks = (double)plan.chunks, dim = (double)value[BW_DECODE_HEAD_DIM];
    const double products = (plan.wide == 4 ? 9.2 : plan.wide == 2 ? 5.1 : 3.1) / plan.warps;
    const double ends = plan.wide == 4 ? 220e3 : plan.wide == 2 ? 160e3 : 120e3;
    wide_splits best = {1, INFINITY, false};
    for (int64_t splits = 1; splits <= limit; splits++) {
        const int64_t split_keys = round_up(bw_ceil_div(keys, splits), 16);
        const double turns = blocks_of(plan, dims, split_keys) / (double)units;
        if (turns > 1 && splits > 16) continue;  // one block adds all of them up: choose_combiners
        const double share = (turns < 1 && !dims->list ? turns : turns > 1 && chunks > 1 ? 1.3 : 1) / chunks;
        const double keys_time =
            (double)round_up(split_keys, step_keys) * dim * 4 * (share > products ? share : products);
        const double records = splits > 1 ? turns * group / chunks * dim * 13.5 : 0;
        const double time = ceil(turns) * (keys_time + ends) + records;
        if (time < best.time) best = {splits, time, false};
        const bool fits = (int64_t)(plan.shared_bytes + mailbox_bytes(padded, splits)) <= cluster_limit;
        const double together = keys_time + ends - 45e3;
        if (fits && cluster_pays(plan, bw_ceil_div(keys, split_keys), turns) && together < best.time) {
            best = {splits, together, true};
        }
    }
    return best;
}

// Blocks of 16 heads have the fewest records to put together, and those of a group's other heads find keys in the L2
// while all run at once; blocks of 32 or 64 fetch keys less often. (On an H200, 64 heads of 128 elements: 4 x 4096 keys
// 11.8 us by 16, 11.9 by 32, 14.9 by 64; 8 x 8192: 29.6, 25.1, 26.5; 64 x 8192 by 32 161 to 165, by 64 137 to 141.)
void choose_wide(bw_decode_plan *plan, const bw_dims *dims, int padded, int64_t units, int64_t shared_limit,
                 int64_t cluster_limit) {
    const int64_t group = dims->value[BW_DECODE_NUM_HEADS] / dims->value[BW_DECODE_NUM_KV_HEADS];
    const int64_t keys = dims->value[BW_DECODE_KV_LEN];
    wide_splits best = {1, INFINITY, false};
    const bw_decode_plan nothing = *plan;
    for (int wide = 1; wide == 1 || (wide <= 4 && 8 * wide < group); wide *= 2) {
        bw_decode_plan one = nothing;
        divide_wide(&one, group, wide, padded, shared_limit);
        if (wide > 1 && one.warps == wide) break;  // no other warps to work while these wait for each other
        const wide_splits found = choose_wide_splits(one, dims, padded, units, cluster_limit);
        if (found.time >= best.time) continue;
        best = found;
        *plan = one;
    }
    plan->splits = best.splits;
    if (!best.cluster) return;
    plan->cluster = (int)bw_ceil_div(keys, round_up(bw_ceil_div(keys, best.splits), 16));
    plan->shared_bytes += mailbox_bytes(padded, plan->cluster);
}

// A combiner that is not its column's last waits for blocks that may not have started yet: all that wait must leave one
// of the `places` where blocks run at once free. Staged blocks are large and few, and one that waits takes the place of
// one that does not run yet: there, only where all run at once may more than the last one of a column wait.
void choose_combiners(bw_decode_plan *plan, const bw_dims *dims, int64_t block_heads, int64_t places) {
    const bool queue = !plan->direct && blocks_of(*plan, dims, plan->split_keys) > (double)places;
    const int64_t most = queue ? 1 : 1 + (places - 1) / plan->columns;
    const int64_t items = block_heads * plan->row_records;
    plan->combiners = (int)bw_min64(bw_min64(most, 64), bw_min64(plan->splits, items));
    if (!plan->wide) plan->combiner_items = (int)bw_ceil_div(items, plan->combiners);
}

void place_scratch(bw_decode_plan *plan, const bw_dims *dims) {
    const int64_t batch = dims->value[BW_DECODE_BATCH], heads = dims->value[BW_DECODE_NUM_HEADS];
    // Of wide blocks whole ones, though their last may have fewer heads: wide.cuh
    const bw_checked rows =
        plan->wide ? bw_mul(bw_num(plan->columns), bw_num(plan->block_heads)) : bw_mul(bw_num(batch), bw_num(heads));
    const bw_checked records = bw_mul(rows, bw_mul(bw_num(plan->splits), bw_num(plan->row_records)));
    if (records.overflow || records.value > INT64_MAX / (2 * bw_decode_record_bytes)) {
        plan->scratch_bytes = INT64_MAX;
        return;
    }
    plan->ticket_bytes = round_up(plan->columns * (int64_t)sizeof(unsigned), 256);
    plan->sum_bytes = records.value * (int64_t)sizeof(float2);
    plan->value_bytes = records.value * bw_decode_record_bytes - plan->sum_bytes;
    plan->scratch_bytes = plan->ticket_bytes + plan->value_bytes + plan->sum_bytes;
}

void place_parts(bw_decode_plan *plan) {
    if (plan->scratch_bytes > INT64_MAX / 2) return;
    plan->parts_at = round_up(plan->scratch_bytes, sizeof(bw_decode_part));
    plan->scratch_bytes = plan->parts_at + plan->parts * (int64_t)sizeof(bw_decode_part);
}

// Mirrors decode/direct.cu and oneshot.cu: which shapes they take, and what a block is to meet at a time. Few keys
// are spread over as many small blocks as there may be; many go to large ones, which have less to put together, and to
// small ones again where those leave fewer multiprocessors idle.
bool divide_direct(bw_decode_plan *plan, const bw_dims *dims, bw_dtype dtype, int64_t units) {
    const int64_t *value = dims->value;
    const int64_t group = value[BW_DECODE_NUM_HEADS] / value[BW_DECODE_NUM_KV_HEADS];
    const int64_t head_dim = value[BW_DECODE_HEAD_DIM], keys = value[BW_DECODE_KV_LEN];
    if (group > 8 || head_dim > (dtype == BW_FP32 ? 64 : 256) || !bw_attention_vectors(head_dim, dtype)) return false;
    // The kernel counts keys, a split more included, in 32 bits.
    if (keys > INT32_MAX / 2 || value[BW_DECODE_BATCH] > 65535 ||
        value[BW_DECODE_NUM_KV_HEADS] > INT32_MAX / (1024 * head_dim)) {
        return false;
    }
    const double columns = entries_of(dims) * (double)value[BW_DECODE_NUM_KV_HEADS];
    // FP32's products by three take longer than memory does: many keys are staged_fp32.cu's. (On an H200, head_dim 64:
    // of 34 MB it takes 16.2 us, direct.cu 13.8; of 134 MB 37.8 and 40.3, of 537 MB 124 and 143.)
    if (dtype == BW_FP32 && columns * (double)keys * (double)head_dim > 80e3 * (double)units) return false;
    const double least = columns * (double)bw_ceil_div(keys, 64);
    const bool few = least <= 2.0 * (double)units;
    // One block on each multiprocessor with twice the keys, rather than two: as oneshot.cu, where it takes them, meets
    // them at one go.
    const int64_t halves = bw_ceil_div(keys, 128);
    const bool pairs = dtype != BW_FP32 && few && least > (double)units && head_dim == 64 && !dims->list &&
                       (halves == 1 || halves >= group);
    plan->direct = true;
    plan->chunks = 1;
    bw_decode_plan small = *plan, large = *plan;
    small.warps = 4;
    small.step_keys = pairs ? 128 : 64;
    small.resident = pairs || dtype == BW_FP32 ? 2 : head_dim > 64 ? 3 : 4;
    // Alone on its multiprocessor where rows are long: memory serves few places at a time. 64 KiB of keys on their way
    // are enough, and more are slower. (On an H200, 64 x 8192 keys of 2 K/V heads of 64: 64.8 us with 128 KiB, 63.3
    // with 64; 16 x 8192 of 8 of 80: 88.9 us with 40 KiB, 80.7 with 60.)
    large.warps = head_dim > 64 && head_dim <= 96 ? 12 : 8;
    large.step_keys = head_dim > 64 ? 16 * large.warps : 256;
    large.resident = head_dim > 64 ? 1 : 2;
    const bool only_small = dtype == BW_FP32 || (few && head_dim <= 128);
    const timed_splits by_small = choose_direct_splits(small, dims, dtype, units, columns);
    const timed_splits by_large =
        only_small ? timed_splits{1, INFINITY} : choose_direct_splits(large, dims, dtype, units, columns);
    // Small ones take many columns more evenly, beside each other. With long rows, only where no column is divided;
    // with short ones, also where large blocks would not meet their keys at one go (oneshot.cu).
    const bool fitting = by_small.splits == 1 || (head_dim <= 64 && by_large.splits * large.step_keys < keys);
    const bool even = !dims->list && head_dim <= 128 && fitting && 1.01 * by_small.time < by_large.time;
    if (only_small || even) {
        *plan = small;
        plan->splits = by_small.splits;
    } else {
        *plan = large;
        plan->splits = by_large.splits;
    }
    plan->shared_bytes = cell_bytes(plan->warps, 8, (int)round_up(head_dim, 64));
    plan->head_slots = 1;
    plan->block_heads = 8;
    return true;
}

// Registers allow two staged blocks on a multiprocessor, whatever the kernel, and one wide one.
int staged_per_unit(const bw_decode_plan &plan, int64_t shared_limit) {
    return !plan.wide && 2 * (int64_t)plan.shared_bytes <= shared_limit ? 2 : 1;
}

// Of staged blocks, which are to have a step for each of their warps.
int64_t choose_staged_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype, int64_t units) {
    const int64_t *value = dims->value;
    const double columns = entries_of(dims) * (double)value[BW_DECODE_NUM_KV_HEADS] * (double)plan.chunks;
    // Of larger groups products take longer than memory does: not measured.
    if (dtype == BW_FP32 && value[BW_DECODE_NUM_HEADS] <= 8 * value[BW_DECODE_NUM_KV_HEADS]) {
        return choose_timed_splits(plan, float_costs(plan, dims), dims, units, columns, 64).splits;
    }
    const int64_t limit = bw_min64(bw_decode_split_limit, bw_ceil_div(value[BW_DECODE_KV_LEN], 64));
    return choose_splits(columns, units * plan.resident, limit);
}

}  // namespace

bw_decode_plan bw_decode_plan_make(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    const int64_t group = value[BW_DECODE_NUM_HEADS] / value[BW_DECODE_NUM_KV_HEADS];
    const int64_t units = facts && facts->units > 0 ? facts->units : default_units;
    const int64_t shared_limit =
        facts && facts->own && facts->own->shared_bytes > 0 ? facts->own->shared_bytes : default_shared_bytes;
    const int64_t cluster_limit = facts && facts->own && facts->own->major == 9 && !dims->list ? shared_limit : 0;
    const int padded = padded_dim(value[BW_DECODE_HEAD_DIM], dtype);
    bw_decode_plan plan = {};
    if (divide_direct(&plan, dims, dtype, units)) {
        // nothing else to divide
    } else if (dtype == BW_FP32) {
        divide_float(&plan, group, padded, shared_limit);
    } else if (group > 8 && padded <= 128) {
        choose_wide(&plan, dims, padded, units, shared_limit, cluster_limit);
    } else {
        divide_tensor(&plan, group, padded, shared_limit);
    }
    plan.chunks = bw_ceil_div(group, plan.block_heads);
    const bw_checked columns = bw_mul3(value[BW_DECODE_BATCH], value[BW_DECODE_NUM_KV_HEADS], plan.chunks);
    plan.columns = columns.overflow ? INT64_MAX : columns.value;
    plan.row_records = (int)bw_ceil_div(value[BW_DECODE_HEAD_DIM], bw_decode_record_dims);
    if (columns.overflow) {
        plan.splits = 1;
        plan.split_keys = value[BW_DECODE_KV_LEN];
        return plan;
    }
    if (!plan.direct) plan.resident = staged_per_unit(plan, shared_limit);
    if (!plan.direct && !plan.wide) plan.splits = choose_staged_splits(plan, dims, dtype, units);
    plan.split_keys = round_up(bw_ceil_div(value[BW_DECODE_KV_LEN], plan.splits), 16);
    plan.splits = bw_ceil_div(value[BW_DECODE_KV_LEN], plan.split_keys);
    if (dims->list) plan.parts = parts_of(dims, plan.split_keys);
    if (plan.splits > 1 && !plan.cluster) {
        // Splitkv's `prepare` asks the driver.
        choose_combiners(&plan, dims, bw_min64(group, plan.block_heads), units * bw_min64(plan.resident, 2));
        place_scratch(&plan, dims);
    }
    if (plan.parts > 0) place_parts(&plan);
    return plan;
}

void bw_decode_plan_parts(const bw_decode_plan &plan, const bw_dims *dims, bw_decode_part *out) {
    bw_decode_part *end = out;
    for (int entry = 0; entry < (int)dims->value[BW_DECODE_BATCH]; entry++) {
        const int64_t length = dims->list[entry];
        const bw_decode_division even = bw_decode_divide(length, plan.split_keys);
        for (int64_t split = 0; split < even.splits; split++) {
            const int64_t first = split * even.keys;
            *end++ = {entry, (int)first, (int)bw_min64(even.keys, length - first), (unsigned short)split,
                      (unsigned short)even.splits};
        }
    }
    std::sort(out, end, [](const bw_decode_part &a, const bw_decode_part &b) {
        if (a.keys != b.keys) return a.keys > b.keys;
        return a.entry != b.entry ? a.entry < b.entry : a.split < b.split;
    });
}

bool bw_decode_plan_holds(const bw_decode_plan &plan, int resident, int units) {
    return plan.combiners <= 1 || (plan.combiners - 1) * plan.columns < (int64_t)resident * units;
}
