/* Checks the output of a launch, at the case's real size, against the rows of the reference. */
#pragma once

#include "measure/case/buffers.h"
#include "measure/case/reference.h"

typedef struct bw_verdict {
    bool verified;
    /* Of the element or row that came nearest to its limit, or passed it furthest: its error relative to its scale
     * (bw_tolerance; infinite for a NaN) and that limit. */
    double max_error, tolerance;
    int64_t rows_checked, rows_total;
    char reason[320]; /* "" or the worst element, or row, in words */
} bw_verdict;

/* Compares set `set` as it stands. */
bw_status bw_verify(const bw_reference *reference, const bw_buffers *buffers, int64_t set, bw_verdict *out);
