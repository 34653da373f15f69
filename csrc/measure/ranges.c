/* Marks the start and the end of named ranges on a stream, and reads their times later. */
#include "measure/ranges.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/order.h"

enum { READ_AT_ONCE = 16, FLOOR_PAIRS = 21 };

static const double origin_lasts_ns = 1e9; /* a float of so many ns has steps of 64 */

static const bw_range_totals none = {.least_ns = NAN, .most_ns = NAN};

static const bw_backend *backend_of(const bw_ranges *self) {
    return self->session->backend;
}

/* The ring is full or empty here, and is laid out anew from its beginning. */
static bw_status grow(bw_ranges *self, int64_t count) {
    int64_t before = self->mark_count;
    BW_TRY(bw_resize((void **)&self->unused, count, sizeof *self->unused, "marks of ranges"));
    BW_TRY(bw_resize((void **)&self->running, count, sizeof *self->running, "marks of ranges"));
    bw_range *ended = malloc((size_t)count * sizeof *ended);
    if (!ended) return bw_fail(BW_CODE_MEMORY, "no host memory for %lld marks of ranges", (long long)count);
    for (int64_t i = 0; i < self->ended_count; i++) ended[i] = self->ended[(self->first + i) % before];
    free(self->ended);
    self->ended = ended;
    self->first = 0;
    /* The arrays may be larger than the marks that there are, never smaller. */
    BW_TRY(backend_of(self)->marks->reserve(self->marks, count));
    self->mark_count = count;
    for (int64_t mark = before; mark < count; mark++) self->unused[self->unused_count++] = mark;
    return BW_OK;
}

bw_status bw_ranges_create(bw_session *session, void *stream, int64_t capacity, bw_ranges **out) {
    bw_status status = BW_OK;
    if (!session->backend->marks) {
        return bw_fail(BW_CODE_UNSUPPORTED, "the %s backend takes no marks of time", session->backend->name);
    }
    bw_ranges *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for ranges");
    self->session = session;
    self->origin.mark = -1;
    self->annotations = bw_session_annotations(session);
    BW_GOTO(session->backend->marks->create(session->device, stream, &self->marks));
    BW_GOTO(grow(self, 2 * capacity));
    *out = self;
    return BW_OK;
cleanup:
    bw_ranges_free(self);
    return status;
}

void bw_ranges_free(bw_ranges *self) {
    if (!self) return;
    if (!bw_session_is_foreign(self->session)) backend_of(self)->marks->free(self->marks);
    for (int64_t i = 0; i < self->name_count; i++) {
        free(self->names[i].times);
        free(self->names[i].text);
    }
    free(self->names);
    free(self->ended);
    free(self->running);
    free(self->unused);
    free(self);
}

bw_status bw_ranges_add(bw_ranges *self, int64_t *id) {
    if (self->name_count == self->name_capacity) {
        int64_t capacity = bw_max64(16, 2 * self->name_capacity);
        BW_TRY(bw_resize((void **)&self->names, capacity, sizeof *self->names, "marks of ranges"));
        self->name_capacity = capacity;
    }
    self->names[self->name_count] = (bw_range_name){.totals = none};
    *id = self->name_count++;
    return BW_OK;
}

bw_status bw_ranges_set_name(bw_ranges *self, int64_t id, const char *name) {
    size_t size = strlen(name) + 1;
    if (!self->annotations) return BW_OK;
    char *copy = NULL;
    BW_TRY(bw_resize((void **)&copy, (int64_t)size, 1, "marks of ranges"));
    memcpy(copy, name, size);
    free(self->names[id].text);
    self->names[id].text = copy;
    return BW_OK;
}

/* The latest that runs of the thread, -1 where none does. */
static int64_t find_running(const bw_ranges *self, int64_t id) {
    int64_t at = self->running_count - 1;
    while (at >= 0 && (self->running[at].id != id || self->running[at].thread != self->thread)) at--;
    return at;
}

void bw_ranges_set_running_bytes(bw_ranges *self, int64_t id, bw_range_bytes bytes) {
    int64_t at = find_running(self, id);
    if (at >= 0) self->running[at].bytes = bytes;
}

static void annotate(const bw_ranges *self, bw_range *started) {
    const char *name = self->names[started->id].text;
    const bw_range_bytes *bytes = &started->bytes;
    const uint64_t most = INT64_MAX; /* that a payload holds */
    bool fits = bytes->known && bytes->bytes_read <= most && bytes->bytes_written <= most - bytes->bytes_read;
    const bw_annotation what = {.name = name ? name : "range",
                                .category = "range",
                                .bytes = fits ? (int64_t)(bytes->bytes_read + bytes->bytes_written) : -1};
    started->annotation = self->annotations->start(self->session->device, &what);
}

