/* Named ranges: which marks they take, when they are read, what is waited for. The toy's n-th mark is at n us. */
#include "check.h"
#include "measure/ranges.h"

#include <string.h>

typedef struct range_fixture {
    bw_session *session;
    bw_ranges *ranges;
    int64_t outer, inner;
} range_fixture;

static bw_status open_ranges(range_fixture *self, int64_t capacity) {
    *self = (range_fixture){0};
    BW_TRY(bw_session_open(&fake_backend, 0, &self->session));
    BW_TRY(bw_ranges_create(self->session, NULL, capacity, &self->ranges));
    BW_TRY(bw_ranges_add(self->ranges, &self->outer));
    return bw_ranges_add(self->ranges, &self->inner);
}

static void close_ranges(range_fixture *self) {
    bw_ranges_free(self->ranges);
    bw_session_close(self->session);
}

static void expect_times(const range_fixture *self, int64_t id, int64_t count, const double *wanted_us) {
    const bw_range_time *times = self->ranges->names[id].times;
    const int64_t found = self->ranges->names[id].count;
    CHECK_EQUAL(found, count);
    for (int64_t i = 0; i < found && i < count; i++) {
        CHECK(times[i].ns == 1000.0 * wanted_us[i], "time %" PRId64 " is %g us, expected %g", i, times[i].ns / 1e3,
              wanted_us[i]);
    }
}

static void ranges_nest_and_overlap(int op_index) {
    (void)op_index;
    range_fixture o;
    if (OK(open_ranges(&o, 8))) {
        OK(bw_ranges_start(o.ranges, o.outer)); /* 1 */
        OK(bw_ranges_start(o.ranges, o.inner)); /* 2 */
        OK(bw_ranges_start(o.ranges, o.outer)); /* 3: the same name again, inside itself */
        CHECK_EQUAL(bw_ranges_count_running(o.ranges, o.outer), 2);
        OK(bw_ranges_stop(o.ranges, o.outer));  /* 4: of mark 3 */
        OK(bw_ranges_start(o.ranges, o.inner)); /* 5 */
        OK(bw_ranges_stop(o.ranges, o.inner));  /* 6: of mark 5 */
        OK(bw_ranges_stop(o.ranges, o.outer));  /* 7: of mark 1, while inner still runs */
        OK(bw_ranges_stop(o.ranges, o.inner));  /* 8: of mark 2 */
        CHECK_EQUAL(fake.marks_taken, 8);
        FAILS(bw_ranges_stop(o.ranges, o.inner), BW_CODE_INVALID, "not started");
        CHECK_EQUAL(fake.marks_taken, 8);
        OK(bw_ranges_read(o.ranges));
        expect_times(&o, o.outer, 2, (double[]){1, 6});
        expect_times(&o, o.inner, 2, (double[]){1, 6});
        CHECK_EQUAL(bw_ranges_count_running(o.ranges, o.inner), 0);
        bw_ranges_forget(o.ranges);
        expect_times(&o, o.outer, 0, NULL);
    }
    close_ranges(&o);
}

/* Marks of the toy's are whole microseconds, so sums of them are exact, whatever they are counted from. */
static void ranges_know_when_they_began(int op_index) {
    (void)op_index;
    range_fixture o;
    int64_t count = 0, marks = 0;
    if (OK(open_ranges(&o, 8))) {
        o.ranges->records_begins = true;
        fake.marks_taken = 0;
        for (int turn = 0; turn < 3; turn++) {
            OK(bw_ranges_start(o.ranges, o.outer)); /* 1, and 2 s later each turn */
            OK(bw_ranges_start(o.ranges, o.inner)); /* 2 */
            OK(bw_ranges_stop(o.ranges, o.inner));
            fake.marks_taken += 2000000;
            OK(bw_ranges_stop(o.ranges, o.outer)); /* read after inner, which began after it */
            if (turn) OK(bw_ranges_read(o.ranges));
            marks += 2000004;
            CHECK_EQUAL(fake.marks_taken, marks);
        }
        const bw_range_time *inner = o.ranges->names[o.inner].times;
        count = o.ranges->names[o.inner].count;
        CHECK_EQUAL(count, 3);
        double zero = inner[0].begin_ns;
        const bw_range_time *outer = o.ranges->names[o.outer].times;
        count = o.ranges->names[o.outer].count;
        CHECK_EQUAL(count, 3);
        for (int turn = 0; turn < 3 && count == 3; turn++) {
            double wanted = 2000004000.0 * turn;
            CHECK(inner[turn].begin_ns - zero == wanted, "inner %d began at %g", turn, inner[turn].begin_ns - zero);
            CHECK(outer[turn].begin_ns - zero == wanted - 1000.0, "outer %d began at %g", turn,
                  outer[turn].begin_ns - zero);
        }
        CHECK(fake.marks_made == 16, "%" PRId64 " marks", fake.marks_made);
    }
    close_ranges(&o);
}

