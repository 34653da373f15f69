/* Chooses a launch's plan by timing all of them. */
#include "cuda/libraries/plans.h"

#include <stdlib.h>

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

typedef struct plan_search {
    const bw_launch *sets;
    int64_t set_count;
    bw_cuda_choose_by_plan *choose;
    bw_cuda_ready_plan *ready; /* or NULL */
    bw_cuda_launch_spec *spec; /* of the candidate that is timed */
} plan_search;

static bw_status make_plan_ready(plan_search *self, int candidate, int64_t first, int64_t launches) {
    const bw_launch *launch = &self->sets[0];
    free(self->spec->maps);
    *self->spec = (bw_cuda_launch_spec){0};
    BW_TRY(self->choose(launch->dims, launch->precision, &launch->device->facts, candidate, self->spec));
    BW_TRY(bw_cuda_prepare_spec(self->sets, self->set_count, self->spec));
    return self->ready ? self->ready(self->sets, self->set_count, candidate, first, launches, self->spec) : BW_OK;
}

static bw_status ready_plan(void *context, int candidate, int64_t first, int launches) {
    return make_plan_ready(context, candidate, first, launches);
}

static bw_status enqueue_plan(void *context, int candidate, int64_t launch) {
    plan_search *self = context;
    bw_launch set = self->sets[launch % self->set_count];
    (void)candidate;
    set.state = self->spec;
    return bw_cuda_prepared_launch(&set);
}

bw_status bw_cuda_prepare_fastest_ready(const bw_launch *sets, int64_t set_count, uint64_t key,
                                        bw_cuda_choose_by_plan *choose, bw_cuda_ready_plan *ready, int count,
                                        void **state) {
    bw_cuda_launch_spec *spec = calloc(1, sizeof *spec);
    if (!spec) return bw_fail(BW_CODE_MEMORY, "out of host memory for a prepared launch");
    plan_search search = {sets, set_count, choose, ready, spec};
    const bw_search_calls calls = {ready_plan, enqueue_plan, &search};
    int best = 0;
    bw_status status = bw_cuda_choose_plan(sets, set_count, key, &calls, count, &best);
    if (!status) status = make_plan_ready(&search, best, 0, set_count);
    if (status) {
        bw_cuda_prepared_release(spec);
        return status;
    }
    *state = spec;
    return BW_OK;
}

bw_status bw_cuda_prepare_fastest(const bw_launch *sets, int64_t set_count, uint64_t key,
                                  bw_cuda_choose_by_plan *choose, int count, void **state) {
    return bw_cuda_prepare_fastest_ready(sets, set_count, key, choose, NULL, count, state);
}
