/* When sampling stops, what it leaves behind, and the guard against a second thread. */
#include <pthread.h>
#include <stdlib.h>

#include "check.h"
#include "coverage.h"

typedef struct run {
    fixture f;
    bw_measurement m;
} run;

static bool measure(run *run, const bw_measure_options *options) {
    run->m = (bw_measurement){0};
    return OK(open_copy(&run->f, 256)) && OK(bw_measure(run->f.content, options, &run->m));
}

static void end(run *run) {
    bw_measurement_free(&run->m);
    close_case(&run->f);
}

static void quiet_times_stop_at_once(int op_index) {
    (void)op_index;
    for (int64_t least = 10; least <= 25; least += 15) {
        run r;
        bw_measure_options options = usual_options();
        options.min_samples = least;
        fake.launch_ns = 6e6;
        if (measure(&r, &options)) {
            CHECK(r.m.converged, "quiet times did not converge");
            CHECK_EQUAL(r.m.statistics.count, least);
            for (int64_t i = 0; i < r.m.statistics.count; i++) {
                CHECK(fabs(r.m.samples_ns[i] - 6e6) < 1e-3, "sample %g", r.m.samples_ns[i]);
            }
            CHECK(r.m.statistics.low == r.m.statistics.high && r.m.statistics.noise == 0.0,
                  "an interval of quiet times");
            CHECK(r.m.timer_floor_ns == 500.0, "floor %g", r.m.timer_floor_ns);
            CHECK(r.m.host_launch_ns == 1234.0, "host time %g", r.m.host_launch_ns);
            CHECK(r.m.warmup_ns >= 20e6, "warmed up for %g ns", r.m.warmup_ns);
        }
        end(&r);
    }
}

/* What the device did just before counts; the last replays must agree in any case. */
static void a_busy_device_warms_up_for_less(int op_index) {
    (void)op_index;
    const double busy_ns[] = {0.0, 12e6, 1e9}, warmup_ns[] = {20e6, 8e6, 4e6};
    for (int i = 0; i < 3; i++) {
        run r;
        bw_measure_options options = usual_options();
        options.cache = BW_CACHE_HOT; /* one launch, of a millisecond, a replay */
        fake.busy_ns = busy_ns[i];
        if (measure(&r, &options)) {
            CHECK(fabs(r.m.warmup_ns - warmup_ns[i]) < 1e5, "warmed up for %g ns", r.m.warmup_ns);
        }
        end(&r);
    }
}

/* Ten samples of a millisecond say nothing of what comes and goes within 50; a limit below that is kept. */
static void short_samples_are_taken_for_a_while(int op_index) {
    (void)op_index;
    for (double limit_s = 0.02; limit_s < 20.0; limit_s += 10.0) {
        run r;
        bw_measure_options options = usual_options();
        options.cache = BW_CACHE_HOT; /* one launch a sample */
        options.max_seconds = limit_s;
        fake.reference_ns = 0.0;
        if (measure(&r, &options)) {
            int64_t wanted = limit_s < 0.05 ? 20 : 50;
            CHECK(r.m.converged, "quiet times did not converge");
            CHECK(llabs(r.m.statistics.count - wanted) <= 1, "%" PRId64 " samples", r.m.statistics.count);
        }
        end(&r);
    }
}

/* Below six samples no interval holds 95 %. */
static void six_samples_at_least(int op_index) {
    (void)op_index;
    run r;
    bw_measure_options options = usual_options();
    options.min_samples = 1;
    if (measure(&r, &options)) {
        CHECK(r.m.converged, "not converged");
        CHECK(r.m.statistics.count >= 6, "%" PRId64 " samples", r.m.statistics.count);
        CHECK(isfinite(r.m.statistics.low) && isfinite(r.m.statistics.high), "an infinite interval converged");
    }
    end(&r);
}

/* +-2 %: a median known to 0.5 % takes more than 50 samples and far fewer than the 20 000 that there is time for. */
static void noise_takes_more_samples(int op_index) {
    (void)op_index;
    run r;
    bw_measure_options options = usual_options();
    fake.clock = FAKE_NOISY;
    fake.amplitude = 0.02;
    if (measure(&r, &options)) {
        const bw_statistics *s = &r.m.statistics;
        CHECK(r.m.converged, "not converged");
        CHECK(s->count > 50 && s->count < 1000, "%" PRId64 " samples", s->count);
        CHECK(s->high - s->median <= 0.005 * s->median && s->median - s->low <= 0.005 * s->median,
              "%g in [%g, %g] is not within 0.5 %%", s->median, s->low, s->high);
        CHECK(fabs(s->median - 1e6) < 0.01e6, "median %g", s->median);
    }
    end(&r);
}

