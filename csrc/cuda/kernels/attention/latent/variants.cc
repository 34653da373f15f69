// The entries of mla_decode's Hopper kernel for the table: refusals, plans, preparation with the search for the
// fastest.
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/latent/plan.h"
#include "cuda/kernels/attention/shape.h"
#include "cuda/launch/choose.cuh"
#include "cuda/libraries/plans.h"

namespace {

constexpr int64_t default_units = 132, most_places = 65535;
constexpr int most_cluster = 8;  // that every device of this generation has
constexpr int64_t part_bytes = bw_latent_dim * (int64_t)sizeof(float) + (int64_t)sizeof(float2);  // of a head

int64_t tiles_of(int64_t keys) {
    return bw_ceil_div(keys, bw_latent_tile_keys);
}

// What all entries have: tiles, or, where a block takes `each` of one entry, places for them.
int64_t tiles_in_all(const bw_dims *dims, int64_t each) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    if (!dims->list) return sizes.batch * (bw_ceil_div(tiles_of(sizes.kv_len), each) * each);
    int64_t sum = 0;
    for (int64_t b = 0; b < sizes.batch; b++) sum += bw_ceil_div(tiles_of(dims->list[b]), each) * each;
    return sum;
}

struct plan_list {
    bw_latent_plan plans[bw_latent_plans_most];
    int count;
};

void keep_plan(const bw_latent_plan &plan, plan_list *out) {
    for (int i = 0; i < out->count; i++) {
        const bw_latent_plan &other = out->plans[i];
        if (other.each == plan.each && other.aligned == plan.aligned && other.cluster == plan.cluster) return;
    }
    if (out->count < bw_latent_plans_most) out->plans[out->count++] = plan;
}

void add_plan(const bw_dims *dims, int64_t each, bool aligned, plan_list *out) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    const int64_t longest = tiles_of(sizes.kv_len);
    each = bw_max64(1, aligned ? bw_min64(each, longest) : each);
    if (aligned) each = bw_ceil_div(longest, bw_ceil_div(longest, each));  // evenly
    bw_latent_plan plan = {};
    plan.chunks = bw_ceil_div(sizes.heads, bw_latent_tile_heads);
    plan.each = each;
    plan.aligned = aligned;
    plan.ragged = dims->list != nullptr;
    plan.places = bw_ceil_div(tiles_in_all(dims, aligned ? each : 1), each);
    plan.cluster = 1;
    if (plan.places > most_places) return;
    if (!aligned) plan.slots = 2 * plan.places;
    if (!aligned || each == longest) return keep_plan(plan, out);
    const int64_t parts = bw_ceil_div(longest, each);
    while (!dims->list && plan.cluster < most_cluster && parts % (2 * plan.cluster) == 0) plan.cluster *= 2;
    // Clusters of 8 leave multiprocessors idle where they are many.
    for (int smallest = bw_max64(1, plan.cluster / 2); plan.cluster >= smallest; plan.cluster /= 2) {
        plan.slots = plan.cluster < parts ? plan.places / plan.cluster : 0;
        keep_plan(plan, out);
        if (plan.cluster == 1) return;
    }
}

// First what most cards should do: all multiprocessors busy to the end. Where entries are few and short, fewer parts
// take less time to be added up than their keys take longer.
plan_list list_plans(const bw_dims *dims, const bw_device_facts *facts) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    const int64_t units = facts && facts->units > 0 ? facts->units : default_units;
    const int64_t places = bw_max64(1, units / bw_ceil_div(sizes.heads, bw_latent_tile_heads));
    const int64_t tiles = tiles_in_all(dims, 1), longest = tiles_of(sizes.kv_len);
    plan_list out = {};
    if (sizes.batch > 1) add_plan(dims, bw_ceil_div(tiles, places), false, &out);
    for (int64_t some = places; some >= 4 && some >= sizes.batch / 2; some /= 2) {
        add_plan(dims, bw_ceil_div(tiles, some), true, &out);
    }
    add_plan(dims, longest, true, &out);
    return out;
}

uint64_t plan_key(const bw_dims *dims, const bw_precision *precision) {
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    uint64_t key = bw_plan_key_mix(bw_plan_key_mix(BW_PLAN_KEY, BW_MLA_ROPE_DIM), precision->id);
    for (int i = 0; i <= BW_MLA_ROPE_DIM; i++) key = bw_plan_key_mix(key, dims->value[i]);
    for (int64_t b = 0; dims->list && b < batch; b++) key = bw_plan_key_mix(key, dims->list[b]);
    return key;
}

