/* Device calls of this folder, for the backend's vtable. */
#pragma once

#include "backend/backend.h"

/* Of bw_device_calls. */
bw_status bw_cuda_device_count(int *count, char *reason, size_t reason_size);
bw_status bw_cuda_device_name(int index, char *name, size_t name_size);
bw_status bw_cuda_device_open(int index, bw_device **out);
void bw_cuda_device_close(bw_device *device);
const bw_device_facts *bw_cuda_device_facts(const bw_device *device);
int bw_cuda_more_facts(const bw_device *device, bw_fact out[BW_FACTS_MAX]);

/* Of driver_facts.c, for opening a device. */
bw_status bw_cuda_facts_read(bw_device *device);
void bw_cuda_version_text(int version, char *out, size_t out_size); /* 12040: "12.4" */

extern const bw_memory_calls bw_cuda_memory_calls;
extern const bw_context_calls bw_cuda_context_calls;
extern const bw_fault_calls bw_cuda_fault_calls;