static void the_time_limit_is_not_convergence(int op_index) {
    (void)op_index;
    run r;
    bw_measure_options options = usual_options();
    fake.clock = FAKE_NOISY;
    fake.amplitude = 0.2;
    options.max_seconds = 0.0;
    if (measure(&r, &options)) {
        CHECK(!r.m.converged, "10 samples of +-20 %% count as converged");
        CHECK_EQUAL(r.m.statistics.count, 10);
    }
    end(&r);
    /* Samples of 2 ms are taken until then, many or few. */
    options.cache = BW_CACHE_HOT;
    fake.reference_ns = 0.0;
    fake.launch_ns = 2e6;
    fake.amplitude = 1e-6;
    options.precision_target = 1e-300;
    for (options.max_seconds = 0.1; options.max_seconds < 30.0; options.max_seconds *= 10.0) {
        if (measure(&r, &options)) {
            double taken_s = 2e-3 * (double)r.m.statistics.count;
            CHECK(!r.m.converged, "converged to nothing");
            CHECK(taken_s >= options.max_seconds && taken_s < options.max_seconds + 5e-3, "%g s of %g s", taken_s,
                  options.max_seconds);
        }
        end(&r);
    }
}

/* A first half that differs from the second is no converged median, however narrow its interval. */
static double stepped(void *context, int64_t replay) {
    const int64_t *step_at = context;
    return 1e6 * (replay < *step_at ? 1.0 : 1.02);
}

static void halves_that_differ_do_not_converge(int op_index) {
    (void)op_index;
    run r;
    int64_t step_at = 47; /* 2 replays tell how long they take, 20 warm up, 50 are samples */
    bw_measure_options options = usual_options();
    options.cache = BW_CACHE_HOT;
    options.max_seconds = 0.05;
    fake.clock = FAKE_CUSTOM;
    fake.custom_time = stepped;
    fake.custom_context = &step_at;
    if (measure(&r, &options)) {
        CHECK(!r.m.converged, "a step of 2 %% in the middle counts as converged");
        CHECK(r.m.statistics.low <= 1e6 && r.m.statistics.high >= 1.02e6, "[%g, %g] leaves a level out",
              r.m.statistics.low, r.m.statistics.high);
    }
    end(&r);
    step_at = 1 << 30;
    if (measure(&r, &options)) CHECK(r.m.converged, "without a step it does not converge");
    end(&r);
}

/* Whether it is their halves or their interval that keeps samples from having converged. */
static void both_must_be_narrow(int op_index) {
    (void)op_index;
    double samples[] = {10.0, 11.0, 30.0, 12.0, 13.0, 14.0, 40.0}, scratch[14]; /* halves of 3 and 4: 11 and 13.5 */
    bw_statistics s = bw_statistics_of(samples, 7, scratch);
    CHECK(bw_statistics_scratch(7) == 14 && s.median == 13.0 && fabs(s.halves - 2.5 / 13.0) < 1e-15, "%g, halves %g",
          s.median, s.halves);
    s = (bw_statistics){.median = 1.0, .low = 0.996, .high = 1.004, .halves = 0.004};
    CHECK(bw_statistics_converged(&s, 0.005), "within 0.4 %%");
    s.halves = 0.006;
    CHECK(!bw_statistics_converged(&s, 0.005), "halves 0.6 %% apart");
    s.halves = 0.0;
    s.low = 0.994;
    CHECK(!bw_statistics_converged(&s, 0.005), "an interval 0.6 %% down");
}

/* Through the whole measurement: as many intervals hold the median that the samples were made with. */
static void intervals_hold_the_median(int op_index) {
    (void)op_index;
    static const struct {
        coverage_of request;
        int least;
    } rows[] = {
        {{COVERAGE_STEADY, 0.0, 0.01, 1.25, 1.0, 100, 1}, 95},   {{COVERAGE_STEADY, 0.7, 0.005, 1.25, 1.0, 100, 1}, 93},
        {{COVERAGE_STEADY, 0.9, 0.0005, 1.25, 1.0, 100, 1}, 90}, {{COVERAGE_STEADY, 0.9, 0.01, 1.25, 1.0, 100, 1}, 90},
        {{COVERAGE_STEADY, 0.9, 0.005, 20.0, 1.0, 100, 1}, 90},  {{COVERAGE_BIMODAL, 0.5, 0.01, 1.25, 1.0, 100, 1}, 93},
        {{COVERAGE_DRIFTING, 0.7, 0.05, 1.25, 1.0, 40, 1}, 37}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const coverage_of *request = &rows[i].request;
        coverage_found found;
        if (!coverage_run(request, &found)) return;
        CHECK(found.covered >= rows[i].least, "%s samples, correlation %g, noise %g: %d of %d held it",
              coverage_names[request->model], request->correlation, request->noise, found.covered, request->trials);
    }
}