static void expect_annotations(const char *const *wanted, int count) {
    CHECK_EQUAL(fake.annotation_count, count);
    for (int i = 0; i < count && i < fake.annotation_count; i++) {
        CHECK(!strcmp(fake.annotations[i], wanted[i]), "told %d: %s, expected %s", i, fake.annotations[i], wanted[i]);
    }
}

/* Ranges have the numbers 1, 2, ... of the tellings that began them; those that are dropped end as well. */
static void a_tool_gets_ranges(int op_index) {
    (void)op_index;
    range_fixture o;
    fake.watched = true;
    if (OK(open_ranges(&o, 8))) {
        OK(bw_ranges_set_name(o.ranges, o.outer, "first"));
        OK(bw_ranges_set_name(o.ranges, o.outer, "outer"));
        OK(bw_ranges_start(o.ranges, o.outer));
        o.ranges->names[o.inner].next = (bw_range_bytes){70, 7, true};
        OK(bw_ranges_start(o.ranges, o.inner));
        OK(bw_ranges_stop(o.ranges, o.outer));
        bw_ranges_drop(o.ranges);
        FAILS(bw_ranges_stop(o.ranges, o.inner), BW_CODE_INVALID, "not started");
        expect_annotations((const char *[]){"start outer range -1", "start range range 77", "end 1", "end 2"}, 4);
    }
    close_ranges(&o);
}

static void without_a_tool_nothing_is_annotated(int op_index) {
    (void)op_index;
    for (int hidden = 0; hidden < 2; hidden++) {
        range_fixture o;
        fake.watched = hidden;
        if (OK(open_ranges(&o, 8))) {
            if (hidden) o.ranges->annotations = NULL;
            CHECK(!o.ranges->annotations, "nobody should be told");
            OK(bw_ranges_set_name(o.ranges, o.inner, "inner"));
            OK(bw_ranges_start(o.ranges, o.inner));
            OK(bw_ranges_stop(o.ranges, o.inner));
            CHECK_EQUAL(fake.annotation_count, 0);
        }
        close_ranges(&o);
    }
}

static void run_one(range_fixture *o) {
    OK(bw_ranges_start(o->ranges, o->inner));
    OK(bw_ranges_stop(o->ranges, o->inner));
}

/* A stream that keeps up needs no more marks than there are; one that does not gets more, and is not waited for. */
static void ranges_wait_for_nothing(int op_index) {
    (void)op_index;
    range_fixture o;
    int64_t count = 0;
    if (OK(open_ranges(&o, 4))) {
        for (int i = 0; i < 100; i++) run_one(&o);
        CHECK_EQUAL(fake.marks_made, 8);
        fake.marks_passed = fake.marks_taken;
        for (int i = 0; i < 100; i++) run_one(&o);
        CHECK(fake.marks_made >= 200 && fake.marks_made <= 512, "%" PRId64 " marks", fake.marks_made);
        CHECK_EQUAL(fake.waits, 0);
        OK(bw_ranges_read(o.ranges));
        CHECK(fake.waits > 0, "nothing was waited for in the end");
        count = o.ranges->names[o.inner].count;
        CHECK_EQUAL(count, 200);
        for (int64_t i = 0; i < count; i++) {
            CHECK(o.ranges->names[o.inner].times[i].ns == 1000.0, "an empty range that is not 1 us");
        }
        double floor_ns = 0;
        OK(bw_marks_floor(o.session, NULL, &floor_ns));
        CHECK(floor_ns == 1000.0, "floor %g", floor_ns);
    }
    close_ranges(&o);
}

/* A stream that stands still: no more marks than the limit are made, and there is room again once it has passed some.
 */
