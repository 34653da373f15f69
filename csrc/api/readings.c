/* Joins by name what a profiler has measured, and writes it as text, CSV or JSON. Threads that mark are not held up. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/profiler.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/order.h"

enum { READ_AT_ONCE = 64, PAUSE_NS = 20000, FLOOR_FACTOR = 3, MILLION = 1000000 };

/* Of a range, from all threads and streams. */
typedef struct reading {
    bw_range_totals totals;
    double *ns; /* the times that medians are of */
    int64_t time_count;
    double median_ms, gb_s;
    bw_range_bytes bytes; /* by each; of those that moved different bytes the mean */
} reading;

typedef struct readings {
    const bw_session *session;
    bw_names names;
    reading *of; /* by number of `names` */
    double floor_ms;
    bool partial; /* memory was short: the readings are incomplete and not used */
} readings;

static void readings_free(readings *self) {
    for (int64_t i = 0; self->of && i < self->names.count; i++) free(self->of[i].ns);
    free(self->of);
    bw_names_free(&self->names);
}

/* Until all that had been stopped when this began has its time. The stream is waited for without the lock. */
static bw_status settle(bw_track *track) {
    bw_status status = BW_OK;
    int64_t wanted = -1, left;
    do {
        bw_track_enter(track);
        if (wanted < 0) wanted = track->ranges->stopped;
        int64_t before = track->ranges->settled;
        status = bw_status_first(status, bw_ranges_read_passed(track->ranges, READ_AT_ONCE));
        int64_t settled = track->ranges->settled;
        bw_track_leave(track);
        left = wanted - settled;
        if (left > 0 && settled == before) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    } while (left > 0);
    return status;
}

static bw_status gather_name(const bw_track *track, int64_t id, readings *to) {
    const bw_range_name *name = &track->ranges->names[id];
    int64_t before = to->names.count, at, count = name->count;
    BW_TRY(bw_names_add_row(&to->names, track->names.name[id], (void **)&to->of, sizeof *to->of, &at));
    reading *found = &to->of[at];
    if (to->names.count > before) {
        *found = (reading){.totals = {.least_ns = NAN, .most_ns = NAN}, .median_ms = NAN, .gb_s = NAN};
    }
    if (count) BW_TRY(bw_resize((void **)&found->ns, found->time_count + count, sizeof *found->ns, "times"));
    for (int64_t i = 0; i < count; i++) found->ns[found->time_count++] = name->times[i].ns;
    bw_range_totals_add(&found->totals, &name->totals);
    return BW_OK;
}

/* Of one track: of `only`, or of all its names. Its thread waits for no more than the copying of one name's times. */
static bw_status gather(bw_track *track, const char *only, readings *to) {
    bw_status status = BW_OK;
    int64_t id = 0, end = 1;
    for (; id < end && !status; id++) {
        bw_track_enter(track);
        if (only) id = bw_names_find(&track->names, only);
        end = only ? id + 1 : track->names.count;
        if (id >= 0 && id < end) status = gather_name(track, id, to);
        bw_track_leave(track);
    }
    return status;
}

/* Ranges that began before their bytes were set have those that are set now. */
static void add_bytes(bw_profiler *self, const char *name, reading *to) {
    to->bytes = bw_profiler_find_bytes(self, name);
    bw_range_totals *totals = &to->totals;
    double unset = (double)(totals->count - totals->known);
    if (!to->bytes.known || !totals->count) return;
    const bw_range_totals rest = {.least_ns = NAN,
                                  .most_ns = NAN,
                                  .known = totals->count - totals->known,
                                  .bytes_read = unset * (double)to->bytes.bytes_read,
                                  .bytes_written = unset * (double)to->bytes.bytes_written,
                                  .bytes = to->bytes};
    bw_range_totals_add(totals, &rest);
    to->bytes = totals->bytes;
    if (!totals->varied) return;
    to->bytes.bytes_read = (uint64_t)(totals->bytes_read / (double)totals->count + 0.5);
    to->bytes.bytes_written = (uint64_t)(totals->bytes_written / (double)totals->count + 0.5);
}

