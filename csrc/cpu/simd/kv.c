/* The KV cache's moves. One variant each: `rows`, stretches of adjacent rows shared among the threads, large ones
 * copied as stream_copy does it. A row is one token's G * D elements; where caches have scales, its G scales are rows
 * of their own; kv_append quantizes a row into both, and kv_gather may multiply both.
 * rope and rope_append: tokens shared among the threads; large ones that are whole lines are written past the caches.
 */
#include <math.h>

#include "ops/families/kv.h"

#include "cpu/simd/copy.h"

enum { CHUNK_BYTES = 1 << 16 };

typedef struct row_move row_move;

/* How one operation's rows lie: maps row `row` of what is moved to its places and says how many rows from there on are
 * adjacent on both sides. */
typedef int64_t row_stretch(const row_move *move, int64_t row, int64_t *from_row, int64_t *to_row);

/* What is moved of each row: K's and V's values, and their scales where there are any. */
enum { SIDES = 4, SCALES = 2 };

struct row_move {
    const bw_launch *launch;
    int64_t rows, row_bytes, chunk_rows, heads, head_dim;
    void *from[SIDES], *to[SIDES];
    row_stretch *stretch;
    bool large, quantizes, dequantizes;
};

static int64_t copy_stretch(const row_move *move, int64_t row, int64_t *from_row, int64_t *to_row) {
    *from_row = *to_row = row;
    return move->rows - row;
}

/* The cache's row of a new token's. */
static int64_t append_row(const bw_launch *launch, int64_t row) {
    const int64_t *dims = launch->dims->value, *slots = launch->operand[BW_APPEND_SLOTS];
    return slots ? slots[row] : row + (row / dims[BW_APPEND_SEQ_LEN] + 1) * dims[BW_APPEND_KV_LEN];
}

static int64_t append_stretch(const row_move *move, int64_t row, int64_t *from_row, int64_t *to_row) {
    const int64_t seq_len = move->launch->dims->value[BW_APPEND_SEQ_LEN];
    *from_row = row;
    *to_row = append_row(move->launch, row);
    return move->launch->operand[BW_APPEND_SLOTS] ? 1 : seq_len - row % seq_len;
}

static int64_t gather_stretch(const row_move *move, int64_t row, int64_t *from_row, int64_t *to_row) {
    const int64_t *dims = move->launch->dims->value;
    const int32_t *table = move->launch->operand[BW_GATHER_TABLE];
    int64_t kv_len = dims[BW_GATHER_KV_LEN], page_size = dims[BW_GATHER_PAGE_SIZE];
    int64_t entry = row / kv_len, token = row % kv_len, pages = bw_ceil_div(kv_len, page_size);
    *from_row = table[entry * pages + token / page_size] * page_size + token % page_size;
    *to_row = row;
    return bw_min64(page_size - token % page_size, kv_len - token);
}

/* Whole chunks of K (side 0) or V for each rank: the same stretch of both, so that a rank finds them in the memory it
 * is near to. The chunks that cannot be divided go to the first ranks of K, to the last of V. */
static void side_share(int64_t chunks, int side, int rank, int ranks, int64_t *first, int64_t *last) {
    bw_pool_share(chunks, side ? ranks - 1 - rank : rank, ranks, first, last);
    if (side == 0) return;
    int64_t from_end = *first;
    *first = chunks - *last;
    *last = chunks - from_end;
}

/* What bw_quantize_row makes of a head, back to a result. */
BW_INLINE void dequantize_head(bw_dtype cache, bw_dtype dtype, const void *from, int64_t first, int64_t count, void *to,
                               int64_t to_first, float scale) {
    for (int64_t d = 0; d < count; d += BW_SIMD_FLOATS) {
        const bw_vf x = bw_vf_load_as_upto(cache, from, first + d, count - d);
        bw_vf_store_as_upto(dtype, to, to_first + d, x * bw_vf_set(scale), count - d);
    }
}

