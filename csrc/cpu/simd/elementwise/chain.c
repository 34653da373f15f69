/* bias_relu_dropout_residual. A part's random numbers and biases are brought to two small buffers first: random numbers
 * are cheapest in vectors of counters, and rows may end anywhere.
 * The variants:
 *   unfused  four passes, each of which stores what it made
 *   fused    one pass */
#include "cpu/simd/elementwise/map.h"
#include "ops/families/elementwise.h"

enum { BIAS = 1, RELU = 2, DROPOUT = 4, RESIDUAL = 8, ALL = 15 }; /* steps of a pass */
enum { CALLS = BW_SIMD_FLOATS / 2, DRAWN = BW_DROPOUT_CALL * CALLS, PART_MOST = BW_COPY_WINDOW / 2 };

/* What belongs to the elements from map->first on. */
typedef struct buffers {
    uint16_t numbers[PART_MOST + DRAWN];
    char bias[BW_COPY_WINDOW + BW_SIMD_BYTES];
    uint32_t threshold;
    float growth;
} buffers;

typedef uint64_t bw_vl __attribute__((vector_size(4 * BW_SIMD_FLOATS)));

BW_INLINE bw_vl products(bw_vl a, uint32_t b) {
    return (bw_vl)bw_vu_even_products((bw_vu)a, (bw_vu){0} + b);
}

/* bw_dropout_draw for CALLS calls side by side, their numbers in the elements' order. What is in the upper halves of
 * words matters to no product. */
BW_INLINE void draw(uint64_t seed, bw_vl call, uint16_t *out) {
    bw_vl c0 = call, c1 = call >> 32, c2 = {0}, c3 = {0};
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
#pragma GCC unroll 7
    for (int round = 0; round < 7; round++) {
        const bw_vl left = products(c0, 0xd2511f53u), right = products(c2, 0xcd9e8d57u);
        c0 = (right >> 32) ^ c1 ^ key0;
        c1 = right;
        c2 = (left >> 32) ^ c3 ^ key1;
        c3 = left;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    const bw_vf even = (bw_vf)((c0 & UINT32_MAX) | c2 << 32), odd = (bw_vf)((c1 & UINT32_MAX) | c3 << 32);
    const bw_vf found[2] = {bw_vf_zip_low(even, odd), bw_vf_zip_high(even, odd)};
    memcpy(out, found, sizeof found);
}

/* `first` is a multiple of a call's elements. */
static void draw_part(uint64_t seed, int64_t first, int64_t count, uint16_t *out) {
    bw_vl call = {0};
    for (int i = 0; i < CALLS; i++) call[i] = (uint64_t)(first / BW_DROPOUT_CALL + i);
    for (int64_t i = 0; i < count; i += DRAWN, call += CALLS) draw(seed, call, out + i);
}

static void repeat_bias(const bw_launch *launch, int64_t first, int64_t count, char *out) {
    const int64_t elem = bw_elem_bytes(launch->precision->activation), hidden = launch->dims->value[BW_CHAIN_HIDDEN];
    for (int64_t done = 0, column = first % hidden; done < count; column = 0) {
        const int64_t some = bw_min64(count - done, hidden - column);
        memcpy(out + done * elem, (const char *)launch->operand[BW_CHAIN_BIAS] + column * elem, (size_t)(some * elem));
        done += some;
    }
}

BW_INLINE bw_vf step(int steps, bw_dtype dtype, const bw_map *map, int64_t i, bw_vf x, bw_vf residual) {
    const buffers *own = map->context;
    if (steps & BIAS) x += bw_vf_load_as(dtype, own->bias, i - map->first);
    if (steps & RELU) x = bw_vf_max(bw_vf_set(0.0f), x); /* a NaN is the second argument's */
    if (steps & DROPOUT) {
        const bw_vi number = __builtin_convertvector(bw_vh_load(own->numbers + (i - map->first)), bw_vi);
        const bw_vf factor = (bw_vf)((bw_vu)(number >= (int32_t)own->threshold) & (bw_vu)bw_vf_set(own->growth));
        return steps & RESIDUAL ? bw_vf_fma(x, factor, residual) : x * factor;
    }
    return steps & RESIDUAL ? x + residual : x;
}
#define STEP(name, steps)                                                                         \
    BW_INLINE bw_vf name(bw_dtype dtype, const bw_map *map, int64_t i, bw_vf x, bw_vf residual) { \
        return step(steps, dtype, map, i, x, residual);                                           \
    }                                                                                             \
    BW_INLINE void name##_in(bw_dtype dtype, const bw_map *map) {                                 \
        bw_map_walk(dtype, (steps)&RESIDUAL ? 2 : 1, name, map);                                  \
    }                                                                                             \
    static void name##_walk(bw_dtype dtype, const bw_map *map) {                                  \
        BW_DTYPE_SWITCH(dtype, name##_in, map);                                                   \
    }
