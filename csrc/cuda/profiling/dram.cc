// DRAM and L2 bytes of launches by hardware counter.
//
// What a counted range holds: the launches, then a read of much other memory that drives their dirty lines out, so that
// their writes are counted. Before it, a read of a second block of memory makes the inputs cold and writes back what
// earlier work left dirty; a rotation is then run once as well, so that the range finds what the rotation leaves in the
// cache. The flush inside the range is always cold itself (it was last read before the other block), so its own traffic
// is the same each time: a range with nothing else in it measures that once, and it is subtracted.
//
// The launch finds a cache full of other data; in ncu it finds an empty one (--cache-control all). That tells where
// blocks share lines: for K/V rows of 144 bytes an H100 read 1.11 of the bytes, in ncu 1.003 (1.07 to 1.10 with
// --cache-control none), for rows that are multiples of 128 bytes 1.002. Prefetch hints of the loads do not matter.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "cuda/profiling/range_profiler.h"
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

using bw_profiler::profiler;
using bw_profiler::work;

constexpr int PASSES_MOST = 8;  // the metrics need one on every chip known
constexpr int RANGES_LEAST = 3, RANGES_MOST = 7;
constexpr double SETTLED_BYTES = 64 << 10, SETTLED_SHARE = 1e-3;

constexpr bw_profiler::counter counters[METRIC_COUNT] = {
    bw_profiler::DRAM_READ, bw_profiler::DRAM_WRITTEN, {{"lts__t_bytes.sum", nullptr}}};

// What CUPTI has set up once serves the next counts as well.
bw_status open_counters(bw_device *device, profiler *self) {
    if (self->range) return BW_OK;
    BW_TRY(bw_profiler::open(device, self));
    for (int i = 0; i < METRIC_COUNT; i++) BW_TRY(bw_profiler::set_add(self, counters[i], &self->bytes_at[i]));
    if (self->bytes_at[METRIC_READ] >= 0 && self->bytes_at[METRIC_WRITTEN] >= 0) return bw_profiler::set_open(self);
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "CUPTI knows no DRAM counters for this GPU (chip %s): integrated GPUs have none, and a newer chip "
                   "needs a newer CUPTI",
                   self->chip);
}

bw_status count_range(profiler *self, const work *work, double values[METRIC_COUNT]) {
    double found[METRIC_COUNT] = {};
    int passes;
    BW_TRY(bw_profiler::count(self, work, PASSES_MOST, found, &passes));
    for (int i = 0; i < METRIC_COUNT; i++) values[i] = self->bytes_at[i] >= 0 ? found[self->bytes_at[i]] : NAN;
    return BW_OK;
}

// Whether the median and the least of `count` (sorted) agree: what disturbs a count adds to it. NaN (not known) does.
bool is_settled(const double *sorted, int count) {
    const double middle = sorted[count / 2];
    return !(middle - sorted[0] > fmax(SETTLED_BYTES, SETTLED_SHARE * middle));
}

// The median of three ranges, or of more: whatever else the GPU does moves some hundred kilobytes now and then.
bw_status count_ranges(profiler *self, const work *work, double values[METRIC_COUNT]) {
    double found[METRIC_COUNT][RANGES_MOST];
    bool settled = false;
    for (int count = 0; count < RANGES_MOST && !settled;) {
        double each[METRIC_COUNT];
        BW_TRY(count_range(self, work, each));
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

bw_status calibrate(profiler *self, const work *whole) {
    double values[METRIC_COUNT];
    work flushes = *whole;
    flushes.launcher = nullptr;
    if (self->calibrated) return BW_OK;
    BW_TRY(count_range(self, &flushes, values));  // the first one moves more
    BW_TRY(count_ranges(self, &flushes, self->flush));
    self->calibrated = true;
    return BW_OK;
}

bw_status count_launches(bw_device *device, profiler *self, const bw_plan_spec *spec, bw_counters *out) {
    double values[METRIC_COUNT];
    const bw_cuda_work launcher = bw_cuda_work_of(device, spec);
    // Without a flush the range finds what a rotation leaves in the cache.
    work work = {device, &launcher, spec->flush_bytes ? 0 : spec->launches, spec->launches, {}, {}};
    bw_status status = BW_OK;
    BW_GOTO(bw_profiler::flush_open(device, &work.flush_ahead));
    BW_GOTO(bw_profiler::flush_open(device, &work.flush));
    BW_GOTO(bw_cuda_work_run(&launcher, 1));  // code is loaded and scratch touched before anything is counted
    BW_GOTO(calibrate(self, &work));
    BW_GOTO(count_ranges(self, &work, values));
    for (int i = 0; i < METRIC_COUNT; i++) {  // of each launch; less than nothing is noise of the flush's own count
        const double beyond = values[i] - self->flush[i];
        values[i] = beyond < 0 ? 0 : beyond / (double)spec->launches;
    }
    out->dram_bytes_read = values[METRIC_READ];
    // Without a flush before it, a range also sees what earlier launches have written.
    out->dram_bytes_written = spec->flush_bytes ? values[METRIC_WRITTEN] : NAN;
    out->l2_bytes = values[METRIC_L2];
cleanup:
    bw_status_free(status ? bw_profiler::wait(&work) : BW_OK);
    bw_cuda_flush_close(device, &work.flush);
    bw_cuda_flush_close(device, &work.flush_ahead);
    return status;
}

}  // namespace

bw_status bw_cuda_counters(bw_device *device, const bw_plan_spec *spec, bw_counters *out) {
    char why[sizeof out->status];
    bw_status status = bw_profiler::run(device, true, why, sizeof why, [&](profiler *self) {
        BW_TRY(open_counters(device, self));
        return count_launches(device, self, spec, out);
    });
    out->status[0] = '\0';
    if (status || why[0]) say_nothing_counted(out, why);
    return status;
}

#endif
