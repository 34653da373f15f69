/* attention_decode: q(B, 1, H, D), k, v(B, L, G, D) [, kv_lens(B)] -> out(B, 1, H, D). Bound by reading k and v: each
 * row of them is read once, for all query heads of its group. mla_decode: G is 1, and a value the beginning of its key.
 * The variants:
 *   simple   one task for each (batch entry, K/V head): too few of them for many threads;
 *   splitkv  the keys of an entry are split among tasks that go over all its heads, so that memory is read in order;
 *            each leaves a softmax over its own keys and its sum's logarithm; a second step weighs them together;
 *   words    of INT8: q and the weights of a tile become whole numbers of 16 bits, so that products are of words. */
#include <math.h>

#include "cpu/device.h"
#include "cpu/simd/softmax.h"
#include "ops/families/attention.h"

enum { TILE_KEYS = 64, HEADS_AT_ONCE = 4, TASKS_PER_THREAD = 4, SPLIT_KEYS_MIN = 256, UNITS_ASSUMED = 8 };
/* What is held in registers at a time: rows of k, and vectors of a row of v. */
enum { KEYS_AT_ONCE = 2, VALUES_AT_ONCE = BW_SIMD_FLOATS == 16 ? 4 : 2 };
enum { WORD_KEYS = BW_SIMD_FLOATS == 16 ? 4 : 2, WORDS = 2 * BW_SIMD_FLOATS, WORD_LARGEST = 32767 };

typedef struct problem {
    const bw_launch *launch;
    const void *k, *v;
    int64_t batch, kv_len, num_heads, num_kv_heads, key_dim, value_dim, group;
    int64_t stride;               /* from one key to the next, and from one value to the next */
    int64_t padded_dim;           /* whole vectors of a key, which is no shorter than a value */
    float scale;                  /* of scores */
    bool words;                   /* products are of words */
    int64_t splits, heads_a_task; /* an entry's tasks: its keys in so many parts, so many K/V heads together */
} problem;

/* One thread's part of the workspace: fp32 rows of padded_dim for each query head. */
typedef struct room {
    float *q, *out; /* (H, padded_dim) */
    float *scores;  /* (H / G, TILE_KEYS) */
    float *largest, *sum;
    float *k_scale, *v_scale; /* of a tile's keys */
    float *step;              /* of each query head's q in words, which take its place */
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

static problem problem_of(const bw_launch *launch, bool split) {
    const bw_decode_sizes sizes = bw_decode_sizes_of(launch->dims);
    problem p = {.launch = launch,
                 .k = launch->operand[BW_ATTENTION_K],
                 .v = launch->operand[BW_ATTENTION_V],
                 .batch = sizes.batch,
                 .kv_len = sizes.kv_len,
                 .num_heads = sizes.heads,
                 .num_kv_heads = sizes.kv_heads,
                 .key_dim = sizes.key_dim,
                 .value_dim = sizes.value_dim,
                 .group = sizes.heads / sizes.kv_heads,
                 .stride = sizes.kv_heads * sizes.key_dim,
                 .padded_dim = bw_round_up(sizes.key_dim, BW_SIMD_FLOATS),
                 .scale = (float)sizes.scale,
                 .splits = split ? split_count(launch->dims, &launch->device->facts) : 1,
                 .heads_a_task = split ? sizes.kv_heads : 1};
    if (!p.v) p.v = p.k;
    return p;
}

static int64_t room_floats(int64_t heads, int64_t padded_dim) {
    return bw_round_up(heads * (2 * padded_dim + TILE_KEYS + 3) + 2 * TILE_KEYS, 64);
}

static room room_of(const problem *p, int rank) {
    room r;
    r.q = (float *)p->launch->workspace + rank * room_floats(p->num_heads, p->padded_dim);
    r.out = r.q + p->num_heads * p->padded_dim;
    r.scores = r.out + p->num_heads * p->padded_dim;
    r.largest = r.scores + p->num_heads * TILE_KEYS;
    r.sum = r.largest + p->num_heads;
    r.k_scale = r.sum + p->num_heads;
    r.v_scale = r.k_scale + TILE_KEYS;
    r.step = r.v_scale + TILE_KEYS;
    return r;
}

static int64_t workspace_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision;
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    return 4 * facts->units * room_floats(sizes.heads, bw_round_up(sizes.key_dim, BW_SIMD_FLOATS));
}

