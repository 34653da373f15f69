/* Every operation x precision x variant of the CPU backend against its reference rows, on shapes that fit no tile,
 * without Python: for machines that there is no Python for, such as an emulated one. The instruction set is
 * BWPROF_CPU_ISA's. Prints what is wrong and how many cases were right; the exit status says whether all were. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "measure/case/case.h"
#include "measure/session.h"

enum { SHAPES = 4, SEED = 3 };

/* Parameters by name; those not named take multiples of their small values. */
static const struct {
    const char *name;
    int64_t value[SHAPES];
} sizes[] = {
    {"elements", {1, 1023, 4099, 70001}},
    {"M", {1, 3, 17, 61}},
    {"N", {1, 37, 130, 59}},
    {"K", {1, 29, 257, 127}},
    {"beta", {0, 1, 0, 1}},
    {"batch", {1, 2, 3, 1}},
    {"seq_len", {1, 5, 19, 65}},
    {"kv_len", {1, 7, 83, 130}},
    {"num_heads", {1, 6, 14, 8}},
    {"num_kv_heads", {1, 2, 2, 8}},
    {"head_dim", {1, 33, 80, 64}},
    {"causal", {0, 1, 0, 1}},
    {"page_size", {1, 7, 16, 13}},
    {"offset", {0, 1, 2, 3}},
    {"readers", {1, 2, 4, 32}},
    {"granule_bytes", {4, 32, 64, 4096}},
};

static bw_status read_dims(const bw_op *op, const bw_precision *precision, int shape, bw_dims *out) {
    *out = (bw_dims){.list = NULL};
    for (int i = 0; i < op->param_count; i++) {
        out->value[i] = bw_min64((shape + 1) * op->params[i].small, op->params[i].maximum);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int index = bw_op_param_index(op, sizes[i].name);
        if (index < 0) continue;
        const int64_t least = bw_max64(1, op->params[index].minimum); /* 2 where an even number is needed */
        out->value[index] = bw_ceil_div(sizes[i].value[shape], least) * least;
    }
    return bw_op_complete(op, precision, ~0u, out);
}

static bw_status verify(bw_session *session, int op_index, const bw_precision *precision, const bw_dims *dims,
                        const char *variant, bw_verdict *out) {
    bw_case *content = NULL;
    BW_TRY(bw_case_create(session, op_index, precision, dims, variant, SEED, &content));
    const bw_budget all = {.seconds = 1e9};
    bw_status status = bw_case_verify(content, NULL, &all, out);
    bw_case_free(content);
    return status;
}

typedef struct tally {
    int right, wrong, refused;
} tally;

static void check(bw_session *session, int op_index, const bw_precision *precision, int shape, const char *variant,
                  tally *count) {
    const bw_op *op = bw_op_at(op_index);
    bw_dims dims;
    bw_verdict verdict = {.verified = false};
    bw_status status = read_dims(op, precision, shape, &dims);
    if (!status) status = verify(session, op_index, precision, &dims, variant, &verdict);
    bool refused = bw_status_code(status) == BW_CODE_UNSUPPORTED;
    if (refused) {
        count->refused++;
    } else if (!status && verdict.verified && verdict.rows_checked == verdict.rows_total) {
        count->right++;
    } else {
        count->wrong++;
        printf("%s %s %s, shape %d: %s (%" PRId64 " of %" PRId64 " rows)\n", op->name, precision->name, variant, shape,
               status ? bw_status_message(status) : verdict.reason, verdict.rows_checked, verdict.rows_total);
    }
    bw_status_free(status);
}

/* Where a tolerance has no room for roundings on the way, a variant that makes some is not for its operation, and one
 * that does not say that it makes none is not described. */
static void check_roundings(const bw_op *op, const bw_precision *precision, const bw_variant *variant, tally *count) {
    bw_dims dims;
    bw_status status = read_dims(op, precision, 0, &dims);
    if (!status) {
        const bw_tolerance once = op->tolerance(&dims, precision, true), more = op->tolerance(&dims, precision, false);
        const bool room = more.noise > once.noise || more.element > once.element;
        if (!room && once.element > 0.0 && !variant->rounds_once) {
            count->wrong++;
            printf("%s %s %s: rounds_once is not set\n", op->name, precision->name, variant->name);
        }
    }
    bw_status_free(status);
}

static void check_op(bw_session *session, int op_index, tally *count) {
    const bw_op *op = bw_op_at(op_index);
    const bw_variant_table *table = session->backend->devices->variants(session->device, op_index);
    for (int i = 0; i < BW_PRECISION_COUNT; i++) {
        const bw_precision *precision = bw_precision_get((bw_precision_id)i);
        if (!bw_precision_in(op->precisions, precision)) continue;
        for (int row = 0; row < table->count; row++) {
            if (!bw_precision_in(table->rows[row].precisions, precision)) continue;
            check_roundings(op, precision, &table->rows[row], count);
            for (int shape = 0; shape < SHAPES; shape++) {
                check(session, op_index, precision, shape, table->rows[row].name, count);
            }
        }
    }
}

int main(void) {
    const bw_backend *backend;
    bw_session *session = NULL;
    tally count = {0, 0, 0};
    bw_status status = bw_backend_find("cpu", &backend);
    if (!status) status = bw_session_open(backend, 0, &session);
    if (status) {
        printf("no CPU: %s\n", bw_status_message(status));
        bw_status_free(status);
        return 2;
    }
    printf("instruction set %s\n", backend->devices->facts(session->device)->runtime);
    for (int i = 0; i < bw_op_count(); i++) check_op(session, i, &count);
    bw_session_close(session);
    printf("%d right, %d wrong, %d that no kernel takes\n", count.right, count.wrong, count.refused);
    return count.wrong || !count.right;
}