STEP(add_bias, BIAS)
STEP(only_relu, RELU)
STEP(only_dropout, DROPOUT)
STEP(add_residual, RESIDUAL)
STEP(all_steps, ALL)

typedef struct pass {
    const bw_launch *launch;
    void (*walk)(bw_dtype dtype, const bw_map *map);
    const void *from;
    void *to;
    int steps;
} pass;

static int64_t elements_of(const bw_launch *launch) {
    return launch->dims->value[BW_CHAIN_TOKENS] * launch->dims->value[BW_CHAIN_HIDDEN];
}

static bool is_large(const bw_launch *launch) {
    return bw_is_large(bw_chain_bytes(launch->dims, launch->precision).value);
}

static void pass_share(void *context, int rank, int ranks) {
    const pass *self = context;
    const bw_launch *launch = self->launch;
    const int64_t *dims = launch->dims->value, percent = dims[BW_CHAIN_DROPOUT_PERCENT];
    const bw_dtype dtype = launch->precision->activation;
    const int64_t page = BW_PAGE_BYTES / bw_elem_bytes(dtype), window = BW_COPY_WINDOW / bw_elem_bytes(dtype);
    const bw_walks *walks = &launch->device->walks;
    buffers own;
    own.threshold = bw_dropout_threshold(percent);
    own.growth = bw_dropout_growth(percent);
    bw_map map = {.a = self->from,
                  .b = launch->operand[BW_CHAIN_RESIDUAL],
                  .out = self->to,
                  .walk = self->steps & RESIDUAL ? walks->triad : walks->copy,
                  .large = is_large(launch),
                  .context = &own};
    /* Small: buffers stay in the first cache, and memory brings the next lines while numbers are drawn. */
    const int64_t part = map.walk == BW_WALK_PAGES ? window : page / 4;
    bw_pool_share_units(elements_of(launch), page, rank, ranks, &map.first, &map.end);
    for (; map.first < map.end; map.first = map.last) {
        map.last = bw_min64(map.end, map.first + part);
        const int64_t count = map.last - map.first;
        if (self->steps & BIAS) repeat_bias(launch, map.first, count, own.bias);
        if (self->steps & DROPOUT) {
            draw_part((uint64_t)dims[BW_CHAIN_MASK_SEED], map.first, count, own.numbers);
        }
        self->walk(dtype, &map);
    }
    if (map.large) bw_stream_fence();
}

static void run(pass self) {
    bw_pool_run(self.launch->device->pool, pass_share, &self);
}

static bw_status fused_launch(const bw_launch *launch) {
    run((pass){launch, all_steps_walk, launch->operand[BW_CHAIN_X], launch->operand[BW_CHAIN_OUT], ALL});
    return BW_OK;
}

static bw_status unfused_launch(const bw_launch *launch) {
    char *one = launch->scratch, *other = one + bw_chain_place_bytes(launch->dims, launch->precision);
    run((pass){launch, add_bias_walk, launch->operand[BW_CHAIN_X], one, BIAS});
    run((pass){launch, only_relu_walk, one, other, RELU});
    run((pass){launch, only_dropout_walk, other, one, DROPOUT});
    run((pass){launch, add_residual_walk, one, launch->operand[BW_CHAIN_OUT], RESIDUAL});
    return BW_OK;
}

static bw_status chain_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    (void)set_count, (void)state;
    if (is_large(sets) && !sets->once) BW_CPU_NAME(walks_choose)(sets->device);
    return BW_OK;
}

static const bw_variant rows[] = {
    {.name = "unfused",
     .text = "a pass for each of the four steps, whose results are stored",
     .prediction = {.changes = "the baseline: bias, relu, dropout and residual each read and write the memory"},
     .precisions = BW_CPU_PRECISIONS,
     .scratch_bytes = bw_chain_unfused_scratch,
     .extra_cost = bw_chain_unfused_cost,
     .prepare = chain_prepare,
     .launch = unfused_launch},
    BW_CPU_ROW("fused", fused, .prepare = chain_prepare, .text = "one pass, nothing stored between the steps",
               .prediction = {.changes = "one pass: what lies between the steps stays in registers",
                              .predicted = 2.8,
                              .because = "3 n elements move instead of 9 n; a pass with two inputs is a tenth slower "
                                         "for each byte than those with one"}),
};

const bw_variant_table BW_CPU_TABLE(bias_relu_dropout_residual) = {rows, sizeof rows / sizeof rows[0],
                                                                   "fp32 tokens=8192 hidden=8192"};
