// wgmma.cuh's tiles of elements of eight bits, of which `prepare` takes the fastest.
#include <stdlib.h>

#include "cuda/kernels/gemm/wgmma.cuh"
#include "cuda/libraries/plans.h"

namespace {

// Two warpgroups with 256 columns take them by halves and in turns: sums of one half are added up in FP32 while the
// tensor cores have the other's. Few rows of A: one warpgroup, two blocks a multiprocessor.
using widest = wgmma_tile<2, 256, 128, 1, 1, 1, 1>;
using wide = wgmma_tile<2, 192>;
using square = wgmma_tile<2, 128>;
using high = wgmma_tile<3, 128>;
using few_rows = wgmma_tile<1, 64, 64, 1, 1, 2>;
using narrow = wgmma_tile<2, 64, 64, 1, 1, 2>;

template <typename T, typename... tiles>
int choose_among(const bw_dims *dims, const bw_precision *precision, int units, int number, bw_cuda_launch_spec *out) {
    int i = 0;
    (void)((i++ == number && (choose<tiles, T>(dims, precision, units, out), true)) || ...);
    return (int)sizeof...(tiles);
}

// Returns how many tiles there are; number < 0: chooses none.
int choose_tile(const bw_dims *dims, const bw_precision *precision, int units, int number, bw_cuda_launch_spec *out) {
    if (precision->weight == BW_INT8) return choose_among<int8_t, few_rows, square>(dims, precision, units, number, out);
    return choose_among<bw_e4m3, few_rows, square, widest, wide, high, narrow, wgmma_tile<2, 256, 128>,
                        wgmma_tile<3, 128, 128, 1, 1, 1, 1>, wgmma_tile<2, 192, 192, 1, 1, 1, 1>,
                        wgmma_tile<1, 128, 128, 1, 1, 2>>(dims, precision, units, number, out);
}

// The first plan is what most shapes should do.
bw_status choose_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int plan,
                      bw_cuda_launch_spec *out) {
    const int count = choose_tile(dims, precision, facts->units, -1, out);
    const int first = dims->value[BW_GEMM_M] <= 64 ? 0 : dims->value[BW_GEMM_M] > 1024 && count > 2 ? 2 : 1;
    const char *trial = getenv("BW_TRIAL");
    choose_tile(dims, precision, facts->units, trial ? atoi(trial) : (first + plan) % count, out);
    return BW_OK;
}

uint64_t key_of(const bw_dims *dims, const bw_precision *precision) {
    uint64_t key = bw_plan_key_mix(bw_plan_key_mix(BW_PLAN_KEY, BW_GEMM_M), precision->id);
    for (int i = BW_GEMM_M; i <= BW_GEMM_BETA; i++) key = bw_plan_key_mix(key, dims->value[i]);
    return key;
}

}  // namespace

bw_status bw_wgmma_eight_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                bw_cuda_launch_spec *out) {
    const int count = choose_tile(dims, precision, facts->units, -1, out);
    const bw_plan_cache *cache = facts->own ? facts->own->plans : nullptr;
    const int found = bw_plan_cache_find(cache, key_of(dims, precision), count, false);
    return choose_plan(dims, precision, facts, found < 0 ? 0 : found, out);
}

bw_status bw_wgmma_eight_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    const bw_launch &launch = sets[0];
    const int count = choose_tile(launch.dims, launch.precision, 1, -1, nullptr);
    return bw_cuda_prepare_fastest(sets, set_count, key_of(launch.dims, launch.precision), choose_plan,
                                   getenv("BW_TRIAL") ? 1 : count, state);
}
