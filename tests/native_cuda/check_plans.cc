// What csrc/cuda works out on the host: division by multiplication (divide.cuh) and how a decode is divided among
// blocks (decode/divide.cc, decode/runs.cc). `check_plans <check>`.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "cuda/kernels/attention/decode/plan.h"
#include "cuda/runtime/facts.h"
#include "cuda/runtime/plan_cache.h"

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

// Around every multiple that matters: both ends of the range, and of a gather that once read out of bounds.
static void check_division() {
    const int64_t largest = INT64_MAX;
    const int64_t divisors[] = {1,
                                2,
                                3,
                                7,
                                10,
                                16,
                                4900223,
                                1LL << 31,
                                4901223960,
                                1LL << 33,
                                1LL << 40,
                                1LL << 61,
                                (1LL << 61) + 1,
                                1LL << 62,
                                largest - 1,
                                largest};
    for (int64_t d : divisors) {
        const bw_divider divider = bw_divider_make(d);
        const int64_t quotients[] = {0, 1, 2, 5, largest / d / 3, largest / d / 2, largest / d - 1, largest / d};
        for (int64_t q : quotients) {
            if (q < 0 || q > largest / d) continue;
            const int64_t n = q * d;
            CHECK(divider.quotient(n) == q);
            if (n > 0) CHECK(divider.quotient(n - 1) == q - 1);
            if (largest - n >= d - 1) CHECK(divider.quotient(n + (d - 1)) == q);
        }
        CHECK(divider.quotient(largest) == largest / d);
    }
    uint64_t state = 1;
    for (int i = 0; i < 2000000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const int64_t n = (int64_t)(state >> 1) >> (i % 60);
        state = state * 6364136223846793005u + 1442695040888963407u;
        const int64_t d = 1 + ((int64_t)(state >> 2) >> (i / 7 % 61));
        CHECK(bw_divider_make(d).quotient(n) == n / d);
    }
}

using plan_vector = std::vector<bw_decode_plan>;

static plan_vector list_plans(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts) {
    bw_decode_plan plans[bw_decode_plans_most];
    const int count = bw_decode_plan_list(dims, dtype, facts, plans);
    CHECK(count >= 1 && count <= bw_decode_plans_most);
    return plan_vector(plans, plans + count);
}

template <typename Test>
static bool any(const plan_vector &plans, Test test) {
    for (const bw_decode_plan &plan : plans)
        if (test(plan)) return true;
    return false;
}

static bw_dims dims_of(int64_t batch, int64_t keys, int64_t heads, int64_t kv_heads, int64_t head_dim,
                       const int64_t *lengths = nullptr) {
    bw_dims dims = {};
    dims.value[BW_DECODE_BATCH] = batch;
    dims.value[BW_DECODE_KV_LEN] = keys;
    dims.value[BW_DECODE_NUM_HEADS] = heads;
    dims.value[BW_DECODE_NUM_KV_HEADS] = kv_heads;
    dims.value[BW_DECODE_HEAD_DIM] = head_dim;
    dims.list = lengths;
    return dims;
}

// On 132 multiprocessors, of a card with so much shared memory or of no named one.
static plan_vector plans_of(bw_dtype dtype, int64_t batch, int64_t keys, int64_t heads, int64_t kv_heads,
                            int64_t head_dim, int64_t shared_bytes = 0, const int64_t *lengths = nullptr) {
    const bw_dims dims = dims_of(batch, keys, heads, kv_heads, head_dim, lengths);
    bw_device_facts facts = {};
    bw_own_facts own = {};
    facts.units = 132;
    facts.own = shared_bytes > 0 ? &own : nullptr;
    own.shared_bytes = shared_bytes;
    return list_plans(&dims, dtype, &facts);
}

