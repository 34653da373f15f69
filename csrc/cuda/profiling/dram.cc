// DRAM and L2 bytes of launches by hardware counter.
//
// What a counted range holds: the launches, then a read of much other memory that drives their dirty lines out, so that
// their writes are counted. Before it, a read of a second block of memory makes the inputs cold and writes back what
// earlier work left dirty; a rotation is then run once as well, so that the range finds what the rotation leaves in the
// cache. The flush inside the range is always cold itself (it was last read before the other block), so its own traffic
// is the same each time: a range with nothing else in it measures that once, and it is subtracted.
//
// The launch finds a cache full of other data, not an empty one, which is what ncu makes (--cache-control all). That
// tells where blocks share lines: K/V rows of 144 bytes (head_dim 72 in 16 bits) end in the middle of a line that the
// next head's block reads as well, some time later. An H100 read 1.11 of the bytes (1.03 in a rotation), ncu with
// --cache-control none 1.07 to 1.10, ncu with its default 1.003; where rows are multiples of 128 bytes it is 1.002.
// Prefetch hints of the loads have nothing to do with it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "cuda/profiling/state.h"
#include "cuda/runtime/calls.h"

static void say_nothing_counted(bw_counters *out, const char *why) {
    out->dram_bytes_read = out->dram_bytes_written = out->l2_bytes = NAN;
    snprintf(out->status, sizeof out->status, "%s", why);
}

#ifndef BW_HAS_RANGE_PROFILER

bw_status bw_cuda_counters(bw_device *, const bw_plan_spec *, bw_counters *out) {
    say_nothing_counted(out, BW_NO_RANGE_PROFILER);
    return BW_OK;
}

#else

namespace {

using bw_profiler::metric_set;
using bw_profiler::wait;
using bw_profiler::work;
using state_t = bw_cuda_counter_state;

constexpr int PASSES_MOST = 8;  // the metrics need one on every chip known
constexpr int RANGES_LEAST = 3, RANGES_MOST = 7;
constexpr double SETTLED_BYTES = 64 << 10, SETTLED_SHARE = 1e-3;

// Newest chips last: GeForce Blackwell renamed the DRAM metrics.
const char *const metric_names[METRIC_COUNT][2] = {
    {"dram__bytes_read.sum", "dram__bytes_op_read.sum"},
    {"dram__bytes_write.sum", "dram__bytes_op_write.sum"},
    {"lts__t_bytes.sum", nullptr},
};

bw_status find_metrics(state_t *state) {
    for (int i = 0; i < METRIC_COUNT; i++) {
        for (int j = 0; j < 2 && metric_names[i][j] && !state->known[i]; j++) {
            BW_TRY(bw_profiler::knows(&state->profiler, metric_names[i][j], &state->known[i]));
            if (state->known[i]) state->bytes.names[state->bytes.count++] = metric_names[i][j];
        }
    }
    if (state->known[METRIC_READ] && state->known[METRIC_WRITTEN]) {
        return bw_profiler::set_open(&state->profiler, &state->bytes);
    }
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "CUPTI knows no DRAM counters for this GPU (chip %s): integrated GPUs have none, and a newer chip "
                   "needs a newer CUPTI",
                   state->profiler.chip);
}

// ---- one range ----

// Launches with memory to read before the range and inside it; `work` NULL: the flush alone.
struct range_context {
    bw_device *device;
    state_t *state;
    const bw_cuda_work *work;
    bw_cuda_flush cool, drain;
};

bw_status flush(bw_device *device, const bw_cuda_flush *memory) {
    return bw_cuda_flush_enqueue(device, device->stream, memory);
}

bw_status before_range(void *context) {
    const range_context *self = (const range_context *)context;
    const bw_plan_spec *spec = self->work ? self->work->spec : nullptr;
    BW_TRY(flush(self->device, &self->cool));
    return spec && !spec->flush_bytes ? bw_cuda_work_run(self->work, spec->launches) : BW_OK;
}

bw_status inside_range(void *context) {
    const range_context *self = (const range_context *)context;
    if (self->work) BW_TRY(bw_cuda_work_run(self->work, self->work->spec->launches));
    return flush(self->device, &self->drain);
}

bw_status count_range(range_context *self, double values[METRIC_COUNT]) {
    double found[METRIC_COUNT] = {};
    int passes;
    const work work = {self->device, before_range, inside_range, self};
    BW_TRY(bw_profiler::count(&self->state->profiler, &self->state->bytes, &work, PASSES_MOST, found, &passes));
    size_t next = 0;
    for (int i = 0; i < METRIC_COUNT; i++) values[i] = self->state->known[i] ? found[next++] : NAN;
    return BW_OK;
}

