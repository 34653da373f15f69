// attention on a GPU. The ladders:
//   attention_prefill  unfused   scores and weights in memory: three kernels (unfused.cu)
//                      flash     online softmax, nothing in memory but the operands (prefill/)
//   attention_decode   simple    one block per K/V head: all query heads of its group share what it reads
//                      splitkv   the keys divided among as many blocks as keep every multiprocessor reading; the last
//                                blocks of a K/V head to start add the parts up (decode/direct.cu up to 8
//                                query heads per K/V head, the kernels of `simple` for the rest)
#include "cuda/kernels/attention/shape.h"

#include "cuda/kernels/common/element.cuh"
#include "cuda/runtime/launch.cuh"

namespace {

const unsigned precisions = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16);

// -- prefill --

int64_t unfused_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    const bw_checked elems = bw_mul4(shape.batch, shape.heads, shape.queries, shape.keys);
    const bw_checked bytes = bw_mul(elems, bw_num(bw_dtype_get(precision->result)->block_bytes));
    return bytes.overflow ? INT64_MAX : bytes.value;
}

bw_status add_traffic(bw_cost *cost, int64_t bytes) {
    const bw_checked read = bw_add(bw_num(cost->algorithmic_bytes_read), bw_num(bytes));
    const bw_checked written = bw_add(bw_num(cost->algorithmic_bytes_written), bw_num(bytes));
    if (read.overflow || written.overflow) {
        return bw_fail(BW_CODE_INVALID, "the variant's intermediates take more than 2^63 - 1 bytes");
    }
    cost->algorithmic_bytes_read = read.value;
    cost->algorithmic_bytes_written = written.value;
    return BW_OK;
}

// S and P are each written once and read once.
bw_status unfused_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                             bw_cost *cost) {
    const int64_t scores = unfused_scratch_bytes(dims, precision, facts);
    BW_TRY(add_traffic(cost, scores));
    return add_traffic(cost, scores);
}

// The smallest tile is 32 queries.
const char *flash_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    const bw_checked blocks = bw_mul3(shape.batch, shape.heads, bw_ceil_div(shape.queries, 32));
    return blocks.overflow || !bw_cuda_grid_fits(blocks.value) ? "more tiles of queries than a grid holds (2^31 - 1)"
                                                               : nullptr;
}

bw_status flash_launch(const bw_launch *launch) {
    const bw_attention_shape shape = bw_prefill_shape(launch->dims, launch->precision->cache);
    return launch->precision->cache == BW_FP32 ? bw_flash_launch(launch, shape) : bw_flash_tensor_launch(launch, shape);
}

const bw_variant prefill_rows[] = {
    {.name = "unfused",
     .text = "scores and weights stored in memory: three kernels",
     .precisions = precisions,
     .rounds_once = false,
     .refuses = bw_unfused_refuses,
     .prefers = nullptr,
     .scratch_bytes = unfused_scratch_bytes,
     .workspace_bytes = nullptr,
     .extra_cost = unfused_extra_cost,
     .prepare = nullptr,
     .release = nullptr,
     .launch = bw_unfused_launch},
    {.name = "flash",
     .text = "online softmax over tiles of keys; tensor cores in 16-bit precisions",
     .precisions = precisions,
     .rounds_once = false,
     .refuses = flash_refuses,
     .prefers = nullptr,
     .scratch_bytes = nullptr,
     .workspace_bytes = nullptr,
     .extra_cost = nullptr,
     .prepare = nullptr,
     .release = nullptr,
     .launch = flash_launch},
};

// -- decode --

const char *decode_refuses_split(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts, bool split) {
    const bw_decode_plan plan = bw_decode_plan_make(dims, dtype, facts, split);
    return bw_cuda_grid_fits(plan.columns) ? nullptr : "more K/V heads than a grid holds (2^31 - 1)";
}

const char *simple_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return decode_refuses_split(dims, precision->cache, facts, false);
}

const char *splitkv_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return decode_refuses_split(dims, precision->cache, facts, true);
}

bw_decode_exchange decode_exchange(const bw_launch *launch, const bw_decode_plan &plan) {
    char *scratch = (char *)launch->scratch;
    bw_decode_exchange exchange = {};
    exchange.tickets = (unsigned *)scratch;
    exchange.values = (float4 *)(scratch + plan.ticket_bytes);
    exchange.sums = (float2 *)(scratch + plan.ticket_bytes + plan.value_bytes);
    exchange.splits = (int)plan.splits;
    exchange.row_records = plan.row_records;
    exchange.record_magic = (unsigned)bw_ceil_div(1 << 20, plan.row_records);
    exchange.combiners = plan.combiners;
    exchange.combiner_items = plan.combiner_items;
    return exchange;
}

