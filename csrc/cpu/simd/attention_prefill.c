/* attention_prefill: q(B, Sq, H, D), k, v(B, L, G, D) -> out(B, Sq, H, D).
 * The variants:
 *   unfused  three passes: S = q k^T / sqrt(D) to memory, softmax of its rows S -> P in place, P v. S and P are
 *            stored whole, in the precision's type, masked entries included;
 *   flash    a tile of queries goes over the keys once with a running maximum and sum: scores never leave the caches.
 * The H / G query heads that share a K/V head are taken together: row r of the (b, g) problem is query r / (H / G),
 * head g * (H / G) + r % (H / G), so that a tile is full even where there are few queries. */
#include <math.h>

#include "cpu/device.h"
#include "cpu/simd/micro.h"
#include "cpu/simd/softmax.h"
#include "ops/families/attention.h"

enum { TILE_ROWS = 96, TILE_KEYS = BW_MICRO_DEPTH, TASKS_PER_THREAD = 4 };
_Static_assert((int)TILE_ROWS % (int)BW_MICRO_ROWS == 0, "tiles are whole register tiles");
_Static_assert((int)BW_HEAD_DIM_MAX <= (int)BW_MICRO_DEPTH, "a head fits a panel");

/* One thread's part of the workspace. */
typedef struct room {
    float q[TILE_ROWS * BW_MICRO_STRIDE];      /* scaled by 1 / sqrt(D) */
    float scores[TILE_ROWS * BW_MICRO_STRIDE]; /* one tile of S, then of P */
    float out[TILE_ROWS * BW_MICRO_STRIDE];
    float panel[BW_MICRO_PANEL_FLOATS];
    float largest[TILE_ROWS], sum[TILE_ROWS];
    float k_scale[TILE_KEYS], v_scale[TILE_KEYS];
} room;

typedef struct problem {
    const bw_launch *launch;
    int64_t batch, seq_len, kv_len, num_heads, num_kv_heads, head_dim, group;
    bool causal;
    int64_t tile_rows, tiles; /* tiles: per (b, g) */
} problem;

/* One task: rows [row, row + rows) of problem (entry, head). */
typedef struct tile {
    int64_t entry, head, row, rows;
} tile;

static problem problem_of(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    problem p = {.launch = launch,
                 .batch = dims[BW_PREFILL_BATCH],
                 .seq_len = dims[BW_PREFILL_SEQ_LEN],
                 .kv_len = dims[BW_PREFILL_KV_LEN],
                 .num_heads = dims[BW_PREFILL_NUM_HEADS],
                 .num_kv_heads = dims[BW_PREFILL_NUM_KV_HEADS],
                 .head_dim = dims[BW_PREFILL_HEAD_DIM],
                 .causal = dims[BW_PREFILL_CAUSAL] != 0};
    p.group = p.num_heads / p.num_kv_heads;
    int64_t rows = p.seq_len * p.group;
    int64_t wanted = TASKS_PER_THREAD * (int64_t)bw_pool_size(launch->device->pool);
    int64_t even = bw_round_up(bw_ceil_div(rows * p.batch * p.num_kv_heads, wanted), BW_MICRO_ROWS);
    p.tile_rows = bw_min64(even, TILE_ROWS);
    p.tiles = bw_ceil_div(rows, p.tile_rows);
    return p;
}

/* Task `index`; false when there are no more. The last rows come first: under a causal mask they have most keys. */
static bool tile_at(const problem *p, int64_t index, tile *out) {
    int64_t heads = p->batch * p->num_kv_heads;
    if (index >= heads * p->tiles) return false;
    out->entry = index % heads / p->num_kv_heads;
    out->head = index % p->num_kv_heads;
    out->row = (p->tiles - 1 - index / heads) * p->tile_rows;
    out->rows = bw_min64(p->tile_rows, p->seq_len * p->group - out->row);
    return true;
}

BW_INLINE int64_t key_limit(const problem *p, int64_t row) {
    return p->causal ? p->kv_len - p->seq_len + row / p->group + 1 : p->kv_len;
}

BW_INLINE int64_t query_start(const problem *p, const tile *t, int64_t row) {
    int64_t query = t->entry * p->seq_len + row / p->group;
    return (query * p->num_heads + t->head * p->group + row % p->group) * p->head_dim;
}

