/* The rows' operations: rows shared among the threads. A row's passes after the first find it in the cache, and all of
 * them together ask for the next row. Large results are written past the caches. */
#include "ops/families/rows.h"

#include <math.h>

#include "cpu/simd/copy.h"

/* A row up to NEAR_BYTES stays in a core's cache, and the next one beside it. */
enum { NEAR_BYTES = 1 << 17, SUMS = 4, CHUNK_ELEMS = 1024 };

typedef struct row {
    const bw_launch *launch;
    const void *x, *residual, *weight, *bias; /* the launch's, where the compiler sees that no store changes them */
    int64_t first, columns, end;              /* of the whole matrix's elements: its first, how many; the share's end */
    bool large;
    float *room;  /* for a row in FP32 */
    float top;    /* what is subtracted: the largest element, or the mean */
    float factor; /* what multiplies the difference */
} row;

/* Elements i to i + left - 1, up to a vector of them; what is beyond `left` does not matter. */
typedef bw_vf row_values(bw_dtype dtype, row *row, int64_t i, int64_t left);
/* `so_far` with such a vector taken in. */
typedef bw_vf row_take(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left);

/* Lanes from `left` on become `other`. */
BW_INLINE bw_vf only_first(bw_vf x, int64_t left, float other) {
    if (left >= BW_SIMD_FLOATS) return x;
    for (int64_t i = left; i < BW_SIMD_FLOATS; i++) x[i] = other;
    return x;
}

BW_INLINE bw_vf x_values(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    return bw_vf_load_as_upto(dtype, row->x, row->first + i, left);
}

/* What an earlier pass left in FP32. */
BW_INLINE bw_vf kept_values(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    (void)dtype;
    return bw_vf_load_as_upto(BW_FP32, row->room, i, left) * row->factor;
}

/* ---- passes ---- */

/* One of a row's passes, counted from 0. */
typedef struct pass {
    int number, of;
} pass;

/* Where the cache holds two rows, all passes together ask for the next one; else each asks for what comes soon. */
BW_INLINE void ask_ahead(bw_dtype dtype, row *row, pass pass, int64_t i) {
    const int64_t elem = bw_elem_bytes(dtype), soon = BW_LINEAR_AHEAD / elem;
    const bool is_near = row->columns * elem <= NEAR_BYTES;
    const int64_t ahead =
        is_near ? bw_max64(row->columns, soon) + (pass.number * row->columns + i) / pass.of : i + soon;
    const int64_t at = bw_min64(row->first + ahead, row->end - 1);
    __builtin_prefetch(bw_at(dtype, row->x, at), 0, 2);
    if (row->residual) __builtin_prefetch(bw_at(dtype, row->residual, at), 0, 2);
}

/* Several vectors side by side, so that none waits for the one before it. */
BW_INLINE void row_reduce(bw_dtype dtype, row *row, int64_t from, int64_t to, pass pass, row_take *take,
                          bw_vf parts[SUMS]) {
    int64_t i = from;
    for (; i + SUMS * BW_SIMD_FLOATS <= to; i += SUMS * BW_SIMD_FLOATS) {
        for (int64_t line = i; line < i + SUMS * BW_SIMD_FLOATS; line += BW_LINE_BYTES / bw_elem_bytes(dtype)) {
            ask_ahead(dtype, row, pass, line);
        }
#pragma GCC unroll 4
        for (int j = 0; j < SUMS; j++) parts[j] = take(dtype, row, parts[j], i + j * BW_SIMD_FLOATS, BW_SIMD_FLOATS);
    }
    for (; i < to; i += BW_SIMD_FLOATS) parts[0] = take(dtype, row, parts[0], i, to - i);
}

BW_INLINE float row_sum(bw_dtype dtype, row *row, int64_t from, int64_t to, pass pass, row_take *take) {
    bw_vf parts[SUMS];
    for (int j = 0; j < SUMS; j++) parts[j] = bw_vf_set(0.0f);
    row_reduce(dtype, row, from, to, pass, take, parts);
    return bw_vf_sum((parts[0] + parts[1]) + (parts[2] + parts[3]));
}

BW_INLINE bw_vf take_larger(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left) {
    return bw_vf_max(so_far, only_first(x_values(dtype, row, i, left), left, -INFINITY));
}

BW_INLINE float row_largest(bw_dtype dtype, row *row, int64_t from, int64_t to, pass pass) {
    bw_vf parts[SUMS];
    for (int j = 0; j < SUMS; j++) parts[j] = bw_vf_set(-INFINITY);
    row_reduce(dtype, row, from, to, pass, take_larger, parts);
    return bw_vf_largest(bw_vf_max(bw_vf_max(parts[0], parts[1]), bw_vf_max(parts[2], parts[3])));
}

