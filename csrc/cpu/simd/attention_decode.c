/* attention_decode: q(B, 1, H, D), k, v(B, L, G, D) [, kv_lens(B)] -> out(B, 1, H, D). Bound by reading k and v: each
 * row of them is read once, for all query heads of its group.
 * The rungs:
 *   simple   one task for each (batch entry, K/V head): too few of them for many threads;
 *   splitkv  the keys of an entry are split among tasks that go over all its heads, so that memory is read in order;
 *            each leaves a softmax over its own keys and that one's logarithm, and a second step weighs them together.
 */
#include <math.h>

#include "cpu/device.h"
#include "cpu/simd/simd.h"
#include "ops/attention.h"

enum { TILE_KEYS = 64, HEADS_AT_ONCE = 4, TASKS_PER_THREAD = 4, SPLIT_KEYS_MIN = 256, UNITS_ASSUMED = 8 };

typedef struct problem {
    const bw_launch *launch;
    int64_t batch, kv_len, num_heads, num_kv_heads, head_dim, group, splits;
    int64_t padded_dim; /* whole vectors */
} problem;

/* One thread's part of the workspace: fp32 rows of padded_dim for each query head. */
typedef struct room {
    float *q, *out; /* (H, padded_dim) */
    float *scores;  /* (H / G, TILE_KEYS) */
    float *largest, *sum;
} room;

/* One task: heads of `entry` that belong to K/V heads [head, head_end), keys [key, key_end). */
typedef struct stretch {
    int64_t entry, head, head_end, key, key_end;
} stretch;

static int64_t split_count(const bw_dims *dims, const bw_device_facts *facts) {
    int64_t units = facts ? facts->units : UNITS_ASSUMED, batch = dims->value[BW_DECODE_BATCH];
    int64_t wanted = bw_ceil_div(TASKS_PER_THREAD * units, batch);
    int64_t most = bw_ceil_div(dims->value[BW_DECODE_KV_LEN], SPLIT_KEYS_MIN);
    return units == 1 ? 1 : bw_min64(wanted, most);
}

static problem problem_of(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    problem p = {.launch = launch,
                 .batch = dims[BW_DECODE_BATCH],
                 .kv_len = dims[BW_DECODE_KV_LEN],
                 .num_heads = dims[BW_DECODE_NUM_HEADS],
                 .num_kv_heads = dims[BW_DECODE_NUM_KV_HEADS],
                 .head_dim = dims[BW_DECODE_HEAD_DIM],
                 .splits = split_count(launch->dims, &launch->device->facts)};
    p.group = p.num_heads / p.num_kv_heads;
    p.padded_dim = bw_round_up(p.head_dim, BW_SIMD_FLOATS);
    return p;
}

static int64_t room_floats(int64_t heads, int64_t padded_dim) {
    return bw_round_up(heads * (2 * padded_dim + TILE_KEYS + 2), 64);
}

static room room_of(const problem *p, int rank) {
    room r;
    r.q = (float *)p->launch->workspace + rank * room_floats(p->num_heads, p->padded_dim);
    r.out = r.q + p->num_heads * p->padded_dim;
    r.scores = r.out + p->num_heads * p->padded_dim;
    r.largest = r.scores + p->num_heads * TILE_KEYS;
    r.sum = r.largest + p->num_heads;
    return r;
}

static int64_t workspace_bytes(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts) {
    (void)dtype;
    int64_t padded_dim = bw_round_up(dims->value[BW_DECODE_HEAD_DIM], BW_SIMD_FLOATS);
    return 4 * facts->units * room_floats(dims->value[BW_DECODE_NUM_HEADS], padded_dim);
}

static int64_t entry_length(const problem *p, int64_t entry) {
    const int32_t *lengths = p->launch->operand[BW_ATTENTION_KV_LENS];
    return p->launch->dims->kv_lens && lengths ? bw_min64(lengths[entry], p->kv_len) : p->kv_len;
}

