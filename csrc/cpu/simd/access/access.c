/* Access patterns. Threads take contiguous shares of whole segments of 4096 bytes of units. What lies side by side is
 * read and written in vectors, everything else unit by unit; many units are under way at once, since none depends on
 * another. Large stretches and granules of whole lines are written past the caches. */
#include "ops/families/memory/access.h"

#include "base/types/input.h"
#include "cpu/simd/copy.h"

enum { PATTERN = 64, AHEAD_BYTES = 2048 };

typedef struct access_task {
    const bw_launch *launch;
    bw_access access;
    bool asks_ahead, large;
} access_task;

typedef void access_work(const access_task *task, int64_t first, int64_t last); /* units */

/* A word, or two bytes of it. */
BW_INLINE uint32_t load_word(int64_t bytes, const char *p) {
    uint32_t word = 0;
    memcpy(&word, p, (size_t)bytes);
    return word;
}

/* Words side by side, of any alignment. */
BW_INLINE uint32_t adjacent_sum(int64_t word_bytes, const char *p, int64_t bytes) {
    enum { VECTORS = 8 };
    bw_vu total[VECTORS] = {0};
    uint32_t sum = 0;
    int64_t i = 0;
    for (; i + VECTORS * BW_SIMD_BYTES <= bytes; i += VECTORS * BW_SIMD_BYTES) {
        for (int64_t line = i; line < i + VECTORS * BW_SIMD_BYTES; line += BW_LINE_BYTES) {
            __builtin_prefetch(p + line + BW_LINEAR_AHEAD, 0, 2);
        }
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) {
            const bw_vu x = bw_vu_load(p + i + j * BW_SIMD_BYTES);
            total[j] += word_bytes == 4 ? x : (x & 0xffffu) + (x >> 16);
        }
    }
    for (; i < bytes; i += word_bytes) sum += load_word(word_bytes, p + i);
    for (int j = 0; j < VECTORS; j++) sum += bw_vu_sum(total[j]);
    return sum;
}

BW_INLINE uint32_t strided_sum(int64_t word_bytes, const char *p, int64_t step, int64_t count) {
    enum { SUMS = 8 };
    uint32_t total[SUMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SUMS <= count; i += SUMS) {
#pragma GCC unroll 8
        for (int j = 0; j < SUMS; j++) total[j] += load_word(word_bytes, p + (i + j) * step);
    }
    for (; i < count; i++) sum += load_word(word_bytes, p + i * step);
    for (int j = 0; j < SUMS; j++) sum += total[j];
    return sum;
}

/* Each word is loaded anew for every reader. */
BW_INLINE uint32_t shared_sum(int64_t word_bytes, const char *p, int64_t step, int64_t count, int64_t readers) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t reader = 0; reader < readers; reader++) {
            const char *at = p + i * step;
            __asm__("" : "+r"(at));
            sum += load_word(word_bytes, at);
        }
    }
    return sum;
}

BW_INLINE uint32_t segment_sum(int64_t word_bytes, const bw_access *access, const char *p, int64_t count) {
    const int64_t readers = (int64_t)1 << access->readers_shift;
    if (readers > 1) return shared_sum(word_bytes, p, access->step_bytes, count, readers);
    if (access->step_bytes == word_bytes) return adjacent_sum(word_bytes, p, count * word_bytes);
    return strided_sum(word_bytes, p, access->step_bytes, count);
}

static void strided_read_units(const access_task *task, int64_t first, int64_t last) {
    const bw_access *access = &task->access;
    const char *a = (const char *)task->launch->operand[BW_ACCESS_ARRAY] + access->offset_bytes;
    uint32_t *checksum = task->launch->operand[BW_ACCESS_CHECKSUM];
    const int64_t each = BW_ACCESS_SEGMENT_BYTES / access->unit_bytes;
    for (int64_t unit = first; unit < last; unit += each) {
        const char *p = a + unit * access->step_bytes;
        const int64_t count = bw_min64(each, last - unit);
        checksum[unit / each] =
            access->unit_bytes == 4 ? segment_sum(4, access, p, count) : segment_sum(2, access, p, count);
    }
}

