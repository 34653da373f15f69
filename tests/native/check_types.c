/* Types, precisions and operands: what the precisions of before gave must stay, bit by bit; and what no kernel needs
 * yet (scales, constants, references of scaled operands) is checked against arithmetic of its own. */
#include <stdlib.h>

#include "base/names.h"
#include "check.h"
#include "ops/operand.h"

/* ---- hashes of inputs, costs, operands, rows, tolerances and reference rows ---- */

static uint64_t hash;

static void mix(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

static void mix_integer(int64_t value) {
    mix(&value, sizeof value);
}

/* To seven digits: what a compiler contracts, and a library's exp, may differ in the last ones. */
static void mix_rounded(double value) {
    char text[32];
    mix(text, (size_t)snprintf(text, sizeof text, "%.6e", value));
}

enum { SHAPES = 4, LAST_SHAPE_IS_DEFAULTS = 3, ROWS = 50, SEED = 77 };

static bw_dims golden_dims(const bw_op *op, const bw_precision *precision, int shape) {
    static const int64_t lengths[] = {7, 3};
    static const struct {
        const char *name;
        int64_t value[LAST_SHAPE_IS_DEFAULTS];
    } sizes[] = {{"elements", {5000, 1, 123457}},
                 {"M", {3, 1, 40}},
                 {"N", {37, 16, 100}},
                 {"K", {29, 300, 64}},
                 {"beta", {1, 0, 1}},
                 {"batch", {2, 1, 3}},
                 {"seq_len", {5, 3, 17}},
                 {"kv_len", {7, 40, 33}},
                 {"num_heads", {6, 14, 32}},
                 {"num_kv_heads", {2, 2, 1}},
                 {"head_dim", {8, 64, 80}},
                 {"causal", {1, 0, 1}},
                 {"page_size", {4, 16, 5}}};
    bw_dims dims = {.list = shape == 0 && op->list ? lengths : NULL, .list_count = 2};
    unsigned present = 0;
    for (size_t i = 0; shape < LAST_SHAPE_IS_DEFAULTS && i < sizeof sizes / sizeof sizes[0]; i++) {
        int index = bw_op_param_index(op, sizes[i].name);
        if (index < 0) continue;
        dims.value[index] = sizes[i].value[shape];
        present |= 1u << index;
    }
    OK(bw_op_complete(op, precision, present, &dims));
    return dims;
}

static void mix_operand(const bw_op *op, const bw_dims *dims, const bw_operand *operand, int index, bool filled) {
    const char *type = bw_dtype_get(operand->dtype)->name;
    mix_integer(index);
    mix(operand->name, strlen(operand->name));
    mix_integer(operand->elems);
    mix_integer(operand->bytes);
    mix_integer(operand->role);
    mix(type, strlen(type));
    mix_integer(operand->minimum);
    mix_integer(operand->maximum);
    mix_integer(operand->rank);
    if (!filled || operand->recipe == BW_RECIPE_POISON) return;
    char *stored = malloc((size_t)operand->bytes);
    bw_operand_fill(op, dims, SEED, operand, index, stored);
    mix(stored, (size_t)operand->bytes);
    free(stored);
    if (operand->recipe != BW_RECIPE_HASH) return;
    double *values = malloc((size_t)operand->elems * sizeof *values);
    bw_input_doubles(operand->dtype, bw_input_key_make(SEED, index), 0, operand->elems, values);
    mix(values, (size_t)operand->elems * sizeof *values);
    free(values);
}

static void mix_reference(const bw_op *op, const bw_precision *precision, const bw_dims *dims, const bw_rows *rows) {
    double *values = malloc((size_t)rows->elems * sizeof *values);
    for (int64_t i = 0; i < rows->count && i < ROWS; i++) {
        bw_reference_row row = {.values = values};
        OK(op->reference(dims, precision, SEED, i * (rows->count - 1) / (ROWS - 1) % rows->count, &row));
        mix_integer(row.operand);
        mix_integer(row.offset);
        mix_integer(row.count);
        mix_rounded(row.scale);
        mix_rounded(row.freedom);
        for (int64_t j = 0; j < row.count; j++) mix_rounded(values[j]);
    }
    free(values);
}

static void mix_shape(const bw_op *op, const bw_precision *precision, int shape) {
    const bw_dims dims = golden_dims(op, precision, shape);
    bw_operand operands[BW_MAX_OPERANDS];
    bw_cost cost;
    int count;
    OK(bw_op_cost(op, &dims, precision, &cost));
    mix_integer(cost.bytes_read);
    mix_integer(cost.bytes_written);
    mix_integer(cost.flops);
    mix_integer(cost.footprint_bytes);
    OK(bw_op_operands(op, &dims, precision, operands, &count));
    for (int i = 0; i < count; i++) {
        if (operands[i].present) mix_operand(op, &dims, &operands[i], i, shape < LAST_SHAPE_IS_DEFAULTS);
    }
    const bw_rows rows = op->rows(&dims, precision);
    mix_integer(rows.count);
    mix_integer(rows.elems);
    mix_integer(rows.line);
    mix_integer(rows.focus);
    mix_integer(rows.parts);
    for (int once = 0; once < 2; once++) {
        bw_tolerance tolerance = op->tolerance(&dims, precision, once);
        mix_rounded(tolerance.element);
        mix_rounded(tolerance.noise);
    }
    if (shape < LAST_SHAPE_IS_DEFAULTS) mix_reference(op, precision, &dims, &rows);
}

static uint64_t hash_of(const bw_op *op, const bw_precision *precision) {
    hash = 0xcbf29ce484222325u;
    for (int shape = 0; shape < SHAPES; shape++) mix_shape(op, precision, shape);
    return hash;
}

/* From the types before precisions were told apart from them. */
static const struct {
    const char *op, *precision;
    uint64_t hash;
} golden[] = {
    {"stream_read", "fp32", 0xc430d24544808c7bu},
    {"stream_read", "fp16", 0x0891e7ba40bee632u},
    {"stream_read", "bf16", 0xeb11a79b83acc4d9u},
    {"stream_write", "fp32", 0x09ab37873936edb5u},
    {"stream_write", "fp16", 0xeff94ce42b270723u},
    {"stream_write", "bf16", 0xbfca492117ceefdbu},
    {"stream_copy", "fp32", 0xcbb3354fa60c6727u},
    {"stream_copy", "fp16", 0x6c90c7c4fbafe41eu},
    {"stream_copy", "bf16", 0x1cdd07145c7f20b2u},
    {"stream_triad", "fp32", 0x25ae5400dfe56854u},
    {"stream_triad", "fp16", 0x815042d494f585eau},
    {"stream_triad", "bf16", 0x862419064ee6b983u},
    {"gemm", "fp32", 0x6fca933d8cc097e3u},
    {"gemm", "tf32", 0xdb1d8b305ea2908fu},
    {"gemm", "fp16", 0xc04e717686a90435u},
    {"gemm", "bf16", 0x03093c57d2f76a34u},
    {"attention_prefill", "fp32", 0x23cfeb35192a1b56u},
    {"attention_prefill", "fp16", 0x06be26f68c5cb403u},
    {"attention_prefill", "bf16", 0xfbe42befbf8fb3ffu},
    {"attention_decode", "fp32", 0x7cfbac652dcd0b86u},
    {"attention_decode", "fp16", 0x192c48e03d611fa6u},
    {"attention_decode", "bf16", 0x6edad29b22b9396eu},
    {"kv_append", "fp32", 0xd6de1e6f028632f0u},
    {"kv_append", "fp16", 0x3ac724925c63f7f4u},
    {"kv_append", "bf16", 0xcd9bc6944d44f5beu},
    {"kv_gather", "fp32", 0x33ef4c24b65e95feu},
    {"kv_gather", "fp16", 0xe0c83ad83065aae2u},
    {"kv_gather", "bf16", 0x70cc5af729edd2fdu},
    {"kv_copy", "fp32", 0x421b2cdca5c0007fu},
    {"kv_copy", "fp16", 0x799ecca0e6f4ccacu},
    {"kv_copy", "bf16", 0xc7f6d7c361796c7fu},
};

static void check_what_was_stays(int op_index) {
    const bw_op *op = bw_op_at(op_index);
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        const bw_precision *precision;
        if (strcmp(golden[i].op, op->name) != 0 || !OK(bw_precision_find(golden[i].precision, &precision))) continue;
        uint64_t found = hash_of(op, precision);
        CHECK(found == golden[i].hash, "%s %s gives 0x%016" PRIx64 "u", op->name, precision->name, found);
    }
}

