// A CUPTI that counts what the test says, keeps books of what is open, and fails on demand. Compiled against NVIDIA's
// headers, so that a prototype that is wrong does not compile.
#include "fake_cupti.h"

#include <cupti.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fake_cupti fake;
static int profiler_object, subscriber_object;
static CUpti_BuffersCallbackRequestFunc request_buffer;
static CUpti_BuffersCallbackCompleteFunc complete_buffer;

extern "C" {

FAKE_EXPORT fake_cupti *fake_cupti_books(void) {
    return &fake;
}

// Whether this call is the one that is to fail; it is counted either way.
static CUptiResult called(const char *name) {
    fake.calls++;
    if (fake.calls != fake.fail_at) return CUPTI_SUCCESS;
    snprintf(fake.failed_call, sizeof fake.failed_call, "%s", name);
    return (CUptiResult)fake.fail_code;
}

#define CALLED()                                        \
    do {                                                \
        CUptiResult planned_ = called(__func__);        \
        if (planned_ != CUPTI_SUCCESS) return planned_; \
    } while (0)

FAKE_EXPORT CUptiResult cuptiGetVersion(uint32_t *version) {
    CALLED();
    *version = 130100;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    static char name[32];
    snprintf(name, sizeof name, "CUPTI_CODE_%d", (int)result);
    *text = name;
    return CUPTI_SUCCESS;
}

// ---- activity ----

FAKE_EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *out, CUpti_CallbackFunc, void *) {
    CALLED();
    if (fake.subscribers) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    fake.subscribers++;
    *out = (CUpti_SubscriberHandle)&subscriber_object;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
    fake.subscribers--;
    return called(__func__);
}

FAKE_EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                       CUpti_BuffersCallbackCompleteFunc complete) {
    CALLED();
    request_buffer = request;
    complete_buffer = complete;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    CALLED();
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        fake.tracing = 1;
    } else {
        fake.tracing_copies = 1;
    }
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind) {
    fake.tracing = fake.tracing_copies = 0;
    return called(__func__);
}

