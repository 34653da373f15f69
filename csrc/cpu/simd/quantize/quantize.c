/* silu_mul_quantize: tokens shared among the threads. A token's numbers lie in a thread's own room, in its cache, until
 * their scale is known; or, unfused, as results in memory. */
#include "ops/families/quantize.h"

#include "cpu/device.h"
#include "cpu/simd/simd.h"

/* Room for a token's floats, of each thread. */
static int64_t room_floats(const bw_dims *dims) {
    return bw_round_up(dims->value[BW_QUANTIZE_HIDDEN], BW_SIMD_FLOATS);
}

static int64_t fused_workspace_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision;
    return facts ? facts->units * room_floats(dims) * (int64_t)sizeof(float) : 0;
}

/* Elements [first, first + count) of silu(gate) * up, to elements from `to_first` on; their largest size. By e^-|gate|,
 * which does not overflow: gate / (1 + e^-gate) is gate e^gate / (e^gate + 1), too. */
BW_INLINE float silu_elements(bw_dtype to_dtype, const bw_launch *launch, int64_t first, int64_t count, void *to,
                              int64_t to_first) {
    const void *gates = launch->operand[BW_QUANTIZE_GATE], *ups = launch->operand[BW_QUANTIZE_UP];
    bw_vf largest = bw_vf_set(0.0f);
    for (int64_t i = 0; i < count; i += BW_SIMD_FLOATS) {
        const bw_vf gate = bw_vf_load_as_upto(BW_FP16, gates, first + i, count - i);
        const bw_vf up = bw_vf_load_as_upto(BW_FP16, ups, first + i, count - i);
        const bw_vf small = bw_vf_exp(-bw_vf_max(gate, -gate)), above = bw_vf_max(bw_vf_set(0.0f), gate);
        const bw_vf y = bw_vf_fma(gate - above, small, above) / (small + 1.0f) * up;
        largest = bw_vf_max(largest, bw_vf_max(y, -y));
        bw_vf_store_as_upto(to_dtype, to, to_first + i, y, count - i);
    }
    return bw_vf_largest(largest);
}

static void fused_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    const int64_t hidden = launch->dims->value[BW_QUANTIZE_HIDDEN];
    float *room = (float *)launch->workspace + rank * room_floats(launch->dims);
    float *scales = launch->operand[BW_QUANTIZE_OUT_SCALE];
    void *out = launch->operand[BW_QUANTIZE_OUT];
    int64_t token, last;
    bw_pool_share(launch->dims->value[BW_QUANTIZE_TOKENS], rank, ranks, &token, &last);
    for (; token < last; token++) {
        const float largest = silu_elements(BW_FP32, launch, token * hidden, hidden, room, 0);
        const float scale = largest / bw_dtype_largest(BW_FP8_E4M3);
        const bw_vf factor = bw_vf_set(scale > 0x1p-100f ? 1.0f / scale : 0.0f); /* smaller ones have no reciprocal */
        for (int64_t i = 0; i < hidden; i += BW_SIMD_FLOATS) {
            const bw_vf y = bw_vf_load_as_upto(BW_FP32, room, i, hidden - i);
            bw_vf_store_as_upto(BW_FP8_E4M3, out, token * hidden + i, y * factor, hidden - i);
        }
        scales[token] = scale;
    }
}

static void silu_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    int64_t first, last;
    bw_pool_share_units(launch->dims->value[BW_QUANTIZE_TOKENS] * launch->dims->value[BW_QUANTIZE_HIDDEN],
                        BW_SIMD_FLOATS, rank, ranks, &first, &last);
    silu_elements(BW_FP16, launch, first, last - first, launch->scratch, first);
}

static void kept_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    const int64_t hidden = launch->dims->value[BW_QUANTIZE_HIDDEN];
    int64_t token, last;
    bw_pool_share(launch->dims->value[BW_QUANTIZE_TOKENS], rank, ranks, &token, &last);
    float *scales = launch->operand[BW_QUANTIZE_OUT_SCALE];
    for (; token < last; token++) {
        bw_quantize_row(BW_FP8_E4M3, BW_FP16, launch->scratch, token * hidden, hidden, launch->operand[BW_QUANTIZE_OUT],
                        token * hidden, scales + token);
    }
}

static bw_status fused_launch(const bw_launch *launch) {
    bw_pool_run(launch->device->pool, fused_share, (void *)(uintptr_t)launch);
    return BW_OK;
}

static bw_status unfused_launch(const bw_launch *launch) {
    bw_pool_run(launch->device->pool, silu_share, (void *)(uintptr_t)launch);
    bw_pool_run(launch->device->pool, kept_share, (void *)(uintptr_t)launch);
    return BW_OK;
}

static const bw_variant rows[] = {
    {.name = "unfused",
     .text = "silu(gate) * up in 16 bits to memory, then tokens quantized",
     .prediction = {.changes = "the baseline: silu(gate) * up in 16 bits, then tokens quantized"},
     .precisions = BW_MASK(FP8_E4M3),
     .scratch_bytes = bw_silu_unfused_scratch,
     .extra_cost = bw_silu_unfused_cost,
     .launch = unfused_launch},
    BW_CPU_ROW_IN(
        BW_MASK(FP8_E4M3), "fused", fused, .workspace_bytes = fused_workspace_bytes,
        .text = "one pass, a token's numbers in a thread's cache",
        .prediction = {.changes = "one pass over gate and up, a token's numbers in the cache",
                       .predicted = 1.2,
                       .because = "5 bytes an element are moved, not 9, but e^x takes longer than its bytes"}),
};
const bw_variant_table BW_CPU_TABLE(silu_mul_quantize) = {rows, 2, "fp8_e4m3 tokens=4096 hidden=14336"};
