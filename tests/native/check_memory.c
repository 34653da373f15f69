/* Where pages go: bw_memory_owner against owners worked out by hand. */
#include "check.h"
#include "cpu/memory.h"

static const int64_t MIB = 1 << 20, PAGE = 2 << 20;

static void expect_owners(const char *what, const bw_set_layout *layout, int64_t start, int ranks, const int *owners,
                          int count) {
    for (int i = 0; i < count; i++) {
        int found = bw_memory_owner(layout, start + i * PAGE, PAGE, ranks);
        CHECK(found == owners[i], "%s: page %d belongs to %d, expected %d", what, i, found, owners[i]);
    }
}

/* Shares of two pages: every operand of every set is divided anew. */
static void operands_are_divided(int op_index) {
    (void)op_index;
    const bw_set_layout one = {.set_bytes = 16 * MIB, .parts = 1};
    const int owners[] = {0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3};
    expect_owners("one operand, two sets", &one, 0, 4, owners, 16);
    const bw_set_layout two = {.set_bytes = 32 * MIB, .parts = 2, .starts = {0, 16 * MIB}};
    expect_owners("two operands", &two, 0, 4, owners, 16);
    expect_owners("two operands, the third set", &two, 64 * MIB, 4, owners, 16);
    /* 4 pages for a(8 MiB), none for what is absent, 12 pages for b(24 MiB). */
    const bw_set_layout uneven = {.set_bytes = 32 * MIB, .parts = 3, .starts = {0, 8 * MIB, 8 * MIB}};
    const int thirds[] = {0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
    expect_owners("operands of different sizes", &uneven, 0, 2, thirds, 16);
}

/* Operands that do not begin with a page: whoever has its middle. Three operands of 10 MiB and 256 bytes, two ranks of
 * 5 MiB each: a ends in page 5, whose middle (11 MiB) is 1 MiB into b; the middle of page 10 (21 MiB) is in c. */
static void middles_decide(int op_index) {
    (void)op_index;
    const int64_t each = 10 * MIB + 256;
    const bw_set_layout layout = {.set_bytes = 3 * each, .parts = 3, .starts = {0, each, 2 * each}};
    const int owners[] = {0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1};
    /* Page 2's middle is at 5 MiB of a, just before its share's end at 5 MiB + 128; page 7's at 5 MiB - 256 of b. */
    expect_owners("offsets", &layout, 0, 2, owners, 15);
}

/* Pages larger than a share: each rank gets as many, and neighbors are not given to one half of the ranks. */
static void small_sets_are_spread(int op_index) {
    (void)op_index;
    const bw_set_layout layout = {.set_bytes = MIB, .parts = 2, .starts = {0, MIB / 2}};
    enum { RANKS = 16 };
    int pages[RANKS] = {0};
    for (int64_t page = 0; page < 4 * RANKS; page += 4) {
        int low = 0;
        for (int64_t i = page; i < page + 4; i++) {
            int owner = bw_memory_owner(&layout, i * PAGE, PAGE, RANKS);
            CHECK(owner >= 0 && owner < RANKS, "page %lld belongs to %d", (long long)i, owner);
            pages[owner]++;
            low += owner < RANKS / 2;
        }
        CHECK(low >= 1 && low <= 3, "of pages %lld to %lld, %d are the first half's", (long long)page,
              (long long)page + 3, low);
    }
    for (int i = 0; i < RANKS; i++) CHECK_EQUAL(pages[i], 4);
    CHECK_EQUAL(bw_memory_owner(&layout, 7 * PAGE, PAGE, 1), 0);
}

/* What is allocated is there, zero, and kept for the next case only within the limit. */
static void mappings_are_cached(int op_index) {
    (void)op_index;
    const bw_set_layout layout = {.set_bytes = 3 * MIB, .parts = 2, .starts = {0, MIB}};
    bw_memory with_cache = {.cached_limit = 1 << 30}, without_cache = {.cached_limit = 0};
    bw_memory *memories[] = {&with_cache, &without_cache};
    bw_pool *pool = NULL;
    if (!OK(bw_pool_create(3, &pool))) return;
    for (int i = 0; i < 2; i++) {
        void *memory = NULL;
        if (!OK(bw_memory_allocate(memories[i], pool, 9 * MIB, &layout, &memory))) continue;
        for (int64_t at = 0; at < 9 * MIB; at += 512) CHECK_EQUAL(((char *)memory)[at], 0);
        bw_memory_release(memories[i], memory);
    }
    CHECK(with_cache.cached_bytes >= 9 * MIB, "%lld bytes are kept", (long long)with_cache.cached_bytes);
    CHECK(!without_cache.mappings, "a mapping is kept beyond a limit of 0");
    bw_memory_close(&with_cache);
    bw_memory_close(&without_cache);
    bw_pool_free(pool);
}

/* Each question is the first after a pause that is long enough. */
typedef struct asker {
    bw_memory *memory;
    int questions, stop_at;
} asker;

static bool ask(void *context) {
    asker *self = context;
    self->memory->polled_s = -1.0;
    return ++self->questions == self->stop_at;
}

static void touching_can_be_stopped(int op_index) {
    (void)op_index;
    enum { PAGES = 32 };
    bw_memory memory = {.cached_limit = 1 << 30, .poll = ask, .polled_s = -1.0};
    bw_pool *pool = NULL;
    void *touched = NULL;
    if (!OK(bw_pool_create(2, &pool))) return;
    asker self = {.memory = &memory, .stop_at = 5};
    memory.poll_context = &self;
    FAILS(bw_memory_allocate(&memory, pool, PAGES * PAGE, NULL, &touched), BW_CODE_INTERRUPTED, "interrupted");
    CHECK_EQUAL(self.questions, 5);
    CHECK(!touched && !memory.mappings, "memory is left after an interrupt");
    self = (asker){.memory = &memory, .stop_at = -1};
    CHECK(OK(bw_memory_allocate(&memory, pool, PAGES * PAGE, NULL, &touched)), "nobody stops it");
    CHECK_EQUAL(self.questions, PAGES / 2); /* one before each page of the caller's own */
    bw_memory_close(&memory);
    bw_pool_free(pool);
}

const check memory_checks[] = {
    {"operands_are_divided", false, operands_are_divided},       {"middles_decide", false, middles_decide},
    {"small_sets_are_spread", false, small_sets_are_spread},     {"mappings_are_cached", false, mappings_are_cached},
    {"touching_can_be_stopped", false, touching_can_be_stopped}, {NULL, false, NULL}};