/* Whole lines past the caches where results are large; the ends of a row as they come. */
BW_INLINE void row_write(bw_dtype dtype, row *row, void *array, pass pass, row_values *values) {
    const int64_t elem = bw_elem_bytes(dtype), line = BW_LINE_BYTES / elem, end = row->columns;
    void *to = bw_at_mutable(dtype, array, row->first);
    const int64_t head = row->large ? (int64_t)(-(uintptr_t)to % BW_LINE_BYTES) / elem : end;
    int64_t i = 0;
    for (int64_t stop = bw_min64(head, end); i < stop; i += BW_SIMD_FLOATS) {
        bw_vf_store_as_upto(dtype, to, i, values(dtype, row, i, stop - i), stop - i);
    }
    for (i = bw_min64(head, end); i + line <= end; i += line) {
        ask_ahead(dtype, row, pass, i);
#pragma GCC unroll 4
        for (int64_t j = i; j < i + line; j += BW_SIMD_BYTES / elem) {
            bw_vf x = values(dtype, row, j, BW_SIMD_FLOATS);
            if (dtype != BW_FP32) {
                const bw_vf y = values(dtype, row, j + BW_SIMD_FLOATS, BW_SIMD_FLOATS);
                x = dtype == BW_FP16 ? bw_vh_join(bw_vf_to_fp16(x), bw_vf_to_fp16(y))
                                     : bw_vh_join(bw_vf_to_bf16(x), bw_vf_to_bf16(y));
            }
            bw_stream_vector(bw_at_mutable(dtype, to, j), x);
        }
    }
    for (; i < end; i += BW_SIMD_FLOATS) {
        bw_vf_store_as_upto(dtype, to, i, values(dtype, row, i, end - i), end - i);
    }
}

/* ---- norms ---- */

BW_INLINE bw_vf take_squares(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left) {
    const bw_vf x = x_values(dtype, row, i, left);
    return bw_vf_fma(x, x, so_far);
}

BW_INLINE bw_vf take_kept_squares(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left) {
    (void)dtype;
    const bw_vf x = bw_vf_load_as_upto(BW_FP32, row->room, i, left);
    return bw_vf_fma(x, x, so_far);
}

BW_INLINE bw_vf take_values(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left) {
    return so_far + x_values(dtype, row, i, left);
}

BW_INLINE bw_vf take_deviations(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left) {
    const bw_vf x = only_first(x_values(dtype, row, i, left) - row->top, left, 0.0f);
    return bw_vf_fma(x, x, so_far);
}

BW_INLINE float norm_factor(row *row, float squares) {
    return 1.0f / sqrtf(squares / (float)row->columns + BW_ROWS_EPSILON);
}

BW_INLINE bw_vf rmsnorm_values(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    return x_values(dtype, row, i, left) * row->factor * bw_vf_load_as_upto(dtype, row->weight, i, left);
}

BW_INLINE void rmsnorm_row(bw_dtype dtype, row *row) {
    row->factor = norm_factor(row, row_sum(dtype, row, 0, row->columns, (pass){0, 2}, take_squares));
    row_write(dtype, row, row->launch->operand[BW_ROWS_OUT], (pass){1, 2}, rmsnorm_values);
}

BW_INLINE bw_vf layernorm_values(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    const bw_vf x = (x_values(dtype, row, i, left) - row->top) * row->factor;
    return bw_vf_fma(x, bw_vf_load_as_upto(dtype, row->weight, i, left), bw_vf_load_as_upto(dtype, row->bias, i, left));
}

BW_INLINE void layernorm_row(bw_dtype dtype, row *row) {
    row->top = row_sum(dtype, row, 0, row->columns, (pass){0, 3}, take_values) / (float)row->columns;
    row->factor = norm_factor(row, row_sum(dtype, row, 0, row->columns, (pass){1, 3}, take_deviations));
    row_write(dtype, row, row->launch->operand[BW_ROWS_OUT], (pass){2, 3}, layernorm_values);
}

/* The sum as it is stored. */
BW_INLINE bw_vf sum_values(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    char stored[BW_SIMD_BYTES];
    bw_vf_store_as(dtype, stored, 0,
                   x_values(dtype, row, i, left) + bw_vf_load_as_upto(dtype, row->residual, row->first + i, left));
    return bw_vf_load_as(dtype, stored, 0);
}

BW_INLINE bw_vf keep_sums(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    const bw_vf x = sum_values(dtype, row, i, left);
    bw_vf_store_as_upto(BW_FP32, row->room, i, x, left);
    return x;
}

BW_INLINE bw_vf kept_norm_values(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    return kept_values(dtype, row, i, left) * bw_vf_load_as_upto(dtype, row->weight, i, left);
}

