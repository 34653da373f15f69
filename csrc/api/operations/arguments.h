/* An operation's parameters by name, as a caller of the library passes them. */
#ifndef BW_API_ARGUMENTS_H
#define BW_API_ARGUMENTS_H

#include "api/api.h"

/* Parameters that are left out have their defaults. */
typedef struct bw_params {
    const char *operation, *precision;
    const char *const *names; /* of as many `values` */
    const int64_t *values;
    int count;
} bw_params;

/* NULL: not wanted. */
bwprof_status bw_params_compute_cost(const bw_params *params, uint64_t *bytes_read, uint64_t *bytes_written,
                                     uint64_t *flops);

/* Measured on the first device there is, verified. */
bwprof_status bw_params_measure(const bw_params *params, bwprof_report *out);

#endif
