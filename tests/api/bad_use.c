/* What bad use of the C library gets: an answer, never a crash. `bad_use FOLDER` runs every check and prints a line for
 * each: "ok NAME", or "failed NAME" after what was wrong. A check whose line is missing has crashed. */
#define _GNU_SOURCE
#include <bwprof.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;
static const char *folder;

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            failures++;                                                                      \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, bwprof_last_error()); \
        }                                                                                    \
    } while (0)
#define OK(call) CHECK((call) == BWPROF_OK)
/* This answer, with this in its text. */
#define GIVES(answer, text, call) CHECK((call) == (answer) && strstr(bwprof_last_error(), text))

static bwprof_profiler *open_profiler(void) {
    bwprof_profiler *profiler = NULL;
    OK(bwprof_profiler_create("cpu", 0, &profiler));
    return profiler;
}

static void run_one(bwprof_profiler *profiler, const char *name, void *stream) {
    OK(bwprof_profiler_start(profiler, name, stream));
    OK(bwprof_profiler_stop(profiler, name, stream));
}

static int64_t count_of(bwprof_profiler *profiler, const char *name) {
    int64_t count = -1;
    OK(bwprof_profiler_count(profiler, name, &count));
    return count;
}

static char *path_of(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *read_file(const char *name) {
    static char text[1 << 16];
    FILE *file = fopen(path_of(name), "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = '\0';
    if (file) fclose(file);
    return text;
}

static void stop_without_start(void) {
    bwprof_profiler *profiler = open_profiler();
    GIVES(BWPROF_INVALID, "does not run", bwprof_profiler_stop(profiler, "gemm", NULL));
    run_one(profiler, "gemm", NULL);
    GIVES(BWPROF_INVALID, "does not run", bwprof_profiler_stop(profiler, "gemm", NULL));
    OK(bwprof_profiler_start(profiler, "gemm", NULL));
    GIVES(BWPROF_INVALID, "does not run", bwprof_profiler_stop(profiler, "gemm", &failures)); /* another stream */
    OK(bwprof_profiler_stop(profiler, "gemm", NULL));
    CHECK(count_of(profiler, "gemm") == 2);
    CHECK(count_of(profiler, "never") == 0);
    OK(bwprof_profiler_destroy(profiler));
}

static void nested_and_overlapping(void) {
    bwprof_profiler *profiler = open_profiler();
    double outer, inner, again;
    OK(bwprof_profiler_start(profiler, "outer", NULL));
    usleep(2000);
    OK(bwprof_profiler_start(profiler, "inner", NULL));
    OK(bwprof_profiler_start(profiler, "again", NULL));
    usleep(2000);
    OK(bwprof_profiler_start(profiler, "again", NULL));
    OK(bwprof_profiler_stop(profiler, "again", NULL)); /* the one within */
    OK(bwprof_profiler_stop(profiler, "outer", NULL)); /* while inner runs */
    OK(bwprof_profiler_stop(profiler, "again", NULL));
    OK(bwprof_profiler_stop(profiler, "inner", NULL)); /* both of again lie in it, one 2 ms shorter than the other */
    OK(bwprof_profiler_elapsed_ms(profiler, "outer", &outer));
    OK(bwprof_profiler_elapsed_ms(profiler, "inner", &inner));
    OK(bwprof_profiler_elapsed_ms(profiler, "again", &again)); /* the median of a short and a long one */
    CHECK(outer >= 4.0 && inner >= 2.0 && again >= 1.0 && again <= inner - 1.0);
    CHECK(count_of(profiler, "again") == 2);
    OK(bwprof_profiler_destroy(profiler));
}

static void use_after_destroy(void) {
    bwprof_profiler *profiler = open_profiler();
    double value = 1.0;
    int64_t count;
    OK(bwprof_profiler_start(profiler, "gemm", NULL));
    for (int bit = 0; bit < 64; bit++) { /* a handle with another bit is none */
        bwprof_profiler *other = (bwprof_profiler *)((uintptr_t)profiler ^ (uintptr_t)1 << bit);
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_start(other, "gemm", NULL));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_destroy(other));
    }
    OK(bwprof_profiler_destroy(profiler));
    for (int round = 0; round < 2; round++) {
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_start(profiler, "gemm", NULL));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_stop(profiler, "gemm", NULL));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_enable(profiler, 0));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_set_bytes(profiler, "gemm", 1, 1));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_elapsed_ms(profiler, "gemm", &value));
        CHECK(isnan(value));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_bandwidth_gb_s(profiler, "gemm", &value));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_count(profiler, "gemm", &count));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_reset(profiler));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_print_report(profiler, stdout));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_write_csv(profiler, path_of("none.csv")));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_destroy(profiler));
        bwprof_profiler *next = open_profiler(); /* which takes the same place */
        CHECK(next != profiler);
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_start(profiler, "gemm", NULL));
        OK(bwprof_profiler_destroy(next));
    }
    CHECK(access(path_of("none.csv"), F_OK) != 0);
    OK(bwprof_profiler_destroy(NULL));
    GIVES(BWPROF_INVALID, "NULL", bwprof_profiler_start(NULL, "gemm", NULL));
    GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_start((bwprof_profiler *)(uintptr_t)0x7f0012345678, "a", NULL));
    GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_stop((bwprof_profiler *)(uintptr_t)-1, "a", NULL));
}

