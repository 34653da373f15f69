/* Element-wise operations of one or two arrays. One variant each, `vector`: threads share whole pages; large results
 * are written past the caches, by the walk that a copy, or a triad, takes on this device. */
#include "ops/families/elementwise.h"

#include "cpu/simd/elementwise/map.h"

BW_INLINE bw_vf relu(bw_dtype dtype, const bw_map *map, int64_t i, bw_vf x, bw_vf unused) {
    (void)dtype, (void)map, (void)i, (void)unused;
    return bw_vf_max(bw_vf_set(0.0f), x); /* a NaN is the second argument's */
}

/* 2^x for -126 < x <= 0, within 2 units in the last place: a whole number, added to the exponent, and a polynomial. */
BW_INLINE bw_vf exp2_of(bw_vf x) {
    const bw_vf round_at = bw_vf_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    const bw_vf shifted = x + round_at, rest = x - (shifted - round_at);
    bw_vf p = bw_vf_fma(bw_vf_set(0.00132764713f), rest, bw_vf_set(0.00967554096f));
    p = bw_vf_fma(p, rest, bw_vf_set(0.0555071309f));
    p = bw_vf_fma(p, rest, bw_vf_set(0.240221202f));
    p = bw_vf_fma(p, rest, bw_vf_set(0.693146944f));
    p = bw_vf_fma(p, rest, bw_vf_set(1.00000012f));
    return (bw_vf)((bw_vu)p + ((bw_vu)shifted << 23));
}

/* max(x, 0) less |x| times the normal distribution's share above it: neither cancels where it matters. */
BW_INLINE bw_vf gelu(bw_dtype dtype, const bw_map *map, int64_t i, bw_vf x, bw_vf unused) {
    (void)dtype, (void)map, (void)i, (void)unused;
    static const float power[BW_TAIL_TERMS] = BW_TAIL_POWERS;
    const bw_vf below = bw_vf_max(bw_vf_set(-BW_TAIL_END), (bw_vf)((bw_vu)x | 0x80000000u)); /* -min(|x|, end) */
    bw_vf sum = bw_vf_set(power[0]);
#pragma GCC unroll 9
    for (int term = 1; term < BW_TAIL_TERMS; term++) {
        sum = bw_vf_fma(sum, below, bw_vf_set((BW_TAIL_TERMS - 1 - term) % 2 ? -power[term] : power[term]));
    }
    return bw_vf_fma(below, exp2_of(sum), bw_vf_max(bw_vf_set(0.0f), x));
}

BW_INLINE bw_vf residual_add(bw_dtype dtype, const bw_map *map, int64_t i, bw_vf x, bw_vf residual) {
    (void)dtype, (void)map, (void)i;
    return x + residual;
}

/* By e^-|gate|, which does not overflow: gate / (1 + e^-gate) is gate e^gate / (e^gate + 1), too. */
BW_INLINE bw_vf silu_mul(bw_dtype dtype, const bw_map *map, int64_t i, bw_vf gate, bw_vf up) {
    (void)dtype, (void)map, (void)i;
    const bw_vf size = (bw_vf)((bw_vu)gate | 0x80000000u) * 1.44269504f; /* in powers of 2, negative */
    const bw_vf least = bw_vf_set(-126.0f); /* 0 below it: what is left there would grow with the gate */
    const bw_vf small = (bw_vf)((bw_vu)exp2_of(bw_vf_max(size, least)) & (bw_vu)(size > least));
    const bw_vf above = bw_vf_max(bw_vf_set(0.0f), gate), below = bw_vf_max(bw_vf_set(0.0f), -gate);
    return bw_vf_fma(-below, small, above) / (small + 1.0f) * up;
}

typedef struct element_task {
    const bw_launch *launch;
    void (*walk)(bw_dtype dtype, const bw_map *map);
} element_task;

static int64_t bytes_of(const bw_launch *launch) {
    return launch->dims->value[BW_ELEMENTWISE_ELEMENTS] * bw_elem_bytes(launch->precision->activation);
}

static void element_share(void *context, int rank, int ranks) {
    const element_task *task = context;
    const bw_launch *launch = task->launch;
    const bw_dtype dtype = launch->precision->activation;
    const bw_walks *walks = &launch->device->walks;
    bw_map map = {.a = launch->operand[BW_ELEMENTWISE_A],
                  .b = launch->operand[BW_ELEMENTWISE_B],
                  .out = launch->operand[BW_ELEMENTWISE_OUT],
                  .large = bw_is_large(bytes_of(launch))};
    map.walk = map.b ? walks->triad : walks->copy;
    bw_pool_share_units(launch->dims->value[BW_ELEMENTWISE_ELEMENTS], BW_PAGE_BYTES / bw_elem_bytes(dtype), rank, ranks,
                        &map.first, &map.last);
    map.end = map.last;
    task->walk(dtype, &map);
    if (map.large) bw_stream_fence();
}

static bw_status element_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    (void)set_count, (void)state;
    if (bw_is_large(bytes_of(sets)) && !sets->once) BW_CPU_NAME(walks_choose)(sets->device);
    return BW_OK;
}

/* An operation: its function, above, of so many arrays. */
#define BW_ELEMENTWISE(function, inputs)                                                                      \
    BW_INLINE void function##_in(bw_dtype dtype, const bw_map *map) {                                         \
        bw_map_walk(dtype, inputs, function, map);                                                            \
    }                                                                                                         \
    static void function##_walk(bw_dtype dtype, const bw_map *map) {                                          \
        BW_DTYPE_SWITCH(dtype, function##_in, map);                                                           \
    }                                                                                                         \
    static bw_status function##_launch(const bw_launch *launch) {                                             \
        element_task task = {launch, function##_walk};                                                        \
        bw_pool_run(launch->device->pool, element_share, &task);                                              \
        return BW_OK;                                                                                         \
    }                                                                                                         \
    static const bw_variant function##_rows[] = {BW_CPU_ROW(                                                  \
        "vector", function, .prepare = element_prepare,                                                       \
        .text = "vectors in fp32, all threads; large results are written past the caches",                    \
        .prediction = {.changes = "the only variant: vectors, all threads, large results past the caches"})}; \
    const bw_variant_table BW_CPU_TABLE(function) = {function##_rows, 1, NULL};

BW_ELEMENTWISE(relu, 1)
BW_ELEMENTWISE(gelu, 1)
BW_ELEMENTWISE(residual_add, 2)
BW_ELEMENTWISE(silu_mul, 2)
