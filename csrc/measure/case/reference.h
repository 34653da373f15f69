/* The reference of a case: a sample of its output rows in float64, computed on the host within a budget. */
#pragma once

#include "ops/op.h"

typedef struct bw_budget {
    double seconds; /* of processor time, shared by the processors there are */
    /* true = stop (Ctrl-C): BW_CODE_INTERRUPTED; called on the caller's thread between reference rows; NULL = never */
    bool (*poll)(void *context);
    void *poll_context;
} bw_budget;

/* Begins with its spec alone. */
typedef struct bw_reference {
    const bw_case_spec *spec;
    int64_t count, total; /* rows worked out, rows there are */
    int64_t most, corners;
    int64_t *order; /* of these `most` rows the first `count` are worked out */
    bw_reference_row *rows;
    double *values; /* what the rows' values point into */
    double spent_s; /* the budgets so far */
} bw_reference;

/* The sample (corners, then seeded random rows until the budget is spent; every row where that is enough) is kept: a
 * later call with a larger budget adds rows to it, none takes any away. What was worked out when an interruption came
 * stays as well; any other failure empties it. */
bw_status bw_reference_extend(bw_reference *self, const bw_budget *budget);
void bw_reference_free(bw_reference *self); /* its rows */
