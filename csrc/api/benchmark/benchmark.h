/* The cases of a suite on a device, in the order in which they run, and their outcomes. */
#ifndef BW_API_BENCHMARK_H
#define BW_API_BENCHMARK_H

#include "api/api.h"
#include "measure/measure.h"

/* ---- suites: setup.py writes `suite_table.h`, an array bw_suites, out of bwprof/data/suites. Lists end with NULL; a
 * NULL list says nothing. ---- */

/* One combination of an entry's parameters. */
typedef struct bw_suite_case {
    const char *name, *operation;
    const char *const *params; /* names, of as many `values` */
    const int64_t *values;
    const int64_t *lengths; /* kv_lens; NULL: none */
    int64_t length_count;
    const char *const *precisions, *const *variants, *const *backends, *const *caches;
} bw_suite_case;

/* What is otherwise on a backend. */
typedef struct bw_suite_on {
    const char *backend;
    const char *const *precisions; /* NULL: the suite's */
    double target_seconds;         /* 0: the suite's */
} bw_suite_on;

typedef struct bw_suite {
    const char *name;
    const char *const *precisions;
    double target_seconds; /* of all cases together; 0: no aim */
    const bw_suite_on *on; /* ended by one without a backend */
    const bw_suite_case *cases;
    int case_count;
} bw_suite;

/* ---- plan.c ---- */

/* One case to measure, as bwprof.sweep plans it. */
typedef struct bw_planned_case {
    const bw_suite_case *entry;
    int op_index;
    const bw_op *op;
    const bw_precision *precision;
    const char *variant; /* NULL: the device's choice */
    bw_cache cache;
} bw_planned_case;

typedef struct bw_run_plan {
    bw_planned_case *cases;
    int count, capacity;
    double target_seconds; /* INFINITY: no aim */
} bw_run_plan;

/* `suite` NULL: the default one. */
bw_status bw_run_plan_make(const char *suite, const bw_backend *backend, bw_run_plan *out);
void bw_run_plan_free(bw_run_plan *plan);
/* Complete, and checked; the list is the entry's. */
bw_status bw_planned_case_dims(const bw_planned_case *planned_case, bw_dims *out);

/* ---- outcome.c ---- */

/* What became of a case. */
typedef struct bw_outcome {
    const bw_planned_case *planned_case;
    bw_dims dims;
    bool has_dims, has_cost;
    bw_cost cost;
    const char *variant, *status; /* "ok", "skipped", "failed" */
    char reason[512];
    double time_ms, gb_s;       /* NaN where there is none */
    bw_measurement measurement; /* without its samples */
} bw_outcome;

bw_outcome bw_outcome_blank(const bw_planned_case *planned_case);
void bw_outcome_end(bw_outcome *outcome, const char *status, const char *reason);
/* Of a blank one with complete dims; `measured` is the caller's to free. A wrong result is no error: its status is then
 * "failed". */
bw_status bw_outcome_measure(bw_session *session, double max_seconds, bw_outcome *outcome);

/* ---- rows.c ---- */

void bw_rows_header(bw_text *to, bool classic);
void bw_rows_add(bw_text *to, const bw_session *session, const bw_outcome *outcome, bool classic);

#endif
