/* Checks of csrc/measure and csrc/api against a fake backend, of csrc/cuda/libraries/nvml.c against a fake library, and
 * of what csrc/cpu reads of a machine against a planted tree of files. `checks --list` names them, `checks NAME` runs
 * one (exit status 1: it failed), `checks --all` each in a process of its own, `checks --ranks N` prints the ranks of
 * the median's interval for 1 to N samples, `checks
 * --coverage MODEL CORRELATION NOISE LAUNCH_MS SECONDS TRIALS SEED` how often the interval of so many measurements held
 * the median. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "coverage.h"

int check_failures;

static const check *const lists[] = {verify_checks,    replay_checks, rotation_checks,   variant_checks,
                                     stop_checks,      fault_checks,  conditions_checks, nvml_checks,
                                     call_checks,      ranges_checks, host_checks,       memory_checks,
                                     reference_checks, types_checks,  api_checks,        annotation_checks};
enum { LISTS = sizeof lists / sizeof lists[0] };

bool check_ok(bw_status status, const char *what) {
    bool ok = !status;
    CHECK(ok, "%s failed: %s", what, bw_status_message(status));
    bw_status_free(status);
    return ok;
}

void check_code(bw_status status, bw_code code, const char *text, const char *what) {
    CHECK(bw_status_code(status) == code, "%s gave code %d, expected %d: %s", what, (int)bw_status_code(status),
          (int)code, bw_status_message(status));
    CHECK(strstr(bw_status_message(status), text), "%s says '%s', which does not mention '%s'", what,
          bw_status_message(status), text);
    bw_status_free(status);
}

const bw_precision *first_precision(const bw_op *op) {
    return bw_precision_get((bw_precision_id)__builtin_ctz(op->precisions));
}

static bw_dims small_dims(const bw_op *op, bool paged) {
    bw_dims dims = {0};
    for (int i = 0; i < op->param_count; i++) dims.value[i] = op->params[i].small;
    int page = bw_op_param_index(op, "page_size");
    unsigned present = paged || page < 0 ? ~0u : ~(1u << page);
    OK(bw_op_complete(op, first_precision(op), present, &dims));
    return dims;
}

bw_status open_case(fixture *fixture, const char *op, bw_precision_id precision, const bw_dims *dims,
                    const char *variant) {
    int index;
    *fixture = (struct fixture){NULL, NULL};
    BW_TRY(bw_op_find(op, &index));
    BW_TRY(bw_session_open(&fake_backend, 0, &fixture->session));
    return bw_case_create(fixture->session, index, bw_precision_get(precision), dims, variant, fake.seed,
                          &fixture->content);
}

bw_status open_small(fixture *fixture, int op_index, bool paged) {
    const bw_op *op = bw_op_at(op_index);
    bw_dims dims = small_dims(op, paged);
    return open_case(fixture, op->name, first_precision(op)->id, &dims, NULL);
}

bw_status open_copy(fixture *fixture, int64_t elements) {
    bw_dims dims = {.value = {elements}};
    return open_case(fixture, "stream_copy", BW_PRECISION_FP32, &dims, NULL);
}

void close_case(fixture *fixture) {
    bw_case_free(fixture->content);
    bw_session_close(fixture->session);
    *fixture = (struct fixture){NULL, NULL};
}

bw_measure_options usual_options(void) {
    return (bw_measure_options){.cache = BW_CACHE_COLD,
                                .precision_target = 0.005,
                                .min_samples = 10,
                                .max_seconds = 20.0,
                                .verify_budget_s = 20.0};
}

/* Every check's full name in turn; `each` says whether to go on. */
typedef bool visit(const check *row, int op, const char *name, void *context);

static bool every_check(visit *each, void *context) {
    for (int i = 0; i < LISTS; i++) {
        for (const check *row = lists[i]; row->name; row++) {
            for (int op = 0; op < (row->per_op ? bw_op_count() : 1); op++) {
                char name[128];
                snprintf(name, sizeof name, row->per_op ? "%s/%s" : "%s", row->name, bw_op_at(op)->name);
                if (!each(row, op, name, context)) return false;
            }
        }
    }
    return true;
}

