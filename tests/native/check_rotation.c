/* bw_case_rotation and the launches of a replay against numbers worked out by hand.
 * stream_copy of n floats in FP32 touches 8 n bytes; a set is both arrays, each padded to 256 bytes. */
#include "check.h"

static void expect_rotation(const char *what, fixture *f, bw_cache cache, int64_t sets, int64_t flush_bytes, bool cold,
                            int64_t needed) {
    bw_rotation rotation;
    int64_t needed_bytes = 0, free_bytes = 0;
    printf("%s\n", what);
    if (!OK(bw_case_rotation(f->content, cache, &rotation, &needed_bytes, &free_bytes))) return;
    CHECK_EQUAL(rotation.sets, sets);
    CHECK_EQUAL(rotation.flush_bytes, flush_bytes);
    CHECK_EQUAL(rotation.cold, cold);
    CHECK_EQUAL(needed_bytes, needed);
    CHECK_EQUAL(free_bytes, fake.memory_bytes - fake.live_bytes);
    bool plain =
        cache == BW_CACHE_HOT ||
        (cold && !flush_bytes && sets * bw_case_choice(f->content)->cost.footprint_bytes >= 4 * fake.cache_bytes);
    CHECK((rotation.note[0] == '\0') == plain, "note '%s'", rotation.note);
}

static void copy_case(const char *what, int64_t elements, int64_t cache_bytes, int64_t memory_bytes, int64_t sets,
                      int64_t flush_bytes, bool cold, int64_t needed) {
    fixture f;
    fake.cache_bytes = cache_bytes;
    fake.memory_bytes = memory_bytes;
    if (OK(open_copy(&f, elements))) expect_rotation(what, &f, BW_CACHE_COLD, sets, flush_bytes, cold, needed);
    close_case(&f);
}

static const int64_t GIB = (int64_t)1 << 30, MIB = 1 << 20;

static void sets_cover_four_caches(int op_index) {
    (void)op_index;
    /* 60 MiB of L2, 8 MiB touched: 240 / 8 = 30 sets of 8 MiB. */
    copy_case("exactly 4 caches", MIB, 60 * MIB, 64 * GIB, 30, 0, true, 240 * MIB);
    /* 16 bytes less per launch: 31 sets of 2 x 4194304 bytes (4194296 padded to 256). */
    copy_case("just below", MIB - 2, 60 * MIB, 64 * GIB, 31, 0, true, 31 * 8 * MIB);
    copy_case("larger than 4 caches", 64 * MIB, 60 * MIB, 64 * GIB, 1, 0, true, 512 * MIB);
    /* 480 MiB of last-level cache, gemm-sized 3.2 MB: ceil(2013265920 / 3200000) = 630 sets of 2 x 1600000. */
    copy_case("a big last-level cache", 400000, 480 * MIB, 64 * GIB, 630, 0, true, 630 * (int64_t)3200000);
}

static void small_cases_are_flushed(int op_index) {
    (void)op_index;
    /* 512 bytes touched, 4 MiB wanted: 8192 sets are too many. 2048 sets of 512 bytes and a flush of 4 MiB. */
    copy_case("2048 sets are not enough", 64, MIB, GIB, 2048, 4 * MIB, true, MIB + 4 * MIB);
    /* 2048 sets of 2048 bytes are just 4 MiB. */
    copy_case("2048 sets are enough", 256, MIB, GIB, 2048, 0, true, 4 * MIB);
    /* 2048 sets of 1536 bytes are 3 caches, not 4. */
    copy_case("3 caches in 2048 sets", 192, MIB, GIB, 2048, 4 * MIB, true, 3 * MIB + 4 * MIB);
}

static void little_memory(int op_index) {
    (void)op_index;
    /* 32 sets of 128 KiB wanted for 4 x 1 MiB; half of 5 MiB has room for 20: 2.5 caches, still cold. */
    copy_case("2.5 caches", 16384, MIB, 5 * MIB, 20, 0, true, 20 * 128 * 1024);
    /* Half of 3 MiB: 12 sets, 1.5 caches. A flush of 4 MiB has no room. */
    copy_case("1.5 caches and no flush", 16384, MIB, 3 * MIB, 12, 0, false, 12 * 128 * 1024);
    copy_case("the cache's size is unknown", 16384, 0, GIB, 1, 0, false, 128 * 1024);
}

/* One token into a cache of 4096: 256 bytes of k and of v are read and written, 1024 touched, but a set is
 * 2 x 256 + 2 x 1 MiB = 2097664 bytes. 4096 sets would be wanted for 4 x 1 MiB. */
static bw_status open_append(fixture *f, int64_t memory_bytes) {
    bw_dims dims = {.value = {1, 1, 4095, 1, 64, 0}};
    fake.cache_bytes = MIB;
    fake.memory_bytes = memory_bytes;
    return open_case(f, "kv_append", BW_PRECISION_FP32, &dims, NULL);
}

