/* Conditions during a measurement: when they are read, and what becomes of the readings. */
#include "check.h"

static void sensors_say(double sm_mhz, double power_w, double temperature_c, double energy_j, unsigned throttle) {
    fake.conditions = (bw_conditions){sm_mhz, 3201, power_w, temperature_c, energy_j, throttle};
}

static bool open_watch(fixture *f, bw_watch *watch) {
    bool ok = OK(open_copy(f, 256));
    if (ok) bw_watch_begin(watch, f->session, 100.0);
    return ok;
}

static bw_measured_conditions end_watch(fixture *f, const bw_watch *watch) {
    bw_measured_conditions found;
    bw_watch_end(watch, &found);
    close_case(f);
    return found;
}

static void medians_maximum_and_union(int op_index) {
    (void)op_index;
    fixture f;
    bw_watch watch;
    if (!open_watch(&f, &watch)) return close_case(&f);
    sensors_say(1980, 300, 50, NAN, 0);
    bw_watch_look(&watch, 100.0, 0, 0, true);
    sensors_say(1200, 500, 63, NAN, BW_THROTTLE_POWER_CAP);
    bw_watch_look(&watch, 101.0, 0, 0, true);
    sensors_say(1755, NAN, 58, NAN, BW_THROTTLE_HW_THERMAL);
    bw_watch_look(&watch, 102.0, 0, 0, true);
    bw_measured_conditions found = end_watch(&f, &watch);
    CHECK_EQUAL(found.readings, 3);
    CHECK(found.sm_clock_mhz == 1755, "SM clock %g", found.sm_clock_mhz);
    CHECK(found.mem_clock_mhz == 3201, "memory clock %g", found.mem_clock_mhz);
    CHECK(found.power_w == 500, "power %g: the first reading is of what ran before", found.power_w);
    CHECK(found.temperature_c == 63, "temperature %g", found.temperature_c);
    CHECK(isnan(found.energy_j), "energy %g from nowhere", found.energy_j);
    CHECK_EQUAL(found.throttle, BW_THROTTLE_POWER_CAP | BW_THROTTLE_HW_THERMAL);
    CHECK(found.note[0] == '\0', "note %s", found.note);
}

/* Looked at every millisecond for a second, with a sensor that takes no time: every 20 ms, and at the end. */
static void readings_keep_their_distance(int op_index) {
    (void)op_index;
    fixture f;
    bw_watch watch;
    if (!open_watch(&f, &watch)) return close_case(&f);
    for (int i = 0; i < 1000; i++) bw_watch_look(&watch, 100.0 + i * 1e-3, 0, 0, false);
    CHECK(fake.readings >= 40 && fake.readings <= 50, "%d readings in a second", (int)fake.readings);
    CHECK(fake.energy_readings >= 10 && fake.energy_readings <= 16, "the energy counter is read %d times in 0.8 s",
          (int)fake.energy_readings);
    int64_t before = fake.readings;
    bw_watch_look(&watch, 100.9991, 0, 0, true);
    CHECK_EQUAL(fake.readings, before + 1);
    end_watch(&f, &watch);
}

/* Ten hours: what is kept stays bounded, and the median is still that of the whole. */
static void long_watches_are_bounded(int op_index) {
    (void)op_index;
    fixture f;
    bw_watch watch;
    if (!open_watch(&f, &watch)) return close_case(&f);
    for (int i = 0; i < 36000; i++) {
        sensors_say(i < 18000 ? 1000 : 2000, 300 + i * 0.01, 60, NAN, 0);
        bw_watch_look(&watch, 100.0 + i, 0, 0, false);
    }
    CHECK(watch.sample_count <= BW_READINGS_MOST, "%d kept", (int)watch.sample_count);
    bw_measured_conditions found = end_watch(&f, &watch);
    CHECK(fabs(found.power_w - 480) < 20, "power %g", found.power_w);
    CHECK(found.readings < 36000, "as many readings as looks");
}

/* A counter that moves by 50 J every 100 ms, 500 W, while launches of 1 ms follow each other: 0.5 J each. */
static bw_measured_conditions count_energy(double seconds, double busy, int look_ms) {
    fixture f;
    bw_watch watch;
    if (!open_watch(&f, &watch)) {
        close_case(&f);
        return (bw_measured_conditions){.energy_j = -1};
    }
    for (int i = 0; i <= (int)(seconds * 1000); i += look_ms) {
        sensors_say(1980, 500, 60, 1e6 + 50.0 * ((i + 37) / 100), 0);
        bw_watch_look(&watch, 100.0 + i * 1e-3, i, i * 1e6 * busy, i == (int)(seconds * 1000));
    }
    return end_watch(&f, &watch);
}

static void energy_of_a_launch(int op_index) {
    (void)op_index;
    double energy = count_energy(3.0, 1.0, 1).energy_j;
    CHECK(fabs(energy - 0.5) < 0.02, "%g J", energy); /* moves are seen up to 60 ms late, of 2.7 s */
    energy = count_energy(1.5, 0.95, 1).energy_j;
    CHECK(fabs(energy - 0.5) < 0.03, "%g J", energy);
    energy = count_energy(1.0, 1.0, 1).energy_j;
    CHECK(isnan(energy), "%g J from too short an interval", energy);
    energy = count_energy(0.01, 1.0, 1).energy_j;
    CHECK(isnan(energy), "%g J from nothing", energy);
    energy = count_energy(3.0, 0.6, 1).energy_j;
    CHECK(isnan(energy), "%g J with flushes in it", energy);
    energy = count_energy(3.0, 1.0, 150).energy_j;
    CHECK(isnan(energy), "%g J from moves seen too late", energy); /* replays of 150 ms each */
}

