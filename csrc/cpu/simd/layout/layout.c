/* transpose and permute: moves of bits, by the elements' size. Threads share the work evenly.
 *   naive  the output element by element, in its order, read across the input's rows;
 *   tiled  (transpose) strips of rows of the input, whose squares are transposed in registers: whole lines of the
 *          output's rows, which leave past the caches where it is large;
 *   runs   (permute) token by token, each head's elements at once. */
#include "ops/families/memory/layout.h"

#include "cpu/simd/copy.h"

typedef struct task {
    const bw_launch *launch;
    bw_swap swap;
    const char *in;
    char *out;
    int64_t run_bytes; /* that stay together */
    bool large;
} task;

static bw_status run(const bw_launch *launch, bw_pool_task share) {
    task t = {.launch = launch,
              .swap = bw_swap_of(launch->dims),
              .in = launch->operand[BW_LAYOUT_IN],
              .out = launch->operand[BW_LAYOUT_OUT]};
    t.run_bytes = t.swap.run * bw_elem_bytes(launch->precision->result);
    t.large = BW_SIMD_STREAMS && bw_is_large(2 * t.swap.batch * t.swap.rows * t.swap.columns * t.run_bytes);
    bw_pool_run(launch->device->pool, share, &t);
    return BW_OK;
}

/* ---- naive ---- */

BW_INLINE void naive_line(bw_dtype dtype, const task *t, int64_t line) {
    const int64_t elem = bw_elem_bytes(dtype), columns = t->swap.columns, rows = t->swap.rows;
    const char *from = t->in + (line / columns * rows * columns + line % columns) * t->run_bytes;
    char *to = t->out + line * rows * t->run_bytes;
    for (int64_t row = 0; row < rows; row++, from += columns * t->run_bytes) {
        for (int64_t i = 0; i < t->run_bytes; i += elem, to += elem) memcpy(to, from + i, (size_t)elem);
    }
}

static void naive_share(void *context, int rank, int ranks) {
    const task *t = context;
    int64_t line, last;
    bw_pool_share(t->swap.batch * t->swap.columns, rank, ranks, &line, &last);
    for (; line < last; line++) BW_DTYPE_SWITCH(t->launch->precision->result, naive_line, t, line);
}

/* ---- tiled ---- */

/* Of a strip, in lines of the output. Where the output's rows do not begin with a line, a strip has the rows of a line
 * more, for what is left of the last one: they are read twice, but no line is written in parts. */
enum { STRIP_LINES = 2, UNALIGNED_LINES = 4, STAGE_BYTES = (UNALIGNED_LINES + 1) * BW_LINE_BYTES, BLOCKS_AHEAD = 4 };

BW_INLINE void square_put(char *to, bw_vf x, bool past) {
    if (past) {
        bw_stream_vector(to, x);
    } else {
        bw_vf_store((float *)to, x);
    }
}

/* A square of a vector's width, from rows that lie `stride` bytes apart to rows `pitch` apart. */
BW_INLINE void square(bw_dtype dtype, const char *from, int64_t stride, char *to, int64_t pitch, bool past) {
    bw_vf low[BW_SIMD_FLOATS], high[BW_SIMD_FLOATS];
    if (dtype == BW_FP32) {
#pragma GCC unroll 16
        for (int i = 0; i < BW_SIMD_FLOATS; i++) low[i] = bw_vf_load((const float *)(from + i * stride));
        bw_vf_transpose(low);
#pragma GCC unroll 16
        for (int i = 0; i < BW_SIMD_FLOATS; i++) square_put(to + i * pitch, low[i], past);
        return;
    }
    /* Two rows become one of pairs, which are words: of columns 0 to 3 and 4 to 7 of every eight. */
#pragma GCC unroll 16
    for (int i = 0; i < BW_SIMD_FLOATS; i++) {
        const bw_vw even = (bw_vw)bw_vu_load(from + 2 * i * stride);
        const bw_vw odd = (bw_vw)bw_vu_load(from + (2 * i + 1) * stride);
        low[i] = (bw_vf)bw_vw_turns_low(even, odd);
        high[i] = (bw_vf)bw_vw_turns_high(even, odd);
    }
    bw_vf_transpose(low);
#pragma GCC unroll 16
    for (int i = 0; i < BW_SIMD_FLOATS; i++) square_put(to + (i / 4 * 8 + i % 4) * pitch, low[i], past);
    bw_vf_transpose(high);
#pragma GCC unroll 16
    for (int i = 0; i < BW_SIMD_FLOATS; i++) square_put(to + (i / 4 * 8 + 4 + i % 4) * pitch, high[i], past);
}

