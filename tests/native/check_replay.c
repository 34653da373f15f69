/* bw_measure: what goes wrong only in the timed replays is caught by the check after them. */
#include "check.h"

/* Measures a small case of the operation with something planted. */
static void measure_small(int op_index, fake_plant plant, fake_when when, bool verified) {
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    fake.plant = plant;
    fake.when = when;
    if (OK(open_small(&f, op_index, true)) && OK(bw_measure(f.content, &options, &m))) {
        CHECK(m.verdict.verified == verified, "verified = %d with plant %d, %s", m.verdict.verified, (int)plant,
              m.verdict.reason);
        CHECK((m.samples_ns != NULL) == verified, "samples of a wrong result were kept, or right ones lost");
        CHECK(verified || !m.converged, "a wrong result counts as converged");
        if (verified) CHECK_EQUAL(m.rotation.sets, fake.last_plan.set_count);
    }
    bw_measurement_free(&m);
    close_case(&f);
}

/* As a backend that captures launches does, and as one that walks on from replay to replay does. */
static void on_both_kinds(int op_index, fake_plant plant, fake_when when, bool verified) {
    for (int kind = 0; kind < 3; kind++) {
        fake.fixed_replay = kind != 2;
        fake.launches_at_create = kind == 1;
        fake.cache_bytes = 1 << 16; /* several sets of every small case, */
        fake.launch_ns = 1e4;       /* and enough launches to reach them all */
        measure_small(op_index, plant, when, verified);
    }
}

static void right_case_is_measured(int op_index) {
    on_both_kinds(op_index, FAKE_RIGHT, FAKE_ALWAYS, true);
}

static void wrong_before_timing(int op_index) {
    on_both_kinds(op_index, FAKE_WRONG_ELEMENT, FAKE_ALWAYS, false);
    CHECK_EQUAL(fake.plans, 0);
}

static void wrong_in_replays_only(int op_index) {
    on_both_kinds(op_index, FAKE_WRONG_ELEMENT, FAKE_IN_REPLAYS, false);
}

static void nan_in_replays_only(int op_index) {
    on_both_kinds(op_index, FAKE_NAN, FAKE_IN_REPLAYS, false);
}

static void idle_in_replays_only(int op_index) {
    on_both_kinds(op_index, FAKE_NOTHING, FAKE_IN_REPLAYS, false);
}

static void wrong_on_the_last_set_only(int op_index) {
    on_both_kinds(op_index, FAKE_WRONG_ELEMENT, FAKE_ON_LAST_SET, false);
}

static void all_launches_on_one_set(int op_index) {
    on_both_kinds(op_index, FAKE_SET_ZERO, FAKE_ALWAYS, false);
}

/* A backend that walks on from replay to replay, and fewer launches than sets: those that were never launched on must
 * not be held against the kernel, nor those that the first, short plan was made of be taken for timed ones. */
static void sets_that_were_never_reached(int op_index) {
    (void)op_index;
    static const struct {
        double launch_ns;
        int64_t fewest, most; /* sets */
    } rows[] = {{30e6, 2, 30}, {5e5, 2, 100}, {3.5e5, 60, 120}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int64_t sets = rows[i].fewest; sets <= rows[i].most; sets++) {
            fixture f;
            bw_measurement m = {0};
            bw_measure_options options = usual_options();
            fake_reset();
            fake.fixed_replay = false;
            fake.launch_ns = rows[i].launch_ns;
            fake.cache_bytes = sets * 1024; /* a launch touches 4 KiB */
            if (OK(open_copy(&f, 512)) && OK(bw_measure(f.content, &options, &m))) {
                CHECK_EQUAL(m.rotation.sets, sets);
                CHECK(m.verdict.verified, "%" PRId64 " sets, %" PRId64 " replays of %" PRId64 ": %s", sets,
                      fake.replays, m.launches_per_sample, m.verdict.reason);
            }
            bw_measurement_free(&m);
            close_case(&f);
        }
    }
}

/* Those of the warm-up do not count. */
static void late_replays_are_counted(int op_index) {
    int64_t replays = 0;
    for (int pass = 0; pass < 3; pass++) {
        fixture f;
        bw_measurement m = {0};
        bw_measure_options options = usual_options();
        fake.replays = 0;
        fake.late_from = pass == 0 ? 0 : pass == 1 ? 1 : replays - 1;
        if (OK(open_small(&f, op_index, true)) && OK(bw_measure(f.content, &options, &m))) {
            replays = fake.replays;
            CHECK_EQUAL(m.late_samples, pass == 0 ? 0 : pass == 1 ? m.statistics.count : 2);
        }
        bw_measurement_free(&m);
        close_case(&f);
    }
    fake.late_from = 0;
}

const check replay_checks[] = {
    {"right_case_is_measured", true, right_case_is_measured},
    {"wrong_before_timing", true, wrong_before_timing},
    {"wrong_in_replays_only", true, wrong_in_replays_only},
    {"nan_in_replays_only", true, nan_in_replays_only},
    {"idle_in_replays_only", true, idle_in_replays_only},
    {"wrong_on_the_last_set_only", true, wrong_on_the_last_set_only},
    {"all_launches_on_one_set", true, all_launches_on_one_set},
    {"sets_that_were_never_reached", false, sets_that_were_never_reached},
    {"late_replays_are_counted", false, late_replays_are_counted},
    {NULL, false, NULL},
};