// Whether the median and the least of `count` (sorted) agree: what disturbs a count adds to it. NaN (not known) does.
bool is_settled(const double *sorted, int count) {
    const double middle = sorted[count / 2];
    return !(middle - sorted[0] > fmax(SETTLED_BYTES, SETTLED_SHARE * middle));
}

// The median of three ranges, or of more: whatever else the GPU does moves some hundred kilobytes now and then.
bw_status count_ranges(range_context *self, double values[METRIC_COUNT]) {
    double found[METRIC_COUNT][RANGES_MOST];
    bool settled = false;
    for (int count = 0; count < RANGES_MOST && !settled;) {
        double each[METRIC_COUNT];
        BW_TRY(count_range(self, each));
        for (int i = 0; i < METRIC_COUNT; i++) found[i][count] = each[i];
        if (++count < RANGES_LEAST || count % 2 == 0) continue;
        settled = true;
        for (int i = 0; i < METRIC_COUNT; i++) {
            bw_sort(found[i], count);
            values[i] = found[i][count / 2];
            settled = settled && is_settled(found[i], count);
        }
    }
    return BW_OK;
}

bw_status calibrate(range_context *self) {
    double values[METRIC_COUNT];
    range_context nothing = *self;
    nothing.work = nullptr;
    if (self->state->calibrated) return BW_OK;
    BW_TRY(count_range(&nothing, values));  // the first one moves more
    BW_TRY(count_ranges(&nothing, self->state->flush));
    self->state->calibrated = true;
    return BW_OK;
}

// Of each launch. Less than nothing is noise of the flush's own count.
double beyond_flush(const range_context *self, const double values[METRIC_COUNT], int metric) {
    const double beyond = values[metric] - self->state->flush[metric];
    return beyond < 0 ? 0 : beyond / (double)self->work->spec->launches;
}

bw_status count_launches(bw_device *device, state_t *state, const bw_plan_spec *spec, bw_counters *out) {
    double values[METRIC_COUNT];
    const bw_cuda_work work = bw_cuda_work_of(device, spec);
    range_context range = {device, state, &work, {}, {}};
    bw_status status = BW_OK;
    BW_GOTO(bw_counter_flush_open(device, &range.cool));
    BW_GOTO(bw_counter_flush_open(device, &range.drain));
    BW_GOTO(bw_cuda_work_run(&work, 1));  // code is loaded and scratch touched before anything is counted
    BW_GOTO(calibrate(&range));
    BW_GOTO(count_ranges(&range, values));
    out->dram_bytes_read = beyond_flush(&range, values, METRIC_READ);
    // Without a flush before it, a range also sees what earlier launches have written.
    out->dram_bytes_written = spec->flush_bytes ? beyond_flush(&range, values, METRIC_WRITTEN) : NAN;
    out->l2_bytes = beyond_flush(&range, values, METRIC_L2);
cleanup:
    bw_status_free(status ? wait(device) : BW_OK);
    bw_cuda_flush_close(device, &range.drain);
    bw_cuda_flush_close(device, &range.cool);
    return status;
}

// Sets the counting of bytes up at the first call; what CUPTI has refused once it is not asked again.
bw_status open_counters(bw_device *device, state_t *state) {
    if (state->profiler.failure[0]) return bw_fail(BW_CODE_UNAVAILABLE, "%s", state->profiler.failure);
    if (state->profiler.range) return BW_OK;
    BW_TRY(bw_counter_state_open(device, state));
    return find_metrics(state);
}

}  // namespace

bw_status bw_cuda_counters(bw_device *device, const bw_plan_spec *spec, bw_counters *out) {
    state_t *state;
    char why[sizeof out->status] = "";
    out->status[0] = '\0';
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(bw_counter_state_get(device, &state));
    bw_status status = bw_counter_state_hold(device, [&] {
        bw_status result = open_counters(device, state);
        if (!result) result = count_launches(device, state, spec, out);
        return result ? bw_counter_state_fail(device, state, result, true, why, sizeof why) : BW_OK;
    });
    if (bw_status_code(status) == BW_CODE_BUSY) {
        snprintf(why, sizeof why, "%s", bw_status_message(status));
        bw_status_free(status);
        status = BW_OK;
    }
    if (status || why[0]) say_nothing_counted(out, why);
    return status;
}

#endif
