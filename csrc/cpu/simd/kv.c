/* The KV cache's moves. One variant each: `rows`, stretches of adjacent rows shared among the threads, large ones
 * copied as stream_copy does it. A row is one token's G * D elements; where caches have scales, its G scales are rows
 * of their own; kv_append quantizes a row into both, and kv_gather may multiply both. */
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

static int64_t append_stretch(const row_move *move, int64_t row, int64_t *from_row, int64_t *to_row) {
    const int64_t *dims = move->launch->dims->value;
    const int64_t *slots = move->launch->operand[BW_APPEND_SLOTS];
    *from_row = row;
    if (dims[BW_APPEND_PAGE_SIZE] > 0) {
        *to_row = slots[row];
        return 1;
    }
    int64_t seq_len = dims[BW_APPEND_SEQ_LEN], kv_len = dims[BW_APPEND_KV_LEN];
    int64_t entry = row / seq_len, token = row % seq_len;
    *to_row = entry * (kv_len + seq_len) + kv_len + token;
    return seq_len - token;
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

/* A token's head: its scale, and its elements divided by that. */
BW_INLINE void quantize_head(bw_dtype cache, bw_dtype dtype, const void *from, int64_t first, int64_t count, void *to,
                             int64_t to_first, float *scale) {
    const float most = bw_dtype_largest(cache);
    bw_vf largest = bw_vf_set(0.0f);
    for (int64_t d = 0; d < count; d += BW_SIMD_FLOATS) {
        const bw_vf x = bw_vf_load_as_upto(dtype, from, first + d, count - d);
        largest = bw_vf_max(largest, bw_vf_max(x, -x));
    }
    *scale = bw_vf_largest(largest) / most;
    const bw_vf divisor = bw_vf_set(*scale == 0.0f ? INFINITY : *scale), least = bw_vf_set(-most);
    for (int64_t d = 0; d < count; d += BW_SIMD_FLOATS) {
        bw_vf x = bw_vf_load_as_upto(dtype, from, first + d, count - d) / divisor;
        if (dtype != BW_FP16) x = -bw_vf_max(-bw_vf_max(x, least), least); /* a subnormal scale is rounded much */
        bw_vf_store_as_upto(cache, to, to_first + d, x, count - d);
    }
}

/* The other way round. */
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
            quantize_head(cache, dtype, from, first, dim, to, to_first, scales + to_head + i);
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
