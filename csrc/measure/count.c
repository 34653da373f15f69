/* Counting a case, or a function of the caller's, in hardware: beside the timing, on launches of its own. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "measure/measure.h"

static bool can_count(const bw_session *session, bw_counters *out) {
    const bw_backend *backend = session->backend;
    *out = (bw_counters){.dram_bytes_read = NAN, .dram_bytes_written = NAN, .l2_bytes = NAN};
    if (backend->counters) return true;
    snprintf(out->status, sizeof out->status, "the %s backend has no hardware counters", backend->name);
    return false;
}

static bw_status count_case(bw_case *self, bool rotated, bw_counters *out) {
    bw_rotation rotation = {.sets = 1, .flush_bytes = 1};
    if (rotated) {
        BW_TRY(bw_case_ready_for(self, BW_CACHE_COLD, &rotation));
    } else {
        BW_TRY(bw_case_ready_any(self));
    }
    BW_TRY(bw_buffers_reset(&self->buffers, 0));
    bw_plan_spec spec = {.work = bw_buffers_work(&self->buffers),
                         .set_count = rotation.sets,
                         .launches = rotation.sets,
                         .flush_bytes = rotation.flush_bytes};
    return self->session->backend->counters->count(self->session->device, &spec, out);
}

bw_status bw_count(bw_case *self, bool rotated, bw_counters *out) {
    if (!can_count(self->session, out)) return BW_OK;
    bw_case_push(self, "counters");
    bw_status status = count_case(self, rotated, out);
    bw_case_pop(self);
    return status;
}

bw_status bw_count_call(const bw_call *self, bw_counters *out) {
    bw_plan_spec spec = {.work = *self->work, .set_count = 1, .launches = 1, .flush_bytes = 1};
    if (!can_count(self->session, out)) return BW_OK;
    return self->session->backend->counters->count(self->session->device, &spec, out);
}

bw_status bw_metric_group_find(const bw_session *session, const char *name, unsigned *out) {
    const bw_counter_calls *counters = session->backend->counters;
    char allowed[256];
    int group = bw_name_find(name, bw_name_of_text, counters ? counters->groups : NULL, allowed, sizeof allowed);
    *out = group < 0 ? 0 : 1u << group;
    if (group >= 0) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "metrics = '%.200s': allowed on %s is %s", name, session->backend->name,
                   allowed[0] ? allowed : "none");
}

static bool has_metrics(const bw_session *session, bw_metrics *out) {
    const bw_backend *backend = session->backend;
    memset(out, 0, sizeof *out);
    if (backend->counters) return true;
    snprintf(out->status, sizeof out->status, "the %s backend has no hardware counters", backend->name);
    return false;
}

static bw_status count_case_metrics(bw_case *self, unsigned groups, bw_metrics *out) {
    const bw_session *session = self->session;
    BW_TRY(bw_case_ready_any(self));
    BW_TRY(bw_buffers_reset(&self->buffers, 0));
    bw_plan_spec spec = {.work = bw_buffers_work(&self->buffers), .set_count = 1, .launches = 1, .flush_bytes = 1};
    return session->backend->counters->metrics(session->device, &spec, groups, out);
}

bw_status bw_count_metrics(bw_case *self, unsigned groups, bw_metrics *out) {
    if (!has_metrics(self->session, out)) return BW_OK;
    bw_case_push(self, "counters");
    bw_status status = count_case_metrics(self, groups, out);
    bw_case_pop(self);
    return status;
}

bw_status bw_count_call_metrics(const bw_call *self, unsigned groups, bw_metrics *out) {
    bw_plan_spec spec = {.work = *self->work, .set_count = 1, .launches = 1, .flush_bytes = 1};
    if (!has_metrics(self->session, out)) return BW_OK;
    return self->session->backend->counters->metrics(self->session->device, &spec, groups, out);
}
