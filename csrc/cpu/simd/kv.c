/* The KV cache's moves. One rung each: `rows`, stretches of adjacent rows shared among the threads. A row is one
 * token's G * D elements. */
#include "ops/kv.h"

#include "cpu/simd/copy.h"

enum { STRETCH_BYTES = 1 << 16 };

/* How one operation's rows lie: `stretch` maps row `from` of the destination to its source's place and says how many
 * rows from there on are adjacent on both sides. */
typedef struct row_move {
    const bw_launch *launch;
    int64_t rows, row_bytes, chunk_rows;
    const char *from[2];
    char *to[2];
    int64_t (*stretch)(const struct row_move *move, int64_t row, int64_t *from_row, int64_t *to_row);
    bool past_caches;
} row_move;

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

/* K and V of a chunk one after the other: each is one stream. */
static void move_share(void *context, int rank, int ranks) {
    const row_move *move = context;
    int64_t chunks = bw_ceil_div(move->rows, move->chunk_rows), first, last;
    bw_pool_share(2 * chunks, rank, ranks, &first, &last);
    for (int64_t task = first; task < last; task++) {
        int side = task >= chunks;
        int64_t row = (task - side * chunks) * move->chunk_rows;
        int64_t end = bw_min64(row + move->chunk_rows, move->rows);
        while (row < end) {
            int64_t from_row, to_row;
            int64_t rows = bw_min64(move->stretch(move, row, &from_row, &to_row), end - row);
            bw_copy_bytes(move->to[side] + to_row * move->row_bytes, move->from[side] + from_row * move->row_bytes,
                          rows * move->row_bytes, move->past_caches);
            row += rows;
        }
    }
}

static bw_status run(row_move *move, int64_t heads, int64_t head_dim) {
    const bw_launch *launch = move->launch;
    move->row_bytes = heads * head_dim * bw_elem_bytes(launch->dtype);
    move->chunk_rows = bw_max64(1, STRETCH_BYTES / move->row_bytes);
    move->past_caches = bw_writes_past_caches(2 * move->rows * move->row_bytes);
    bw_pool_run(launch->device->pool, move_share, move);
    return BW_OK;
}

static bw_status append_launch(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    row_move move = {.launch = launch,
                     .rows = dims[BW_APPEND_BATCH] * dims[BW_APPEND_SEQ_LEN],
                     .from = {launch->operand[BW_APPEND_K], launch->operand[BW_APPEND_V]},
                     .to = {launch->operand[BW_APPEND_K_CACHE], launch->operand[BW_APPEND_V_CACHE]},
                     .stretch = append_stretch};
    return run(&move, dims[BW_APPEND_NUM_KV_HEADS], dims[BW_APPEND_HEAD_DIM]);
}

static bw_status gather_launch(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    row_move move = {.launch = launch,
                     .rows = dims[BW_GATHER_BATCH] * dims[BW_GATHER_KV_LEN],
                     .from = {launch->operand[BW_GATHER_K_CACHE], launch->operand[BW_GATHER_V_CACHE]},
                     .to = {launch->operand[BW_GATHER_K], launch->operand[BW_GATHER_V]},
                     .stretch = gather_stretch};
    return run(&move, dims[BW_GATHER_NUM_KV_HEADS], dims[BW_GATHER_HEAD_DIM]);
}

static bw_status copy_launch(const bw_launch *launch) {
    const int64_t *dims = launch->dims->value;
    row_move move = {.launch = launch,
                     .rows = dims[BW_COPY_BATCH] * dims[BW_COPY_KV_LEN],
                     .from = {launch->operand[BW_COPY_K], launch->operand[BW_COPY_V]},
                     .to = {launch->operand[BW_COPY_K_COPY], launch->operand[BW_COPY_V_COPY]},
                     .stretch = copy_stretch};
    return run(&move, dims[BW_COPY_NUM_KV_HEADS], dims[BW_COPY_HEAD_DIM]);
}

#define BW_KV_TABLE(operation, function)                                                                     \
    static const bw_variant operation##_rows[] = {{.name = "rows",                                           \
                                                   .text = "stretches of adjacent rows, all threads; large " \
                                                           "destinations are written past the caches",       \
                                                   .precisions = BW_CPU_PRECISIONS,                          \
                                                   .launch = function}};                                     \
    extern const bw_variant_table BW_CPU_TABLE(operation);                                                   \
    const bw_variant_table BW_CPU_TABLE(operation) = {operation##_rows, 1};

BW_KV_TABLE(kv_append, append_launch)
BW_KV_TABLE(kv_gather, gather_launch)
BW_KV_TABLE(kv_copy, copy_launch)