static void end_annotation(const bw_ranges *self, const bw_range *ended) {
    if (self->annotations) self->annotations->end(self->session->device, ended->annotation);
}

void bw_range_totals_add(bw_range_totals *to, const bw_range_totals *other) {
    to->count += other->count;
    to->sum_ns += other->sum_ns;
    to->least_ns = fmin(to->least_ns, other->least_ns); /* which passes over a NaN */
    to->most_ns = fmax(to->most_ns, other->most_ns);
    to->bytes_read += other->bytes_read;
    to->bytes_written += other->bytes_written;
    bool differ =
        to->bytes.bytes_read != other->bytes.bytes_read || to->bytes.bytes_written != other->bytes.bytes_written;
    to->varied = to->varied || other->varied || (to->known && other->known && differ);
    if (!to->known) to->bytes = other->bytes;
    to->known += other->known;
}

static bw_status keep(bw_range_name *name, int64_t most, const bw_range_time *time) {
    const bw_range_totals one = {.count = 1,
                                 .sum_ns = time->ns,
                                 .least_ns = time->ns,
                                 .most_ns = time->ns,
                                 .known = time->bytes.known,
                                 .bytes_read = (double)time->bytes.bytes_read,
                                 .bytes_written = (double)time->bytes.bytes_written,
                                 .bytes = time->bytes};
    bw_range_totals_add(&name->totals, &one);
    if (most && name->count == most) {
        name->times[name->oldest] = *time;
        name->oldest = (name->oldest + 1) % most;
        return BW_OK;
    }
    if (name->count == name->capacity) {
        int64_t capacity = bw_max64(64, 2 * name->capacity);
        BW_TRY(bw_resize((void **)&name->times, capacity, sizeof *name->times, "times of ranges"));
        name->capacity = capacity;
    }
    name->times[name->count++] = *time;
    return BW_OK;
}

/* When a range began, since the first origin. Its start is behind the origin's where it runs around that. */
static bw_status begin_of(const bw_ranges *self, const bw_range *range, double *ns) {
    int64_t origin = self->origin.mark;
    bool before = range->number < self->origin.number;
    double apart = 0.0;
    if (origin >= 0) {
        BW_TRY(backend_of(self)->marks->elapsed(self->marks, before ? range->start : origin,
                                                before ? origin : range->start, &apart));
    }
    *ns = self->origin.ns + (before ? -apart : apart);
    return BW_OK;
}

/* The oldest range that has ended; its marks are free again, whether or not it can be read. Its start may become the
 * origin: then the mark of the one before is free. */
static bw_status read_oldest(bw_ranges *self) {
    bw_range oldest = self->ended[self->first];
    bw_range_time time = {.ns = NAN, .begin_ns = NAN, .bytes = oldest.bytes};
    int64_t released = oldest.start;
    self->first = (self->first + 1) % self->mark_count;
    self->ended_count--;
    self->settled++;
    self->unused[self->unused_count++] = oldest.stop;
    bw_status status = backend_of(self)->marks->elapsed(self->marks, oldest.start, oldest.stop, &time.ns);
    if (!status && self->records_begins) status = begin_of(self, &oldest, &time.begin_ns);
    if (!status && self->records_begins &&
        (self->origin.mark < 0 || time.begin_ns > self->origin.ns + origin_lasts_ns)) {
        released = self->origin.mark;
        self->origin.mark = oldest.start;
        self->origin.number = oldest.number;
        self->origin.ns = time.begin_ns;
    }
    if (released >= 0) self->unused[self->unused_count++] = released;
    return status ? status : keep(&self->names[oldest.id], self->time_limit, &time);
}

static bw_status room_at_limit(bw_ranges *self) {
    BW_TRY(bw_ranges_read_passed(self, READ_AT_ONCE));
    if (self->unused_count) return BW_OK;
    return bw_fail(BW_CODE_BUSY,
                   "%lld ranges run or wait for their stream, which is as many as may be: this one is left out; stop "
                   "ranges, or let the stream pass some",
                   (long long)self->waiting_limit);
}

/* Marks to use: of ranges that the stream has passed, else new ones. A stream that has passed a range's end has passed
 * those of the ranges that ended before it. */