static int64_t entry_length(const problem *p, int64_t entry) {
    const int32_t *lengths = p->launch->operand[BW_ATTENTION_KV_LENS];
    return lengths ? bw_min64(lengths[entry], p->kv_len) : p->kv_len;
}

BW_INLINE int64_t key_start(const problem *p, int64_t entry, int64_t key, int64_t head) {
    return ((entry * p->kv_len + key) * p->num_kv_heads + head) * p->key_dim;
}

BW_INLINE void start_heads(bw_dtype dtype, const problem *p, const stretch *s, room *r) {
    const bw_vf scale = bw_vf_set(p->scale);
    for (int64_t head = s->head * p->group; head < s->head_end * p->group; head++) {
        int64_t from = (s->entry * p->num_heads + head) * p->key_dim;
        for (int64_t d = 0; d < p->key_dim; d += BW_SIMD_FLOATS) {
            bw_vf q = bw_vf_load_as_upto(dtype, p->launch->operand[BW_ATTENTION_Q], from + d, p->key_dim - d);
            bw_vf_store(r->q + head * p->padded_dim + d, q * scale);
            bw_vf_store(r->out + head * p->padded_dim + d, bw_vf_set(0.0f));
        }
        r->largest[head] = -INFINITY;
        r->sum[head] = 0.0f;
    }
}

/* Of keys from row `row` of k and v on: where values are the beginnings of keys, so are their scales the keys'. */
BW_INLINE void load_scales(const problem *p, const room *r, int64_t row, int64_t keys, int64_t head) {
    const int64_t stride = p->num_kv_heads, first = row * stride + head;
    void *const *operand = p->launch->operand;
    const int v_scale = p->v == p->k ? BW_ATTENTION_K_SCALE : BW_ATTENTION_V_SCALE;
    bw_gather_scales((const float *)operand[BW_ATTENTION_K_SCALE] + first, stride, keys, r->k_scale);
    bw_gather_scales((const float *)operand[v_scale] + first, stride, keys, r->v_scale);
}

/* What to fetch while a tile is worked on: for its key j, a row's elements of k and v from first + j * step on. Where
 * a task takes all heads, that walks through the next tile in memory's order, and the hardware's own prefetcher runs
 * ahead of it; row by row as the heads need them it would not. */
typedef struct fetch {
    bool wanted;
    int64_t first, step;
} fetch;

BW_INLINE void fetch_row(bw_dtype dtype, const void *data, fetch f, int64_t j, int64_t elems) {
    if (!f.wanted) return;
    const char *p = bw_at(dtype, data, f.first + j * f.step);
    for (int64_t i = 0; i < elems * bw_elem_bytes(dtype); i += 64) __builtin_prefetch(p + i, 0, 2);
}

/* dots[h][j + i] = lanes whose sum is q[h] . k[i], for `heads` query heads and `keys` rows of k from element `row`. */
BW_INLINE void dot_rows(bw_dtype dtype, const int heads, const int keys, const void *k, int64_t row, int64_t stride,
                        const float *q, int64_t padded_dim, int64_t head_dim, bw_vf dots[HEADS_AT_ONCE][BW_SIMD_FLOATS],
                        int64_t j) {
    bw_vf total[HEADS_AT_ONCE][KEYS_AT_ONCE];
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 2
        for (int i = 0; i < keys; i++) total[h][i] = bw_vf_set(0.0f);
    }
    int64_t d = 0;
    for (; d + BW_SIMD_FLOATS <= head_dim; d += BW_SIMD_FLOATS) {
        bw_vf x[KEYS_AT_ONCE];
#pragma GCC unroll 2
        for (int i = 0; i < keys; i++) x[i] = bw_vf_load_as(dtype, k, row + i * stride + d);
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) {
            bw_vf y = bw_vf_load(q + h * padded_dim + d);
#pragma GCC unroll 2
            for (int i = 0; i < keys; i++) total[h][i] = bw_vf_fma(x[i], y, total[h][i]);
        }
    }
    for (int i = 0; d < head_dim && i < keys; i++) {
        bw_vf x = bw_vf_load_as_upto(dtype, k, row + i * stride + d, head_dim - d);
        for (int h = 0; h < heads; h++) total[h][i] = bw_vf_fma(x, bw_vf_load(q + h * padded_dim + d), total[h][i]);
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 2
        for (int i = 0; i < keys; i++) dots[h][j + i] = total[h][i];
    }
}