static long peak_mb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

/* Under a sanitizer, which finds nothing in the last of them that is not in the first, fewer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RANGES = 100000 };
#else
enum { RANGES = 1000000 };
#endif

/* A million ranges of one name keep the latest times; of ever new names as many as there may be. */
static void a_million_ranges(void) {
    bwprof_profiler *profiler = open_profiler();
    char name[32];
    int64_t refused = 0;
    double ms;
    long before = peak_mb();
    for (int i = 0; i < RANGES; i++) run_one(profiler, "token", NULL);
    CHECK(count_of(profiler, "token") == RANGES);
    OK(bwprof_profiler_elapsed_ms(profiler, "token", &ms));
    CHECK(peak_mb() - before < 48); /* 16 MB of times would be 8 bytes each and as much while they move */
    FILE *report = fopen(path_of("latest.txt"), "w");
    OK(bwprof_profiler_print_report(profiler, report));
    fclose(report);
    snprintf(name, sizeof name, "latest %d of %d)", BWPROF_TIMES_MOST, RANGES);
    CHECK(strstr(read_file("latest.txt"), name));
    for (int i = 0; i < BWPROF_NAMES_MOST + 10; i++) {
        snprintf(name, sizeof name, "request %d", i);
        refused += bwprof_profiler_start(profiler, name, NULL) == BWPROF_MEMORY;
        bwprof_profiler_stop(profiler, name, NULL);
    }
    CHECK(refused == 11); /* "token" is a name, too */
    run_one(profiler, "token", NULL);
    OK(bwprof_profiler_destroy(profiler));
}

/* Ranges that begin and never end hold what they have, and no more. */
static void ranges_without_end(void) {
    bwprof_profiler *profiler = open_profiler();
    int64_t begun = 0;
    bwprof_status status = BWPROF_OK;
    while (status == BWPROF_OK && begun < 10 * BWPROF_WAITING_MOST) {
        status = bwprof_profiler_start(profiler, "leak", NULL);
        begun += status == BWPROF_OK;
    }
    CHECK(begun == 2 * BWPROF_WAITING_MOST);
    GIVES(BWPROF_BUSY, "as many as may be", bwprof_profiler_start(profiler, "leak", NULL));
    GIVES(BWPROF_BUSY, "this one is left out", bwprof_profiler_stop(profiler, "leak", NULL));
    OK(bwprof_profiler_stop(profiler, "leak", NULL)); /* with the mark that the one before it has left */
    OK(bwprof_profiler_enable(profiler, 0));
    OK(bwprof_profiler_enable(profiler, 1));
    run_one(profiler, "leak", NULL);
    CHECK(count_of(profiler, "leak") == 2);
    OK(bwprof_profiler_destroy(profiler));
}

