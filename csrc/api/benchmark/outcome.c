/* Measures one case and records its outcome. */
#include <math.h>

#include "api/benchmark/benchmark.h"
#include "base/clock.h"

bw_outcome bw_outcome_blank(const bw_planned_case *planned_case) {
    return (bw_outcome){.planned_case = planned_case,
                        .variant = planned_case->variant ? planned_case->variant : "",
                        .status = "planned",
                        .time_ms = NAN,
                        .gb_s = NAN};
}

void bw_outcome_precision(const bw_outcome *self, bool capitals, char *out, size_t out_size) {
    snprintf(out, out_size, "%s", self->planned_case->precision->name);
    for (char *at = out; capitals && *at; at++) *at = (char)(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
}

void bw_outcome_end(bw_outcome *self, const char *status, const char *reason) {
    self->status = status;
    snprintf(self->reason, sizeof self->reason, "%s", reason);
}

bw_status bw_outcome_measure(bw_session *session, double max_seconds, bw_outcome *row) {
    const bw_planned_case *planned_case = row->planned_case;
    bw_case *content = NULL;
    bw_current_device current = bw_current_device_save(session->backend);
    bw_measure_options options = BW_MEASURE_OPTIONS_DEFAULT;
    bw_status status = BW_OK;
    options.cache = planned_case->cache;
    options.max_seconds = max_seconds;
    BW_TRY(bw_cost_of(planned_case->op, NULL, &row->dims, planned_case->precision, NULL, &row->cost));
    row->has_cost = true;
    BW_GOTO(bw_case_create(session, planned_case->op_index, planned_case->precision, &row->dims, planned_case->variant,
                           0, &content));
    bw_case_set_label(content, planned_case->entry ? planned_case->entry->name : planned_case->op->name);
    row->variant = bw_case_choice(content)->variant->name;
    BW_GOTO(bw_session_enter(session));
    status = bw_measure(content, &options, &row->measurement);
    bw_session_leave(session);
    if (status) goto cleanup;
    const bw_choice *choice = bw_case_choice(content); /* a default may have been passed over */
    row->variant = choice->variant->name;
    row->cost = choice->cost;
    if (!row->measurement.verdict.verified) {
        bw_outcome_end(row, "failed", row->measurement.verdict.reason);
    } else {
        row->time_ms = row->measurement.statistics.median / 1e6;
        row->gb_s = bw_gb_s((double)row->cost.bytes_read + (double)row->cost.bytes_written, row->time_ms / 1e3);
        bw_outcome_end(row, "ok", choice->note);
    }
cleanup:
    bw_case_free(content);
    bw_current_device_restore(&current);
    return status;
}