BW_INLINE void convert_as(bw_dtype dtype, bw_dtype cache, const row_move *move, int side, int64_t from_head,
                          int64_t to_head, int64_t heads) {
    const int64_t dim = move->head_dim;
    const void *from = move->from[side];
    void *to = move->to[side];
    float *scales = move->quantizes ? move->to[side + SCALES] : move->from[side + SCALES];
    for (int64_t i = 0; i < heads; i++) {
        const int64_t first = (from_head + i) * dim, to_first = (to_head + i) * dim;
        if (move->quantizes) {
            bw_quantize_row(cache, dtype, from, first, dim, to, to_first, scales + to_head + i);
        } else {
            dequantize_head(cache, dtype, from, first, dim, to, to_first, scales[from_head + i]);
        }
    }
}

BW_INLINE void convert_rows(bw_dtype cache, const row_move *move, int side, int64_t from_row, int64_t to_row,
                            int64_t rows) {
    const int64_t heads = move->heads;
    BW_DTYPE_SWITCH(move->launch->precision->result, convert_as, cache, move, side, from_row * heads, to_row * heads,
                    rows * heads);
}

static void move_rows(const row_move *move, int side, int64_t from_row, int64_t to_row, int64_t rows) {
    if (move->quantizes || move->dequantizes) {
        BW_CACHE_SWITCH(move->launch->precision->cache, convert_rows, move, side, from_row, to_row, rows);
        return;
    }
    int64_t bytes = move->row_bytes;
    for (int i = side; i < SIDES && move->from[i]; i += SCALES, bytes = move->heads * (int64_t)sizeof(float)) {
        bw_copy_bytes((char *)move->to[i] + to_row * bytes, (const char *)move->from[i] + from_row * bytes,
                      rows * bytes, move->large, move->launch->device->walks.copy);
    }
}

static void move_share(void *context, int rank, int ranks) {
    const row_move *move = context;
    for (int side = 0; side < SCALES; side++) {
        int64_t first, last;
        side_share(bw_ceil_div(move->rows, move->chunk_rows), side, rank, ranks, &first, &last);
        int64_t row = first * move->chunk_rows, end = bw_min64(last * move->chunk_rows, move->rows);
        while (row < end) {
            int64_t from_row, to_row;
            int64_t rows = bw_min64(move->stretch(move, row, &from_row, &to_row), end - row);
            move_rows(move, side, from_row, to_row, rows);
            row += rows;
        }
    }
    if (move->large) bw_stream_fence();
}

/* An operation's parameters, of which the first two say how many rows there are, and its operands: V follows K, and V's
 * scales K's, 0 where what is moved has none. */
typedef struct kv_numbers {
    int batch, tokens, heads, head_dim, from_k, to_k, from_scale, to_scale;
    row_stretch *stretch;
} kv_numbers;

static const kv_numbers append_numbers = {BW_APPEND_BATCH,
                                          BW_APPEND_SEQ_LEN,
                                          BW_APPEND_NUM_KV_HEADS,
                                          BW_APPEND_HEAD_DIM,
                                          BW_APPEND_K,
                                          BW_APPEND_K_CACHE,
                                          0,
                                          BW_APPEND_K_CACHE_SCALE,
                                          append_stretch};
static const kv_numbers gather_numbers = {BW_GATHER_BATCH,         BW_GATHER_KV_LEN,  BW_GATHER_NUM_KV_HEADS,
                                          BW_GATHER_HEAD_DIM,      BW_GATHER_K_CACHE, BW_GATHER_K,
                                          BW_GATHER_K_CACHE_SCALE, BW_GATHER_K_SCALE, gather_stretch};
static const kv_numbers copy_numbers = {BW_COPY_BATCH, BW_COPY_KV_LEN, BW_COPY_NUM_KV_HEADS, BW_COPY_HEAD_DIM,
                                        BW_COPY_K,     BW_COPY_K_COPY, BW_COPY_K_SCALE,      BW_COPY_K_COPY_SCALE,
                                        copy_stretch};

