/* The hardware counter calls of the backend's vtable. */
#ifndef BW_CUDA_PROFILING_H
#define BW_CUDA_PROFILING_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dram.cc: bytes of launches. */
bw_status bw_cuda_counters(bw_device *device, const bw_plan_spec *spec, bw_counters *out);

/* metrics.cc: metrics of one launch, and the names of their groups. */
extern const char *const bw_cuda_metric_groups[];
bw_status bw_cuda_metrics(bw_device *device, const bw_plan_spec *spec, unsigned groups, bw_metrics *out);

#ifdef __cplusplus
}
#endif
#endif