bw_status start_plan(const bw_launch *launch, const bw_decode_plan &plan) {
    const bw_attention_shape shape = bw_decode_shape(launch->dims, launch->precision->cache);
    const bw_decode_exchange exchange = decode_exchange(launch, plan);
    if (plan.direct) return bw_decode_direct_launch(launch, shape, plan, exchange);
    bw_decode_work work = {};
    work.kv_lens = (const int *)launch->operand[BW_ATTENTION_KV_LENS];
    work.by_chunks = bw_divider_make(plan.chunks);
    work.by_kv_heads = bw_divider_make(shape.kv_heads);
    work.by_split_keys = bw_divider_make(plan.split_keys);
    while (1 << work.slot_bits < plan.head_slots) work.slot_bits++;
    work.shares = plan.warps / plan.head_slots;
    work.block_heads = plan.block_heads;
    work.chunks = (int)plan.chunks;
    work.exchange = exchange;
    work.split_keys = plan.split_keys;
    work.key_elems = shape.kv_heads * shape.head_dim;
    work.batch_elems = shape.keys * work.key_elems;
    if (launch->precision->cache == BW_FP32) return bw_decode_float_launch(launch, shape, plan, work);
    return launch->precision->cache == BW_FP16 ? bw_decode_fp16_launch(launch, shape, plan, work)
                                               : bw_decode_bf16_launch(launch, shape, plan, work);
}

bw_status decode_launch(const bw_launch *launch, bool split) {
    return start_plan(launch,
                      bw_decode_plan_make(launch->dims, launch->precision->cache, &launch->device->facts, split));
}

bw_status simple_launch(const bw_launch *launch) {
    return decode_launch(launch, false);
}

bw_status splitkv_launch(const bw_launch *launch) {
    return decode_launch(launch, true);
}

int64_t splitkv_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    return bw_decode_plan_make(dims, precision->cache, facts, true).scratch_bytes;
}

// Per split and head the records of its output, stored once and read once. That they are emptied after that is not
// counted: it overwrites lines that the L2 still holds. An entry that one split covers stores none.
bw_status splitkv_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                             bw_cost *cost) {
    const bw_decode_plan plan = bw_decode_plan_make(dims, precision->cache, facts, true);
    const int64_t batch = dims->value[BW_DECODE_BATCH];
    bw_checked parts = bw_num(0);
    if (plan.splits > 1 && !dims->list) parts = bw_mul(bw_num(batch), bw_num(plan.splits));
    for (int64_t b = 0; plan.splits > 1 && dims->list && b < batch; b++) {
        const int64_t splits = bw_ceil_div(dims->list[b], plan.split_keys);
        if (splits > 1) parts = bw_add(parts, bw_num(splits));
    }
    const bw_checked bytes =
        bw_mul(parts, bw_mul3(bw_decode_record_bytes, dims->value[BW_DECODE_NUM_HEADS], plan.row_records));
    return add_traffic(cost, bytes.overflow ? INT64_MAX : bytes.value);
}

// Blocks that wait for others hang where fewer run at once than the plan counts on.
bw_status check_residents(const bw_launch *launch, bw_decode_plan plan) {
    const bw_device_facts &facts = launch->device->facts;
    int resident = 0;
    if (plan.combiners <= 1) return BW_OK;
    plan.resident_found = &resident;
    BW_TRY(start_plan(launch, plan));
    if (bw_decode_plan_holds(plan, resident, facts.units)) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "splitkv has %lld blocks that wait for others, and this device runs %d on each of its %d "
                   "multiprocessors at once",
                   (long long)((plan.combiners - 1) * plan.columns), resident, facts.units);
}

// Tickets start at 0 and records empty; every launch leaves them so.
bw_status splitkv_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    bw_device *device = sets[0].device;
    const bw_decode_plan plan = bw_decode_plan_make(sets[0].dims, sets[0].precision->cache, &device->facts, true);
    *state = nullptr;
    BW_TRY(check_residents(&sets[0], plan));
    if (plan.scratch_bytes == 0) return BW_OK;
    for (int64_t i = 0; i < set_count; i++) {
        char *records = (char *)sets[i].scratch + plan.ticket_bytes;
        const size_t record_bytes = (size_t)(plan.scratch_bytes - plan.ticket_bytes);
        BW_TRY(BW_CUDA(&device->api, memory_set(sets[i].scratch, 0, (size_t)plan.ticket_bytes, device->stream)));
        BW_TRY(BW_CUDA(&device->api, memory_set(records, 0xff, record_bytes, device->stream)));
    }
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

const bw_variant decode_rows[] = {
    {.name = "simple",
     .text = "one block per K/V head, shared by its query heads",
     .precisions = precisions,
     .rounds_once = false,
     .refuses = simple_refuses,
     .prefers = nullptr,
     .scratch_bytes = nullptr,
     .workspace_bytes = nullptr,
     .extra_cost = nullptr,
     .prepare = nullptr,
     .release = nullptr,
     .launch = simple_launch},
    {.name = "splitkv",
     .text = "keys divided among blocks; the last to start add the parts up",
     .precisions = precisions,
     .rounds_once = false,
     .refuses = splitkv_refuses,
     .prefers = nullptr,
     .scratch_bytes = splitkv_scratch_bytes,
     .workspace_bytes = nullptr,
     .extra_cost = splitkv_extra_cost,
     .prepare = splitkv_prepare,
     .release = nullptr,
     .launch = splitkv_launch},
};

}  // namespace

const bw_variant_table bw_cuda_attention_prefill = {prefill_rows, sizeof prefill_rows / sizeof prefill_rows[0]};
const bw_variant_table bw_cuda_attention_decode = {decode_rows, sizeof decode_rows / sizeof decode_rows[0]};
