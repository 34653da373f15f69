/* Which variant a case gets, and how a missing library gives way to the next row. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check.h"

static void expect_variant(const char *requested, const char *wanted) {
    fixture f;
    bw_dims dims = {.value = {100}};
    if (OK(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, requested))) {
        CHECK(strcmp(bw_case_choice(f.content)->variant->name, wanted) == 0, "%s, expected %s",
              bw_case_choice(f.content)->variant->name, wanted);
    }
    close_case(&f);
}

static void the_last_supported_row_is_the_default(int op_index) {
    (void)op_index;
    fake.rows = 3;
    expect_variant(NULL, "library");
    expect_variant("plain", "plain");
    fake.refusing[2] = true;
    expect_variant(NULL, "middle");
    fake.refusing[2] = false;
    fake.preferring[0] = true;
    expect_variant(NULL, "plain");
    fake.refusing[0] = true;
    expect_variant(NULL, "library");
}

static void refusals_say_why(int op_index) {
    (void)op_index;
    fixture f;
    bw_dims dims = {.value = {100}};
    fake.rows = 3;
    FAILS(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, "fastest"), BW_CODE_INVALID, "plain, middle, library");
    close_case(&f);
    fake.refusing[0] = fake.refusing[1] = fake.refusing[2] = true;
    FAILS(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, NULL), BW_CODE_UNSUPPORTED,
          "plain: this row refuses everything; middle: this row");
    close_case(&f);
    FAILS(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, "middle"), BW_CODE_UNSUPPORTED,
          "'middle' does not run");
    close_case(&f);
    fake.rows = 0;
    FAILS(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, NULL), BW_CODE_UNSUPPORTED, "no kernels for it");
    close_case(&f);
}

static void measure_steps_down(const char *wanted, const char *note, const char *second_note) {
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    if (OK(open_copy(&f, 1024)) && OK(bw_measure(f.content, &options, &m))) {
        const bw_choice *found = bw_case_choice(f.content);
        CHECK(strcmp(found->variant->name, wanted) == 0, "%s, expected %s", found->variant->name, wanted);
        CHECK(strstr(found->note, note) && strstr(found->note, second_note), "'%s' should mention '%s' and '%s'",
              found->note, note, second_note);
        CHECK(m.verdict.verified, "%s", m.verdict.reason);
    }
    bw_measurement_free(&m);
    close_case(&f);
}

/* The middle row's own form of its inputs is made for every set, and again where a caller's replace them or go. */
static void changed_inputs_are_transformed_anew(int op_index) {
    (void)op_index;
    fixture f;
    float own[100] = {7.0f};
    const bw_dims dims = {.value = {100}};
    const bw_case_arrays given = {.in = {own}}, none = {.launch = true};
    const bw_measure_options options = usual_options();
    bw_measurement m;
    fake.rows = 2;
    if (OK(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, NULL)) && OK(bw_case_ready(f.content, 3))) {
        const uint32_t generated = fake.transformed;
        CHECK_EQUAL(fake.transforms, 3);
        CHECK(OK(bw_case_run(f.content, &given)) && fake.transformed == 0x40e00000u, "not the caller's: 7.0");
        CHECK_EQUAL(fake.transforms, 4);
        CHECK(OK(bw_case_run(f.content, &none)) && fake.transformed == generated, "not the generated ones");
        CHECK(OK(bw_case_run(f.content, &none)) && fake.transforms == 5, "transformed for nothing");
        fake.launch_ns = 5e6;
        if (OK(bw_measure(f.content, &options, &m))) CHECK(m.transform_ns == 5e6, "it took %g", m.transform_ns);
        bw_measurement_free(&m);
    }
    close_case(&f);
    fake.rows = 1;
    if (OK(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, NULL)) && OK(bw_measure(f.content, &options, &m))) {
        CHECK(isnan(m.transform_ns), "%g without a transform", m.transform_ns);
        bw_measurement_free(&m);
    }
    close_case(&f);
}

static void a_missing_library_steps_down(int op_index) {
    (void)op_index;
    fake.rows = 3;
    measure_steps_down("library", "", "");
    fake.missing[2] = true;
    measure_steps_down("middle", "variant library passed over: library 2 is not installed", "");
    fake.missing[1] = true;
    measure_steps_down("plain", "library 2 is not installed", "library 1 is not installed");
}

/* A preferred row that is missing gives way to the one that would have been the default without it. */
static void a_missing_preferred_row_steps_down(int op_index) {
    (void)op_index;
    fake.rows = 3;
    fake.preferring[0] = fake.missing[0] = true;
    measure_steps_down("library", "variant plain passed over", "");
}

