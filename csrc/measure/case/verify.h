/* The verdict on a case's outputs. */
#pragma once

#include "measure/case/buffers.h"

typedef struct bw_verdict {
    bool verified;
    /* Of the element or row that came nearest to its limit, or passed it furthest: its error relative to its scale
     * (bw_tolerance; infinite for a NaN) and that limit. */
    double max_error, tolerance;
    int64_t rows_checked, rows_total;
    char reason[320]; /* "" or the worst element, or row, in words */
} bw_verdict;

/* Compares set `set` as it stands; more rows are worked out where the budget is larger than before. */
bw_status bw_case_verify_set(bw_case *self, int64_t set, const bw_budget *budget, bw_verdict *out);
