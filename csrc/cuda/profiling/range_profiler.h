// CUPTI's Range Profiler, user range and user replay: what dram.cc and metrics.cc share. A set of metrics is
// configured once; counting it runs the same work as many times as CUPTI asks for.
//
// C++ because cupti_profiler_host.h is; nothing here throws, and nothing of CUPTI's is linked.
#pragma once

#include "cuda/launch/flush.h"
#include "cuda/libraries/cupti.h"
#include "cuda/timing/work.h"

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

enum { METRIC_READ, METRIC_WRITTEN, METRIC_L2, METRIC_COUNT };

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

// A counter, by CUPTI's names for it: the first one that a chip knows is taken.
struct counter {
    const char *names[2];
};

// GeForce Blackwell renamed them.
constexpr counter DRAM_READ = {{"dram__bytes_read.sum", "dram__bytes_op_read.sum"}};
constexpr counter DRAM_WRITTEN = {{"dram__bytes_write.sum", "dram__bytes_op_write.sum"}};

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
    metric_set set;
    bool calibrated;             // for bytes (dram.cc)
    int bytes_at[METRIC_COUNT];  // their places in the set; -1: the chip does not know it
    double flush[METRIC_COUNT];  // what the flush inside a range moves by itself
#define BW_PROFILER_MEMBER(name) decltype(&::name) name;
    BW_PROFILER_CALLS(BW_PROFILER_MEMBER)
#undef BW_PROFILER_MEMBER
};

// What is done in each pass: ahead of the range a flush and launches, in the range launches and a flush. A flush that
// is not open does nothing.
struct work {
    bw_device *device;
    const bw_cuda_work *launcher;  // NULL: there are flushes alone
    int64_t launches_ahead, launches;
    bw_cuda_flush flush_ahead, flush;
};

// A flush that drives out whatever the cache holds, dirty lines and all.
bw_status flush_open(bw_device *device, bw_cuda_flush *out);

// One set for each time that it is opened: an enabled profiler keeps the first configuration that it gets, and one that
// was only disabled and enabled again crashed the process (H200, CUPTI 13.0). So `close` takes it down completely.
bw_status open(bw_device *device, profiler *self);
void close(bw_device *device, profiler *self);  // but for `failure`, which stays

// The counter joins the set, unless it is in it: its value comes `at` this place, -1: the chip does not know it.
bw_status set_add(profiler *self, const counter &wanted, int *at);
// Configures the set; nothing is added from then on.
bw_status set_open(profiler *self);

// One value for each name, in as many passes as that takes; BW_CODE_UNAVAILABLE when CUPTI wants more than `most`.
bw_status count(profiler *self, const work *work, int most, double *values, int *passes);

bw_status wait(const work *work);

// Locks the device's profiler. NULL, and the reason, while another handle counts.
bw_status hold(bw_device *device, char *why, size_t why_size, profiler **out);
// Takes the profiler down if counting failed, and unlocks it. `why` gets the reason, and so does every later call if no
// profiler could be opened or `remember` is set. Errors that are not about counters are returned.
bw_status release(bw_device *device, profiler *self, bw_status status, bool remember, char *why, size_t why_size);

template <typename Count>
bw_status run(bw_device *device, bool remember, char *why, size_t why_size, Count count) {
    profiler *self = nullptr;
    BW_TRY(hold(device, why, why_size, &self));
    if (!self) return BW_OK;
    const bw_status status = self->failure[0] ? bw_fail(BW_CODE_UNAVAILABLE, "%s", self->failure) : count(self);
    return release(device, self, status, remember, why, why_size);
}

}  // namespace bw_profiler

#endif
