#include "measure/statistics.h"

#include <math.h>

#include "base/order.h"

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

bw_statistics bw_statistics_of(double *samples, int64_t count) {
    bw_sort(samples, count);
    bw_statistics result = {.count = count,
                            .median = bw_quantile(samples, count, 0.5),
                            .minimum = samples[0],
                            .low = -INFINITY,
                            .high = INFINITY};
    int64_t low, high;
    if (bw_median_ranks(count, &low, &high)) {
        result.low = samples[low];
        result.high = samples[high];
    }
    result.noise = (bw_quantile(samples, count, 0.75) - bw_quantile(samples, count, 0.25)) / result.median;
    return result;
}