/* Scores of `heads` query heads (from q on) with up to a vector of keys; row j of k starts `stride` after row j - 1.
 * The first of them is key `key` of its tile. */
BW_INLINE void score_block(bw_dtype dtype, const int heads, const problem *p, const float *q, int64_t start,
                           int64_t key, int64_t keys, fetch f, float *scores) {
    const void *k = p->k;
    const int64_t head_dim = p->key_dim, padded_dim = p->padded_dim, stride = p->stride;
    bw_vf dots[HEADS_AT_ONCE][BW_SIMD_FLOATS];
    int64_t j = 0;
    for (; j + KEYS_AT_ONCE <= keys; j += KEYS_AT_ONCE) {
        for (int i = 0; i < KEYS_AT_ONCE; i++) fetch_row(dtype, k, f, key + j + i, head_dim);
        dot_rows(dtype, heads, KEYS_AT_ONCE, k, start + j * stride, stride, q, padded_dim, head_dim, dots, j);
    }
    for (; j < keys; j++) dot_rows(dtype, heads, 1, k, start + j * stride, stride, q, padded_dim, head_dim, dots, j);
    for (; j < BW_SIMD_FLOATS; j++) {
        for (int h = 0; h < heads; h++) dots[h][j] = bw_vf_set(0.0f);
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) bw_vf_store(scores + h * TILE_KEYS, bw_vf_sums(dots[h]));
}

/* out += scores v for `heads` query heads and `vectors` vectors of the head, each of up to `left` elements. */
BW_INLINE void value_block(bw_dtype dtype, const int heads, const int vectors, const problem *p, const float *scores,
                           int64_t start, int64_t keys, int64_t left, fetch f, float *out) {
    const void *v = p->v;
    const int64_t stride = p->stride, padded_dim = p->padded_dim;
    bw_vf total[HEADS_AT_ONCE][VALUES_AT_ONCE];
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) total[h][i] = bw_vf_load(out + h * padded_dim + i * BW_SIMD_FLOATS);
    }
    for (int64_t j = 0; j < keys; j++) {
        bw_vf x[VALUES_AT_ONCE];
        fetch_row(dtype, v, f, j, p->value_dim);
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) {
            int64_t at = start + j * stride + i * BW_SIMD_FLOATS;
            x[i] = bw_vf_load_as_upto(dtype, v, at, left);
        }
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) {
            bw_vf weight = bw_vf_set(scores[h * TILE_KEYS + j]);
#pragma GCC unroll 4
            for (int i = 0; i < vectors; i++) total[h][i] = bw_vf_fma(weight, x[i], total[h][i]);
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 4
        for (int i = 0; i < vectors; i++) bw_vf_store(out + h * padded_dim + i * BW_SIMD_FLOATS, total[h][i]);
    }
}

