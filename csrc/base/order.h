/* Sorting and quantiles, for statistics and timers. */
#pragma once

#include <stdint.h>

#include "base/status.h"

/* Ascending, in place. No NaN. */
BW_C void bw_sort(double *samples, int64_t count);

/* Of sorted samples, count >= 1: linear interpolation between the closest ranks. */
BW_C double bw_quantile(const double *sorted, int64_t count, double fraction);

/* Sorts the samples; NaN when there are none. */
BW_C double bw_median(double *samples, int64_t count);
