#include "measure/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"

enum {
    CORNERS = 4, /* checked however long they take */
    ROWS_MOST = 8192,
    VALUES_MOST = 1 << 24, /* 128 MiB of doubles */
    WHOLE_BYTES = 1 << 20, /* outputs up to this size are downloaded whole; of larger ones only the rows compared */
    BATCH_ROWS = 2048,     /* gathered at once ... */
    BATCH_BYTES = 1 << 23, /* ... while they are no more than this (a longer row goes alone) */
    THREADS_MOST = 16
};

static const double alone_s = 1e-3; /* the caller works so long before it asks others to help */

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

/* The rows of a sample, worked out by whoever comes: each takes the next one that nobody has. */
typedef struct reference_work {
    const bw_case *content;
    bw_expected *expected;
    const int64_t *order;
    int64_t most, corners, elems;
    double share_s;            /* processor time of each who works */
    _Atomic int64_t next;      /* rows taken; a row that was taken is worked out */
    _Atomic(bw_status) failed; /* the first failure */
} reference_work;

static void work_out_row(reference_work *work, int64_t index) {
    const bw_case *content = work->content;
    bw_reference_row *row = &work->expected->rows[index];
    row->values = work->expected->values + index * work->elems;
    bw_status none = NULL;
    bw_status status = content->op->reference(&content->dims, content->dtype, content->seed, work->order[index], row);
    if (status && !atomic_compare_exchange_strong(&work->failed, &none, status)) bw_status_free(status);
}

static void work_out(void *context) {
    reference_work *work = context;
    double begin_s = bw_now_s(), begin_thread_s = bw_thread_s();
    while (!atomic_load(&work->failed)) {
        /* No thread uses more processor time than passes on the clock, which is cheaper to read. */
        bool over = bw_now_s() - begin_s > work->share_s && bw_thread_s() - begin_thread_s > work->share_s;
        if (over && atomic_load(&work->next) >= work->corners) return;
        int64_t index = atomic_fetch_add(&work->next, 1);
        if (index >= work->most) return;
        work_out_row(work, index);
    }
}

/* A budget is processor time: several processors spend it in less time, on as many rows. */
static void work_out_all(reference_work *work, double budget_s) {
    int processors = bw_parallel_processors();
    int threads = processors < THREADS_MOST ? processors : THREADS_MOST;
    work->share_s = threads > 1 ? fmin(budget_s, alone_s) : budget_s;
    work_out(work);
    if (threads == 1 || budget_s <= alone_s || atomic_load(&work->next) >= work->most) return;
    work->share_s = (budget_s - alone_s) / threads;
    bw_parallel_run(threads, work_out, work);
}

static bw_status expect(const bw_case *self, double budget_s, bw_expected *expected) {
    bw_rows rows = self->op->rows(&self->dims, self->dtype);
    int64_t most = bw_min64(ROWS_MOST, bw_max64(CORNERS, VALUES_MOST / rows.elems));
    most = bw_min64(most, rows.count);
    expected->total = rows.count;
    expected->rows = calloc((size_t)most, sizeof *expected->rows);
    expected->values = malloc((size_t)(most * rows.elems) * sizeof *expected->values);
    int64_t *order = malloc((size_t)most * sizeof *order);
    if (!expected->rows || !expected->values || !order) {
        free(order);
        return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " reference rows", most);
    }
    reference_work work = {.content = self, .expected = expected, .order = order, .elems = rows.elems};
    sample walk = sample_of(&rows, self->seed);
    while (work.most < most && sample_next(&walk, &order[work.most])) {
        work.most++;
        if (walk.at_corner) work.corners = work.most;
    }
    work_out_all(&work, budget_s);
    expected->count = bw_min64(atomic_load(&work.next), work.most);
    free(order);
    return atomic_load(&work.failed);
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

/* Outputs that are downloaded whole, each once. */
typedef struct whole_outputs {
    char *host[BW_MAX_OPERANDS];
} whole_outputs;

