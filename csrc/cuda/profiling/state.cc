// Opens and closes the profiler that a device's counts share.
#include "cuda/profiling/state.h"

#ifdef BW_HAS_RANGE_PROFILER

#include <stdio.h>
#include <string.h>

#include "cuda/runtime/attachments.h"

static constexpr int64_t FLUSH_FACTOR = 8;  // times the L2: the last few dirty lines are slow to go
static constexpr int64_t FLUSH_LEAST_BYTES = 64 << 20;

bw_status bw_counter_flush_open(bw_device *device, bw_cuda_flush *out) {
    const int64_t bytes = bw_max64(FLUSH_LEAST_BYTES, FLUSH_FACTOR * device->facts.cache_bytes);
    return bw_cuda_flush_open(device, device->stream, BW_FLUSH_READ, bytes, out);
}

static void take_down(bw_device *device, void *state) {
    bw_counter_state_close(device, (bw_cuda_counter_state *)state);
}

static void release_profiler(bw_device *device, void *state) {
    // A thread that counts with this profiler, or is about to be refused it, must end first: the handle may go next.
    if (!bw_cupti_count_hold(device, BW_CUPTI_CLOSES)) return;
    take_down(device, state);
    bw_cupti_count_release(device);
}

static const bw_cuda_part part = {sizeof(bw_cuda_counter_state), nullptr, release_profiler};

bw_status bw_counter_state_get(bw_device *device, bw_cuda_counter_state **out) {
    void *state;
    BW_TRY(bw_cuda_attach(device, &part, &state));
    *out = (bw_cuda_counter_state *)state;
    return BW_OK;
}

bw_status bw_counter_state_open(bw_device *device, bw_cuda_counter_state *state) {
    return bw_profiler::open(device, &state->profiler, take_down, state);
}

void bw_counter_state_close(bw_device *device, bw_cuda_counter_state *state) {
    bw_profiler::set_close(&state->profiler, &state->bytes);
    bw_profiler::close(device, &state->profiler);
    state->calibrated = false;
    memset(state->known, 0, sizeof state->known);
}

bw_status bw_counter_state_fail(bw_device *device, bw_cuda_counter_state *state, bw_status status, bool remember,
                                char *message, size_t message_size) {
    const bw_code code = bw_status_code(status);
    char *failure = state->profiler.failure;
    snprintf(message, message_size, "%s", bw_status_message(status));
    // What CUPTI refuses once it will refuse again; memory may be there the next time.
    if (remember && code == BW_CODE_UNAVAILABLE) snprintf(failure, sizeof state->profiler.failure, "%s", message);
    bw_counter_state_close(device, state);
    if (code != BW_CODE_UNAVAILABLE && code != BW_CODE_MEMORY && code != BW_CODE_BUSY) return status;
    bw_status_free(status);
    return BW_OK;
}

#endif