BW_INLINE int64_t key_start(const problem *p, int64_t entry, int64_t key, int64_t head) {
    return ((entry * p->kv_len + key) * p->num_kv_heads + head) * p->head_dim;
}

BW_INLINE void start_heads(bw_dtype dtype, const problem *p, const stretch *s, room *r) {
    const bw_vf scale = bw_vf_set(1.0f / sqrtf((float)p->head_dim));
    for (int64_t head = s->head * p->group; head < s->head_end * p->group; head++) {
        int64_t from = (s->entry * p->num_heads + head) * p->head_dim;
        for (int64_t d = 0; d < p->head_dim; d += BW_SIMD_FLOATS) {
            bw_vf q = bw_vf_load_as_upto(dtype, p->launch->operand[BW_ATTENTION_Q], from + d, p->head_dim - d);
            bw_vf_store(r->q + head * p->padded_dim + d, q * scale);
            bw_vf_store(r->out + head * p->padded_dim + d, bw_vf_set(0.0f));
        }
        r->largest[head] = -INFINITY;
        r->sum[head] = 0.0f;
    }
}

BW_INLINE void prefetch_row(bw_dtype dtype, const void *data, int64_t start, int64_t elems) {
    const char *p = bw_at(dtype, data, start);
    for (int64_t i = 0; i < elems * bw_elem_bytes(dtype); i += 64) __builtin_prefetch(p + i, 0, 2);
}

/* Scores of `heads` query heads (from q on) with up to a vector of keys; row j of k starts `stride` after row j - 1.
 * Row j + ahead is fetched meanwhile. */
BW_INLINE void score_block(bw_dtype dtype, const int heads, const problem *p, const float *q, int64_t start,
                           int64_t keys, bool fetch, float *scores) {
    const void *k = p->launch->operand[BW_ATTENTION_K];
    const int64_t stride = p->num_kv_heads * p->head_dim;
    bw_vf dots[HEADS_AT_ONCE][BW_SIMD_FLOATS];
    for (int64_t j = 0; j < keys; j++) {
        bw_vf total[HEADS_AT_ONCE];
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) total[h] = bw_vf_set(0.0f);
        int64_t row = start + j * stride;
        if (fetch) prefetch_row(dtype, k, row + TILE_KEYS * stride, p->head_dim);
        for (int64_t d = 0; d < p->head_dim; d += BW_SIMD_FLOATS) {
            bw_vf x = bw_vf_load_as_upto(dtype, k, row + d, p->head_dim - d);
#pragma GCC unroll 4
            for (int h = 0; h < heads; h++) total[h] = bw_vf_fma(x, bw_vf_load(q + h * p->padded_dim + d), total[h]);
        }
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) dots[h][j] = total[h];
    }
    for (int64_t j = keys; j < BW_SIMD_FLOATS; j++) {
        for (int h = 0; h < heads; h++) dots[h][j] = bw_vf_set(0.0f);
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) bw_vf_store(scores + h * TILE_KEYS, bw_vf_sums(dots[h]));
}

/* out += scores v for `heads` query heads and `vectors` vectors of the head from d on. */
BW_INLINE void value_block(bw_dtype dtype, const int heads, const int vectors, const problem *p, const float *scores,
                           int64_t start, int64_t keys, int64_t d, bool fetch, float *out) {
    const void *v = p->launch->operand[BW_ATTENTION_V];
    const int64_t stride = p->num_kv_heads * p->head_dim;
    bw_vf total[HEADS_AT_ONCE][2];
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 2
        for (int i = 0; i < vectors; i++) total[h][i] = bw_vf_load(out + h * p->padded_dim + d + i * BW_SIMD_FLOATS);
    }
    for (int64_t j = 0; j < keys; j++) {
        int64_t row = start + j * stride + d;
        bw_vf x[2];
        if (fetch)
            prefetch_row(dtype, v, row + TILE_KEYS * stride, bw_min64(vectors * BW_SIMD_FLOATS, p->head_dim - d));
#pragma GCC unroll 2
        for (int i = 0; i < vectors; i++) {
            int64_t at = d + i * BW_SIMD_FLOATS;
            x[i] = bw_vf_load_as_upto(dtype, v, row + i * BW_SIMD_FLOATS, p->head_dim - at);
        }
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) {
            bw_vf weight = bw_vf_set(scores[h * TILE_KEYS + j]);
#pragma GCC unroll 2
            for (int i = 0; i < vectors; i++) total[h][i] = bw_vf_fma(weight, x[i], total[h][i]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 2
        for (int i = 0; i < vectors; i++) bw_vf_store(out + h * p->padded_dim + d + i * BW_SIMD_FLOATS, total[h][i]);
    }
}

