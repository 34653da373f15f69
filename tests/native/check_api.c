/* The C library on the toy backend: what a tool that watches is told of its ranges, and memory that ends in the middle.
 */
#include "check.h"

#include <bwprof.h>

static void ranges_of_the_library_have_names(int op_index) {
    (void)op_index;
    bwprof_profiler *profiler = NULL;
    fake.watched = true;
    CHECK_EQUAL(bwprof_profiler_create("toy", 0, &profiler), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_start(profiler, "outer", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_start(profiler, "größe", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_stop(profiler, "outer", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_stop(profiler, "größe", NULL), BWPROF_OK);
    CHECK_EQUAL(bwprof_profiler_destroy(profiler), BWPROF_OK);
    const char *const wanted[] = {"start outer range -1", "start größe range -1", "end 1", "end 2"};
    CHECK_EQUAL(fake.tellings, 4);
    for (int i = 0; i < 4; i++) CHECK(strcmp(fake.told[i], wanted[i]) == 0, "told '%s'", fake.told[i]);
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

const check api_checks[] = {{"ranges_of_the_library_have_names", false, ranges_of_the_library_have_names},
                            {"memory_ends_among_names", false, memory_ends_among_names},
                            {NULL, false, NULL}};