BW_INLINE int64_t key_start(const problem *p, const tile *t, int64_t key) {
    return ((t->entry * p->kv_len + key) * p->num_kv_heads + t->head) * p->head_dim;
}

/* Where a row of S starts in the scratch, (B, H, Sq, L). */
BW_INLINE int64_t score_start(const problem *p, const tile *t, int64_t row) {
    int64_t head = t->entry * p->num_heads + t->head * p->group + row % p->group;
    return (head * p->seq_len + row / p->group) * p->kv_len;
}

BW_INLINE void load_queries(bw_dtype dtype, const problem *p, const tile *t, room *r) {
    const bw_vf scale = bw_vf_set(1.0f / sqrtf((float)p->head_dim));
    for (int64_t i = 0; i < t->rows; i++) {
        float *row = r->q + i * BW_MICRO_STRIDE;
        bw_unpack(dtype, p->launch->operand[BW_ATTENTION_Q], query_start(p, t, t->row + i), p->head_dim, row);
        for (int64_t d = 0; d < p->head_dim; d += BW_SIMD_FLOATS) bw_vf_store(row + d, bw_vf_load(row + d) * scale);
    }
}

/* scores = q k^T for keys [key, key + keys), up to a whole vector of columns. */
BW_INLINE void multiply_keys(bw_dtype dtype, const problem *p, const tile *t, room *r, int64_t key, int64_t keys) {
    for (int64_t j = 0; j < keys; j += BW_MICRO_COLUMNS) {
        int64_t wide = bw_min64(BW_MICRO_COLUMNS, keys - j);
        int vectors = bw_micro_vectors(wide);
        bw_pack_rows(dtype, p->launch->operand[BW_ATTENTION_K], key_start(p, t, key + j), p->num_kv_heads * p->head_dim,
                     wide, p->head_dim, vectors, r->panel);
        bw_micro_rows(t->rows, vectors, r->q, r->panel, p->head_dim, r->scores + j, BW_MICRO_STRIDE, false);
    }
}

/* out = scores v, or, but for the first keys, out += scores v, for keys [key, key + keys). */
BW_INLINE void multiply_values(bw_dtype dtype, const problem *p, const tile *t, room *r, int64_t key, int64_t keys) {
    for (int64_t d = 0; d < p->head_dim; d += BW_MICRO_COLUMNS) {
        int64_t wide = bw_min64(BW_MICRO_COLUMNS, p->head_dim - d);
        int vectors = bw_micro_vectors(wide);
        bw_pack_steps(dtype, p->launch->operand[BW_ATTENTION_V], key_start(p, t, key) + d,
                      p->num_kv_heads * p->head_dim, wide, keys, vectors, r->panel);
        bw_micro_rows(t->rows, vectors, r->scores, r->panel, keys, r->out + d, BW_MICRO_STRIDE, key > 0);
    }
}

BW_INLINE void store_out(bw_dtype dtype, const problem *p, const tile *t, const room *r, const float *divisors) {
    for (int64_t i = 0; i < t->rows; i++) {
        const bw_vf factor = bw_vf_set(divisors ? 1.0f / divisors[i] : 1.0f);
        int64_t start = query_start(p, t, t->row + i);
        for (int64_t d = 0; d < p->head_dim; d += BW_SIMD_FLOATS) {
            bw_vf x = bw_vf_load(r->out + i * BW_MICRO_STRIDE + d) * factor;
            bw_vf_store_as_upto(dtype, p->launch->operand[BW_ATTENTION_OUT], start + d, x, p->head_dim - d);
        }
    }
}

/* Of keys [key, key + keys) of the tile's head. */
static void load_scales(const problem *p, const tile *t, room *r, int64_t key, int64_t keys) {
    const int64_t first = (t->entry * p->kv_len + key) * p->num_kv_heads + t->head;
    void *const *operand = p->launch->operand;
    bw_gather_scales((const float *)operand[BW_ATTENTION_K_SCALE] + first, p->num_kv_heads, keys, r->k_scale);
    bw_gather_scales((const float *)operand[BW_ATTENTION_V_SCALE] + first, p->num_kv_heads, keys, r->v_scale);
}

