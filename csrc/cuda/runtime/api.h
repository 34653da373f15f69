/* Every CUDA call of the host code goes through one table of function pointers, so that a test can make any of them
 * fail. A call site reads BW_CUDA(api, memory_allocate(&pointer, bytes)). */
#pragma once

#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Around declarations that C and C++ share. */
#ifdef __cplusplus
#define BW_C_BEGIN extern "C" {
#define BW_C_END }
#else
#define BW_C_BEGIN
#define BW_C_END
#endif

BW_C_BEGIN

#if CUDART_VERSION < 12000
#error "bwprof's CUDA backend needs CUDA 12.0 or newer"
#endif

#if CUDART_VERSION >= 12030
#define BW_CUDA_HAS_FUNCTION_NAMES
#define BW_CUDA_NEWER_CALLS(X) X(get_function_name, cudaFuncGetName, (const char **, const void *))
#else
#define BW_CUDA_NEWER_CALLS(X)
#endif

/* X(member, cudart's function, argument types) */
#define BW_CUDA_CALLS(X)                                                                                \
    X(get_device_count, cudaGetDeviceCount, (int *))                                                    \
    X(get_device, cudaGetDevice, (int *))                                                               \
    X(set_device, cudaSetDevice, (int))                                                                 \
    X(device_synchronize, cudaDeviceSynchronize, (void))                                                \
    X(driver_version, cudaDriverGetVersion, (int *))                                                    \
    X(runtime_version, cudaRuntimeGetVersion, (int *))                                                  \
    X(get_properties, cudaGetDeviceProperties, (struct cudaDeviceProp *, int))                          \
    X(get_attribute, cudaDeviceGetAttribute, (int *, enum cudaDeviceAttr, int))                         \
    X(memory_info, cudaMemGetInfo, (size_t *, size_t *))                                                \
    X(memory_allocate, cudaMalloc, (void **, size_t))                                                   \
    X(memory_free, cudaFree, (void *))                                                                  \
    X(host_allocate, cudaHostAlloc, (void **, size_t, unsigned))                                        \
    X(host_free, cudaFreeHost, (void *))                                                                \
    X(memory_set, cudaMemsetAsync, (void *, int, size_t, cudaStream_t))                                 \
    X(memory_copy, cudaMemcpyAsync, (void *, const void *, size_t, enum cudaMemcpyKind, cudaStream_t))  \
    X(stream_create, cudaStreamCreateWithFlags, (cudaStream_t *, unsigned))                             \
    X(stream_destroy, cudaStreamDestroy, (cudaStream_t))                                                \
    X(stream_synchronize, cudaStreamSynchronize, (cudaStream_t))                                        \
    X(stream_wait_event, cudaStreamWaitEvent, (cudaStream_t, cudaEvent_t, unsigned))                    \
    X(begin_capture, cudaStreamBeginCapture, (cudaStream_t, enum cudaStreamCaptureMode))                \
    X(end_capture, cudaStreamEndCapture, (cudaStream_t, cudaGraph_t *))                                 \
    X(exchange_capture_mode, cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode *))       \
    X(graph_instantiate, cudaGraphInstantiate, (cudaGraphExec_t *, cudaGraph_t, unsigned long long))    \
    X(graph_upload, cudaGraphUpload, (cudaGraphExec_t, cudaStream_t))                                   \
    X(graph_launch, cudaGraphLaunch, (cudaGraphExec_t, cudaStream_t))                                   \
    X(graph_nodes, cudaGraphGetNodes, (cudaGraph_t, cudaGraphNode_t *, size_t *))                       \
    X(graph_destroy, cudaGraphDestroy, (cudaGraph_t))                                                   \
    X(graph_exec_destroy, cudaGraphExecDestroy, (cudaGraphExec_t))                                      \
    X(event_create, cudaEventCreate, (cudaEvent_t *))                                                   \
    X(event_destroy, cudaEventDestroy, (cudaEvent_t))                                                   \
    X(event_record, cudaEventRecord, (cudaEvent_t, cudaStream_t))                                       \
    X(event_query, cudaEventQuery, (cudaEvent_t))                                                       \
    X(event_synchronize, cudaEventSynchronize, (cudaEvent_t))                                           \
    X(event_elapsed, cudaEventElapsedTime, (float *, cudaEvent_t, cudaEvent_t))                         \
    BW_CUDA_NEWER_CALLS(X)                                                                              \
    X(get_function_attributes, cudaFuncGetAttributes, (struct cudaFuncAttributes *, const void *))      \
    X(set_function_attribute, cudaFuncSetAttribute, (const void *, enum cudaFuncAttribute, int))        \
    X(occupancy, cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *, const void *, int, size_t))     \
    X(launch_kernel, cudaLaunchKernel, (const void *, dim3, dim3, void **, size_t, cudaStream_t))       \
    X(launch_with_attributes, cudaLaunchKernelExC, (const cudaLaunchConfig_t *, const void *, void **)) \
    X(last_error, cudaGetLastError, (void))

typedef struct bw_cuda_api {
#define BW_CUDA_MEMBER(member, function, arguments) cudaError_t(*member) arguments;
    BW_CUDA_CALLS(BW_CUDA_MEMBER)
#undef BW_CUDA_MEMBER
    int64_t calls_made; /* through this table so far: tells a test how many calls an operation takes */
    /* Fault injection: the call that finds the countdown at 1 is not made and reports `fault`. 0 = off. */
    int64_t fault_countdown;
    cudaError_t fault; /* never cudaSuccess */
} bw_cuda_api;

/* `stage` is "count" or "open": calls made before a test holds a handle can be made to fail too, by the environment
 * variable BWPROF_TEST_CUDA_FAULT=<stage>:<countdown>[:<error number>], read here and nowhere else. */
void bw_cuda_api_init(bw_cuda_api *api, const char *stage);

/* cudaSuccess: make the call. Anything else: report this instead. */
cudaError_t bw_cuda_take_injected_fault(bw_cuda_api *api);

/* A status from a CUDA error: expression, file:line, the driver's string; knows which errors are final. Takes back
 * the error that the runtime remembers, so that no later launch is blamed for it. */
bw_status bw_cuda_status(bw_cuda_api *api, cudaError_t error, const char *expression, const char *file, int line);

/* Whether the stream has passed an event. */
bw_status bw_cuda_event_passed(bw_cuda_api *api, cudaEvent_t event, bool *out);

/* Puts a function of the driver, where it is loaded, into the pointer that `out` points to; NULL: there is none. */
void bw_cuda_driver_function(const char *name, void *out);

/* The calling thread's CUcontext, which CUPTI wants and the runtime does not tell; the driver is loaded already. */
bw_status bw_cuda_context(void **out);

/* Whether anybody in the process has worked on a device; and leaving the thread without a current one, as it began. */
bool bw_cuda_is_in_use(int index);
bool bw_cuda_leave(void);

#define BW_CUDA(api, call) bw_cuda_status((api), BW_CUDA_ERROR(api, call), #call, __FILE__, __LINE__)
#define BW_CUDA_ERROR(api, call) (bw_cuda_take_injected_fault(api) != cudaSuccess ? (api)->fault : (api)->call)

/* For clean-up: a resource that cannot be given back must not stop the others from being given back. The call is made
 * even where a test has planned its failure: nobody looks at the result, and nothing leaks. */
#define BW_CUDA_IGNORE(api, call)                                  \
    do {                                                           \
        (void)bw_cuda_take_injected_fault(api);                    \
        if ((api)->call != cudaSuccess) (void)(api)->last_error(); \
    } while (0)

BW_C_END