// What is found is taken until a device is closed; what was found of warm inputs only until cold ones are searched; no
// number that is not a plan's; and what a test forces.
static void check_cache() {
    bw_plan_cache cache = {};
    const bw_dims dims = dims_of(16, 8192, 32, 8, 128), other = dims_of(16, 8193, 32, 8, 128);
    bw_device_facts facts = {};
    bw_own_facts own = {};
    facts.units = 132;
    facts.own = &own;
    own.plans = &cache;
    const uint64_t key = bw_decode_plan_key(&dims, BW_FP16);
    const int64_t lengths[16] = {};
    const bw_dims ragged = dims_of(16, 8192, 32, 8, 128, lengths);
    CHECK(key != bw_decode_plan_key(&other, BW_FP16) && key != bw_decode_plan_key(&dims, BW_BF16));
    CHECK(key != bw_decode_plan_key(&ragged, BW_FP16));
    CHECK(bw_plan_cache_find(nullptr, key, 10, false) == -1 && bw_plan_cache_find(&cache, key, 10, false) == -1);
    bw_plan_cache_store(&cache, key, 3, false);
    CHECK(bw_plan_cache_find(&cache, key, 10, false) == 3 && bw_plan_cache_find(&cache, key, 10, true) == -1);
    CHECK(bw_plan_cache_find(&cache, key, 3, false) == -1 && bw_plan_cache_find(&cache, key + 256, 10, false) == -1);
    bw_plan_cache_store(&cache, key, 0, true);
    CHECK(bw_plan_cache_find(&cache, key, 10, true) == 0 && bw_plan_cache_find(&cache, key, 10, false) == 0);
    bw_decode_plan plans[bw_decode_plans_most];
    const int count = bw_decode_plan_list(&dims, BW_FP16, &facts, plans);
    for (int i = 0; i < count; i++) {
        bw_plan_cache_store(&cache, key, i, true);
        const bw_decode_plan plan = bw_decode_plan_make(&dims, BW_FP16, &facts);
        CHECK(plan.splits == plans[i].splits && plan.warps == plans[i].warps && plan.own_keys == plans[i].own_keys);
    }
    cache.forced = 3;
    CHECK(bw_plan_cache_find(&cache, key, count, true) == 2);
    CHECK(bw_decode_plan_make(&dims, BW_FP16, &facts).splits == plans[2].splits);
}

// Blocks that wait for others leave at least one place where two of a multiprocessor's run at once, and a device that
// runs fewer is told apart.
static void check_waiting_blocks() {
    const int64_t batches[] = {1, 3, 16, 64, 200}, lengths[] = {1, 100, 4096, 131072}, kv_heads[] = {1, 2, 8};
    const int64_t groups[] = {1, 7, 8, 16, 20, 32, 64, 100}, head_dims[] = {64, 72, 100, 128, 160, 192, 256};
    const bw_dtype dtypes[] = {BW_FP32, BW_FP16};
    int64_t several = 0, refused = 0;
    for (int64_t batch : batches)
        for (int64_t length : lengths)
            for (int64_t heads : kv_heads)
                for (int64_t group : groups)
                    for (int64_t head_dim : head_dims)
                        for (bw_dtype dtype : dtypes) {
                            for (const bw_decode_plan &plan :
                                 plans_of(dtype, batch, length, heads * group, heads, head_dim, 227 * 1024)) {
                                if (plan.splits == 1) continue;
                                // All runs but the last one of an entry may wait.
                                const int64_t waiting =
                                    plan.runs > 0 ? plan.runs * heads - 1 : (plan.combiners - 1) * plan.columns;
                                const bool alone = plan.direct ? plan.resident == 1 : plan.wide > 0;
                                const int resident = alone ? 1 : 2;
                                CHECK(plan.combiners >= 1 && waiting < resident * 132);
                                if (plan.resident == 1 && plan.runs == 0 && plan.columns * plan.splits > 132)
                                    CHECK(waiting == 0);
                                CHECK(bw_decode_plan_holds(plan, resident, 132));
                                CHECK(bw_decode_plan_holds(plan, 1, 132) == (waiting < 132));
                                CHECK(bw_decode_plan_holds(plan, 0, 132) == (waiting == 0));
                                several += plan.combiners > 1;
                                refused += !bw_decode_plan_holds(plan, 1, 132);
                            }
                        }
    CHECK(several > 100 && refused > 10);
}