BW_INLINE void add_values(bw_dtype dtype, const int heads, const problem *p, const float *scores, int64_t start,
                          int64_t keys, fetch f, float *out) {
    const int64_t head_dim = p->value_dim;
    int64_t d = 0;
    f.wanted &= p->v != p->k; /* else the keys have been fetched */
    for (; d + VALUES_AT_ONCE * BW_SIMD_FLOATS <= head_dim; d += VALUES_AT_ONCE * BW_SIMD_FLOATS, f.wanted = false) {
        value_block(dtype, heads, VALUES_AT_ONCE, p, scores, start + d, keys, BW_SIMD_FLOATS, f, out + d);
    }
    for (; d + BW_SIMD_FLOATS <= head_dim; d += BW_SIMD_FLOATS, f.wanted = false) {
        value_block(dtype, heads, 1, p, scores, start + d, keys, BW_SIMD_FLOATS, f, out + d);
    }
    if (d < head_dim) value_block(dtype, heads, 1, p, scores, start + d, keys, head_dim - d, f, out + d);
}

/* ---- products of words ---- */

/* Floats of [0, count), in room for whole vectors, to whole numbers of 16 bits in units of what is returned, which may
 * take their place; zeros follow up to `padded`. What is no finite number makes NaN of the unit. The sum of their
 * products with bytes fits 32 bits. */
static float to_words(const float *from, int64_t count, int64_t padded, int16_t *to) {
    bw_vf largest = bw_vf_set(0.0f), odd = bw_vf_set(0.0f);
    for (int64_t i = 0; i < count; i += BW_SIMD_FLOATS) {
        const bw_vf x = bw_vf_load_as_upto(BW_FP32, from, i, count - i);
        largest = bw_vf_max(largest, bw_vf_max(x, -x));
        odd = odd + (x - x);
    }
    const float most = bw_vf_largest(largest);
    const float word = (float)bw_min64(WORD_LARGEST, INT32_MAX / 128 / count);
    const bw_vf factor = bw_vf_set(most > 1e-30f ? word / most : 0.0f);
    for (int64_t i = 0; i < padded; i += BW_SIMD_FLOATS) {
        bw_vf x = bw_vf_set(0.0f);
        if (i < count) x = bw_vf_load_as_upto(BW_FP32, from, i, count - i);
        const bw_vu low = (bw_vu)bw_vf_fma(x, factor, bw_vf_set(12582912.0f)) & 0xffffu; /* of 1.5 * 2^23 + word */
        bw_vh_store(to + i, bw_vu_narrow(low));
    }
    return most / word + bw_vf_sum(odd);
}

/* As dot_rows. */
BW_INLINE void dot_words(const int heads, const int keys, const int8_t *k, int64_t stride, const int16_t *q,
                         int64_t q_stride, int64_t head_dim, bw_vi dots[HEADS_AT_ONCE][BW_SIMD_FLOATS], int64_t j) {
    bw_vi total[HEADS_AT_ONCE][WORD_KEYS];
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 4
        for (int i = 0; i < keys; i++) total[h][i] = (bw_vi){0};
    }
    int64_t d = 0;
    for (; d + WORDS <= head_dim; d += WORDS) {
        bw_vw x[WORD_KEYS];
#pragma GCC unroll 4
        for (int i = 0; i < keys; i++) x[i] = bw_vw_load_int8(k + i * stride + d);
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) {
            const bw_vw y = (bw_vw)bw_vu_load(q + h * q_stride + d);
#pragma GCC unroll 4
            for (int i = 0; i < keys; i++) total[h][i] += bw_vw_dot(x[i], y);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; d < head_dim && i < keys; i++) {
        const bw_vw x = bw_vw_load_upto(k + i * stride + d, head_dim - d);
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) {
            total[h][i] += bw_vw_dot(x, (bw_vw)bw_vu_load(q + h * q_stride + d));
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 4
        for (int i = 0; i < keys; i++) dots[h][j + i] = total[h][i];
    }
}