static void large_sets_that_touch_little(int op_index) {
    (void)op_index;
    fixture f;
    const int64_t set = 2097664;
    /* Half of 64 MiB less the flush of 4 MiB is 28 MiB: 13 sets. Without room for the flush they would be warm. */
    if (OK(open_append(&f, 64 * MIB))) {
        expect_rotation("flush beside 13 sets", &f, BW_CACHE_COLD, 13, 4 * MIB, true, 13 * set + 4 * MIB);
    }
    close_case(&f);
    /* 7 MiB: one set and the flush are 6291968 bytes, within 31/32 of what is free. */
    if (OK(open_append(&f, 7 * MIB))) {
        expect_rotation("flush beside one set", &f, BW_CACHE_COLD, 1, 4 * MIB, true, set + 4 * MIB);
    }
    close_case(&f);
    if (OK(open_append(&f, 6 * MIB))) {
        expect_rotation("no room for a flush", &f, BW_CACHE_COLD, 1, 0, false, set);
    }
    close_case(&f);
}

static void hot_is_one_set(int op_index) {
    (void)op_index;
    fixture f;
    fake.cache_bytes = 60 * MIB;
    if (OK(open_copy(&f, 1000))) {
        expect_rotation("hot", &f, BW_CACHE_HOT, 1, 0, false, 2 * 4096); /* 4000 padded to 4096 */
    }
    close_case(&f);
}

/* 1 MiB of cache: one set, a single launch, 4 MiB gone through before it, in the way that was asked for. */
static void flushed_is_one_launch(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    options.cache = BW_CACHE_FLUSHED;
    options.flush = BW_FLUSH_MEMSET;
    fake.cache_bytes = MIB;
    if (OK(open_copy(&f, 1000)) && OK(bw_measure(f.content, &options, &m))) {
        CHECK(m.rotation.cold && m.verdict.verified, "%s", m.verdict.reason);
        CHECK_EQUAL(m.rotation.sets, 1);
        CHECK_EQUAL(m.launches_per_sample, 1);
        CHECK_EQUAL(fake.last_plan.set_count, 1);
        CHECK_EQUAL(fake.last_plan.flush_bytes, 4 * MIB);
        CHECK_EQUAL(fake.last_plan.flush, BW_FLUSH_MEMSET);
        CHECK(isnan(m.kernels.span_ns), "a backend without kernel timestamps");
    }
    bw_measurement_free(&m);
    close_case(&f);
    fake.cache_bytes = 0;
    if (OK(open_copy(&f, 1000))) {
        expect_rotation("a cache of unknown size cannot be flushed", &f, BW_CACHE_FLUSHED, 1, 0, false, 2 * 4096);
    }
    close_case(&f);
}

static void too_big_says_how_much(int op_index) {
    (void)op_index;
    fixture f;
    bw_rotation rotation;
    bw_verdict verdict;
    bw_measurement m;
    bw_measure_options options = usual_options();
    int64_t needed = 0, free_bytes = 0;
    if (OK(open_append(&f, 2 * MIB))) {
        FAILS(bw_case_rotation(f.content, BW_CACHE_COLD, &rotation, &needed, &free_bytes), BW_CODE_MEMORY,
              "needs 2097664 bytes");
        FAILS(bw_case_rotation(f.content, BW_CACHE_HOT, &rotation, &needed, &free_bytes), BW_CODE_MEMORY,
              "free are 2097152");
        CHECK_EQUAL(needed, 2097664);
        CHECK_EQUAL(free_bytes, 2097152);
        /* Said before allocating, whatever is asked for first. */
        FAILS(bw_measure(f.content, &options, &m), BW_CODE_MEMORY, "needs 2097664 bytes");
        FAILS(bw_case_verify(f.content, NULL, BUDGET(1.0), &verdict), BW_CODE_MEMORY, "needs 2097664 bytes");
        FAILS(bw_case_ready(f.content, 1), BW_CODE_MEMORY, "needs 2097664 bytes");
        CHECK_EQUAL(fake.live_allocations, 0);
    }
    close_case(&f);
}

/* A set of nearly 2^63 bytes, with a workspace: the sum must not wrap around. */
static void sums_do_not_overflow(int op_index) {
    (void)op_index;
    fixture f;
    bw_rotation rotation;
    int64_t needed, free_bytes;
    /* Four arrays of (2^29 - 1) 2^14 2^16 floats: 2^63 bytes less 16 GiB. */
    bw_dims dims = {.value = {((int64_t)1 << 29) - 1, 1 << 14, 1 << 16, 1}};
    fake.workspace[0] = 64 * GIB;
    fake.cache_bytes = 480 * MIB;
    if (OK(open_case(&f, "kv_copy", BW_PRECISION_FP32, &dims, NULL))) {
        FAILS(bw_case_rotation(f.content, BW_CACHE_COLD, &rotation, &needed, &free_bytes), BW_CODE_MEMORY, "needs");
    }
    close_case(&f);
}