static void nothing_stands_in_for_a_named_variant(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_dims dims = {.value = {100}};
    fake.rows = 3;
    fake.missing[2] = true;
    if (OK(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, "library"))) {
        FAILS(bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict), BW_CODE_UNAVAILABLE,
              "library 2 is not installed");
    }
    close_case(&f);
    fake.missing[0] = fake.missing[1] = true;
    if (OK(open_case(&f, "stream_copy", BW_PRECISION_FP32, &dims, NULL))) {
        FAILS(bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict), BW_CODE_UNAVAILABLE, "is not installed");
        /* And again: nothing is left half done. */
        FAILS(bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict), BW_CODE_UNAVAILABLE, "is not installed");
    }
    close_case(&f);
}

/* The row that steps in has another footprint, so it needs another number of sets: 8 KiB touched and 56 KiB of scratch
 * are 64 KiB, of which 4 make 4 x 64 KiB; the library would have taken 32 sets of 8 KiB. */
static void the_rotation_follows_the_variant(int op_index) {
    (void)op_index;
    for (int tight = 0; tight < 2; tight++) {
        fixture f;
        bw_measurement m = {0};
        bw_measure_options options = usual_options();
        fake_reset();
        fake.rows = 3;
        fake.missing[2] = true;
        fake.scratch[1] = 56 * 1024;
        fake.workspace[2] = 1024;
        fake.cache_bytes = 64 * 1024;
        if (tight) fake.memory_bytes = 1 << 20; /* 32 sets of 64 KiB are 2 MiB */
        if (OK(open_copy(&f, 1024)) && OK(bw_measure(f.content, &options, &m))) {
            CHECK(strcmp(bw_case_choice(f.content)->variant->name, "middle") == 0, "%s",
                  bw_case_choice(f.content)->variant->name);
            CHECK_EQUAL(m.rotation.sets, 4);
            CHECK_EQUAL(fake.last_plan.set_count, 4);
            CHECK(m.rotation.cold, "%s", m.rotation.note);
        }
        bw_measurement_free(&m);
        close_case(&f);
    }
}

/* Prepared once per layout, released before the next; a second measurement needs no new one. */
/* `prepare` finds a plan with less scratch: 8 KiB touched and 8 KiB of scratch need 16 sets, where 56 KiB would need 4.
 */
static void the_rotation_follows_the_plan(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    fake.rows = 1;
    fake.scratch[0] = fake.largest_scratch = 56 * 1024;
    fake.found_scratch = 8 * 1024;
    fake.cache_bytes = 64 * 1024;
    if (OK(open_copy(&f, 1024))) {
        CHECK_EQUAL(bw_case_choice(f.content)->cost.footprint_bytes, 64 * 1024);
        if (OK(bw_measure(f.content, &options, &m))) {
            const bw_choice *found = bw_case_choice(f.content);
            CHECK_EQUAL(found->cost.footprint_bytes, 16 * 1024);
            CHECK_EQUAL(found->cost.algorithmic_bytes_read - found->cost.bytes_read, 8 * 1024);
            CHECK_EQUAL(found->layout.set_bytes, 64 * 1024);
            CHECK(found->note[0] == '\0', "'%s'", found->note);
            CHECK_EQUAL(m.rotation.sets, 16);
            CHECK_EQUAL(fake.last_plan.set_count, 16);
            CHECK_EQUAL(fake.prepared[0], 2);
        }
    }
    bw_measurement_free(&m);
    close_case(&f);
}

static void prepared_once(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    fake.cache_bytes = 64 * 1024;
    if (OK(open_copy(&f, 1024))) {
        for (int i = 0; i < 2; i++) {
            OK(bw_measure(f.content, &options, &m));
            bw_measurement_free(&m);
        }
        CHECK_EQUAL(fake.prepared[0], 1);
        options.cache = BW_CACHE_HOT;
        OK(bw_measure(f.content, &options, &m));
        bw_measurement_free(&m);
        CHECK_EQUAL(fake.prepared[0], 2);
        CHECK_EQUAL(fake.live_states, 1);
        CHECK_EQUAL(fake.live_allocations, 1);
    }
    close_case(&f);
}

/* `prepare` hears of it and nothing but that launch runs; the next one needs no new state. */
static void launched_once(int op_index) {
    (void)op_index;
    fixture f;
    if (OK(open_copy(&f, 1024))) {
        for (int i = 1; i <= 2; i++) {
            OK(bw_case_launch_once(f.content));
            CHECK_EQUAL(fake.launches, i);
            CHECK_EQUAL(fake.prepared[0], 1);
            CHECK_EQUAL(fake.prepared_once, 1);
            CHECK_EQUAL(fake.plans, 0);
        }
    }
    close_case(&f);
}