// Groups above 8: what a block asks for fits every card, a warp holds 16 heads, half the multiprocessors have keys,
// splits are few enough to be worth their records, and blocks wait for others only where all run at once.
static void check_large_groups() {
    const int64_t limits[] = {99 * 1024, 163 * 1024, 227 * 1024}, groups[] = {9, 16, 17, 20, 32, 33, 64, 65, 300};
    const int64_t head_dims[] = {8, 64, 72, 128, 192, 256}, batches[] = {4, 16, 100};
    int64_t lengths[100], several = 0, wide[3] = {}, clusters[9] = {};
    for (int b = 0; b < 100; b++) lengths[b] = b % 3 ? 8192 : 1 + 40 * b;
    for (int64_t limit : limits)
        for (int64_t group : groups)
            for (int64_t head_dim : head_dims)
                for (int64_t batch : batches)
                    for (int kind = 0; kind < 4; kind++) {
                        const bool ragged = kind % 2 == 1, hopper = kind / 2 == 1;
                        const bw_dims dims = dims_of(batch, 8192, 2 * group, 2, head_dim, ragged ? lengths : nullptr);
                        bw_device_facts facts = {};
                        bw_own_facts own = {};
                        facts.units = 132;
                        facts.own = &own;
                        own.major = hopper ? 9 : 8;
                        own.shared_bytes = limit;
                        bool is_first = true;
                        for (const bw_decode_plan &plan : list_plans(&dims, BW_FP16, &facts)) {
                            CHECK(plan.shared_bytes > 0 && plan.shared_bytes <= (size_t)limit);
                            CHECK(plan.warps % plan.head_slots == 0 && plan.warps <= 8);
                            CHECK((plan.wide == 0) == (head_dim > 128));
                            CHECK(plan.chunks * plan.block_heads >= group);
                            if (plan.wide == 0) continue;
                            const int64_t heads = plan.block_heads, most_chunks = bw_ceil_div(group, 16);
                            CHECK(plan.wide == plan.head_slots && heads == 16 * plan.wide &&
                                  plan.wide <= (group > 32   ? 4
                                                : group > 16 ? 2
                                                             : 1));
                            CHECK(plan.chunks <= most_chunks && (plan.wide == 1) == (plan.chunks == most_chunks));
                            wide[plan.wide / 2]++;
                            // A stage has K and V, 16 bits each, of 16 keys, or of 32 where two warps share a ring;
                            // then q, a maximum and a sum of each warp's heads, and what a cluster's blocks send to
                            // this one: of its part of the column's heads and elements all blocks' values, maxima and
                            // sums.
                            const int64_t padded = head_dim <= 64 ? 64 : 128, stages = head_dim <= 64 ? 4 : 3;
                            const int64_t rings = plan.warps * stages * 64 * padded;
                            const int64_t before = rings + 2 * heads * padded + plan.warps * 16 * 8 + 16;
                            const int64_t parts =
                                plan.cluster ? bw_ceil_div(heads / 8 * (padded / 16), plan.cluster) : 0;
                            CHECK((int64_t)plan.shared_bytes ==
                                  before + (plan.cluster ? 16 + plan.cluster * parts * 8 * (16 * 4 + 8) : 0));
                            CHECK(plan.warps / plan.head_slots > 1);
                            if (plan.cluster) {
                                CHECK(hopper && !ragged && plan.chunks == 1 && plan.wide == 1);
                                CHECK(plan.cluster == plan.splits &&
                                      (plan.cluster == 2 || plan.cluster == 4 || plan.cluster == 8));
                                CHECK(plan.combiners == 0 && plan.scratch_bytes == 0);
                                CHECK(plan.columns * plan.splits <= 66);
                            } else if (plan.splits > 1) {
                                CHECK(plan.value_bytes == plan.columns * heads * plan.splits * plan.row_records * 64);
                            }
                            clusters[plan.cluster]++;
                            double blocks = 0;  // with keys
                            for (int64_t entry = 0; entry < batch; entry++) {
                                const int64_t keys = ragged ? lengths[entry] : 8192;
                                blocks += (double)(2 * plan.chunks * bw_ceil_div(keys, plan.split_keys));
                            }
                            CHECK(!is_first || blocks >= 96);
                            CHECK(plan.combiners <= 1 || blocks <= 132);
                            several += plan.combiners > 1;
                            is_first = false;
                        }
                    }
    CHECK(several > 10 && wide[0] > 10 && wide[1] > 10 && wide[2] > 10);
    CHECK(clusters[2] > 1 && clusters[8] > 1);
}

// Few short rows: what was the fastest on an H200 is among the plans: blocks of 64 keys, of 128 or of 256, as many as
// there may be, which all run at once.
static void check_few_keys() {
    const struct {
        int64_t batch, keys, heads, kv_heads, step_keys;
    } shapes[] = {{1, 4096, 14, 2, 64},  {2, 4096, 14, 2, 128}, {4, 2048, 14, 2, 128}, {16, 512, 14, 2, 64},
                  {9, 1024, 7, 1, 128},  {32, 512, 7, 1, 64},   {32, 512, 4, 1, 128},  {96, 128, 7, 1, 128},
                  {1, 8192, 14, 2, 128}, {1, 12288, 7, 1, 128}, {8, 4096, 14, 2, 256}, {1, 4096, 32, 8, 256},
                  {1, 8192, 16, 4, 256}, {12, 1000, 6, 2, 256}, {9, 2001, 7, 1, 256}};
    for (const auto &shape : shapes) {
        const int64_t steps = bw_ceil_div(shape.keys, shape.step_keys);
        const plan_vector plans = plans_of(BW_FP16, shape.batch, shape.keys, shape.heads, shape.kv_heads, 64);
        CHECK(plans[0].direct && plans[0].columns * plans[0].splits <= plans[0].resident * 132);
        CHECK(any(plans, [&](const bw_decode_plan &plan) {
            return plan.step_keys == shape.step_keys && plan.splits == steps && plan.split_keys <= plan.step_keys &&
                   plan.columns * plan.splits <= plan.resident * 132;
        }));
    }
}

