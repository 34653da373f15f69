// DRAM and L2 bytes of launches by hardware counter: CUPTI's Range Profiler, user range, user replay.
//
// What a counted range holds: the launches, then a read of much other memory that drives their dirty lines out, so that
// their writes are counted. Before it, a read of a second block of memory makes the inputs cold and writes back what
// earlier work left dirty; a rotation is then run once as well, so that the range finds what the rotation leaves in the
// cache. The flush inside the range is always cold itself (it was last read before the other block),
// so its own traffic is the same each time: a range with nothing else in it measures that once, and it is subtracted.
//
// C++ because cupti_profiler_host.h is; the boundary is C, nothing here throws, and nothing of CUPTI's is linked.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cupti.h"
#include "cuda/plan.h"

#if defined(__has_include)
#if __has_include(<cupti_range_profiler.h>) && __has_include(<cupti_profiler_host.h>) && __has_include(<cupti_target.h>)
#define HAS_RANGE_PROFILER 1
#endif
#endif

static void say_nothing_counted(bw_counters *out, const char *why) {
    out->dram_bytes_read = out->dram_bytes_written = out->l2_bytes = NAN;
    snprintf(out->status, sizeof out->status, "%s", why);
}

#ifndef HAS_RANGE_PROFILER

bw_status bw_cuda_counters(bw_device *, const bw_plan_spec *, bw_counters *out) {
    say_nothing_counted(out,
                        "bwprof was built without CUPTI's headers (CUDA 12.6 or newer has the ones needed): "
                        "install the toolkit's cuda-cupti-dev and build again");
    return BW_OK;
}

void bw_cuda_counters_close(bw_device *) {
}

#else

#include <cupti_activity.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <stddef.h>

// cupti.c reads kernel records by these offsets.
#if CUPTI_API_VERSION >= 130000
using newest_kernel_record = CUpti_ActivityKernel10;
#else
using newest_kernel_record = CUpti_ActivityKernel9;
#endif
static_assert(offsetof(newest_kernel_record, start) == 16 && offsetof(newest_kernel_record, end) == 24,
              "the head of CUPTI's kernel record has changed");

namespace {

// X(CUPTI's function)
#define PROFILER_CALLS(X)                           \
    X(cuptiProfilerInitialize)                      \
    X(cuptiProfilerDeInitialize)                    \
    X(cuptiProfilerDeviceSupported)                 \
    X(cuptiProfilerGetCounterAvailability)          \
    X(cuptiDeviceGetChipName)                       \
    X(cuptiProfilerHostInitialize)                  \
    X(cuptiProfilerHostDeinitialize)                \
    X(cuptiProfilerHostConfigAddMetrics)            \
    X(cuptiProfilerHostGetConfigImageSize)          \
    X(cuptiProfilerHostGetConfigImage)              \
    X(cuptiProfilerHostEvaluateToGpuValues)         \
    X(cuptiRangeProfilerEnable)                     \
    X(cuptiRangeProfilerDisable)                    \
    X(cuptiRangeProfilerGetCounterDataSize)         \
    X(cuptiRangeProfilerCounterDataImageInitialize) \
    X(cuptiRangeProfilerSetConfig)                  \
    X(cuptiRangeProfilerStart)                      \
    X(cuptiRangeProfilerStop)                       \
    X(cuptiRangeProfilerPushRange)                  \
    X(cuptiRangeProfilerPopRange)                   \
    X(cuptiRangeProfilerDecodeData)

enum { METRIC_READ, METRIC_WRITTEN, METRIC_L2, METRIC_COUNT };
constexpr int64_t FLUSH_FACTOR = 8;  // times the L2: the last few dirty lines are slow to go
constexpr int64_t FLUSH_LEAST_BYTES = 64 << 20;
constexpr int PASSES_MOST = 8;  // the metrics need one on every chip known

// Newest chips last: GeForce Blackwell renamed the DRAM metrics.
const char *const metric_names[METRIC_COUNT][2] = {
    {"dram__bytes_read.sum", "dram__bytes_op_read.sum"},
    {"dram__bytes_write.sum", "dram__bytes_op_write.sum"},
    {"lts__t_bytes.sum", nullptr},
};

struct image {
    uint8_t *data;
    size_t size;
};

}  // namespace

