/* The hardware counter calls of the backend's vtable. */
#pragma once

#include "cuda/runtime/device.h"

BW_C_BEGIN

/* dram.cc: bytes of launches. */
bw_status bw_cuda_counters(bw_device *device, const bw_plan_spec *spec, bw_counters *out);

/* metrics.cc: metrics of one launch, and the names of their groups. */
extern const char *const bw_cuda_metric_groups[];
bw_status bw_cuda_metrics(bw_device *device, const bw_plan_spec *spec, unsigned groups, bw_metrics *out);

BW_C_END
