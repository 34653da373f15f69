/* A caller's function measured: rotation or flush, the floor, its failures. */
#include "check.h"

typedef struct subject {
    int64_t calls, entered, highest_set;
    int64_t fail_at; /* 0 = never */
} subject;

static bw_status count_call(void *context, int64_t set, bool captured) {
    subject *self = context;
    CHECK(!captured, "the toy captures nothing");
    CHECK(self->entered == 1, "called while entered %" PRId64 " times", self->entered);
    if (set > self->highest_set) self->highest_set = set;
    return ++self->calls == self->fail_at ? bw_fail(BW_CODE_INTERRUPTED, "the function raised") : BW_OK;
}

static void enter(void *context) {
    ((subject *)context)->entered++;
}

static void leave(void *context) {
    ((subject *)context)->entered--;
}

typedef struct run {
    bw_session *session;
    subject subject, nothing;
    bw_work work, empty;
    bw_measurement m;
} run;

static bw_status measure(run *run, const bw_backend *backend, bw_cache cache, int64_t sets, int64_t footprint_bytes) {
    bw_measure_options options = usual_options();
    options.cache = cache;
    run->work = (bw_work){count_call, enter, leave, &run->subject, NULL, true, false};
    run->empty = (bw_work){count_call, enter, leave, &run->nothing, NULL, true, false};
    run->m = (bw_measurement){0};
    BW_TRY(bw_session_open(backend, 0, &run->session));
    bw_call call = {run->session, &run->work, &run->empty, sets, footprint_bytes};
    return bw_measure_call(&call, &options, &run->m);
}

static void end(run *run) {
    bw_measurement_free(&run->m);
    bw_session_close(run->session);
    CHECK_EQUAL(run->subject.entered, 0);
    *run = (struct run){0};
}

static void a_function_is_flushed(int op_index) {
    (void)op_index;
    run r = {0};
    fake.launch_ns = 1e4;
    if (OK(measure(&r, &fake_backend, BW_CACHE_COLD, 1, 0))) {
        CHECK(r.m.rotation.cold && strstr(r.m.rotation.note, "read flush"), "note '%s'", r.m.rotation.note);
        CHECK_EQUAL(r.m.rotation.flush_bytes, 4 * fake.cache_bytes);
        CHECK_EQUAL(fake.last_plan.flush_bytes, 4 * fake.cache_bytes);
        CHECK_EQUAL(r.m.launches_per_sample, 16); /* 100 would make a millisecond, each with its flush */
        CHECK(r.m.statistics.median == 1e4 && r.m.converged, "median %g", r.m.statistics.median);
        CHECK(r.m.timer_floor_ns == 500.0, "floor %g", r.m.timer_floor_ns);
        CHECK(!r.m.verdict.verified && r.subject.calls > 160, "%" PRId64 " calls", r.subject.calls);
        CHECK_EQUAL(r.nothing.calls, 0);
    }
    end(&r);
}

/* Where replays need not be the same, a flush takes long: one call for each. */
static void a_function_on_a_host_is_flushed_each_time(int op_index) {
    (void)op_index;
    run r = {0};
    fake.launch_ns = 1e4;
    fake.fixed_replay = false;
    if (OK(measure(&r, &fake_host_backend, BW_CACHE_COLD, 1, 0))) {
        CHECK_EQUAL(r.m.launches_per_sample, 1);
        CHECK(r.m.timer_floor_ns == 1e4, "floor %g is not an empty call's", r.m.timer_floor_ns);
        CHECK(r.nothing.calls > 0, "the floor was measured without an empty call");
    }
    end(&r);
}

static void a_function_may_rotate(int op_index) {
    (void)op_index;
    run r = {0};
    /* 4 x 4096 bytes of cache: 4 sets of 4096 bytes pass it, 4 of 4095 do not. */
    fake.launch_ns = 3e5;
    if (OK(measure(&r, &fake_backend, BW_CACHE_COLD, 4, 4096))) {
        CHECK(r.m.rotation.cold && !r.m.rotation.flush_bytes && !r.m.rotation.note[0], "'%s'", r.m.rotation.note);
        CHECK_EQUAL(r.m.rotation.sets, 4);
        CHECK_EQUAL(r.m.launches_per_sample, 4);
        CHECK_EQUAL(r.subject.highest_set, 3);
    }
    end(&r);
    if (OK(measure(&r, &fake_backend, BW_CACHE_COLD, 4, 4095))) {
        CHECK(r.m.rotation.cold && r.m.rotation.flush_bytes, "'%s'", r.m.rotation.note);
        CHECK_EQUAL(r.subject.highest_set, 3);
    }
    end(&r);
    if (OK(measure(&r, &fake_backend, BW_CACHE_HOT, 4, 4096))) {
        CHECK(!r.m.rotation.cold && !r.m.rotation.flush_bytes, "a hot row is flushed");
        CHECK_EQUAL(r.subject.highest_set, 0);
    }
    end(&r);
}

