/* Sorting and quantiles, for statistics and timers. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ascending, in place. No NaN. */
void bw_sort(double *samples, int64_t count);

/* Of sorted samples, count >= 1: linear interpolation between the closest ranks. */
double bw_quantile(const double *sorted, int64_t count, double fraction);

/* Sorts the samples; NaN when there are none. */
double bw_median(double *samples, int64_t count);

#ifdef __cplusplus
}
#endif
