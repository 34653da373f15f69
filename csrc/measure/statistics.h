/* Statistics of one case's samples. */
#ifndef BW_MEASURE_STATISTICS_H
#define BW_MEASURE_STATISTICS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bw_statistics {
    int64_t count;
    double median, minimum;
    double low, high; /* 95 % confidence interval of the median; infinite below 6 samples, which cannot give one */
    double noise;     /* interquartile range / median */
} bw_statistics;

/* Sorts `samples` in place; count >= 1. */
bw_statistics bw_statistics_of(double *samples, int64_t count);

/* Ranks (0-based) whose order statistics bracket the median with at least 95 % confidence, whatever the distribution:
 * sum over low < i <= high of C(n, i) / 2^n >= 0.95. False when n < 6. */
bool bw_median_ranks(int64_t count, int64_t *low, int64_t *high);

#endif
