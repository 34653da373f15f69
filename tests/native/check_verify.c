/* bw_verify_case and bw_verify_set: no planted error may pass, and the message names the right element. */
#include "check.h"

#include <limits.h>
#include <stdlib.h>

static bool pages_matter(int op_index) {
    return bw_op_param_index(bw_op_at(op_index), "page_size") >= 0;
}

/* The name that the message must give to an element, worked out from the shape by hand-rolled division. */
static void element_name(const bw_operand *operand, int64_t index, char *out, size_t size) {
    int64_t inner = operand->elems;
    int used = snprintf(out, size, "%s[", operand->name);
    for (int axis = 0; axis < operand->rank; axis++) {
        inner /= operand->shape[axis];
        used += snprintf(out + used, size - (size_t)used, axis ? ", %" PRId64 : "%" PRId64, index / inner);
        index %= inner;
    }
    snprintf(out + used, size - (size_t)used, "]");
}

static void right_result_passes(int op_index) {
    for (int paged = 0; paged <= pages_matter(op_index); paged++) {
        fixture f;
        bw_verdict verdict;
        if (OK(open_small(&f, op_index, paged)) && OK(bw_case_verify(f.content, NULL, BUDGET(20.0), &verdict))) {
            CHECK(verdict.verified, "%s", verdict.reason);
            CHECK(verdict.max_error <= verdict.tolerance, "error %g", verdict.max_error);
            CHECK(verdict.reason[0] == '\0', "a reason without an error: %s", verdict.reason);
            CHECK_EQUAL(verdict.rows_checked, verdict.rows_total);
        }
        close_case(&f);
    }
}

/* Every row in turn holds one wrong element: with a generous budget "every row" must mean every row. */
static void every_row_is_looked_at(int op_index) {
    for (int paged = 0; paged <= pages_matter(op_index); paged++) {
        fixture f;
        if (!OK(open_small(&f, op_index, paged))) return close_case(&f);
        bw_case *content = f.content;
        bw_rows rows = content->spec->op->rows(&content->spec->dims, content->spec->precision);
        double *values = calloc((size_t)rows.elems, sizeof *values);
        int64_t missed = 0;
        for (int64_t row = 0; values && row < rows.count; row++) {
            bw_reference_row reference = {.values = values};
            bw_verdict verdict;
            char name[128];
            OK(content->spec->op->reference(&content->spec->dims, content->spec->precision, fake.seed, row,
                                            &reference));
            fake.plant = row % 2 ? FAKE_NAN : FAKE_WRONG_ELEMENT;
            fake.plant_row = row;
            fake.plant_element = row * 7 % reference.count;
            if (!OK(bw_case_verify(content, NULL, BUDGET(20.0), &verdict))) break;
            if (verdict.verified) {
                missed++;
                continue;
            }
            element_name(&content->spec->operands[reference.operand], reference.offset + fake.plant_element, name,
                         sizeof name);
            CHECK(strstr(verdict.reason, name), "'%s' should name %s", verdict.reason, name);
            CHECK(verdict.max_error > verdict.tolerance, "error %g", verdict.max_error);
        }
        CHECK(missed == 0, "%" PRId64 " of %" PRId64 " rows with a wrong element passed", missed, rows.count);
        free(values);
        close_case(&f);
    }
}

static void nan_gives_an_infinite_error(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    fake.plant = FAKE_NAN;
    if (OK(open_copy(&f, 100)) && OK(bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict))) {
        CHECK(!verdict.verified, "a NaN passed");
        CHECK(isinf(verdict.max_error), "error %g", verdict.max_error);
        CHECK(strstr(verdict.reason, "b[0] is") && strstr(verdict.reason, "nan"), "%s", verdict.reason);
    }
    close_case(&f);
}

/* A launch that writes nothing leaves the poison; one that writes its neighbor's rows is wrong in every row. */
static void idle_and_shifted_kernels_fail(int op_index) {
    for (int shifted = 0; shifted < 2; shifted++) {
        fixture f;
        bw_verdict verdict;
        fake.plant = shifted ? FAKE_SHIFTED : FAKE_NOTHING;
        if (OK(open_small(&f, op_index, true)) && OK(bw_case_verify(f.content, NULL, BUDGET(20.0), &verdict))) {
            /* stream_write's pattern has the same values in every row. */
            bool same_rows = strcmp(f.content->spec->op->name, "stream_write") == 0;
            if (!shifted || !same_rows) CHECK(!verdict.verified, "%s", shifted ? "shifted rows" : "no output");
        }
        close_case(&f);
    }
}