/* The sensor is a tenth of a second behind: the first readings say what ran before. */
static void power_of_the_first_moments_does_not_count(int op_index) {
    (void)op_index;
    for (int milliseconds = 100; milliseconds <= 600; milliseconds += 500) {
        fixture f;
        bw_watch watch;
        if (!open_watch(&f, &watch)) return close_case(&f);
        for (int i = 0; i <= milliseconds; i++) {
            sensors_say(1980, i < 150 ? 120 : 650, 60, NAN, 0);
            bw_watch_look(&watch, 100.0 + i * 1e-3, i, i * 1e6, i == milliseconds);
        }
        double power = end_watch(&f, &watch).power_w;
        CHECK(milliseconds == 100 ? isnan(power) : power == 650, "%g W in %d ms", power, milliseconds);
    }
}

static void sensors_that_fail_cost_nothing_else(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    fake.sensors_fail = true;
    if (OK(open_copy(&f, 256)) && OK(bw_measure(f.content, &options, &m))) {
        CHECK(m.verdict.verified && m.converged, "not measured");
        CHECK_EQUAL(m.conditions.readings, 0);
        CHECK_EQUAL(fake.readings, 2); /* before the first sample and at it; not tried again in this measurement */
        CHECK(strstr(m.conditions.note, "no permission to read"), "note: %s", m.conditions.note);
        CHECK(isnan(m.conditions.sm_clock_mhz) && isnan(m.conditions.temperature_c), "values from nowhere");
        CHECK_EQUAL(m.conditions.throttle, BW_THROTTLE_UNKNOWN);
    }
    bw_measurement_free(&m);
    close_case(&f);
}

static void a_measurement_has_conditions(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    sensors_say(1755, 400, 61, 5.0, BW_THROTTLE_SW_THERMAL);
    if (OK(open_copy(&f, 256)) && OK(bw_measure(f.content, &options, &m))) {
        CHECK(m.conditions.readings >= 2, "%d readings: the first and the last are always taken",
              (int)m.conditions.readings);
        CHECK_EQUAL(m.conditions.readings + 1, fake.readings); /* one comes before anything is timed */
        CHECK(m.conditions.sm_clock_mhz == 1755 && m.conditions.temperature_c == 61, "%g MHz, %g C",
              m.conditions.sm_clock_mhz, m.conditions.temperature_c);
        CHECK_EQUAL(m.conditions.throttle, BW_THROTTLE_SW_THERMAL);
        CHECK(m.conditions.reading_ns >= 0 && m.conditions.reading_ns < 1e8, "%g ns", m.conditions.reading_ns);
    }
    bw_measurement_free(&m);
    close_case(&f);
}

static void a_backend_without_sensors(int op_index) {
    (void)op_index;
    fixture f;
    bw_watch watch;
    bw_backend blind = fake_backend;
    blind.sensors = NULL;
    if (!OK(open_copy(&f, 256))) return close_case(&f);
    f.session->backend = &blind;
    bw_watch_begin(&watch, f.session, 100.0);
    bw_watch_look(&watch, 101.0, 1, 1.0, true);
    f.session->backend = &fake_backend;
    bw_measured_conditions found = end_watch(&f, &watch);
    CHECK_EQUAL(found.readings, 0);
    CHECK(strstr(found.note, "no sensors"), "note: %s", found.note);
    CHECK(isnan(found.power_w) && found.throttle == BW_THROTTLE_UNKNOWN, "values from nowhere");
}

static void expect_words(unsigned throttle, const char *wanted) {
    char words[128];
    bw_throttle_words(throttle, words, sizeof words);
    CHECK(strcmp(words, wanted) == 0, "%u is '%s', expected '%s'", throttle, words, wanted);
}

static void throttle_in_words(int op_index) {
    (void)op_index;
    expect_words(0, "none");
    expect_words(BW_THROTTLE_UNKNOWN, "");
    expect_words(BW_THROTTLE_HW_THERMAL, "hw_thermal");
    expect_words(31, "sw_power_cap;hw_slowdown;sw_thermal;hw_thermal;power_brake");
    char small[14];
    bw_throttle_words(31, small, sizeof small);
    CHECK(strcmp(small, "sw_power_cap") == 0, "cut in a word: %s", small);
}

const check conditions_checks[] = {
    {"medians_maximum_and_union", false, medians_maximum_and_union},
    {"readings_keep_their_distance", false, readings_keep_their_distance},
    {"long_watches_are_bounded", false, long_watches_are_bounded},
    {"energy_of_a_launch", false, energy_of_a_launch},
    {"power_of_the_first_moments_does_not_count", false, power_of_the_first_moments_does_not_count},
    {"sensors_that_fail_cost_nothing_else", false, sensors_that_fail_cost_nothing_else},
    {"a_measurement_has_conditions", false, a_measurement_has_conditions},
    {"a_backend_without_sensors", false, a_backend_without_sensors},
    {"throttle_in_words", false, throttle_in_words},
    {NULL, false, NULL},
};