struct bw_cuda_counter_state {
    bw_cupti *library;
    char failure[480];  // why there are no counters; "" = none so far
    bool initialized;
    char chip[64];
    image availability, config, data;
    CUpti_Profiler_Host_Object *host;
    CUpti_RangeProfiler_Object *profiler;
    const char *metric[METRIC_COUNT];  // the name that this chip knows; NULL = it has none
    const char *asked[METRIC_COUNT];   // the known ones, without gaps
    size_t asked_count;
    bool calibrated;
    double flush[METRIC_COUNT];  // what the flush inside a range moves by itself
#define PROFILER_MEMBER(name) decltype(&::name) name;
    PROFILER_CALLS(PROFILER_MEMBER)
#undef PROFILER_MEMBER
};

namespace {

using state_t = bw_cuda_counter_state;

#define PROFILER(state, name, params) bw_cupti_status((state)->library, (state)->name(params), #name)
#define PARAMS(type, name)   \
    type##_Params name = {}; \
    name.structSize = type##_Params_STRUCT_SIZE

bw_status image_resize(image *self, size_t size) {
    free(self->data);
    self->data = (uint8_t *)calloc(1, size ? size : 1);
    self->size = self->data ? size : 0;
    return self->data ? BW_OK : bw_fail(BW_CODE_MEMORY, "out of host memory for counter data (%zu bytes)", size);
}

void image_free(image *self) {
    free(self->data);
    *self = image{nullptr, 0};
}

// ---- setting up ----

bw_status load_symbols(state_t *state) {
#define PROFILER_SYMBOL(name)                                    \
    {                                                            \
        void *symbol;                                            \
        BW_TRY(bw_cupti_symbol(state->library, #name, &symbol)); \
        state->name = (decltype(state->name))symbol;             \
    }
    PROFILER_CALLS(PROFILER_SYMBOL)
#undef PROFILER_SYMBOL
    return BW_OK;
}

bw_status check_support(state_t *state, int index) {
    PARAMS(CUpti_Profiler_DeviceSupported, params);
    params.cuDevice = index;
    BW_TRY(PROFILER(state, cuptiProfilerDeviceSupported, &params));
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

bw_status read_availability(state_t *state, void *context) {
    PARAMS(CUpti_Profiler_GetCounterAvailability, params);
    params.ctx = (CUcontext)context;
    BW_TRY(PROFILER(state, cuptiProfilerGetCounterAvailability, &params));
    BW_TRY(image_resize(&state->availability, params.counterAvailabilityImageSize));
    params.pCounterAvailabilityImage = state->availability.data;
    return PROFILER(state, cuptiProfilerGetCounterAvailability, &params);
}

bw_status host_open(state_t *state, CUpti_Profiler_Host_Object **out) {
    PARAMS(CUpti_Profiler_Host_Initialize, params);
    params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    params.pChipName = state->chip;
    params.pCounterAvailabilityImage = state->availability.data;
    BW_TRY(PROFILER(state, cuptiProfilerHostInitialize, &params));
    *out = params.pHostObject;
    return BW_OK;
}

void host_close(state_t *state, CUpti_Profiler_Host_Object *host) {
    PARAMS(CUpti_Profiler_Host_Deinitialize, params);
    params.pHostObject = host;
    if (host) (void)state->cuptiProfilerHostDeinitialize(&params);
}

CUptiResult add_metrics(state_t *state, CUpti_Profiler_Host_Object *host, const char **names, size_t count) {
    PARAMS(CUpti_Profiler_Host_ConfigAddMetrics, params);
    params.pHostObject = host;
    params.ppMetricNames = names;
    params.numMetrics = count;
    return state->cuptiProfilerHostConfigAddMetrics(&params);
}

// One unknown name fails a whole configuration, so each is tried in one of its own.
bw_status find_metrics(state_t *state) {
    for (int i = 0; i < METRIC_COUNT; i++) {
        for (int j = 0; j < 2 && metric_names[i][j] && !state->metric[i]; j++) {
            const char *name = metric_names[i][j];
            CUpti_Profiler_Host_Object *host = nullptr;
            BW_TRY(host_open(state, &host));
            if (add_metrics(state, host, &name, 1) == CUPTI_SUCCESS) state->metric[i] = name;
            host_close(state, host);
        }
        if (state->metric[i]) state->asked[state->asked_count++] = state->metric[i];
    }
    if (state->metric[METRIC_READ] && state->metric[METRIC_WRITTEN]) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "CUPTI knows no DRAM counters for this GPU (chip %s): integrated GPUs have none, and a newer chip "
                   "needs a newer CUPTI",
                   state->chip);
}

bw_status make_config(state_t *state) {
    BW_TRY(host_open(state, &state->host));
    BW_TRY(bw_cupti_status(state->library, add_metrics(state, state->host, state->asked, state->asked_count),
                           "cuptiProfilerHostConfigAddMetrics"));
    PARAMS(CUpti_Profiler_Host_GetConfigImageSize, size);
    size.pHostObject = state->host;
    BW_TRY(PROFILER(state, cuptiProfilerHostGetConfigImageSize, &size));
    BW_TRY(image_resize(&state->config, size.configImageSize));
    PARAMS(CUpti_Profiler_Host_GetConfigImage, image);
    image.pHostObject = state->host;
    image.configImageSize = state->config.size;
    image.pConfigImage = state->config.data;
    return PROFILER(state, cuptiProfilerHostGetConfigImage, &image);
}

bw_status enable(state_t *state, void *context) {
    PARAMS(CUpti_RangeProfiler_Enable, params);
    params.ctx = (CUcontext)context;
    BW_TRY(PROFILER(state, cuptiRangeProfilerEnable, &params));
    state->profiler = params.pRangeProfilerObject;
    PARAMS(CUpti_RangeProfiler_GetCounterDataSize, size);
    size.pRangeProfilerObject = state->profiler;
    size.pMetricNames = state->asked;
    size.numMetrics = state->asked_count;
    size.maxNumOfRanges = 1;
    size.maxNumRangeTreeNodes = 1;
    BW_TRY(PROFILER(state, cuptiRangeProfilerGetCounterDataSize, &size));
    return image_resize(&state->data, size.counterDataSize);
}

bw_status set_up(bw_device *device, state_t *state) {
    void *context = nullptr;
    BW_TRY(bw_cupti_get(device, &state->library));
    BW_TRY(load_symbols(state));
    BW_TRY(bw_cuda_context(&context));
    PARAMS(CUpti_Profiler_Initialize, initialize);
    BW_TRY(PROFILER(state, cuptiProfilerInitialize, &initialize));
    state->initialized = true;
    BW_TRY(check_support(state, device->index));
    PARAMS(CUpti_Device_GetChipName, chip);
    chip.deviceIndex = (size_t)device->index;
    BW_TRY(PROFILER(state, cuptiDeviceGetChipName, &chip));
    snprintf(state->chip, sizeof state->chip, "%s", chip.pChipName ? chip.pChipName : "");
    BW_TRY(read_availability(state, context));
    BW_TRY(find_metrics(state));
    BW_TRY(make_config(state));
    return enable(state, context);
}

// Leaves the state as calloc made it, but for `failure`.
void tear_down(state_t *state) {
    char failure[sizeof state->failure];
    if (state->profiler) {
        PARAMS(CUpti_RangeProfiler_Disable, params);
        params.pRangeProfilerObject = state->profiler;
        (void)state->cuptiRangeProfilerDisable(&params);
    }
    host_close(state, state->host);
    if (state->initialized) {
        PARAMS(CUpti_Profiler_DeInitialize, params);
        (void)state->cuptiProfilerDeInitialize(&params);
    }
    image_free(&state->availability);
    image_free(&state->config);
    image_free(&state->data);
    memcpy(failure, state->failure, sizeof failure);
    memset((void *)state, 0, sizeof *state);
    memcpy(state->failure, failure, sizeof failure);
}

// ---- one range ----

// Memory to read: before the range and inside it.
struct flushes {
    void *cool, *drain;
    int64_t bytes;  // of each
};

bw_status flush_make(bw_device *device, int64_t bytes, void **out) {
    BW_TRY(BW_CUDA(&device->api, memory_allocate(out, (size_t)bytes)));
    return BW_CUDA(&device->api, memory_set(*out, 0x5a, (size_t)bytes, device->stream));
}

void flush_free(bw_device *device, void *memory) {
    if (memory) BW_CUDA_IGNORE(&device->api, memory_free(memory));
}

bw_status wait(bw_device *device) {
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

bw_status launch_all(bw_device *device, const bw_plan_spec *spec) {
    for (int64_t i = 0; i < spec->launches; i++) BW_TRY(bw_cuda_plan_launch(device, spec, i));
    return BW_OK;
}

bw_status configure(state_t *state) {
    PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize, initialize);
    initialize.pRangeProfilerObject = state->profiler;
    initialize.pCounterData = state->data.data;
    initialize.counterDataSize = state->data.size;
    BW_TRY(PROFILER(state, cuptiRangeProfilerCounterDataImageInitialize, &initialize));
    PARAMS(CUpti_RangeProfiler_SetConfig, params);
    params.pRangeProfilerObject = state->profiler;
    params.pConfig = state->config.data;
    params.configSize = state->config.size;
    params.pCounterDataImage = state->data.data;
    params.counterDataImageSize = state->data.size;
    params.range = CUPTI_UserRange;
    params.replayMode = CUPTI_UserReplay;
    params.maxRangesPerPass = 1;
    params.numNestingLevels = 1;
    params.minNestingLevel = 1;
    params.targetNestingLevel = 1;
    return PROFILER(state, cuptiRangeProfilerSetConfig, &params);
}

// The work between Start and Stop; `spec` NULL: the flush alone.
bw_status run_range(bw_device *device, state_t *state, const bw_plan_spec *spec, const flushes *flush) {
    PARAMS(CUpti_RangeProfiler_PushRange, push);
    push.pRangeProfilerObject = state->profiler;
    push.pRangeName = "launch";
    BW_TRY(PROFILER(state, cuptiRangeProfilerPushRange, &push));
    bw_status status = spec ? launch_all(device, spec) : BW_OK;
    if (!status) status = bw_cuda_launch_flush(device, flush->drain, flush->bytes);
    status = bw_status_first(status, wait(device));
    PARAMS(CUpti_RangeProfiler_PopRange, pop);
    pop.pRangeProfilerObject = state->profiler;
    return bw_status_first(status, PROFILER(state, cuptiRangeProfilerPopRange, &pop));
}

bw_status run_pass(bw_device *device, state_t *state, const bw_plan_spec *spec, const flushes *flush, bool *done) {
    BW_TRY(bw_cuda_launch_flush(device, flush->cool, flush->bytes));
    if (spec && !spec->flush_bytes) BW_TRY(launch_all(device, spec));
    BW_TRY(wait(device));
    PARAMS(CUpti_RangeProfiler_Start, start);
    start.pRangeProfilerObject = state->profiler;
    BW_TRY(PROFILER(state, cuptiRangeProfilerStart, &start));
    bw_status status = run_range(device, state, spec, flush);
    PARAMS(CUpti_RangeProfiler_Stop, stop);
    stop.pRangeProfilerObject = state->profiler;
    status = bw_status_first(status, PROFILER(state, cuptiRangeProfilerStop, &stop));
    *done = stop.isAllPassSubmitted != 0;
    return status;
}

bw_status count_range(bw_device *device, state_t *state, const bw_plan_spec *spec, const flushes *flush,
                      double values[METRIC_COUNT]) {
    double found[METRIC_COUNT] = {};
    BW_TRY(configure(state));
    bool done = false;
    for (int pass = 0; pass < PASSES_MOST && !done; pass++) BW_TRY(run_pass(device, state, spec, flush, &done));
    if (!done) return bw_fail(BW_CODE_UNAVAILABLE, "CUPTI asked for more than %d passes", PASSES_MOST);
    PARAMS(CUpti_RangeProfiler_DecodeData, decode);
    decode.pRangeProfilerObject = state->profiler;
    BW_TRY(PROFILER(state, cuptiRangeProfilerDecodeData, &decode));
    if (decode.numOfRangeDropped) return bw_fail(BW_CODE_UNAVAILABLE, "CUPTI dropped the counted range");
    PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues, evaluate);
    evaluate.pHostObject = state->host;
    evaluate.pCounterDataImage = state->data.data;
    evaluate.counterDataImageSize = state->data.size;
    evaluate.ppMetricNames = state->asked;
    evaluate.numMetrics = state->asked_count;
    evaluate.pMetricValues = found;
    BW_TRY(PROFILER(state, cuptiProfilerHostEvaluateToGpuValues, &evaluate));
    size_t next = 0;
    for (int i = 0; i < METRIC_COUNT; i++) values[i] = state->metric[i] ? found[next++] : NAN;
    return BW_OK;
}

double middle_of(double a, double b, double c) {
    return a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
}

// The median of three: whatever else the GPU does moves some hundred kilobytes now and then.
bw_status count_ranges(bw_device *device, state_t *state, const bw_plan_spec *spec, const flushes *flush,
                       double values[METRIC_COUNT]) {
    double found[3][METRIC_COUNT];
    for (auto &each : found) BW_TRY(count_range(device, state, spec, flush, each));
    for (int i = 0; i < METRIC_COUNT; i++) values[i] = middle_of(found[0][i], found[1][i], found[2][i]);
    return BW_OK;
}

// Of each launch. Less than nothing is noise of the flush's own count.
double beyond_flush(const state_t *state, const bw_plan_spec *spec, const double values[METRIC_COUNT], int metric) {
    const double beyond = values[metric] - state->flush[metric];
    return beyond < 0 ? 0 : beyond / (double)spec->launches;
}

bw_status count_launch(bw_device *device, state_t *state, const bw_plan_spec *spec, bw_counters *out) {
    double values[METRIC_COUNT];
    flushes flush = {};
    bw_status status = BW_OK;
    flush.bytes = bw_max64(FLUSH_LEAST_BYTES, FLUSH_FACTOR * device->facts.cache_bytes);
    BW_GOTO(flush_make(device, flush.bytes, &flush.cool));
    BW_GOTO(flush_make(device, flush.bytes, &flush.drain));
    BW_GOTO(bw_cuda_plan_launch(device, spec, 0));  // code is loaded and scratch touched before anything is counted
    if (!state->calibrated) {
        BW_GOTO(count_range(device, state, nullptr, &flush, values));  // the first one moves more
        BW_GOTO(count_ranges(device, state, nullptr, &flush, state->flush));
        state->calibrated = true;
    }
    BW_GOTO(count_ranges(device, state, spec, &flush, values));
    out->dram_bytes_read = beyond_flush(state, spec, values, METRIC_READ);
    // Without a flush before it, a range also sees what earlier launches have written.
    out->dram_bytes_written = spec->flush_bytes ? beyond_flush(state, spec, values, METRIC_WRITTEN) : NAN;
    out->l2_bytes = beyond_flush(state, spec, values, METRIC_L2);
cleanup:
    bw_status_free(status ? wait(device) : BW_OK);
    flush_free(device, flush.drain);
    flush_free(device, flush.cool);
    return status;
}

bw_status get_state(bw_device *device, state_t **out) {
    if (!device->counters) device->counters = (state_t *)calloc(1, sizeof(state_t));
    *out = device->counters;
    return *out ? BW_OK : bw_fail(BW_CODE_MEMORY, "out of host memory for counters");
}

}  // namespace

bw_status bw_cuda_counters(bw_device *device, const bw_plan_spec *spec, bw_counters *out) {
    state_t *state;
    out->status[0] = '\0';
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(get_state(device, &state));
    if (state->failure[0]) {
        say_nothing_counted(out, state->failure);
        return BW_OK;
    }
    bw_status status = state->profiler ? BW_OK : set_up(device, state);
    if (!status) status = count_launch(device, state, spec, out);
    if (!status) return BW_OK;
    // What CUPTI refuses once it will refuse again; memory may be there the next time.
    const bw_code code = bw_status_code(status);
    say_nothing_counted(out, bw_status_message(status));
    if (code == BW_CODE_UNAVAILABLE) snprintf(state->failure, sizeof state->failure, "%s", out->status);
    tear_down(state);
    if (code != BW_CODE_UNAVAILABLE && code != BW_CODE_MEMORY) return status;
    bw_status_free(status);
    return BW_OK;
}

void bw_cuda_counters_close(bw_device *device) {
    if (!device->counters) return;
    tear_down(device->counters);
    free(device->counters);
    device->counters = nullptr;
}

#endif