// The first plan is the fastest of an H200, or takes at most 6 % longer. In 8 bits, small blocks take some 400 keys.
static void check_first_plans() {
    const struct {
        bw_dtype dtype;
        int64_t batch, keys, heads, kv_heads, head_dim;
        int warps;
        int64_t splits;
    } shapes[] = {{BW_INT8, 64, 8192, 32, 8, 128, 4, 1},  {BW_INT8, 8, 4096, 32, 8, 128, 4, 8},
                  {BW_INT8, 1, 32768, 32, 8, 128, 4, 64}, {BW_INT8, 16, 8192, 28, 4, 128, 4, 8},
                  {BW_INT8, 9, 4096, 32, 8, 96, 4, 7},    {BW_INT8, 10, 2000, 32, 8, 128, 4, 6},
                  {BW_INT8, 1, 4096, 32, 8, 128, 8, 16},  {BW_INT8, 4, 2048, 32, 8, 128, 8, 4},
                  {BW_INT8, 4, 4096, 64, 4, 128, 8, 4},   {BW_FP16, 3, 8192, 32, 8, 128, 8, 5},
                  {BW_FP16, 20, 8192, 32, 2, 128, 8, 3},  {BW_FP32, 9, 4096, 32, 2, 64, 4, 14},
                  {BW_FP32, 23, 5003, 24, 2, 128, 4, 5}};
    for (const auto &shape : shapes) {
        const bw_decode_plan first =
            plans_of(shape.dtype, shape.batch, shape.keys, shape.heads, shape.kv_heads, shape.head_dim)[0];
        CHECK(first.warps == shape.warps && first.splits == shape.splits);
    }
}

// Of the divisions that were measured on an H200 these were the fastest.
static void check_many_columns() {
    const struct {
        int64_t batch, keys, heads, kv_heads, head_dim, warps, splits;
    } shapes[] = {{6, 1500, 56, 8, 128, 8, 2},  {5, 2048, 64, 8, 128, 8, 3},   {64, 300, 256, 32, 128, 4, 1},
                  {100, 300, 64, 8, 128, 4, 1}, {12, 1500, 16, 2, 256, 8, 5},  {3, 1500, 32, 8, 128, 8, 5},
                  {64, 512, 32, 8, 64, 4, 1},   {128, 512, 14, 2, 64, 8, 1},   {16, 8192, 64, 8, 128, 8, 1},
                  {64, 512, 32, 32, 128, 4, 1}, {1, 32768, 32, 8, 128, 8, 16}, {20, 2048, 32, 8, 64, 4, 3},
                  {16, 8192, 32, 8, 72, 12, 1}, {4, 8192, 32, 8, 96, 12, 4},   {16, 8192, 32, 8, 104, 8, 1}};
    for (const auto &shape : shapes) {
        const plan_vector plans =
            plans_of(BW_FP16, shape.batch, shape.keys, shape.heads, shape.kv_heads, shape.head_dim);
        CHECK(any(plans, [&](const bw_decode_plan &plan) {
            return plan.direct && plan.warps == shape.warps && plan.splits == shape.splits;
        }));
    }
    // tests/test_decode.py's: several blocks of a column wait while others have no place yet.
    const struct {
        bw_dtype dtype;
        int64_t batch, keys, heads, head_dim, warps;
    } crowded[] = {{BW_FP16, 180, 6132, 2, 24, 8}, {BW_FP16, 133, 3804, 1, 64, 4}, {BW_FP32, 133, 1773, 1, 24, 4}};
    for (const auto &shape : crowded) {
        CHECK(any(plans_of(shape.dtype, shape.batch, shape.keys, shape.heads, 1, shape.head_dim),
                  [&](const bw_decode_plan &plan) {
                      return plan.direct && plan.warps == shape.warps && plan.combiners > 1 &&
                             plan.columns * plan.splits > 132 * plan.resident;
                  }));
    }
}

