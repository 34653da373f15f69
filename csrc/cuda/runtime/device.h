/* The CUDA backend's device handle. */
#ifndef BW_CUDA_DEVICE_H
#define BW_CUDA_DEVICE_H

#include "backend/backend.h"
#include "cuda/libraries/nvml.h"
#include "cuda/runtime/api.h"
#include "cuda/runtime/facts.h"
#include "ops/list.h"

#ifdef __cplusplus
extern "C" {
#endif

struct bw_device {
    bw_cuda_api api;
    bw_device_facts facts; /* facts.own is own_facts */
    bw_own_facts own_facts;
    int index;
    cudaStream_t stream;    /* the one stream that everything is enqueued on; a capture runs on it too */
    void *cublaslt;         /* csrc/cuda/kernels/gemm/cublaslt_search.c's library handle, opened on first use; NULL until then */
    bw_nvml *nvml;          /* likewise */
    bw_status nvml_failure; /* why there is none; NULL until it was tried */
    struct bw_cupti *cupti; /* likewise csrc/cuda/libraries/cupti.c's */
    struct bw_cuda_counter_state *counters; /* csrc/cuda/profiling/dram.cc's */
};

/* The operations' kernel tables, one definition each in the family's file. */
#define BW_CUDA_TABLE(name, cpu, cuda) extern const bw_variant_table bw_cuda_##name;
BW_OPERATIONS(BW_CUDA_TABLE)
#undef BW_CUDA_TABLE

/* Makes the handle's device the calling thread's current one: CUDA keeps that per thread. */
bw_status bw_cuda_enter(bw_device *device);

/* Closes what csrc/cuda/kernels/gemm/cublaslt_search.c keeps in the handle; NULL is fine. */
void bw_cublaslt_close(bw_device *device);
/* Path and version of the library, which is opened for that if it was not; BW_CODE_UNAVAILABLE where there is none. */
bw_status bw_cublaslt_describe(bw_device *device, bw_library_info *out);

/* libraries/describe.c: the vtable's function. */
void bw_cuda_libraries(bw_device *device, bw_library_info out[BW_LIBRARIES_MAX], int *count);

/* libraries/conditions.c: the vtable's functions, and what they keep in the handle. */
bw_status bw_cuda_conditions(bw_device *device, bool with_energy, bw_conditions *out);
void bw_cuda_management(bw_device *device, bw_management *out);
void bw_cuda_conditions_close(bw_device *device);

/* profiling/dram.cc: the vtable's counters; rest takes the profiler down, close forgets as well why there is none.
 * While it is up every kernel of the process starts 0.18 us later (H200, driver 580): quiet, for whoever times, takes
 * it down whichever handle of the device has it up, and is BW_CODE_BUSY while that counts. */
bw_status bw_cuda_counters(bw_device *device, const bw_plan_spec *spec, bw_counters *out);
void bw_cuda_counters_rest(bw_device *device);
bw_status bw_cuda_counters_quiet(bw_device *device);
void bw_cuda_counters_close(bw_device *device);

/* profiling/metrics.cc: the vtable's metrics, and the names of their groups. */
extern const char *const bw_cuda_metric_groups[];
bw_status bw_cuda_metrics(bw_device *device, const bw_plan_spec *spec, unsigned groups, bw_metrics *out);

#ifdef __cplusplus
}
#endif
#endif