/* ---- operands ---- */

static void check_positives(int op_index) {
    (void)op_index;
    const bw_dims dims = {.list = NULL};
    bw_operand operand = bw_operand_make("positive", BW_IN, BW_FP32, BW_SHAPE(10000));
    operand.recipe = BW_RECIPE_POSITIVE;
    operand.value = 8.0;
    OK(bw_operand_measure("test", &operand, 1));
    float *positive = malloc((size_t)operand.bytes);
    double *read = malloc((size_t)operand.elems * sizeof *read), squares = 0.0;
    bw_operand_fill(bw_op_at(0), &dims, SEED, &operand, 0, positive);
    bw_source source = bw_source_of(&operand, 1, 0, SEED);
    bw_source_read(&source, 0, operand.elems, read);
    for (int64_t i = 0; i < operand.elems; i++) {
        CHECK(positive[i] >= 4.0f && positive[i] <= 8.0f, "element %" PRId64 " is %g", i, (double)positive[i]);
        CHECK(read[i] == (double)positive[i], "element %" PRId64 " is read as %g", i, read[i]);
        squares += read[i] * read[i] / (double)operand.elems;
    }
    CHECK(fabs(squares * bw_source_inverse_square(&source) - 1.0) < 0.02, "the mean square is %g", squares);
    free(positive);
    free(read);
}

