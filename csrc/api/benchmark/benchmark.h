/* The cases of a suite on a device, in the order in which they run, and their outcomes. */
#pragma once

#include "api/api.h"
#include "measure/measure.h"

/* ---- operations.c ---- */
typedef struct bw_params {
    const char *operation, *precision;
    const char *const *names; /* of as many `values` */
    const int64_t *values;
    int count;
} bw_params;

/* Adds the parameters to *dims, which may have a list, completes it, and checks it. */
bw_status bw_dims_read(const bw_op *op, const bw_precision *precision, const bw_params *params, bw_dims *dims);

/* ---- suites: setup.py writes `suite_table.h`, an array bw_suites, out of bwprof/data/suites ---- */
/* One combination of an entry's parameters, caches and variants. */
typedef struct bw_suite_case {
    const char *name;
    bw_params params;       /* without a precision */
    const int64_t *lengths; /* kv_lens; NULL: none */
    int64_t length_count;
    unsigned precisions; /* BW_MASK(...) */
    bool own_precisions; /* all of them are run; else those of the suite's that the operation has */
    bw_cache cache;
    const char *variant; /* NULL: the device's choice */
    bool several_variants;
} bw_suite_case;

typedef struct bw_suite {
    const char *name, *backend;
    double target_seconds; /* of all cases together; 0: no aim */
    const bw_suite_case *cases;
    int case_count;
} bw_suite;

/* ---- plan.c ---- */
typedef struct bw_planned_case {
    const bw_suite_case *entry;
    int op_index;
    const bw_op *op;
    const bw_precision *precision;
    const char *variant; /* NULL: the device's choice */
    bw_cache cache;
} bw_planned_case;

/* *count: of its cases. `name` NULL: the default suite. */
bw_status bw_suite_find(const char *name, const bw_backend *backend, const bw_suite **out, int *count);
/* Moves to the next case. The entry is NULL before the first case and after the last. */
bw_status bw_planned_case_next(const bw_suite *suite, bw_planned_case *planned_case);
bw_status bw_planned_case_dims(const bw_planned_case *planned_case, bw_dims *out); /* its list is the entry's */

/* ---- outcome.c ---- */
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
void bw_outcome_precision(const bw_outcome *outcome, bool capitals, char *out, size_t out_size); /* its name */
void bw_outcome_end(bw_outcome *outcome, const char *status, const char *reason);
/* `outcome`: blank, with dims; the caller frees its measurement. A wrong result is no error, but "failed". */
bw_status bw_outcome_measure(bw_session *session, double max_seconds, bw_outcome *outcome);

/* ---- rows.c ---- */
void bw_rows_add(bw_text *to, bw_form form, const bw_session *session, const bw_outcome *outcome, bool classic);
