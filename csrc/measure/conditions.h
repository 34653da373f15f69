/* The conditions of a measurement: a backend's sensors, read between replays while it samples.
 *
 * Readings are at least 20 ms apart, and take less than a twentieth of the time. The first and the last one are always
 * taken. The power sensor gives a new value every 100 ms: its readings of the first 0.2 s do not count.
 *
 * The energy counter moves every 20 to 100 ms, and reading it takes milliseconds (2 to 30 on an H200, the other sensors
 * together take 20 us): it has a timetable of its own, which begins after 0.2 s. The energy of a launch is known only
 * when two moves of the counter, each seen within 0.1 s, are a second or more apart, with little but the timed launches
 * in between (no flushes): then the time that it is for is right within 10 %. */
#pragma once

#include "measure/session.h"

enum { BW_READINGS_MOST = 128 };

/* What is known in the end. NaN = not known. */
typedef struct bw_measured_conditions {
    int64_t readings;
    double reading_ns;                           /* the longest that one took, the energy counter's left out */
    double sm_clock_mhz, mem_clock_mhz, power_w; /* medians */
    double temperature_c;                        /* maximum */
    double energy_j;                             /* of one launch */
    unsigned throttle;                           /* every bit seen */
    char note[320];                              /* why nothing is known; "" otherwise */
} bw_measured_conditions;

/* Where the energy counter stood. */
typedef struct bw_energy_mark {
    double now_s, energy_j;
    int64_t launches; /* so far */
    double busy_ns;   /* and the time that they took */
} bw_energy_mark;

typedef struct bw_watch {
    bw_session *session;
    double begin_s, interval_s;
    double next_s, next_energy_s; /* when the next reading is due */
    bw_conditions samples[BW_READINGS_MOST];
    int64_t sample_count;
    bw_energy_mark first, last;  /* readings at which the counter had moved; energy_j is NaN where there was none */
    double counter_j, counter_s; /* at the last reading of the counter, and when that was */
    bool over;                   /* reading failed: no more of it */
    bw_measured_conditions found;
} bw_watch;

/* One reading that is discarded, before anything is timed: the first one may open a library, which takes long. */
void bw_watch_prepare(bw_session *session);

void bw_watch_begin(bw_watch *watch, bw_session *session, double now_s);

/* Reads when a reading is due, or `always`. `launches` and `busy_ns`: timed so far. Never fails: what is wrong is in
 * the note. */
void bw_watch_look(bw_watch *watch, double now_s, int64_t launches, double busy_ns, bool always);

void bw_watch_end(const bw_watch *watch, bw_measured_conditions *out);

/* "sw_power_cap;hw_thermal", "none", or "" where it is not known. */
void bw_throttle_words(unsigned throttle, char *out, size_t out_size);
