/* transpose, permute: see ops/families/memory/layout.h. Bytes: every element is read once and written once. */
#include "ops/families/memory/layout.h"

#include "base/types/input.h"
#include "ops/operand.h"

/* Elements that one reference row compares, of a line: what lies behind each other in the output but not in the
 * input. */
enum { PART_ELEMS = 64 };

static const bw_param transpose_params[] = {
    BW_PARAM("batch", "matrices", "matrices", 1, INT32_MAX, .fallback = 1, .small = 2),
    BW_PARAM("rows", "elements", "rows of a matrix of the input", 1, INT32_MAX, .fallback = 4096, .small = 37),
    BW_PARAM("columns", "elements", "its columns: the output's rows", 1, INT32_MAX, .fallback = 4096, .small = 45),
};

static const bw_param permute_params[] = {
    BW_PARAM("batch", "sequences", "sequences", 1, INT32_MAX, .fallback = 1, .small = 2),
    BW_PARAM("seq_len", "tokens", "tokens of a sequence", 1, INT32_MAX, .fallback = 4096, .small = 7),
    BW_PARAM("num_heads", "heads", "heads of a token", 1, 65536, .fallback = 32, .small = 3),
    BW_PARAM("head_dim", "elements", "elements of one head", 1, 65536, .fallback = 128, .small = 24),
};

_Static_assert((int)BW_PERMUTE_SEQ_LEN == (int)BW_TRANSPOSE_ROWS, "bw_swap_of reads both");
_Static_assert((int)BW_PERMUTE_NUM_HEADS == (int)BW_TRANSPOSE_COLUMNS, "bw_swap_of reads both");

static int transpose_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const bw_swap s = bw_swap_of(dims);
    out[BW_LAYOUT_IN] = bw_operand_make("in", BW_IN, precision->result, BW_SHAPE(s.batch, s.rows, s.columns));
    out[BW_LAYOUT_OUT] = bw_operand_make("out", BW_OUT, precision->result, BW_SHAPE(s.batch, s.columns, s.rows));
    return BW_LAYOUT_OPERANDS;
}

static int permute_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const bw_swap s = bw_swap_of(dims);
    out[BW_LAYOUT_IN] = bw_operand_make("in", BW_IN, precision->result, BW_SHAPE(s.batch, s.rows, s.columns, s.run));
    out[BW_LAYOUT_OUT] = bw_operand_make("out", BW_OUT, precision->result, BW_SHAPE(s.batch, s.columns, s.rows, s.run));
    return BW_LAYOUT_OPERANDS;
}

static bw_rows layout_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    const bw_swap s = bw_swap_of(dims);
    const int64_t line = s.rows * s.run, parts = bw_ceil_div(line, PART_ELEMS);
    return (bw_rows){
        .count = s.batch * s.columns * parts, .elems = bw_min64(line, PART_ELEMS), .line = parts, .parts = parts};
}

static bw_status layout_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                  bw_reference_row *out) {
    const bw_swap s = bw_swap_of(dims);
    const int64_t length = s.rows * s.run, parts = bw_ceil_div(length, PART_ELEMS), line = row / parts;
    const int64_t first = row % parts * PART_ELEMS, batch = line / s.columns, column = line % s.columns;
    const bw_input_key key = bw_input_key_make(seed, BW_LAYOUT_IN);
    out->operand = BW_LAYOUT_OUT;
    out->offset = line * length + first;
    out->count = bw_min64(PART_ELEMS, length - first);
    out->scale = 1.0;
    for (int64_t done = 0, some; done < out->count; done += some) {
        const int64_t from = (first + done) / s.run, within = (first + done) % s.run;
        some = bw_min64(out->count - done, s.run - within);
        bw_input_doubles(precision->result, key, ((batch * s.rows + from) * s.columns + column) * s.run + within, some,
                         out->values + done);
    }
    return BW_OK;
}

#define LAYOUT(name_, text_, elements)                                   \
    const bw_op bw_op_##name_ = {                                        \
        .name = #name_,                                                  \
        .family = "layout",                                              \
        .text = text_,                                                   \
        .params = name_##_params,                                        \
        .param_count = sizeof name_##_params / sizeof name_##_params[0], \
        .precisions = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16),     \
        .formula = {elements "*e_result", elements "*e_result", "0"},    \
        .operands = name_##_operands,                                    \
        .rows = layout_rows,                                             \
        .reference = layout_reference,                                   \
        .tolerance = bw_tolerance_exact,                                 \
    };

LAYOUT(transpose, "columns of matrices become rows", "batch*rows*columns")
LAYOUT(permute, "(batch, token, head, element) to (batch, head, token, element)", "batch*seq_len*num_heads*head_dim")