/* One head's scores of a tile to exp(score - largest so far). */
static void soften(const problem *p, room *r, int64_t head, float *scores, int64_t keys) {
    int64_t padded = bw_round_up(keys, BW_SIMD_FLOATS);
    for (int64_t j = keys; j < padded; j++) scores[j] = -INFINITY;
    bw_vf largest = bw_vf_set(r->largest[head]), sum = bw_vf_set(0.0f);
    for (int64_t j = 0; j < padded; j += BW_SIMD_FLOATS) largest = bw_vf_max(largest, bw_vf_load(scores + j));
    float now = bw_vf_largest(largest), before = r->largest[head];
    for (int64_t j = 0; j < padded; j += BW_SIMD_FLOATS) {
        bw_vf x = bw_vf_exp(bw_vf_load(scores + j) - bw_vf_set(now));
        bw_vf_store(scores + j, x);
        sum = sum + x;
    }
    if (now > before) {
        bw_vf factor = bw_vf_exp(bw_vf_set(before - now));
        float *out = r->out + head * p->padded_dim;
        for (int64_t d = 0; d < p->padded_dim; d += BW_SIMD_FLOATS) bw_vf_store(out + d, bw_vf_load(out + d) * factor);
        r->sum[head] *= factor[0];
        r->largest[head] = now;
    }
    r->sum[head] += bw_vf_sum(sum);
}

/* `heads` query heads from `first` on, of one K/V head, and one tile of keys whose K and V rows start at `start`. The
 * first block of heads fetches the next tile. */
BW_INLINE void tile_heads(bw_dtype dtype, const int heads, const problem *p, room *r, int64_t first, int64_t start,
                          int64_t keys, bool fetch) {
    const int64_t stride = p->num_kv_heads * p->head_dim;
    const float *q = r->q + first * p->padded_dim;
    float *out = r->out + first * p->padded_dim;
    for (int64_t j = 0; j < keys; j += BW_SIMD_FLOATS) {
        score_block(dtype, heads, p, q, start + j * stride, bw_min64(BW_SIMD_FLOATS, keys - j), fetch, r->scores + j);
    }
    for (int h = 0; h < heads; h++) soften(p, r, first + h, r->scores + h * TILE_KEYS, keys);
    for (int64_t d = 0; d < p->head_dim; d += 2 * BW_SIMD_FLOATS) {
        if (p->head_dim - d > BW_SIMD_FLOATS) {
            value_block(dtype, heads, 2, p, r->scores, start, keys, d, fetch, out);
        } else {
            value_block(dtype, heads, 1, p, r->scores, start, keys, d, fetch, out);
        }
    }
}

BW_INLINE void tile_group(bw_dtype dtype, const problem *p, room *r, int64_t first, int64_t start, int64_t keys,
                          bool fetch) {
    for (int64_t h = 0; h < p->group; h += HEADS_AT_ONCE, fetch = false) {
        switch (p->group - h) {
            case 1: tile_heads(dtype, 1, p, r, first + h, start, keys, fetch); break;
            case 2: tile_heads(dtype, 2, p, r, first + h, start, keys, fetch); break;
            case 3: tile_heads(dtype, 3, p, r, first + h, start, keys, fetch); break;
            default: tile_heads(dtype, 4, p, r, first + h, start, keys, fetch); break;
        }
    }
}