/* Absent operands keep their places: whatever comes after one has the number, and so the inputs, that it always had. */
static void check_absent_in_the_middle(int op_index) {
    (void)op_index;
    int index, count;
    OK(bw_op_find("gemm", &index));
    const bw_precision *precision;
    OK(bw_precision_find("int8", &precision));
    bw_dims dims = {.value = {2, 3, 4, 0}};
    bw_operand operands[BW_MAX_OPERANDS];
    OK(bw_op_operands(bw_op_at(index), &dims, precision, operands, &count));
    const int scales = bw_operand_find(operands, count, "B_scale");
    CHECK(scales > 0 && operands[scales].bytes == 3 * 4, "B_scale is operand %d", scales);
    int absent = -1;
    for (int i = 0; i < scales; i++) {
        if (!operands[i].present) absent = i;
    }
    CHECK(absent > 0, "no operand before number %d is absent", scales);
    CHECK_EQUAL(operands[absent].bytes, 0);
    CHECK_EQUAL(bw_operand_find(operands, count, operands[absent].name), -1);
}

/* An element of the operand `index` as it is stored. */
static double stored_element(const bw_operand *operands, int index, int64_t row, int64_t column, int64_t columns) {
    const bw_operand *operand = &operands[index];
    const bw_dims dims = {.list = NULL};
    char *stored = malloc((size_t)operand->bytes);
    bw_operand_fill(bw_op_at(0), &dims, SEED, operand, index, stored);
    const double value = bw_dtype_load(operand->dtype, stored + row * bw_dtype_bytes(operand->dtype, columns), column);
    free(stored);
    return value;
}

/* What a test works out itself: element (row, column) of a generated matrix, less its zero point, times its scales:
 * one for each row, one for each group of a row, or one for all. */
static double element_of(const bw_operand *operands, int count, int index, int64_t row, int64_t column,
                         int64_t columns) {
    double value = stored_element(operands, index, row, column, columns), scale = 1.0;
    for (int i = 0; i < count; i++) {
        const bw_operand *part = &operands[i];
        if (!part->present || !part->scale_of || strcmp(part->scale_of, operands[index].name) != 0) continue;
        const int64_t groups = part->rank == 2 ? part->shape[1] : 1;
        int64_t size = columns;
        for (int64_t some = 16; some < columns; some *= 2) {
            if (groups > 1 && (columns + some - 1) / some == groups) size = some;
        }
        const double found = stored_element(operands, i, part->elems == 1 ? 0 : row, column / size, groups);
        if (part->is_zero_point) {
            value -= found;
        } else {
            scale *= found;
        }
    }
    return value * scale;
}

static void check_gemm_reference(const char *name) {
    enum { M = 2, N = 3, K = 301 };
    int index, count;
    const bw_precision *precision;
    double values[16];
    OK(bw_op_find("gemm", &index));
    OK(bw_precision_find(name, &precision));
    const bw_op *op = bw_op_at(index);
    const bw_dims dims = {.value = {M, N, K, 0}};
    bw_operand operands[BW_MAX_OPERANDS];
    OK(bw_op_operands(op, &dims, precision, operands, &count));
    for (int64_t m = 0; m < M; m++) {
        bw_reference_row row = {.values = values};
        OK(op->reference(&dims, precision, SEED, m, &row));
        CHECK_EQUAL(row.count, N);
        for (int64_t n = 0; n < N; n++) {
            double sum = 0.0;
            for (int64_t k = 0; k < K; k++) {
                sum += element_of(operands, count, 0, m, k, K) * element_of(operands, count, 1, n, k, K);
            }
            CHECK(fabs(sum - values[n]) < 1e-12 * row.scale, "%s (%d, %d): %g for %g", name, (int)m, (int)n, values[n],
                  sum);
        }
        CHECK(row.scale > 1.5 && row.scale < 12.0, "%s: a typical size of %g", name, row.scale);
    }
}

