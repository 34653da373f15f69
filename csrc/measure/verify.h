/* Correctness of a case at its real size: a sample of output rows against the descriptor's float64 reference. */
#ifndef BW_MEASURE_VERIFY_H
#define BW_MEASURE_VERIFY_H

#include "measure/case.h"

typedef struct bw_verdict {
    bool verified;
    double max_error, tolerance; /* max_error: largest |o - r| / max(|r|, scale); infinite for a NaN */
    int64_t rows_checked, rows_total;
    char reason[320]; /* "" or the worst element in words */
} bw_verdict;

/* Compares set `set` as it stands. The sample (corners, then seeded random rows until `budget_s` of processor
 * time, shared by the processors there are, is spent; every row where that is enough) is worked out at the first call
 * and kept. */
bw_status bw_verify_set(bw_case *self, int64_t set, double budget_s, bw_verdict *out);

/* Generated inputs, poisoned outputs, one launch on set 0, then bw_verify_set. */
bw_status bw_verify_case(bw_case *self, double budget_s, bw_verdict *out);

#endif