/* Rows past the focus are those that the operation must leave alone. */
static void untouched_rows_are_checked(int op_index) {
    fixture f;
    if (!OK(open_small(&f, op_index, true))) return close_case(&f);
    bw_rows rows = f.content->spec->op->rows(&f.content->spec->dims, f.content->spec->precision);
    if (rows.focus) {
        const int64_t picks[] = {rows.focus, (rows.focus + rows.count) / 2, rows.count - 1};
        for (int i = 0; i < 3; i++) {
            bw_verdict verdict;
            fake.plant = FAKE_WRONG_ELEMENT;
            fake.plant_row = picks[i];
            if (!OK(bw_case_verify(f.content, NULL, BUDGET(20.0), &verdict))) break;
            CHECK(!verdict.verified, "a launch that changed untouched row %" PRId64 " passed", picks[i]);
        }
    }
    close_case(&f);
}

/* Without a budget the corners are still checked, and nothing else. */
static void corners_are_always_checked(int op_index) {
    (void)op_index;
    fixture f;
    int index;
    if (!OK(bw_op_find("gemm", &index)) || !OK(open_small(&f, index, false))) return;
    bw_rows rows = f.content->spec->op->rows(&f.content->spec->dims, f.content->spec->precision);
    const int64_t corners[] = {0, rows.line - 1, rows.count - rows.line, rows.count - 1};
    fake.plant = FAKE_WRONG_ELEMENT;
    for (int i = 0; i < 4; i++) {
        bw_verdict verdict;
        fake.plant_row = corners[i];
        if (!OK(bw_case_verify(f.content, NULL, BUDGET(0.0), &verdict))) break;
        CHECK(!verdict.verified, "corner %" PRId64 " was not looked at", corners[i]);
        CHECK_EQUAL(verdict.rows_checked, 4);
    }
    close_case(&f);
}

/* More rows than are checked: no row is checked twice, so the count is honest, and of 60 single wrong rows
 * 65536 / 96000 = 68 % are expected to be found: 41 +- 3.6. */
static void a_sample_finds_rare_errors(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_dims dims = {.value = {96000, 1, 1, 0}};
    if (OK(open_case(&f, "gemm", BW_PRECISION_FP32, &dims, NULL)) &&
        OK(bw_case_verify(f.content, NULL, BUDGET(20.0), &verdict))) {
        CHECK(verdict.verified, "%s", verdict.reason);
        CHECK_EQUAL(verdict.rows_checked, 65536);
        CHECK_EQUAL(verdict.rows_total, 96000);
        float *d = (float *)bw_case_address(f.content, 0, 2);
        int found = 0;
        for (int i = 0; i < 60; i++) {
            float right = d[i * 1576 + 101];
            d[i * 1576 + 101] += 1.0f;
            if (OK(bw_case_verify_set(f.content, 0, BUDGET(20.0), &verdict))) found += !verdict.verified;
            d[i * 1576 + 101] = right;
        }
        CHECK(found >= 30, "only %d of 60 wrong rows were found", found);
    }
    close_case(&f);
}

/* 12 MiB of output in 49153 rows of 64, the last one of 5 elements: they are fetched in several batches. */
static void rows_of_large_outputs_are_gathered(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    const int64_t elements = (3 << 20) + 5, wrong[] = {0, 64 * 8191 + 3, 64 * 8192, (3 << 20) + 4};
    if (OK(open_copy(&f, elements)) && OK(bw_case_verify(f.content, NULL, BUDGET(60.0), &verdict))) {
        CHECK(verdict.verified, "%s", verdict.reason);
        CHECK_EQUAL(verdict.rows_checked, 49153);
        float *b = (float *)bw_case_address(f.content, 0, 1);
        for (int i = 0; i < 4; i++) {
            char name[64];
            float right = b[wrong[i]];
            b[wrong[i]] += 1.0f;
            snprintf(name, sizeof name, "b[%" PRId64 "] is", wrong[i]);
            if (OK(bw_case_verify_set(f.content, 0, BUDGET(60.0), &verdict))) {
                CHECK(!verdict.verified && strstr(verdict.reason, name), "'%s' should name %s", verdict.reason, name);
            }
            b[wrong[i]] = right;
        }
        fake.fail_at = fake.calls + 2; /* the second batch */
        fake.fail_code = BW_CODE_DEVICE;
        bw_status status = bw_case_verify_set(f.content, 0, BUDGET(60.0), &verdict);
        CHECK(status && strstr(bw_status_message(status), "gather"), "%s", bw_status_message(status));
        bw_status_free(status);
    }
    close_case(&f);
}