bw_latent_plan plan_of(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const plan_list list = list_plans(dims, facts);
    const bw_plan_cache *cache = facts && facts->own ? facts->own->plans : nullptr;
    const int found = bw_plan_cache_find(cache, plan_key(dims, precision), list.count, false);
    return list.plans[found > 0 && found < list.count ? found : 0];
}

int64_t scratch_bytes(const bw_dims *dims, const bw_latent_plan &plan) {
    return plan.slots * dims->value[BW_DECODE_NUM_HEADS] * part_bytes;
}

bw_status choose(const bw_dims *dims, const bw_precision *precision, const bw_latent_plan &plan,
                 bw_cuda_launch_spec *out) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    bw_latent_work work = {};
    work.batch = (int)sizes.batch;
    work.heads = (int)sizes.heads;
    work.keys = (int)sizes.kv_len;
    work.cluster = plan.cluster;
    work.each = (int)plan.each;
    work.entry_tiles = (int)tiles_of(sizes.kv_len);
    work.aligned = plan.aligned;
    work.scale = (float)(1.4426950408889634 * sizes.scale);
    BW_TRY(bw_latent_choose_main(precision, plan, work, out));
    return plan.slots > 0 ? bw_latent_choose_combine(precision, plan, work, out) : BW_OK;
}

bw_status first_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                       bw_cuda_launch_spec *out) {
    return choose(dims, precision, plan_of(dims, precision, facts), out);
}

bw_status choose_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int number,
                      bw_cuda_launch_spec *out) {
    return choose(dims, precision, list_plans(dims, facts).plans[number], out);
}

}  // namespace

const char *bw_latent_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    if (!facts->own || facts->own->major != 9) return "wgmma and TMA need compute capability 9.0";
    if (sizes.value_dim != bw_latent_dim || sizes.key_dim != bw_latent_key_dim) {
        return "latent_dim must be 512, and rope_dim 64";
    }
    if (sizes.batch > bw_latent_most_batch) return "more than 65536 sequences";
    const bw_latent_plan plan = plan_of(dims, precision, facts);
    const int64_t tiles = tiles_in_all(dims, plan.aligned ? plan.each : 1);
    return tiles > INT32_MAX / 2 || plan.slots * sizes.heads > INT32_MAX ? "2^36 keys and more in all" : nullptr;
}

int64_t bw_latent_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return scratch_bytes(dims, plan_of(dims, precision, facts));
}

int64_t bw_latent_largest_scratch_bytes(const bw_dims *dims, const bw_precision *, const bw_device_facts *facts) {
    const plan_list list = list_plans(dims, facts);
    int64_t most = 0;
    for (int i = 0; i < list.count; i++) most = bw_max64(most, scratch_bytes(dims, list.plans[i]));
    return most;
}

// Each head's parts are stored once and read once. An entry has as many as blocks that its tiles are of.
bw_status bw_latent_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                               bw_cost *cost) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    if (sizes.batch > bw_latent_most_batch) return BW_OK;
    const bw_latent_plan plan = plan_of(dims, precision, facts);
    int64_t parts = 0, first = 0;
    for (int64_t b = 0; plan.slots > 0 && b < sizes.batch; b++) {
        const int64_t tiles = tiles_of(dims->list ? dims->list[b] : sizes.kv_len);
        const int64_t extent = plan.aligned ? bw_ceil_div(tiles, plan.each) * plan.each : tiles;
        const int64_t each = plan.each * plan.cluster, count = (first + extent - 1) / each - first / each + 1;
        parts += count > 1 ? count : 0;
        first += extent;
    }
    const bw_checked_int bytes = bw_mul3(parts, sizes.heads, part_bytes);
    return bw_attention_add_traffic(cost, bytes.overflow ? INT64_MAX : bytes.value);
}

bw_status bw_latent_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    const bw_dims *dims = sets[0].dims;
    return bw_cuda_prepare_fastest(sets, set_count, plan_key(dims, sets[0].precision), choose_plan,
                                   list_plans(dims, &sets[0].device->facts).count, state);
}

bw_status bw_latent_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, first_choose, out);
}