static void *mark_often(void *argument) {
    for (int i = 0; i < 2000; i++) {
        bwprof_profiler_start(argument, "both", NULL);
        bwprof_profiler_stop(argument, "both", NULL);
    }
    return NULL;
}

/* Two threads and one name, while a third one reads, writes and resets nothing. */
static void two_threads_and_one_name(void) {
    bwprof_profiler *profiler = open_profiler();
    pthread_t threads[2];
    double ms;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, mark_often, profiler);
    for (int i = 0; i < 20; i++) {
        bwprof_profiler_elapsed_ms(profiler, "both", &ms);
        OK(bwprof_profiler_set_bytes(profiler, "both", (uint64_t)i, 0));
    }
    OK(bwprof_profiler_write_csv(profiler, path_of("both.csv")));
    GIVES(BWPROF_INVALID, "does not run", bwprof_profiler_stop(profiler, "both", NULL)); /* others' are not ours */
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(count_of(profiler, "both") == 4000);
    OK(bwprof_profiler_destroy(profiler));
}

static void *report_often(void *argument) {
    FILE *nowhere = fopen("/dev/null", "w");
    int64_t refused = 0;
    for (int i = 0; i < 1000; i++) refused += bwprof_profiler_print_report(argument, nowhere) != BWPROF_OK;
    fclose(nowhere);
    return (void *)(intptr_t)refused;
}

/* Reports of several threads at once need the device for nothing that one of them would have to itself. */
static void several_who_report(void) {
    enum { REPORTERS = 3 };
    bwprof_profiler *profiler = open_profiler();
    pthread_t threads[REPORTERS];
    run_one(profiler, "gemm", NULL);
    for (int i = 0; i < REPORTERS; i++) pthread_create(&threads[i], NULL, report_often, profiler);
    for (int i = 0; i < REPORTERS; i++) {
        void *refused = NULL;
        pthread_join(threads[i], &refused);
        CHECK(refused == NULL);
    }
    OK(bwprof_profiler_destroy(profiler));
}

/* Whoever marks while it is destroyed is refused from then on. */
static void destroyed_under_a_thread(void) {
    for (int i = 0; i < 8; i++) {
        bwprof_profiler *profiler = open_profiler();
        pthread_t thread;
        pthread_create(&thread, NULL, mark_often, profiler);
        if (i % 2) sched_yield();
        OK(bwprof_profiler_destroy(profiler));
        pthread_join(thread, NULL);
    }
}