BW_INLINE void flash_tile(bw_dtype dtype, const problem *p, const tile *t, room *r) {
    const bool scaled = bw_elem_bytes(dtype) == 1;
    BW_DTYPE_SWITCH(p->launch->precision->result, load_queries, p, t, r);
    for (int64_t i = 0; i < t->rows; i++) {
        r->largest[i] = -INFINITY;
        r->sum[i] = 0.0f;
    }
    int64_t end = key_limit(p, t->row + t->rows - 1);
    for (int64_t key = 0; key < end; key += TILE_KEYS) {
        int64_t keys = bw_min64(TILE_KEYS, end - key);
        multiply_keys(dtype, p, t, r, key, keys);
        if (scaled) load_scales(p, t, r, key, keys);
        for (int64_t i = 0; i < t->rows; i++) { /* keys behind `valid` weigh nothing */
            float *scores = r->scores + i * BW_MICRO_STRIDE, *out = r->out + i * BW_MICRO_STRIDE;
            int64_t valid = bw_min64(bw_max64(0, key_limit(p, t->row + i) - key), keys);
            if (scaled) bw_scale_row(scores, r->k_scale, valid);
            bw_softmax_update(scores, valid, out, key > 0 ? p->head_dim : 0, &r->largest[i], &r->sum[i]);
            if (scaled) bw_scale_row(scores, r->v_scale, valid);
            for (int64_t j = valid; j < keys; j++) scores[j] = 0.0f;
        }
        multiply_values(dtype, p, t, r, key, keys);
    }
    BW_DTYPE_SWITCH(p->launch->precision->result, store_out, p, t, r, r->sum);
}

/* A thread's part of a pass over the tiles; SWITCH: of the types that it takes. */
#define TILE_SHARE(name, one_tile, SWITCH)                              \
    static void name(void *context, int rank, int ranks) {              \
        (void)ranks;                                                    \
        const problem *p = context;                                     \
        room *r = (room *)p->launch->workspace + rank;                  \
        tile t;                                                         \
        while (tile_at(p, bw_pool_next(p->launch->device->pool), &t)) { \
            SWITCH(p->launch->precision->cache, one_tile, p, &t, r);    \
        }                                                               \
    }

TILE_SHARE(flash_share, flash_tile, BW_CACHE_SWITCH)

static bw_status flash_launch(const bw_launch *launch) {
    problem p = problem_of(launch);
    bw_pool_run(launch->device->pool, flash_share, &p);
    return BW_OK;
}

/* Pass 1: the tile's rows of S, masked entries as minus infinity. */
BW_INLINE void score_tile(bw_dtype dtype, const problem *p, const tile *t, room *r) {
    load_queries(dtype, p, t, r);
    int64_t end = key_limit(p, t->row + t->rows - 1);
    for (int64_t key = 0; key < p->kv_len; key += TILE_KEYS) {
        int64_t keys = bw_min64(TILE_KEYS, p->kv_len - key);
        if (key < end) multiply_keys(dtype, p, t, r, key, keys);
        for (int64_t i = 0; i < t->rows; i++) {
            float *row = r->scores + i * BW_MICRO_STRIDE;
            for (int64_t j = bw_max64(0, key_limit(p, t->row + i) - key); j < keys; j++) row[j] = -INFINITY;
            int64_t start = score_start(p, t, t->row + i) + key;
            for (int64_t j = 0; j < keys; j += BW_SIMD_FLOATS) {
                bw_vf_store_as_upto(dtype, p->launch->scratch, start + j, bw_vf_load(row + j), keys - j);
            }
        }
    }
}

/* Lanes beyond the row's end as minus infinity. */
BW_INLINE bw_vf load_scores(bw_dtype dtype, const void *data, int64_t index, int64_t left) {
    bw_vf x = bw_vf_load_as_upto(dtype, data, index, left);
    if (left >= BW_SIMD_FLOATS) return x;
    float lanes[BW_SIMD_FLOATS];
    bw_vf_store(lanes, x);
    for (int64_t i = left; i < BW_SIMD_FLOATS; i++) lanes[i] = -INFINITY;
    return bw_vf_load(lanes);
}