/* Sums that are on their way to memory are read again where they are kept. */
BW_INLINE void residual_rmsnorm_row(bw_dtype dtype, row *row) {
    row_write(dtype, row, row->launch->operand[BW_ROWS_SUM], (pass){0, 3}, keep_sums);
    row->factor = norm_factor(row, row_sum(dtype, row, 0, row->columns, (pass){1, 3}, take_kept_squares));
    row_write(dtype, row, row->launch->operand[BW_ROWS_OUT], (pass){2, 3}, kept_norm_values);
}

BW_INLINE void addition_row(bw_dtype dtype, row *row) {
    row_write(dtype, row, row->launch->operand[BW_ROWS_SUM], (pass){0, 1}, sum_values);
}

BW_INLINE void sum_norm_row(bw_dtype dtype, row *row) {
    row->x = row->launch->operand[BW_ROWS_SUM];
    row->residual = NULL;
    rmsnorm_row(dtype, row);
}

/* ---- exponentials ---- */

/* What exponents are relative to; -infinity itself would make NaN of itself. */
BW_INLINE float reference_of(float top) {
    return top == -INFINITY ? 0.0f : top;
}

BW_INLINE bw_vf exponentials(bw_dtype dtype, row *row, int64_t i, int64_t left) {
    return bw_vf_exp(x_values(dtype, row, i, left) - reference_of(row->top));
}

BW_INLINE bw_vf take_exponentials(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left) {
    return so_far + only_first(exponentials(dtype, row, i, left), left, 0.0f);
}

BW_INLINE bw_vf keep_exponentials(bw_dtype dtype, row *row, bw_vf so_far, int64_t i, int64_t left) {
    const bw_vf x = only_first(exponentials(dtype, row, i, left), left, 0.0f);
    bw_vf_store(row->room + i, x);
    return so_far + x;
}

BW_INLINE void softmax_row(bw_dtype dtype, row *row) {
    row->top = row_largest(dtype, row, 0, row->columns, (pass){0, 3});
    row->factor = 1.0f / row_sum(dtype, row, 0, row->columns, (pass){1, 3}, keep_exponentials);
    row_write(dtype, row, row->launch->operand[BW_ROWS_OUT], (pass){2, 3}, kept_values);
}

BW_INLINE void write_logarithm(bw_dtype dtype, row *row, float top, float sum) {
    const float result = top == INFINITY ? top : reference_of(top) + logf(sum);
    bw_vf_store_as_upto(dtype, row->launch->operand[BW_ROWS_OUT], row->first / row->columns, bw_vf_set(result), 1);
}

/* In one pass, chunk by chunk: what was summed up is scaled down where the maximum rises. */
BW_INLINE void logsumexp_row(bw_dtype dtype, row *row) {
    float sum = 0.0f, top = -INFINITY;
    for (int64_t i = 0; i < row->columns; i += CHUNK_ELEMS) {
        const int64_t end = bw_min64(i + CHUNK_ELEMS, row->columns);
        row->top = fmaxf(top, row_largest(dtype, row, i, end, (pass){0, 2}));
        sum *= expf(top - reference_of(row->top));
        sum += row_sum(dtype, row, i, end, (pass){1, 2}, take_exponentials);
        top = row->top;
    }
    write_logarithm(dtype, row, top, sum);
}

BW_INLINE float *stored_top(row *row) {
    return (float *)row->launch->scratch + row->first / row->columns;
}

BW_INLINE char *stored_exponentials(row *row) {
    return (char *)row->launch->scratch + bw_logsumexp_exponentials(row->launch->dims);
}

BW_INLINE void top_row(bw_dtype dtype, row *row) {
    *stored_top(row) = row_largest(dtype, row, 0, row->columns, (pass){0, 1});
}

BW_INLINE void exponentials_row(bw_dtype dtype, row *row) {
    row->top = *stored_top(row);
    row_write(dtype, row, stored_exponentials(row), (pass){0, 1}, exponentials);
}

BW_INLINE void total_row(bw_dtype dtype, row *row) {
    row->x = stored_exponentials(row);
    write_logarithm(dtype, row, *stored_top(row), row_sum(dtype, row, 0, row->columns, (pass){0, 1}, take_values));
}

/* ---- launches ---- */

static int64_t room_elems(const bw_dims *dims) {
    return bw_round_up(dims->value[BW_ROWS_ELEMS], BW_LINE_BYTES);
}

static int64_t room_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision;
    return facts->units * room_elems(dims) * (int64_t)sizeof(float);
}

