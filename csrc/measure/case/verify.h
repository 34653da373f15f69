/* Correctness of a case at its real size: a sample of output rows against the descriptor's float64 reference. */
#ifndef BW_MEASURE_VERIFY_H
#define BW_MEASURE_VERIFY_H

#include "measure/case.h"

typedef struct bw_verdict {
    bool verified;
    /* Of the element or row that came nearest to its limit, or passed it furthest: its error relative to its scale
     * (bw_tolerance; infinite for a NaN) and that limit. */
    double max_error, tolerance;
    int64_t rows_checked, rows_total;
    char reason[320]; /* "" or the worst element, or row, in words */
} bw_verdict;

typedef struct bw_verify_options {
    double budget_s; /* of processor time, shared by the processors there are */
    /* true = stop (Ctrl-C): BW_CODE_INTERRUPTED; called on the caller's thread between reference rows; NULL = never */
    bool (*poll)(void *context);
    void *poll_context;
} bw_verify_options;

/* Compares set `set` as it stands. The sample (corners, then seeded random rows until the budget is spent; every row
 * where that is enough) is kept: a later call with a larger budget adds rows to it, none takes any away. */
bw_status bw_verify_set(bw_case *self, int64_t set, const bw_verify_options *options, bw_verdict *out);

/* Generated inputs, poisoned outputs, one launch on set 0, then bw_verify_set. */
bw_status bw_verify_case(bw_case *self, const bw_verify_options *options, bw_verdict *out);

#endif
