/* Finds the fastest of several ways to do a launch, timed as a case is: a graph of launches over rotating buffer sets,
 * each going on where the one before ended, so that all find their inputs equally cold. */
#pragma once

#include "cuda/runtime/device.h"

BW_C_BEGIN

enum { BW_SEARCH_MOST = 32 }; /* candidates */

typedef struct bw_search_calls {
    /* Before launches `first` to `first + launches - 1` of a candidate are captured: whatever may not be. Leaves
     * nothing on the stream. BW_CODE_UNAVAILABLE: the candidate cannot be used. */
    bw_status (*ready)(void *context, int candidate, int64_t first, int launches);
    bw_status (*enqueue)(void *context, int candidate, int64_t launch);
    void *context;
} bw_search_calls;

/* The fastest of `count` candidates, the earlier one of two that are equally fast; -1: none can be used. Nothing that
 * delays kernels may be up. */
bw_status bw_search_fastest(bw_device *device, const bw_search_calls *calls, int count, int *best);

BW_C_END
