// How a decode is divided among blocks and warps, worked out on the host: the same for the launch, its scratch and the
// traffic that the scratch adds.
// A shape has several plans: the kinds of blocks that take it, each with numbers of splits that leave few
// multiprocessors idle. `prepare` times them (variants.cc); the first one is taken where nothing is timed.
#include <math.h>

#include <algorithm>

#include "cuda/kernels/attention/decode/plan.h"
#include "cuda/runtime/facts.h"
#include "cuda/runtime/plan_cache.h"

namespace {

// What most devices would do, where no device is given.
constexpr int64_t default_units = 132, default_shared_bytes = 227 * 1024;

// The shortest split of staged and of wide blocks, in keys.
constexpr int64_t staged_keys = 64;

struct card {
    int64_t units, shared_bytes;
    bool clusters;
};

int64_t longest_of(const bw_dims *dims) {
    if (!dims->list) return dims->value[BW_DECODE_KV_LEN];
    return *std::max_element(dims->list, dims->list + dims->value[BW_DECODE_BATCH]);
}

int64_t count_parts(const bw_dims *dims, int64_t split_keys) {
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    if (!dims->list) return batch * bw_ceil_div(dims->value[BW_DECODE_KV_LEN], split_keys);
    int64_t parts = 0;
    for (int64_t b = 0; b < batch; b++) parts += bw_ceil_div(dims->list[b], split_keys);
    return parts;
}

int64_t split_keys_of(const bw_decode_plan &plan, int64_t splits) {
    return bw_decode_round_up(bw_ceil_div(plan.longest, splits), 16);
}

double count_blocks(const bw_decode_plan &plan, const bw_dims *dims, int64_t splits) {
    return (double)count_parts(dims, split_keys_of(plan, splits)) * (double)dims->value[BW_DECODE_NUM_KV_HEADS] *
           (double)plan.chunks;
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

// A combiner that is not its column's last waits for blocks that may not have started yet: all that wait must leave one
// of the `places` where blocks run at once free. A large block that waits takes the place of one that does not run yet:
// more than a column's last one may wait only where all run at once. (On an H200 87 us, not 110.)
void choose_combiners(bw_decode_plan *plan, const bw_dims *dims, int64_t block_heads, int64_t places) {
    const bool large = !plan->direct || plan->resident == 1;
    const bool queue = large && count_blocks(*plan, dims, plan->splits) > (double)places;
    const int64_t most = queue ? 1 : 1 + (places - 1) / plan->columns;
    const int64_t items = block_heads * plan->row_records;
    // Runs are blocks that all run at once, and the last of an entry's splits, which a run begins with, waits for none.
    plan->combiners = (int)(plan->runs > 0 ? bw_min64(bw_min64(plan->splits - 1, 64), items)
                                           : bw_min64(bw_min64(most, 64), bw_min64(plan->splits, items)));
    plan->waiting = plan->runs > 0 ? plan->runs * plan->chunks * dims->value[BW_DECODE_NUM_KV_HEADS] - 1
                                   : (plan->combiners - 1) * plan->columns;
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

void place_parts(bw_decode_plan *plan) {
    if (plan->scratch_bytes > INT64_MAX / 2) return;  // refused
    plan->parts_at = bw_decode_round_up(plan->scratch_bytes, sizeof(bw_decode_part));
    plan->scratch_bytes = plan->parts_at + plan->parts * (int64_t)sizeof(bw_decode_part);
}

// Of a split's keys, what its block takes before any that all of an entry's blocks share: a quarter of its steps, or 0
// where they cannot share any. Of 4 steps or fewer nothing is gained.
int64_t own_keys(const bw_decode_plan &plan, const bw_dims *dims) {
    const int padded = (int)bw_decode_round_up(dims->value[BW_DECODE_HEAD_DIM], 64);
    if (!plan.direct || dims->list || plan.splits == 1 || !bw_decode_shares_keys(padded, plan.warps)) return 0;
    const int64_t steps = bw_ceil_div(plan.longest, plan.splits) / plan.step_keys;
    return steps > 4 ? steps / 4 * plan.step_keys : 0;
}

// The plans of a shape as they are found. A kind is a plan without a number of splits.
struct plan_list {
    const bw_dims *dims;
    bw_dtype dtype;
    struct card card;
    bw_decode_plan *plans;
    int count;

    bool narrow() const {
        return bw_dtype_get(dtype)->block_bytes == 1;
    }
    int64_t group() const {
        return dims->value[BW_DECODE_NUM_HEADS] / dims->value[BW_DECODE_NUM_KV_HEADS];
    }
    double blocks(const bw_decode_plan &kind, int64_t splits) const {
        return count_blocks(kind, dims, splits);
    }
    void add(const bw_decode_plan &kind, int64_t splits, bool shares_keys = false);
    void add_splits(const bw_decode_plan &kind, int64_t least_keys);
    void add_runs(const bw_decode_plan &kind);
    void add_clusters(const bw_decode_plan &kind, int padded);
    void put_first(int first, int end);
};

void plan_list::add(const bw_decode_plan &kind, int64_t splits, bool shares_keys) {
    const int64_t *value = dims->value;
    bw_decode_plan plan = kind;
    plan.row_records = (int)bw_ceil_div(value[BW_DECODE_HEAD_DIM], bw_decode_record_dims);
    const bw_checked_int columns = bw_mul3(value[BW_DECODE_BATCH], value[BW_DECODE_NUM_KV_HEADS], plan.chunks);
    plan.columns = columns.overflow ? INT64_MAX : columns.value;
    plan.splits = splits;
    if (plan.runs > 0) {
        plan.split_keys = plan.longest;
    } else {
        plan.split_keys = split_keys_of(plan, splits);
        plan.splits = bw_ceil_div(plan.longest, plan.split_keys);
        if (dims->list) {
            const auto whole = [&](int64_t length) { return length <= plan.split_keys; };
            plan.parts = count_parts(dims, plan.split_keys);
            plan.divided = plan.parts - std::count_if(dims->list, dims->list + value[BW_DECODE_BATCH], whole);
        }
    }
    if (shares_keys) plan.own_keys = own_keys(plan, dims);
    if (shares_keys && plan.own_keys == 0) return;
    if (plan.splits > 1 && !plan.cluster && !columns.overflow) {
        choose_combiners(&plan, dims, bw_min64(group(), plan.block_heads), card.units * bw_min64(plan.resident, 2));
        place_scratch(&plan, dims);
    }
    if (plan.parts > 0) place_parts(&plan);
    plans[count++] = plan;
}

// As many splits as fill all places of multiprocessors, or these several times; of large blocks also as many as are on
// a quarter of the multiprocessors, on half of them or on each one: they have fewer records. One of each entry where
// there are enough entries.
void plan_list::add_splits(const bw_decode_plan &kind, int64_t least_keys) {
    const int64_t *value = dims->value;
    const int64_t most = bw_min64(bw_decode_split_limit, bw_ceil_div(kind.longest, least_keys));
    const bw_checked_int columns = bw_mul4(value[BW_DECODE_BATCH], value[BW_DECODE_NUM_KV_HEADS], kind.chunks, most);
    if (columns.overflow) return add(kind, 1);
    int64_t last = 0;
    const auto add_more = [&](int64_t splits) {
        if (splits <= last) return;
        last = splits;
        add(kind, splits);
        add(kind, splits, true);
    };
    const auto fill = [&](double places) {
        int64_t few = 0, many = most + 1;  // blocks of so many splits find a place; of so many do not
        while (many - few > 1) {
            const int64_t middle = (few + many) / 2;
            (blocks(kind, middle) <= places ? few : many) = middle;
        }
        add_more(few);
    };
    const double units = (double)card.units;
    if (most == 1 || 2 * blocks(kind, 1) >= units) add_more(1);
    if (!kind.direct || kind.warps >= 8) {
        for (double share : {0.25, 0.5, 1.0}) fill(share * units);
    }
    for (int turns = 1; turns <= 4; turns++) fill(turns * kind.resident * units);
    if (last == 0) add_more(1);
}

// Blocks that take runs of parts (runs.cc).
void plan_list::add_runs(const bw_decode_plan &kind) {
    const int64_t limit = card.units * kind.resident / (dims->value[BW_DECODE_NUM_KV_HEADS] * kind.chunks);
    // A part more takes about as long as 128 keys.
    if (limit == 0 || dims->value[BW_DECODE_BATCH] == 1 || count_parts(dims, 128) < 2 * limit) return;
    const bw_decode_run_counts counts = bw_decode_count_runs(dims, limit);
    if (counts.splits > bw_decode_split_limit || counts.parts > UINT16_MAX) return;
    bw_decode_plan plan = kind;
    plan.run_limit = limit;
    plan.runs = counts.runs;
    plan.parts = counts.parts;
    plan.divided = counts.divided;
    add(plan, counts.splits);
}

// A device's parts (GPCs) hold different numbers of multiprocessors, and a cluster lies in one of them: of an H200's
// 132, with a block to each, 66 clusters of 2 run at once, 30 of 4, 15 of 8. Clusters of other sizes leave more idle.
void plan_list::add_clusters(const bw_decode_plan &kind, int padded) {
    if (!card.clusters || dims->list || kind.wide != 1 || kind.chunks != 1) return;
    for (int blocks = 2; blocks <= 8; blocks *= 2) {
        bw_decode_plan plan = kind;
        plan.shared_bytes +=
            16 + (size_t)(blocks * bw_ceil_div(bw_decode_units(padded), blocks) * bw_decode_unit_bytes);
        plan.cluster = blocks;
        const bool whole = bw_ceil_div(plan.longest, split_keys_of(plan, blocks)) == blocks;
        const bool together = 2 * this->blocks(plan, blocks) <= (double)card.units;
        if (whole && together && plan.shared_bytes <= (size_t)card.shared_bytes) add(plan, blocks);
    }
}

// Of plans `first` to `end` the one that leaves the fewest multiprocessors idle comes first of all.
void plan_list::put_first(int first, int end) {
    int best = first;
    double best_share = -INFINITY;
    for (int i = first; i < end; i++) {
        const bw_decode_plan &plan = plans[i];
        if (plan.cluster > 0 || plan.own_keys > 0) continue;
        const double turns = blocks(plan, plan.splits) / (double)(card.units * plan.resident);
        // Each split adds to what is read back, and each turn of blocks begins with waiting for memory.
        const double share = turns / ceil(turns) - 0.1 * ceil(turns) - 0.002 * (double)plan.splits;
        if (share > best_share) best = i;
        best_share = fmax(share, best_share);
    }
    std::swap(plans[0], plans[best]);
}

// Of direct.cu and oneshot.cu, blocks of so many warps; `step_keys` is what a block meets at a time.
bw_decode_plan direct_kind(const bw_decode_plan &nothing, const plan_list &list, int warps, int step_keys,
                           int resident) {
    const int64_t head_dim = list.dims->value[BW_DECODE_HEAD_DIM];
    bw_decode_plan kind = nothing;
    kind.direct = true;
    kind.chunks = bw_ceil_div(list.group(), 8);
    kind.head_slots = 1;
    kind.block_heads = 8;
    kind.warps = warps;
    kind.step_keys = step_keys;
    kind.resident = resident;
    kind.shared_bytes = cell_bytes(warps, 8, (int)bw_decode_round_up(head_dim, 64));
    if (warps == 4 && resident == 2 && head_dim > 64) {
        kind.shared_bytes = larger(kind.shared_bytes, (size_t)list.card.shared_bytes / 3);  // not a third one
    }
    return kind;
}

// Which shapes direct/ takes: it counts keys, a split more included, in 32 bits, and query heads in 8.
bool takes_direct(const plan_list &list) {
    const int64_t *value = list.dims->value, head_dim = value[BW_DECODE_HEAD_DIM];
    return list.group() <= (list.narrow() ? UINT8_MAX : 8) && head_dim <= (list.dtype == BW_FP32 ? 64 : 256) &&
           bw_attention_vectors(head_dim, list.dtype) && value[BW_DECODE_KV_LEN] <= INT32_MAX / 2 &&
           value[BW_DECODE_BATCH] <= 65535 && value[BW_DECODE_NUM_KV_HEADS] <= INT32_MAX / (1024 * head_dim);
}

// First come small blocks for few keys, and of long rows of 8 bits where each gets many keys, else large ones, which
// have less to put together.
void list_direct(plan_list *list, const bw_decode_plan &nothing, bool few) {
    const int64_t *value = list->dims->value, head_dim = value[BW_DECODE_HEAD_DIM], units = list->card.units;
    const bool floats = list->dtype == BW_FP32, narrow = list->narrow();
    int small_end = 0, pairs_end = 0;
    if (head_dim <= 128) {
        const int step_keys = narrow && head_dim <= 64 ? 128 : 64;
        const bw_decode_plan small = direct_kind(nothing, *list, 4, step_keys,
                                                 floats                     ? 2
                                                 : head_dim > 64 && !narrow ? 3
                                                                            : 4);
        list->add_splits(small, step_keys);
        small_end = pairs_end = list->count;
    }
    if (floats) return;
    // One block on each multiprocessor with twice the keys, rather than two (oneshot.cu's, which takes no lists).
    const bw_decode_plan pairs = direct_kind(nothing, *list, 4, 128, 2);
    const int64_t halves = bw_ceil_div(nothing.longest, 128);
    if (head_dim == 64 && !narrow && !list->dims->list && halves <= bw_decode_split_limit &&
        list->blocks(pairs, halves) <= 2 * (double)units) {
        list->add(pairs, halves);
        pairs_end = list->count;
    }
    // Of long rows and many entries, two small blocks on a multiprocessor or three.
    if (head_dim > 64 && head_dim <= 128 && list->blocks(pairs, 1) > 2 * (double)units) list->add(pairs, 1);
    // Alone on its multiprocessor where rows are long: memory serves few places at a time. 64 KiB of keys on their way
    // are best: with 128 an H200 takes 2 % longer, with 40 10 %.
    const int warps = head_dim > 64 && head_dim <= 96 && !narrow ? 12 : 8;
    const int warp_keys = head_dim <= 64 || (narrow && head_dim <= 192) ? 32 : 16;
    const bw_decode_plan large = direct_kind(nothing, *list, warps, warp_keys * warps, head_dim > 64 ? 1 : 2);
    const int large_begin = list->count;
    list->add_splits(large, large.step_keys);
    const int large_end = list->count;
    list->add_runs(large);
    const bool many_keys = list->blocks(large, bw_ceil_div(nothing.longest, 512)) >= 2 * (double)units;
    if (head_dim <= 128 && (few || (narrow && head_dim > 64 && many_keys && !list->dims->list))) {
        const bool one_each = pairs_end > small_end && list->blocks(pairs, halves) <= (double)units;
        list->put_first(one_each ? small_end : 0, one_each ? pairs_end : small_end);
    } else {
        list->put_first(list->dims->list && list->count > large_end ? large_end : large_begin,
                        list->dims->list ? list->count : large_end);
    }
}

// Blocks of 16 heads have the fewest records to put together, and those of a group's other heads find keys in the L2
// while all run at once; blocks of 32 or 64 fetch keys less often.
void list_wide(plan_list *list, const bw_decode_plan &nothing, int padded) {
    const int64_t group = list->group();
    for (int wide = 1; wide == 1 || (wide <= 4 && 8 * wide < group); wide *= 2) {
        bw_decode_plan kind = nothing;
        divide_wide(&kind, group, wide, padded, list->card.shared_bytes);
        if (wide > 1 && kind.warps == wide) break;  // no other warps to work while these wait for each other
        list->add_splits(kind, staged_keys);
        list->add_clusters(kind, padded);
    }
    list->put_first(0, list->count);
}

void list_staged(plan_list *list, const bw_decode_plan &nothing, int padded, bool few) {
    const int first = list->count;
    const int64_t group = list->group(), shared_bytes = list->card.shared_bytes;
    bw_decode_plan kind = nothing;
    if (list->dtype == BW_FP32) {
        divide_float(&kind, group, padded, shared_bytes);
    } else {
        divide_tensor(&kind, group, padded, shared_bytes);
    }
    kind.chunks = bw_ceil_div(group, kind.block_heads);
    kind.resident = 2 * (int64_t)kind.shared_bytes <= shared_bytes ? 2 : 1;  // registers allow two, whatever the kernel
    list->add_splits(kind, staged_keys);
    list->put_first(few ? 0 : first, few && first > 0 ? first : list->count);
}

}  // namespace

int bw_decode_plan_list(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts,
                        bw_decode_plan out[bw_decode_plans_most]) {
    const bw_own_facts *own = facts ? facts->own : nullptr;
    plan_list list = {dims, dtype, {default_units, default_shared_bytes, false}, out, 0};
    if (facts && facts->units > 0) list.card.units = facts->units;
    if (own && own->shared_bytes > 0) list.card.shared_bytes = own->shared_bytes;
    list.card.clusters = own && own->major == 9;
    const int padded = padded_dim(dims->value[BW_DECODE_HEAD_DIM], dtype);
    bw_decode_plan nothing = {};
    nothing.longest = longest_of(dims);
    if (dtype != BW_FP32 && !list.narrow() && list.group() > 8 && padded <= 128) {
        list_wide(&list, nothing, padded);
        return list.count;
    }
    const bool direct = takes_direct(list);
    bool few = false;
    if (direct) {
        // Lists' blocks meet unequal keys, and long rows' large ones are faster from one a multiprocessor on.
        const bool long_rows = dims->list && dims->value[BW_DECODE_HEAD_DIM] > 64;
        nothing.chunks = 1;
        few = (double)count_parts(dims, 64) * (double)dims->value[BW_DECODE_NUM_KV_HEADS] <=
              (long_rows ? 1.0 : 2.0) * (double)list.card.units;
        list_direct(&list, nothing, few);
    }
    if (!direct || dtype == BW_FP32) list_staged(&list, nothing, padded, few);
    return list.count;
}

uint64_t bw_decode_plan_key(const bw_dims *dims, bw_dtype dtype) {
    uint64_t key = bw_plan_key_mix(BW_PLAN_KEY, dtype);
    for (int64_t value : dims->value) key = bw_plan_key_mix(key, value);
    for (int64_t b = 0; dims->list && b < dims->value[BW_DECODE_BATCH]; b++) key = bw_plan_key_mix(key, dims->list[b]);
    return key;
}

bw_decode_plan bw_decode_plan_make(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts) {
    bw_decode_plan plans[bw_decode_plans_most];
    const int count = bw_decode_plan_list(dims, dtype, facts, plans);
    const bw_plan_cache *cache = facts && facts->own ? facts->own->plans : nullptr;
    const int found = bw_plan_cache_find(cache, bw_decode_plan_key(dims, dtype), count, false);
    return plans[found > 0 && found < count ? found : 0];
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
