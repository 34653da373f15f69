// Calls CUPTI's Range Profiler: configuration, passes, and the values of a set of metrics.
#include "cuda/profiling/range_profiler.h"

#ifdef BW_HAS_RANGE_PROFILER

#include <cupti_activity.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/runtime/attachments.h"

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

static constexpr int64_t FLUSH_FACTOR = 8;  // times the L2: the last few dirty lines are slow to go
static constexpr int64_t FLUSH_LEAST_BYTES = 64 << 20;

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

static void take_down(bw_device *device, void *self) {
    close(device, (profiler *)self);
}

bw_status open(bw_device *device, profiler *self) {
    void *context = nullptr;
    BW_TRY(bw_cupti_get(device, &self->library));
    BW_TRY(bw_cupti_count_begin(bw_cupti_counter{device, take_down, self}));
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

// One unknown name fails a whole configuration: each is asked for by itself.
static bw_status knows(profiler *self, const char *name, bool *out) {
    CUpti_Profiler_Host_Object *host = nullptr;
    BW_TRY(host_open(self, &host));
    *out = add_metrics(self, host, &name, 1) == CUPTI_SUCCESS;
    host_close(self, host);
    return BW_OK;
}

bw_status set_add(profiler *self, const counter &wanted, int *at) {
    metric_set *set = &self->set;
    *at = -1;
    for (const char *name : wanted.names) {
        if (!name || *at >= 0) break;
        for (size_t i = 0; i < set->count; i++) {
            if (strcmp(set->names[i], name) == 0) *at = (int)i;
        }
        bool known = false;
        if (*at < 0) BW_TRY(knows(self, name, &known));
        if (!known) continue;
        if (set->count == METRICS_MOST) return bw_fail(BW_CODE_UNAVAILABLE, "more than %zu counters", METRICS_MOST);
        *at = (int)set->count;
        set->names[set->count++] = name;
    }
    return BW_OK;
}

bw_status set_open(profiler *self) {
    metric_set *set = &self->set;
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

void close(bw_device *device, profiler *self) {
    char failure[sizeof self->failure];
    host_close(self, self->set.host);
    image_free(&self->set.config);
    image_free(&self->set.data);
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

bw_status flush_open(bw_device *device, bw_cuda_flush *out) {
    const int64_t bytes = bw_max64(FLUSH_LEAST_BYTES, FLUSH_FACTOR * device->facts.cache_bytes);
    return bw_cuda_flush_open(device, device->stream, BW_FLUSH_READ, bytes, out);
}

static bw_status flush(const work *work, const bw_cuda_flush *memory) {
    return bw_cuda_flush_enqueue(work->device, work->device->stream, memory);
}

static bw_status run_launches(const work *work, int64_t launches) {
    return work->launcher && launches > 0 ? bw_cuda_work_run(work->launcher, launches) : BW_OK;
}

bw_status wait(const work *work) {
    return BW_CUDA(&work->device->api, stream_synchronize(work->device->stream));
}

static bw_status configure(profiler *self) {
    const metric_set *set = &self->set;
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
    bw_status status = run_launches(work, work->launches);
    if (!status) status = flush(work, &work->flush);
    status = bw_status_first(status, wait(work));
    PARAMS(CUpti_RangeProfiler_PopRange, pop);
    pop.pRangeProfilerObject = self->range;
    return bw_status_first(status, PROFILER(self, cuptiRangeProfilerPopRange, &pop));
}

static bw_status run_pass(profiler *self, const work *work, bool *done) {
    BW_TRY(flush(work, &work->flush_ahead));
    BW_TRY(run_launches(work, work->launches_ahead));
    BW_TRY(wait(work));
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

bw_status count(profiler *self, const work *work, int most, double *values, int *passes) {
    metric_set *set = &self->set;
    BW_TRY(configure(self));
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
    evaluate.ppMetricNames = set->names;
    evaluate.numMetrics = set->count;
    evaluate.pMetricValues = values;
    return PROFILER(self, cuptiProfilerHostEvaluateToGpuValues, &evaluate);
}

static void release_profiler(bw_device *device, void *self) {
    // A thread that counts with this profiler, or is about to be refused it, must end first: the handle may go next.
    if (!bw_cupti_count_hold(device, BW_CUPTI_CLOSES)) return;
    take_down(device, self);
    bw_cupti_count_release(device);
}

static const bw_cuda_part part = {sizeof(profiler), nullptr, release_profiler};

bw_status hold(bw_device *device, char *why, size_t why_size, profiler **out) {
    void *state;
    why[0] = '\0';
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(bw_cuda_attach(device, &part, &state));
    if (bw_cupti_count_hold(device, BW_CUPTI_COUNTS)) {
        *out = (profiler *)state;
    } else {
        snprintf(why, why_size, "another device handle of this process is counting: count when it has finished");
    }
    return BW_OK;
}

bw_status release(bw_device *device, profiler *self, bw_status status, bool remember, char *why, size_t why_size) {
    const bw_code code = bw_status_code(status);
    if (status) {
        snprintf(why, why_size, "%s", bw_status_message(status));
        // What CUPTI refuses once it will refuse again; memory may be there the next time.
        if (code == BW_CODE_UNAVAILABLE && (remember || !self->range)) {
            snprintf(self->failure, sizeof self->failure, "%s", why);
        }
        close(device, self);
    }
    bw_cupti_count_release(device);
    if (code != BW_CODE_UNAVAILABLE && code != BW_CODE_MEMORY && code != BW_CODE_BUSY) return status;
    bw_status_free(status);
    return BW_OK;
}

}  // namespace bw_profiler

#endif
