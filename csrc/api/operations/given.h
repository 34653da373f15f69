/* An operation as a caller of the library gives it: by names. */
#ifndef BW_API_GIVEN_H
#define BW_API_GIVEN_H

#include "api/api.h"

/* Parameters that are left out have their defaults. */
typedef struct bw_given {
    const char *operation, *precision;
    const char *const *names; /* of as many `values` */
    const int64_t *values;
    int count;
} bw_given;

typedef struct bw_asked {
    int op_index;
    const bw_op *op;
    const bw_precision *precision;
    bw_dims dims; /* complete, and checked */
} bw_asked;

/* ---- cost.c ---- */

bw_status bw_given_read(const bw_given *given, bw_asked *out);
/* NULL: not wanted. */
bwprof_status bw_given_cost(const bw_given *given, uint64_t *bytes_read, uint64_t *bytes_written, uint64_t *flops);

/* ---- reports/report.c ---- */

/* Measured on the first device there is, verified. */
bwprof_status bw_given_profile(const bw_given *given, bwprof_report *out);

#endif
