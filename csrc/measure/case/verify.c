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
    ROWS_MOST = 1 << 16,
    VALUES_MOST = 1 << 24, /* 128 MiB of doubles */
    WHOLE_BYTES = 1 << 20, /* outputs up to this size are downloaded whole; of larger ones only the rows compared */
    BATCH_ROWS = 8192,     /* gathered at once ... */
    BATCH_BYTES = 1 << 23, /* ... while they are no more than this (a longer row goes alone) */
    THREADS_MOST = 16
};

static const double alone_s = 1e-3; /* the caller works so long before it asks others to help */
static const double poll_every_s = 5e-3;

struct bw_expected {
    int64_t count, total;
    int64_t most, corners;
    int64_t *order; /* of these `most` rows the first `count` are worked out */
    bw_reference_row *rows;
    double *values; /* what the rows' values point into */
    double spent_s; /* the budgets so far */
};

void bw_expected_free(bw_expected *expected) {
    if (!expected) return;
    free(expected->order);
    free(expected->rows);
    free(expected->values);
    free(expected);
}

/* A walk over rows [first, first + count): every row once, neighbours far apart wherever it ends. Groups of `parts`
 * rows are walked over so many times, and each time another part of each is given out. */
typedef struct walk {
    int64_t first, count, parts, groups, position, step, walked, pass, left;
} walk;

static walk walk_over(int64_t first, int64_t count, int64_t parts, uint64_t seed) {
    walk result = {.first = first, .count = count, .parts = bw_max64(1, parts), .left = count};
    if (count < 1) return result;
    result.groups = bw_ceil_div(count, result.parts);
    result.step = bw_spread_step(result.groups);
    result.position = (int64_t)(seed * 0x9e3779b97f4a7c15u % (uint64_t)result.groups);
    return result;
}

/* The part of this group that is given out in this pass. */
static int64_t part_of(const walk *self, int64_t group) {
    uint64_t start = (uint64_t)group * 0x9e3779b97f4a7c15u >> 32;
    return (int64_t)((start + (uint64_t)self->pass) % (uint64_t)self->parts);
}

static int64_t walk_on(walk *self) {
    int64_t row;
    do {
        row = self->position * self->parts + part_of(self, self->position);
        int64_t room = self->groups - self->step;
        self->position = self->position < room ? self->position + self->step : self->position - room;
        if (++self->walked == self->groups) self->walked = 0, self->pass++;
    } while (row >= self->count); /* the last group may lack parts */
    self->left--;
    return self->first + row;
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
    return (sample){
        .corners = {0, rows->count - 1, line - 1, rows->count - line},
        .parts = {walk_over(0, focus, rows->parts, seed), walk_over(focus, rows->count - focus, rows->parts, seed)}};
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
    const bw_verify_options *options;
    bw_expected *expected;
    int64_t elems;
    double share_s;            /* processor time of each who works */
    uint64_t caller;           /* the only thread that polls */
    _Atomic int64_t next;      /* rows taken; a row that was taken is worked out */
    _Atomic bool stopped;      /* poll said so */
    _Atomic(bw_status) failed; /* the first failure */
} reference_work;

static void work_out_row(reference_work *work, int64_t index) {
    const bw_case *content = work->content;
    bw_expected *expected = work->expected;
    bw_reference_row *row = &expected->rows[index];
    row->values = expected->values + index * work->elems;
    bw_status none = NULL;
    bw_status status =
        content->op->reference(&content->dims, content->precision, content->seed, expected->order[index], row);
    if (status && !atomic_compare_exchange_strong(&work->failed, &none, status)) bw_status_free(status);
}

static void work_out(void *context) {
    reference_work *work = context;
    const bool polls = work->options->poll && bw_parallel_thread() == work->caller;
    double begin_s = bw_now_s(), begin_thread_s = bw_thread_s(), polled_s = -INFINITY;
    while (!atomic_load(&work->failed)) {
        double now_s = bw_now_s();
        if (polls && now_s - polled_s >= poll_every_s) {
            polled_s = now_s;
            if (work->options->poll(work->options->poll_context)) atomic_store(&work->stopped, true);
        }
        if (atomic_load(&work->stopped)) return;
        /* No thread uses more processor time than passes on the clock, which is cheaper to read. */
        bool over = now_s - begin_s > work->share_s && bw_thread_s() - begin_thread_s > work->share_s;
        if (over && atomic_load(&work->next) >= work->expected->corners) return;
        int64_t index = atomic_fetch_add(&work->next, 1);
        if (index >= work->expected->most) return;
        work_out_row(work, index);
    }
}

/* A budget is processor time: several processors spend it in less time, on as many rows. */
static void work_out_all(reference_work *work, double budget_s) {
    int processors = bw_parallel_processors();
    int threads = processors < THREADS_MOST ? processors : THREADS_MOST;
    work->share_s = threads > 1 ? fmin(budget_s, alone_s) : budget_s;
    work_out(work);
    if (threads == 1 || budget_s <= alone_s || atomic_load(&work->stopped)) return;
    if (atomic_load(&work->next) >= work->expected->most) return;
    work->share_s = (budget_s - alone_s) / threads;
    bw_parallel_run(threads, work_out, work);
}