/* Line by line, each time asking for a line of another granule; NULL: for none. */
static uint32_t granule_sum(const char *p, int64_t bytes, const char *next) {
    enum { VECTORS = BW_LINE_BYTES / BW_SIMD_BYTES };
    bw_vu total[VECTORS] = {0}, all = {0};
    uint32_t sum = 0;
    if (next && bytes < BW_LINE_BYTES) __builtin_prefetch(next);
    int64_t i = 0;
    for (; i + BW_LINE_BYTES <= bytes; i += BW_LINE_BYTES) {
        if (next) __builtin_prefetch(next + i);
#pragma GCC unroll 4
        for (int j = 0; j < VECTORS; j++) total[j] += bw_vu_load(p + i + j * BW_SIMD_BYTES);
    }
    for (; i + BW_SIMD_BYTES <= bytes; i += BW_SIMD_BYTES) all += bw_vu_load(p + i);
    for (; i < bytes; i += 4) sum += load_word(4, p + i);
    for (int j = 0; j < VECTORS; j++) all += total[j];
    return sum + bw_vu_sum(all);
}

static void random_read_units(const access_task *task, int64_t first, int64_t last) {
    const int64_t size = task->access.unit_bytes, each = BW_ACCESS_SEGMENT_BYTES / size;
    const int64_t ahead = bw_max64(1, AHEAD_BYTES / size);
    const char *a = task->launch->operand[BW_ACCESS_ARRAY];
    const int32_t *index = task->launch->operand[BW_ACCESS_INDEX];
    uint32_t *checksum = task->launch->operand[BW_ACCESS_CHECKSUM];
    for (int64_t unit = first; unit < last; unit += each) {
        uint32_t sum = 0;
        for (int64_t i = unit; i < bw_min64(unit + each, last); i++) {
            const char *next = task->asks_ahead ? a + index[bw_min64(i + ahead, last - 1)] * size : NULL;
            sum += granule_sum(a + index[i] * size, size, next);
        }
        checksum[unit / each] = sum;
    }
}

BW_INLINE void encode_pattern(bw_dtype dtype, void *out) {
    float values[PATTERN];
    for (int i = 0; i < PATTERN; i++) values[i] = bw_pattern_value((uint64_t)i);
    for (int i = 0; i < PATTERN; i += BW_SIMD_FLOATS) bw_vf_store_as(dtype, out, i, bw_vf_load(values + i));
}

/* Elements [first, last), each at its place; `pattern` holds its 64 values twice. */
BW_INLINE void write_strided(int64_t elem, const access_task *task, const char *pattern, int64_t first, int64_t last) {
    const int64_t step = task->access.step_bytes;
    char *b = (char *)task->launch->operand[BW_ACCESS_ARRAY] + task->access.offset_bytes;
    int64_t i = first;
    for (; i < last && (step != elem || (uintptr_t)(b + i * elem) % BW_LINE_BYTES); i++) {
        memcpy(b + i * step, pattern + i % PATTERN * elem, (size_t)elem);
    }
    for (; i + PATTERN <= last; i += PATTERN) {
        for (int64_t j = 0; j < PATTERN * elem; j += BW_SIMD_BYTES) {
            const bw_vf x = bw_vf_load((const float *)(pattern + i % PATTERN * elem + j));
            if (task->large) {
                bw_stream_vector(b + i * elem + j, x);
            } else {
                bw_vf_store((float *)(b + i * elem + j), x);
            }
        }
    }
    for (; i < last; i++) memcpy(b + i * elem, pattern + i % PATTERN * elem, (size_t)elem);
    if (task->large) bw_stream_fence();
}

static void strided_write_units(const access_task *task, int64_t first, int64_t last) {
    const int64_t elem = task->access.unit_bytes;
    char pattern[2 * 4 * PATTERN];
    BW_DTYPE_SWITCH(task->launch->precision->activation, encode_pattern, pattern);
    memcpy(pattern + PATTERN * elem, pattern, (size_t)(PATTERN * elem));
    if (elem == 4) write_strided(4, task, pattern, first, last);
    if (elem == 2) write_strided(2, task, pattern, first, last);
}