// Runs hold each entry's keys once, in order, and are about as long as each other. None but its last part may wait for
// others: all of an entry's parts but the last one end runs. They all run at once.
static void check_runs(const bw_decode_plan &plan, const bw_dims *dims, const bw_decode_part *parts, int64_t kv_heads) {
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    static int64_t keys[300], seen[300];
    memset(keys, 0, sizeof keys);
    memset(seen, 0, sizeof seen);
    CHECK(plan.direct && plan.warps >= 8 && plan.runs * kv_heads <= 132 * plan.resident);
    CHECK(plan.combiners <= (plan.splits > 1 ? plan.splits - 1 : 0));
    CHECK(plan.splits == 1 || (plan.waiting < plan.resident * 132 && !bw_decode_plan_holds(plan, 1, 1)));
    int64_t count = 0, all = 0, longest = 0, splits = 0, divided = 0;
    const auto length = [&](int64_t b) { return dims->list ? dims->list[b] : dims->value[BW_DECODE_KV_LEN]; };
    for (int64_t b = 0; b < batch; b++) all += length(b);
    for (int64_t run = 0; run < plan.runs; run++) {
        int64_t of_run = 0;
        for (int64_t at = run, next = 0;; at = next) {
            CHECK(at < plan.parts && ++count <= plan.parts);
            const bw_decode_part &part = parts[at];
            next = part.next;
            CHECK(part.entry < batch && part.keys > 0 && part.first == keys[part.entry]);
            CHECK(part.split == seen[part.entry] && part.split < part.splits);
            CHECK(next == 0 || (next >= plan.runs && part.split == part.splits - 1));
            keys[part.entry] += part.keys;
            seen[part.entry]++;
            of_run += part.keys;
            if (next == 0) break;
        }
        longest = of_run > longest ? of_run : longest;
    }
    CHECK(count == plan.parts);
    for (int64_t i = 0; i < plan.parts; i++) {
        CHECK(parts[i].splits == seen[parts[i].entry]);
        divided += parts[i].splits > 1;
        splits = parts[i].splits > splits ? parts[i].splits : splits;
    }
    for (int64_t b = 0; b < batch; b++) CHECK(keys[b] == length(b));
    CHECK(splits == plan.splits && divided == plan.divided);
    // A part more stands for 128 keys, and a cut is up to 64 off.
    CHECK(longest <= (all + 128 * batch) / plan.runs + 2 * 128 + 64);
}

// Several entries that are equally long are dealt to runs, too.
static void check_even_runs() {
    const struct {
        int64_t batch, keys, heads, kv_heads, head_dim;
        bool runs;
    } shapes[] = {{9, 2048, 32, 8, 128, true},  {18, 2048, 32, 8, 128, true},  {18, 8192, 32, 8, 96, true},
                  {9, 8192, 32, 8, 160, true},  {48, 8192, 8, 1, 128, true},   {16, 8192, 32, 8, 128, true},
                  {64, 8192, 32, 8, 128, true}, {1, 32768, 32, 8, 128, false}, {1, 4096, 14, 2, 64, false}};
    static bw_decode_part parts[1000];
    for (const auto &shape : shapes) {
        const bw_dims dims = dims_of(shape.batch, shape.keys, shape.heads, shape.kv_heads, shape.head_dim);
        bool has_runs = false;
        for (const bw_decode_plan &plan :
             plans_of(BW_BF16, shape.batch, shape.keys, shape.heads, shape.kv_heads, shape.head_dim)) {
            CHECK((plan.runs > 0) == (plan.parts > 0));
            if (plan.runs == 0) continue;
            has_runs = true;
            CHECK(plan.parts <= 1000 && plan.scratch_bytes == plan.parts_at + plan.parts * 16);
            bw_decode_plan_parts(plan, &dims, parts);
            check_runs(plan, &dims, parts, shape.kv_heads);
        }
        CHECK(has_runs == shape.runs);
    }
}

