/* The CUDA backend's vtable. Everything is enqueued on the handle's one stream. */
#include "backend/backend.h"

#include "cuda/runtime/attachments.h"
#include "cuda/runtime/calls.h"
#include "cuda/runtime/nvtx.h"
#include "ops/list.h"

/* One definition each, in the family's table.c. */
#define BW_CUDA_TABLE(name, cpu, cuda) extern const bw_variant_table bw_cuda_##name;
BW_OPERATIONS(BW_CUDA_TABLE)
#undef BW_CUDA_TABLE

static const bw_variant_table *const variant_tables[] = {
#define BW_CUDA_TABLE(name, cpu, cuda) BW_IF_##cuda(&bw_cuda_##name, &bw_no_variants),
    BW_OPERATIONS(BW_CUDA_TABLE)
#undef BW_CUDA_TABLE
};

static const bw_variant_table *variants(const bw_device *device, int op_index) {
    (void)device;
    return variant_tables[op_index];
}

static const bw_device_calls device_calls = {
    .count = bw_cuda_device_count,
    .name = bw_cuda_device_name,
    .open = bw_cuda_device_open,
    .close = bw_cuda_device_close,
    .facts = bw_cuda_device_facts,
    .more_facts = bw_cuda_more_facts,
    .synchronize = bw_cuda_synchronize,
    .variants = variants,
    .libraries = bw_cuda_libraries,
};

static const bw_counter_calls counter_calls = {
    .count = bw_cuda_counters,
    .metrics = bw_cuda_metrics,
    .release_profilers = bw_cuda_release_profilers,
    .groups = bw_cuda_metric_groups,
};

const bw_backend bw_cuda_backend = {
    .name = "cuda",
    .text = "NVIDIA GPUs",
    .built = true,
    .timers = bw_cuda_timers,
    .call_timers = bw_cuda_call_timers,
    /* The clock is up after the first point. */
    .budgets = {.largest_stream_bytes = (int64_t)4 << 30,
                .cold_streams_s = 1.7,
                .hot_streams_s = 0.9,
                .cold_point_s = 0.004,
                .hot_point_s = 0.004,
                .guessed_gb_s = 1000.0},
    .devices = &device_calls,
    .memory = &bw_cuda_memory_calls,
    .plans = &bw_cuda_plan_calls,
    .marks = &bw_cuda_mark_calls,
    .sensors = &bw_cuda_sensor_calls,
    .counters = &counter_calls,
    .context = &bw_cuda_context_calls,
    .faults = &bw_cuda_fault_calls,
    .annotations = &bw_cuda_annotation_calls,
};
