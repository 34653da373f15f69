/* Patterns of samples that a single median hides: two states, or drift. */
#ifndef BW_MEASURE_PATTERNS_H
#define BW_MEASURE_PATTERNS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bw_states {
    bool two;
    double low, high; /* between which the median lies, as far as the states' shares of the time are known: both states,
                       * where either may have it */
} bw_states;

/* `sorted` holds the samples in ascending order. Two states are a gap that is wide beside the spread on each of its
 * sides, and wider than a clock's ticks. */
bw_states bw_states_of(const double *samples, const double *sorted, int64_t count);

typedef struct bw_drift {
    double slope;     /* per sample; 0: the samples do not drift */
    double low, high; /* the ends of what they drift through */
} bw_drift;

/* Scratch for `count` doubles. A drift is a climb, or a fall, of the lower quartiles of blocks, nearly all in order. */
bw_drift bw_drift_of(const double *samples, int64_t count, double *scratch);

#endif