static void random_write_units(const access_task *task, int64_t first, int64_t last) {
    const int64_t size = task->access.unit_bytes;
    char *b = task->launch->operand[BW_ACCESS_ARRAY];
    const int32_t *index = task->launch->operand[BW_ACCESS_INDEX];
    const bool past = task->large && size >= BW_LINE_BYTES;
    for (int64_t i = first; i < last; i++) {
        char *to = b + index[i] * size;
        const float value = bw_pattern_value((uint64_t)i);
        const bw_vf x = bw_vf_set(value);
        int64_t j = 0;
        for (; past && j < size; j += BW_SIMD_BYTES) bw_stream_vector(to + j, x);
        for (; j + BW_SIMD_BYTES <= size; j += BW_SIMD_BYTES) bw_vf_store((float *)(to + j), x);
        for (; j < size; j += 4) memcpy(to + j, &value, sizeof value);
    }
    if (past) bw_stream_fence();
}

typedef struct shared_task {
    access_task task;
    access_work *work;
} shared_task;

static void access_share(void *context, int rank, int ranks) {
    const shared_task *shared = context;
    const bw_access *access = &shared->task.access;
    int64_t first, last;
    bw_pool_share_units(access->units, BW_ACCESS_SEGMENT_BYTES / access->unit_bytes, rank, ranks, &first, &last);
    shared->work(&shared->task, first, last);
}

static bw_status run(const bw_launch *launch, bw_access access, access_work *work, bool asks_ahead) {
    const bool large = bw_is_large(access.units * access.unit_bytes);
    shared_task shared = {{launch, access, asks_ahead, large}, work};
    bw_pool_run(launch->device->pool, access_share, &shared);
    return BW_OK;
}

#define ACCESS_LAUNCH(name, way, work, ahead)                                                      \
    static bw_status name##_launch(const bw_launch *launch) {                                      \
        return run(launch, bw_access_##way(launch->dims, launch->precision), work##_units, ahead); \
    }
#define ACCESS_COST(name, way, writes, random)                                                                     \
    static bw_status name##_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, \
                                 bw_cost *cost) {                                                                  \
        const bw_access access = bw_access_##way(dims, precision);                                                 \
        (void)facts;                                                                                               \
        bw_access_add_lines(&access, BW_LINE_BYTES, writes, random, cost);                                         \
        return BW_OK;                                                                                              \
    }
#define ACCESS_TABLE(name, at) \
    const bw_variant_table BW_CPU_TABLE(name) = {name##_rows, sizeof name##_rows / sizeof name##_rows[0], at};
#define ONLY(mask, name, what)                                                   \
    BW_CPU_ROW_IN(mask, "direct", name, .extra_cost = name##_cost, .text = what, \
                  .prediction = {.changes = "the only variant: " what})

ACCESS_LAUNCH(strided_read, shared, strided_read, false)
ACCESS_COST(strided_read, shared, false, false)
static const bw_variant strided_read_rows[] = {
    ONLY(BW_CPU_PRECISIONS, strided_read, "vector loads where elements are adjacent")};
ACCESS_TABLE(strided_read, NULL)

ACCESS_LAUNCH(strided_write, strided, strided_write, false)
ACCESS_COST(strided_write, strided, true, false)
static const bw_variant strided_write_rows[] = {
    ONLY(BW_CPU_PRECISIONS, strided_write, "vector stores past the caches where elements are adjacent")};
ACCESS_TABLE(strided_write, NULL)

ACCESS_LAUNCH(random_read, random, random_read, false)
ACCESS_LAUNCH(random_read_ahead, random, random_read, true)
ACCESS_COST(random_read, random, false, true)
static const bw_variant random_read_rows[] = {
    BW_CPU_ROW_IN(BW_MASK(FP32), "direct", random_read, .extra_cost = random_read_cost, .text = "granule by granule",
                  .prediction = {.changes = "the baseline: granule by granule"}),
    BW_CPU_ROW_IN(BW_MASK(FP32), "prefetch", random_read_ahead, .extra_cost = random_read_cost,
                  .text = "granules prefetched 2 KiB ahead",
                  .prediction = {.changes = "granules are prefetched, 2 KiB ahead of the reads",
                                 .predicted = 1.3,
                                 .because = "a core's reorder window holds only a few outstanding misses"}),
};
ACCESS_TABLE(random_read, "fp32 array_bytes=268435456 granule_bytes=128")

ACCESS_LAUNCH(random_write, random, random_write, false)
ACCESS_COST(random_write, random, true, true)
static const bw_variant random_write_rows[] = {
    ONLY(BW_MASK(FP32), random_write, "granule by granule, whole lines past the caches")};
ACCESS_TABLE(random_write, NULL)