static void ranges_have_a_limit(int op_index) {
    (void)op_index;
    range_fixture o;
    int64_t count = 0;
    if (OK(open_ranges(&o, 2))) {
        o.ranges->waiting_limit = 5;
        o.ranges->time_limit = 3;
        fake.marks_passed = 0;
        for (int i = 0; i < 5; i++) run_one(&o);
        FAILS(bw_ranges_start(o.ranges, o.inner), BW_CODE_BUSY, "5 ranges run or wait for their stream");
        CHECK_EQUAL(fake.marks_made, 10);
        OK(bw_ranges_read_passed(o.ranges, 100));
        CHECK_EQUAL(o.ranges->stopped, 5);
        CHECK_EQUAL(o.ranges->settled, 0);
        fake.marks_passed = 4;
        run_one(&o);
        CHECK_EQUAL(o.ranges->settled, 2);
        fake.marks_passed = fake.marks_taken;
        OK(bw_ranges_read_passed(o.ranges, 1));
        CHECK_EQUAL(o.ranges->settled, 3);
        OK(bw_ranges_read_passed(o.ranges, 100));
        CHECK_EQUAL(o.ranges->settled, 6);
        CHECK_EQUAL(fake.waits, 0);
        count = o.ranges->names[o.inner].count;
        CHECK_EQUAL(count, 3);
        bw_range_totals totals = o.ranges->names[o.inner].totals;
        CHECK(totals.count == 6 && totals.sum_ns == 6000.0 && totals.least_ns == 1000.0 && totals.most_ns == 1000.0,
              "%" PRId64 " times, %g ns", totals.count, totals.sum_ns);
        bw_ranges_forget(o.ranges);
        CHECK_EQUAL(o.ranges->names[o.inner].totals.count, 0);
    }
    close_ranges(&o);
}

/* Ranges of 1, 2, ... 8 us, of which three are kept; forgotten once on the way. */
static void the_latest_times_remain(int op_index) {
    (void)op_index;
    range_fixture o;
    int64_t count = 0;
    if (OK(open_ranges(&o, 2))) {
        o.ranges->time_limit = 3;
        for (int us = 1; us <= 16; us++) {
            if (us == 9) bw_ranges_forget(o.ranges);
            OK(bw_ranges_start(o.ranges, o.inner));
            fake.marks_taken += us - 1;
            OK(bw_ranges_stop(o.ranges, o.inner));
            OK(bw_ranges_read(o.ranges));
            const bw_range_time *times = o.ranges->names[o.inner].times;
            count = o.ranges->names[o.inner].count;
            int64_t expected = bw_min64(us < 9 ? us : us - 8, 3);
            CHECK_EQUAL(count, expected);
            for (int64_t i = 0; i < count; i++) {
                CHECK(times[i].ns > 1000.0 * (double)(us - expected), "%g us is kept after one of %d us",
                      times[i].ns / 1e3, us);
            }
        }
    }
    close_ranges(&o);
}

/* At the limit there is no mark for an end: that range never was, and its first mark is free for the next one. */
static void a_range_whose_end_has_no_mark_is_left_out(int op_index) {
    (void)op_index;
    range_fixture o;
    fake.watched = true;
    if (OK(open_ranges(&o, 1))) {
        o.ranges->waiting_limit = 1;
        OK(bw_ranges_start(o.ranges, o.outer)); /* 1 */
        OK(bw_ranges_start(o.ranges, o.inner)); /* 2 */
        FAILS(bw_ranges_stop(o.ranges, o.inner), BW_CODE_BUSY, "this one is left out");
        CHECK_EQUAL(bw_ranges_count_running(o.ranges, o.inner), 0);
        FAILS(bw_ranges_stop(o.ranges, o.inner), BW_CODE_INVALID, "not started");
        OK(bw_ranges_stop(o.ranges, o.outer)); /* 3 */
        OK(bw_ranges_read(o.ranges));
        expect_times(&o, o.outer, 1, (double[]){2});
        expect_times(&o, o.inner, 0, NULL);
        CHECK_EQUAL(o.ranges->stopped, 1);
        expect_annotations((const char *[]){"start range range -1", "start range range -1", "end 2", "end 1"}, 4);
    }
    close_ranges(&o);
}

static bw_status all_of_it(void) {
    range_fixture o;
    bw_status status = open_ranges(&o, 2);
    if (!status) o.ranges->records_begins = true;
    fake.marks_passed = 6;
    for (int i = 0; i < 8 && !status; i++) {
        status = bw_ranges_start(o.ranges, o.inner);
        if (!status) status = bw_ranges_stop(o.ranges, o.inner);
    }
    if (!status) status = bw_ranges_read(o.ranges);
    double floor_ns;
    if (!status) status = bw_marks_floor(o.session, NULL, &floor_ns);
    close_ranges(&o);
    fake.marks_passed = -1;
    fake.marks_taken = 0;
    return status;
}

