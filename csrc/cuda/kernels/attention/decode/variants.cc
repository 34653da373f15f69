// Splitkv's entries for the table: refusals, scratch, preparation with the search for the fastest plan.
#include <stdlib.h>

#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/decode/plan.h"
#include "cuda/launch/choose.cuh"
#include "cuda/libraries/plans.h"

namespace {

bw_decode_exchange make_exchange(const bw_decode_plan &plan) {
    bw_decode_exchange exchange = {};
    exchange.splits = (int)plan.splits;
    exchange.row_records = plan.row_records;
    exchange.record_magic = (unsigned)bw_ceil_div(1 << 20, plan.row_records);
    exchange.combiners = plan.combiners;
    exchange.combiner_items = plan.combiner_items;
    return exchange;
}

bw_status choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                 bw_cuda_launch_spec *out) {
    if (bw_dtype_get(dtype)->block_bytes == 1) {
        return bw_decode_narrow_choose(dtype, shape, plan, make_exchange(plan), out);
    }
    if (plan.direct) {
        return bw_decode_oneshot_takes(dtype, shape, plan)
                   ? bw_decode_oneshot_choose(dtype, shape, plan, make_exchange(plan), out)
                   : bw_decode_direct_choose(dtype, shape, plan, make_exchange(plan), out);
    }
    bw_decode_work work = {};
    work.by_chunks = bw_divider_make(plan.chunks);
    work.by_kv_heads = bw_divider_make(shape.kv_heads);
    while (1 << work.slot_bits < plan.head_slots) work.slot_bits++;
    work.shares = plan.warps / plan.head_slots;
    work.block_heads = plan.block_heads;
    work.chunks = (int)plan.chunks;
    work.exchange = make_exchange(plan);
    work.split_keys = plan.split_keys;
    work.key_elems = shape.kv_heads * shape.head_dim;
    work.batch_elems = shape.keys * work.key_elems;
    if (plan.split) return bw_decode_split_fp32_choose(shape, plan, work, out);
    if (dtype == BW_FP32) return bw_decode_fp32_choose(shape, plan, work, out);
    if (plan.cluster) return bw_decode_wide_cluster_choose(dtype, shape, plan, work, out);
    return dtype == BW_FP16 ? bw_decode_fp16_choose(shape, plan, work, out)
                            : bw_decode_bf16_choose(shape, plan, work, out);
}

bw_status splitkv_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                         bw_cuda_launch_spec *out) {
    return choose(precision->cache, bw_decode_shape(dims, precision->cache),
                  bw_decode_plan_make(dims, precision->cache, facts), out);
}

// Blocks that wait for others hang where fewer run at once than the plan counts on. Where all blocks can run at once,
// they begin together, so that they wait for none that another launch keeps from running.
bw_status check_residents(bw_device *device, const bw_decode_plan &plan, bw_cuda_launch_spec *spec) {
    bw_cuda_kernel *kernel = &spec->kernel[0];
    const int units = device->facts.units;
    int resident = 0;
    if (plan.waiting == 0) return BW_OK;
    BW_TRY(bw_cuda_resident_blocks(device, kernel, &resident));
    const int64_t blocks = (int64_t)kernel->grid.x * kernel->grid.y * kernel->grid.z;
    kernel->cooperative = blocks <= (int64_t)resident * units;
    if (bw_decode_plan_holds(plan, resident, units)) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "splitkv has %lld blocks that wait for others, and this device runs %d on each of its %d "
                   "multiprocessors at once",
                   (long long)plan.waiting, resident, units);
}

// Tickets start at 0 and records empty; every launch leaves them so. Parts stay as they are.
bw_status fill_scratch(const bw_launch &set, const bw_decode_plan &plan, const bw_decode_part *parts) {
    bw_device *device = set.device;
    const size_t record_bytes = (size_t)(plan.value_bytes + plan.sum_bytes);
    char *scratch = (char *)set.scratch;
    if (record_bytes > 0) {
        BW_TRY(BW_CUDA(&device->api, memory_set(scratch, 0, (size_t)plan.ticket_bytes, device->stream)));
        BW_TRY(BW_CUDA(&device->api, memory_set(scratch + plan.ticket_bytes, 0xff, record_bytes, device->stream)));
    }
    if (plan.parts == 0) return BW_OK;
    return BW_CUDA(&device->api, memory_copy(scratch + plan.parts_at, parts, plan.parts * sizeof *parts,
                                             cudaMemcpyHostToDevice, device->stream));
}

