/* The profiler behind a handle: a device, and for each thread on each stream a track with ranges of its own. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "api/api.h"
#include "measure/ranges.h"

enum { TRACK_BUCKETS = 64 };

/* One thread marks here; others read meanwhile. */
typedef struct bw_track {
    struct bw_track *next; /* in its bucket; stays as it is */
    uint64_t thread;
    void *stream;
    _Atomic bool wanted;  /* its thread waits for the lock, which readers leave to it */
    pthread_mutex_t lock; /* of all that follows: held for as long as marking takes, or reading without a wait */
    bw_names names;
    bw_ranges *ranges; /* whose numbers of names are those of `names` */
    int64_t period;    /* of the profiler's, that its running ranges began in */
    int64_t owner;     /* bw_api_thread() of the thread that began them: `thread` may be another's by now */
} bw_track;

typedef struct bw_profiler {
    bw_session *session;
    bw_track *_Atomic buckets[TRACK_BUCKETS];
    _Atomic int track_count;
    _Atomic int64_t period; /* one more each time that it is switched */
    pthread_mutex_t lock;   /* of what follows */
    bw_names byte_names;    /* whose bytes are known */
    bw_range_bytes *bytes;  /* by number of `byte_names` */
    _Atomic bool has_bytes; /* of any name */
    pthread_mutex_t floor_lock;
    double floor_ms; /* of an empty range; NaN until it is measured */
} bw_profiler;

/* ---- handles.c ---- */
/* The profiler stays until it is let go of. BW_CODE_INVALID: it was destroyed; BW_CODE_UNAVAILABLE: after a fork. */
bw_status bw_handle_hold(const bwprof_profiler *handle, bw_profiler **out);
void bw_handle_let_go(const bwprof_profiler *handle);

bool bw_handle_is_off(const bwprof_profiler *handle); /* whether it is there and switched off; for a hot path */
void bw_handle_switch(const bwprof_profiler *handle, bool on); /* one that is held */

int64_t bw_api_thread(void); /* the calling thread's number, which no other had before it */

bw_status bw_handle_make(bw_profiler *content, bwprof_profiler **out);
/* Waits until no call uses the content, which is then the caller's; NULL where it is another process's. */
bw_status bw_handle_take(const bwprof_profiler *handle, bw_profiler **out);

/* ---- profiler.c ---- */
/* The time of an empty range, marked as callers do, but in a profiler of its own: this one may be switched off. */
bw_status bw_profiler_floor(const bwprof_profiler *handle, bw_session *session, double *ns);

bw_range_bytes bw_profiler_find_bytes(bw_profiler *self, const char *name);

/* Every track, in no order: behind NULL the first one, behind the last one NULL. */
bw_track *bw_track_next(bw_profiler *self, const bw_track *track);

/* The lock for readers. It lets a thread that marks pass first, so that a long reading does not delay it. */
void bw_track_enter(bw_track *track);
void bw_track_leave(bw_track *track);
