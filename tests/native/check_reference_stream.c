/* Reference streams beside the samples: when they are taken, and what is seen by them. */
#include "check.h"

static bool measure(bw_measurement *m, double max_seconds, double launch_ns) {
    fixture f;
    bw_measure_options options = usual_options();
    options.max_seconds = max_seconds;
    options.cache = BW_CACHE_HOT;
    options.precision_target = 1e-300;
    fake.launch_ns = launch_ns;
    fake.clock = FAKE_NOISY;
    fake.amplitude = 1e-3;
    *m = (bw_measurement){0};
    bool ok = OK(open_copy(&f, 256)) && OK(bw_measure(f.content, &options, m));
    close_case(&f);
    return ok;
}

static void they_stand_before_between_and_after(int op_index) {
    (void)op_index;
    bw_measurement m;
    if (measure(&m, 1.0, 2e6)) {
        /* Every 20 ms of a second, and one at the end. Of a millisecond each, and followed by a replay that does not
         * count: 850 ms are left for samples. */
        CHECK(fake.references >= 48 && fake.references <= 52, "%" PRId64 " of them", fake.references);
        CHECK(m.statistics.count > 410 && m.statistics.count < 440, "%" PRId64 " samples", m.statistics.count);
        CHECK(m.disturbance.slowed == 0.0, "slowed by %g in a quiet place", m.disturbance.slowed);
    }
    bw_measurement_free(&m);
    fake.references = 0;
    fake.reference_ns = 4e6; /* at most a fifteenth of the time */
    if (measure(&m, 2.0, 2e6)) {
        CHECK(fake.references >= 30 && fake.references <= 36, "%" PRId64 " of 4 ms in 2 s", fake.references);
    }
    bw_measurement_free(&m);
    fake.references = 0;
    if (measure(&m, 0.3, 1e8)) { /* few long launches: one before each */
        CHECK_EQUAL(fake.references, m.statistics.count + 1);
        CHECK(m.disturbance.slowed == 0.0, "slowed by %g", m.disturbance.slowed);
    }
    bw_measurement_free(&m);
}

static void short_samplings_have_none(int op_index) {
    (void)op_index;
    bw_measurement m;
    if (measure(&m, 0.1, 2e6)) {
        CHECK_EQUAL(fake.references, 0);
        CHECK(isnan(m.disturbance.slowed) && m.disturbance.waited == 0.0, "slowed by %g", m.disturbance.slowed);
        CHECK(isnan(m.references.upper_ns) && isnan(m.references.best_ns), "none that took %g", m.references.upper_ns);
    }
    bw_measurement_free(&m);
}

static void a_stream_that_fails_costs_itself_only(int op_index) {
    (void)op_index;
    bw_measurement m;
    fake.reference_ns = 0.0;
    if (measure(&m, 0.5, 2e6)) {
        CHECK(m.statistics.count > 200 && isnan(m.disturbance.slowed), "slowed by %g", m.disturbance.slowed);
    }
    bw_measurement_free(&m);
}

/* 50 streams in a second: a neighbor that comes half-way is seen, one that looks in is not, one that was there all the
 * time is when the next measurement finds it gone. */
static void a_drift_is_seen(int op_index) {
    (void)op_index;
    static const struct {
        int64_t from, to;
        double slowed;
    } rows[] = {{25, 60, 0.2}, {10, 12, 0.0}, {1, 30, 0.2}, {1, 60, 0.0}};
    bw_measurement m;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fake_reset();
        fake.slow_from = rows[i].from;
        fake.slow_to = rows[i].to;
        fake.slow_by = 1.2;
        if (measure(&m, 1.0, 2e6)) {
            CHECK(fabs(m.disturbance.slowed - rows[i].slowed) < 1e-9, "streams %" PRId64 " to %" PRId64 ": %g",
                  rows[i].from, rows[i].to, m.disturbance.slowed);
        }
        bw_measurement_free(&m);
    }
}

/* What was slow throughout is told by the fastest stream that the session has seen before. */
static void a_session_remembers_its_fastest(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    options.cache = BW_CACHE_HOT;
    if (!OK(open_copy(&f, 256))) return close_case(&f);
    for (int i = 0; i < 3; i++) {
        fake.slow_from = i == 1 ? 0 : 1 << 20;
        fake.slow_to = 1 << 30;
        fake.slow_by = 1.1;
        if (!OK(bw_measure(f.content, &options, &m))) break;
        CHECK(fabs(m.disturbance.slowed - (i == 1 ? 0.1 : 0.0)) < 1e-9, "measurement %d slowed by %g", i,
              m.disturbance.slowed);
        CHECK(m.references.slowed == m.disturbance.slowed && m.references.best_ns == 1e6 &&
                  fabs(m.references.upper_ns - (i == 1 ? 1.1e6 : 1e6)) < 1e-3,
              "measurement %d: %g of %g ns", i, m.references.upper_ns, m.references.best_ns);
        bw_measurement_free(&m);
    }
    close_case(&f);
}

/* What all threads reached says nothing of fewer. */
static void fewer_threads_begin_anew(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    options.cache = BW_CACHE_HOT;
    if (OK(open_copy(&f, 256)) && OK(bw_measure(f.content, &options, &m))) {
        bw_measurement_free(&m);
        fake.reference_ns *= 1.9;
        if (OK(bw_session_limit_threads(f.session, 1)) && OK(bw_measure(f.content, &options, &m))) {
            CHECK(m.disturbance.slowed == 0.0, "slowed by %g", m.disturbance.slowed);
        }
        bw_measurement_free(&m);
    }
    close_case(&f);
}

/* Full: half of those kept go, and the others stay true to the order. */
static void many_are_thinned_out(int op_index) {
    (void)op_index;
    bw_measurement m;
    fake.slow_from = 1;
    fake.slow_to = 20;
    fake.slow_by = 2.0;
    if (measure(&m, 20.0, 2e6)) {
        CHECK(fake.references > BW_REFERENCES_MOST && fake.references < 400, "%" PRId64 " of them", fake.references);
        CHECK(m.disturbance.slowed == 0.0, "a slow beginning of 0.4 s in 20 s: %g", m.disturbance.slowed);
    }
    bw_measurement_free(&m);
}

static void disturbance_is_reported(int op_index) {
    (void)op_index;
    bw_measurement m;
    fake.disturbance = (bw_disturbance){0.25, 0.0625, 0.125, 0.5, NAN};
    if (measure(&m, 0.5, 2e6)) {
        CHECK(m.disturbance.waited == 0.25 && m.disturbance.stolen == 0.125 && m.disturbance.pressed == 0.5 &&
                  m.disturbance.slowed == 0.0,
              "%g %g %g %g", m.disturbance.waited, m.disturbance.stolen, m.disturbance.pressed, m.disturbance.slowed);
    }
    bw_measurement_free(&m);
}

const check reference_checks[] = {
    {"they_stand_before_between_and_after", false, they_stand_before_between_and_after},
    {"short_samplings_have_none", false, short_samplings_have_none},
    {"a_stream_that_fails_costs_itself_only", false, a_stream_that_fails_costs_itself_only},
    {"a_drift_is_seen", false, a_drift_is_seen},
    {"a_session_remembers_its_fastest", false, a_session_remembers_its_fastest},
    {"fewer_threads_begin_anew", false, fewer_threads_begin_anew},
    {"many_are_thinned_out", false, many_are_thinned_out},
    {"disturbance_is_reported", false, disturbance_is_reported},
    {NULL, false, NULL},
};
