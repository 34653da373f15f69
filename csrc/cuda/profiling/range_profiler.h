// CUPTI's Range Profiler, user range and user replay: what dram.cc and metrics.cc share. A set of metrics is
// configured once; counting it runs the same work as many times as CUPTI asks for.
//
// C++ because cupti_profiler_host.h is; nothing here throws, and nothing of CUPTI's is linked.
#pragma once

#include "cuda/libraries/cupti.h"

#if defined(__has_include)
#if __has_include(<cupti_range_profiler.h>) && __has_include(<cupti_profiler_host.h>) && __has_include(<cupti_target.h>)
#define BW_HAS_RANGE_PROFILER 1
#endif
#endif

#define BW_NO_RANGE_PROFILER                                                              \
    "bwprof was built without CUPTI's headers (CUDA 12.6 or newer has the ones needed): " \
    "install the toolkit's cuda-cupti-dev and build again"

#ifdef BW_HAS_RANGE_PROFILER

#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

namespace bw_profiler {

// X(CUPTI's function)
#define BW_PROFILER_CALLS(X)                        \
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

struct image {
    uint8_t *data;
    size_t size;
};

constexpr size_t METRICS_MOST = BW_METRICS_MAX;

// Metrics that are counted together, by names that the chip knows.
struct metric_set {
    const char *names[METRICS_MOST];  // static text
    size_t count;
    CUpti_Profiler_Host_Object *host;
    image config, data;
};

// Of one device; as calloc makes it, it is closed.
struct profiler {
    bw_cupti *library;
    char failure[480];  // why there are no counters; "" = none so far
    bool claimed, initialized;
    char chip[64];
    image availability;
    CUpti_RangeProfiler_Object *range;
#define BW_PROFILER_MEMBER(name) decltype(&::name) name;
    BW_PROFILER_CALLS(BW_PROFILER_MEMBER)
#undef BW_PROFILER_MEMBER
};

// What is done in each pass: `before` the range and `inside` it. Both may enqueue; they are waited for.
struct work {
    bw_device *device;
    bw_status (*before)(void *context);
    bw_status (*inside)(void *context);
    void *context;
};

// One set for each time that it is opened: an enabled profiler goes on with the first configuration that it gets,
// whatever it is told later, and one that was only disabled and then enabled again crashed the process (H200, CUPTI
// 13.0). Taken down completely and set up anew, as `close` and `open` do, it works as often as one likes. `take_down`
// is for whoever times on the device meanwhile (bw_cupti_counter).
bw_status open(bw_device *device, profiler *self, void (*take_down)(bw_device *, void *), void *state);
void close(bw_device *device, profiler *self);  // but for `failure`, which stays

// One unknown name fails a whole configuration: each is asked for by itself.
bw_status knows(profiler *self, const char *name, bool *out);

// `set` holds the names; whatever happens it is to be closed.
bw_status set_open(profiler *self, metric_set *set);
void set_close(profiler *self, metric_set *set);

// One value for each name, in as many passes as that takes; BW_CODE_UNAVAILABLE when CUPTI wants more than `most`.
bw_status count(profiler *self, const metric_set *set, const work *work, int most, double *values, int *passes);

bw_status wait(bw_device *device);

}  // namespace bw_profiler

#endif
