// How a decode is divided among blocks and warps, worked out on the host: the same answer for the launch, for the
// scratch it needs and for the traffic that the scratch adds.
#include "cuda/kernels/attention/decode/plan.h"

#include <algorithm>

#include "cuda/kernels/attention/decode/splits/splits.h"
#include "cuda/runtime/facts.h"

namespace {

// What most devices would do, where no device is given.
constexpr int64_t default_units = 132, default_shared_bytes = 227 * 1024;
constexpr double default_peak_gb_s = 4814, read_share = 0.94;  // of the peak, what plain reads reach

void measure_entries(bw_decode_plan *plan, const bw_dims *dims) {
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    plan->longest = dims->list ? 1 : dims->value[BW_DECODE_KV_LEN];
    plan->entries = (double)batch;
    if (!dims->list) return;
    double keys = 0;
    for (int64_t b = 0; b < batch; b++) {
        plan->longest = bw_max64(plan->longest, dims->list[b]);
        keys += (double)dims->list[b];
    }
    plan->entries = keys / (double)plan->longest;
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
    plan->resident = 1;
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

// Mirrors the rings of fp32/split_fp32.cu, q behind them.
void divide_split(bw_decode_plan *plan, int64_t group, int padded, int64_t shared_limit) {
    const size_t row_bytes = (size_t)padded * sizeof(float);
    plan->split = true;
    plan->head_slots = 1;
    plan->block_heads = group > 16 ? 32 : 16;
    const size_t ring = (size_t)(16 * bw_decode_split_depth(padded, (int)plan->block_heads)) * row_bytes;
    const size_t queries = 2 * (size_t)plan->block_heads * row_bytes;
    plan->warps = 4;
    while (plan->warps > 1 && (size_t)plan->warps * ring + queries > (size_t)shared_limit) plan->warps--;
    const size_t rings = (size_t)plan->warps * ring + queries;
    plan->shared_bytes = larger(rings, cell_bytes(plan->warps, (int)plan->block_heads, padded));
    plan->shared_bytes = larger(plan->shared_bytes, (size_t)shared_limit / 3);  // two on a multiprocessor, not three
}

template <int padded>
void divide_float_heads(bw_decode_plan *plan, int64_t group, int64_t shared_limit) {
    if (group <= 4) return divide_float_lanes<bw_decode_lanes<padded, 4>>(plan, group, shared_limit);
    // 8 heads of short rows leave half of a 16-row product's time empty, and CUDA cores have enough.
    if constexpr (padded <= 128) {
        if (group > 8 || padded > 64) return divide_split(plan, group, padded, shared_limit);
    }
    divide_float_lanes<bw_decode_lanes<padded, 8>>(plan, group, shared_limit);
}

void divide_float(bw_decode_plan *plan, int64_t group, int padded, int64_t shared_limit) {
    if (padded == 64) return divide_float_heads<64>(plan, group, shared_limit);
    if (padded == 128) return divide_float_heads<128>(plan, group, shared_limit);
    if (padded == 192) return divide_float_heads<192>(plan, group, shared_limit);
    divide_float_heads<256>(plan, group, shared_limit);
}

// Blocks of 16 heads have the fewest records to put together, and those of a group's other heads find keys in the L2
// while all run at once; blocks of 32 or 64 fetch keys less often. (On an H200, 64 heads of 128 elements: 4 x 4096 keys
// 11.8 us by 16, 11.9 by 32, 14.9 by 64; 8 x 8192: 29.6, 25.1, 26.5; 64 x 8192 by 32 161 to 165, by 64 137 to 141.)
void choose_wide(bw_decode_plan *plan, const bw_dims *dims, int padded, int64_t units, int64_t shared_limit,
                 int64_t cluster_limit) {
    const int64_t group = dims->value[BW_DECODE_NUM_HEADS] / dims->value[BW_DECODE_NUM_KV_HEADS];
    const int64_t keys = dims->value[BW_DECODE_KV_LEN];
    bw_decode_split_choice best = {1, INFINITY, false};
    const bw_decode_plan nothing = *plan;
    for (int wide = 1; wide == 1 || (wide <= 4 && 8 * wide < group); wide *= 2) {
        bw_decode_plan one = nothing;
        divide_wide(&one, group, wide, padded, shared_limit);
        if (wide > 1 && one.warps == wide) break;  // no other warps to work while these wait for each other
        const bw_decode_split_choice found =
            dims->list
                ? bw_decode_ragged_splits(one, dims, BW_FP16, units, bw_decode_most_splits(one, bw_decode_staged_keys))
                : bw_decode_wide_splits(one, dims, padded, units, cluster_limit);
        if (found.time >= best.time) continue;
        best = found;
        *plan = one;
    }
    plan->splits = best.splits;
    if (!best.cluster) return;
    plan->cluster = (int)bw_ceil_div(keys, bw_decode_round_up(bw_ceil_div(keys, best.splits), 16));
    plan->shared_bytes += bw_decode_mailbox_bytes(padded, plan->cluster);
}

// A combiner that is not its column's last waits for blocks that may not have started yet: all that wait must leave one
// of the `places` where blocks run at once free. A large block that waits takes the place of one that does not run yet:
// there, only where all run at once may more than the last one of a column wait. (11 x 8192 keys of 32/8 heads of 128
// on an H200: 87 us, 110 where 88 blocks waited.)
void choose_combiners(bw_decode_plan *plan, const bw_dims *dims, int64_t block_heads, int64_t places) {
    const bool large = !plan->direct || plan->resident == 1;
    const bool queue = large && bw_decode_blocks(*plan, dims, plan->split_keys) > (double)places;
    const int64_t most = queue ? 1 : 1 + (places - 1) / plan->columns;
    const int64_t items = block_heads * plan->row_records;
    // Runs are blocks that all run at once, and the last of an entry's splits, which a run begins with, waits for none.
    plan->combiners = (int)(plan->runs > 0 ? bw_min64(bw_min64(plan->splits - 1, 64), items)
                                           : bw_min64(bw_min64(most, 64), bw_min64(plan->splits, items)));
    plan->waiting =
        plan->runs > 0 ? plan->runs * dims->value[BW_DECODE_NUM_KV_HEADS] - 1 : (plan->combiners - 1) * plan->columns;
    if (!plan->wide) plan->combiner_items = (int)bw_ceil_div(items, plan->combiners);
}

void place_scratch(bw_decode_plan *plan, const bw_dims *dims) {
    const int64_t batch = dims->value[BW_DECODE_BATCH], heads = dims->value[BW_DECODE_NUM_HEADS];
    // Of wide blocks whole ones, though their last may have fewer heads: wide.cuh
    const bw_checked_int rows =
        plan->wide ? bw_mul(bw_num(plan->columns), bw_num(plan->block_heads)) : bw_mul(bw_num(batch), bw_num(heads));
    const bw_checked_int records = bw_mul(rows, bw_mul(bw_num(plan->splits), bw_num(plan->row_records)));
    if (records.overflow || records.value > INT64_MAX / (2 * bw_decode_record_bytes)) {
        plan->scratch_bytes = INT64_MAX;
        return;
    }
    const int64_t counts = plan->columns * (plan->own_keys > 0 ? 2 : 1);
    plan->ticket_bytes = bw_decode_round_up(counts * (int64_t)sizeof(unsigned), 256);
    plan->sum_bytes = records.value * (int64_t)sizeof(float2);
    plan->value_bytes = records.value * bw_decode_record_bytes - plan->sum_bytes;
    plan->scratch_bytes = plan->ticket_bytes + plan->value_bytes + plan->sum_bytes;
}

void count_parts(bw_decode_plan *plan, const bw_dims *dims) {
    const int64_t *const list = dims->list, *const end = list + dims->value[BW_DECODE_BATCH];
    const auto whole = [&](int64_t length) { return length <= plan->split_keys; };
    plan->parts = bw_decode_parts(dims, plan->split_keys);
    plan->divided = plan->parts - std::count_if(list, end, whole);
}

void place_parts(bw_decode_plan *plan) {
    if (plan->scratch_bytes > INT64_MAX / 2) return;  // refused
    plan->parts_at = bw_decode_round_up(plan->scratch_bytes, sizeof(bw_decode_part));
    plan->scratch_bytes = plan->parts_at + plan->parts * (int64_t)sizeof(bw_decode_part);
}

// Of a split's keys, what its block takes before any that all of an entry's blocks share: a quarter of its steps, or 0
// where they share none. Of 4 steps or fewer nothing is gained. Where not all blocks run at once, those that begin late
// find the less to share: on an H100 11 x 8192 keys of 32/8 heads of 128, two turns, took 127 us, and 143 without while
// blocks still waited for others.
//
// Where a multiprocessor gets much of the memory, shared keys cost more than they even out: 1 x 32768 keys of 32/8
// heads of 128 take 46.6 us on an H100 (24 bytes a nanosecond each) and 47.6 without; on an H200 (34 bytes) 40.0
// and 33.9, the more the more keys are shared. Why is not known: 12 warps, other orders of tiles and tiles asked for
// earlier cost as much or more.
int64_t own_keys(const bw_decode_plan &plan, const bw_dims *dims, double unit_bytes_per_ns) {
    if (unit_bytes_per_ns > 29) return 0;
    const int64_t pace = 16 * plan.warps, steps = bw_ceil_div(plan.longest, plan.splits) / pace;
    const int padded = (int)bw_decode_round_up(dims->value[BW_DECODE_HEAD_DIM], 64);
    if (dims->list || plan.splits == 1 || plan.runs > 0 || !bw_decode_shares_keys(padded, plan.warps)) return 0;
    return steps > 4 ? steps / 4 * pace : 0;
}

// Small blocks take many columns more evenly, beside each other. With long rows, only where no column is divided; with
// short ones, also where large blocks would not meet their keys at one go (oneshot.cu).
double choose_even(bw_decode_plan *plan, const bw_decode_plan &small, const bw_dims *dims, bw_dtype dtype,
                   int64_t units, double large_time) {
    const bw_decode_split_choice found = bw_decode_direct_splits(small, dims, dtype, units);
    const bool many_steps = plan->splits * plan->step_keys < dims->value[BW_DECODE_KV_LEN];
    const bool fitting = found.splits == 1 || (dims->value[BW_DECODE_HEAD_DIM] <= 64 && many_steps);
    if (!fitting || 1.01 * found.time >= large_time) return large_time;
    *plan = small;
    plan->splits = found.splits;
    return found.time;
}

// Of many short entries, small blocks with one each; of long rows, two or three on a multiprocessor. (On an H200, 64 x
// up to 1024 keys of 8 K/V heads of 128 take 33.4 us by two, 36.8 by three, 36.9 by large ones; 128 x 512 34.0, 32.3
// and 42.3; 64 x 8192 264, 287 and 259.)
double choose_undivided(bw_decode_plan *plan, const bw_decode_plan &small, const bw_dims *dims, int64_t units,
                        double large_time) {
    const int least = small.resident == 3 ? 2 : small.resident;
    double best = large_time;
    for (int resident = least; resident <= small.resident; resident++) {
        bw_decode_plan one = small;
        one.resident = resident;
        one.splits = 1;
        const double time = bw_decode_ragged_splits(one, dims, BW_FP16, units, 1).time;  // BF16 has as many bytes
        if (time >= best) continue;
        best = time;
        *plan = one;
    }
    return best;
}

// Entries that are equally long are dealt to runs only where that is to save a few percent. (Of 719 batches on an H200
// this takes 185: 8 % less time on average, at best 25 %, at worst 2 % more.)
constexpr double even_runs = 0.98;

// Mirrors decode/direct.cu and oneshot.cu: which shapes they take, and what a block is to meet at a time. Few keys
// are spread over as many small blocks as there may be; many go to large ones, which have less to put together, and to
// small ones again where those leave fewer multiprocessors idle.
bool divide_direct(bw_decode_plan *plan, const bw_dims *dims, bw_dtype dtype, int64_t units, int64_t shared_limit,
                   double unit_bytes_per_ns) {
    const int64_t *value = dims->value;
    const int64_t group = value[BW_DECODE_NUM_HEADS] / value[BW_DECODE_NUM_KV_HEADS];
    const int64_t head_dim = value[BW_DECODE_HEAD_DIM], keys = value[BW_DECODE_KV_LEN];
    if (group > 8 || head_dim > (dtype == BW_FP32 ? 64 : 256) || !bw_attention_vectors(head_dim, dtype)) return false;
    // The kernel counts keys, a split more included, in 32 bits.
    if (keys > INT32_MAX / 2 || value[BW_DECODE_BATCH] > 65535 ||
        value[BW_DECODE_NUM_KV_HEADS] > INT32_MAX / (1024 * head_dim)) {
        return false;
    }
    const double columns = plan->entries * (double)value[BW_DECODE_NUM_KV_HEADS];
    const int64_t longest = plan->longest;
    // FP32's products by three take longer than memory does: many keys are staged_fp32.cu's. (On an H200, head_dim 64:
    // of 34 MB it takes 16.2 us, direct.cu 13.8; of 134 MB 37.8 and 40.3, of 537 MB 124 and 143.)
    if (dtype == BW_FP32 && columns * (double)longest * (double)head_dim > 80e3 * (double)units) return false;
    const double least = columns * (double)bw_ceil_div(longest, 64);
    // Lists' blocks do not all meet as many keys, and long rows' large ones are faster from one a multiprocessor on.
    const bool few = least <= (dims->list && head_dim > 64 ? 1.0 : 2.0) * (double)units;
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
    *plan = only_small ? small : large;
    const bw_decode_split_choice first =
        dims->list ? bw_decode_ragged_splits(*plan, dims, dtype, units, bw_decode_most_splits(*plan, plan->step_keys))
                   : bw_decode_direct_splits(*plan, dims, dtype, units);
    plan->splits = first.splits;
    double time = first.time;
    if (!only_small && head_dim <= 128) {
        if (dims->list) {
            time = choose_undivided(plan, small, dims, units, time);
        } else {
            time = choose_even(plan, small, dims, dtype, units, time);
        }
    }
    if (dtype != BW_FP32 && (dims->list || !only_small)) {
        const bw_decode_run_choice runs = bw_decode_choose_runs(large, dims, units);
        if (runs.limit > 0 && runs.time < (dims->list ? 1 : even_runs) * time) {
            *plan = large;
            plan->run_limit = runs.limit;
            plan->runs = runs.counts.runs;
            plan->parts = runs.counts.parts;
            plan->divided = runs.counts.divided;
            plan->splits = runs.counts.splits;
        }
    }
    plan->own_keys = own_keys(*plan, dims, unit_bytes_per_ns);
    plan->shared_bytes = cell_bytes(plan->warps, 8, (int)bw_decode_round_up(head_dim, 64));
    if (plan->warps == 4 && plan->resident == 2 && head_dim > 64) {
        plan->shared_bytes = larger(plan->shared_bytes, (size_t)shared_limit / 3);  // not a third one
    }
    plan->head_slots = 1;
    plan->block_heads = 8;
    return true;
}

}  // namespace

bw_decode_plan bw_decode_plan_make(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    const int64_t group = value[BW_DECODE_NUM_HEADS] / value[BW_DECODE_NUM_KV_HEADS];
    const int64_t units = facts && facts->units > 0 ? facts->units : default_units;
    const int64_t shared_limit =
        facts && facts->own && facts->own->shared_bytes > 0 ? facts->own->shared_bytes : default_shared_bytes;
    const double peak_gb_s = facts && facts->peak_gb_s > 0 ? facts->peak_gb_s : default_peak_gb_s;
    const double bytes_per_ns = read_share * peak_gb_s;
    const int64_t cluster_limit = facts && facts->own && facts->own->major == 9 && !dims->list ? shared_limit : 0;
    const int padded = padded_dim(value[BW_DECODE_HEAD_DIM], dtype);
    bw_decode_plan plan = {};
    measure_entries(&plan, dims);
    if (divide_direct(&plan, dims, dtype, units, shared_limit, bytes_per_ns / (double)units)) {
        // nothing else to divide
    } else if (dtype == BW_FP32) {
        divide_float(&plan, group, padded, shared_limit);
    } else if (group > 8 && padded <= 128) {
        choose_wide(&plan, dims, padded, units, shared_limit, cluster_limit);
    } else {
        divide_tensor(&plan, group, padded, shared_limit);
    }
    plan.chunks = bw_ceil_div(group, plan.block_heads);
    const bw_checked_int columns = bw_mul3(value[BW_DECODE_BATCH], value[BW_DECODE_NUM_KV_HEADS], plan.chunks);
    plan.columns = columns.overflow ? INT64_MAX : columns.value;
    plan.row_records = (int)bw_ceil_div(value[BW_DECODE_HEAD_DIM], bw_decode_record_dims);
    if (columns.overflow) {
        plan.splits = 1;
        plan.split_keys = value[BW_DECODE_KV_LEN];
        return plan;
    }
    if (!plan.direct && !plan.wide) {
        // Registers allow two, whatever the kernel.
        plan.resident = 2 * (int64_t)plan.shared_bytes <= shared_limit ? 2 : 1;
        plan.splits = dims->list ? bw_decode_ragged_splits(plan, dims, dtype, units,
                                                           bw_decode_most_splits(plan, bw_decode_staged_keys))
                                       .splits
                                 : bw_decode_staged_splits(plan, dims, dtype, units, bytes_per_ns);
    }
    if (plan.runs > 0) {
        plan.split_keys = plan.longest;
    } else {
        plan.split_keys = bw_decode_round_up(bw_ceil_div(plan.longest, plan.splits), 16);
        plan.splits = bw_ceil_div(plan.longest, plan.split_keys);
        if (dims->list) count_parts(&plan, dims);
    }
    if (plan.splits > 1 && !plan.cluster) {
        // Splitkv's `prepare` asks the driver.
        choose_combiners(&plan, dims, bw_min64(group, plan.block_heads), units * bw_min64(plan.resident, 2));
        place_scratch(&plan, dims);
    }
    if (plan.parts > 0) place_parts(&plan);
    return plan;
}

void bw_decode_plan_parts(const bw_decode_plan &plan, const bw_dims *dims, bw_decode_part *out) {
    if (plan.runs > 0) return bw_decode_deal_parts(dims, plan.run_limit, plan.runs, out);
    bw_decode_part *end = out;
    for (int entry = 0; entry < (int)dims->value[BW_DECODE_BATCH]; entry++) {
        const int64_t length = dims->list[entry];
        const bw_decode_division even = bw_decode_divide(length, plan.split_keys);
        for (int64_t split = 0; split < even.splits; split++) {
            const int64_t first = split * even.keys;
            *end++ = {entry,
                      (int)first,
                      (int)bw_min64(even.keys, length - first),
                      (unsigned char)split,
                      (unsigned char)even.splits,
                      0};
        }
    }
    std::sort(out, end, [](const bw_decode_part &a, const bw_decode_part &b) {
        if (a.keys != b.keys) return a.keys > b.keys;
        return a.entry != b.entry ? a.entry < b.entry : a.split < b.split;
    });
}

bool bw_decode_plan_holds(const bw_decode_plan &plan, int resident, int units) {
    return plan.waiting == 0 || plan.waiting < (int64_t)resident * units;
}
