// A device's profiler and the memory that flushes its cache, shared by counting bytes (dram.cc) and metrics
// (metrics.cc).
#pragma once

#include "cuda/launch/flush.h"
#include "cuda/profiling/range_profiler.h"
#include "cuda/timing/work.h"

#ifdef BW_HAS_RANGE_PROFILER

enum { METRIC_READ, METRIC_WRITTEN, METRIC_L2, METRIC_COUNT };

struct bw_cuda_counter_state {
    bw_profiler::profiler profiler;
    bw_profiler::metric_set bytes;
    bool known[METRIC_COUNT];  // which of them are in the set, in this order
    bool calibrated;
    double flush[METRIC_COUNT];  // what the flush inside a range moves by itself
};

// A flush that drives out whatever the cache holds, dirty lines and all.
bw_status bw_counter_flush_open(bw_device *device, bw_cuda_flush *out);

bw_status bw_counter_state_get(bw_device *device, bw_cuda_counter_state **out);
// Locks the device's profiler while `count` uses it. BW_CODE_BUSY while another handle counts.
template <typename Count>
bw_status bw_counter_state_hold(bw_device *device, Count count) {
    if (!bw_cupti_count_hold(device, BW_CUPTI_COUNTS)) {
        return bw_fail(BW_CODE_BUSY, "another device handle of this process is counting: count when it has finished");
    }
    const bw_status status = count();
    bw_cupti_count_release(device);
    return status;
}
// Sets the profiler up; see bw_profiler::open.
bw_status bw_counter_state_open(bw_device *device, bw_cuda_counter_state *state);
// Takes the profiler down, so that it can be set up for something else.
void bw_counter_state_close(bw_device *device, bw_cuda_counter_state *state);
// Takes the profiler down after a failure; `message` gets the reason, and with `remember` so does every
// later call. Errors that are not about counters are returned.
bw_status bw_counter_state_fail(bw_device *device, bw_cuda_counter_state *state, bw_status status, bool remember,
                                char *message, size_t message_size);

#endif
