#include "measure/statistics.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool bw_median_ranks(int64_t count, int64_t *low, int64_t *high) {
    /* The number of samples below the median is binomial(n, 1/2). Dropping k samples at each end leaves the interval
     * [k, n - 1 - k], which misses with probability 2 P(X <= k). Take the largest k that keeps this below 5 %. */
    double log_probability = -(double)count * log(2.0); /* of X = 0 */
    double below = 0.0;
    int64_t k = -1;
    for (int64_t i = 0; i < count / 2; i++) {
        below += exp(log_probability);
        if (2.0 * below > 0.05) break;
        k = i;
        log_probability += log((double)(count - i)) - log((double)(i + 1));
    }
    if (k < 0) return false;
    *low = k;
    *high = count - 1 - k;
    return true;
}

/* Linear interpolation between the closest ranks. */
static double quantile(const double *sorted, int64_t count, double fraction) {
    double position = fraction * (double)(count - 1);
    int64_t below = (int64_t)position;
    int64_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (position - (double)below) * (sorted[above] - sorted[below]);
}

bw_statistics bw_statistics_of(double *samples, int64_t count) {
    qsort(samples, (size_t)count, sizeof *samples, compare);
    bw_statistics result = {.count = count,
                            .median = quantile(samples, count, 0.5),
                            .minimum = samples[0],
                            .low = -INFINITY,
                            .high = INFINITY};
    int64_t low, high;
    if (bw_median_ranks(count, &low, &high)) {
        result.low = samples[low];
        result.high = samples[high];
    }
    result.noise = (quantile(samples, count, 0.75) - quantile(samples, count, 0.25)) / result.median;
    return result;
}