static void a_callers_arrays_do_not_stay(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    static const float own[100];
    if (OK(open_copy(&f, 100)) && OK(bw_case_ready(f.content, 1))) {
        OK(bw_case_write(f.content, 0, own));
        if (OK(bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict))) CHECK(verdict.verified, "%s", verdict.reason);
    }
    close_case(&f);
}

/* Nor in plain launches, which look at no output. */
static void a_callers_arrays_are_for_no_other_launch(int op_index) {
    (void)op_index;
    static const float own[100];
    for (int enqueued = 0; enqueued < 2; enqueued++) {
        fixture f;
        fake_reset();
        const bw_case_arrays arrays = {.in = {own}};
        if (OK(open_copy(&f, 100))) {
            FAILS(bw_case_run(f.content, &(bw_case_arrays){.in = {own}, .launch = true}), BW_CODE_DEVICE,
                  "not the generated one"); /* so the toy says of them */
            OK(bw_case_run(f.content, &arrays));
            OK(enqueued ? bw_case_enqueue(f.content) : bw_case_launch_once(f.content));
        }
        close_case(&f);
    }
}

/* Where all outputs are given nothing is launched, whatever operands are absent. */
static void outputs_of_the_caller_need_no_launch(int op_index) {
    fixture f;
    bw_verdict verdict;
    static char outputs[2][1 << 16];
    OK(bw_op_find("kv_append", &op_index));
    if (OK(open_small(&f, op_index, true)) && OK(bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict))) {
        const bw_case_spec *spec = f.content->spec;
        bw_case_arrays read = {.launch = true};
        const void *in[BW_MAX_OPERANDS] = {NULL};
        int absent = 0, outs = 0;
        for (int i = 0; i < spec->operand_count; i++) {
            const bw_operand *operand = &spec->operands[i];
            absent += !operand->present && operand->role != BW_IN;
            if (!operand->present || operand->role == BW_IN) continue;
            CHECK(outs < 2 && operand->bytes <= (int64_t)sizeof outputs[0], "room for %s", operand->name);
            in[i] = read.out[i] = outputs[outs++ % 2];
        }
        CHECK(absent > 0 && outs == 2, "%d outputs, %d absent", outs, absent);
        OK(bw_case_run(f.content, &read));
        int64_t launches = fake.launches;
        if (OK(bw_case_verify(f.content, in, BUDGET(1.0), &verdict))) CHECK(verdict.verified, "%s", verdict.reason);
        CHECK_EQUAL(fake.launches, launches);
    }
    close_case(&f);
}

/* A value far below the typical one is held to its own rounding: in BF16 four units in its last place are much less
 * than half a unit of a typical value. */
static void a_small_value_is_checked_by_its_own_rounding(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_dims dims = {.value = {64, 16, 256, 0}};
    if (OK(open_case(&f, "gemm", BW_PRECISION_BF16, &dims, NULL)) &&
        OK(bw_case_verify(f.content, NULL, BUDGET(60.0), &verdict))) {
        CHECK(verdict.verified, "%s", verdict.reason);
        uint16_t *d = (uint16_t *)bw_case_address(f.content, 0, 2);
        int tried = 0;
        for (int i = 0; i < 1024; i++) {
            double size = fabs(bw_dtype_load(BW_BF16, d, i)), typical = sqrt(256.0) / 3.0;
            if (size < typical / 32.0 || size > typical / 16.0) continue;
            d[i] ^= 4; /* by 4 units: at most 2^-9 of the typical size, of which half a unit is 2^-9 to 2^-8 */
            if (OK(bw_case_verify_set(f.content, 0, BUDGET(60.0), &verdict))) {
                CHECK(!verdict.verified, "element %d of size %g passed with its last bits wrong", i, size);
            }
            d[i] ^= 4;
            tried++;
        }
        CHECK(tried > 10, "only %d elements are small", tried);
    }
    close_case(&f);
}

