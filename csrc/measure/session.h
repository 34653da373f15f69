/* A session is one open device, with what is measured once for each device. It refuses a second thread. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "backend/backend.h"

typedef struct bw_session {
    const bw_backend *backend;
    bw_device *device;
    double floor_ns[BW_TIMERS_MAX]; /* of an empty kernel, by timer; NaN until measured */
    double reference_ns;            /* the best time of reference streams so far; NaN: none */
    atomic_int user;                /* the thread that is in it; 0: none */
    pid_t process;                  /* that opened it: a fork has neither its threads nor its context */
} bw_session;

bw_status bw_session_open(const bw_backend *backend, int index, bw_session **out);
void bw_session_close(bw_session *session); /* NULL is fine; after a fork nothing is released, it is the parent's */

/* A host's work is shared by so many of its threads from now on. BW_CODE_UNSUPPORTED where there are none. */
bw_status bw_session_limit_threads(bw_session *session, int threads);

/* A session serves one thread at a time: BW_CODE_BUSY when another one is in it, BW_CODE_UNAVAILABLE after a fork. */
bw_status bw_session_enter(bw_session *session);
void bw_session_leave(bw_session *session);
bool bw_session_is_foreign(const bw_session *session); /* opened by the process that this one was forked from */
bool bw_session_is_mine(bw_session *session);          /* the calling thread is in it */

/* What tells a tool that watches; NULL: none does. */
static inline const bw_annotation_calls *bw_session_annotations(const bw_session *session) {
    const bw_annotation_calls *calls = session->backend->annotations;
    return calls && calls->watched(session->device) ? calls : NULL;
}

/* The backend's index of a timer's name; NULL is its own. BW_CODE_INVALID, with what is allowed, for any other. */
bw_status bw_timer_find(const bw_session *session, const char *name, int *out);
const char *bw_timer_name(const bw_session *session, int timer);

/* The shortest time that a timer resolves: of an empty kernel, or, where a caller's calls are the work itself, of a
 * call of its function that does nothing (`nothing` NULL: there is none). */
bw_status bw_session_floor(bw_session *session, int timer, const bw_work *nothing, double *ns);
