/* Measures an operation into a report, checks reports, and writes them as JSON. */
#include "api/reports/report.h"

#include <math.h>
#include <string.h>

#include "api/benchmark/benchmark.h"
#include "api/operations/arguments.h"

static void write_report(const bw_outcome *row, bwprof_report *out) {
    const char *precision = row->planned_case->precision->name;
    *out = (bwprof_report){.time_ms = row->time_ms,
                           .bandwidth_gb_s = row->gb_s,
                           .bytes_read = (uint64_t)row->cost.bytes_read,
                           .bytes_written = (uint64_t)row->cost.bytes_written};
    snprintf(out->operation, sizeof out->operation, "%s", row->planned_case->op->name);
    for (size_t i = 0; i + 1 < sizeof out->precision && precision[i]; i++) {
        out->precision[i] = bw_text_capital(precision[i]);
    }
}

static bw_status profile(const bw_params *params, bwprof_report *out) {
    const bw_measure_options usual = BW_MEASURE_OPTIONS_DEFAULT;
    bw_session *session = NULL;
    bw_request request;
    BW_TRY(bw_api_need(out, "out"));
    *out = (bwprof_report){.time_ms = NAN, .bandwidth_gb_s = NAN};
    BW_TRY(bw_params_read(params, &request));
    BW_TRY(bw_api_open(NULL, 0, &session));
    bw_planned_case planned_case = {.op_index = request.op_index, .op = request.op, .precision = request.precision};
    bw_outcome row = bw_outcome_blank(&planned_case);
    row.dims = request.dims;
    bw_status status = bw_outcome_measure(session, usual.max_seconds, &row);
    if (!status && !row.measurement.verdict.verified) {
        status = bw_fail(BW_CODE_DEVICE, "%s %s: %s", params->operation, params->precision, row.reason);
    }
    if (!status) write_report(&row, out);
    bw_measurement_free(&row.measurement);
    bw_api_close(session);
    return status;
}

bwprof_status bw_params_measure(const bw_params *params, bwprof_report *out) {
    return bw_api_answer(profile(params, out));
}

/* ---- as text ---- */

/* Texts fill their arrays where a caller has filled them to the end. */
static bw_status check_text(const char *text, size_t most, const char *name) {
    if (memchr(text, '\0', most) == NULL) {
        return bw_fail(BW_CODE_INVALID, "%s has no end: allowed are %d bytes and a 0", name, (int)most - 1);
    }
    return *text ? BW_OK : bw_fail(BW_CODE_INVALID, "%s is empty", name);
}

bw_status bw_report_check(const bwprof_report *self) {
    BW_TRY(bw_api_need(self, "report"));
    BW_TRY(check_text(self->operation, sizeof self->operation, "operation"));
    BW_TRY(check_text(self->precision, sizeof self->precision, "precision"));
    if (!(self->time_ms >= 1e-100 && self->time_ms <= 1e100)) {
        return bw_fail(BW_CODE_INVALID, "time_ms is %g: a time above 0 (1e-100 to 1e+100) is needed", self->time_ms);
    }
    if (!(self->bandwidth_gb_s >= 0.0 && self->bandwidth_gb_s <= 1e100)) {
        return bw_fail(BW_CODE_INVALID, "bandwidth_gb_s is %g: a number from 0 to 1e+100 is needed",
                       self->bandwidth_gb_s);
    }
    return BW_OK;
}

void bw_report_add(bw_text *to, const bwprof_report *self, const char *indent) {
    bw_text_add(to, "{\n%s  \"operation\": ", indent);
    bw_text_json(to, self->operation);
    bw_text_add(to, ",\n%s  \"precision\": ", indent);
    bw_text_json(to, self->precision);
    bw_text_add(to, ",\n%s  \"time_ms\": ", indent);
    bw_text_number(to, self->time_ms, -1, "null");
    bw_text_add(to, ",\n%s  \"bandwidth_gb_s\": ", indent);
    bw_text_number(to, self->bandwidth_gb_s, -1, "null");
    bw_text_add(to, ",\n%s  \"bytes_read\": %llu,\n%s  \"bytes_written\": %llu\n%s}", indent,
                (unsigned long long)self->bytes_read, indent, (unsigned long long)self->bytes_written, indent);
}