static bw_status choose_rows(const bw_case *self, const bw_rows *rows, bw_expected *out) {
    int64_t most = bw_min64(ROWS_MOST, bw_max64(CORNERS, VALUES_MOST / rows->elems));
    most = bw_min64(most, rows->count);
    out->total = rows->count;
    out->order = malloc((size_t)most * sizeof *out->order);
    out->rows = calloc((size_t)most, sizeof *out->rows);
    out->values = malloc((size_t)(most * rows->elems) * sizeof *out->values);
    if (!out->order || !out->rows || !out->values) {
        return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " reference rows", most);
    }
    sample walk = sample_of(rows, self->seed);
    while (out->most < most && sample_next(&walk, &out->order[out->most])) {
        out->most++;
        if (walk.at_corner) out->corners = out->most;
    }
    return BW_OK;
}

/* Rows for what is left of the budget. What was worked out when an interruption came stays. */
static bw_status expect(const bw_case *self, const bw_verify_options *options, bw_expected *expected) {
    bw_rows rows = self->op->rows(&self->dims, self->precision);
    if (!expected->order) BW_TRY(choose_rows(self, &rows, expected));
    double budget_s = options->budget_s - expected->spent_s;
    if (expected->count == expected->most || (expected->count >= expected->corners && !(budget_s > 0.0))) return BW_OK;
    reference_work work = {.content = self,
                           .options = options,
                           .expected = expected,
                           .elems = rows.elems,
                           .caller = bw_parallel_thread(),
                           .next = expected->count};
    work_out_all(&work, fmax(0.0, budget_s));
    if (atomic_load(&work.failed)) return atomic_load(&work.failed);
    expected->count = bw_min64(atomic_load(&work.next), expected->most);
    if (atomic_load(&work.stopped)) return bw_fail(BW_CODE_INTERRUPTED, "interrupted");
    expected->spent_s = fmax(expected->spent_s, options->budget_s);
    return BW_OK;
}

/* The element, or row, whose error is the largest part of what it may be. */
typedef struct worst {
    double ratio, error, limit;
    int operand;
    int64_t index, count; /* count: elements of a row, 0 for a single element */
    double found, wanted;
} worst;

/* NaN never passes: an error that is not finite counts as infinite. */
static void weigh(worst one, worst *worst_yet) {
    if (!(one.error <= 1e300)) one.error = INFINITY;
    one.ratio = one.limit > 0.0 ? one.error / one.limit : one.error > 0.0 ? INFINITY : 0.0;
    if (one.ratio > worst_yet->ratio || (one.ratio == worst_yet->ratio && one.error > worst_yet->error)) {
        *worst_yet = one;
    }
}

/* What the mean of `freedom` squares of random errors may be where 1 is expected: beyond it lies less than e^-10 of a
 * sum of squares of normal variables (Laurent and Massart's bound). */
static double chance_limit(double freedom) {
    const double odds = 10.0;
    return 1.0 + 2.0 * sqrt(odds / freedom) + 2.0 * odds / freedom;
}