// Blocks of one K/V head share keys only where nothing else divides them. Each has whole steps of its own first, at
// most half of all are anybody's own, and the counts of those taken lie behind the tickets. On an H100 that was the
// fastest where a number is given.
static void check_shared_keys() {
    const struct {
        int64_t batch, keys, heads, kv_heads, head_dim, own_keys;
    } shapes[] = {{1, 32768, 32, 8, 128, 512}, {1, 131072, 32, 8, 128, 2048}, {5, 2048, 64, 8, 128, 128},
                  {1, 32768, 32, 8, 192, 512}, {1, 32768, 32, 8, 104, 512},   {11, 8192, 32, 8, 128, 640},
                  {1, 1500, 32, 8, 128, 0},    {1, 131072, 32, 8, 96, 0},     {1, 131072, 14, 2, 64, 0},
                  {1, 32768, 72, 8, 128, 0}};
    const auto shares = [](const bw_decode_plan &plan) { return plan.own_keys > 0; };
    for (const auto &shape : shapes) {
        const plan_vector plans =
            plans_of(BW_FP16, shape.batch, shape.keys, shape.heads, shape.kv_heads, shape.head_dim);
        CHECK(any(plans, [&](const bw_decode_plan &plan) { return plan.own_keys == shape.own_keys; }));
        CHECK(any(plans, shares) == (shape.own_keys > 0) && plans[0].own_keys == 0);
    }
    CHECK(!any(plans_of(BW_FP32, 1, 32768, 32, 8, 128), shares));
    const int64_t head_dims[] = {64, 72, 96, 104, 128, 160, 192, 256}, groups[] = {1, 4, 8}, kv_heads[] = {1, 2, 5, 8};
    int64_t shared = 0, turns = 0, others = 0;
    for (int64_t batch = 1; batch < 40; batch += 3)
        for (int64_t keys = 100; keys < 200000; keys = keys * 5 / 3 + 7)
            for (int64_t head_dim : head_dims)
                for (int64_t group : groups)
                    for (int64_t heads : kv_heads)
                        for (const bw_decode_plan &plan :
                             plans_of(BW_BF16, batch, keys, heads * group, heads, head_dim)) {
                            const int64_t numbers = plan.splits == 1 ? 0 : plan.columns * (plan.own_keys > 0 ? 2 : 1);
                            CHECK(plan.ticket_bytes >= numbers * 4 && plan.ticket_bytes < numbers * 4 + 256);
                            CHECK(plan.splits == 1 || plan.parts > 0 ||
                                  plan.scratch_bytes == plan.ticket_bytes + plan.value_bytes + plan.sum_bytes);
                            (plan.own_keys > 0 ? shared : others)++;
                            if (plan.own_keys == 0) continue;
                            const int64_t pace = 16 * plan.warps;
                            CHECK(plan.direct && plan.warps == 8 && plan.resident == 1 && head_dim > 96);
                            CHECK(plan.parts == 0 && plan.splits > 1);
                            turns += plan.columns * plan.splits > 132;
                            CHECK(plan.own_keys % pace == 0 && plan.own_keys >= pace);
                            CHECK(2 * plan.own_keys * plan.splits <= keys);
                        }
    CHECK(shared > 100 && turns > 50 && others > 100);
}

// Entries of different lengths: parts hold each entry's keys once, in even splits, long ones first; they and the
// records have their places in scratch.
static void check_parts() {
    uint64_t state = 7;
    const auto random = [&](int64_t below) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (int64_t)(state >> 33) % below;
    };
    const int64_t head_dims[] = {40, 64, 96, 128, 160, 256}, groups[] = {1, 4, 8, 9, 24, 48}, kv_heads[] = {1, 2, 8};
    int64_t divided = 0, whole = 0, runs = 0;
    for (int round = 0; round < 3000; round++) {
        const int64_t batch = 1 + random(round % 10 == 0 ? 300 : 20), most = 1 + random(round % 3 ? 3000 : 40000);
        const int64_t heads = kv_heads[random(3)], room = random(2) ? 0 : 500;
        int64_t lengths[300], longest = 0;
        for (int64_t b = 0; b < batch; b++) {
            lengths[b] = 1 + random(most);
            longest = lengths[b] > longest ? lengths[b] : longest;
        }
        const bw_dtype dtype = random(3) ? BW_FP16 : BW_FP32;
        const bw_dims dims =
            dims_of(batch, longest + room, heads * groups[random(6)], heads, head_dims[random(6)], lengths);
        static bw_decode_part parts[300 * 128];
        for (const bw_decode_plan &plan : list_plans(&dims, dtype, nullptr)) {
            CHECK(plan.parts >= batch && plan.parts <= batch * bw_decode_split_limit && plan.cluster == 0);
            const int64_t records = plan.ticket_bytes + plan.value_bytes + plan.sum_bytes;
            CHECK((records > 0) == (plan.splits > 1) && plan.parts_at >= records && plan.parts_at % 16 == 0);
            CHECK(plan.scratch_bytes == plan.parts_at + plan.parts * 16 && sizeof(bw_decode_part) == 16);
            CHECK(bw_decode_plan_holds(plan, plan.resident, 132));
            bw_decode_plan_parts(plan, &dims, parts);
            if (plan.runs > 0) {
                check_runs(plan, &dims, parts, heads);
                runs++;
                continue;
            }
            CHECK(plan.splits == bw_ceil_div(longest, plan.split_keys) && plan.split_keys % 16 == 0);
            static int64_t keys[300], seen[300];
            memset(keys, 0, sizeof keys);
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < plan.parts; i++) {
                const bw_decode_part &part = parts[i];
                CHECK(i == 0 || part.keys <= parts[i - 1].keys);
                CHECK(part.entry >= 0 && part.entry < batch && part.keys > 0 && part.keys <= plan.split_keys);
                CHECK(part.splits == bw_ceil_div(lengths[part.entry], plan.split_keys) && part.split < part.splits);
                const int64_t even = bw_decode_divide(lengths[part.entry], plan.split_keys).keys;
                CHECK(part.first == part.split * even);
                CHECK(part.keys == (part.split < part.splits - 1 ? even : lengths[part.entry] - part.first));
                keys[part.entry] += part.keys;
                seen[part.entry]++;
            }
            for (int64_t b = 0; b < batch; b++) {
                CHECK(keys[b] == lengths[b] && seen[b] == bw_ceil_div(lengths[b], plan.split_keys));
            }
            divided += plan.splits > 1;
            whole += plan.splits == 1;
        }
    }
    CHECK(divided > 300 && whole > 300 && runs > 100);
}

