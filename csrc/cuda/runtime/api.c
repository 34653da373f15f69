/* Fills the table of CUDA calls, and turns CUDA errors into statuses. */
#include "cuda/runtime/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Errors by what a caller can do about them. Those of no list leave the device usable (BW_CODE_DEVICE). */
static const cudaError_t out_of_memory[] = {cudaErrorMemoryAllocation};
static const cudaError_t unavailable[] = {
    cudaErrorInitializationError, cudaErrorStubLibrary, cudaErrorInsufficientDriver, cudaErrorCallRequiresNewerDriver,
    cudaErrorDevicesUnavailable, cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorDeviceNotLicensed,
    cudaErrorOperatingSystem, cudaErrorSystemNotReady, cudaErrorSystemDriverMismatch,
    cudaErrorCompatNotSupportedOnDevice, cudaErrorMpsConnectionFailed, cudaErrorMpsRpcFailure,
    cudaErrorMpsServerNotReady, cudaErrorMpsMaxClientsReached, cudaErrorMpsMaxConnectionsReached,
    /* What was to be captured in a graph cannot be. */
    cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated, cudaErrorStreamCaptureMerge,
    cudaErrorStreamCaptureUnmatched, cudaErrorStreamCaptureUnjoined, cudaErrorStreamCaptureIsolation,
    cudaErrorStreamCaptureImplicit, cudaErrorCapturedEvent, cudaErrorStreamCaptureWrongThread};
static const cudaError_t unsupported[] = {cudaErrorNoKernelImageForDevice, cudaErrorUnsupportedPtxVersion,
                                          cudaErrorInvalidPtx, cudaErrorJitCompilerNotFound, cudaErrorNotSupported};
static const cudaError_t device_lost[] = {
    cudaErrorCudartUnloading, cudaErrorDeviceUninitialized, cudaErrorContextIsDestroyed, cudaErrorECCUncorrectable,
    cudaErrorNvlinkUncorrectable, cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorAssert,
    cudaErrorHardwareStackError, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace,
    cudaErrorInvalidPc, cudaErrorLaunchFailure, cudaErrorMpsClientTerminated, cudaErrorExternalDevice,
    /* cudaErrorContained and cudaErrorTensorMemoryLeak, which early CUDA 12 does not name */
    (cudaError_t)226, (cudaError_t)721};

#define ERRORS(code, list) \
    { code, list, sizeof(list) / sizeof(list)[0] }
static const struct {
    bw_code code;
    const cudaError_t *errors;
    size_t count;
} error_codes[] = {ERRORS(BW_CODE_MEMORY, out_of_memory), ERRORS(BW_CODE_UNAVAILABLE, unavailable),
                   ERRORS(BW_CODE_UNSUPPORTED, unsupported), ERRORS(BW_CODE_DEVICE_LOST, device_lost)};

void bw_cuda_api_init(bw_cuda_api *api, const char *stage) {
    memset(api, 0, sizeof *api);
#define BW_CUDA_ASSIGN(member, function, arguments) api->member = function;
    BW_CUDA_CALLS(BW_CUDA_ASSIGN)
#undef BW_CUDA_ASSIGN
    api->fault = cudaErrorUnknown;
    const char *planned = getenv("BWPROF_TEST_CUDA_FAULT");
    char planned_stage[16];
    long long countdown;
    int fault = 0;
    if (!planned || sscanf(planned, "%15[a-z]:%lld:%d", planned_stage, &countdown, &fault) < 2) return;
    if (strcmp(planned_stage, stage) != 0) return;
    api->fault_countdown = countdown;
    if (fault > 0) api->fault = (cudaError_t)fault;
}

cudaError_t bw_cuda_take_injected_fault(bw_cuda_api *api) {
    __atomic_fetch_add(&api->calls_made, 1, __ATOMIC_RELAXED); /* threads of an engine mark ranges beside each other */
    if (api->fault_countdown <= 0) return cudaSuccess;
    return --api->fault_countdown == 0 ? api->fault : cudaSuccess;
}

static bw_code code_of(cudaError_t error) {
    for (size_t i = 0; i < sizeof error_codes / sizeof error_codes[0]; i++) {
        for (size_t j = 0; j < error_codes[i].count; j++) {
            if (error_codes[i].errors[j] == error) return error_codes[i].code;
        }
    }
    return BW_CODE_DEVICE;
}

/* What to do about it, where the driver's string leaves that open. */
static const char *advice_for(cudaError_t error) {
    switch (error) {
        case cudaErrorNoKernelImageForDevice:
            return "; this build holds no code for this GPU: reinstall without BWPROF_CUDA_ARCHS, or name its "
                   "architecture there (bwprof needs compute capability 8.0 or newer)";
        case cudaErrorUnsupportedPtxVersion:
            return "; this build's code must be translated by the driver, which is too old for it: update the driver";
        case cudaErrorDevicesUnavailable: return "; another process may hold the GPU in exclusive mode";
        case cudaErrorInitializationError:
            return "; a process forked after CUDA was first used cannot use it: start a new one instead";
        default: return "";
    }
}

bw_status bw_cuda_status(bw_cuda_api *api, cudaError_t error, const char *expression, const char *file, int line) {
    if (error == cudaSuccess) return BW_OK;
    (void)api->last_error();
    const char *slash = strrchr(file, '/');
    return bw_fail(code_of(error), "CUDA call %s at %s:%d failed: %s: %s%s", expression, slash ? slash + 1 : file, line,
                   cudaGetErrorName(error), cudaGetErrorString(error), advice_for(error));
}

bw_status bw_cuda_event_passed(bw_cuda_api *api, cudaEvent_t event, bool *out) {
    cudaError_t error = BW_CUDA_ERROR(api, event_query(event));
    *out = error == cudaSuccess;
    if (error != cudaErrorNotReady) return bw_cuda_status(api, error, "event_query", __FILE__, __LINE__);
    (void)api->last_error();
    return BW_OK;
}