/* Pass 2: one row of S to P. */
BW_INLINE void softmax_row(bw_dtype dtype, const problem *p, int64_t index) {
    void *s = p->launch->scratch;
    int64_t start = index * p->kv_len, length = p->kv_len;
    bw_vf largest = bw_vf_set(-INFINITY), sum = bw_vf_set(0.0f);
    for (int64_t j = 0; j < length; j += BW_SIMD_FLOATS) {
        largest = bw_vf_max(largest, load_scores(dtype, s, start + j, length - j));
    }
    largest = bw_vf_set(bw_vf_largest(largest));
    for (int64_t j = 0; j < length; j += BW_SIMD_FLOATS) {
        sum = sum + bw_vf_exp(load_scores(dtype, s, start + j, length - j) - largest);
    }
    const bw_vf factor = bw_vf_set(1.0f / bw_vf_sum(sum));
    for (int64_t j = 0; j < length; j += BW_SIMD_FLOATS) {
        bw_vf x = bw_vf_exp(load_scores(dtype, s, start + j, length - j) - largest) * factor;
        bw_vf_store_as_upto(dtype, s, start + j, x, length - j);
    }
}

/* Pass 3: out = P v. */
BW_INLINE void value_tile(bw_dtype dtype, const problem *p, const tile *t, room *r) {
    for (int64_t key = 0; key < p->kv_len; key += TILE_KEYS) {
        int64_t keys = bw_min64(TILE_KEYS, p->kv_len - key);
        for (int64_t i = 0; i < t->rows; i++) {
            bw_unpack(dtype, p->launch->scratch, score_start(p, t, t->row + i) + key, keys,
                      r->scores + i * BW_MICRO_STRIDE);
        }
        multiply_values(dtype, p, t, r, key, keys);
    }
    store_out(dtype, p, t, r, NULL);
}

TILE_SHARE(score_share, score_tile, BW_DTYPE_SWITCH)
TILE_SHARE(value_share, value_tile, BW_DTYPE_SWITCH)

static void softmax_share(void *context, int rank, int ranks) {
    const problem *p = context;
    int64_t first, last;
    bw_pool_share(p->batch * p->num_heads * p->seq_len, rank, ranks, &first, &last);
    for (int64_t row = first; row < last; row++) BW_DTYPE_SWITCH(p->launch->precision->cache, softmax_row, p, row);
}

static bw_status unfused_launch(const bw_launch *launch) {
    problem p = problem_of(launch);
    bw_pool *pool = launch->device->pool;
    bw_pool_run(pool, score_share, &p);
    bw_pool_run(pool, softmax_share, &p);
    bw_pool_run(pool, value_share, &p);
    return BW_OK;
}

static int64_t workspace_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)dims, (void)precision;
    return facts->units * (int64_t)sizeof(room);
}

static bw_checked_int score_bytes(const bw_dims *dims, bw_dtype dtype) {
    const int64_t *value = dims->value;
    return bw_mul5(value[BW_PREFILL_BATCH], value[BW_PREFILL_NUM_HEADS], value[BW_PREFILL_SEQ_LEN],
                   value[BW_PREFILL_KV_LEN], bw_elem_bytes(dtype));
}

static int64_t unfused_scratch(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)facts;
    bw_checked_int bytes = score_bytes(dims, precision->result);
    return bytes.overflow ? INT64_MAX : bytes.value;
}

/* S is written and read, P is written and read. */
static bw_status unfused_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cost *cost) {
    (void)facts;
    return bw_cost_add_intermediates(bw_mul(bw_num(2), score_bytes(dims, precision->result)), cost);
}

static const bw_variant rows[] = {
    {.name = "unfused",
     .text = "three passes: scores to memory, softmax in place, product with v",
     .prediction = {.changes = "the baseline: scores to memory, softmax in place, product with v"},
     .precisions = BW_CPU_PRECISIONS,
     .scratch_bytes = unfused_scratch,
     .workspace_bytes = workspace_bytes,
     .extra_cost = unfused_cost,
     .launch = unfused_launch},
    BW_CPU_ROW_IN(
        BW_CPU_PRECISIONS | BW_CPU_BYTES, "flash", flash,
        .text = "one pass over the keys for each tile of queries, scores stay in the caches",
        .prediction = {.changes = "one pass over the keys for each tile of queries: scores stay in the caches",
                       .predicted = 1.3,
                       .because = "the same products by the same tiles; 16 MiB of scores a head are neither "
                                  "written nor read"},
        .workspace_bytes = workspace_bytes),
};

const bw_variant_table BW_CPU_TABLE(attention_prefill) = {
    rows, sizeof rows / sizeof rows[0], "fp32 batch=1 seq_len=2048 num_heads=2 num_kv_heads=2 head_dim=64"};