static bool list_check(const check *row, int op, const char *name, void *context) {
    (void)row, (void)op, (void)context;
    printf("%s\n", name);
    return true;
}

static void print_ranks(int64_t most) {
    for (int64_t count = 1; count <= most; count++) {
        int64_t low = -1, high = -1;
        bool found = bw_median_ranks(count, &low, &high);
        printf("%" PRId64 " %d %" PRId64 " %" PRId64 "\n", count, found, low, high);
    }
}

static int print_coverage(char **words) {
    coverage_of request = {.correlation = atof(words[1]),
                           .noise = atof(words[2]),
                           .launch_ms = atof(words[3]),
                           .max_seconds = atof(words[4]),
                           .trials = atoi(words[5]),
                           .seed = strtoull(words[6], NULL, 10)};
    coverage_found found;
    while (coverage_names[request.model] && strcmp(coverage_names[request.model], words[0]) != 0) request.model++;
    if (!coverage_names[request.model] || request.trials < 1) return 2;
    fake_reset();
    if (!coverage_run(&request, &found)) return 1;
    printf("%d %d %d %g %g\n", found.covered, found.converged, found.covered_converged, found.samples, found.seconds);
    return 0;
}

static bool run_check(const check *row, int op, const char *name, void *context) {
    if (strcmp(name, context) != 0) return true;
    fake_reset();
    row->run(op);
    return false;
}

/* A check must leave nothing behind. */
static bool ended_well(void) {
    CHECK_EQUAL(fake.live_allocations, 0);
    CHECK_EQUAL(fake.live_bytes, 0);
    CHECK_EQUAL(fake.live_plans, 0);
    CHECK_EQUAL(fake.live_states, 0);
    CHECK_EQUAL(fake.live_devices, 0);
    CHECK_EQUAL(fake.live_marks, 0);
    CHECK(fake.refused_allocations == 0, "%" PRId64 " times more was asked of the device than it had free",
          fake.refused_allocations);
    fake_forget();
    return check_failures == 0;
}

/* In a fork, which exits as a process of its own does, leaks looked for: prints name, exit status (of one that a signal
 * ended, minus its number) and bytes said, in a line, then what was said. */
static bool fork_check(const check *row, int op, const char *name, void *context) {
    enum { GIVE_UP_SECONDS = 300 };
    (void)context;
    int memory = memfd_create(name, MFD_CLOEXEC), found = 0; /* a file on a disk would take longer than the check */
    FILE *output = memory < 0 ? NULL : fdopen(memory, "w+");
    fflush(NULL);
    pid_t child = output ? fork() : -1;
    if (child == 0) {
        alarm(GIVE_UP_SECONDS);
        if (dup2(fileno(output), 1) < 0 || dup2(fileno(output), 2) < 0) _exit(2);
        fake_reset();
        row->run(op);
        exit(ended_well() ? 0 : 1);
    }
    bool ran = child > 0 && waitpid(child, &found, 0) == child && fseek(output, 0, SEEK_END) == 0;
    if (ran) {
        printf("%s %d %ld\n", name, WIFEXITED(found) ? WEXITSTATUS(found) : -WTERMSIG(found), ftell(output));
        rewind(output);
        for (int letter = getc(output); letter != EOF; letter = getc(output)) putchar(letter);
    }
    if (output) fclose(output);
    return ran;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--ranks") == 0) {
        print_ranks(atoll(argv[2]));
        return 0;
    }
    if (argc == 9 && strcmp(argv[1], "--coverage") == 0) return print_coverage(argv + 2);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        every_check(list_check, NULL);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--all") == 0) return every_check(fork_check, NULL) ? 0 : 2;
    if (argc != 2 || every_check(run_check, argv[1])) {
        printf("usage: checks --list | --all | --ranks N | --coverage ... | NAME\n");
        return 2;
    }
    return ended_well() ? 0 : 1;
}