/* A line of as many rows. `ahead`: what is needed soon lies so many bytes further on. */
BW_INLINE void block(bw_dtype dtype, const char *from, int64_t stride, int64_t ahead, char *to, int64_t pitch,
                     bool past) {
    const int64_t elem = bw_elem_bytes(dtype), elems = BW_LINE_BYTES / elem, side = BW_SIMD_BYTES / elem;
    for (int64_t row = 0; row < elems; row++) __builtin_prefetch(from + row * stride + ahead, 0, 2);
    for (int64_t row = 0; row < elems; row += side) {
        for (int64_t column = 0; column < elems; column += side) {
            square(dtype, from + row * stride + column * elem, stride, to + column * pitch + row * elem, pitch, past);
        }
    }
}

/* The same of so many rows and columns of it. */
BW_INLINE void part_block(bw_dtype dtype, const char *from, int64_t stride, int64_t rows, int64_t columns, char *to) {
    char padded[BW_LINE_BYTES / 2 * BW_LINE_BYTES] = {0};
    for (int64_t row = 0; row < rows; row++) {
        memcpy(padded + row * BW_LINE_BYTES, from + row * stride, (size_t)(columns * bw_elem_bytes(dtype)));
    }
    block(dtype, padded, BW_LINE_BYTES, 0, to, STAGE_BYTES, false);
}

/* Of the strip of `height` rows that begins with row `row`, the line of columns that begins with `column`. */
BW_INLINE void strip_block(bw_dtype dtype, const task *t, const char *in, char *out, int64_t row, int64_t column,
                           int64_t height, bool aligned) {
    const int64_t elem = bw_elem_bytes(dtype), line = BW_LINE_BYTES / elem, rows = t->swap.rows;
    const int64_t columns = t->swap.columns, stride = columns * elem, some = bw_min64(line, columns - column);
    const int64_t ahead = column + (BLOCKS_AHEAD + 1) * line <= columns ? BLOCKS_AHEAD * BW_LINE_BYTES : 0;
    const bool past = t->large && (int)BW_SIMD_BYTES == (int)BW_LINE_BYTES;
    in += row * stride + column * elem;
    out += (column * rows + row) * elem;
    if (some == line && rows - row >= height && (!t->large || (aligned && past))) {
        for (int64_t i = 0; i < height; i += line) {
            block(dtype, in + i * stride, stride, ahead, out + i * elem, rows * elem, past);
        }
        return;
    }
    char stage[BW_LINE_BYTES / 2 * STAGE_BYTES] __attribute__((aligned(BW_LINE_BYTES)));
    const int64_t left = rows - row, there = bw_min64(left, height + (aligned ? 0 : line));
    for (int64_t i = 0; i < there; i += line) {
        if (some == line && there - i >= line) {
            block(dtype, in + i * stride, stride, ahead, stage + i * elem, STAGE_BYTES, false);
        } else {
            part_block(dtype, in + i * stride, stride, bw_min64(line, there - i), some, stage + i * elem);
        }
    }
    const char *from = stage;
    for (int64_t i = 0; i < some; i++, out += rows * elem, from += STAGE_BYTES) {
        int64_t at = aligned ? 0 : (int64_t)(-(uintptr_t)out % BW_LINE_BYTES); /* the strip before wrote so far */
        const int64_t last = bw_min64(left * elem, height * elem + at);
        if (row == 0) memcpy(out, from, (size_t)bw_min64(at, last));
        for (; t->large && at + BW_LINE_BYTES <= last; at += BW_LINE_BYTES) bw_copy_line(out + at, from + at);
        if (at < last) memcpy(out + at, from + at, (size_t)(last - at));
    }
}