BW_INLINE void attend(bw_dtype dtype, const problem *p, const stretch *s, room *r) {
    start_heads(dtype, p, s, r);
    for (int64_t key = s->key; key < s->key_end; key += TILE_KEYS) {
        int64_t keys = bw_min64(TILE_KEYS, s->key_end - key);
        bool fetch = key + 2 * TILE_KEYS <= s->key_end;
        for (int64_t head = s->head; head < s->head_end; head++) {
            tile_group(dtype, p, r, head * p->group, key_start(p, s->entry, key, head), keys, fetch);
        }
    }
}

/* What one task found, to the output or (fp32) to its part of the scratch. */
BW_INLINE void store_heads(bw_dtype dtype, const problem *p, const stretch *s, const room *r, void *to, int64_t row) {
    for (int64_t head = s->head * p->group; head < s->head_end * p->group; head++) {
        const bw_vf factor = bw_vf_set(r->sum[head] > 0.0f ? 1.0f / r->sum[head] : r->sum[head]);
        for (int64_t d = 0; d < p->head_dim; d += BW_SIMD_FLOATS) {
            bw_vf x = bw_vf_load(r->out + head * p->padded_dim + d) * factor;
            bw_vf_store_as_upto(dtype, to, (row * p->num_heads + head) * p->head_dim + d, x, p->head_dim - d);
        }
    }
}

static void run_stretch(const problem *p, const stretch *s, room *r) {
    BW_DTYPE_SWITCH(p->launch->dtype, attend, p, s, r);
}

static void store_output(const problem *p, const stretch *s, const room *r) {
    BW_DTYPE_SWITCH(p->launch->dtype, store_heads, p, s, r, p->launch->operand[BW_ATTENTION_OUT], s->entry);
}

static void simple_share(void *context, int rank, int ranks) {
    (void)ranks;
    const problem *p = context;
    room r = room_of(p, rank);
    int64_t tasks = p->batch * p->num_kv_heads;
    for (int64_t task; (task = bw_pool_next(p->launch->device->pool)) < tasks;) {
        int64_t entry = task / p->num_kv_heads, head = task % p->num_kv_heads;
        stretch s = {entry, head, head + 1, 0, entry_length(p, entry)};
        run_stretch(p, &s, &r);
        store_output(p, &s, &r);
    }
}

static bw_status simple_launch(const bw_launch *launch) {
    problem p = problem_of(launch);
    bw_pool_run(launch->device->pool, simple_share, &p);
    return BW_OK;
}

/* The scratch of splitkv: (splits, B, H, D) partial outputs, then (splits, B, H) logarithms of their sums. */
BW_INLINE float *logarithms(const problem *p) {
    return (float *)p->launch->scratch + p->splits * p->batch * p->num_heads * p->head_dim;
}

static void store_partial(const problem *p, const stretch *s, const room *r, int64_t split) {
    int64_t row = split * p->batch + s->entry;
    store_heads(BW_FP32, p, s, r, p->launch->scratch, row);
    for (int64_t head = 0; head < p->num_heads; head++) {
        logarithms(p)[row * p->num_heads + head] = r->largest[head] + logf(r->sum[head]);
    }
}

static void split_share(void *context, int rank, int ranks) {
    (void)ranks;
    const problem *p = context;
    room r = room_of(p, rank);
    int64_t tasks = p->batch * p->splits;
    for (int64_t task; (task = bw_pool_next(p->launch->device->pool)) < tasks;) {
        int64_t entry = task / p->splits, split = task % p->splits, length = entry_length(p, entry);
        stretch s = {entry, 0, p->num_kv_heads, length * split / p->splits, length * (split + 1) / p->splits};
        run_stretch(p, &s, &r);
        if (p->splits == 1) {
            store_output(p, &s, &r);
        } else {
            store_partial(p, &s, &r, split);
        }
    }
}