/* Half the distance to a value's neighbors: by hand, at both ends of a power of two and among subnormal numbers. */
static void half_units_by_hand(int op_index) {
    (void)op_index;
    static const struct {
        bw_dtype dtype;
        double value;
        int exponent; /* of 2 */
    } rows[] = {{BW_FP32, 1.0, -24}, {BW_FP32, 1.999, -24},   {BW_FP32, 0x1p-126, -150}, {BW_FP32, 0x1p-140, -150},
                {BW_FP16, 1.0, -11}, {BW_FP16, -0.75, -12},   {BW_FP16, 2.0, -10},       {BW_FP16, 1000.0, -2},
                {BW_FP16, 0.0, -25}, {BW_FP16, 0x1p-20, -25}, {BW_BF16, 1.0, -8},        {BW_BF16, 0x1p-20, -28}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double found = bw_dtype_half_unit(rows[i].dtype, rows[i].value);
        CHECK(found == ldexp(1.0, rows[i].exponent), "%s %g: %a", bw_dtype_get(rows[i].dtype)->name, rows[i].value,
              found);
    }
}

/* Rows of a kernel that may round its weights: errors that are each too small to tell pass as long as their root mean
 * square is what rounding makes of it, and no longer. */
static void a_rows_mean_square_is_bounded(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_dims dims = {.value = {1, 2048, 2, 1, 128}};
    fake.rows = 2;
    if (OK(open_case(&f, "attention_decode", BW_PRECISION_BF16, &dims, "middle")) &&
        OK(bw_case_verify(f.content, NULL, BUDGET(60.0), &verdict))) {
        CHECK(verdict.verified, "%s", verdict.reason);
        double values[256];
        bw_reference_row row = {.values = values};
        OK(f.content->spec->op->reference(&f.content->spec->dims, bw_precision_get(BW_PRECISION_BF16), fake.seed, 0,
                                          &row));
        /* Roundoff is 2^-8; sqrt(1/3 + 1/27) of it is 0.0024. Half of that passes, twice it does not. */
        for (int wrong = 0; wrong < 2; wrong++) {
            for (int i = 0; i < 256; i++) {
                double off = 0.0024 * (wrong ? 2.0 : 0.5) * row.scale;
                float value = (float)(values[i] + (i * 37 % 64 < 32 ? off : -off));
                OK(bw_dtype_encode(BW_BF16, &value, 1,
                                   (char *)bw_case_address(f.content, 0, 3) + 2 * (row.offset + i)));
            }
            if (!OK(bw_case_verify_set(f.content, 0, BUDGET(60.0), &verdict))) break;
            CHECK(verdict.verified == !wrong, "%d: error %g, tolerance %g", wrong, verdict.max_error,
                  verdict.tolerance);
            CHECK(!wrong || strstr(verdict.reason, "the row of 256 elements from out[0, 0, 0, 0] on"), "%s",
                  verdict.reason);
        }
    }
    close_case(&f);
}

static void a_larger_budget_adds_rows(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_dims dims = {.value = {500, 16, 8, 0}};
    if (OK(open_case(&f, "gemm", BW_PRECISION_FP32, &dims, NULL)) &&
        OK(bw_case_verify(f.content, NULL, BUDGET(0.0), &verdict))) {
        CHECK_EQUAL(verdict.rows_checked, 2); /* the corners: one tile is a line */
        float *d = (float *)bw_case_address(f.content, 0, 2);
        d[250 * 16 + 3] += 1.0f;
        if (OK(bw_case_verify_set(f.content, 0, BUDGET(0.0), &verdict))) CHECK(verdict.verified, "%s", verdict.reason);
        if (OK(bw_case_verify_set(f.content, 0, BUDGET(60.0), &verdict))) {
            CHECK_EQUAL(verdict.rows_checked, 500);
            CHECK(!verdict.verified && strstr(verdict.reason, "D[250, 3] is"), "%s", verdict.reason);
        }
        if (OK(bw_case_verify_set(f.content, 0, BUDGET(0.0), &verdict))) CHECK_EQUAL(verdict.rows_checked, 500);
    }
    close_case(&f);
}

typedef struct stopper {
    int calls, last;
} stopper;

static bool stop_at_last(void *context) {
    stopper *self = context;
    return ++self->calls >= self->last;
}

/* Looks at the clock are further apart than two polls: there is one before each row. Corners are the caller's alone, so
 * that what was worked out when the third poll said stop is two rows; they are kept. */
