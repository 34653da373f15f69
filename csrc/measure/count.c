/* Counts bytes and metrics of a case or a function by hardware counter, on launches that are not timed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "measure/measure.h"

static bool has_counters(const bw_session *session, char *why, size_t size) {
    if (session->backend->counters) return true;
    snprintf(why, size, "the %s backend has no hardware counters", session->backend->name);
    return false;
}

static bw_plan_spec one_launch(const bw_work *work) {
    return (bw_plan_spec){.work = *work, .set_count = 1, .launches = 1, .flush_bytes = 1};
}

/* One launch of a case after a flush, or a whole rotation of them. */
static bw_status make_ready(bw_case *self, bool rotated, bw_plan_spec *spec) {
    bw_rotation rotation = {.sets = 1, .flush_bytes = 1};
    BW_TRY(rotated ? bw_case_ready_for(self, BW_CACHE_COLD, &rotation) : bw_case_ready_any(self));
    BW_TRY(bw_case_reset(self, 0));
    *spec = (bw_plan_spec){.work = bw_case_work(self),
                           .set_count = rotation.sets,
                           .launches = rotation.sets,
                           .flush_bytes = rotation.flush_bytes};
    return BW_OK;
}

static bool begin_counters(const bw_session *session, bw_counters *out) {
    *out = (bw_counters){.dram_bytes_read = NAN, .dram_bytes_written = NAN, .l2_bytes = NAN};
    return has_counters(session, out->status, sizeof out->status);
}

static bool begin_metrics(const bw_session *session, bw_metrics *out) {
    memset(out, 0, sizeof *out);
    return has_counters(session, out->status, sizeof out->status);
}

bw_status bw_count(bw_case *self, bool rotated, bw_counters *out) {
    bw_plan_spec spec;
    if (!begin_counters(self->session, out)) return BW_OK;
    bw_case_push(self, "counters");
    bw_status status = make_ready(self, rotated, &spec);
    if (!status) status = self->session->backend->counters->count(self->session->device, &spec, out);
    bw_case_pop(self);
    return status;
}

bw_status bw_count_metrics(bw_case *self, unsigned groups, bw_metrics *out) {
    bw_plan_spec spec;
    if (!begin_metrics(self->session, out)) return BW_OK;
    bw_case_push(self, "counters");
    bw_status status = make_ready(self, false, &spec);
    if (!status) status = self->session->backend->counters->metrics(self->session->device, &spec, groups, out);
    bw_case_pop(self);
    return status;
}

bw_status bw_count_call(const bw_call *self, bw_counters *out) {
    const bw_plan_spec spec = one_launch(self->work);
    if (!begin_counters(self->session, out)) return BW_OK;
    return self->session->backend->counters->count(self->session->device, &spec, out);
}

bw_status bw_count_call_metrics(const bw_call *self, unsigned groups, bw_metrics *out) {
    const bw_plan_spec spec = one_launch(self->work);
    if (!begin_metrics(self->session, out)) return BW_OK;
    return self->session->backend->counters->metrics(self->session->device, &spec, groups, out);
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