static void every_call_of_ranges_fails_in_turn(int op_index) {
    (void)op_index;
    for (int64_t at = 1;; at++) {
        fake.calls = 0;
        fake.failed = false;
        fake.fail_at = at;
        fake.fail_code = BW_CODE_DEVICE;
        bw_status status = all_of_it();
        CHECK(!fake.live_marks && !fake.live_devices, "%s left things", fake.failed_call);
        if (!fake.failed) {
            OK(status);
            CHECK(at > 40, "only %" PRId64 " calls were made", at);
            return;
        }
        FAILS(status, BW_CODE_DEVICE, "planned failure");
    }
}

static void every_allocation_of_ranges_fails_in_turn(int op_index) {
    (void)op_index;
    fake_host_memory(0);
    OK(all_of_it());
    int64_t made = fake_host_memory(0);
    for (int64_t at = 1; at <= made; at++) {
        fake_host_memory(at);
        bw_status status = all_of_it();
        fake_host_memory(0);
        FAILS(status, BW_CODE_MEMORY, "memory");
        CHECK(!fake.live_marks && !fake.live_devices, "allocation %" PRId64 " left things", at);
    }
    CHECK(made > 8, "%" PRId64 " allocations", made);
}

/* A range that cannot be read is dropped; the others have their times, and it can go on. */
static void ranges_survive_a_failure(int op_index) {
    (void)op_index;
    range_fixture o;
    int64_t count;
    if (OK(open_ranges(&o, 4))) {
        for (int i = 0; i < 3; i++) run_one(&o);
        fake.fail_at = fake.calls + 2;
        fake.fail_code = BW_CODE_DEVICE;
        FAILS(bw_ranges_read(o.ranges), BW_CODE_DEVICE, "planned failure");
        count = o.ranges->names[o.inner].count;
        CHECK_EQUAL(count, 2);
        for (int i = 0; i < 20; i++) run_one(&o);
        OK(bw_ranges_read(o.ranges));
        count = o.ranges->names[o.inner].count;
        CHECK_EQUAL(count, 22);
        CHECK_EQUAL(fake.marks_made, 8);
    }
    close_ranges(&o);
}

/* As many marks as were asked for, however often the backend had none to give. */
static void ranges_survive_a_lack_of_marks(int op_index) {
    (void)op_index;
    range_fixture o;
    int64_t count;
    if (OK(open_ranges(&o, 2))) {
        fake.marks_passed = 0;
        for (int i = 0; i < 2; i++) run_one(&o);
        CHECK_EQUAL(fake.marks_made, 4);
        for (int i = 0; i < 5; i++) {
            fake.fail_at = fake.calls + 2; /* behind the question whether the stream has passed a mark */
            fake.fail_code = BW_CODE_MEMORY;
            FAILS(bw_ranges_start(o.ranges, o.inner), BW_CODE_MEMORY, "planned failure");
        }
        for (int i = 0; i < 2; i++) run_one(&o);
        CHECK_EQUAL(fake.marks_made, 8);
        OK(bw_ranges_read(o.ranges));
        count = o.ranges->names[o.inner].count;
        CHECK_EQUAL(count, 4);
    }
    close_ranges(&o);
}

static void a_backend_without_marks(int op_index) {
    (void)op_index;
    bw_session *session = NULL;
    bw_ranges *ranges = NULL;
    bw_backend without = fake_backend;
    without.marks = NULL;
    if (!OK(bw_session_open(&without, 0, &session))) return;
    FAILS(bw_ranges_create(session, NULL, 1, &ranges), BW_CODE_UNSUPPORTED, "the toy backend takes no marks");
    bw_session_close(session);
}

const check ranges_checks[] = {
    {"ranges_nest_and_overlap", false, ranges_nest_and_overlap},
    {"ranges_know_when_they_began", false, ranges_know_when_they_began},
    {"a_tool_gets_ranges", false, a_tool_gets_ranges},
    {"without_a_tool_nothing_is_annotated", false, without_a_tool_nothing_is_annotated},
    {"ranges_wait_for_nothing", false, ranges_wait_for_nothing},
    {"ranges_have_a_limit", false, ranges_have_a_limit},
    {"the_latest_times_remain", false, the_latest_times_remain},
    {"a_range_whose_end_has_no_mark_is_left_out", false, a_range_whose_end_has_no_mark_is_left_out},
    {"every_call_of_ranges_fails_in_turn", false, every_call_of_ranges_fails_in_turn},
    {"every_allocation_of_ranges_fails_in_turn", false, every_allocation_of_ranges_fails_in_turn},
    {"ranges_survive_a_failure", false, ranges_survive_a_failure},
    {"ranges_survive_a_lack_of_marks", false, ranges_survive_a_lack_of_marks},
    {"a_backend_without_marks", false, a_backend_without_marks},
    {NULL, false, NULL},
};