static void verification_can_be_interrupted(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_dims dims = {.value = {2, 32, 1 << 10, 0}};
    stopper stopper = {.last = 3};
    const bw_budget options = {.seconds = 60.0, .poll = stop_at_last, .poll_context = &stopper};
    if (OK(open_case(&f, "gemm", BW_PRECISION_FP32, &dims, NULL)) && OK(bw_case_ready(f.content, 1))) {
        fake.look_ns = 10000000;
        FAILS(bw_case_verify_set(f.content, 0, &options, &verdict), BW_CODE_INTERRUPTED, "interrupted");
        CHECK_EQUAL(stopper.calls, 3);
        stopper.last = 2; /* so that one poll says go on, where two are left */
        stopper.calls = 0;
        FAILS(bw_case_verify_set(f.content, 0, &options, &verdict), BW_CODE_INTERRUPTED, "interrupted");
        CHECK_EQUAL(stopper.calls, 2);
        stopper.calls = INT_MIN;
        if (OK(bw_case_verify_set(f.content, 0, &options, &verdict))) CHECK_EQUAL(verdict.rows_checked, 4);
        CHECK_EQUAL(stopper.calls - INT_MIN, 2); /* one row was left: a poll before it, and one that found no more */
    }
    close_case(&f);
}

/* Every parameter at its smallest or largest, in all combinations: sizes that overflow are refused with a sentence, and
 * (the sanitizer's part) never worked out in numbers that cannot hold them. */
static void sizes_at_their_limits_are_refused_or_right(int op_index) {
    const bw_op *op = bw_op_at(op_index);
    for (unsigned large = 0; large < 1u << op->param_count; large++) {
        bw_dims dims = {.list = NULL};
        for (int i = 0; i < op->param_count; i++) {
            dims.value[i] = large & (1u << i) ? op->params[i].maximum : op->params[i].minimum;
        }
        bw_status status = bw_op_complete(op, first_precision(op), ~0u, &dims);
        bw_cost cost;
        if (status) {
            CHECK(bw_status_code(status) == BW_CODE_INVALID, "%s", bw_status_message(status));
        } else if (OK(bw_op_cost(op, &dims, first_precision(op), &cost))) {
            bw_rows rows = op->rows(&dims, first_precision(op));
            CHECK(cost.bytes_read >= 0 && cost.bytes_written >= 0 && cost.flops >= 0, "%u: a negative cost", large);
            CHECK(cost.footprint_bytes == cost.bytes_read + cost.bytes_written, "%u", large);
            CHECK(rows.count > 0 && rows.elems > 0 && rows.line > 0, "%u: %" PRId64 " rows", large, rows.count);
        }
        bw_status_free(status);
    }
    bw_dims long_prompts = {.value = {4, INT32_MAX, INT32_MAX, 1, 1, 1, 1}};
    if (strcmp(op->name, "attention_prefill") == 0) {
        FAILS(bw_op_complete(op, first_precision(op), ~0u, &long_prompts), BW_CODE_INVALID, "overflow");
    }
}

const check verify_checks[] = {
    {"right_result_passes", true, right_result_passes},
    {"every_row_is_looked_at", true, every_row_is_looked_at},
    {"idle_and_shifted_kernels_fail", true, idle_and_shifted_kernels_fail},
    {"untouched_rows_are_checked", true, untouched_rows_are_checked},
    {"sizes_at_their_limits_are_refused_or_right", true, sizes_at_their_limits_are_refused_or_right},
    {"nan_gives_an_infinite_error", false, nan_gives_an_infinite_error},
    {"corners_are_always_checked", false, corners_are_always_checked},
    {"a_sample_finds_rare_errors", false, a_sample_finds_rare_errors},
    {"rows_of_large_outputs_are_gathered", false, rows_of_large_outputs_are_gathered},
    {"a_callers_arrays_do_not_stay", false, a_callers_arrays_do_not_stay},
    {"a_callers_arrays_are_for_no_other_launch", false, a_callers_arrays_are_for_no_other_launch},
    {"outputs_of_the_caller_need_no_launch", false, outputs_of_the_caller_need_no_launch},
    {"a_small_value_is_checked_by_its_own_rounding", false, a_small_value_is_checked_by_its_own_rounding},
    {"half_units_by_hand", false, half_units_by_hand},
    {"a_rows_mean_square_is_bounded", false, a_rows_mean_square_is_bounded},
    {"a_larger_budget_adds_rows", false, a_larger_budget_adds_rows},
    {"verification_can_be_interrupted", false, verification_can_be_interrupted},
    {NULL, false, NULL},
};
