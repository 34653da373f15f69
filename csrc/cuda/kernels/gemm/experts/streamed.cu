// moe_gemm through streamed.cuh: what it refuses, how its launches are shared out, weights of each format.
#include "cuda/kernels/gemm/experts/streamed.cuh"
#include "cuda/libraries/plans.h"

namespace {

constexpr int most_plans = 10;

// How a launch is shared out: more rows of B in a tile share what is done for A, fewer leave more tiles; fewer warps
// have less to add up, more of them read a short tile at once. Which is best is timed, but for the height where
// weights have 4 bits: there instructions decide, and the taller ones won wherever both were timed. The first is a
// guess for single launches.
int list_plans(const bw_dims *dims, const bw_precision *precision, bw_streamed_plan out[most_plans]) {
    const bool wide = bw_dtype_bytes(precision->weight, bw_tile_weights) >= bw_tile_weights;
    const bool few = rows_of_fullest(dims) <= 8, both = wide || few;
    const int pieces = (int)(dims->value[BW_MOE_K] / bw_tile_weights);
    int count = 0;
    out[count++] = {wide || !few, pieces < 4 ? pieces : 4};
    for (const bool taller : {true, false}) {
        for (const int warps : {1, 2, 3, 4, most_warps}) {
            const bool first = taller == out[0].taller && warps == out[0].warps;
            if (warps <= pieces && !first && (taller || both)) out[count++] = {taller, warps};
        }
    }
    return count;
}

bw_status choose_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, int number,
                      bw_cuda_launch_spec *out) {
    bw_streamed_plan plans[most_plans];
    list_plans(dims, precision, plans);
    const bw_streamed_plan &plan = plans[number];
    switch (precision->id) {
        case BW_PRECISION_FP16: return choose_rows<__half, half_weights>(dims, precision, facts, plan, out);
        case BW_PRECISION_BF16: return choose_rows<__nv_bfloat16, half_weights>(dims, precision, facts, plan, out);
        case BW_PRECISION_INT8: return choose_rows<int8_t, eight_weights<false>>(dims, precision, facts, plan, out);
        case BW_PRECISION_FP8_E4M3:
        case BW_PRECISION_FP8_TENSOR:
        case BW_PRECISION_FP8_BLOCK: return bw_streamed_e4m3_choose(dims, precision, facts, &plan, out);
        default: break;
    }
    return by_weights(precision, [&](auto tag) {
        using Weights = typename decltype(tag)::type;
        return choose_rows<typename Weights::activation, Weights>(dims, precision, facts, plan, out);
    });
}

bw_status first_plan(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                     bw_cuda_launch_spec *out) {
    return choose_plan(dims, precision, facts, 0, out);
}

}  // namespace

const char *bw_streamed_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    const char *reason = bw_products_refuse(precision, facts);
    if (reason) return reason;
    if (precision->compute == BW_INT8 && value[BW_MOE_K] > INT32_MAX / (128 * 128))
        return "sums of more than 131071 products of INT8 may pass 2^31";
    if (value[BW_MOE_K] % bw_tile_weights != 0) return "streamed takes rows of a multiple of 256 elements";
    if (value[BW_MOE_N] < most_tile_rows || value[BW_MOE_N] > most_n) return "streamed takes 64 to 2^30 rows of B";
    if (value[BW_MOE_K] > most_k) return "streamed takes rows of at most 2^20 elements";
    const bw_checked_int tiles =
        bw_mul(bw_num(bw_ceil_div(value[BW_MOE_N], tile_rows)), bw_num(value[BW_MOE_TOKENS] * value[BW_MOE_TOP_K]));
    if (tiles.overflow || tiles.value > INT32_MAX / 2) return "more than 2^30 tiles of 16 rows of B for a row of D";
    return nullptr;
}

bw_status bw_streamed_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, first_plan, out);
}

bw_status bw_streamed_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    const bw_dims *dims = sets[0].dims;
    bw_streamed_plan plans[most_plans];
    uint64_t key = bw_plan_key_mix(BW_PLAN_KEY, sets[0].precision->id);
    for (int i = BW_MOE_TOKENS; i <= BW_MOE_K; i++) key = bw_plan_key_mix(key, dims->value[i]);
    return bw_cuda_prepare_fastest(sets, set_count, key, choose_plan, list_plans(dims, sets[0].precision, plans),
                                   state);
}