static row_move move_of(const bw_launch *launch, const kv_numbers *numbers) {
    const int64_t *dims = launch->dims->value;
    row_move move = {.launch = launch,
                     .rows = dims[numbers->batch] * dims[numbers->tokens],
                     .heads = dims[numbers->heads],
                     .head_dim = dims[numbers->head_dim],
                     .stretch = numbers->stretch,
                     .quantizes = launch->operand[numbers->to_scale] && !numbers->from_scale};
    move.dequantizes =
        numbers->from_scale && launch->operand[numbers->from_scale] && !launch->operand[numbers->to_scale];
    move.row_bytes = move.heads * move.head_dim * bw_elem_bytes(launch->precision->cache);
    for (int side = 0; side < SCALES; side++) {
        move.from[side] = launch->operand[numbers->from_k + side];
        move.to[side] = launch->operand[numbers->to_k + side];
        if (numbers->from_scale) move.from[side + SCALES] = launch->operand[numbers->from_scale + side];
        move.to[side + SCALES] = launch->operand[numbers->to_scale + side];
    }
    move.chunk_rows = bw_max64(1, CHUNK_BYTES / move.row_bytes);
    move.large = bw_is_large(2 * move.rows * move.row_bytes) && !move.quantizes && !move.dequantizes;
    return move;
}

