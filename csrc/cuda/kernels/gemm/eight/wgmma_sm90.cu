// wgmma.cuh's tiles of elements of eight bits, of which `prepare` takes the fastest.
#include "cuda/kernels/gemm/wgmma.cuh"
#include "cuda/libraries/plans.h"

namespace {

// Few rows of A: one warpgroup, two blocks a multiprocessor. Wider tiles than `square` read less, but have no registers
// for two sums.
using few_rows = wgmma_tile<1, 64, 2>;
using square = wgmma_tile<2, 128>;

template <typename T, bool grouped, typename... tiles>
int choose_among(const bw_dims *dims, const bw_precision *precision, int units, int number, bw_cuda_launch_spec *out) {
    const bw_address c = bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C);
    int i = 0;
    (void)((i++ == number && (choose<tiles, T, grouped>(dims, precision, units, c, out), true)) || ...);
    return (int)sizeof...(tiles);
}
// Returns how many tiles there are; number < 0: chooses none.
int choose_tile(const bw_dims *dims, const bw_precision *precision, int units, int number, bw_cuda_launch_spec *out) {
    if (precision->weight == BW_INT8)
        return choose_among<int8_t, false, few_rows, square>(dims, precision, units, number, out);
    return bw_gemm_has_groups(precision)
               ? choose_among<bw_e4m3, true, few_rows, square>(dims, precision, units, number, out)
               : choose_among<bw_e4m3, false, few_rows, square>(dims, precision, units, number, out);
}

// The first plan is what most shapes should do.
bw_status choose_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int plan,
                      bw_cuda_launch_spec *out) {
    const int count = choose_tile(dims, precision, facts->units, -1, out);
    const int first = dims->value[BW_GEMM_M] <= 64 ? 0 : 1;
    choose_tile(dims, precision, facts->units, (first + plan) % count, out);
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
    return bw_cuda_prepare_fastest(sets, set_count, key_of(launch.dims, launch.precision), choose_plan, count, state);
}
