/* Which of several plans for a launch is the fastest: timed once, and kept as long as its device is open. */
#pragma once

#include "backend/backend.h"
#include "cuda/launch/prepared.h"
#include "cuda/launch/search.h"
#include "cuda/runtime/plan_cache.h"

BW_C_BEGIN

/* `key`: a hash of what the plans depend on (bw_plan_key_mix). *best is the plan of a single launch (`once`): 0; the
 * one that an earlier search found; or the fastest now: 0 where none can be used, so that its own launch says why, and
 * where another device handle counts, so that nothing can be timed. Fails where a test forces a plan that there is not.
 */
bw_status bw_cuda_choose_plan(const bw_launch *sets, int64_t set_count, uint64_t key, const bw_search_calls *calls,
                              int count, int *best);

/* A variant's `choose` with the number of a plan; and its `prepare`, with the fastest of `count` plans. */
typedef bw_status bw_cuda_choose_by_plan(const bw_dims *dims, const bw_precision *precision,
                                         const bw_device_facts *facts, int plan, bw_cuda_launch_spec *out);
bw_status bw_cuda_prepare_fastest(const bw_launch *sets, int64_t set_count, uint64_t key,
                                  bw_cuda_choose_by_plan *choose, int count, void **state);

/* Prepares what a plan needs before `launches` launches from `first` on. Fails with
 * BW_CODE_UNAVAILABLE where the plan cannot be used. */
typedef bw_status bw_cuda_ready_plan(const bw_launch *sets, int64_t set_count, int plan, int64_t first,
                                     int64_t launches, bw_cuda_launch_spec *spec);
bw_status bw_cuda_prepare_fastest_ready(const bw_launch *sets, int64_t set_count, uint64_t key,
                                        bw_cuda_choose_by_plan *choose, bw_cuda_ready_plan *ready, int count,
                                        void **state);

BW_C_END
