/* What backend.c collects in the backend's vtable, by the folder that defines it. */
#pragma once

#include "cuda/runtime/device.h"

BW_C_BEGIN

/* devices */
bw_status bw_cuda_device_count(int *count, char *reason, size_t reason_size);
bw_status bw_cuda_device_name(int index, char *name, size_t name_size);
bw_status bw_cuda_device_open(int index, bw_device **out);
void bw_cuda_device_close(bw_device *device);
const bw_device_facts *bw_cuda_device_facts(const bw_device *device);
int bw_cuda_more_facts(const bw_device *device, bw_fact out[BW_FACTS_MAX]);
extern const bw_memory_calls bw_cuda_memory_calls;
extern const bw_context_calls bw_cuda_context_calls;
extern const bw_fault_calls bw_cuda_fault_calls;

/* libraries */
void bw_cuda_libraries(bw_device *device, bw_library_info out[BW_LIBRARIES_MAX], int *count);
extern const bw_sensor_calls bw_cuda_sensor_calls;

/* timing; a spec's `timer` is an index into bw_cuda_timers */
extern const char *const bw_cuda_timers[], *const bw_cuda_call_timers[];
extern const bw_plan_calls bw_cuda_plan_calls;
extern const bw_mark_calls bw_cuda_mark_calls;

/* profiling */
extern const char *const bw_cuda_metric_groups[];
bw_status bw_cuda_counters(bw_device *device, const bw_plan_spec *spec, bw_counters *out);
bw_status bw_cuda_metrics(bw_device *device, const bw_plan_spec *spec, unsigned groups, bw_metrics *out);

BW_C_END