// Of the divisions that were measured on an H200 these took at most 3 % more than the fastest: the kind of block is
// among the plans, with a number of splits that is not far off.
static void check_ragged() {
    const struct {
        bw_dtype dtype;
        int64_t heads, kv_heads, head_dim;
        int warps, resident;
        int64_t splits, runs, count, lengths[8];
    } shapes[] = {{BW_FP16, 32, 8, 128, 8, 1, 8, 16, 4, {3733, 1329, 4215, 8192}},
                  {BW_FP16, 32, 8, 128, 8, 1, 8, 16, 3, {32306, 2235, 32768}},
                  {BW_FP16, 8, 1, 128, 8, 1, 24, 0, 8, {413, 5827, 1412, 6466, 8192, 6575, 1559, 6917}},
                  {BW_FP16, 32, 8, 64, 8, 2, 8, 0, 8, {3905, 721, 3652, 720, 8192, 7204, 4086, 895}},
                  {BW_FP16, 32, 8, 64, 8, 2, 8, 0, 4, {1975, 7532, 8192, 4915}},
                  {BW_FP16, 14, 2, 64, 8, 2, 32, 0, 4, {5070, 4463, 3067, 8192}},
                  {BW_FP32, 32, 8, 128, 8, 2, 6, 0, 8, {411, 2707, 6587, 8192, 5145, 1086, 3267, 4989}},
                  {BW_FP16, 32, 2, 128, 8, 1, 14, 0, 8, {4653, 4004, 207, 6727, 8192, 1807, 856, 3722}}};
    for (const auto &shape : shapes) {
        const plan_vector plans =
            plans_of(shape.dtype, shape.count, shape.lengths[shape.count - 1] > 8192 ? 32768 : 8192, shape.heads,
                     shape.kv_heads, shape.head_dim, 0, shape.lengths);
        CHECK(any(plans, [&](const bw_decode_plan &plan) {
            const bool near = 3 * plan.splits >= 2 * shape.splits && 2 * plan.splits <= 3 * shape.splits;
            return plan.warps == shape.warps && plan.resident == shape.resident && near && plan.runs == shape.runs;
        }));
    }
    // Many short entries: small blocks, a whole one each; of many long ones large blocks do, by runs.
    const auto has = [](const plan_vector &plans, int warps, int resident, int64_t splits, int64_t runs) {
        return any(plans, [=](const bw_decode_plan &plan) {
            CHECK(plan.warps != 4 || plan.resident != 2 || plan.shared_bytes > (227 * 1024) / 4);  // no third block
            return plan.warps == warps && plan.resident == resident && plan.splits == splits && plan.runs == runs;
        });
    };
    int64_t lengths[128];
    for (int b = 0; b < 128; b++) lengths[b] = 4 + 4 * b;
    CHECK(has(plans_of(BW_FP16, 128, 512, 32, 8, 128, 0, lengths), 4, 3, 1, 0));
    for (int b = 0; b < 64; b++) lengths[b] = 16 + 16 * b;
    CHECK(has(plans_of(BW_FP16, 64, 1024, 32, 8, 128, 0, lengths), 4, 2, 1, 0));
    for (int b = 0; b < 64; b++) lengths[b] = 128 + 128 * b;
    const plan_vector longer = plans_of(BW_FP16, 64, 8192, 32, 8, 128, 0, lengths);
    CHECK(has(longer, 8, 1, 2, 16) && longer[0].runs == 16);
    CHECK(plans_of(BW_INT8, 64, 8192, 32, 8, 128, 0, lengths)[0].runs == 16);
}