static void compare_row(const bw_operand *operand, const bw_reference_row *row, const bw_tolerance *tolerance,
                        const char *data, worst *worst_yet) {
    double noise = tolerance->noise * row->scale, squares = 0.0;
    for (int64_t i = 0; i < row->count; i++) {
        double found = bw_dtype_load(operand->dtype, data, i), wanted = row->values[i];
        double distance = fabs(found - wanted);
        if (distance == 0.0) continue;
        double half_unit = tolerance->element > 0.0 ? bw_dtype_half_unit(operand->dtype, wanted) : 0.0;
        double beyond = distance <= half_unit ? 0.0 : distance - half_unit;
        weigh((worst){.error = beyond / fmax(fabs(wanted), row->scale),
                      .limit = tolerance->element,
                      .operand = row->operand,
                      .index = row->offset + i,
                      .found = found,
                      .wanted = wanted},
              worst_yet);
        if (noise > 0.0) squares += distance * distance / (noise * noise + half_unit * half_unit / 3.0);
    }
    if (!(noise > 0.0)) return;
    weigh((worst){.error = tolerance->noise * sqrt(squares / (double)row->count),
                  .limit = tolerance->noise * sqrt(chance_limit(row->freedom)),
                  .operand = row->operand,
                  .index = row->offset,
                  .count = row->count},
          worst_yet);
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
                               const bw_reference_row *row, const bw_tolerance *tolerance, worst *worst_yet) {
    const bw_operand *operand = &self->operands[row->operand];
    char **host = &outputs->host[row->operand];
    if (!*host) {
        *host = malloc((size_t)operand->bytes);
        if (!*host) return bw_fail(BW_CODE_MEMORY, "no host memory to check %s", operand->name);
        BW_TRY(self->session->backend->memory->download(self->session->device, *host,
                                                        base + self->offsets[row->operand], operand->bytes));
    }
    compare_row(operand, row, tolerance, *host + bw_dtype_bytes(operand->dtype, row->offset), worst_yet);
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

static bw_status compare_batch(const bw_case *self, batch *batch, const bw_tolerance *tolerance, worst *worst_yet) {
    if (!batch->count) return BW_OK;
    if (batch->bytes > batch->capacity) {
        free(batch->host);
        batch->capacity = batch->bytes;
        batch->host = malloc((size_t)batch->bytes);
        if (!batch->host) {
            return bw_fail(BW_CODE_MEMORY, "no host memory to check %" PRId64 " bytes of output", batch->bytes);
        }
    }
    BW_TRY(self->session->backend->memory->gather(self->session->device, batch->spans, batch->count, batch->bytes,
                                                  batch->host));
    const char *host = batch->host;
    for (int64_t i = 0; i < batch->count; i++) {
        compare_row(&self->operands[batch->rows[i]->operand], batch->rows[i], tolerance, host, worst_yet);
        host += batch->spans[i].bytes;
    }
    batch->count = batch->bytes = 0;
    return BW_OK;
}

static bw_status compare_gathered(const bw_case *self, const char *base, batch **open, const bw_reference_row *row,
                                  const bw_tolerance *tolerance, worst *worst_yet) {
    const bw_operand *operand = &self->operands[row->operand];
    int64_t start = bw_dtype_bytes(operand->dtype, row->offset), bytes = bw_dtype_bytes(operand->dtype, row->count);
    if (!*open) *open = calloc(1, sizeof **open);
    batch *batch = *open;
    if (!batch) return bw_fail(BW_CODE_MEMORY, "no host memory to check %s", operand->name);
    if (batch->count == BATCH_ROWS || batch->bytes + bytes > BATCH_BYTES) {
        BW_TRY(compare_batch(self, batch, tolerance, worst_yet));
    }
    batch->spans[batch->count] = (bw_span){base + self->offsets[row->operand] + start, bytes};
    batch->rows[batch->count++] = row;
    batch->bytes += bytes;
    return BW_OK;
}

static bw_status compare_rows(const bw_case *self, int64_t set, const bw_tolerance *tolerance, worst *worst_yet) {
    const char *base = self->memory + set * self->set_bytes;
    whole_outputs outputs = {{NULL}};
    batch *open = NULL;
    bw_status status = BW_OK;
    for (int64_t i = 0; i < self->expected->count; i++) {
        const bw_reference_row *row = &self->expected->rows[i];
        if (is_whole(self, row)) {
            BW_GOTO(compare_whole(self, base, &outputs, row, tolerance, worst_yet));
        } else {
            BW_GOTO(compare_gathered(self, base, &open, row, tolerance, worst_yet));
        }
    }
    if (open) BW_GOTO(compare_batch(self, open, tolerance, worst_yet));
cleanup:
    whole_free(&outputs);
    batch_free(open);
    return status;
}

static void say_why(const bw_case *self, const worst *worst, bw_verdict *out) {
    char element[128];
    name_element(&self->operands[worst->operand], worst->index, element, sizeof element);
    if (worst->count) {
        snprintf(out->reason, sizeof out->reason,
                 "the row of %" PRId64
                 " elements from %s on differs from the reference by more than rounding explains "
                 "(root mean square %.3g of its typical size, tolerance %.3g)",
                 worst->count, element, worst->error, worst->limit);
    } else {
        snprintf(out->reason, sizeof out->reason, "%s is %.9g, the reference says %.9g (error %.3g, tolerance %.3g)",
                 element, worst->found, worst->wanted, worst->error, worst->limit);
    }
}

bw_status bw_verify_set(bw_case *self, int64_t set, const bw_verify_options *options, bw_verdict *out) {
    if (!self->expected) {
        self->expected = calloc(1, sizeof *self->expected);
        if (!self->expected) return bw_fail(BW_CODE_MEMORY, "no host memory for reference rows");
    }
    bw_status status = expect(self, options, self->expected);
    if (status) {
        if (bw_status_code(status) != BW_CODE_INTERRUPTED) {
            bw_expected_free(self->expected);
            self->expected = NULL;
        }
        return status;
    }
    bw_tolerance tolerance = self->op->tolerance(&self->dims, self->precision, self->variant->rounds_once);
    worst worst = {.limit = tolerance.element};
    BW_TRY(compare_rows(self, set, &tolerance, &worst));
    *out = (bw_verdict){.verified = worst.ratio <= 1.0,
                        .max_error = worst.error,
                        .tolerance = worst.limit,
                        .rows_checked = self->expected->count,
                        .rows_total = self->expected->total};
    if (!out->verified) say_why(self, &worst, out);
    return BW_OK;
}

bw_status bw_verify_case(bw_case *self, const bw_verify_options *options, bw_verdict *out) {
    BW_TRY(bw_case_ready(self, bw_max64(1, self->set_count)));
    BW_TRY(bw_case_reset(self, 0));
    BW_TRY(bw_case_launch(self, 0));
    return bw_verify_set(self, 0, options, out);
}