static bw_status make_room(bw_ranges *self) {
    int64_t count = bw_min64(READ_AT_ONCE, self->ended_count);
    bool passed = false;
    if (count) {
        const bw_range *last = &self->ended[(self->first + count - 1) % self->mark_count];
        BW_TRY(backend_of(self)->marks->passed(self->marks, last->stop, &passed));
    }
    int64_t most = self->waiting_limit ? 2 * self->waiting_limit : INT64_MAX;
    if (!passed && self->mark_count >= most) return room_at_limit(self);
    if (!passed) return grow(self, bw_min64(2 * self->mark_count, most));
    while (count--) BW_TRY(read_oldest(self));
    return BW_OK;
}

static bw_status take_mark(bw_ranges *self, int64_t *out) {
    if (!self->unused_count) BW_TRY(make_room(self));
    int64_t mark = self->unused[self->unused_count - 1];
    BW_TRY(backend_of(self)->marks->take(self->marks, mark));
    self->unused_count--;
    *out = mark;
    return BW_OK;
}

bw_status bw_ranges_start(bw_ranges *self, int64_t id) {
    bw_range started = {.id = id, .number = self->started++, .thread = self->thread, .bytes = self->names[id].next};
    BW_TRY(take_mark(self, &started.start));
    if (self->annotations) annotate(self, &started);
    self->running[self->running_count++] = started;
    return BW_OK;
}

/* Without a mark for its end it never was: one at a later try would be too late. */
bw_status bw_ranges_stop(bw_ranges *self, int64_t id) {
    int64_t at = find_running(self, id);
    if (at < 0) return bw_fail(BW_CODE_INVALID, "the range was not started, or has been stopped already");
    bw_range ended = self->running[at];
    bw_status status = take_mark(self, &ended.stop);
    if (status && bw_status_code(status) != BW_CODE_BUSY) return status;
    self->running_count--;
    memmove(&self->running[at], &self->running[at + 1], (size_t)(self->running_count - at) * sizeof ended);
    end_annotation(self, &ended);
    if (status) {
        self->unused[self->unused_count++] = ended.start;
        return status;
    }
    self->ended[(self->first + self->ended_count++) % self->mark_count] = ended;
    self->stopped++;
    return BW_OK;
}

int64_t bw_ranges_count_running(const bw_ranges *self, int64_t id) {
    int64_t found = 0;
    for (int64_t i = 0; i < self->running_count; i++) {
        found += self->running[i].id == id && self->running[i].thread == self->thread;
    }
    return found;
}

void bw_ranges_drop(bw_ranges *self) {
    while (self->running_count) {
        const bw_range *last = &self->running[--self->running_count];
        self->unused[self->unused_count++] = last->start;
        end_annotation(self, last);
    }
}

bw_status bw_ranges_read(bw_ranges *self) {
    bw_status status = BW_OK;
    while (self->ended_count) status = bw_status_first(status, read_oldest(self));
    return status;
}

bw_status bw_ranges_read_passed(bw_ranges *self, int64_t most) {
    for (int64_t i = 0; i < most && self->ended_count; i++) {
        bool passed = false;
        bw_status status = backend_of(self)->marks->passed(self->marks, self->ended[self->first].stop, &passed);
        if (!status && !passed) return BW_OK;
        BW_TRY(bw_status_first(status, read_oldest(self)));
    }
    return BW_OK;
}

void bw_ranges_forget(bw_ranges *self) {
    for (; self->ended_count; self->ended_count--) {
        const bw_range *oldest = &self->ended[self->first];
        self->unused[self->unused_count++] = oldest->start;
        self->unused[self->unused_count++] = oldest->stop;
        self->first = (self->first + 1) % self->mark_count;
        self->settled++;
    }
    for (int64_t i = 0; i < self->name_count; i++) {
        self->names[i].count = self->names[i].oldest = 0;
        self->names[i].totals = none;
    }
}

bw_status bw_marks_floor(bw_session *session, void *stream, double *ns) {
    const bw_mark_calls *calls = session->backend->marks;
    bw_marks *marks = NULL;
    double samples[FLOOR_PAIRS];
    BW_TRY(calls->create(session->device, stream, &marks));
    bw_status status = calls->reserve(marks, 2);
    for (int i = 0; i < FLOOR_PAIRS && !status; i++) {
        status = calls->take(marks, 0);
        if (!status) status = calls->take(marks, 1);
        if (!status) status = calls->elapsed(marks, 0, 1, &samples[i]);
    }
    calls->free(marks);
    if (!status) *ns = bw_median(samples, FLOOR_PAIRS);
    return status;
}
