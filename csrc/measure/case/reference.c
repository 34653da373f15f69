/* Computes a sample of output rows in float64, within a time budget. */
#include "measure/case/reference.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/parallel.h"

enum {
    CORNERS = 4, /* checked however long they take */
    ROWS_MOST = 1 << 16,
    VALUES_MOST = 1 << 24, /* 128 MiB of doubles */
    THREADS_MOST = 32
};

static const double alone_s = 1e-3; /* the caller works so long before it asks other threads to help */
static const double poll_every_s = 5e-3;

void bw_reference_free(bw_reference *self) {
    free(self->order);
    free(self->rows);
    free(self->values);
    *self = (bw_reference){.spec = self->spec};
}

/* A walk over rows [first, first + count): every row once, neighbors far apart wherever it ends. Groups of `parts`
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

/* The rows of a sample, computed by several threads: each takes the next row that is not taken. */
typedef struct reference_work {
    bw_reference *reference;
    const bw_budget *budget;
    int64_t elems;
    double share_s;            /* processor time of each who works */
    uint64_t caller;           /* the only thread that polls */
    bool alone;                /* the caller works first, alone; corners that it leaves are for all */
    bool together;             /* then all threads do, whose share begins behind the corners */
    _Atomic int64_t next;      /* rows taken; a row that was taken is worked out */
    _Atomic bool stopped;      /* poll returned true */
    _Atomic(bw_status) failed; /* the first failure */
} reference_work;

static void work_out_row(reference_work *work, int64_t index) {
    const bw_case_spec *spec = work->reference->spec;
    bw_reference_row *row = &work->reference->rows[index];
    row->values = work->reference->values + index * work->elems;
    bw_status none = NULL;
    bw_status status =
        spec->op->reference(&spec->dims, spec->precision, spec->seed, work->reference->order[index], row);
    if (status && !atomic_compare_exchange_strong(&work->failed, &none, status)) bw_status_free(status);
}

static void *work_out(void *context) {
    reference_work *work = context;
    const bool polls = work->budget->poll && bw_parallel_thread() == work->caller;
    double begin_s = bw_now_s(), begin_thread_s = bw_thread_s(), polled_s = -INFINITY;
    while (!atomic_load(&work->failed)) {
        double now_s = bw_now_s();
        if (polls && now_s - polled_s >= poll_every_s) {
            polled_s = now_s;
            if (work->budget->poll(work->budget->poll_context)) atomic_store(&work->stopped, true);
        }
        if (atomic_load(&work->stopped)) return NULL;
        /* No thread uses more processor time than passes on the clock, which is cheaper to read. */
        bool over = now_s - begin_s > work->share_s && bw_thread_s() - begin_thread_s > work->share_s;
        if (over && (work->alone || atomic_load(&work->next) >= work->reference->corners)) return NULL;
        int64_t index = atomic_fetch_add(&work->next, 1);
        if (index >= work->reference->most) return NULL;
        work_out_row(work, index);
        if (work->together && index < work->reference->corners) {
            begin_s = bw_now_s();
            begin_thread_s = bw_thread_s();
        }
    }
    return NULL;
}

/* A budget is processor time: several processors spend it in less time, on as many rows. */
static void work_out_all(reference_work *work, double budget_s) {
    int processors = bw_parallel_processors();
    int threads = processors < THREADS_MOST ? processors : THREADS_MOST;
    work->alone = threads > 1 && budget_s > alone_s;
    work->share_s = work->alone ? alone_s : budget_s;
    work_out(work);
    if (!work->alone || atomic_load(&work->stopped) || atomic_load(&work->next) >= work->reference->most) return;
    work->alone = false;
    work->together = true;
    work->share_s = (budget_s - alone_s) / threads;
    bw_parallel_run(threads, work_out, work);
}

/* Unless it is a corner, which comes first. */
static void add_row(bw_reference *self, int64_t row) {
    for (int64_t i = 0; i < self->corners; i++) {
        if (self->order[i] == row) return;
    }
    self->order[self->most++] = row;
}

/* In the order of checking, none twice: the corners, then by turns a row outside the focus and one within it. */
static void order_rows(bw_reference *self, const bw_rows *rows, int64_t most) {
    int64_t count = rows->count, line = bw_min64(rows->line, count), focus = bw_min64(rows->focus, count);
    const int64_t corners[CORNERS] = {0, count - 1, line - 1, count - line};
    walk parts[2] = {walk_over(0, focus, rows->parts, self->spec->seed),
                     walk_over(focus, count - focus, rows->parts, self->spec->seed)};
    for (int i = 0; i < CORNERS; i++) {
        add_row(self, corners[i]);
        self->corners = self->most;
    }
    for (int turn = 1; self->most < most; turn ^= 1) add_row(self, walk_on(&parts[parts[turn].left ? turn : turn ^ 1]));
    assert(self->most == most && self->corners <= most);
}

static bw_status choose_rows(bw_reference *self, const bw_rows *rows) {
    int64_t most = bw_min64(ROWS_MOST, bw_max64(CORNERS, VALUES_MOST / rows->elems));
    most = bw_min64(most, rows->count);
    self->total = rows->count;
    self->order = malloc((size_t)most * sizeof *self->order);
    self->rows = calloc((size_t)most, sizeof *self->rows);
    self->values = malloc((size_t)(most * rows->elems) * sizeof *self->values);
    if (!self->order || !self->rows || !self->values) {
        return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " reference rows", most);
    }
    order_rows(self, rows, most);
    return BW_OK;
}

static bw_status add_rows(bw_reference *self, const bw_budget *budget) {
    bw_rows rows = self->spec->op->rows(&self->spec->dims, self->spec->precision);
    if (!self->order) BW_TRY(choose_rows(self, &rows));
    double left_s = budget->seconds - self->spent_s;
    if (self->count == self->most || (self->count >= self->corners && !(left_s > 0.0))) return BW_OK;
    reference_work work = {
        .reference = self, .budget = budget, .elems = rows.elems, .caller = bw_parallel_thread(), .next = self->count};
    work_out_all(&work, fmax(0.0, left_s));
    if (atomic_load(&work.failed)) return atomic_load(&work.failed);
    self->count = bw_min64(atomic_load(&work.next), self->most);
    if (atomic_load(&work.stopped)) return bw_fail(BW_CODE_INTERRUPTED, "interrupted");
    self->spent_s = fmax(self->spent_s, budget->seconds);
    return BW_OK;
}

bw_status bw_reference_extend(bw_reference *self, const bw_budget *budget) {
    bw_status status = add_rows(self, budget);
    if (status && bw_status_code(status) != BW_CODE_INTERRUPTED) bw_reference_free(self);
    return status;
}