/* As score_block. */
BW_INLINE void score_words(const int heads, const problem *p, const int16_t *q, const float *step, int64_t start,
                           int64_t key, int64_t keys, fetch f, float *scores) {
    const int8_t *k = (const int8_t *)p->k + start;
    const int64_t head_dim = p->key_dim, stride = p->stride, q_stride = 2 * p->padded_dim;
    bw_vi dots[HEADS_AT_ONCE][BW_SIMD_FLOATS];
    if (keys < BW_SIMD_FLOATS) memset(dots, 0, sizeof dots);
    int64_t j = 0;
    for (; j + WORD_KEYS <= keys; j += WORD_KEYS) {
        for (int i = 0; i < WORD_KEYS; i++) fetch_row(BW_INT8, p->k, f, key + j + i, head_dim);
        dot_words(heads, WORD_KEYS, k + j * stride, stride, q, q_stride, head_dim, dots, j);
    }
    for (; j < keys; j++) dot_words(heads, 1, k + j * stride, stride, q, q_stride, head_dim, dots, j);
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
        bw_vf_store(scores + h * TILE_KEYS, bw_vf_from_vi(bw_vi_sums(dots[h])) * bw_vf_set(step[h]));
    }
}

/* As value_block, of `wide` times WORDS elements; the weights are words of `step`, pairs of keys one of 32 bits. */
BW_INLINE void value_words(const int heads, const int wide, const problem *p, const int16_t *weights, const float *step,
                           const int8_t *v, int64_t keys, int64_t left, fetch f, float *out) {
    const int64_t stride = p->stride, padded_dim = p->padded_dim;
    bw_vi total[HEADS_AT_ONCE][2][2];
    memset(total, 0, sizeof total);
    for (int64_t j = 0; j < keys; j += 2) {
        const int64_t next = j + 1 < keys ? stride : 0; /* the weight behind an odd number of keys is 0 */
        fetch_row(BW_INT8, p->v, f, j, p->value_dim);
        if (next) fetch_row(BW_INT8, p->v, f, j + 1, p->value_dim);
        bw_vw low[2], high[2];
#pragma GCC unroll 2
        for (int i = 0; i < wide; i++) {
            const int8_t *row = v + j * stride + i * WORDS;
            const bw_vw a = bw_vw_load_upto(row, left), b = bw_vw_load_upto(row + next, left);
            low[i] = bw_vw_turns_low(a, b);
            high[i] = bw_vw_turns_high(a, b);
        }
#pragma GCC unroll 4
        for (int h = 0; h < heads; h++) {
            uint32_t pair;
            memcpy(&pair, weights + h * TILE_KEYS + j, sizeof pair);
            const bw_vw weight = (bw_vw)(pair - (bw_vu){0});
#pragma GCC unroll 2
            for (int i = 0; i < wide; i++) {
                total[h][i][0] += bw_vw_dot(low[i], weight);
                total[h][i][1] += bw_vw_dot(high[i], weight);
            }
        }
    }
#pragma GCC unroll 4
    for (int h = 0; h < heads; h++) {
#pragma GCC unroll 2
        for (int i = 0; i < wide; i++) {
            const bw_vi first = bw_vi_first(total[h][i][0], total[h][i][1]);
            const bw_vi second = bw_vi_second(total[h][i][0], total[h][i][1]);
            float *to = out + h * padded_dim + i * WORDS;
            const bw_vf unit = bw_vf_set(step[h]);
            bw_vf_store(to, bw_vf_fma(bw_vf_from_vi(first), unit, bw_vf_load(to)));
            if (left <= BW_SIMD_FLOATS) continue;
            to += BW_SIMD_FLOATS;
            bw_vf_store(to, bw_vf_fma(bw_vf_from_vi(second), unit, bw_vf_load(to)));
        }
    }
}

BW_INLINE void add_value_words(const int heads, const problem *p, const int16_t *weights, const float *step,
                               int64_t start, int64_t keys, fetch f, float *out) {
    const int8_t *v = (const int8_t *)p->v + start;
    const int64_t head_dim = p->value_dim;
    int64_t d = 0;
    f.wanted &= p->v != p->k;
    for (; d + 2 * WORDS <= head_dim; d += 2 * WORDS, f.wanted = false) {
        value_words(heads, 2, p, weights, step, v + d, keys, WORDS, f, out + d);
    }
    for (; d < head_dim; d += WORDS, f.wanted = false) {
        value_words(heads, 1, p, weights, step, v + d, keys, bw_min64(WORDS, head_dim - d), f, out + d);
    }
}

