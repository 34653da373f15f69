#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "measure/session.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "measure/statistics.h"

enum { FLOOR_LAUNCHES = 1000, FLOOR_SAMPLES = 15, FLOOR_WARMUPS = 3 };

bw_status bw_session_open(const bw_backend *backend, int index, bw_session **out) {
    char reason[256] = "";
    int count = 0;
    BW_TRY(backend->device_count(&count, reason, sizeof reason));
    if (count == 0) return bw_fail(BW_CODE_UNAVAILABLE, "no %s device: %s", backend->name, reason);
    if (index < 0 || index >= count) {
        return bw_fail(BW_CODE_INVALID, "%s device %d: allowed is 0 to %d", backend->name, index, count - 1);
    }
    bw_session *session = calloc(1, sizeof *session);
    if (!session) return bw_fail(BW_CODE_MEMORY, "no host memory for a device session");
    session->backend = backend;
    session->floor_ns = NAN;
    session->process = getpid();
    atomic_init(&session->user, 0);
    bw_status status = backend->device_open(index, &session->device);
    if (status) {
        free(session);
        return status;
    }
    *out = session;
    return BW_OK;
}

void bw_session_close(bw_session *session) {
    if (!session || bw_session_is_foreign(session)) return;
    session->backend->device_close(session->device);
    free(session);
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
    return bw_fail(BW_CODE_BUSY,
                   "this %s device handle is measuring in another thread: wait for it, or open a second "
                   "handle (two measurements at once disturb each other)",
                   session->backend->name);
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

bw_status bw_session_floor(bw_session *session, double *ns) {
    if (isnan(session->floor_ns)) {
        bw_launch empty = {.device = session->device};
        bw_plan_spec spec = {.sets = &empty, .set_count = 1, .launches = FLOOR_LAUNCHES};
        bw_plan *plan = NULL;
        double samples[FLOOR_SAMPLES];
        BW_TRY(session->backend->plan_create(session->device, &spec, &plan));
        bw_status status = BW_OK;
        for (int i = -FLOOR_WARMUPS; i < FLOOR_SAMPLES && !status; i++) {
            double elapsed;
            status = session->backend->plan_run(plan, &elapsed);
            if (!status && i >= 0) samples[i] = elapsed / FLOOR_LAUNCHES;
        }
        session->backend->plan_free(plan);
        if (status) return status;
        session->floor_ns = bw_statistics_of(samples, FLOOR_SAMPLES).median;
    }
    *ns = session->floor_ns;
    return BW_OK;
}
