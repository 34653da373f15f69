/* bw_verify_case and bw_verify_set: no planted error may pass, and the message names the right element. */
#include "check.h"

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
    for (int64_t page = 0; page <= (pages_matter(op_index) ? 4 : 0); page += 4) {
        fixture f;
        bw_verdict verdict;
        if (OK(open_small(&f, op_index, page)) && OK(bw_verify_case(f.content, 20.0, &verdict))) {
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
    for (int64_t page = 0; page <= (pages_matter(op_index) ? 4 : 0); page += 4) {
        fixture f;
        if (!OK(open_small(&f, op_index, page))) return close_case(&f);
        bw_case *content = f.content;
        bw_rows rows = content->op->rows(&content->dims, content->dtype);
        double *values = calloc((size_t)rows.elems, sizeof *values);
        int64_t missed = 0;
        for (int64_t row = 0; values && row < rows.count; row++) {
            bw_reference_row reference = {.values = values};
            bw_verdict verdict;
            char name[128];
            OK(content->op->reference(&content->dims, content->dtype, fake.seed, row, &reference));
            fake.plant = row % 2 ? FAKE_NAN : FAKE_WRONG_ELEMENT;
            fake.plant_row = row;
            fake.plant_element = row * 7 % reference.count;
            if (!OK(bw_verify_case(content, 20.0, &verdict))) break;
            if (verdict.verified) {
                missed++;
                continue;
            }
            element_name(&content->operands[reference.operand], reference.offset + fake.plant_element, name,
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
    if (OK(open_copy(&f, 100)) && OK(bw_verify_case(f.content, 1.0, &verdict))) {
        CHECK(!verdict.verified, "a NaN passed");
        CHECK(isinf(verdict.max_error), "error %g", verdict.max_error);
        CHECK(strstr(verdict.reason, "b[0] is") && strstr(verdict.reason, "nan"), "%s", verdict.reason);
    }
    close_case(&f);
}

/* A launch that writes nothing leaves the poison; one that writes its neighbour's rows is wrong in every row. */
static void idle_and_shifted_kernels_fail(int op_index) {
    for (int shifted = 0; shifted < 2; shifted++) {
        fixture f;
        bw_verdict verdict;
        fake.plant = shifted ? FAKE_SHIFTED : FAKE_NOTHING;
        if (OK(open_small(&f, op_index, 4)) && OK(bw_verify_case(f.content, 20.0, &verdict))) {
            /* stream_write's pattern has the same values in every row. */
            bool same_rows = strcmp(f.content->op->name, "stream_write") == 0;
            if (!shifted || !same_rows) CHECK(!verdict.verified, "%s", shifted ? "shifted rows" : "no output");
        }
        close_case(&f);
    }
}

/* Rows past the focus are those that the operation must leave alone. */
static void untouched_rows_are_checked(int op_index) {
    fixture f;
    if (!OK(open_small(&f, op_index, 4))) return close_case(&f);
    bw_rows rows = f.content->op->rows(&f.content->dims, f.content->dtype);
    if (rows.focus) {
        const int64_t picks[] = {rows.focus, (rows.focus + rows.count) / 2, rows.count - 1};
        for (int i = 0; i < 3; i++) {
            bw_verdict verdict;
            fake.plant = FAKE_WRONG_ELEMENT;
            fake.plant_row = picks[i];
            if (!OK(bw_verify_case(f.content, 20.0, &verdict))) break;
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
    if (!OK(bw_op_find("gemm", &index)) || !OK(open_small(&f, index, 0))) return;
    bw_rows rows = f.content->op->rows(&f.content->dims, f.content->dtype);
    const int64_t corners[] = {0, rows.line - 1, rows.count - rows.line, rows.count - 1};
    fake.plant = FAKE_WRONG_ELEMENT;
    for (int i = 0; i < 4; i++) {
        bw_verdict verdict;
        fake.plant_row = corners[i];
        if (!OK(bw_verify_case(f.content, 0.0, &verdict))) break;
        CHECK(!verdict.verified, "corner %" PRId64 " was not looked at", corners[i]);
        CHECK_EQUAL(verdict.rows_checked, 4);
    }
    close_case(&f);
}

/* More rows than are checked: no row is checked twice, so the count is honest, and of 60 single wrong rows
 * 8192 / 12000 = 68 % are expected to be found: 41 +- 3.6. */
static void a_sample_finds_rare_errors(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_dims dims = {.value = {12000, 1, 1, 0}};
    if (OK(open_case(&f, "gemm", BW_FP32, &dims, NULL)) && OK(bw_verify_case(f.content, 20.0, &verdict))) {
        CHECK(verdict.verified, "%s", verdict.reason);
        CHECK_EQUAL(verdict.rows_checked, 8192);
        CHECK_EQUAL(verdict.rows_total, 12000);
        float *d = (float *)(f.content->memory + f.content->offsets[2]);
        int found = 0;
        for (int i = 0; i < 60; i++) {
            float right = d[i * 197 + 101];
            d[i * 197 + 101] += 1.0f;
            if (OK(bw_verify_set(f.content, 0, 20.0, &verdict))) found += !verdict.verified;
            d[i * 197 + 101] = right;
        }
        CHECK(found >= 30, "only %d of 60 wrong rows were found", found);
    }
    close_case(&f);
}

/* 12 MiB of output in 3073 rows, the last one of 5 elements: they are fetched in several batches. */
static void rows_of_large_outputs_are_gathered(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    const int64_t elements = (3 << 20) + 5, wrong[] = {0, 1024 * 2047 + 3, 1024 * 2048, (3 << 20) + 4};
    if (OK(open_copy(&f, elements)) && OK(bw_verify_case(f.content, 60.0, &verdict))) {
        CHECK(verdict.verified, "%s", verdict.reason);
        CHECK_EQUAL(verdict.rows_checked, 3073);
        float *b = (float *)(f.content->memory + f.content->offsets[1]);
        for (int i = 0; i < 4; i++) {
            char name[64];
            float right = b[wrong[i]];
            b[wrong[i]] += 1.0f;
            snprintf(name, sizeof name, "b[%" PRId64 "] is", wrong[i]);
            if (OK(bw_verify_set(f.content, 0, 60.0, &verdict))) {
                CHECK(!verdict.verified && strstr(verdict.reason, name), "'%s' should name %s", verdict.reason, name);
            }
            b[wrong[i]] = right;
        }
        fake.fail_at = fake.calls + 2; /* the second batch */
        fake.fail_code = BW_CODE_DEVICE;
        bw_status status = bw_verify_set(f.content, 0, 60.0, &verdict);
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
        f.content->own_inputs = true;
        OK(fake_backend.upload(NULL, f.content->memory, own, sizeof own));
        if (OK(bw_verify_case(f.content, 1.0, &verdict))) CHECK(verdict.verified, "%s", verdict.reason);
    }
    close_case(&f);
}

const check verify_checks[] = {
    {"right_result_passes", true, right_result_passes},
    {"every_row_is_looked_at", true, every_row_is_looked_at},
    {"idle_and_shifted_kernels_fail", true, idle_and_shifted_kernels_fail},
    {"untouched_rows_are_checked", true, untouched_rows_are_checked},
    {"nan_gives_an_infinite_error", false, nan_gives_an_infinite_error},
    {"corners_are_always_checked", false, corners_are_always_checked},
    {"a_sample_finds_rare_errors", false, a_sample_finds_rare_errors},
    {"rows_of_large_outputs_are_gathered", false, rows_of_large_outputs_are_gathered},
    {"a_callers_arrays_do_not_stay", false, a_callers_arrays_do_not_stay},
    {NULL, false, NULL},
};
