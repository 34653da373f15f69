/* Opens and closes a device, lets one thread at a time use it, and measures the floors of its timers. */
#include "measure/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/names.h"
#include "base/order.h"

enum { FLOOR_LAUNCHES = 1000, FLOOR_SAMPLES = 15, FLOOR_WARMUPS = 3 };

bw_status bw_session_open(const bw_backend *backend, int index, bw_session **out) {
    char reason[256] = "";
    int count = 0;
    BW_TRY(backend->devices->count(&count, reason, sizeof reason));
    if (count == 0) return bw_fail(BW_CODE_UNAVAILABLE, "no %s device: %s", backend->name, reason);
    if (index < 0 || index >= count) {
        return bw_fail(BW_CODE_INVALID, "%s device %d: allowed is 0 to %d", backend->name, index, count - 1);
    }
    bw_session *session = calloc(1, sizeof *session);
    if (!session) return bw_fail(BW_CODE_MEMORY, "no host memory for a device session");
    session->backend = backend;
    for (int i = 0; i < BW_TIMERS_MAX; i++) session->floor_ns[i] = NAN;
    session->reference_ns = NAN;
    session->process = getpid();
    atomic_init(&session->user, 0);
    bw_status status = backend->devices->open(index, &session->device);
    if (status) {
        free(session);
        return status;
    }
    *out = session;
    return BW_OK;
}

void bw_session_close(bw_session *session) {
    if (!session || bw_session_is_foreign(session)) return;
    session->backend->devices->close(session->device);
    free(session);
}

bw_status bw_session_limit_threads(bw_session *session, int threads) {
    if (!session->backend->devices->limit_threads) {
        return bw_fail(BW_CODE_UNSUPPORTED, "work on a %s device is not done by threads that could be fewer",
                       session->backend->name);
    }
    for (int i = 0; i < BW_TIMERS_MAX; i++) session->floor_ns[i] = NAN;
    session->reference_ns = NAN; /* fewer threads are slower, which is no disturbance */
    return session->backend->devices->limit_threads(session->device, threads);
}

bw_status bw_session_enter(bw_session *session) {
    int nobody = 0;
    if (bw_session_is_foreign(session)) {
        return bw_fail(BW_CODE_UNAVAILABLE,
                       "this %s device handle was opened before a fork, in process %ld: open a new one here, or start "
                       "processes with 'spawn'",
                       session->backend->name, (long)session->process);
    }
    if (atomic_compare_exchange_strong(&session->user, &nobody, gettid())) return BW_OK;
    return bw_fail(
        BW_CODE_BUSY, "this %s device handle is in use %s", session->backend->name,
        nobody == gettid()
            ? "further up in this very thread, by what it measures or its poll function: open a second handle"
            : "in another thread: wait for it, or open a second handle");
}

void bw_session_leave(bw_session *session) {
    atomic_store(&session->user, 0);
}

bool bw_session_is_foreign(const bw_session *session) {
    return session->process != getpid();
}

bool bw_session_is_mine(bw_session *session) {
    return atomic_load(&session->user) == gettid();
}

/* Which names a backend knows; one that lists none has its own timer only. */
static const char *timer_at(const void *list, int index) {
    const bw_session *session = list;
    const char *const *timers = session->backend->timers;
    if (timers) return timers[index];
    return index == 0 ? session->backend->devices->facts(session->device)->timer : NULL;
}

bw_status bw_timer_find(const bw_session *session, const char *name, int *out) {
    char allowed[128];
    *out = name ? bw_name_find(name, timer_at, session, allowed, sizeof allowed) : 0;
    if (*out >= 0) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "timer = '%.200s': allowed on %s is %s", name, session->backend->name, allowed);
}

const char *bw_timer_name(const bw_session *session, int timer) {
    return timer_at(session, timer);
}

static bw_status time_empty(bw_session *session, const bw_plan_spec *spec, double *ns) {
    bw_plan *plan = NULL;
    double samples[FLOOR_SAMPLES];
    BW_TRY(session->backend->plans->create(session->device, spec, &plan));
    bw_status status = BW_OK;
    for (int i = -FLOOR_WARMUPS; i < FLOOR_SAMPLES && !status; i++) {
        double elapsed;
        status = session->backend->plans->run(plan, &elapsed);
        if (!status && i >= 0) samples[i] = elapsed / FLOOR_LAUNCHES;
    }
    session->backend->plans->free(plan);
    if (status) return status;
    *ns = bw_median(samples, FLOOR_SAMPLES);
    return BW_OK;
}

bw_status bw_session_floor(bw_session *session, int timer, const bw_work *nothing, double *ns) {
    bool counts_calls = nothing && session->backend->runs_on_host;
    bw_plan_spec spec = {.work = counts_calls ? *nothing : session->backend->plans->empty(session->device),
                         .set_count = 1,
                         .launches = FLOOR_LAUNCHES,
                         .timer = timer};
    if (counts_calls) return time_empty(session, &spec, ns);
    if (isnan(session->floor_ns[timer])) BW_TRY(time_empty(session, &spec, &session->floor_ns[timer]));
    *ns = session->floor_ns[timer];
    return BW_OK;
}