/* Samples come back in the order taken, so that a drift can be seen in them. */
static void drift_stays_visible(int op_index) {
    (void)op_index;
    run r;
    bw_measure_options options = usual_options();
    fake.clock = FAKE_DRIFTING;
    fake.amplitude = 0.02;
    options.max_seconds = 0.4;
    if (measure(&r, &options)) {
        CHECK(!r.m.converged, "2 %% per sample count as converged");
        for (int64_t i = 1; i < r.m.statistics.count; i++) {
            CHECK(r.m.samples_ns[i] > r.m.samples_ns[i - 1], "samples are not in the order taken");
        }
        CHECK(r.m.warmup_ns >= 400e6, "a drifting clock was taken for settled after %g ns", r.m.warmup_ns);
    }
    end(&r);
}

static bool stop_after(void *context) {
    int *left = context;
    return --*left < 0;
}

/* Whenever it is asked to stop it does, and leaves nothing behind. */
static void poll_interrupts(int op_index) {
    (void)op_index;
    int polls = 0;
    for (;; polls++) {
        run r;
        int left = polls;
        bw_measure_options options = usual_options();
        options.poll = stop_after;
        options.poll_context = &left;
        r.m = (bw_measurement){0};
        if (!OK(open_copy(&r.f, 256))) return end(&r);
        bw_status status = bw_measure(r.f.content, &options, &r.m);
        bool finished = !status;
        if (!finished) FAILS(status, BW_CODE_INTERRUPTED, "interrupted");
        CHECK(finished == (r.m.samples_ns != NULL), "samples of an interrupted measurement");
        CHECK_EQUAL(fake.live_plans, 0);
        /* The case can be measured afterwards. */
        options.poll = NULL;
        if (!finished && polls % 8 == 0) {
            OK(bw_measure(r.f.content, &options, &r.m));
            CHECK(r.m.verdict.verified, "%s", r.m.verdict.reason);
        }
        end(&r);
        if (finished) break;
    }
    CHECK(polls >= 12, "poll was called %d times only", polls);
}

static void *enter(void *session) {
    return bw_session_enter(session);
}

static void a_second_thread_is_busy(int op_index) {
    (void)op_index;
    fixture f;
    pthread_t thread;
    void *result = NULL;
    if (!OK(open_copy(&f, 256)) || !OK(bw_session_enter(f.session))) return close_case(&f);
    CHECK_EQUAL(pthread_create(&thread, NULL, enter, f.session), 0);
    CHECK_EQUAL(pthread_join(thread, &result), 0);
    FAILS(result, BW_CODE_BUSY, "another thread");
    bw_session_leave(f.session);
    CHECK_EQUAL(pthread_create(&thread, NULL, enter, f.session), 0);
    CHECK_EQUAL(pthread_join(thread, &result), 0);
    OK(result);
    bw_session_leave(f.session);
    close_case(&f);
}

static void sessions_check_the_index(int op_index) {
    (void)op_index;
    bw_session *session = NULL;
    FAILS(bw_session_open(&fake_backend, 1, &session), BW_CODE_INVALID, "allowed is 0 to 0");
    FAILS(bw_session_open(&fake_backend, -1, &session), BW_CODE_INVALID, "toy device -1");
    CHECK(session == NULL, "a session that failed to open");
    bw_session_close(NULL);
    bw_case_free(NULL);
}

const check stop_checks[] = {
    {"quiet_times_stop_at_once", false, quiet_times_stop_at_once},
    {"short_samples_are_taken_for_a_while", false, short_samples_are_taken_for_a_while},
    {"a_busy_device_warms_up_for_less", false, a_busy_device_warms_up_for_less},
    {"six_samples_at_least", false, six_samples_at_least},
    {"noise_takes_more_samples", false, noise_takes_more_samples},
    {"the_time_limit_is_not_convergence", false, the_time_limit_is_not_convergence},
    {"both_must_be_narrow", false, both_must_be_narrow},
    {"halves_that_differ_do_not_converge", false, halves_that_differ_do_not_converge},
    {"intervals_hold_the_median", false, intervals_hold_the_median},
    {"drift_stays_visible", false, drift_stays_visible},
    {"poll_interrupts", false, poll_interrupts},
    {"a_second_thread_is_busy", false, a_second_thread_is_busy},
    {"sessions_check_the_index", false, sessions_check_the_index},
    {NULL, false, NULL},
};
