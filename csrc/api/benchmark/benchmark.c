/* Runs the cases of a suite one after the other. The result file appears when all have run. */
#include "api/benchmark/benchmark.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

typedef struct run {
    bw_session *session;
    const bw_suite *suite;
    int case_count;
    bwprof_progress progress;
    void *user;
    bool classic;
    bw_text text;
    int failed;
    char first_failure[700];
} run;

/* What cannot run here is skipped; all else that goes wrong has failed. A device that is lost ends the run. */
static bw_status settle_case(run *self, double max_seconds, bw_outcome *row) {
    bw_status status = bw_planned_case_dims(row->planned_case, &row->dims);
    row->has_dims = !status;
    if (!status) status = bw_outcome_measure(self->session, max_seconds, row);
    bw_code code = bw_status_code(status);
    bool skipped = code == BW_CODE_UNSUPPORTED || code == BW_CODE_MEMORY;
    if (status) bw_outcome_end(row, skipped ? "skipped" : "failed", bw_status_message(status));
    bw_measurement_free(&row->measurement);
    if (code == BW_CODE_DEVICE_LOST) return status;
    bw_status_free(status);
    if (strcmp(row->status, "failed") != 0) return BW_OK;
    if (self->failed++ == 0) {
        snprintf(self->first_failure, sizeof self->first_failure, "%s %s: %s", row->planned_case->entry->name,
                 row->planned_case->precision->name, row->reason);
    }
    return BW_OK;
}

static bw_status show(const run *self, int index, const bw_outcome *row) {
    if (!self->progress) return BW_OK;
    const bw_planned_case *planned_case = row->planned_case;
    bwprof_case now = {.index = index,
                       .count = self->case_count,
                       .name = planned_case->entry->name,
                       .operation = planned_case->op->name,
                       .precision = planned_case->precision->name,
                       .variant = row->variant,
                       .cache = planned_case->cache == BW_CACHE_HOT ? "hot" : "cold",
                       .status = row->status,
                       .reason = row->reason,
                       .time_ms = row->time_ms,
                       .bandwidth_gb_s = row->gb_s,
                       .bytes_read = (uint64_t)row->cost.bytes_read,
                       .bytes_written = (uint64_t)row->cost.bytes_written};
    if (self->progress(self->user, &now) == 0) return BW_OK;
    return bw_fail(BW_CODE_INTERRUPTED, "the progress callback stopped the run after %d of %d cases", index + 1,
                   self->case_count);
}

/* The file is looked at before anything is measured, and written after it; a classic one holds no failures. */
static bw_status benchmark(run *self, const char *backend, const char *suite, const char *path) {
    const bw_measure_options usual = BW_MEASURE_OPTIONS_DEFAULT;
    bw_planned_case one = {.entry = NULL};
    bw_status status = BW_OK, failed = BW_OK;
    BW_TRY(bw_file_check(path));
    BW_TRY(bw_api_open(backend, 0, &self->session));
    BW_GOTO(bw_suite_find(suite, self->session->backend, &self->suite, &self->case_count));
    double end = bw_now_s() + (self->suite->target_seconds > 0 ? self->suite->target_seconds : INFINITY);
    for (int i = 0; i < self->case_count; i++) {
        BW_GOTO(bw_planned_case_next(self->suite, &one));
        bw_outcome row = bw_outcome_blank(&one);
        if (i == 0) bw_rows_add(&self->text, BW_HEADER, self->session, &row, self->classic);
        double seconds = bw_case_seconds(end - bw_now_s(), self->case_count - i, usual.max_seconds);
        BW_GOTO(settle_case(self, seconds, &row));
        if (!self->classic || !isnan(row.time_ms)) {
            bw_rows_add(&self->text, BW_CSV, self->session, &row, self->classic);
        }
        BW_GOTO(show(self, i, &row));
    }
    if (self->failed) {
        failed =
            bw_fail(BW_CODE_DEVICE, "%d of %d cases failed: %s", self->failed, self->case_count, self->first_failure);
    }
    if (!failed || !self->classic) status = bw_file_write(path, &self->text);
    status = bw_status_first(status, failed);
cleanup:
    bw_text_free(&self->text);
    bw_api_close(self->session);
    return status;
}

bwprof_status bwprof_benchmark(const char *backend, const char *suite, const char *output_csv, bwprof_progress progress,
                               void *user) {
    run self = {.progress = progress, .user = user};
    return bw_api_answer(benchmark(&self, backend, suite, output_csv));
}

static bw_status list_cases(run *self, const char *backend, const char *suite) {
    const bw_backend *found = NULL;
    bw_planned_case one = {.entry = NULL};
    BW_TRY(bw_api_backend(backend, &found));
    BW_TRY(bw_suite_find(suite, found, &self->suite, &self->case_count));
    for (int i = 0; i < self->case_count; i++) {
        BW_TRY(bw_planned_case_next(self->suite, &one));
        bw_outcome row = bw_outcome_blank(&one);
        BW_TRY(bw_planned_case_dims(&one, &row.dims));
        BW_TRY(bw_cost_of(one.op, NULL, &row.dims, one.precision, NULL, &row.cost));
        BW_TRY(show(self, i, &row));
    }
    return BW_OK;
}

bwprof_status bwprof_benchmark_cases(const char *backend, const char *suite, bwprof_progress each, void *user) {
    run self = {.progress = each, .user = user};
    if (!each) return bw_api_answer(bw_fail(BW_CODE_INVALID, "each is NULL"));
    return bw_api_answer(list_cases(&self, backend, suite));
}

int cuda_benchmark_bandwidth(const char *output_csv) {
    run self = {.classic = true};
    if (bw_api_answer(benchmark(&self, "cuda", NULL, output_csv)) == BWPROF_OK) return 0;
    fprintf(stderr, "cuda_benchmark_bandwidth: %s\n", bwprof_last_error());
    return -1;
}
