/* The clocks of the host, and bandwidth from bytes and seconds. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t bw_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline double bw_now_s(void) {
    return 1e-9 * (double)bw_now_ns();
}

/* A GB is 10^9 bytes. */
static inline double bw_gb_s(double bytes, double seconds) {
    return bytes / seconds * 1e-9;
}

/* Seconds of processor time that the calling thread has used. */
static inline double bw_thread_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