/* `heads` query heads from `first` on, of one K/V head, and one tile of keys whose K and V rows start at `start`. */
BW_INLINE void tile_heads(const int heads, bw_dtype dtype, const bool words, const problem *p, room *r, int64_t first,
                          int64_t start, int64_t keys, fetch f) {
    if (heads > HEADS_AT_ONCE) return;
    const int64_t stride = p->stride;
    const float *q = r->q + first * p->padded_dim;
    for (int64_t j = 0; j < keys; j += BW_SIMD_FLOATS) {
        const int64_t some = bw_min64(BW_SIMD_FLOATS, keys - j), from = start + j * stride;
        if (!words) {
            score_block(dtype, heads, p, q, from, j, some, f, r->scores + j);
        } else {
            score_words(heads, p, (const int16_t *)q, r->step + first, from, j, some, f, r->scores + j);
        }
    }
    float *out = r->out + first * p->padded_dim, step[HEADS_AT_ONCE];
    int16_t weights[HEADS_AT_ONCE * TILE_KEYS];
    const bool scaled = bw_elem_bytes(dtype) == 1;
    for (int h = 0; h < heads; h++) {
        float *scores = r->scores + h * TILE_KEYS;
        if (scaled) bw_scale_row(scores, r->k_scale, keys);
        bw_softmax_update(scores, keys, out + h * p->padded_dim, p->value_dim, r->largest + first + h,
                          r->sum + first + h);
        if (scaled) bw_scale_row(scores, r->v_scale, keys);
        if (words) step[h] = to_words(scores, keys, TILE_KEYS, weights + h * TILE_KEYS);
    }
    if (!words) {
        add_values(dtype, heads, p, r->scores, start, keys, f, out);
    } else {
        add_value_words(heads, p, weights, step, start, keys, f, out);
    }
}

/* All query heads of one K/V head; the first of them do the fetching. */
BW_INLINE void tile_group(bw_dtype dtype, const bool words, const problem *p, room *r, int64_t first, int64_t start,
                          int64_t keys, fetch f) {
    for (int64_t h = 0; h < p->group; h += HEADS_AT_ONCE, f.wanted = false) {
        int64_t heads = bw_min64(HEADS_AT_ONCE, p->group - h);
        BW_COUNT_SWITCH(heads, tile_heads, dtype, words, p, r, first + h, start, keys, f);
    }
}

BW_INLINE void attend(bw_dtype dtype, const bool words, const problem *p, const stretch *s, room *r) {
    const int64_t stride = p->stride;
    const bool all_heads = s->head_end - s->head == p->num_kv_heads;
    BW_DTYPE_SWITCH(p->launch->precision->result, start_heads, p, s, r);
    for (int64_t head = s->head * p->group; words && head < s->head_end * p->group; head++) {
        float *q = r->q + head * p->padded_dim;
        r->step[head] = to_words(q, p->key_dim, bw_round_up(p->key_dim, WORDS), (int16_t *)q);
    }
    for (int64_t key = s->key; key < s->key_end; key += TILE_KEYS) {
        int64_t keys = bw_min64(TILE_KEYS, s->key_end - key);
        for (int64_t head = s->head; head < s->head_end; head++) {
            int64_t start = key_start(p, s->entry, key, head), next = start + TILE_KEYS * stride;
            fetch f = {key + 2 * TILE_KEYS <= s->key_end, next, stride};
            if (all_heads) {
                f.first = key_start(p, s->entry, key + TILE_KEYS, 0) + head * TILE_KEYS * p->key_dim;
                f.step = p->key_dim;
            }
            if (bw_elem_bytes(dtype) == 1) load_scales(p, r, s->entry * p->kv_len + key, keys, head);
            tile_group(dtype, words, p, r, head * p->group, start, keys, f);
        }
    }
}

/* The scratch of splitkv: (splits, B, H, D of a value) partial outputs, then (splits, B, H) logarithms of their sums.
 */
