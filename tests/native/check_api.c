/* The C library on the toy backend: what a tool that watches is told of its ranges, and memory that ends in the middle.
 */
#include "check.h"

#include <bwprof.h>
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api.h"

static void ranges_of_the_library_have_names(int op_index) {
    (void)op_index;
    bwprof_profiler *profiler = NULL;
    fake.watched = true;
    CHECK_EQUAL(bwprof_profiler_create("toy", 0, &profiler), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_start(profiler, "outer", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_set_bytes(profiler, "größe", 3, 4), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_start(profiler, "größe", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_stop(profiler, "outer", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_stop(profiler, "größe", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_destroy(profiler), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_create("toy", 0, &profiler), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_set_bytes(profiler, "outer", UINT64_MAX, 2), BWPROF_OK); /* no payload holds that */
    CHECK_EQUAL(bwprof_profiler_start(profiler, "outer", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_destroy(profiler), BWPROF_OK);
    const char *const wanted[] = {"start outer range -1", "start größe range 7", "end 1", "end 2",
                                  "start outer range -1"};
    CHECK_EQUAL(fake.annotation_count, 5);
    for (int i = 0; i < 5; i++) CHECK(strcmp(fake.annotations[i], wanted[i]) == 0, "told '%s'", fake.annotations[i]);
}

typedef struct visitor {
    bwprof_profiler *profiler;
    pthread_t self;
    bwprof_status stop;
    bool begins; /* and ends nothing */
} visitor;

static void *visit_profiler(void *context) {
    visitor *self = context;
    self->self = pthread_self();
    if (self->begins) {
        CHECK_EQUAL(bwprof_profiler_start(self->profiler, "gemm", NULL), BWPROF_OK);
    } else {
        self->stop = bwprof_profiler_stop(self->profiler, "gemm", NULL);
    }
    return NULL;
}

static void visit_in_a_thread(visitor *visitor) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, visit_profiler, visitor)) abort();
    pthread_join(thread, NULL);
}

/* The system gives a thread's number to another one when it has ended; its ranges it does not. */
static void ranges_end_with_their_thread(int op_index) {
    (void)op_index;
    enum { TRIES = 100 };
    bwprof_profiler *profiler = NULL;
    int64_t count = -1;
    int seen = 0;
    CHECK_EQUAL(bwprof_profiler_create("toy", 0, &profiler), BWPROF_OK);
    for (int i = 0; i < TRIES && !seen; i++) {
        visitor first = {profiler, .begins = true}, second = {profiler, .stop = -1};
        visit_in_a_thread(&first);
        visit_in_a_thread(&second);
        CHECK_EQUAL(second.stop, BWPROF_INVALID);
        seen += pthread_equal(first.self, second.self) != 0;
    }
    CHECK(seen, "no thread had another one's number in %d tries", TRIES);
    CHECK_EQUAL(bwprof_profiler_count(profiler, "gemm", &count), BWPROF_OK);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(bwprof_profiler_destroy(profiler), BWPROF_OK);
}

static int do_nothing(void *user, int64_t set) {
    (void)user, (void)set;
    return 0;
}

/* Of several devices: what bwprof makes current is not what the caller's next launch goes to. */
static void the_callers_device_stays_current(int op_index) {
    (void)op_index;
    bwprof_profiler *profiler = NULL;
    bwprof_report report;
    bwprof_measurement found;
    bwprof_measure_options options = {.backend = "toy", .bytes_read = 1000};
    FILE *away = fopen("/dev/null", "w");
    fake.launch_ns = 2e6;
    fake.seed = 0;
    fake.current = 3;
    CHECK_EQUAL(bwprof_profile_gemm_bandwidth(3, 5, 7, 1, &report), BWPROF_OK);
    CHECK_EQUAL(fake.current, 3);
    CHECK_EQUAL(bwprof_measure(do_nothing, NULL, NULL, &options, &found), BWPROF_OK);
    CHECK_EQUAL(fake.current, 3);
    CHECK_EQUAL(bwprof_profiler_create("toy", 0, &profiler), BWPROF_OK);
    CHECK_EQUAL(fake.current, 3);
    options = (bwprof_measure_options){.profiler = profiler};
    CHECK_EQUAL(bwprof_measure(do_nothing, NULL, NULL, &options, &found), BWPROF_OK);
    CHECK_EQUAL(fake.current, 3);
    CHECK_EQUAL(bwprof_profiler_start(profiler, "gemm", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_stop(profiler, "gemm", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_print_report(profiler, away), BWPROF_OK);
    CHECK_EQUAL(fake.current, 3);
    CHECK_EQUAL(bwprof_profiler_destroy(profiler), BWPROF_OK);
    CHECK_EQUAL(fake.current, 3);
    fclose(away);
}

/* One name more than the others: beyond what each list of names has room for at first. */
enum { NAMES = 33 };

/* A range of the toy's lasts 1 us, and a thousand bytes in it are 1 GB/s. */
static bool is_right(bwprof_profiler *profiler, const char *name, int i, bool known, int *refused) {
    double gb_s;
    bwprof_status answer = bwprof_profiler_bandwidth_gb_s(profiler, name, &gb_s);
    if (answer == BWPROF_MEMORY) ++*refused;
    if (answer == BWPROF_MEMORY) return true;
    return known ? answer == BWPROF_OK && fabs(gb_s - i - 0.001) < 1e-9 : answer == BWPROF_UNKNOWN;
}

/* All that was asked for and not refused must be there, whatever was refused in between; a time that could not be kept
 * has made the reading that dropped it fail. */
static bwprof_status use_names(int *refused) {
    bwprof_profiler *profiler = NULL;
    char name[NAMES][32];
    bool marked[NAMES] = {false}, has_bytes[NAMES] = {false};
    int unread = 0, wrong = 0;
    bwprof_status status = bwprof_profiler_create(NULL, 0, &profiler);
    if (status) return status;
    for (int i = 0; i < NAMES; i++) {
        snprintf(name[i], sizeof name[i], "name %d", i);
        marked[i] = bwprof_profiler_start(profiler, name[i], NULL) == BWPROF_OK;
        bwprof_status stopped = bwprof_profiler_stop(profiler, name[i], NULL);
        CHECK(!marked[i] || stopped == BWPROF_OK, "stopping %s gave %d: %s", name[i], stopped, bwprof_last_error());
        has_bytes[i] = bwprof_profiler_set_bytes(profiler, name[i], 1000u * (unsigned)i, 1) == BWPROF_OK;
        *refused += !marked[i] + !has_bytes[i];
    }
    for (int i = 0; i < NAMES; i++) wrong += !is_right(profiler, name[i], i, marked[i] && has_bytes[i], &unread);
    CHECK(wrong <= unread, "%d of %d names are wrong: %s", wrong, NAMES, bwprof_last_error());
    *refused += unread;
    return bwprof_profiler_destroy(profiler);
}

static void memory_ends_among_names(int op_index) {
    (void)op_index;
    int refused = 0;
    CHECK_EQUAL(use_names(&refused), BWPROF_OK);
    CHECK_EQUAL(refused, 0);
    fake_host_memory(0);
    CHECK_EQUAL(use_names(&refused), BWPROF_OK);
    int64_t made = fake_host_memory(0);
    CHECK(made > 20, "%" PRId64 " allocations", made);
    for (int64_t at = 1; at <= made; at++) {
        refused = 0;
        fake_host_memory(at);
        bwprof_status status = use_names(&refused);
        fake_host_memory(0);
        CHECK(refused > 0 || status == BWPROF_MEMORY, "allocation %" PRId64 " of %" PRId64 ": nothing was refused", at,
              made);
    }
}

static void expect_report(const bwprof_report *found, const char *operation, const char *precision, int64_t read,
                          int64_t written) {
    CHECK(strcmp(found->operation, operation) == 0, "it is %s", found->operation);
    CHECK(strcmp(found->precision, precision) == 0, "it is %s", found->precision);
    CHECK_EQUAL(found->bytes_read, read);
    CHECK_EQUAL(found->bytes_written, written);
    CHECK(found->time_ms == fake.launch_ns / 1e6, "%g ms", found->time_ms);
    double gb_s = (double)(read + written) / fake.launch_ns;
    CHECK(fabs(found->bandwidth_gb_s / gb_s - 1) < 1e-12, "%g GB/s, expected %g", found->bandwidth_gb_s, gb_s);
}

static void kernels_have_reports(int op_index) {
    (void)op_index;
    bwprof_report found;
    fake.launch_ns = 2e6;
    fake.seed = 0; /* of what the library generates */
    CHECK_EQUAL(bwprof_profile_gemm_bandwidth(3, 5, 7, 1, &found), BWPROF_OK);
    expect_report(&found, "gemm", "FP16", (3 * 7 + 5 * 7) * 2, 3 * 5 * 2);
    CHECK_EQUAL(bwprof_profile_attention_bandwidth(2, 5, 3, 8, 0, &found), BWPROF_OK);
    expect_report(&found, "attention_prefill", "FP32", 3 * 2 * 5 * 3 * 8 * 4, 2 * 5 * 3 * 8 * 4);
    CHECK_EQUAL(bwprof_profile_kv_cache_bandwidth(2, 5, 2, 8, 1, &found), BWPROF_OK);
    expect_report(&found, "kv_append", "FP16", 2 * 2 * 5 * 2 * 8 * 2 + 2 * 5 * 8, 2 * 2 * 5 * 2 * 8 * 2); /* slot ids */
    fake.plant = FAKE_NAN;
    CHECK_EQUAL(bwprof_profile_gemm_bandwidth(3, 5, 7, 1, &found), BWPROF_DEVICE);
    CHECK(strstr(bwprof_last_error(), "gemm fp16: "), "it says %s", bwprof_last_error());
    CHECK(isnan(found.time_ms) && !found.operation[0], "a report of a wrong result: %s", found.operation);
}

static void a_report_fails_by_every_call_and_allocation(int op_index) {
    (void)op_index;
    bwprof_report found;
    fake.cache_bytes = 1 << 10; /* few sets */
    fake.launch_ns = 2e6;
    fake.seed = 0; /* of what the library generates */
    fake.fail_code = BW_CODE_DEVICE_LOST;
    fake.failed = true;
    int64_t at = 1; /* which looks for a backend with a device, and goes on to the next one */
    while (fake.failed) {
        fake.calls = 0;
        fake.failed = false;
        fake.fail_at = ++at;
        bwprof_status status = bwprof_profile_gemm_bandwidth(3, 5, 7, 1, &found);
        CHECK(status == (fake.failed ? BWPROF_DEVICE_LOST : BWPROF_OK), "%d after %s", status, fake.failed_call);
        CHECK(isnan(found.time_ms) == fake.failed, "%g ms", found.time_ms);
    }
    CHECK(at > 20, "%" PRId64 " calls", at);
    fake.fail_at = 0;
    fake_host_memory(0);
    CHECK_EQUAL(bwprof_profile_gemm_bandwidth(3, 5, 7, 1, &found), BWPROF_OK);
    int64_t made = fake_host_memory(0);
    CHECK(made > 5, "%" PRId64 " allocations", made);
    for (int64_t at = 1; at <= made; at++) {
        fake_host_memory(at);
        CHECK_EQUAL(bwprof_profile_gemm_bandwidth(3, 5, 7, 1, &found), BWPROF_MEMORY);
        fake_host_memory(0);
    }
}

/* ---- bundles ---- */

#define BUNDLE ".test-results/bandwidth/run"

/* So many reports, each with its number as its bytes; -1: something else. */
static int reports_there(void) {
    static char text[1 << 16];
    FILE *file = fopen(BUNDLE "/bandwidth_report.json", "r");
    if (!file) return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    fclose(file);
    int count = 0;
    for (const char *at = text; (at = strstr(at, "\"bytes_read\": ")); count++) {
        if (atoi(at += strlen("\"bytes_read\": ")) != count) return -1;
    }
    return size && text[size - 1] == '\n' ? count : -1;
}

static int files_there(void) {
    DIR *folder = opendir(BUNDLE);
    int count = 0;
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count - 2;
}

/* The file has all reports, or those from before; nothing is left beside it. */
static void memory_ends_in_a_bundle(int op_index) {
    (void)op_index;
    bwprof_report report = {"gemm", "FP16", 0.5, 4.0, 0, 2};
    char home[4096], folder[] = "/tmp/bwprof-bundle-XXXXXX";
    if (!getcwd(home, sizeof home) || !mkdtemp(folder) || chdir(folder) != 0) {
        CHECK(false, "no folder of its own");
        return;
    }
    int refused = 0;
    for (int64_t at = 1; report.bytes_read < 4; at++) {
        fake_host_memory(at);
        bwprof_status status = bwprof_report_save_to_proof_bundle(&report, "run");
        int64_t made = fake_host_memory(0);
        if (status == BWPROF_OK) report.bytes_read++;
        CHECK(status == BWPROF_OK || status == BWPROF_MEMORY, "allocation %" PRId64 " of %" PRId64 ": %d, %s", at, made,
              status, bwprof_last_error());
        CHECK_EQUAL(reports_there(), report.bytes_read);
        CHECK_EQUAL(files_there(), report.bytes_read > 0);
        refused += status == BWPROF_MEMORY;
        if (status == BWPROF_OK) at = 0;
    }
    CHECK(refused > 9, "%d times", refused);
    unlink(BUNDLE "/bandwidth_report.json");
    CHECK(rmdir(BUNDLE) == 0 && rmdir(".test-results/bandwidth") == 0 && rmdir(".test-results") == 0, "left in %s",
          folder);
    CHECK(chdir(home) == 0 && rmdir(folder) == 0, "%s stays", folder);
}

/* A file is whole, or not there, which the answer says; a number that is not known is NaN. */
static void memory_ends_while_ranges_are_annotated(int op_index) {
    (void)op_index;
    static bwprof_status (*const write[])(bwprof_profiler *, const char *) = {bwprof_profiler_write_csv,
                                                                              bwprof_profiler_write_json};
    static const char *const third[] = {"\nc,1,", "{\"range\": \"c\""}, *const end[] = {"\n", "]\n}\n"};
    bwprof_profiler *profiler = NULL;
    char path[] = "/tmp/bwprof-told-XXXXXX", text[4096];
    int file = mkstemp(path), refused = 0;
    CHECK(file >= 0 && close(file) == 0, "no file of its own");
    CHECK_EQUAL(bwprof_profiler_create(NULL, 0, &profiler), BWPROF_OK);
    for (int i = 0; i < 3; i++) {
        const char *name = (const char *[]){"a", "b", "c"}[i];
        CHECK_EQUAL(bwprof_profiler_start(profiler, name, NULL), BWPROF_OK);
        CHECK_EQUAL(bwprof_profiler_stop(profiler, name, NULL), BWPROF_OK);
    }
    for (int how = 0; how < 3; how++) {
        bwprof_status status = BWPROF_MEMORY;
        for (int64_t at = 1; status; at++) {
            double ms = 7.0;
            unlink(path);
            fake_host_memory(at);
            status = how < 2 ? write[how](profiler, path) : bwprof_profiler_elapsed_ms(profiler, "b", &ms);
            fake_host_memory(0);
            refused += status == BWPROF_MEMORY;
            CHECK(status == BWPROF_OK || status == BWPROF_MEMORY, "%d: %s", status, bwprof_last_error());
            CHECK(how < 2 || (status ? isnan(ms) : ms == 1e-3), "%g ms, and %d", ms, status);
            FILE *report = fopen(path, "r");
            CHECK(how == 2 || report || status, "no file, and nothing is said of that");
            size_t size = report ? fread(text, 1, sizeof text - 1, report) : 0;
            text[size] = '\0';
            const char *row = report ? strstr(text, third[how]) : "";
            if (report) CHECK(row && strcmp(text + size - strlen(end[how]), end[how]) == 0, "half a file: %s", text);
            if (report) fclose(report);
        }
    }
    CHECK(refused > 20, "%d times", refused);
    unlink(path);
    CHECK_EQUAL(bwprof_profiler_destroy(profiler), BWPROF_OK);
}

/* Wherever in a word of eight letters names differ: finding one is part of its range. */
static void names_are_found_at_once(int op_index) {
    static const char *const formats[] = {"%03d",      "gemm_%d",           "xxxxx%03d",
                                          "%03dxxxxx", "layers.0.attn%03d", "%03d.layers.attn"};
    enum { MANY = 1000 };
    (void)op_index;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        bw_names names = {0};
        int64_t id, steps = 0;
        char name[32];
        for (int i = 0; i < MANY; i++) {
            snprintf(name, sizeof name, formats[f], i);
            bw_status status = bw_names_add(&names, name, &id);
            CHECK(!status && id == i, "%s", name);
            bw_status_free(status);
        }
        for (int64_t at = 0; at < names.slot_count; at++) {
            int64_t number = (int64_t)names.slots[at] - 1, mask = names.slot_count - 1;
            if (number >= 0) steps += (at - (int64_t)(bw_names_hash(names.name[number]) & (uint64_t)mask)) & mask;
        }
        CHECK(steps < 3 * MANY, "%s: %" PRId64 " steps to %d names", formats[f], steps, MANY);
        bw_names_free(&names);
    }
}

/* What a stream has not reached is dropped, not waited for; the range that runs goes on. */
static void resetting_waits_for_no_stream(int op_index) {
    (void)op_index;
    bwprof_profiler *profiler = NULL;
    int64_t count = -1;
    fake.marks_passed = 0;
    CHECK_EQUAL(bwprof_profiler_create("toy", 0, &profiler), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_start(profiler, "running", NULL), BWPROF_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(bwprof_profiler_start(profiler, "ended", NULL), BWPROF_OK);
        CHECK_EQUAL(bwprof_profiler_stop(profiler, "ended", NULL), BWPROF_OK);
    }
    alarm(20); /* of a wait that does not end */
    CHECK_EQUAL(bwprof_profiler_reset(profiler), BWPROF_OK);
    alarm(0);
    CHECK_EQUAL(bwprof_profiler_stop(profiler, "running", NULL), BWPROF_OK);
    fake.marks_passed = -1;
    CHECK_EQUAL(fake.waits, 0);
    CHECK_EQUAL(bwprof_profiler_count(profiler, "ended", &count), BWPROF_OK);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(bwprof_profiler_count(profiler, "running", &count), BWPROF_OK);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(bwprof_profiler_destroy(profiler), BWPROF_OK);
}

const check api_checks[] = {
    {"ranges_of_the_library_have_names", false, ranges_of_the_library_have_names},
    {"ranges_end_with_their_thread", false, ranges_end_with_their_thread},
    {"the_callers_device_stays_current", false, the_callers_device_stays_current},
    {"memory_ends_among_names", false, memory_ends_among_names},
    {"names_are_found_at_once", false, names_are_found_at_once},
    {"kernels_have_reports", false, kernels_have_reports},
    {"a_report_fails_by_every_call_and_allocation", false, a_report_fails_by_every_call_and_allocation},
    {"resetting_waits_for_no_stream", false, resetting_waits_for_no_stream},
    {"memory_ends_in_a_bundle", false, memory_ends_in_a_bundle},
    {"memory_ends_while_ranges_are_annotated", false, memory_ends_while_ranges_are_annotated},
    {NULL, false, NULL}};