/* `prepare` chooses the walk that large copies take. */
#define BW_KV_TABLE(operation, numbers)                                                                    \
    static bw_status operation##_launch(const bw_launch *launch) {                                         \
        row_move move = move_of(launch, &numbers);                                                         \
        bw_pool_run(launch->device->pool, move_share, &move);                                              \
        return BW_OK;                                                                                      \
    }                                                                                                      \
    static bw_status operation##_prepare(const bw_launch *sets, int64_t set_count, void **state) {         \
        (void)set_count, (void)state;                                                                      \
        row_move move = move_of(sets, &numbers);                                                           \
        if (move.large && !sets->once) BW_CPU_NAME(walks_choose)(sets->device);                            \
        return BW_OK;                                                                                      \
    }                                                                                                      \
    static const bw_variant operation##_rows[] = {BW_CPU_ROW_IN(                                           \
        BW_CPU_PRECISIONS | BW_CPU_BYTES, "rows", operation, .prepare = operation##_prepare,               \
        .text = "stretches of adjacent rows, all threads; large destinations are written past the caches", \
        .prediction = {.changes = "the only variant: stretches of adjacent rows, all threads"})};          \
    const bw_variant_table BW_CPU_TABLE(operation) = {operation##_rows, 1, NULL};

BW_KV_TABLE(kv_append, append_numbers)
BW_KV_TABLE(kv_gather, gather_numbers)
BW_KV_TABLE(kv_copy, copy_numbers)

/* ---- rope, rope_append ---- */

enum { OF_Q, OF_K, OF_V, ROPE_KINDS, TURN_TOKENS = 256 };

/* Which heads of a token are rotated (q's, k's) or moved (v's, of which rope has none), and where they go. */
typedef struct rotation {
    const bw_launch *launch;
    int64_t tokens, seq_len, before, head_dim; /* token t's position: before + t % seq_len */
    int64_t heads[ROPE_KINDS];
    const char *from[ROPE_KINDS];
    char *to[ROPE_KINDS];
    const float *angles;
    bool appends, large; /* appends: k and v go into a cache */
} rotation;

/* Elements [i, i + left) of a head's first half, and those of its second; at most a vector of each. */
BW_INLINE void turn(bw_dtype dtype, const void *from, const float *angles, int64_t half, int64_t i, bw_vf *low,
                    bw_vf *high) {
    const int64_t left = half - i;
    const bw_vf x = bw_vf_load_as_upto(dtype, from, i, left), y = bw_vf_load_as_upto(dtype, from, half + i, left);
    const bw_vf cosine = bw_vf_load_as_upto(BW_FP32, angles, i, left);
    const bw_vf sine = bw_vf_load_as_upto(BW_FP32, angles, half + i, left);
    *low = x * cosine - y * sine;
    *high = y * cosine + x * sine;
}

/* Halves of whole lines, past the caches: narrow results, too, leave in whole vectors. */
BW_INLINE void rotate_past(bw_dtype dtype, const void *from, const float *angles, int64_t half, void *to) {
    const int64_t per_vector = BW_SIMD_BYTES / bw_elem_bytes(dtype);
    for (int64_t i = 0; i < half; i += per_vector) {
        bw_vf low[2], high[2];
        __builtin_prefetch((const char *)bw_at(dtype, from, i) + BW_LINEAR_AHEAD);
        __builtin_prefetch((const char *)bw_at(dtype, from, half + i) + BW_LINEAR_AHEAD);
        turn(dtype, from, angles, half, i, &low[0], &high[0]);
        if (dtype != BW_FP32) turn(dtype, from, angles, half, i + BW_SIMD_FLOATS, &low[1], &high[1]);
        if (dtype == BW_FP16) {
            low[0] = bw_vh_join(bw_vf_to_fp16(low[0]), bw_vf_to_fp16(low[1]));
            high[0] = bw_vh_join(bw_vf_to_fp16(high[0]), bw_vf_to_fp16(high[1]));
        } else if (dtype == BW_BF16) {
            low[0] = bw_vh_join(bw_vf_to_bf16(low[0]), bw_vf_to_bf16(low[1]));
            high[0] = bw_vh_join(bw_vf_to_bf16(high[0]), bw_vf_to_bf16(high[1]));
        }
        bw_stream_vector(bw_at_mutable(dtype, to, i), low[0]);
        bw_stream_vector(bw_at_mutable(dtype, to, half + i), high[0]);
    }
}

BW_INLINE void rotate_heads(bw_dtype dtype, const rotation *r, const char *from, const float *angles, int64_t heads,
                            char *to) {
    const int64_t half = r->head_dim / 2, bytes = r->head_dim * bw_elem_bytes(dtype);
    const bool past = r->large && bytes % (2 * BW_LINE_BYTES) == 0;
    for (; heads-- > 0; from += bytes, to += bytes) {
        if (past) {
            rotate_past(dtype, from, angles, half, to);
            continue;
        }
        for (int64_t i = 0; i < half; i += BW_SIMD_FLOATS) {
            bw_vf low, high;
            turn(dtype, from, angles, half, i, &low, &high);
            bw_vf_store_as_upto(dtype, to, i, low, half - i);
            bw_vf_store_as_upto(dtype, to, half + i, high, half - i);
        }
    }
}

/* The heads of one kind of a token. */
static void rotate_token(const rotation *r, int kind, int64_t token) {
    const bw_dtype dtype = r->launch->precision->result;
    const int64_t heads = r->heads[kind], bytes = heads * r->head_dim * bw_elem_bytes(dtype);
    const int64_t row = kind != OF_Q && r->appends ? append_row(r->launch, token) : token;
    const char *from = r->from[kind] + token * bytes;
    const float *angles = r->angles + (r->before + token % r->seq_len) * r->head_dim;
    if (kind == OF_V) {
        bw_copy_bytes(r->to[kind] + row * bytes, from, bytes, r->large, BW_WALK_LINEAR);
    } else {
        BW_DTYPE_SWITCH(dtype, rotate_heads, r, from, angles, heads, r->to[kind] + row * bytes);
    }
}

/* The same kind of many tokens in turn: memory likes long streams, and the angles of so many stay in the cache. */
static void rotate_share(void *context, int rank, int ranks) {
    const rotation *r = context;
    int64_t first, last;
    bw_pool_share(r->tokens, rank, ranks, &first, &last);
    for (int64_t block = first; block < last; block += TURN_TOKENS) {
        for (int kind = OF_Q; kind < ROPE_KINDS && r->heads[kind]; kind++) {
            for (int64_t t = block; t < bw_min64(block + TURN_TOKENS, last); t++) rotate_token(r, kind, t);
        }
    }
    if (r->large) bw_stream_fence();
}

static bw_status rotate(rotation *r) {
    const int64_t each = r->heads[OF_Q] + r->heads[OF_K] + r->heads[OF_V];
    r->large = bw_is_large(2 * r->tokens * each * r->head_dim * bw_elem_bytes(r->launch->precision->result));
    bw_pool_run(r->launch->device->pool, rotate_share, r);
    return BW_OK;
}

static bw_status rope_launch(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    return rotate(&(rotation){.launch = launch,
                              .tokens = dims[BW_ROPE_TOKENS],
                              .seq_len = dims[BW_ROPE_TOKENS],
                              .head_dim = dims[BW_ROPE_HEAD_DIM],
                              .heads = {dims[BW_ROPE_NUM_HEADS], dims[BW_ROPE_NUM_KV_HEADS]},
                              .from = {launch->operand[BW_ROPE_Q], launch->operand[BW_ROPE_K]},
                              .to = {launch->operand[BW_ROPE_Q_OUT], launch->operand[BW_ROPE_K_OUT]},
                              .angles = launch->operand[BW_ROPE_ANGLES]});
}

static const bw_variant rope_rows[] = {
    BW_CPU_ROW("rows", rope, .text = "tokens shared among the threads; large destinations are written past the caches",
               .prediction = {.changes = "the only variant: tokens shared among the threads"})};
const bw_variant_table BW_CPU_TABLE(rope) = {rope_rows, 1, NULL};

/* What both variants of rope_append begin with; k goes to `keys`. */
static rotation rope_append_rotation(const bw_launch *launch, void *keys) {
    const int64_t *dims = launch->dims->value, kv_heads = dims[BW_APPEND_NUM_KV_HEADS];
    return (rotation){
        .launch = launch,
        .tokens = dims[BW_APPEND_BATCH] * dims[BW_APPEND_SEQ_LEN],
        .seq_len = dims[BW_APPEND_SEQ_LEN],
        .before = dims[BW_APPEND_KV_LEN],
        .head_dim = dims[BW_APPEND_HEAD_DIM],
        .heads = {dims[BW_ROPE_APPEND_NUM_HEADS], kv_heads},
        .from = {launch->operand[BW_ROPE_APPEND_Q], launch->operand[BW_APPEND_K], launch->operand[BW_APPEND_V]},
        .to = {launch->operand[BW_ROPE_APPEND_Q_OUT], keys, launch->operand[BW_APPEND_V_CACHE]},
        .angles = launch->operand[BW_ROPE_APPEND_ANGLES]};
}

static bw_status unfused_launch(const bw_launch *launch) {
    rotation r = rope_append_rotation(launch, launch->scratch);
    BW_TRY(rotate(&r));
    bw_launch append = *launch;
    append.operand[BW_APPEND_K] = launch->scratch;
    return kv_append_launch(&append);
}

static bw_status fused_launch(const bw_launch *launch) {
    rotation r = rope_append_rotation(launch, launch->operand[BW_APPEND_K_CACHE]);
    r.heads[OF_V] = r.heads[OF_K];
    r.appends = true;
    return rotate(&r);
}

static const bw_variant rope_append_rows[] = {
    BW_CPU_ROW("unfused", unfused, .prepare = kv_append_prepare, .scratch_bytes = bw_rope_append_unfused_scratch,
               .extra_cost = bw_rope_append_unfused_cost,
               .text = "rope, then kv_append of keys that it wrote to memory",
               .prediction = {.changes = "the baseline: rope, then kv_append"}),
    BW_CPU_ROW(
        "fused", fused, .text = "one pass: keys and values go into the cache at once",
        .prediction = {.changes = "one pass over q, k and v",
                       .predicted = 1.17,
                       .because = "rotated keys are not written and read once more: 96 heads a token move, not 112"}),
};
const bw_variant_table BW_CPU_TABLE(rope_append) = {rope_append_rows, 2,
                                                    "fp32 seq_len=8192 num_heads=32 num_kv_heads=8 head_dim=128"};
