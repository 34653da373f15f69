/* What a tool that watches the process is told of cases. */
#include "check.h"

#include <string.h>

static void expect_annotations(const char *const *wanted, int count) {
    CHECK_EQUAL(fake.annotation_count, count);
    for (int i = 0; i < count && i < fake.annotation_count; i++) {
        CHECK(!strcmp(fake.annotations[i], wanted[i]), "told %d: %s, expected %s", i, fake.annotations[i], wanted[i]);
    }
}

/* 1000 floats are read and written: 8000 bytes. Samples alone are in the case's range. */
static void samples_lie_in_ranges(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    fake.watched = true;
    if (OK(open_copy(&f, 1000))) {
        bw_case_set_label(f.content, "my copy");
        OK(bw_measure(f.content, &options, &m));
        expect_annotations(
            (const char *[]){"push case stream_copy -1", "push verify stream_copy -1", "pop",
                             "push warmup stream_copy -1", "pop", "push verify stream_copy -1", "pop", "pop"},
            8);
        CHECK(fake.annotated_replays < fake.replays, "%" PRId64 " of %" PRId64 " replays", fake.annotated_replays,
              fake.replays);
        CHECK_EQUAL(fake.annotated_replays, m.statistics.count);
        CHECK_EQUAL(fake.replay_annotations.count, 2);
        CHECK_EQUAL(fake.replay_annotations.range[0].bytes, 8000);
        CHECK_EQUAL(fake.replay_annotations.range[1].bytes, 8000);
        CHECK(!strcmp(fake.replay_name, "my copy fp32 plain"), "told '%s'", fake.replay_name);
    }
    bw_measurement_free(&m);
    close_case(&f);
}

static void a_launch_lies_in_ranges(int op_index) {
    (void)op_index;
    fixture f;
    fake.watched = true;
    if (OK(open_copy(&f, 1000)) && OK(bw_case_launch_once(f.content))) {
        expect_annotations((const char *[]){"push case stream_copy -1", "push stream_copy fp32 plain stream_copy 8000",
                                            "push measure stream_copy 8000", "pop", "pop", "pop"},
                           6);
    }
    close_case(&f);
}

/* What goes wrong leaves no range open. */
static void ranges_end_where_a_case_fails(int op_index) {
    (void)op_index;
    for (int64_t fail_at = 1; fail_at <= 40; fail_at++) {
        fixture f;
        bw_measurement m = {0};
        bw_measure_options options = usual_options();
        int open = 0;
        fake_reset();
        fake.watched = true;
        if (OK(open_copy(&f, 1000))) {
            fake.calls = 0;
            fake.fail_at = fail_at;
            fake.fail_code = BW_CODE_DEVICE;
            bw_status_free(bw_measure(f.content, &options, &m));
            CHECK(fake.failed, "call %" PRId64 " was never made", fail_at);
            for (int i = 0; i < fake.annotation_count; i++) open += strcmp(fake.annotations[i], "pop") ? 1 : -1;
            CHECK(open == 0, "call %" PRId64 ", %s: %d left open", fail_at, fake.failed_call, open);
        }
        bw_measurement_free(&m);
        close_case(&f);
    }
}

static void a_name_may_be_long(int op_index) {
    (void)op_index;
    fixture f;
    bw_case_annotation annotations;
    char name[2000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    fake.watched = true;
    if (OK(open_copy(&f, 1000))) {
        bw_case_set_label(f.content, name);
        bw_case_annotate(f.content, &annotations);
        CHECK_EQUAL(strspn(annotations.name, "x"), BW_CASE_NAME_SIZE - 1);
        CHECK(strstr(annotations.name, " fp32 plain"), "told '%s'", annotations.name);
    }
    close_case(&f);
}

/* Neither without a tool nor where none should be told. */
static void a_hidden_case_has_no_annotations(int op_index) {
    (void)op_index;
    for (int hidden = 0; hidden < 2; hidden++) {
        fixture f;
        bw_measurement m = {0};
        bw_measure_options options = usual_options();
        fake_reset();
        fake.watched = hidden;
        if (OK(open_copy(&f, 1000))) {
            if (hidden) bw_case_set_label(f.content, NULL);
            OK(bw_case_launch_once(f.content));
            OK(bw_measure(f.content, &options, &m));
            CHECK_EQUAL(fake.annotation_count, 0);
            CHECK_EQUAL(fake.annotated_replays, 0);
        }
        bw_measurement_free(&m);
        close_case(&f);
    }
}

const check annotation_checks[] = {
    {"samples_lie_in_ranges", false, samples_lie_in_ranges},
    {"a_launch_lies_in_ranges", false, a_launch_lies_in_ranges},
    {"ranges_end_where_a_case_fails", false, ranges_end_where_a_case_fails},
    {"a_name_may_be_long", false, a_name_may_be_long},
    {"a_hidden_case_has_no_annotations", false, a_hidden_case_has_no_annotations},
    {NULL, false, NULL},
};