BW_INLINE float *logarithms(const problem *p) {
    return (float *)p->launch->scratch + p->splits * p->batch * p->num_heads * p->value_dim;
}

/* What a task found, to row `row` of `to`: the output, or the scratch, where keys that weigh nothing leave zeros, as
 * other splits may have others. */
BW_INLINE void store_heads(bw_dtype dtype, const problem *p, const stretch *s, const room *r, int64_t row, void *to) {
    for (int64_t head = s->head * p->group; head < s->head_end * p->group; head++) {
        const bw_vf factor = bw_vf_set(p->splits > 1 && r->sum[head] == 0.0f ? 0.0f : 1.0f / r->sum[head]);
        for (int64_t d = 0; d < p->value_dim; d += BW_SIMD_FLOATS) {
            bw_vf x = bw_vf_load(r->out + head * p->padded_dim + d) * factor;
            bw_vf_store_as_upto(dtype, to, (row * p->num_heads + head) * p->value_dim + d, x, p->value_dim - d);
        }
        if (p->splits > 1) logarithms(p)[row * p->num_heads + head] = r->largest[head] + logf(r->sum[head]);
    }
}

/* Not inlined, so that its loops keep to the registers. */
static __attribute__((noinline)) void attend_stretch(const problem *p, const stretch *s, room *r) {
    if (p->words) {
        attend(BW_INT8, true, p, s, r);
    } else {
        BW_CACHE_SWITCH(p->launch->precision->cache, attend, false, p, s, r);
    }
}

static void attend_share(void *context, int rank, int ranks) {
    (void)ranks;
    const problem *p = context;
    const bw_dtype dtype = p->launch->precision->result;
    room r = room_of(p, rank);
    int64_t a_split = p->num_kv_heads / p->heads_a_task, an_entry = a_split * p->splits;
    for (int64_t task; (task = bw_pool_next(p->launch->device->pool)) < p->batch * an_entry;) {
        int64_t entry = task / an_entry, split = task % an_entry / a_split, head = task % a_split * p->heads_a_task;
        int64_t length = entry_length(p, entry);
        stretch s = {entry, head, head + p->heads_a_task, length * split / p->splits, length * (split + 1) / p->splits};
        attend_stretch(p, &s, &r);
        if (p->splits > 1) {
            store_heads(BW_FP32, p, &s, &r, split * p->batch + entry, p->launch->scratch);
        } else {
            BW_DTYPE_SWITCH(dtype, store_heads, p, &s, &r, entry, p->launch->operand[BW_ATTENTION_OUT]);
        }
    }
}

static bw_status simple_launch(const bw_launch *launch) {
    problem p = problem_of(launch, false);
    bw_pool_run(launch->device->pool, attend_share, &p);
    return BW_OK;
}

/* Output row (entry, head) as the mean of its partial outputs, weighted by their sums. */
BW_INLINE void combine_row(bw_dtype dtype, const problem *p, int64_t row) {
    const int64_t rows = p->batch * p->num_heads;
    const float *partial = p->launch->scratch, *logs = logarithms(p);
    float largest = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < p->splits; i++) largest = fmaxf(largest, logs[i * rows + row]);
    for (int64_t i = 0; i < p->splits; i++) sum += bw_vf_exp(bw_vf_set(logs[i * rows + row] - largest))[0];
    for (int64_t d = 0; d < p->value_dim; d += BW_SIMD_FLOATS) {
        bw_vf total = bw_vf_set(0.0f);
        for (int64_t i = 0; i < p->splits; i++) {
            bw_vf weight = bw_vf_exp(bw_vf_set(logs[i * rows + row] - largest));
            int64_t at = (i * rows + row) * p->value_dim + d;
            total = bw_vf_fma(weight, bw_vf_load_as_upto(BW_FP32, partial, at, p->value_dim - d), total);
        }
        bw_vf_store_as_upto(dtype, p->launch->operand[BW_ATTENTION_OUT], row * p->value_dim + d,
                            total * bw_vf_set(1.0f / sum), p->value_dim - d);
    }
}