#define ROWS_SHARE(work)                                                                        \
    static void work##_share(void *context, int rank, int ranks) {                              \
        const bw_launch *launch = context;                                                      \
        const bw_dims *dims = launch->dims;                                                     \
        const int64_t columns = dims->value[BW_ROWS_ELEMS], rows = dims->value[BW_ROWS_COUNT];  \
        const bw_dtype dtype = launch->precision->result;                                       \
        int64_t first, last;                                                                    \
        bw_pool_share(rows, rank, ranks, &first, &last);                                        \
        row row = {.launch = launch,                                                            \
                   .residual = launch->operand[BW_ROWS_RESIDUAL],                               \
                   .weight = launch->operand[BW_ROWS_WEIGHT],                                   \
                   .bias = launch->operand[BW_ROWS_BIAS],                                       \
                   .columns = columns,                                                          \
                   .end = last * columns,                                                       \
                   .large = bw_is_large(rows * columns * bw_elem_bytes(dtype))};                \
        if (launch->workspace) row.room = (float *)launch->workspace + rank * room_elems(dims); \
        for (int64_t i = first; i < last; i++) {                                                \
            row.first = i * columns;                                                            \
            row.x = launch->operand[BW_ROWS_X];                                                 \
            BW_DTYPE_SWITCH(dtype, work##_row, &row);                                           \
        }                                                                                       \
        if (row.large) bw_stream_fence();                                                       \
    }

BW_INLINE void run(const bw_launch *launch, bw_pool_task share) {
    bw_pool_run(launch->device->pool, share, (void *)(uintptr_t)launch);
}

#define ROWS_LAUNCH(operation)                                     \
    ROWS_SHARE(operation)                                          \
    static bw_status operation##_launch(const bw_launch *launch) { \
        run(launch, operation##_share);                            \
        return BW_OK;                                              \
    }

ROWS_LAUNCH(rmsnorm)
ROWS_LAUNCH(layernorm)
ROWS_LAUNCH(residual_rmsnorm)
ROWS_LAUNCH(softmax)
ROWS_LAUNCH(logsumexp)
ROWS_SHARE(addition)
ROWS_SHARE(sum_norm)
ROWS_SHARE(top)
ROWS_SHARE(exponentials)
ROWS_SHARE(total)

static bw_status residual_rmsnorm_unfused_launch(const bw_launch *launch) {
    run(launch, addition_share);
    run(launch, sum_norm_share);
    return BW_OK;
}

static bw_status logsumexp_unfused_launch(const bw_launch *launch) {
    run(launch, top_share);
    run(launch, exponentials_share);
    run(launch, total_share);
    return BW_OK;
}

#define ROW_TEXT "a row at a time, rows shared among the threads; large results are written past the caches"
#define ROWS_TABLE(operation, at)                                                                                     \
    const bw_variant_table BW_CPU_TABLE(operation) = {operation##_rows, sizeof operation##_rows / sizeof(bw_variant), \
                                                      at};
#define ONLY(operation, ...)                                                                                          \
    static const bw_variant operation##_rows[] = {BW_CPU_ROW(                                                         \
        "rows", operation, .text = ROW_TEXT,                                                                          \
        .prediction = {.changes = "the only variant: a row at a time, rows shared among the threads"}, __VA_ARGS__)}; \
    ROWS_TABLE(operation, NULL)

ONLY(rmsnorm, )
ONLY(layernorm, )
ONLY(softmax, .workspace_bytes = room_bytes)

static const bw_variant residual_rmsnorm_rows[] = {
    BW_CPU_ROW("unfused", residual_rmsnorm_unfused, .text = "rows are added, then a norm reads the sums",
               .extra_cost = bw_residual_rmsnorm_unfused_cost,
               .prediction = {.changes = "the baseline: all rows are added, then read again for the norm"}),
    BW_CPU_ROW("fused", residual_rmsnorm, .text = ROW_TEXT, .workspace_bytes = room_bytes,
               .prediction = {.changes = "one pass over memory: a row's sum stays in the cache for the norm",
                              .predicted = 1.25,
                              .because = "four matrices move instead of five"})};
ROWS_TABLE(residual_rmsnorm, "fp32 tokens=8192 hidden=8192")

static const bw_variant logsumexp_rows[] = {
    {.name = "unfused",
     .text = "maxima of all rows, exponentials stored, and their sums",
     .prediction = {.changes = "the baseline: three passes, exponentials in memory"},
     .precisions = BW_CPU_PRECISIONS,
     .scratch_bytes = bw_logsumexp_scratch,
     .extra_cost = bw_logsumexp_unfused_cost,
     .launch = logsumexp_unfused_launch},
    BW_CPU_ROW("fused", logsumexp, .text = ROW_TEXT,
               .prediction = {.changes = "one pass over memory: maximum and sum of a chunk that the cache holds",
                              .predicted = 4.0,
                              .because = "x is read once; it was read twice, and exponentials written and read"})};
ROWS_TABLE(logsumexp, "fp32 rows=8192 columns=8192")