/* All bytes over all time where they vary, else those of a range over the median time. NaN: not known. */
static double bandwidth_of(const reading *self) {
    const bw_range_totals *all = &self->totals;
    if (all->varied) return all->sum_ns > 0.0 ? bw_gb_s(all->bytes_read + all->bytes_written, all->sum_ns / 1e9) : NAN;
    double bytes = (double)self->bytes.bytes_read + (double)self->bytes.bytes_written;
    bool known = self->bytes.known && bytes > 0.0 && self->median_ms > 0.0;
    return known ? bw_gb_s(bytes, self->median_ms / 1e3) : NAN;
}

/* What cannot be read is left out, and the first such failure returned, with the rest in *to. */
static bw_status read_ranges(bw_profiler *self, const char *only, readings *to) {
    bw_status unread = BW_OK;
    for (bw_track *track = bw_track_next(self, NULL); track; track = bw_track_next(self, track)) {
        unread = bw_status_first(unread, settle(track));
        bw_status status = gather(track, only, to);
        if (status) {
            to->partial = true;
            bw_status_free(unread);
            return status;
        }
    }
    for (int64_t i = 0; i < to->names.count; i++) {
        reading *one = &to->of[i];
        add_bytes(self, to->names.name[i], one);
        one->median_ms = bw_median(one->ns, one->time_count) / 1e6;
        one->gb_s = bandwidth_of(one);
    }
    return unread;
}

static bw_status measure_marks(bw_session *session, double *ns) {
    const bw_backend *backend = session->backend;
    void *stream = backend->context ? backend->context->stream(session->device) : NULL;
    BW_TRY(bw_session_enter(session));
    bw_current_device current = bw_current_device_save(backend);
    bw_status status = bw_marks_floor(session, stream, ns);
    bw_current_device_restore(&current);
    bw_session_leave(session);
    return status;
}

/* What marks take on a host is part of its ranges; a GPU's own clock sees the marks alone. */
static bw_status find_floor(const bwprof_profiler *handle, bw_profiler *self, double *ms) {
    bw_session *session = self->session;
    bw_status status = BW_OK;
    double ns = NAN;
    pthread_mutex_lock(&self->floor_lock);
    if (isnan(self->floor_ms)) {
        bool on_host = session->backend->runs_on_host;
        status = on_host ? bw_profiler_floor(handle, session, &ns) : measure_marks(session, &ns);
        self->floor_ms = ns / 1e6;
    }
    *ms = self->floor_ms;
    pthread_mutex_unlock(&self->floor_lock);
    return status;
}

static bw_status read_one(bwprof_profiler *handle, const char *name, const void *to, const char *what, reading *out) {
    bw_profiler *self;
    readings found = {.of = NULL};
    *out = (reading){.median_ms = NAN, .gb_s = NAN};
    BW_TRY(bw_api_need(to, what));
    BW_TRY(bw_name_check(name));
    BW_TRY(bw_handle_hold(handle, &self));
    bw_status status = read_ranges(self, name, &found);
    if (found.names.count && !found.partial) *out = found.of[0];
    if (!found.names.count) add_bytes(self, name, out);
    out->ns = NULL;
    readings_free(&found);
    bw_handle_let_go(handle);
    return status;
}

bwprof_status bwprof_profiler_elapsed_ms(bwprof_profiler *handle, const char *name, double *time_ms) {
    reading found;
    bw_status status = read_one(handle, name, time_ms, "time_ms", &found);
    if (time_ms) *time_ms = found.median_ms;
    if (!status && isnan(found.median_ms)) {
        status = bw_fail((bw_code)BW_CODE_UNKNOWN, "range '%.100s' has no time yet: it has not been stopped", name);
    }
    return bw_api_answer(status);
}