static void check_scaled_products(int op_index) {
    (void)op_index;
    static const char *const names[] = {"q4_0",     "int8",     "fp8_e4m3",  "q8_0",  "q4_k", "int8_w8a16",
                                        "int4_g32", "int4_g64", "int4_g128", "mxfp4", "nvfp4"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_gemm_reference(names[i]);
}

/* A decode of one head and dimension over two keys: a mean of two values, weighted by a logistic function. */
static void check_scaled_caches(int op_index) {
    (void)op_index;
    int index, count;
    const bw_precision *precision;
    double value;
    OK(bw_op_find("attention_decode", &index));
    OK(bw_precision_find("int8", &precision));
    const bw_op *op = bw_op_at(index);
    const bw_dims dims = {.value = {1, 2, 1, 1, 1}, .op = op};
    bw_operand operands[BW_MAX_OPERANDS];
    bw_reference_row row = {.values = &value};
    OK(bw_op_operands(op, &dims, precision, operands, &count));
    OK(op->reference(&dims, precision, SEED, 0, &row));
    double q = element_of(operands, count, 0, 0, 0, 1), k[2], v[2];
    for (int64_t i = 0; i < 2; i++) k[i] = element_of(operands, count, 1, i, 0, 1);
    for (int64_t i = 0; i < 2; i++) v[i] = element_of(operands, count, 2, i, 0, 1);
    double second = 1.0 / (1.0 + exp(q * k[0] - q * k[1])), wanted = v[0] * (1.0 - second) + v[1] * second;
    CHECK(fabs(value - wanted) < 1e-12, "%.17g for %.17g", value, wanted);
}

/* The mean squares that references take for granted. */
static void check_mean_squares(int op_index) {
    (void)op_index;
    enum { ELEMS = 1 << 20 };
    double *values = malloc(ELEMS * sizeof *values);
    for (int i = 0; i < BW_DTYPE_COUNT; i++) {
        const bw_dtype_info *info = bw_dtype_get((bw_dtype)i);
        double squares = 0.0;
        if (!info->fill_blocks) continue;
        bw_input_doubles((bw_dtype)i, bw_input_key_make(SEED, 3), 0, ELEMS, values);
        for (int64_t j = 0; j < ELEMS; j++) squares += values[j] * values[j] / ELEMS;
        CHECK(fabs(squares * info->inverse_square - 1.0) < 0.01, "%s has a mean square of %g", info->name, squares);
    }
    free(values);
}

/* References take a generated input's numbers by a way of their own, which must be right where indices pass 2^32, too.
 */
static void inputs_beyond_32_bits(int op_index) {
    (void)op_index;
    enum { BLOCKS = 6 };
    const bw_input_key key = bw_input_key_make(3, 1);
    for (int i = 0; i < BW_DTYPE_COUNT; i++) {
        const bw_dtype dtype = (bw_dtype)i;
        const bw_dtype_info *info = bw_dtype_get(dtype);
        if (!info->fill_blocks) continue;
        char stored[BLOCKS * BW_BLOCK_BYTES_MAX], low[BLOCKS * BW_BLOCK_BYTES_MAX];
        double found[BLOCKS * BW_BLOCK_ELEMS_MAX];
        const int64_t first = ((int64_t)1 << 32) / info->block_elems - BLOCKS / 2;
        bw_input_fill(dtype, key, first, BLOCKS, stored);
        bw_input_fill(dtype, key, 0, BLOCKS / 2, low);
        bw_input_doubles(dtype, key, first * info->block_elems, BLOCKS * info->block_elems, found);
        for (int64_t j = 0; j < BLOCKS * info->block_elems; j++) {
            CHECK(found[j] == bw_dtype_load(dtype, stored, j), "%s: element %" PRId64, info->name, j);
        }
        if (info->kind != BW_KIND_FLOAT) continue;
        CHECK(memcmp(stored + BLOCKS / 2 * info->block_bytes, low, (size_t)(BLOCKS / 2 * info->block_bytes)) != 0,
              "%s: element 2^32 is element 0", info->name);
    }
}

/* A list of names that is longer than its room is cut short, and nothing is written behind it. */
static void more_names_than_room(int op_index) {
    (void)op_index;
    static const char *const names[] = {"first", "second", "third", "fourth", "fifth", NULL};
    for (size_t room = 0; room <= 40; room++) {
        char allowed[64];
        memset(allowed, '#', sizeof allowed);
        CHECK_EQUAL(bw_name_find("sixth", bw_name_of_text, names, allowed, room), -1);
        CHECK_EQUAL(bw_name_find("fifth", bw_name_of_text, names, allowed, room), 4);
        CHECK(!room || memchr(allowed, 0, room), "no end within %zu bytes", room);
        for (size_t i = room; i < sizeof allowed; i++) CHECK(allowed[i] == '#', "byte %zu of %zu", i, room);
    }
}

const check types_checks[] = {{"what_was_stays", true, check_what_was_stays},
                              {"positives", false, check_positives},
                              {"absent_in_the_middle", false, check_absent_in_the_middle},
                              {"scaled_products", false, check_scaled_products},
                              {"scaled_caches", false, check_scaled_caches},
                              {"mean_squares", false, check_mean_squares},
                              {"inputs_beyond_32_bits", false, inputs_beyond_32_bits},
                              {"more_names_than_room", false, more_names_than_room},
                              {NULL, false, NULL}};