// FP32: what takes at most 3 % more than the fastest on an H200; heads of a group have a place, blocks fit every card,
// and where it has room two of them run on a multiprocessor and no third one.
static void check_float_rows() {
    const int64_t limits[] = {99 * 1024, 163 * 1024, 227 * 1024}, groups[] = {1, 3, 4, 5, 8, 9, 17, 100};
    const int64_t head_dims[] = {72, 128, 129, 132, 144, 160, 161, 188, 192, 193, 196, 256};
    const struct {
        int64_t batch, keys, heads, head_dim, splits;
    } shapes[] = {{6, 1500, 32, 256, 5},  {6, 1500, 32, 192, 5},  {20, 1024, 32, 192, 1},  {16, 512, 64, 128, 1},
                  {8, 1024, 32, 128, 2},  {4, 2048, 8, 128, 4},   {1, 32768, 32, 256, 16}, {64, 2048, 8, 128, 1},
                  {16, 8192, 32, 160, 2}, {16, 8192, 64, 160, 2}, {16, 8192, 32, 144, 2}};
    for (const auto &shape : shapes) {
        CHECK(any(plans_of(BW_FP32, shape.batch, shape.keys, shape.heads, 8, shape.head_dim),
                  [&](const bw_decode_plan &plan) { return plan.resident == 2 && plan.splits == shape.splits; }));
    }
    // A second block on a few multiprocessors alone takes as long as one on each of them.
    for (int64_t keys = 8192; keys <= 20000; keys += 272) {
        const bw_decode_plan plans[] = {plans_of(BW_FP32, 4, keys, 28, 4, 128)[0],
                                        plans_of(BW_FP32, 8, keys, 14, 2, 64)[0],
                                        plans_of(BW_FP32, 1, keys, 32, 8, 128)[0]};
        for (const bw_decode_plan &plan : plans) {
            const int64_t blocks = plan.columns * plan.splits;
            CHECK(blocks <= 132 ? blocks >= 112 : blocks >= 198 && blocks <= 264);
        }
    }
    for (int64_t limit : limits)
        for (int64_t group : groups)
            for (int64_t head_dim : head_dims) {
                for (const bw_decode_plan &plan : plans_of(BW_FP32, 16, 8192, 2 * group, 2, head_dim, limit)) {
                    CHECK(!plan.direct && plan.wide == 0);
                    const bool vectors = head_dim % 4 == 0, split = group > 4 && vectors && head_dim <= 128;
                    const int heads = split ? (group > 16 ? 32 : 16) : group <= 4 ? 4 : 8;
                    CHECK(plan.split == split && plan.warps % plan.head_slots == 0);
                    CHECK(split ? plan.warps >= 2 && plan.warps <= 4 : plan.warps == (head_dim <= 128 ? 8 : 4));
                    CHECK(plan.block_heads == heads * plan.head_slots && plan.chunks * plan.block_heads >= group);
                    const int64_t bytes = (int64_t)plan.shared_bytes,
                                  each = bytes + 1024;  // of which the card takes 1 KiB
                    CHECK(bytes <= limit && 3 * each > limit + 1024);
                    CHECK(limit < 227 * 1024 || 2 * each <= limit + 1024);
                    // A ring's rows are as long as a cell's: 64, 128, 192 or 256 elements.
                    const int64_t padded = !vectors || head_dim > 192 ? 256 : head_dim > 128 ? 192 : 128;
                    const int64_t parts = padded == 192 ? 2 : 1;
                    CHECK(bytes >= plan.warps * 8 * 1024);
                    CHECK(bytes >= plan.warps * parts * heads * (padded + bw_decode_cell_gap + 2) * 4 + 4);
                }
            }
}

static const struct {
    const char *name;
    void (*check)();
} checks[] = {
    {"division", check_division},     {"waiting_blocks", check_waiting_blocks}, {"large_groups", check_large_groups},
    {"few_keys", check_few_keys},     {"first_plans", check_first_plans},       {"many_columns", check_many_columns},
    {"parts", check_parts},           {"even_runs", check_even_runs},           {"ragged", check_ragged},
    {"float_rows", check_float_rows}, {"shared_keys", check_shared_keys},       {"cache", check_cache}};

int main(int count, char **words) {
    for (const auto &one : checks) {
        if (count != 2 || strcmp(words[1], one.name) != 0) continue;
        one.check();
        return 0;
    }
    return 2;
}