bwprof_status bwprof_profiler_bandwidth_gb_s(bwprof_profiler *handle, const char *name, double *gb_s) {
    reading found;
    bw_status status = read_one(handle, name, gb_s, "gb_s", &found);
    if (gb_s) *gb_s = found.gb_s;
    if (!status && isnan(found.gb_s)) {
        status = bw_fail((bw_code)BW_CODE_UNKNOWN, "range '%.100s' has no bandwidth: %s", name,
                         isnan(found.median_ms)  ? "it has not been stopped"
                         : !found.bytes.known    ? "its bytes were not set"
                         : found.median_ms > 0.0 ? "its bytes are 0"
                                                 : "its time is 0");
    }
    return bw_api_answer(status);
}

bwprof_status bwprof_profiler_count(bwprof_profiler *handle, const char *name, int64_t *count) {
    reading found;
    bw_status status = read_one(handle, name, count, "count", &found);
    if (count) *count = found.totals.count;
    return bw_api_answer(status);
}

bwprof_status bwprof_profiler_reset(bwprof_profiler *handle) {
    bw_profiler *self;
    bw_status status = bw_handle_hold(handle, &self);
    if (status) return bw_api_answer(status);
    for (bw_track *track = bw_track_next(self, NULL); track; track = bw_track_next(self, track)) {
        bw_track_enter(track);
        bw_ranges_forget(track->ranges);
        bw_track_leave(track);
    }
    bw_handle_let_go(handle);
    return BWPROF_OK;
}

static const char *flags_of(const readings *all, const reading *one) {
    bool near = one->median_ms < FLOOR_FACTOR * all->floor_ms;
    if (one->totals.varied) return near ? "near_timer_floor;bytes_vary" : "bytes_vary";
    return near ? "near_timer_floor" : "";
}

static void write_report(const readings *all, bw_text *to) {
    static const char *const labels[] = {"Bytes read", "Bytes written"};
    for (int64_t i = 0; i < all->names.count; i++) {
        const reading *one = &all->of[i];
        const uint64_t bytes[] = {one->bytes.bytes_read, one->bytes.bytes_written};
        bw_text_add(to, "=== Bandwidth Profile: ");
        bw_text_name(to, all->names.name[i], BW_PLAIN);
        bw_text_add(to, " ===\nElapsed time: ");
        bw_text_number(to, one->median_ms, 3, "unknown");
        bw_text_add(to, " ms");
        long long count = one->totals.count, time_count = one->time_count;
        if (count > time_count) {
            bw_text_add(to, " (median of the latest %lld of %lld)", time_count, count);
        } else if (count > 1) {
            bw_text_add(to, " (median of %lld)", count);
        }
        for (int j = 0; j < 2 && one->bytes.known; j++) {
            bw_text_add(to, "\n%s: %llu (", labels[j], (unsigned long long)bytes[j]);
            bw_text_number(to, (double)bytes[j] / MILLION, 2, "");
            bw_text_add(to, one->totals.varied ? " MB, mean)" : " MB)");
        }
        bw_text_add(to, "\nBandwidth: ");
        bw_text_number(to, one->gb_s, 2, "unknown");
        bw_text_add(to, isnan(one->gb_s) ? "\n" : " GB/s\n");
        if (*flags_of(all, one)) bw_text_add(to, "Flags: %s\n", flags_of(all, one));
        bw_text_add(to, "=============================\n");
    }
}

static void add_row(bw_row row, const readings *all, const char *name, const reading *one) {
    bw_row_text(&row, "range", name);
    bw_row_whole(&row, "count", true, (uint64_t)one->totals.count);
    bw_row_number(&row, "total_ms", one->totals.sum_ns / 1e6);
    bw_row_number(&row, "time_ms", one->median_ms);
    bw_row_number(&row, "time_ms_min", one->totals.least_ns / 1e6);
    bw_row_number(&row, "time_ms_max", one->totals.most_ns / 1e6);
    bw_row_whole(&row, "bytes_read", one->bytes.known, one->bytes.bytes_read);
    bw_row_whole(&row, "bytes_written", one->bytes.known, one->bytes.bytes_written);
    bw_row_number(&row, "bandwidth_gb_s", one->gb_s);
    bw_row_text(&row, "flags", flags_of(all, one));
}

