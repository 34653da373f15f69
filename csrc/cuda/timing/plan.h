/* The vtable's plans: launches of a variant, or calls of a caller's function, timed again and again. */
#ifndef BW_CUDA_PLAN_H
#define BW_CUDA_PLAN_H

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const bw_cuda_timers[]; /* the vtable's list */

bw_work bw_cuda_plan_empty(bw_device *device);
bw_status bw_cuda_plan_create(bw_device *device, const bw_plan_spec *spec, bw_plan **out);
bw_status bw_cuda_plan_run(bw_plan *plan, double *ns);
double bw_cuda_plan_host_ns(const bw_plan *plan);
void bw_cuda_plan_free(bw_plan *plan);
bw_kernel_times bw_cuda_plan_kernels(const bw_plan *plan);
bool bw_cuda_plan_late(const bw_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