/* Output row (entry, head) as the mean of its partial outputs, weighted by their sums. */
BW_INLINE void combine_row(bw_dtype dtype, const problem *p, int64_t row) {
    const int64_t rows = p->batch * p->num_heads;
    const float *partial = p->launch->scratch, *logs = logarithms(p);
    float largest = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < p->splits; i++) largest = fmaxf(largest, logs[i * rows + row]);
    for (int64_t i = 0; i < p->splits; i++) sum += bw_vf_exp(bw_vf_set(logs[i * rows + row] - largest))[0];
    for (int64_t d = 0; d < p->head_dim; d += BW_SIMD_FLOATS) {
        bw_vf total = bw_vf_set(0.0f);
        for (int64_t i = 0; i < p->splits; i++) {
            bw_vf weight = bw_vf_exp(bw_vf_set(logs[i * rows + row] - largest));
            int64_t at = (i * rows + row) * p->head_dim + d;
            total = bw_vf_fma(weight, bw_vf_load_as_upto(BW_FP32, partial, at, p->head_dim - d), total);
        }
        bw_vf_store_as_upto(dtype, p->launch->operand[BW_ATTENTION_OUT], row * p->head_dim + d,
                            total * bw_vf_set(1.0f / sum), p->head_dim - d);
    }
}

static void combine_share(void *context, int rank, int ranks) {
    const problem *p = context;
    int64_t first, last;
    bw_pool_share(p->batch * p->num_heads, rank, ranks, &first, &last);
    for (int64_t row = first; row < last; row++) BW_DTYPE_SWITCH(p->launch->dtype, combine_row, p, row);
}

static bw_status splitkv_launch(const bw_launch *launch) {
    problem p = problem_of(launch);
    bw_pool_run(launch->device->pool, split_share, &p);
    if (p.splits > 1) bw_pool_run(launch->device->pool, combine_share, &p);
    return BW_OK;
}

static bw_checked partial_bytes(const bw_dims *dims, const bw_device_facts *facts) {
    int64_t splits = split_count(dims, facts);
    if (splits == 1) return bw_num(0);
    return bw_mul5(4, splits, dims->value[BW_DECODE_BATCH], dims->value[BW_DECODE_NUM_HEADS],
                   dims->value[BW_DECODE_HEAD_DIM] + 1);
}

static int64_t splitkv_scratch(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts) {
    (void)dtype;
    bw_checked bytes = partial_bytes(dims, facts);
    return bytes.overflow ? INT64_MAX : bytes.value;
}

static bw_status splitkv_cost(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts, bw_cost *cost) {
    (void)dtype;
    bw_checked bytes = partial_bytes(dims, facts);
    bw_checked read = bw_add(bw_num(cost->algorithmic_bytes_read), bytes);
    bw_checked written = bw_add(bw_num(cost->algorithmic_bytes_written), bytes);
    if (read.overflow || written.overflow) {
        return bw_fail(BW_CODE_INVALID, "the partial results of a split decode of this shape overflow 64-bit sizes");
    }
    cost->algorithmic_bytes_read = read.value;
    cost->algorithmic_bytes_written = written.value;
    return BW_OK;
}

static const bw_variant rows[] = {
    {.name = "simple",
     .text = "one task for each batch entry and K/V head",
     .precisions = BW_CPU_PRECISIONS,
     .workspace_bytes = workspace_bytes,
     .launch = simple_launch},
    {.name = "splitkv",
     .text = "keys split among the threads, partial results combined",
     .precisions = BW_CPU_PRECISIONS,
     .scratch_bytes = splitkv_scratch,
     .workspace_bytes = workspace_bytes,
     .extra_cost = splitkv_cost,
     .launch = splitkv_launch},
};

extern const bw_variant_table BW_CPU_TABLE(attention_decode);
const bw_variant_table BW_CPU_TABLE(attention_decode) = {rows, sizeof rows / sizeof rows[0]};
