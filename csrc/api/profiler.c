/* Creates and destroys profilers, and marks ranges. Marking is the hot path. */
#include "api/profiler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/order.h"
#include "base/parallel.h"

enum { RANGES_AT_FIRST = 256, PAUSE_NS = 1000, FLOOR_RANGES = 101 }; /* of a track: two marks each */

static void track_free(bw_track *self) {
    bw_ranges_free(self->ranges);
    bw_names_free(&self->names);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static void profiler_free(bw_profiler *self) {
    for (int i = 0; i < TRACK_BUCKETS; i++) {
        for (bw_track *track = atomic_load(&self->buckets[i]), *next; track; track = next) {
            next = track->next;
            track_free(track);
        }
    }
    bw_names_free(&self->byte_names);
    free(self->bytes);
    pthread_mutex_destroy(&self->lock);
    pthread_mutex_destroy(&self->floor_lock);
    bw_api_close(self->session);
    free(self);
}

static bw_status profiler_make(bw_profiler **out) {
    bw_profiler *self = *out = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for a profiler");
    pthread_mutex_init(&self->lock, NULL);
    pthread_mutex_init(&self->floor_lock, NULL);
    self->floor_ms = NAN;
    return BW_OK;
}

static bw_status create(const char *backend, int device, bwprof_profiler **out) {
    bw_status status = BW_OK;
    bw_profiler *self;
    BW_TRY(bw_api_need(out, "out"));
    *out = NULL;
    BW_TRY(profiler_make(&self));
    BW_GOTO(bw_api_open(backend, device, &self->session));
    if (!self->session->backend->marks) {
        BW_GOTO(bw_fail(BW_CODE_UNSUPPORTED, "the %s backend takes no marks of time", self->session->backend->name));
    }
    BW_GOTO(bw_handle_make(self, out));
    return BW_OK;
cleanup:
    profiler_free(self);
    return status;
}

bwprof_status bwprof_profiler_create(const char *backend, int device, bwprof_profiler **out) {
    return bw_api_answer(create(backend, device, out));
}

static bw_status destroy(bwprof_profiler *handle) {
    bw_profiler *self = NULL;
    bw_status status = bw_handle_hold(handle, &self);
    bool measuring = !status && bw_session_is_mine(self->session);
    if (!status) bw_handle_let_go(handle);
    if (bw_status_code(status) == BW_CODE_INVALID) return status;
    bw_status_free(status); /* after a fork: the handle is released, and the parent's memory stays as it is */
    if (measuring) {
        return bw_fail(BW_CODE_BUSY, "this profiler's device is measuring the function that destroys it");
    }
    BW_TRY(bw_handle_take(handle, &self));
    if (self) profiler_free(self);
    return BW_OK;
}

bwprof_status bwprof_profiler_destroy(bwprof_profiler *handle) {
    return handle ? bw_api_answer(destroy(handle)) : BWPROF_OK;
}

bwprof_status bwprof_profiler_enable(bwprof_profiler *handle, int enabled) {
    bw_profiler *self;
    bw_status status = bw_handle_hold(handle, &self);
    if (status) return bw_api_answer(status);
    if (bw_handle_is_off(handle) != !enabled) {
        atomic_fetch_add(&self->period, 1);
        bw_handle_switch(handle, enabled != 0);
    }
    bw_handle_let_go(handle);
    return BWPROF_OK;
}

static unsigned bucket_of(uint64_t thread, const void *stream) {
    uint64_t mixed = (thread ^ (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return (unsigned)(mixed >> 58); /* of TRACK_BUCKETS */
}

_Static_assert(TRACK_BUCKETS == 1 << 6, "bucket_of takes 6 bits");

bw_track *bw_track_next(bw_profiler *self, const bw_track *track) {
    unsigned bucket = track ? bucket_of(track->thread, track->stream) + 1 : 0;
    bw_track *found = track ? track->next : NULL;
    for (; bucket < TRACK_BUCKETS && !found; bucket++) found = atomic_load(&self->buckets[bucket]);
    return found;
}

/* A thread searches and makes its own tracks only, so that no two threads make the same one. */
static bw_track *find_track(bw_profiler *self, uint64_t thread, const void *stream) {
    bw_track *track = atomic_load_explicit(&self->buckets[bucket_of(thread, stream)], memory_order_acquire);
    while (track && (track->thread != thread || track->stream != stream)) track = track->next;
    return track;
}

static bw_status make_track(bw_profiler *self, uint64_t thread, void *stream, bw_track **out) {
    bw_status status = BW_OK;
    if (atomic_fetch_add(&self->track_count, 1) >= BWPROF_TRACKS_MOST) {
        atomic_fetch_sub(&self->track_count, 1);
        return bw_fail(BW_CODE_MEMORY, "this profiler has been used by %d threads and streams, the most there may be",
                       BWPROF_TRACKS_MOST);
    }
    bw_track *track = calloc(1, sizeof *track);
    if (!track) BW_GOTO(bw_fail(BW_CODE_MEMORY, "no host memory for a thread's ranges"));
    track->thread = thread;
    track->stream = stream;
    track->period = atomic_load(&self->period);
    track->owner = bw_api_thread();
    pthread_mutex_init(&track->lock, NULL);
    BW_GOTO(bw_ranges_create(self->session, stream, RANGES_AT_FIRST, &track->ranges));
    track->ranges->waiting_limit = BWPROF_WAITING_MOST;
    track->ranges->time_limit = BWPROF_TIMES_MOST;
    bw_track *_Atomic *bucket = &self->buckets[bucket_of(thread, stream)];
    track->next = atomic_load(bucket);
    while (!atomic_compare_exchange_weak(bucket, &track->next, track)) continue;
    *out = track;
    return BW_OK;
cleanup:
    atomic_fetch_sub(&self->track_count, 1);
    if (track) track_free(track);
    return status;
}

void bw_track_enter(bw_track *self) {
    while (atomic_load(&self->wanted)) nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    pthread_mutex_lock(&self->lock);
}

void bw_track_leave(bw_track *self) {
    pthread_mutex_unlock(&self->lock);
}

static void lock_to_mark(bw_track *track) {
    if (pthread_mutex_trylock(&track->lock) == 0) return;
    atomic_store(&track->wanted, true);
    pthread_mutex_lock(&track->lock);
    atomic_store(&track->wanted, false);
}

/* Drops ranges that ran when the profiler was switched, or whose thread ended and left its number to this one. */
static void follow(bw_profiler *self, bw_track *track) {
    int64_t period = atomic_load_explicit(&self->period, memory_order_relaxed), owner = bw_api_thread();
    if (track->period == period && track->owner == owner) return;
    bw_ranges_drop(track->ranges);
    track->period = period;
    track->owner = owner;
}

static bw_status name_in(bw_track *track, const char *name, int64_t *id) {
    int64_t number;
    *id = bw_names_find(&track->names, name);
    if (*id >= 0) return BW_OK;
    BW_TRY(bw_names_add(&track->names, name, id));
    bw_status status = bw_ranges_add(track->ranges, &number);
    if (status) bw_names_take_back(&track->names); /* numbers of both stay the same */
    return status ? status : bw_ranges_set_name(track->ranges, *id, name);
}

bw_range_bytes bw_profiler_find_bytes(bw_profiler *self, const char *name) {
    if (!atomic_load_explicit(&self->has_bytes, memory_order_acquire)) return (bw_range_bytes){0};
    pthread_mutex_lock(&self->lock);
    int64_t id = bw_names_find(&self->byte_names, name);
    bw_range_bytes bytes = id < 0 ? (bw_range_bytes){0} : self->bytes[id];
    pthread_mutex_unlock(&self->lock);
    return bytes;
}

/* `own`: the range's bytes; NULL: what was set for its name. */
static bw_status start_range(bw_profiler *self, const char *name, void *stream, const bw_range_bytes *own) {
    uint64_t thread = bw_parallel_thread();
    bw_track *track = find_track(self, thread, stream);
    int64_t id;
    if (!track) {
        BW_TRY(bw_name_check(name));
        BW_TRY(make_track(self, thread, stream, &track));
    }
    lock_to_mark(track);
    follow(self, track);
    bw_status status = name_in(track, name, &id);
    if (!status) track->ranges->names[id].next = own ? *own : bw_profiler_find_bytes(self, name);
    if (!status) status = bw_ranges_start(track->ranges, id);
    pthread_mutex_unlock(&track->lock);
    return status;
}

static bw_status refuse_not_running(const char *name) {
    BW_TRY(bw_name_check(name));
    return bw_fail(BW_CODE_INVALID,
                   "range '%.100s' does not run in this thread on this stream: start it first, and stop it once", name);
}

static bw_status stop_range(bw_profiler *self, const char *name, void *stream) {
    bw_track *track = find_track(self, bw_parallel_thread(), stream);
    if (!track) return refuse_not_running(name);
    lock_to_mark(track);
    follow(self, track);
    int64_t id = bw_names_find(&track->names, name);
    bool running = id >= 0 && bw_ranges_count_running(track->ranges, id);
    bw_status status = running ? bw_ranges_stop(track->ranges, id) : refuse_not_running(name);
    pthread_mutex_unlock(&track->lock);
    return status;
}

/* `other`: marked in that one, while this one is held; NULL: in this one. */
static bw_status mark_in(const bwprof_profiler *handle, bw_profiler *other, const char *name, void *stream,
                         bool start) {
    bw_profiler *self;
    BW_TRY(bw_handle_hold(handle, &self));
    if (other) self = other;
    bw_status status = start ? start_range(self, name, stream, NULL) : stop_range(self, name, stream);
    bw_handle_let_go(handle);
    return status;
}

static bwprof_status mark(bwprof_profiler *handle, const char *name, void *stream, bool start) {
    if (bw_handle_is_off(handle)) return BWPROF_OK;
    bw_status status = mark_in(handle, NULL, name, stream, start);
    return status ? bw_api_answer(status) : BWPROF_OK;
}

bwprof_status bwprof_profiler_start(bwprof_profiler *handle, const char *name, void *stream) {
    return mark(handle, name, stream, true);
}

bwprof_status bwprof_profiler_stop(bwprof_profiler *handle, const char *name, void *stream) {
    return mark(handle, name, stream, false);
}

bw_status bw_profiler_floor(const bwprof_profiler *handle, bw_session *session, double *ns) {
    bw_status status = BW_OK;
    bw_profiler *own;
    bw_track *track;
    double samples[FLOOR_RANGES];
    BW_TRY(profiler_make(&own));
    own->session = session;
    BW_GOTO(make_track(own, bw_parallel_thread(), NULL, &track));
    track->ranges->annotations = NULL;
    for (int i = 0; i < FLOOR_RANGES; i++) {
        BW_GOTO(mark_in(handle, own, "empty", NULL, true));
        BW_GOTO(mark_in(handle, own, "empty", NULL, false));
    }
    BW_GOTO(bw_ranges_read(track->ranges));
    for (int i = 0; i < FLOOR_RANGES; i++) samples[i] = track->ranges->names[0].times[i].ns;
    *ns = bw_median(samples, FLOOR_RANGES);
cleanup:
    own->session = NULL; /* the caller's */
    profiler_free(own);
    return status;
}

static bw_status set_bytes(bw_profiler *self, const char *name, bw_range_bytes bytes) {
    int64_t id;
    pthread_mutex_lock(&self->lock);
    bw_status status = bw_names_add_row(&self->byte_names, name, (void **)&self->bytes, sizeof bytes, &id);
    if (!status) self->bytes[id] = bytes;
    if (!status) atomic_store_explicit(&self->has_bytes, true, memory_order_release);
    pthread_mutex_unlock(&self->lock);
    return status;
}

bwprof_status bwprof_profiler_set_bytes(bwprof_profiler *handle, const char *name, uint64_t bytes_read,
                                        uint64_t bytes_written) {
    bw_profiler *self;
    bw_status status = bw_handle_hold(handle, &self);
    if (status) return bw_api_answer(status);
    status = set_bytes(self, name, (bw_range_bytes){bytes_read, bytes_written, true});
    bw_handle_let_go(handle);
    return bw_api_answer(status);
}

bwprof_status bwprof_range_begin(bwprof_profiler *handle, const char *name, void *stream, uint64_t bytes_read,
                                 uint64_t bytes_written, bwprof_range *out) {
    bw_profiler *self;
    bw_status status = bw_api_need(out, "out");
    if (status) return bw_api_answer(status);
    *out = (bwprof_range){.profiler = NULL};
    if (bw_handle_is_off(handle)) return BWPROF_OK;
    status = bw_handle_hold(handle, &self);
    if (status) return bw_api_answer(status);
    const bw_range_bytes own = {bytes_read, bytes_written, bytes_read || bytes_written};
    if (own.known) status = set_bytes(self, name, own);
    if (!status) status = start_range(self, name, stream, own.known ? &own : NULL);
    if (!status) *out = (bwprof_range){handle, name, stream};
    bw_handle_let_go(handle);
    return status ? bw_api_answer(status) : BWPROF_OK;
}

bwprof_status bwprof_range_end(bwprof_range *range) {
    if (!range || !range->profiler) return BWPROF_OK;
    bwprof_profiler *handle = range->profiler;
    range->profiler = NULL;
    return bwprof_profiler_stop(handle, range->name, range->stream);
}