// The scratch of `count` sets from set `first` on, around the end.
bw_status prepare_scratch(const bw_launch *sets, int64_t set_count, int64_t first, int64_t count,
                          const bw_decode_plan &plan) {
    bw_decode_part *parts = nullptr;
    if (plan.scratch_bytes == 0) return BW_OK;
    if (plan.parts > 0) {
        parts = (bw_decode_part *)malloc((size_t)plan.parts * sizeof *parts);
        if (!parts) {
            return bw_fail(BW_CODE_MEMORY, "out of host memory for the parts of a batch (%lld)", (long long)plan.parts);
        }
        bw_decode_plan_parts(plan, sets[0].dims, parts);
    }
    bw_status status = BW_OK;
    for (int64_t i = 0; i < count && !status; i++) status = fill_scratch(sets[(first + i) % set_count], plan, parts);
    bw_device *device = sets[0].device;
    const bw_status copied = BW_CUDA(&device->api, stream_synchronize(device->stream));
    free(parts);  // no copy is under way
    return bw_status_first(status, copied);
}

bw_decode_plan numbered_plan(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts, int number) {
    bw_decode_plan plans[bw_decode_plans_most];
    bw_decode_plan_list(dims, dtype, facts, plans);
    return plans[number];
}

bw_status choose_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int number,
                      bw_cuda_launch_spec *out) {
    const bw_dtype dtype = precision->cache;
    return choose(dtype, bw_decode_shape(dims, dtype), numbered_plan(dims, dtype, facts, number), out);
}

bw_status ready_plan(const bw_launch *sets, int64_t set_count, int number, int64_t first, int64_t launches,
                     bw_cuda_launch_spec *spec) {
    bw_device *device = sets[0].device;
    const bw_decode_plan plan = numbered_plan(sets[0].dims, sets[0].precision->cache, &device->facts, number);
    BW_TRY(check_residents(device, plan, spec));
    return prepare_scratch(sets, set_count, first % set_count, bw_min64(launches, set_count), plan);
}

}  // namespace

const char *bw_splitkv_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const bw_decode_plan plan = bw_decode_plan_make(dims, precision->cache, facts);
    if (bw_dtype_get(precision->cache)->block_bytes == 1 && !plan.direct) {
        return "caches of 8 bits must have rows of 16 bytes or a multiple, at most 255 query heads per K/V head and "
               "65535 entries";
    }
    return bw_cuda_grid_fits(plan.columns) ? nullptr : "more K/V heads than a grid holds (2^31 - 1)";
}

int64_t bw_splitkv_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return bw_decode_plan_make(dims, precision->cache, facts).scratch_bytes;
}

int64_t bw_splitkv_largest_scratch_bytes(const bw_dims *dims, const bw_precision *precision,
                                         const bw_device_facts *facts) {
    bw_decode_plan plans[bw_decode_plans_most];
    const int count = bw_decode_plan_list(dims, precision->cache, facts, plans);
    int64_t most = 0;
    for (int i = 0; i < count; i++) most = bw_max64(most, plans[i].scratch_bytes);
    return most;
}

// Per split and head the records of its output, stored once and read once, and the parts, read. Emptying records is not
// counted: it overwrites lines that the L2 still holds.
bw_status bw_splitkv_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                bw_cost *cost) {
    const bw_decode_plan plan = bw_decode_plan_make(dims, precision->cache, facts);
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    bw_checked_int parts = bw_num(0);
    if (plan.parts > 0) {
        parts = bw_num(plan.divided);
    } else if (plan.splits > 1 && !plan.cluster) {
        parts = bw_mul(bw_num(batch), bw_num(plan.splits));
    }
    const bw_checked_int bytes =
        bw_mul(parts, bw_mul3(bw_decode_record_bytes, dims->value[BW_DECODE_NUM_HEADS], plan.row_records));
    const int64_t stored = bytes.overflow ? INT64_MAX : bytes.value;
    return bw_attention_add_traffic(cost, stored, plan.parts * (int64_t)sizeof(bw_decode_part));
}

bw_status bw_splitkv_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    const bw_dims *dims = sets[0].dims;
    const bw_dtype dtype = sets[0].precision->cache;
    bw_decode_plan plans[bw_decode_plans_most];
    const int count = bw_decode_plan_list(dims, dtype, &sets[0].device->facts, plans);
    return bw_cuda_prepare_fastest_ready(sets, set_count, bw_decode_plan_key(dims, dtype), choose_plan, ready_plan,
                                         count, state);
}

bw_status bw_splitkv_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, splitkv_choose, out);
}