/* A case asked again about memory that it holds itself: the same answer. */
static void own_memory_counts_as_free(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    fake.cache_bytes = 64 * 1024;
    fake.memory_bytes = 3 * MIB;
    fake.workspace[0] = 2 * MIB;
    if (OK(open_copy(&f, 8192))) {
        /* 4 sets would be wanted; the workspace fills more than the half that a rotation may take. One set and a flush
         * are within what is free. */
        for (int i = 0; i < 2; i++) {
            bw_rotation rotation;
            int64_t needed, free_bytes;
            if (!OK(bw_case_rotation(f.content, BW_CACHE_COLD, &rotation, &needed, &free_bytes))) break;
            CHECK_EQUAL(rotation.sets, 1);
            CHECK_EQUAL(rotation.flush_bytes, 256 * 1024);
            if (!OK(bw_measure(f.content, &options, &m))) break;
            bw_measurement_free(&m);
        }
    }
    close_case(&f);
}

static void launches(const char *what, bool fixed, double launch_ns, int64_t elements, int64_t cache_bytes,
                     int64_t wanted_sets, int64_t wanted_launches) {
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    printf("%s\n", what);
    fake.fixed_replay = fixed;
    fake.launch_ns = launch_ns;
    fake.cache_bytes = cache_bytes;
    if (OK(open_copy(&f, elements)) && OK(bw_measure(f.content, &options, &m))) {
        CHECK_EQUAL(m.rotation.sets, wanted_sets);
        CHECK_EQUAL(m.launches_per_sample, wanted_launches);
        CHECK_EQUAL(fake.last_plan.launches, wanted_launches);
        CHECK_EQUAL(fake.last_plan.set_count, wanted_sets);
        CHECK(m.verdict.verified, "%s", m.verdict.reason);
    }
    bw_measurement_free(&m);
    close_case(&f);
}

static void replays_last_a_millisecond(int op_index) {
    (void)op_index;
    /* 8 KiB touched, 60 KiB of cache: 30 sets. 1 ms is 100 launches of 10 us: 120, the next multiple of 30. */
    launches("fixed, 10 us", true, 10e3, 1024, 60 * 1024, 30, 120);
    launches("fixed, 2 ms: each set once", true, 2e6, 1024, 60 * 1024, 30, 30);
    launches("walking, 10 us: no need to hold all sets", false, 10e3, 1024, 60 * 1024, 30, 100);
    launches("walking, 2 ms", false, 2e6, 1024, 60 * 1024, 30, 1);
    launches("fixed, one set", true, 40e3, 1024, 1024, 1, 25);
    /* 512 bytes touched, 1 MiB of cache: flushed, each of 2048 sets once. */
    launches("flushed", true, 100.0, 64, MIB, 2048, 2048);
}

/* A clock that is still low when the plan is made: the replays must last a millisecond once it is up. */
static void replays_grow_with_the_clock(int op_index) {
    (void)op_index;
    fixture f;
    bw_measurement m = {0};
    bw_measure_options options = usual_options();
    fake.clock = FAKE_SLOW_START;
    fake.amplitude = 8.0;
    fake.launch_ns = 10e3;
    fake.cache_bytes = 60 * 1024;
    if (OK(open_copy(&f, 1024)) && OK(bw_measure(f.content, &options, &m))) {
        CHECK_EQUAL(m.launches_per_sample % 30, 0);
        CHECK(fake.last_replay_ns >= 1e6, "a replay lasts %.0f ns", fake.last_replay_ns);
        CHECK(m.verdict.verified, "%s", m.verdict.reason);
    }
    bw_measurement_free(&m);
    close_case(&f);
}

const check rotation_checks[] = {
    {"sets_cover_four_caches", false, sets_cover_four_caches},
    {"small_cases_are_flushed", false, small_cases_are_flushed},
    {"little_memory", false, little_memory},
    {"large_sets_that_touch_little", false, large_sets_that_touch_little},
    {"hot_is_one_set", false, hot_is_one_set},
    {"flushed_is_one_launch", false, flushed_is_one_launch},
    {"too_big_says_how_much", false, too_big_says_how_much},
    {"sums_do_not_overflow", false, sums_do_not_overflow},
    {"own_memory_counts_as_free", false, own_memory_counts_as_free},
    {"replays_last_a_millisecond", false, replays_last_a_millisecond},
    {"replays_grow_with_the_clock", false, replays_grow_with_the_clock},
    {NULL, false, NULL},
};