static void fork_is_refused(void) {
    bwprof_profiler *profiler = open_profiler();
    int status = -1;
    OK(bwprof_profiler_start(profiler, "gemm", NULL));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        double ms;
        failures = 0;
        GIVES(BWPROF_UNAVAILABLE, "fork", bwprof_profiler_stop(profiler, "gemm", NULL));
        GIVES(BWPROF_UNAVAILABLE, "fork", bwprof_profiler_elapsed_ms(profiler, "gemm", &ms));
        GIVES(BWPROF_UNAVAILABLE, "fork", bwprof_profiler_write_json(profiler, path_of("none.json")));
        OK(bwprof_profiler_destroy(profiler));
        GIVES(BWPROF_INVALID, "destroyed", bwprof_profiler_start(profiler, "gemm", NULL));
        fflush(stdout);
        _exit(failures != 0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    OK(bwprof_profiler_stop(profiler, "gemm", NULL));
    CHECK(count_of(profiler, "gemm") == 1);
    OK(bwprof_profiler_destroy(profiler));
}

static void no_gpu(void) {
    bwprof_profiler *profiler = (bwprof_profiler *)&failures;
    bwprof_measurement found;
    bwprof_measure_options options = {.backend = "cuda"};
    if (getenv("BWPROF_TEST_HAS_GPU")) return;
    CHECK(bwprof_profiler_create("cuda", 0, &profiler) == BWPROF_UNAVAILABLE && bwprof_last_error()[0]);
    CHECK(profiler == NULL);
    CHECK(bwprof_measure((bwprof_callback)(void (*)(void))getpid, NULL, NULL, &options, &found) == BWPROF_UNAVAILABLE);
    CHECK(isnan(found.time_ms));
    fflush(stdout);
    int saved = dup(2), away = open(path_of("stderr"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(away, 2);
    CHECK(cuda_benchmark_bandwidth(path_of("gpu.csv")) == -1);
    CHECK(cuda_benchmark_bandwidth(path_of("no/such/folder.csv")) == -1);
    dup2(saved, 2);
    close(saved), close(away);
    CHECK(access(path_of("gpu.csv"), F_OK) != 0);
    CHECK(strstr(read_file("stderr"), "cuda_benchmark_bandwidth: "));
    CHECK(strstr(read_file("stderr"), "Failed to open output file: "));
}

static void null_and_bad_arguments(void) {
    bwprof_profiler *profiler = open_profiler();
    uint64_t read, written, flops;
    bwprof_measurement found;
    bwprof_measure_options options = {.backend = "cpu", .sets = -1};
    GIVES(BWPROF_INVALID, "out is NULL", bwprof_profiler_create("cpu", 0, NULL));
    GIVES(BWPROF_INVALID, "path is NULL", bwprof_profiler_write_csv(profiler, NULL));
    GIVES(BWPROF_INVALID, "path is NULL", bwprof_profiler_write_json(profiler, NULL));
    GIVES(BWPROF_INVALID, "path is empty", bwprof_profiler_write_csv(profiler, ""));
    GIVES(BWPROF_INVALID, "stream is NULL", bwprof_profiler_print_report(profiler, NULL));
    GIVES(BWPROF_INVALID, "path is NULL", bwprof_benchmark("cpu", "smoke", NULL, NULL, NULL));
    GIVES(BWPROF_SYSTEM, "Failed to open output file: ", bwprof_profiler_write_csv(profiler, path_of("no/x.csv")));
    GIVES(BWPROF_SYSTEM,
          "Failed to open output file: ", bwprof_benchmark("cpu", "smoke", path_of("no/x.csv"), NULL, NULL));
    GIVES(BWPROF_INVALID, "allowed are access, ", bwprof_benchmark("cpu", "nightly", path_of("none.csv"), NULL, NULL));
    GIVES(BWPROF_INVALID, "unknown backend 'tpu'", bwprof_profiler_create("tpu", 0, &(bwprof_profiler *){NULL}));
    GIVES(BWPROF_INVALID, "cpu device 7", bwprof_profiler_create("cpu", 7, &(bwprof_profiler *){NULL}));
    GIVES(BWPROF_INVALID, "name is NULL", bwprof_profiler_start(profiler, NULL, NULL));
    GIVES(BWPROF_INVALID, "name is NULL", bwprof_profiler_stop(profiler, NULL, NULL));
    GIVES(BWPROF_INVALID, "name is NULL", bwprof_profiler_set_bytes(profiler, NULL, 1, 1));
    GIVES(BWPROF_INVALID, "name is empty", bwprof_profiler_start(profiler, "", NULL));
    GIVES(BWPROF_INVALID, "time_ms is NULL", bwprof_profiler_elapsed_ms(profiler, "a", NULL));
    GIVES(BWPROF_INVALID, "callback is NULL", bwprof_measure(NULL, NULL, NULL, NULL, &found));
    GIVES(BWPROF_INVALID, "result is NULL",
          bwprof_measure((bwprof_callback)(void (*)(void))getpid, NULL, NULL, NULL, NULL));
    GIVES(BWPROF_INVALID, "sets = -1",
          bwprof_measure((bwprof_callback)(void (*)(void))getpid, NULL, NULL, &options, &found));
    GIVES(BWPROF_INVALID, "K = -1", bwprof_gemm_cost(1, 1, -1, "fp16", &read, &written, &flops));
    GIVES(BWPROF_INVALID, "fp12", bwprof_gemm_cost(1, 1, 1, "fp12", &read, &written, &flops));
    GIVES(BWPROF_INVALID, "precision is NULL", bwprof_gemm_cost(1, 1, 1, NULL, &read, &written, &flops));
    GIVES(BWPROF_INVALID, "overflow",
          bwprof_gemm_cost(INT32_MAX, INT32_MAX, INT32_MAX, "fp16", &read, &written, &flops));
    GIVES(BWPROF_INVALID, "no parameter 'X'",
          bwprof_cost("gemm", "fp16", (const char *const[]){"X"}, (int64_t[]){1}, 1, &read, &written, &flops));
    GIVES(BWPROF_INVALID, "count = -1", bwprof_cost("gemm", "fp16", NULL, NULL, -1, &read, &written, &flops));
    OK(bwprof_gemm_cost(65536, 65536, 1, "fp16", NULL, &written, NULL)); /* M N = 2^32 */
    CHECK(written == (uint64_t)2 << 32);
    OK(bwprof_profiler_destroy(profiler));
}

static int does_nothing(void *user, int64_t set) {
    (void)user, (void)set;
    return 0;
}

/* What no option takes; `option` is one of `options`. */
static void refuses_odd_numbers(const bwprof_measure_options *options, double *option, const char *name,
                                const char *allowed) {
    static const double never[] = {NAN, INFINITY, -INFINITY, -1.0, -5e-324};
    bwprof_measurement found;
    for (int i = 0; i < 5; i++) {
        char message[96];
        snprintf(message, sizeof message, "%s is %g: %s", name, never[i], allowed);
        *option = never[i];
        GIVES(BWPROF_INVALID, message, bwprof_measure(does_nothing, NULL, NULL, options, &found));
        CHECK(isnan(found.time_ms));
    }
}

/* What Python refuses is refused here, in its words; 0 is the default, of either sign. */
static void numbers_of_options(void) {
    static const double none[] = {1.0, 2.0, 1e308}, shares[] = {5e-324, 0.999, 0.0, -0.0}, times[] = {5e-324, 1e-9};
    bwprof_measurement found;
    bwprof_measure_options options = {.backend = "cpu", .hot = 1, .max_seconds = 0.01};
    refuses_odd_numbers(&options, &options.rel_ci, "rel_ci", "allowed is a fraction between 0 and 1");
    for (int i = 0; i < 3; i++) {
        options.rel_ci = none[i];
        GIVES(BWPROF_INVALID, "a fraction between", bwprof_measure(does_nothing, NULL, NULL, &options, &found));
    }
    for (int i = 0; i < 4; i++) {
        options.rel_ci = shares[i];
        OK(bwprof_measure(does_nothing, NULL, NULL, &options, &found));
    }
    refuses_odd_numbers(&options, &options.max_seconds, "max_seconds", "a number of seconds from 0 on is needed");
    for (int i = 0; i < 2; i++) {
        options.max_seconds = times[i];
        OK(bwprof_measure(does_nothing, NULL, NULL, &options, &found));
        CHECK(found.samples >= 10 && found.time_ms > 0.0);
    }
}

static void no_time_and_no_bytes(void) {
    bwprof_profiler *profiler = open_profiler();
    double value = 1.0;
    GIVES(BWPROF_UNKNOWN, "not been stopped", bwprof_profiler_elapsed_ms(profiler, "gemm", &value));
    CHECK(isnan(value));
    OK(bwprof_profiler_start(profiler, "gemm", NULL));
    usleep(100);
    GIVES(BWPROF_UNKNOWN, "not been stopped", bwprof_profiler_bandwidth_gb_s(profiler, "gemm", &value));
    OK(bwprof_profiler_stop(profiler, "gemm", NULL));
    GIVES(BWPROF_UNKNOWN, "bytes were not set", bwprof_profiler_bandwidth_gb_s(profiler, "gemm", &value));
    CHECK(isnan(value));
    OK(bwprof_profiler_set_bytes(profiler, "gemm", 0, 0));
    GIVES(BWPROF_UNKNOWN, "bytes are 0", bwprof_profiler_bandwidth_gb_s(profiler, "gemm", &value));
    OK(bwprof_profiler_set_bytes(profiler, "gemm", UINT64_MAX, UINT64_MAX));
    OK(bwprof_profiler_bandwidth_gb_s(profiler, "gemm", &value));
    double ms;
    OK(bwprof_profiler_elapsed_ms(profiler, "gemm", &ms));
    CHECK(fabs(value * ms * 1e6 / ldexp(1.0, 65) - 1.0) < 1e-9); /* 2^65 bytes, not their remainder */
    OK(bwprof_profiler_reset(profiler));
    GIVES(BWPROF_UNKNOWN, "not been stopped", bwprof_profiler_elapsed_ms(profiler, "gemm", &value));
    OK(bwprof_profiler_destroy(profiler));
}

static void a_name_of_ten_megabytes(void) {
    enum { LONG = 10000000 };
    bwprof_profiler *profiler = open_profiler();
    char *name = malloc(LONG + 1), *longest = malloc(BWPROF_NAME_MOST + 1);
    memset(name, 'x', LONG), memset(longest, 'y', BWPROF_NAME_MOST);
    name[LONG] = longest[BWPROF_NAME_MOST] = '\0';
    GIVES(BWPROF_INVALID, "too long", bwprof_profiler_start(profiler, name, NULL));
    run_one(profiler, longest, NULL);
    GIVES(BWPROF_INVALID, "too long", bwprof_profiler_stop(profiler, name, NULL));
    GIVES(BWPROF_INVALID, "too long", bwprof_profiler_set_bytes(profiler, name, 1, 1));
    CHECK(bwprof_profiler_create(name, 0, &(bwprof_profiler *){NULL}) == BWPROF_INVALID);
    CHECK(bwprof_profiler_write_csv(profiler, name) == BWPROF_SYSTEM);
    CHECK(strlen(bwprof_last_error()) < 1024);
    free(name), free(longest);
    OK(bwprof_profiler_destroy(profiler));
}

static int count_cases(void *user, const bwprof_case *now) {
    (void)now;
    ++*(int *)user;
    return 0;
}

/* A folder is refused before anything is measured; a file keeps its mode, and may have as long a name as any. */
static void files_and_folders(void) {
    enum { LONGEST = 255 };
    bwprof_profiler *profiler = open_profiler();
    struct stat found = {0};
    char name[LONGEST + 1];
    int cases = 0;
    memset(name, 'n', LONGEST), name[LONGEST] = '\0';
    GIVES(BWPROF_SYSTEM, "Is a directory", bwprof_benchmark("cpu", "smoke", folder, count_cases, &cases));
    CHECK(cases == 0);
    OK(bwprof_profiler_write_csv(profiler, path_of(name)));
    CHECK(chmod(path_of(name), 0640) == 0);
    OK(bwprof_profiler_write_json(profiler, path_of(name)));
    CHECK(strstr(read_file(name), "bwprof ranges 1"));
    CHECK(stat(path_of(name), &found) == 0 && (found.st_mode & 07777) == 0640);
    OK(bwprof_profiler_destroy(profiler));
}

/* What is open is written on, by whatever name, and not replaced by a file of that name. */
static void files_that_are_open(void) {
    bwprof_profiler *profiler = open_profiler();
    char name[64];
    FILE *file = fopen(path_of("open.txt"), "w");
    fputs("before\n", file), fflush(file);
    snprintf(name, sizeof name, "/dev/fd/%d", fileno(file));
    OK(bwprof_profiler_write_csv(profiler, name));
    fputs("after\n", file), fclose(file);
    const char *text = read_file("open.txt");
    CHECK(strncmp(text, "before\nrange,count,", 19) == 0 && strstr(text, ",flags\nafter\n"));
    CHECK(bwprof_profiler_write_csv(profiler, name) == BWPROF_SYSTEM);
    CHECK(bwprof_profiler_write_csv(profiler, "/dev/fd/99999999999") == BWPROF_SYSTEM);
    OK(bwprof_profiler_destroy(profiler));
}

/* A text repeats no half of a character (each of these has three bytes), and nothing that a terminal would act on. */
static void texts_of_strange_names(void) {
    bwprof_profiler *profiler = open_profiler();
    char name[121];
    double ms;
    for (int i = 0; i < 120; i++) name[i] = "\xe6\x9d\xb1"[i % 3];
    name[120] = '\0';
    GIVES(BWPROF_INVALID, "\xe6\x9d\xb1\\xe6' does not run", bwprof_profiler_stop(profiler, name, NULL));
    GIVES(BWPROF_UNKNOWN, "\xe6\x9d\xb1\\xe6' has no time", bwprof_profiler_elapsed_ms(profiler, name, &ms));
    GIVES(BWPROF_INVALID, "range '\\x1b[31mred\\x0a\\xff'", bwprof_profiler_stop(profiler, "\x1b[31mred\n\xff", NULL));
    OK(bwprof_profiler_destroy(profiler));
}

/* The files are compared by the test that starts this. */
static void strange_names(void) {
    static const char *const names[] = {"größe 東京",
                                        "a,b \"c\"",
                                        "=1+1",
                                        "@x",
                                        "line\nbreak\ttab",
                                        "bad \xff\xc0\xaf utf",
                                        "\xed\xa0\x80 surrogate",
                                        "back\\slash",
                                        "\x1b[31mred\x7f",
                                        "'-1",
                                        "-x"};
    bwprof_profiler *profiler = open_profiler();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        run_one(profiler, names[i], NULL);
        OK(bwprof_profiler_set_bytes(profiler, names[i], 1500, i));
    }
    setlocale(LC_ALL, "de_DE.UTF-8");
    printf("%.1f is how the locale writes it\n", 1.5);
    OK(bwprof_profiler_write_csv(profiler, path_of("names.csv")));
    OK(bwprof_profiler_write_json(profiler, path_of("names.json")));
    FILE *report = fopen(path_of("names.txt"), "w");
    OK(bwprof_profiler_print_report(profiler, report));
    fclose(report);
    setlocale(LC_ALL, "C");
    OK(bwprof_profiler_destroy(profiler));
}

/* Said with the system's reason, whether the stream notices while it is written or when it is flushed. */
static void a_full_stream(void) {
    bwprof_profiler *profiler = open_profiler();
    run_one(profiler, "gemm", NULL);
    for (int buffered = 0; buffered < 2; buffered++) {
        FILE *full = fopen("/dev/full", "w");
        if (!buffered) setvbuf(full, NULL, _IONBF, 0);
        GIVES(BWPROF_SYSTEM, "the report cannot be written: No space left on device",
              bwprof_profiler_print_report(profiler, full));
        fclose(full);
    }
    FILE *read_only = fopen("/dev/null", "r");
    GIVES(BWPROF_SYSTEM, "the report cannot be written: Bad file descriptor",
          bwprof_profiler_print_report(profiler, read_only));
    fclose(read_only);
    GIVES(BWPROF_SYSTEM, "/dev/full: No space left on device", bwprof_profiler_write_csv(profiler, "/dev/full"));
    OK(bwprof_profiler_destroy(profiler));
}

static void disabled(void) {
    bwprof_profiler *profiler = open_profiler();
    OK(bwprof_profiler_start(profiler, "gemm", NULL));
    OK(bwprof_profiler_enable(profiler, 0));
    OK(bwprof_profiler_stop(profiler, "gemm", NULL));
    OK(bwprof_profiler_stop(profiler, "never started", NULL));
    OK(bwprof_profiler_enable(profiler, 1));
    GIVES(BWPROF_INVALID, "does not run", bwprof_profiler_stop(profiler, "gemm", NULL)); /* it was dropped */
    CHECK(count_of(profiler, "gemm") == 0);
    OK(bwprof_profiler_destroy(profiler));
}

static void several_profilers(void) {
    enum { SEVERAL = 8 }; /* each is a device, with threads */
    bwprof_profiler *all[SEVERAL];
    for (int i = 0; i < SEVERAL; i++) all[i] = open_profiler();
    for (int i = 0; i < SEVERAL; i++) {
        run_one(all[i], "gemm", NULL);
        OK(bwprof_profiler_destroy(all[i]));
    }
}

typedef struct stopper {
    int calls;
    bwprof_profiler *profiler;
    bwprof_status inner;
} stopper;

static int stop_at_once(void *user, int64_t set) {
    stopper *self = user;
    (void)set;
    self->calls++;
    self->inner = bwprof_profiler_destroy(self->profiler);
    return 7;
}

static int stop_progress(void *user, const bwprof_case *now) {
    (void)user;
    return now->index == 1;
}

static void callbacks_that_stop(void) {
    stopper user = {.profiler = open_profiler()};
    bwprof_measurement found;
    bwprof_measure_options options = {.profiler = user.profiler};
    GIVES(BWPROF_INTERRUPTED, "returned 7", bwprof_measure(stop_at_once, &user, NULL, &options, &found));
    CHECK(user.calls == 1 && user.inner == BWPROF_BUSY && isnan(found.time_ms));
    options.backend = "cpu";
    GIVES(BWPROF_INVALID, "a backend and a profiler", bwprof_measure(stop_at_once, &user, NULL, &options, &found));
    OK(bwprof_profiler_destroy(user.profiler));
    GIVES(BWPROF_INTERRUPTED, "after 2 of",
          bwprof_benchmark("cpu", "smoke", path_of("stopped.csv"), stop_progress, NULL));
    CHECK(access(path_of("stopped.csv"), F_OK) != 0);
}

#define NAMED(check) \
    { #check, check }
static const struct {
    const char *name;
    void (*run)(void);
} checks[] = {NAMED(stop_without_start),     NAMED(nested_and_overlapping),
              NAMED(use_after_destroy),      NAMED(a_million_ranges),
              NAMED(ranges_without_end),     NAMED(two_threads_and_one_name),
              NAMED(several_who_report),     NAMED(destroyed_under_a_thread),
              NAMED(fork_is_refused),        NAMED(no_gpu),
              NAMED(null_and_bad_arguments), NAMED(numbers_of_options),
              NAMED(no_time_and_no_bytes),   NAMED(a_name_of_ten_megabytes),
              NAMED(files_and_folders),      NAMED(files_that_are_open),
              NAMED(texts_of_strange_names), NAMED(strange_names),
              NAMED(a_full_stream),          NAMED(disabled),
              NAMED(several_profilers),      NAMED(callbacks_that_stop)};

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    folder = argv[1];
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (argc > 2 && strcmp(argv[2], checks[i].name) != 0) continue;
        failures = 0;
        checks[i].run();
        printf("%s %s\n", failures ? "failed" : "ok", checks[i].name);
        fflush(stdout);
    }
    return 0;
}
