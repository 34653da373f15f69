/* CUPTI, opened on first use: what its failures mean, and kernel timestamps from its Activity API.
 *
 * Prototypes are our own: the library found at run time need not be of the toolkit that bwprof was built with, and
 * the activity API's part used here is the same in all of them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/runtime/device.h"

BW_C_BEGIN

typedef struct bw_cupti bw_cupti;

/* The device's library, opened at the first call; a failure is stored and returned by later calls. */
bw_status bw_cupti_get(bw_device *device, bw_cupti **out);

/* Path and version; BW_CODE_UNAVAILABLE where it cannot be used. */
bw_status bw_cupti_describe(bw_device *device, bw_library_info *out);

bw_status bw_cupti_symbol(const bw_cupti *library, const char *name, void *out);
/* A status from a CUPTI result, with what to do about it; 0 is success. `call` is the function's name. */
bw_status bw_cupti_status(const bw_cupti *library, int result, const char *call);

/* One kernel, copy or memset as a GPU ran it. */
typedef struct bw_kernel_span {
    uint64_t start_ns, end_ns; /* both 0 where another GPU than the tracing handle's had not finished it */
    uint32_t device, stream;   /* CUPTI's numbers of them, which it keeps; streams are numbered on each device anew */
} bw_kernel_span;

/* Tracing is the process's: BW_CODE_BUSY while another handle traces. Between begin and end every kernel, copy and
 * memset of the process is recorded (cuBLASLt clears its workspace before some of its kernels); `take` waits for
 * nothing, so they must have finished. */
bw_status bw_cupti_trace_begin(bw_device *device);
bw_status bw_cupti_trace_discard(bw_device *device);
/* Spans by start time, owned by the trace and valid until the next call. */
bw_status bw_cupti_trace_take(bw_device *device, const bw_kernel_span **spans, int64_t *count);
void bw_cupti_trace_end(bw_device *device);

/* Counting is the device's: CUPTI lets one profiler into a context, which all handles of a device share. BW_CODE_BUSY
 * while another handle has its profiler up; the handle that began ends it. */
typedef struct bw_cupti_counter {
    bw_device *device;
    void (*take_down)(bw_device *device, void *state); /* from whichever thread: it ends the counting */
    void *state;
} bw_cupti_counter;

bw_status bw_cupti_count_begin(bw_cupti_counter whose);
void bw_cupti_count_end(const bw_device *device);
bw_cupti_counter bw_cupti_count_owner(const bw_device *device); /* whose profiler is up; zeroed: nobody's */

/* Locks a device's profiler, of this or another handle. False while another thread counts; waits for one that only
 * takes the profiler down. A handle that closes waits for those who count with its own profiler. */
typedef enum bw_cupti_holder { BW_CUPTI_FREE, BW_CUPTI_COUNTS, BW_CUPTI_TAKES_DOWN, BW_CUPTI_CLOSES } bw_cupti_holder;
bool bw_cupti_count_hold(const bw_device *device, bw_cupti_holder what_for);
void bw_cupti_count_release(const bw_device *device);

/* Takes down every profiler before timing: those of this handle, and the device's, whichever handle has it up. While
 * one is up every kernel of the process starts 0.18 us later (H200, driver 580). BW_CODE_BUSY while it counts. */
bw_status bw_cuda_take_down_all_profilers(bw_device *device);

BW_C_END
