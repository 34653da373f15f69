#include "measure/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    CORNERS = 4, /* checked however long they take */
    ROWS_MOST = 8192,
    VALUES_MOST = 1 << 24, /* 128 MiB of doubles */
    WHOLE_BYTES = 1 << 25  /* outputs up to this size are downloaded whole, larger ones row by row */
};

struct bw_expected {
    int64_t count, total;
    bw_reference_row *rows;
    double *values; /* what the rows' values point into */
};

void bw_expected_free(bw_expected *expected) {
    if (!expected) return;
    free(expected->rows);
    free(expected->values);
    free(expected);
}

/* A walk over rows [first, first + count): every row once, neighbours far apart wherever it ends. */
typedef struct walk {
    int64_t first, count, position, step, left;
} walk;

static walk walk_over(int64_t first, int64_t count, uint64_t seed) {
    walk result = {.first = first, .count = count, .left = count};
    if (count < 1) return result;
    result.step = bw_spread_step(count);
    result.position = (int64_t)(seed * 0x9e3779b97f4a7c15u % (uint64_t)count);
    return result;
}

static int64_t walk_on(walk *self) {
    int64_t row = self->first + self->position;
    int64_t room = self->count - self->step;
    self->position = self->position < room ? self->position + self->step : self->position - room;
    self->left--;
    return row;
}

/* The rows in the order in which they are checked: the four corners, then by turns one within the focus and one outside
 * it; none twice. */
typedef struct sample {
    int64_t corners[CORNERS];
    int taken, turn;
    bool at_corner; /* the row just given out is one */
    walk parts[2];
} sample;

static sample sample_of(const bw_rows *rows, uint64_t seed) {
    int64_t line = bw_min64(rows->line, rows->count), focus = bw_min64(rows->focus, rows->count);
    return (sample){.corners = {0, rows->count - 1, line - 1, rows->count - line},
                    .parts = {walk_over(0, focus, seed), walk_over(focus, rows->count - focus, seed)}};
}

static bool is_corner(const sample *self, int64_t row, int before) {
    for (int i = 0; i < before; i++) {
        if (self->corners[i] == row) return true;
    }
    return false;
}

/* False when all rows have been given out. */
static bool sample_next(sample *self, int64_t *row) {
    for (self->at_corner = true; self->taken < CORNERS; self->taken++) {
        *row = self->corners[self->taken];
        if (!is_corner(self, *row, self->taken)) {
            self->taken++;
            return true;
        }
    }
    self->at_corner = false;
    while (self->parts[0].left || self->parts[1].left) {
        walk *part = &self->parts[self->turn ^= 1];
        if (!part->left) part = &self->parts[self->turn ^ 1];
        *row = walk_on(part);
        if (!is_corner(self, *row, CORNERS)) return true;
    }
    return false;
}

static bw_status expect(bw_case *self, double budget_s, bw_expected *expected) {
    bw_rows rows = self->op->rows(&self->dims, self->dtype);
    int64_t most = bw_min64(ROWS_MOST, bw_max64(CORNERS, VALUES_MOST / rows.elems));
    most = bw_min64(most, rows.count);
    expected->total = rows.count;
    expected->rows = calloc((size_t)most, sizeof *expected->rows);
    expected->values = malloc((size_t)(most * rows.elems) * sizeof *expected->values);
    if (!expected->rows || !expected->values) {
        return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " reference rows", most);
    }
    sample order = sample_of(&rows, self->seed);
    double deadline = bw_now_s() + budget_s;
    int64_t row;
    for (int64_t i = 0; i < most && sample_next(&order, &row); i++) {
        if (!order.at_corner && bw_now_s() > deadline) break;
        expected->rows[i].values = expected->values + i * rows.elems;
        BW_TRY(self->op->reference(&self->dims, self->dtype, self->seed, row, &expected->rows[i]));
        expected->count = i + 1;
    }
    return BW_OK;
}

typedef struct worst {
    double error;
    int operand;
    int64_t index;
    double found, wanted;
} worst;

