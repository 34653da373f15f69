#ifndef BW_BASE_CLOCK_H
#define BW_BASE_CLOCK_H

#include <time.h>

/* Seconds on the monotonic clock. */
static inline double bw_now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds of processor time that the calling thread has used. */
static inline double bw_thread_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
