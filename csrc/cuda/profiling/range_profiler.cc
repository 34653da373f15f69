// Calls CUPTI's Range Profiler: configuration, passes, and the values of a set of metrics.
#include "cuda/profiling/range_profiler.h"

#ifdef BW_HAS_RANGE_PROFILER

#include <cupti_activity.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// cupti.c reads kernel records by these offsets.
#if CUPTI_API_VERSION >= 130000
using newest_kernel_record = CUpti_ActivityKernel10;
#else
using newest_kernel_record = CUpti_ActivityKernel9;
#endif
static_assert(offsetof(newest_kernel_record, start) == 16 && offsetof(newest_kernel_record, end) == 24,
              "the head of CUPTI's kernel record has changed");
static_assert(offsetof(CUpti_ActivityMemcpy5, start) == 16 && offsetof(CUpti_ActivityMemcpy5, end) == 24 &&
                  offsetof(CUpti_ActivityMemset4, start) == 16 && offsetof(CUpti_ActivityMemset4, end) == 24,
              "CUPTI's records of copies differ from those of kernels");

namespace bw_profiler {

#define PROFILER(self, name, params) bw_cupti_status((self)->library, (self)->name(params), #name)
#define PARAMS(type, name)   \
    type##_Params name = {}; \
    name.structSize = type##_Params_STRUCT_SIZE

static bw_status image_resize(image *self, size_t size) {
    free(self->data);
    self->data = (uint8_t *)calloc(1, size ? size : 1);
    self->size = self->data ? size : 0;
    return self->data ? BW_OK : bw_fail(BW_CODE_MEMORY, "out of host memory for counter data (%zu bytes)", size);
}

static void image_free(image *self) {
    free(self->data);
    *self = image{nullptr, 0};
}

// ---- setting up ----

static bw_status load_symbols(profiler *self) {
#define PROFILER_SYMBOL(name) BW_TRY(bw_cupti_symbol(self->library, #name, &self->name));
    BW_PROFILER_CALLS(PROFILER_SYMBOL)
#undef PROFILER_SYMBOL
    return BW_OK;
}

static bw_status check_support(profiler *self, int index) {
    PARAMS(CUpti_Profiler_DeviceSupported, params);
    params.cuDevice = index;
    BW_TRY(PROFILER(self, cuptiProfilerDeviceSupported, &params));
    if (params.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED ||
        params.isSupported == CUPTI_PROFILER_CONFIGURATION_UNKNOWN) {
        return BW_OK;
    }
    const struct {
        CUpti_Profiler_Support_Level level;
        const char *text;
    } parts[] = {{params.architecture, "this GPU's architecture"},
                 {params.sli, "GPUs joined by SLI"},
                 {params.vGpu, "this virtual GPU"},
                 {params.confidentialCompute, "confidential computing"},
                 {params.cmp, "mining cards (CMP)"},
                 {params.wsl, "WSL"}};
    const char *cause = "this device";
    for (const auto &part : parts) {
        if (part.level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED ||
            part.level == CUPTI_PROFILER_CONFIGURATION_DISABLED) {
            cause = part.text;
        }
    }
    return bw_fail(BW_CODE_UNAVAILABLE, "CUPTI's counters do not work with %s", cause);
}

static bw_status read_availability(profiler *self, void *context) {
    PARAMS(CUpti_Profiler_GetCounterAvailability, params);
    params.ctx = (CUcontext)context;
    BW_TRY(PROFILER(self, cuptiProfilerGetCounterAvailability, &params));
    BW_TRY(image_resize(&self->availability, params.counterAvailabilityImageSize));
    params.pCounterAvailabilityImage = self->availability.data;
    return PROFILER(self, cuptiProfilerGetCounterAvailability, &params);
}

bw_status open(bw_device *device, profiler *self, void (*take_down)(bw_device *, void *), void *state) {
    void *context = nullptr;
    BW_TRY(bw_cupti_get(device, &self->library));
    BW_TRY(bw_cupti_count_begin(bw_cupti_counter{device, take_down, state}));
    self->claimed = true;
    BW_TRY(load_symbols(self));
    BW_TRY(bw_cuda_context(&context));
    PARAMS(CUpti_Profiler_Initialize, initialize);
    BW_TRY(PROFILER(self, cuptiProfilerInitialize, &initialize));
    self->initialized = true;
    BW_TRY(check_support(self, device->index));
    PARAMS(CUpti_Device_GetChipName, chip);
    chip.deviceIndex = (size_t)device->index;
    BW_TRY(PROFILER(self, cuptiDeviceGetChipName, &chip));
    snprintf(self->chip, sizeof self->chip, "%s", chip.pChipName ? chip.pChipName : "");
    BW_TRY(read_availability(self, context));
    PARAMS(CUpti_RangeProfiler_Enable, enable);
    enable.ctx = (CUcontext)context;
    BW_TRY(PROFILER(self, cuptiRangeProfilerEnable, &enable));
    self->range = enable.pRangeProfilerObject;
    return BW_OK;
}

void close(bw_device *device, profiler *self) {
    char failure[sizeof self->failure];
    if (self->range) {
        PARAMS(CUpti_RangeProfiler_Disable, params);
        params.pRangeProfilerObject = self->range;
        (void)self->cuptiRangeProfilerDisable(&params);
    }
    if (self->initialized) {
        PARAMS(CUpti_Profiler_DeInitialize, params);
        (void)self->cuptiProfilerDeInitialize(&params);
    }
    if (self->claimed) bw_cupti_count_end(device);
    image_free(&self->availability);
    memcpy(failure, self->failure, sizeof failure);
    memset((void *)self, 0, sizeof *self);
    memcpy(self->failure, failure, sizeof failure);
}

// ---- sets of metrics ----

static bw_status host_open(profiler *self, CUpti_Profiler_Host_Object **out) {
    PARAMS(CUpti_Profiler_Host_Initialize, params);
    params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    params.pChipName = self->chip;
    params.pCounterAvailabilityImage = self->availability.data;
    BW_TRY(PROFILER(self, cuptiProfilerHostInitialize, &params));
    *out = params.pHostObject;
    return BW_OK;
}

static void host_close(profiler *self, CUpti_Profiler_Host_Object *host) {
    PARAMS(CUpti_Profiler_Host_Deinitialize, params);
    params.pHostObject = host;
    if (host) (void)self->cuptiProfilerHostDeinitialize(&params);
}

static CUptiResult add_metrics(profiler *self, CUpti_Profiler_Host_Object *host, const char **names, size_t count) {
    PARAMS(CUpti_Profiler_Host_ConfigAddMetrics, params);
    params.pHostObject = host;
    params.ppMetricNames = names;
    params.numMetrics = count;
    return self->cuptiProfilerHostConfigAddMetrics(&params);
}

bw_status knows(profiler *self, const char *name, bool *out) {
    CUpti_Profiler_Host_Object *host = nullptr;
    *out = false;
    BW_TRY(host_open(self, &host));
    *out = add_metrics(self, host, &name, 1) == CUPTI_SUCCESS;
    host_close(self, host);
    return BW_OK;
}

bw_status set_open(profiler *self, metric_set *set) {
    BW_TRY(host_open(self, &set->host));
    BW_TRY(bw_cupti_status(self->library, add_metrics(self, set->host, set->names, set->count),
                           "cuptiProfilerHostConfigAddMetrics"));
    PARAMS(CUpti_Profiler_Host_GetConfigImageSize, config);
    config.pHostObject = set->host;
    BW_TRY(PROFILER(self, cuptiProfilerHostGetConfigImageSize, &config));
    BW_TRY(image_resize(&set->config, config.configImageSize));
    PARAMS(CUpti_Profiler_Host_GetConfigImage, image);
    image.pHostObject = set->host;
    image.configImageSize = set->config.size;
    image.pConfigImage = set->config.data;
    BW_TRY(PROFILER(self, cuptiProfilerHostGetConfigImage, &image));
    PARAMS(CUpti_RangeProfiler_GetCounterDataSize, data);
    data.pRangeProfilerObject = self->range;
    data.pMetricNames = set->names;
    data.numMetrics = set->count;
    data.maxNumOfRanges = 1;
    data.maxNumRangeTreeNodes = 1;
    BW_TRY(PROFILER(self, cuptiRangeProfilerGetCounterDataSize, &data));
    return image_resize(&set->data, data.counterDataSize);
}

void set_close(profiler *self, metric_set *set) {
    host_close(self, set->host);
    image_free(&set->config);
    image_free(&set->data);
    *set = metric_set{};
}

// ---- one range ----

bw_status wait(bw_device *device) {
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

static bw_status configure(profiler *self, const metric_set *set) {
    PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize, initialize);
    initialize.pRangeProfilerObject = self->range;
    initialize.pCounterData = set->data.data;
    initialize.counterDataSize = set->data.size;
    BW_TRY(PROFILER(self, cuptiRangeProfilerCounterDataImageInitialize, &initialize));
    PARAMS(CUpti_RangeProfiler_SetConfig, params);
    params.pRangeProfilerObject = self->range;
    params.pConfig = set->config.data;
    params.configSize = set->config.size;
    params.pCounterDataImage = set->data.data;
    params.counterDataImageSize = set->data.size;
    params.range = CUPTI_UserRange;
    params.replayMode = CUPTI_UserReplay;
    params.maxRangesPerPass = 1;
    params.numNestingLevels = 1;
    params.minNestingLevel = 1;
    params.targetNestingLevel = 1;
    return PROFILER(self, cuptiRangeProfilerSetConfig, &params);
}

static bw_status run_range(profiler *self, const work *work) {
    PARAMS(CUpti_RangeProfiler_PushRange, push);
    push.pRangeProfilerObject = self->range;
    push.pRangeName = "launch";
    BW_TRY(PROFILER(self, cuptiRangeProfilerPushRange, &push));
    bw_status status = work->inside(work->context);
    status = bw_status_first(status, wait(work->device));
    PARAMS(CUpti_RangeProfiler_PopRange, pop);
    pop.pRangeProfilerObject = self->range;
    return bw_status_first(status, PROFILER(self, cuptiRangeProfilerPopRange, &pop));
}

static bw_status run_pass(profiler *self, const work *work, bool *done) {
    BW_TRY(work->before(work->context));
    BW_TRY(wait(work->device));
    PARAMS(CUpti_RangeProfiler_Start, start);
    start.pRangeProfilerObject = self->range;
    BW_TRY(PROFILER(self, cuptiRangeProfilerStart, &start));
    bw_status status = run_range(self, work);
    PARAMS(CUpti_RangeProfiler_Stop, stop);
    stop.pRangeProfilerObject = self->range;
    status = bw_status_first(status, PROFILER(self, cuptiRangeProfilerStop, &stop));
    *done = stop.isAllPassSubmitted != 0;
    return status;
}

bw_status count(profiler *self, const metric_set *set, const work *work, int most, double *values, int *passes) {
    BW_TRY(configure(self, set));
    bool done = false;
    for (*passes = 0; *passes < most && !done; (*passes)++) BW_TRY(run_pass(self, work, &done));
    if (!done) return bw_fail(BW_CODE_UNAVAILABLE, "CUPTI asked for more than %d passes", most);
    PARAMS(CUpti_RangeProfiler_DecodeData, decode);
    decode.pRangeProfilerObject = self->range;
    BW_TRY(PROFILER(self, cuptiRangeProfilerDecodeData, &decode));
    if (decode.numOfRangeDropped) return bw_fail(BW_CODE_UNAVAILABLE, "CUPTI dropped the counted range");
    PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues, evaluate);
    evaluate.pHostObject = set->host;
    evaluate.pCounterDataImage = set->data.data;
    evaluate.counterDataImageSize = set->data.size;
    evaluate.ppMetricNames = (const char **)set->names;
    evaluate.numMetrics = set->count;
    evaluate.pMetricValues = values;
    return PROFILER(self, cuptiProfilerHostEvaluateToGpuValues, &evaluate);
}

}  // namespace bw_profiler

#endif