/* Compares one row; NaN never passes: an error that is not finite counts as infinite. */
static void compare_row(const bw_operand *operand, const bw_reference_row *row, const char *data, worst *worst_yet) {
    for (int64_t i = 0; i < row->count; i++) {
        double found = bw_dtype_load(operand->dtype, data, i);
        double error = fabs(found - row->values[i]) / fmax(fabs(row->values[i]), row->scale);
        if (!(error <= 1e300)) error = INFINITY;
        if (error <= worst_yet->error) continue;
        *worst_yet = (worst){error, row->operand, row->offset + i, found, row->values[i]};
    }
}

/* "D[3, 17]" */
static void name_element(const bw_operand *operand, int64_t index, char *out, size_t size) {
    int64_t coordinates[BW_MAX_RANK];
    for (int axis = operand->rank - 1; axis >= 0; axis--) {
        coordinates[axis] = index % operand->shape[axis];
        index /= operand->shape[axis];
    }
    int used = snprintf(out, size, "%s[", operand->name);
    for (int axis = 0; axis < operand->rank && used > 0 && (size_t)used < size; axis++) {
        used += snprintf(out + used, size - (size_t)used, "%s%" PRId64, axis ? ", " : "", coordinates[axis]);
    }
    if (used > 0 && (size_t)used < size) snprintf(out + used, size - (size_t)used, "]");
}

static bw_status compare_rows(bw_case *self, int64_t set, worst *worst_yet) {
    const bw_backend *backend = self->session->backend;
    bw_device *device = self->session->device;
    const char *base = self->memory + set * self->set_bytes;
    char *whole[BW_MAX_OPERANDS] = {NULL};
    char *single = NULL;
    bw_status status = BW_OK;
    for (int64_t i = 0; i < self->expected->count; i++) {
        const bw_reference_row *row = &self->expected->rows[i];
        const bw_operand *operand = &self->operands[row->operand];
        const char *from = base + self->offsets[row->operand];
        int64_t start = bw_dtype_bytes(operand->dtype, row->offset), bytes = bw_dtype_bytes(operand->dtype, row->count);
        char *host = whole[row->operand];
        if (operand->bytes <= WHOLE_BYTES) {
            if (!host) {
                host = whole[row->operand] = malloc((size_t)operand->bytes);
                if (!host) BW_GOTO(bw_fail(BW_CODE_MEMORY, "no host memory to check %s", operand->name));
                BW_GOTO(backend->download(device, host, from, operand->bytes));
            }
            host += start;
        } else {
            char *grown = realloc(single, (size_t)bytes);
            if (!grown) BW_GOTO(bw_fail(BW_CODE_MEMORY, "no host memory to check %s", operand->name));
            host = single = grown;
            BW_GOTO(backend->download(device, host, from + start, bytes));
        }
        compare_row(operand, row, host, worst_yet);
    }
cleanup:
    for (int i = 0; i < BW_MAX_OPERANDS; i++) free(whole[i]);
    free(single);
    return status;
}

bw_status bw_verify_set(bw_case *self, int64_t set, double budget_s, bw_verdict *out) {
    if (!self->expected) {
        bw_expected *expected = calloc(1, sizeof *expected);
        if (!expected) return bw_fail(BW_CODE_MEMORY, "no host memory for reference rows");
        bw_status status = expect(self, budget_s, expected);
        if (status) {
            bw_expected_free(expected);
            return status;
        }
        self->expected = expected;
    }
    worst worst_yet = {.error = -1.0};
    BW_TRY(compare_rows(self, set, &worst_yet));
    *out = (bw_verdict){.max_error = worst_yet.error,
                        .tolerance = self->op->tolerance(&self->dims, self->dtype),
                        .rows_checked = self->expected->count,
                        .rows_total = self->expected->total};
    out->verified = worst_yet.error <= out->tolerance;
    if (!out->verified) {
        char element[128];
        name_element(&self->operands[worst_yet.operand], worst_yet.index, element, sizeof element);
        snprintf(out->reason, sizeof out->reason, "%s is %.9g, the reference says %.9g (error %.3g, tolerance %.3g)",
                 element, worst_yet.found, worst_yet.wanted, worst_yet.error, out->tolerance);
    }
    return BW_OK;
}

bw_status bw_verify_case(bw_case *self, double budget_s, bw_verdict *out) {
    BW_TRY(bw_case_ready(self, bw_max64(1, self->set_count)));
    BW_TRY(bw_case_reset(self, 0));
    BW_TRY(bw_case_launch(self, 0));
    return bw_verify_set(self, 0, budget_s, out);
}
