/* Sorting, quantiles and the median of samples. */
#include "base/order.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void bw_sort(double *samples, int64_t count) {
    qsort(samples, (size_t)count, sizeof *samples, compare);
}

double bw_quantile(const double *sorted, int64_t count, double fraction) {
    double position = fraction * (double)(count - 1);
    int64_t below = (int64_t)position;
    int64_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (position - (double)below) * (sorted[above] - sorted[below]);
}

double bw_median(double *samples, int64_t count) {
    if (count < 1) return NAN;
    bw_sort(samples, count);
    return bw_quantile(samples, count, 0.5);
}
