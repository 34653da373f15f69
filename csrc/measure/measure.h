/* Measures a case, or a caller's function. */
#pragma once

#include "measure/case/case.h"
#include "measure/conditions.h"
#include "measure/statistics.h"

enum {
    BW_SAMPLES_MOST = 1 << 20, /* more are not taken, however much time there is: a quarter of an hour at 1 ms */
    BW_CALL_SETS_MAX = 8192,
    BW_REFERENCES_MOST = 64 /* reference streams whose times are stored */
};

typedef struct bw_measure_options {
    bw_cache cache;
    bw_flush flush; /* where the cache is flushed at all */
    int timer;      /* the backend's index, see bw_timer_find */
    bool trace;     /* take kernel timestamps beside the timer's */
    bool settled;   /* the same was measured a moment ago: one replay warms it up, and its floor is not measured */
    double precision_target; /* half width of the median's confidence interval, as a fraction of it */
    int64_t min_samples;
    double max_seconds; /* of sampling; at least min_samples are taken even so */
    double verify_budget_s;
    bool (*poll)(void *context); /* true = stop (Ctrl-C); called between replays and reference rows; NULL = never */
    void *poll_context;
} bw_measure_options;

#define BW_MEASURE_OPTIONS_DEFAULT \
    { .cache = BW_CACHE_COLD, .precision_target = 0.005, .min_samples = 10, .max_seconds = 2.0, .verify_budget_s = 0.1 }

/* BW_CODE_INVALID, with what is allowed, for a number out of range. */
bw_status bw_measure_options_check(const bw_measure_options *options);

/* Seconds of sampling for the next case of a run, at `most`, so that all that are left fit into what is left. */
double bw_case_seconds(double seconds_left, int64_t cases_left, double most);

/* The summary of all reference streams. NaN = not known. */
typedef struct bw_references {
    double upper_ns; /* their upper quartile */
    double best_ns;  /* the lowest median that the session has seen, theirs among them */
    double slowed; /* by how much the upper quartile is above the lower one, or above the best, whichever is lower, as a
                    * share of that */
} bw_references;

typedef struct bw_measurement {
    double *samples_ns; /* per launch, in the order taken; owned */
    bw_statistics statistics;
    bool converged;
    bw_rotation rotation;
    int64_t launches_per_sample;
    int64_t late_samples; /* which hold some of the host's time */
    double warmup_ns, timer_floor_ns, host_launch_ns;
    double transform_ns;               /* of the variant's `transform`; NaN where it has none */
    bw_measured_conditions conditions; /* while the samples were taken; none without samples */
    bw_kernel_times kernels;           /* per launch, medians over the samples; NaN where not taken */
    bw_disturbance disturbance;        /* while the samples were taken */
    bw_references references;          /* from which `disturbance.slowed` follows */
    bw_verdict verdict;                /* of the check that failed, else of the last one */
} bw_measurement;

/* A function of the caller's, to be measured like a case. Nobody here knows its buffers, so they are neither checked
 * nor rotated, unless it knows `sets` of them: set i is then its i-th. */
typedef struct bw_call {
    bw_session *session;
    const bw_work *work, *nothing; /* `nothing` does nothing: its time is the floor where calls are the work */
    int64_t sets;                  /* 1: it knows none */
    int64_t footprint_bytes;       /* that one call touches; 0 = not known */
} bw_call;

/* BW_CODE_INVALID, with what is allowed, for sets or a footprint out of range. */
bw_status bw_call_check(const bw_call *self);

/* Nothing is verified: verdict stays zero. Cold is a rotation over the caller's sets where these are known to be large
 * enough, else a read flush before each call. */
bw_status bw_measure_call(const bw_call *self, const bw_measure_options *options, bw_measurement *out);
/* The same under the first of the backend's call_timers that can be had; *options gets its number. */
bw_status bw_measure_call_best(const bw_call *self, bw_measure_options *options, bw_measurement *out);
bw_status bw_count_call(const bw_call *self, bw_counters *out);

/* A mismatch is no error: verdict.verified is then false and there are no samples. */
bw_status bw_measure(bw_case *self, const bw_measure_options *options, bw_measurement *out);

/* Hardware counters of one launch after a flush; with `rotated` the mean over a whole rotation as a cold measurement
 * has it, which shows whether the rotation is cold. Where there are none: NaN, and a status text. */
bw_status bw_count(bw_case *self, bool rotated, bw_counters *out);

/* The backend's bit of a group's name. BW_CODE_INVALID, with what is allowed, for any other. */
bw_status bw_metric_group_find(const bw_session *session, const char *name, unsigned *out);
/* Metrics of one launch after a flush. Where there are none: an empty list, and a status text. */
bw_status bw_count_metrics(bw_case *self, unsigned groups, bw_metrics *out);
bw_status bw_count_call_metrics(const bw_call *self, unsigned groups, bw_metrics *out);

void bw_measurement_free(bw_measurement *measurement); /* its contents */
