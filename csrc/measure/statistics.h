/* Statistics of the samples of one case. Samples are autocorrelated, since clocks, caches and other programs change
 * slowly. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct bw_statistics {
    int64_t count;
    double median, minimum;
    double low, high; /* 95 % confidence interval of the median; infinite below 6 samples, which cannot give one */
    double noise;     /* interquartile range / median */
    double halves;    /* |median of the first half - median of the second| / median; infinite below 2 samples */
    bool two_states;  /* the samples lie in two states, so that one median is not all that there is to say */
    double drift;     /* by which a sample is slower than the one before, / median; 0: they do not drift */
    int64_t block;    /* samples in each of the blocks that the interval comes from */
} bw_statistics;

/* Of samples in the order taken; count >= 1, scratch for bw_statistics_scratch(count) doubles.
 *
 * The interval comes from order statistics of the medians of blocks. Blocks grow while the medians of neighbors still
 * resemble each other, as far as ten blocks are left; for the resemblance that remains, or that so few blocks cannot
 * rule out, the interval is widened. If the samples lie in two states, of which either may have the median, it
 * holds both; if they drift, all that they drift through. */
bw_statistics bw_statistics_of(const double *samples, int64_t count, double *scratch);
static inline int64_t bw_statistics_scratch(int64_t count) {
    return 2 * count;
}

/* The interval is within `target` of the median, and the two halves of the samples are no further apart than that. */
bool bw_statistics_converged(const bw_statistics *statistics, double target);

/* Ranks (0-based) whose order statistics bracket the median with at least 95 % confidence, whatever the distribution:
 * sum over low < i <= high of C(n, i) / 2^n >= 0.95. False when n < 6. */
bool bw_median_ranks(int64_t count, int64_t *low, int64_t *high);
