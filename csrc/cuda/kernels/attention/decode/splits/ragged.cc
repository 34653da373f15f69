// Splits of entries with lengths of their own, whose blocks take different times.
//
// The figures are those that came nearest to times measured on an H200, 2 300 of 104 batches; what they choose took 2
// to 3 % longer than the fastest of all kinds of blocks and numbers of splits.
#include "cuda/kernels/attention/decode/splits/splits.h"

namespace {

struct ragged_costs {
    double key;                  // of a key
    double ends;                 // of a block: before its first keys come and after the last
    double fastest;              // where few blocks run, how many times as fast as where all places are taken
    double wait, queue, record;  // as in equal.cc
    double start;                // of a launch, more than one of blocks alone on their multiprocessor
};

ragged_costs direct_ragged_costs(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype) {
    const double dim = (double)dims->value[BW_DECODE_HEAD_DIM];
    if (dtype == BW_FP32) return {dim * 2 * 4, 80e3, 1.2, 60e3, 54e3, 60, 0};
    const double key = dim * 2 * 2;
    if (dim > 128) return {key, 80e3, 1.6, 0, 60e3, 16, 0};
    if (plan.resident == 1) return {key, 80e3, 1.2, 0, 0, 30, 0};
    if (plan.warps == 8) return {key, 20e3, 1.7, 40e3, 80e3, 30, 0};
    if (plan.resident == 2) return {1.06 * key, 12e3, 1.9, 50e3, 60e3, 8, 20e3};
    if (plan.resident == 3) return {1.06 * key, 0, 2.2, 50e3, 60e3, 30, 20e3};
    return {key, 12e3, 1.9, 30e3, 40e3, 30, 20e3};
}

// Many heads' products take longer than their keys do, whatever else runs.
ragged_costs staged_ragged_costs(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype) {
    const double dim = (double)dims->value[BW_DECODE_HEAD_DIM];
    const double key = dim * 2 * (double)bw_dtype_get(dtype)->block_bytes;
    if (plan.wide) {
        const double share = plan.chunks > 1 ? 1.3 / (double)plan.chunks : 1.04;  // of memory: chunks share keys
        const double ends = plan.wide == 4 ? 110e3 : plan.wide == 2 ? 80e3 : 60e3;
        const double padded = dim <= 64 ? 64 : 128;  // for products
        return {fmax(key * share, padded * 4 * bw_decode_wide_products(plan)), ends, 1.3, 60e3, 80e3, 8, 0};
    }
    const bool few = dims->value[BW_DECODE_NUM_HEADS] <= 8 * dims->value[BW_DECODE_NUM_KV_HEADS];
    if (dtype == BW_FP32 && (few || plan.split)) return {1.05 * key, 20e3, 2.4, 60e3, 0, 32, 0};
    return {key, 100e3, 1.1, 60e3, 80e3, 30, 0};
}

// Of direct.cu's, whose blocks take runs of parts: all begin and end together.
ragged_costs runs_costs(const bw_dims *dims) {
    return {(double)dims->value[BW_DECODE_HEAD_DIM] * 2 * 2, 90e3, 1.3, 0, 0, 0, 0};
}

constexpr int ragged_steps = 64;

// Blocks that begin in order of their lengths, counted by these in steps of the longest one, on `places`: how long
// until the last one ends. Those that run share memory.
double ordered_time(double (&blocks)[ragged_steps + 1], double step_time, double places, double fastest) {
    constexpr int steps = ragged_steps;
    double ending[steps + 1] = {}, running = 0, time = 0;  // blocks that end so many steps, in a circle, from now
    int next = steps, now = 0;
    for (;;) {
        while (next > 0 && running < places) {
            const double begin = fmin(places - running, blocks[next]);
            ending[(now + next) % (steps + 1)] += begin;
            running += begin;
            blocks[next] -= begin;
            if (blocks[next] <= 0) next--;
        }
        if (running < 0.5) return time;
        time += step_time / fmin(fastest, places / running);
        now = (now + 1) % (steps + 1);
        running -= ending[now];
        ending[now] = 0;
    }
}

double ragged_time(const bw_decode_plan &plan, const ragged_costs &costs, const bw_dims *dims, int64_t units,
                   int64_t split_keys) {
    const int64_t *value = dims->value;
    const double places = (double)(units * plan.resident), each = (double)(value[BW_DECODE_NUM_KV_HEADS] * plan.chunks);
    const double key_time = plan.resident * costs.key;
    const int64_t longest_part = bw_min64(bw_decode_divide(plan.longest, split_keys).keys, plan.longest);
    const double step_time = ((double)longest_part * key_time + costs.ends) / ragged_steps;
    double blocks[ragged_steps + 1] = {}, all = 0, work = 0, rounded_work = 0, split_blocks = 0;
    const auto count = [&](int64_t keys, double times) {
        const double time = (double)keys * key_time + costs.ends;
        const int steps = (int)fmin(fmax(round(time / step_time), 1), ragged_steps);
        blocks[steps] += times;
        all += times;
        work += times * time;
        rounded_work += times * steps * step_time;
    };
    for (int64_t b = 0; b < value[BW_DECODE_BATCH]; b++) {
        const bw_decode_division even = bw_decode_divide(dims->list[b], split_keys);
        const double whole = (double)(even.splits - 1) * each;
        if (whole > 0) count(even.keys, whole);
        count(dims->list[b] - (even.splits - 1) * even.keys, each);
        if (whole > 0) split_blocks += whole + each;
    }
    const double heads = (double)value[BW_DECODE_NUM_HEADS] / each, head_dim = (double)value[BW_DECODE_HEAD_DIM];
    const double records = costs.record * split_blocks / (double)units * heads * head_dim;
    const double exchange = costs.wait + (all > places ? costs.queue : 0) + records;
    // Of very many blocks the last ones do not matter, and following them all would take long.
    const double time = all > 100 * places
                            ? work / places
                            : ordered_time(blocks, step_time, places, costs.fastest) * work / rounded_work;
    return costs.start + time + (split_blocks > 0 ? exchange : 0);
}

}  // namespace

bw_decode_split_choice bw_decode_ragged_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype,
                                               int64_t units, int64_t limit) {
    const ragged_costs costs =
        plan.direct ? direct_ragged_costs(plan, dims, dtype) : staged_ragged_costs(plan, dims, dtype);
    const double each = (double)(dims->value[BW_DECODE_NUM_KV_HEADS] * plan.chunks);
    bw_decode_split_choice best = {1, INFINITY, false};
    // A list may be long, and each number takes a walk along it; of many blocks none need be divided.
    for (int64_t splits = 1; splits <= limit;
         splits = splits < limit ? bw_min64(limit, splits + 1 + splits / 16) : limit + 1) {
        const int64_t split_keys = bw_decode_round_up(bw_ceil_div(plan.longest, splits), 16);
        if (splits > 1 && (double)bw_decode_parts(dims, split_keys) * each > 16.0 * (double)(units * plan.resident))
            break;
        const double time = ragged_time(plan, costs, dims, units, split_keys);
        if (time < best.time) best = {splits, time, false};
    }
    return best;
}

double bw_decode_runs_time(const bw_decode_plan &plan, const bw_dims *dims, int64_t units,
                           const bw_decode_run_counts &counts) {
    const ragged_costs costs = runs_costs(dims);
    const double places = (double)(units * plan.resident);
    const double blocks = (double)(counts.runs * dims->value[BW_DECODE_NUM_KV_HEADS]);
    const double rate = fmin(costs.fastest, places / blocks);
    return (double)counts.longest * plan.resident * costs.key / rate + costs.ends;
}