static void a_function_that_cannot_be_flushed(int op_index) {
    (void)op_index;
    run r = {0};
    fake.memory_bytes = 4 * fake.cache_bytes;
    if (OK(measure(&r, &fake_backend, BW_CACHE_COLD, 1, 0))) {
        CHECK(!r.m.rotation.cold && strstr(r.m.rotation.note, "no flush"), "'%s'", r.m.rotation.note);
    }
    end(&r);
    fake.cache_bytes = 0;
    if (OK(measure(&r, &fake_backend, BW_CACHE_COLD, 1, 0))) {
        CHECK(!r.m.rotation.cold && strstr(r.m.rotation.note, "unknown"), "'%s'", r.m.rotation.note);
    }
    end(&r);
}

/* Whichever call of it fails, that is what comes back, and nothing is left behind. */
static void a_function_may_fail(int op_index) {
    (void)op_index;
    for (int64_t at = 1;; at++) {
        run r = {0};
        r.subject.fail_at = at;
        bw_status status = measure(&r, &fake_backend, BW_CACHE_COLD, 1, 0);
        bool finished = !status;
        if (!finished) FAILS(status, BW_CODE_INTERRUPTED, "the function raised");
        CHECK(finished == (r.m.samples_ns != NULL), "samples of a function that failed");
        CHECK_EQUAL(fake.live_plans, 0);
        end(&r);
        if (finished) break;
        CHECK(at < 1000, "a thousand calls");
    }
}

static void every_call_for_a_function_fails_in_turn(int op_index) {
    (void)op_index;
    for (int64_t at = 1;; at++) {
        run r = {0};
        fake.calls = 0;
        fake.failed = false;
        fake.fail_at = at;
        fake.fail_code = BW_CODE_DEVICE;
        bw_status status = measure(&r, &fake_backend, BW_CACHE_COLD, 1, 0);
        if (!fake.failed) {
            OK(status);
            end(&r);
            CHECK(at > 20, "only %" PRId64 " calls were made", at);
            break;
        }
        FAILS(status, BW_CODE_DEVICE, "planned failure");
        CHECK(r.m.samples_ns == NULL, "samples of a measurement that failed");
        end(&r);
        CHECK(!fake.live_plans && !fake.live_allocations && !fake.live_devices, "%s left things", fake.failed_call);
    }
}

/* It cannot use the handle that it is measured on; the message says so. */
static bw_status use_again(void *context, int64_t set, bool captured) {
    (void)set, (void)captured;
    bw_status status = bw_session_enter(*(bw_session **)context);
    FAILS(status, BW_CODE_BUSY, "further up in this very thread");
    return BW_OK;
}

static void a_function_cannot_use_its_own_handle(int op_index) {
    (void)op_index;
    bw_session *session = NULL;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    bw_work work = {.run = use_again, .context = &session, .foreign = true};
    if (!OK(bw_session_open(&fake_backend, 0, &session)) || !OK(bw_session_enter(session))) return;
    bw_call call = {session, &work, &work, 1, 0};
    OK(bw_measure_call(&call, &options, &m));
    bw_session_leave(session);
    bw_measurement_free(&m);
    bw_session_close(session);
}

/* The second timer where the first one cannot be had, and no other where it is the function that fails. */
static void a_function_has_the_best_timer(int op_index) {
    (void)op_index;
    static const char *const timers[] = {"one", "two", NULL};
    static const char *const tried[] = {"two", "one", NULL};
    bw_backend backend = fake_backend;
    backend.timers = timers;
    backend.call_timers = tried;
    for (int64_t fail_at = 0; fail_at < 2; fail_at++) {
        subject subject = {.fail_at = fail_at}, nothing = {0};
        bw_measure_options options = usual_options();
        bw_measurement m = {0};
        bw_session *session = NULL;
        bw_work work = {count_call, enter, leave, &subject, NULL, true, false};
        bw_work empty = {count_call, enter, leave, &nothing, NULL, true, false};
        if (!OK(bw_session_open(&backend, 0, &session))) return;
        bw_call call = {session, &work, &empty, 1, 0};
        fake.fail_at = fail_at ? 0 : fake.calls + 2; /* of the first timer's measurement */
        fake.fail_code = BW_CODE_UNAVAILABLE;
        bw_status status = bw_measure_call_best(&call, &options, &m);
        if (fail_at) FAILS(status, BW_CODE_INTERRUPTED, "the function raised");
        if (!fail_at) CHECK(OK(status) && m.converged, "nothing was measured");
        CHECK_EQUAL(options.timer, fail_at ? 1 : 0);
        bw_measurement_free(&m);
        bw_session_close(session);
        fake.fail_at = 0;
    }
}

const check call_checks[] = {
    {"a_function_is_flushed", false, a_function_is_flushed},
    {"a_function_on_a_host_is_flushed_each_time", false, a_function_on_a_host_is_flushed_each_time},
    {"a_function_may_rotate", false, a_function_may_rotate},
    {"a_function_that_cannot_be_flushed", false, a_function_that_cannot_be_flushed},
    {"a_function_may_fail", false, a_function_may_fail},
    {"every_call_for_a_function_fails_in_turn", false, every_call_for_a_function_fails_in_turn},
    {"a_function_has_the_best_timer", false, a_function_has_the_best_timer},
    {"a_function_cannot_use_its_own_handle", false, a_function_cannot_use_its_own_handle},
    {NULL, false, NULL},
};