static void whole_free(whole_outputs *outputs) {
    for (int i = 0; i < BW_MAX_OPERANDS; i++) free(outputs->host[i]);
}

static bool is_whole(const bw_case *self, const bw_reference_row *row) {
    return self->operands[row->operand].bytes <= WHOLE_BYTES;
}

static bw_status compare_whole(const bw_case *self, const char *base, whole_outputs *outputs,
                               const bw_reference_row *row, worst *worst_yet) {
    const bw_operand *operand = &self->operands[row->operand];
    char **host = &outputs->host[row->operand];
    if (!*host) {
        *host = malloc((size_t)operand->bytes);
        if (!*host) return bw_fail(BW_CODE_MEMORY, "no host memory to check %s", operand->name);
        BW_TRY(self->session->backend->download(self->session->device, *host, base + self->offsets[row->operand],
                                                operand->bytes));
    }
    compare_row(operand, row, *host + bw_dtype_bytes(operand->dtype, row->offset), worst_yet);
    return BW_OK;
}

/* Rows of large outputs, fetched many at a time: one by one they would cost a transfer each. */
typedef struct batch {
    bw_span spans[BATCH_ROWS];
    const bw_reference_row *rows[BATCH_ROWS];
    int64_t count, bytes, capacity;
    char *host;
} batch;

static void batch_free(batch *batch) {
    if (batch) free(batch->host);
    free(batch);
}

static bw_status compare_batch(const bw_case *self, batch *batch, worst *worst_yet) {
    if (!batch->count) return BW_OK;
    if (batch->bytes > batch->capacity) {
        free(batch->host);
        batch->capacity = batch->bytes;
        batch->host = malloc((size_t)batch->bytes);
        if (!batch->host) {
            return bw_fail(BW_CODE_MEMORY, "no host memory to check %" PRId64 " bytes of output", batch->bytes);
        }
    }
    BW_TRY(
        self->session->backend->gather(self->session->device, batch->spans, batch->count, batch->bytes, batch->host));
    const char *host = batch->host;
    for (int64_t i = 0; i < batch->count; i++) {
        compare_row(&self->operands[batch->rows[i]->operand], batch->rows[i], host, worst_yet);
        host += batch->spans[i].bytes;
    }
    batch->count = batch->bytes = 0;
    return BW_OK;
}

static bw_status compare_gathered(const bw_case *self, const char *base, batch **open, const bw_reference_row *row,
                                  worst *worst_yet) {
    const bw_operand *operand = &self->operands[row->operand];
    int64_t start = bw_dtype_bytes(operand->dtype, row->offset), bytes = bw_dtype_bytes(operand->dtype, row->count);
    if (!*open) *open = calloc(1, sizeof **open);
    batch *batch = *open;
    if (!batch) return bw_fail(BW_CODE_MEMORY, "no host memory to check %s", operand->name);
    if (batch->count == BATCH_ROWS || batch->bytes + bytes > BATCH_BYTES) {
        BW_TRY(compare_batch(self, batch, worst_yet));
    }
    batch->spans[batch->count] = (bw_span){base + self->offsets[row->operand] + start, bytes};
    batch->rows[batch->count++] = row;
    batch->bytes += bytes;
    return BW_OK;
}

static bw_status compare_rows(const bw_case *self, int64_t set, worst *worst_yet) {
    const char *base = self->memory + set * self->set_bytes;
    whole_outputs outputs = {{NULL}};
    batch *open = NULL;
    bw_status status = BW_OK;
    for (int64_t i = 0; i < self->expected->count; i++) {
        const bw_reference_row *row = &self->expected->rows[i];
        if (is_whole(self, row)) {
            BW_GOTO(compare_whole(self, base, &outputs, row, worst_yet));
        } else {
            BW_GOTO(compare_gathered(self, base, &open, row, worst_yet));
        }
    }
    if (open) BW_GOTO(compare_batch(self, open, worst_yet));
cleanup:
    whole_free(&outputs);
    batch_free(open);
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