static void combine_share(void *context, int rank, int ranks) {
    const problem *p = context;
    int64_t first, last;
    bw_pool_share(p->batch * p->num_heads, rank, ranks, &first, &last);
    for (int64_t row = first; row < last; row++) BW_DTYPE_SWITCH(p->launch->precision->result, combine_row, p, row);
}

static bw_status split_launch(const bw_launch *launch, bool words) {
    problem p = problem_of(launch, true);
    p.words = words;
    bw_pool_run(launch->device->pool, attend_share, &p);
    if (p.splits > 1) bw_pool_run(launch->device->pool, combine_share, &p);
    return BW_OK;
}

static bw_status splitkv_launch(const bw_launch *launch) {
    return split_launch(launch, false);
}

static bw_status words_launch(const bw_launch *launch) {
    return split_launch(launch, true);
}

static bw_checked_int partial_bytes(const bw_dims *dims, const bw_device_facts *facts) {
    int64_t splits = split_count(dims, facts);
    if (splits == 1) return bw_num(0);
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    return bw_mul5(4, splits, sizes.batch, sizes.heads, sizes.value_dim + 1);
}

static int64_t splitkv_scratch(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision;
    bw_checked_int bytes = partial_bytes(dims, facts);
    return bytes.overflow ? INT64_MAX : bytes.value;
}

static bw_status splitkv_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cost *cost) {
    (void)precision;
    return bw_cost_add_intermediates(partial_bytes(dims, facts), cost);
}

/* Those of an operation: `words` is predicted at `words_at`. */
#define ROWS(words_at)                                                                                             \
    BW_CPU_ROW_IN(BW_CPU_PRECISIONS | BW_CPU_BYTES, "simple", simple,                                              \
                  .text = "one task for each batch entry and K/V head",                                            \
                  .prediction = {.changes = "the baseline: one task for each batch entry and K/V head"},           \
                  .workspace_bytes = workspace_bytes),                                                             \
        BW_CPU_ROW_IN(BW_CPU_PRECISIONS | BW_CPU_BYTES, "splitkv", splitkv,                                        \
                      .text = "keys split among the threads, partial results combined",                            \
                      .prediction = {.changes = "keys split among the threads, partial results combined",          \
                                     .predicted = 1.8,                                                             \
                                     .because = "one K/V head is one task: of two threads one had nothing to do"}, \
                      .scratch_bytes = splitkv_scratch, .workspace_bytes = workspace_bytes,                        \
                      .extra_cost = splitkv_cost),                                                                 \
    {                                                                                                              \
        .name = "words", .text = "splitkv with q and weights as whole numbers of 16 bits",                         \
        .precisions = BW_MASK(INT8), .launch = words_launch,                                                       \
        .prediction = {.changes = "q and the weights of a tile become whole numbers of 16 bits",                   \
                       .predicted = 1.3,                                                                           \
                       .because =                                                                                  \
                           "bytes become words in one instruction instead of floats in two, 32 in a vector; a "    \
                           "product and its addition are two instructions instead of one",                         \
                       .at = words_at},                                                                            \
        .scratch_bytes = splitkv_scratch, .workspace_bytes = workspace_bytes, .extra_cost = splitkv_cost,          \
    }

static const bw_variant decode_rows[] = {ROWS("int8 batch=8 kv_len=8192 num_heads=32 num_kv_heads=8 head_dim=128")};
const bw_variant_table BW_CPU_TABLE(attention_decode) = {
    decode_rows, sizeof decode_rows / sizeof decode_rows[0],
    "fp32 batch=1 kv_len=16384 num_heads=4 num_kv_heads=1 head_dim=128"};

static const bw_variant latent_rows[] = {ROWS("int8 batch=1 kv_len=4096 num_heads=16")};
const bw_variant_table BW_CPU_TABLE(mla_decode) = {latent_rows, sizeof latent_rows / sizeof latent_rows[0],
                                                   "fp32 batch=1 kv_len=4096 num_heads=16"};