/* What a single launch left is of no use to anything else, not even with the same number of sets. */
static void prepared_again_after_once(int op_index) {
    (void)op_index;
    fixture f;
    bw_verdict verdict;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    options.cache = BW_CACHE_HOT;
    for (int measured = 0; measured < 2; measured++) {
        fake_reset();
        if (OK(open_copy(&f, 1024)) && OK(bw_case_launch_once(f.content))) {
            OK(measured ? bw_measure(f.content, &options, &m) : bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict));
            bw_measurement_free(&m);
            CHECK_EQUAL(f.content->buffers.set_count, 1);
            CHECK_EQUAL(fake.prepared[0], 2);
            CHECK_EQUAL(fake.prepared_once, 1);
            /* The other way round: what was prepared in full serves a single launch too. */
            int64_t launches = fake.launches;
            OK(bw_case_launch_once(f.content));
            CHECK_EQUAL(fake.launches, launches + 1);
            CHECK_EQUAL(fake.prepared[0], 2);
        }
        close_case(&f);
    }
}

static void a_missing_library_steps_down_for_one_launch(int op_index) {
    (void)op_index;
    fixture f;
    fake.rows = 3;
    fake.missing[2] = true;
    if (OK(open_copy(&f, 1024)) && OK(bw_case_launch_once(f.content))) {
        CHECK(strcmp(bw_case_choice(f.content)->variant->name, "middle") == 0, "%s",
              bw_case_choice(f.content)->variant->name);
        CHECK_EQUAL(fake.launches, 1);
        CHECK_EQUAL(fake.prepared_once, 1);
    }
    close_case(&f);
}

/* A case that others look at while it steps down. Each row says by what follows from it which one it is. */
static bw_case *looked_at;
static _Atomic int looks;

static void look(void) {
    static const char *const names[FAKE_ROWS] = {"plain", "middle", "library"};
    static const char *const notes[FAKE_ROWS] = {"variant middle passed over", "variant library passed over", ""};
    const bw_choice *found = bw_case_choice(looked_at);
    looks++;
    int row = (int)(found->workspace_bytes / 100) - 1;
    CHECK(strcmp(found->variant->name, names[row]) == 0, "%s", found->variant->name);
    CHECK(strstr(found->note, notes[row]) && (row < 2 || !*found->note), "%s: '%s'", found->variant->name, found->note);
    CHECK_EQUAL(found->cost.algorithmic_bytes_read - found->cost.bytes_read, fake.scratch[row]);
    CHECK_EQUAL(found->layout.set_bytes, 2 * 4096 + fake.scratch[row]);
}

static void *look_on(void *stop) {
    while (!atomic_load((_Atomic bool *)stop)) look();
    return NULL;
}

static void a_step_down_is_seen_whole(int op_index) {
    (void)op_index;
    fixture f;
    pthread_t other;
    _Atomic bool stop = false;
    fake.rows = FAKE_ROWS;
    fake.missing[1] = fake.missing[2] = true;
    for (int row = 0; row < FAKE_ROWS; row++) {
        fake.scratch[row] = 256 * (row + 1);
        fake.workspace[row] = 100 * (row + 1);
    }
    if (OK(open_copy(&f, 1024))) {
        looked_at = f.content;
        CHECK(pthread_create(&other, NULL, look_on, &stop) == 0, "no second thread");
        while (looks < 10) sched_yield();
        fake.meanwhile = look;
        OK(bw_case_ready(f.content, 1));
        fake.meanwhile = NULL;
        for (int before = looks; looks < before + 10;) sched_yield();
        atomic_store(&stop, true);
        pthread_join(other, NULL);
        CHECK(strcmp(bw_case_choice(f.content)->variant->name, "plain") == 0, "%s",
              bw_case_choice(f.content)->variant->name);
        looked_at = NULL;
    }
    close_case(&f);
}

const check variant_checks[] = {
    {"changed_inputs_are_transformed_anew", false, changed_inputs_are_transformed_anew},
    {"the_last_supported_row_is_the_default", false, the_last_supported_row_is_the_default},
    {"refusals_say_why", false, refusals_say_why},
    {"a_missing_library_steps_down", false, a_missing_library_steps_down},
    {"a_missing_preferred_row_steps_down", false, a_missing_preferred_row_steps_down},
    {"nothing_stands_in_for_a_named_variant", false, nothing_stands_in_for_a_named_variant},
    {"the_rotation_follows_the_variant", false, the_rotation_follows_the_variant},
    {"the_rotation_follows_the_plan", false, the_rotation_follows_the_plan},
    {"prepared_once", false, prepared_once},
    {"launched_once", false, launched_once},
    {"prepared_again_after_once", false, prepared_again_after_once},
    {"a_step_down_is_seen_whole", false, a_step_down_is_seen_whole},
    {"a_missing_library_steps_down_for_one_launch", false, a_missing_library_steps_down_for_one_launch},
    {NULL, false, NULL},
};