BW_INLINE void tiled_blocks(bw_dtype dtype, const task *t, int rank, int ranks) {
    const bw_swap s = t->swap;
    const int64_t line = BW_LINE_BYTES / bw_elem_bytes(dtype);
    const bool aligned = !t->large || s.rows % line == 0;
    const int64_t height = (aligned ? STRIP_LINES : UNALIGNED_LINES) * line;
    const int64_t across = bw_ceil_div(s.columns, line), down = bw_ceil_div(s.rows, height);
    int64_t at, last;
    bw_pool_share(s.batch * down * across, rank, ranks, &at, &last);
    for (; at < last; at++) {
        const int64_t strip = at / across, first = strip / down * s.rows * s.columns * bw_elem_bytes(dtype);
        strip_block(dtype, t, t->in + first, t->out + first, strip % down * height, at % across * line, height,
                    aligned);
    }
    if (t->large) bw_stream_fence();
}

static void tiled_share(void *context, int rank, int ranks) {
    const task *t = context;
    BW_DTYPE_SWITCH(t->launch->precision->result, tiled_blocks, t, rank, ranks);
}

/* ---- runs ---- */

static void runs_share(void *context, int rank, int ranks) {
    const task *t = context;
    const int64_t rows = t->swap.rows, columns = t->swap.columns, bytes = t->run_bytes;
    int64_t row, last;
    bw_pool_share(t->swap.batch * rows, rank, ranks, &row, &last);
    for (; row < last; row++) {
        const char *from = t->in + row * columns * bytes;
        char *to = t->out + (row / rows * rows * columns + row % rows) * bytes;
        for (int64_t i = 0; i < columns; i++) {
            bw_copy_bytes(to + i * rows * bytes, from + i * bytes, bytes, t->large, BW_WALK_LINEAR);
        }
    }
    if (t->large) bw_stream_fence();
}

#define LAYOUT_LAUNCH(name)                                   \
    static bw_status name##_launch(const bw_launch *launch) { \
        return run(launch, name##_share);                     \
    }
LAYOUT_LAUNCH(naive)
LAYOUT_LAUNCH(tiled)
LAYOUT_LAUNCH(runs)

#define NAIVE                                                                       \
    BW_CPU_ROW("naive", naive, .text = "element by element, in the output's order", \
               .prediction = {.changes = "the baseline: the output in its order, an element at a time"})

static const bw_variant transpose_rows[] = {
    NAIVE,
    BW_CPU_ROW("tiled", tiled, .text = "squares of vectors transposed in registers; whole lines are written",
               .prediction = {.changes = "squares are transposed in registers, and whole lines written",
                              .predicted = 20.0,
                              .because = "each line is read once, not once for each of its 32 elements"}),
};
const bw_variant_table BW_CPU_TABLE(transpose) = {transpose_rows, sizeof transpose_rows / sizeof transpose_rows[0],
                                                  "fp16 rows=8192 columns=8192"};

static const bw_variant permute_rows[] = {
    NAIVE,
    BW_CPU_ROW("runs", runs, .text = "token by token, each head's elements at once",
               .prediction = {.changes = "a head's elements at once, tokens in the input's order",
                              .predicted = 4.0,
                              .because = "vectors instead of elements, and no line is read before it is written"}),
};
const bw_variant_table BW_CPU_TABLE(permute) = {permute_rows, sizeof permute_rows / sizeof permute_rows[0],
                                                "fp16 batch=4 seq_len=4096 num_heads=32 head_dim=128"};
