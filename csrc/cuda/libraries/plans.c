/* Chooses a launch's plan by timing all of them. */
#include "cuda/libraries/plans.h"

#include "cuda/libraries/cupti.h"

/* *best = -1: nothing can be timed. */
static bw_status find_fastest(bw_device *device, const bw_search_calls *calls, int count, int *best) {
    *best = -1;
    bw_status status = bw_cuda_take_down_all_profilers(device);
    if (bw_status_code(status) == BW_CODE_BUSY) { /* another device handle counts */
        bw_status_free(status);
        return BW_OK;
    }
    BW_TRY(status);
    BW_TRY(bw_search_fastest(device, calls, count, best));
    if (*best < 0) *best = 0;
    return BW_OK;
}

bw_status bw_cuda_choose_plan(const bw_launch *sets, int64_t set_count, uint64_t key, const bw_search_calls *calls,
                              int count, int *best) {
    bw_device *device = sets[0].device;
    const bool cold = set_count > 1;
    int found = bw_plan_cache_find(&device->plans, key, count, cold);
    if (found < 0 && !sets[0].once && count > 1) {
        BW_TRY(find_fastest(device, calls, count, &found));
        if (found >= 0) bw_plan_cache_store(&device->plans, key, found, cold);
    }
    if (found >= count) return bw_fail(BW_CODE_UNSUPPORTED, "this shape has %d plans", count);
    *best = found < 0 ? 0 : found;
    return BW_OK;
}
