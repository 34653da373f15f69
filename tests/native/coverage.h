/* How often the interval of a whole measurement holds the median, for samples whose median is known. */
#ifndef TESTS_NATIVE_COVERAGE_H
#define TESTS_NATIVE_COVERAGE_H

#include "fake.h"

typedef enum coverage_model {
    COVERAGE_STEADY,  /* normal */
    COVERAGE_BIMODAL, /* 7 of 10 launches fast, the others 4 times the noise slower; each with a quarter of the noise */
    COVERAGE_DRIFTING /* normal about a line that climbs by 4 times the noise until the time limit */
} coverage_model;

typedef struct coverage_of {
    coverage_model model;
    double correlation; /* of samples that follow each other */
    double noise;       /* relative */
    double launch_ms, max_seconds;
    int trials;
    uint64_t seed;
} coverage_of;

typedef struct coverage_found {
    int covered, converged, covered_converged; /* of the trials */
    double samples;                            /* of a trial, mean */
    double seconds;                            /* of the toy clock, from the first sample to the last, mean */
} coverage_found;

extern const char *const coverage_names[]; /* by model; NULL-terminated */

/* False when a measurement failed. */
bool coverage_run(const coverage_of *request, coverage_found *out);

#endif