FAKE_EXPORT CUptiResult cuptiActivityFlushAll(uint32_t) {
    CALLED();
    if (fake.kernels == 0 || !request_buffer) return CUPTI_SUCCESS;
    uint8_t *buffer = nullptr;
    size_t size = 0, limit = 0;
    request_buffer(&buffer, &size, &limit);
    size_t used = 0;
    for (int i = 0; i < fake.kernels && used + sizeof(CUpti_ActivityKernel10) <= size; i++) {
        CUpti_ActivityKernel10 *record = (CUpti_ActivityKernel10 *)(buffer + used);
        memset((void *)record, 0, sizeof *record);
        record->kind = fake.is_copy[i] ? CUPTI_ACTIVITY_KIND_MEMSET : CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        record->start = fake.start_ns[i];
        record->end = fake.end_ns[i];
        if (fake.is_copy[i]) {
            ((CUpti_ActivityMemset4 *)record)->streamId = fake.stream[i];
            ((CUpti_ActivityMemset4 *)record)->deviceId = fake.device[i];
        } else {
            record->streamId = fake.stream[i];
            record->deviceId = fake.device[i];
        }
        used += sizeof *record;
    }
    fake.kernels = 0;
    complete_buffer(nullptr, 0, buffer, size, used);
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    CALLED();
    uint8_t *next = *record ? (uint8_t *)*record + sizeof(CUpti_ActivityKernel10) : buffer;
    if (next + sizeof(CUpti_ActivityKernel10) > buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *dropped) {
    CALLED();
    *dropped = (size_t)fake.drop;
    fake.drop = 0;
    return CUPTI_SUCCESS;
}

// ---- counters ----

FAKE_EXPORT CUptiResult cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params *) {
    CALLED();
    fake.initialized++;
    fake.configuration = fake.enabled = 0;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiProfilerDeInitialize(CUpti_Profiler_DeInitialize_Params *) {
    fake.initialized--;
    return called(__func__);
}

FAKE_EXPORT CUptiResult cuptiProfilerDeviceSupported(CUpti_Profiler_DeviceSupported_Params *p) {
    CALLED();
    p->isSupported =
        fake.virtual_gpu ? CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED : CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    p->architecture = p->sli = p->confidentialCompute = p->cmp = p->wsl = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    p->vGpu = p->isSupported;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params *p) {
    CALLED();
    p->pChipName = "FAKE100";
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params *p) {
    CALLED();
    p->counterAvailabilityImageSize = 64;
    if (p->pCounterAvailabilityImage) memset(p->pCounterAvailabilityImage, 1, 64);
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params *p) {
    CALLED();
    fake.hosts++;
    p->pHostObject = (CUpti_Profiler_Host_Object *)calloc(1, sizeof(int));
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params *p) {
    fake.hosts--;
    free(p->pHostObject);
    return called(__func__);
}

static int kind_of(const char *name) {
    return strncmp(name, "dram", 4) == 0 || strncmp(name, "lts", 3) == 0 ? 1 : 2;
}

static int known(const char *name) {
    if (strncmp(name, "sm", 2) == 0 || strncmp(name, "l1tex", 5) == 0) {
        return fake.old_pipes ? strstr(name, "_op_st") == nullptr && strstr(name, "pipe_tensor_cycles") == nullptr &&
                                    strstr(name, "gmma") == nullptr
                              : 1;
    }
    if (strcmp(name, "lts__t_bytes.sum") == 0) return !fake.no_l2;
    if (strncmp(name, "lts__t_sectors", 14) == 0) return 1;
    if (fake.no_dram) return 0;
    if (strcmp(name, "dram__bytes.sum.peak_sustained") == 0) return 1;
    if (strcmp(name, "dram__cycles_elapsed.avg.per_second") == 0) return 1;
    return (strstr(name, "_op_") != nullptr) == (fake.op_names != 0) && strncmp(name, "dram__bytes_", 12) == 0;
}

FAKE_EXPORT CUptiResult cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params *p) {
    CALLED();
    for (size_t i = 0; i < p->numMetrics; i++) {
        if (!known(p->ppMetricNames[i])) return CUPTI_ERROR_INVALID_PARAMETER;
        *(int *)p->pHostObject |= kind_of(p->ppMetricNames[i]);
    }
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params *p) {
    CALLED();
    p->configImageSize = 128;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params *p) {
    CALLED();
    memset(p->pConfigImage, *(int *)p->pHostObject, p->configImageSize);
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params *p) {
    CALLED();
    if (fake.enabled) return CUPTI_ERROR_INVALID_OPERATION; /* a second time: the real one crashes */
    fake.profilers++;
    fake.enabled = 1;
    p->pRangeProfilerObject = (CUpti_RangeProfiler_Object *)&profiler_object;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params *) {
    fake.profilers--;
    return called(__func__);
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params *p) {
    CALLED();
    p->counterDataSize = 256;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult
cuptiRangeProfilerCounterDataImageInitialize(CUpti_RangeProfiler_CounterDataImage_Initialize_Params *p) {
    CALLED();
    memset(p->pCounterData, 0, p->counterDataSize);
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params *p) {
    CALLED();
    if (!fake.configuration) fake.configuration = p->pConfig[0];
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params *) {
    CALLED();
    fake.started++;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params *p) {
    fake.started--;
    fake.passes_run++;
    p->isAllPassSubmitted = fake.passes_run % (fake.passes ? fake.passes : 1) == 0;
    return called(__func__);
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params *) {
    CALLED();
    fake.in_range = 1;
    memset(fake.seen, 0, sizeof fake.seen);
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerPopRange(CUpti_RangeProfiler_PopRange_Params *) {
    fake.in_range = 0;
    return called(__func__);
}

FAKE_EXPORT CUptiResult cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params *p) {
    CALLED();
    p->numOfRangeDropped = (size_t)fake.drop;
    return CUPTI_SUCCESS;
}

FAKE_EXPORT CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params *p) {
    CALLED();
    for (size_t i = 0; i < p->numMetrics; i++) {
        const char *name = p->ppMetricNames[i];
        if (!(kind_of(name) & fake.configuration)) {
            p->pMetricValues[i] = NAN;
            continue;
        }
        const bool of_l2 = strcmp(name, "lts__t_bytes.sum") == 0;
        if (strncmp(name, "dram__bytes_", 12) != 0 && !of_l2) {
            p->pMetricValues[i] = (double)strlen(name); /* each name its own value */
            continue;
        }
        int index = of_l2 ? 2 : strstr(name, "write") ? 1 : 0;
        p->pMetricValues[i] = fake.seen[index];
    }
    return CUPTI_SUCCESS;
}

}  // extern "C"