static void write_csv(const readings *all, bw_text *to) {
    add_row((bw_row){.to = to, .form = BW_HEADER}, all, "", &(reading){0});
    bw_text_add(to, "\n");
    for (int64_t i = 0; i < all->names.count; i++) {
        add_row((bw_row){.to = to, .form = BW_CSV}, all, all->names.name[i], &all->of[i]);
        bw_text_add(to, "\n");
    }
}

static void write_json(const readings *all, bw_text *to) {
    const bw_session *session = all->session;
    bw_row head = {.to = to, .form = BW_JSON, .between = ",\n  "};
    bw_text_add(to, "{\n  ");
    bw_row_text(&head, "format", "bwprof ranges 1");
    bw_row_text(&head, "bwprof_version", bwprof_version());
    bw_row_text(&head, "backend", session->backend->name);
    bw_row_text(&head, "device", session->backend->devices->facts(session->device)->name);
    bw_row_text(&head, "timer", session->backend->marks->clock);
    bw_row_number(&head, "floor_us", all->floor_ms * 1e3);
    bw_text_add(to, ",\n  \"ranges\": [");
    for (int64_t i = 0; i < all->names.count; i++) {
        bw_text_add(to, "%s\n    {", i ? "," : "");
        add_row((bw_row){.to = to, .form = BW_JSON, .between = ", "}, all, all->names.name[i], &all->of[i]);
        bw_text_add(to, "}");
    }
    bw_text_add(to, "%s]\n}\n", all->names.count ? "\n  " : "");
}

typedef void (*write_function)(const readings *all, bw_text *to);

static bw_status print(const bw_text *text, FILE *stream) {
    errno = 0; /* a stream of the caller's own making may fail without a word */
    if (fputs(text->bytes, stream) != EOF && fflush(stream) == 0) return BW_OK;
    return bw_fail(BW_CODE_SYSTEM, "the report cannot be written: %s",
                   errno ? strerror(errno) : "its stream does not say why");
}

/* Ranges that could not be read do not hide the others. Where memory is short there is no text. */
static bw_status write_text(bwprof_profiler *handle, write_function how, const char *path, FILE *stream) {
    bw_profiler *self;
    bw_text text = {0};
    readings all = {.floor_ms = NAN};
    BW_TRY(bw_handle_hold(handle, &self));
    all.session = self->session;
    bw_status status = read_ranges(self, NULL, &all);
    if (all.names.count && !all.partial) status = bw_status_first(status, find_floor(handle, self, &all.floor_ms));
    if (!all.partial) how(&all, &text);
    readings_free(&all);
    bw_handle_let_go(handle);
    if (text.failed) status = bw_status_first(status, bw_fail(BW_CODE_MEMORY, "no host memory for the text of ranges"));
    if (text.bytes && !text.failed) {
        status = bw_status_first(status, stream ? print(&text, stream) : bw_file_write(path, &text));
    }
    bw_text_free(&text);
    return status;
}

bwprof_status bwprof_profiler_write_csv(bwprof_profiler *handle, const char *path) {
    return bw_api_answer(path ? write_text(handle, write_csv, path, NULL) : bw_api_need(path, "path"));
}

bwprof_status bwprof_profiler_write_json(bwprof_profiler *handle, const char *path) {
    return bw_api_answer(path ? write_text(handle, write_json, path, NULL) : bw_api_need(path, "path"));
}

bwprof_status bwprof_profiler_print_report(bwprof_profiler *handle, FILE *stream) {
    return bw_api_answer(stream ? write_text(handle, write_report, NULL, stream) : bw_api_need(stream, "stream"));
}
