/* The four streams. All threads take contiguous shares of whole 4096-byte segments.
 * The variants of read, copy and triad:
 *   linear   a share from its beginning to its end, what comes 2 KiB later asked for in advance;
 *   pages    a window of 8 pages (read) or 4 (copy, triad), one line of each in turn, with the next one prefetched;
 *            prefetchers stop at the end of a page, so that a walk along one page has few requests in flight: a Xeon
 *            reads a fifth faster by windows, an EPYC, whose prefetchers run on, a fifth slower;
 *   vector   the one of these that a trial on this device found quicker.
 * write has one variant, since stores do not wait for memory. */
#include "ops/families/memory/stream.h"

#include "base/clock.h"
#include "base/order.h"
#include "cpu/simd/copy.h"
#include "cpu/simd/elementwise/map.h"

enum { PATTERN_ELEMS = 64, READ_PAGES = 8, READ_WINDOW = READ_PAGES * BW_PAGE_BYTES };
_Static_assert((int)BW_STREAM_SEGMENT_BYTES == (int)BW_PAGE_BYTES, "a checksum is a page's");

/* Bytes [first, last) of the arrays, whole segments: one rank's share. */
typedef struct part {
    const bw_launch *launch;
    bw_walk walk;
    bool large; /* all of it */
    int64_t first, last;
} part;

typedef void part_work(const part *part);

BW_INLINE int64_t stream_bytes(const bw_launch *launch) {
    return launch->dims->value[BW_STREAM_ELEMENTS] * bw_elem_bytes(launch->precision->activation);
}

/* `left` bytes of the share follow p; what is beyond them belongs to others, and is not asked for. */
static uint32_t segment_sum(const char *p, int64_t left) {
    bw_vu total[8] = {0};
    for (int64_t i = 0; i < BW_STREAM_SEGMENT_BYTES; i += 8 * BW_SIMD_BYTES) {
        for (int64_t line = i; line < i + 8 * BW_SIMD_BYTES; line += BW_LINE_BYTES) {
            __builtin_prefetch(p + bw_min64(line + BW_LINEAR_AHEAD, left - 1), 0, 2);
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) total[j] += bw_vu_load(p + i + j * BW_SIMD_BYTES);
    }
    return bw_vu_sum(((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7])));
}

/* A window's segments together; `ahead` bytes further on comes the next one. */
static void window_sums(const char *p, int64_t ahead, uint32_t *sums) {
    bw_vu total[READ_PAGES] = {0};
    for (int64_t line = 0; line < BW_PAGE_BYTES; line += BW_LINE_BYTES) {
#pragma GCC unroll 8
        for (int page = 0; page < READ_PAGES; page++) {
            const char *at = p + page * BW_PAGE_BYTES + line;
            __builtin_prefetch(at + ahead);
#pragma GCC unroll 4
            for (int i = 0; i < BW_LINE_BYTES; i += BW_SIMD_BYTES) total[page] += bw_vu_load(at + i);
        }
    }
    for (int page = 0; page < READ_PAGES; page++) sums[page] = bw_vu_sum(total[page]);
}

static void read_part(const part *p) {
    const char *a = p->launch->operand[BW_STREAM_READ_A];
    uint32_t *checksum = p->launch->operand[BW_STREAM_READ_CHECKSUM];
    int64_t i = p->first, last = p->last;
    for (; p->walk == BW_WALK_PAGES && i + READ_WINDOW <= last; i += READ_WINDOW) {
        window_sums(a + i, i + 2 * READ_WINDOW <= last ? READ_WINDOW : 0, checksum + i / BW_STREAM_SEGMENT_BYTES);
    }
    for (; i + BW_STREAM_SEGMENT_BYTES <= last; i += BW_STREAM_SEGMENT_BYTES) {
        checksum[i / BW_STREAM_SEGMENT_BYTES] = segment_sum(a + i, last - i);
    }
    if (i < last) {
        char padded[BW_STREAM_SEGMENT_BYTES] = {0};
        memcpy(padded, a + i, (size_t)(last - i));
        checksum[i / BW_STREAM_SEGMENT_BYTES] = segment_sum(padded, sizeof padded);
    }
}

/* The pattern repeats every 64 elements, and a share starts on a multiple of that. */
BW_INLINE void write_pattern(bw_dtype dtype, char *to, int64_t bytes, bool large) {
    float values[PATTERN_ELEMS];
    char pattern[4 * PATTERN_ELEMS];
    for (int i = 0; i < PATTERN_ELEMS; i++) values[i] = bw_pattern_value((uint64_t)i);
    for (int i = 0; i < PATTERN_ELEMS; i += BW_SIMD_FLOATS) bw_vf_store_as(dtype, pattern, i, bw_vf_load(values + i));
    const int64_t period = PATTERN_ELEMS * bw_elem_bytes(dtype);
    int64_t i = 0;
    for (; i + period <= bytes; i += period) {
        for (int64_t j = 0; j < period; j += BW_SIMD_BYTES) {
            bw_vf x = bw_vf_load((const float *)(pattern + j));
            if (large) {
                bw_stream_vector(to + i + j, x);
            } else {
                bw_vf_store((float *)(to + i + j), x);
            }
        }
    }
    if (large) bw_stream_fence();
    memcpy(to + i, pattern, (size_t)(bytes - i));
}

static void write_part(const part *p) {
    char *b = p->launch->operand[BW_STREAM_WRITE_B];
    BW_DTYPE_SWITCH(p->launch->precision->activation, write_pattern, b + p->first, p->last - p->first, p->large);
}

static void copy_part(const part *p) {
    const char *a = p->launch->operand[BW_STREAM_COPY_A];
    char *b = p->launch->operand[BW_STREAM_COPY_B];
    bw_copy_bytes(b + p->first, a + p->first, p->last - p->first, p->large, p->walk);
    if (p->large) bw_stream_fence();
}

BW_INLINE bw_vf triad(bw_dtype dtype, const bw_map *map, int64_t i, bw_vf a, bw_vf b) {
    (void)dtype, (void)map, (void)i;
    return a + bw_vf_set(BW_STREAM_TRIAD_FACTOR) * b; /* exact * */
}

BW_INLINE void triad_stretch(bw_dtype dtype, const part *p) {
    const int64_t elem = bw_elem_bytes(dtype);
    const bw_map map = {.a = p->launch->operand[BW_STREAM_TRIAD_A],
                        .b = p->launch->operand[BW_STREAM_TRIAD_B],
                        .out = p->launch->operand[BW_STREAM_TRIAD_C],
                        .walk = p->walk,
                        .large = p->large,
                        .first = p->first / elem,
                        .last = p->last / elem,
                        .end = p->last / elem};
    bw_map_walk(dtype, 2, triad, &map);
    if (p->large) bw_stream_fence();
}

static void triad_part(const part *p) {
    BW_DTYPE_SWITCH(p->launch->precision->activation, triad_stretch, p);
}

typedef struct stream_task {
    const bw_launch *launch;
    part_work *work;
    bw_walk walk;
} stream_task;

static void stream_share(void *context, int rank, int ranks) {
    const stream_task *task = context;
    int64_t bytes = stream_bytes(task->launch);
    part p = {task->launch, task->walk, bw_is_large(bytes), 0, 0};
    bw_pool_share_units(bytes, BW_STREAM_SEGMENT_BYTES, rank, ranks, &p.first, &p.last);
    task->work(&p);
}

static bw_status run(const bw_launch *launch, part_work *work, bw_walk walk) {
    stream_task task = {launch, work, walk};
    bw_pool_run(launch->device->pool, stream_share, &task);
    return BW_OK;
}

enum { TRIAL_ROUNDS = 7, TRIAL_PARTS = 4, TRIAL_THREAD_BYTES = 1 << 20, TRIAL_MEMORY_SHARE = 8 };
/* What the pages must save: either walk does where they are as good as each other, but always the same one. */
static const double pages_save = 0.02;

/* Memory that the trial goes through part by part: a part is cold again when its turn comes. */
typedef struct trial {
    bw_device *device;
    char *memory;
    int64_t part_bytes, next_part;
} trial;

/* One launch over the next part, which all operands share; the read's few checksums go to the end of the last part. */
static double trial_ns(trial *self, part_work *work, int operands, bw_walk walk) {
    int64_t bytes = self->part_bytes / operands / BW_PAGE_BYTES * BW_PAGE_BYTES;
    bw_dims dims = {.value = {[BW_STREAM_ELEMENTS] = bytes / bw_elem_bytes(BW_FP32)}};
    bw_launch launch = {.dims = &dims, .precision = bw_precision_get(BW_PRECISION_FP32), .device = self->device};
    char *part = self->memory + self->next_part * self->part_bytes;
    for (int i = 0; i < operands; i++) launch.operand[i] = part + i * bytes;
    if (operands == 1) launch.operand[BW_STREAM_READ_CHECKSUM] = self->memory + TRIAL_PARTS * self->part_bytes;
    self->next_part = (self->next_part + 1) % TRIAL_PARTS;
    int64_t start = bw_now_ns();
    run(&launch, work, walk);
    return (double)(bw_now_ns() - start);
}

static bw_walk quicker_walk(trial *self, part_work *work, int operands) {
    double linear_ns[TRIAL_ROUNDS], pages_ns[TRIAL_ROUNDS];
    for (int i = 0; i < TRIAL_ROUNDS; i++) {
        linear_ns[i] = trial_ns(self, work, operands, BW_WALK_LINEAR);
        pages_ns[i] = trial_ns(self, work, operands, BW_WALK_PAGES);
    }
    double least_ns = (1.0 - pages_save) * bw_median(linear_ns, TRIAL_ROUNDS);
    return bw_median(pages_ns, TRIAL_ROUNDS) < least_ns ? BW_WALK_PAGES : BW_WALK_LINEAR;
}

/* Where memory is short the walks stay as they are: that is no reason to fail. */
void BW_CPU_NAME(walks_choose)(bw_device *device) {
    bw_walks *walks = &device->walks;
    if (walks->known) return;
    walks->known = true;
    int64_t least = TRIAL_THREAD_BYTES * (int64_t)bw_pool_size(device->pool);
    int64_t part = bw_max64(least, device->facts.cache_bytes / 2) / BW_PAGE_BYTES * BW_PAGE_BYTES;
    if (part > device->facts.memory_bytes / TRIAL_MEMORY_SHARE / TRIAL_PARTS) return;
    void *memory = NULL;
    bw_status status =
        bw_memory_allocate(&device->memory, device->pool, TRIAL_PARTS * part + part / 1024, NULL, &memory);
    /* Inputs as cases have them: some processors write lines of zeros faster than others. */
    if (!status) status = bw_device_fill(device, BW_FP32, 0, 0, TRIAL_PARTS * part / 4, memory);
    if (status) {
        walks->known = bw_status_code(status) != BW_CODE_INTERRUPTED;
        bw_status_free(status);
        if (memory) bw_memory_release(&device->memory, memory);
        return;
    }
    trial self = {.device = device, .memory = memory, .part_bytes = part};
    bw_pool_enter(device->pool);
    walks->read = quicker_walk(&self, read_part, 1);
    walks->copy = quicker_walk(&self, copy_part, 2);
    walks->triad = quicker_walk(&self, triad_part, 3);
    bw_pool_leave(device->pool);
    bw_memory_release(&device->memory, memory);
}

/* A walk is a matter of threads with a window or more to go through. */
static bw_status prepare(const bw_launch *sets, int64_t set_count, void **state) {
    (void)set_count, (void)state;
    bool matters = stream_bytes(sets) >= READ_WINDOW * (int64_t)bw_pool_size(sets->device->pool);
    if (matters && !sets->once) BW_CPU_NAME(walks_choose)(sets->device);
    return BW_OK;
}

#define PAST_CACHES "; 2 MiB and more are written past the caches (non-temporal), where the ISA can"

#define BW_STREAM_LAUNCH(name, stem, walk)                    \
    static bw_status name##_launch(const bw_launch *launch) { \
        return run(launch, stem##_part, walk);                \
    }
#define BW_STREAM_TABLE(stem)                                                                                      \
    const bw_variant_table BW_CPU_TABLE(stream_##stem) = {stem##_rows, sizeof stem##_rows / sizeof stem##_rows[0], \
                                                          "fp32 elements=67108864"};

/* The launches and the table of stream_<stem>, whose threads run <stem>_part. */
#define BW_STREAM(stem, does, pages, gain)                                                                     \
    BW_STREAM_LAUNCH(stem##_linear, stem, BW_WALK_LINEAR)                                                      \
    BW_STREAM_LAUNCH(stem##_pages, stem, BW_WALK_PAGES)                                                        \
    BW_STREAM_LAUNCH(stem, stem, launch->device->walks.stem)                                                   \
    static const bw_variant stem##_rows[] = {                                                                  \
        BW_CPU_ROW("linear", stem##_linear, .text = does ", each thread line by line",                         \
                   .prediction = {.changes = "the baseline: each thread walks its share line by line"}),       \
        BW_CPU_ROW("pages", stem##_pages, .text = does ", each thread through " pages " pages side by side",   \
                   .prediction = {.changes = "each thread walks " pages " pages side by side",                 \
                                  .predicted = gain,                                                           \
                                  .because = "one walk leaves memory idle that several pages keep busy"}),     \
        BW_CPU_ROW("vector", stem, .prepare = prepare, .text = does ", whichever walk is quicker here",        \
                   .prediction = {.changes = "whichever of the two walks was quicker here, tried once",        \
                                  .predicted = 1.0,                                                            \
                                  .because = "it is one of the two: where memory is shared, the other one"})}; \
    BW_STREAM_TABLE(stem)

BW_STREAM(read, "vector sums of 4096-byte segments", "8", 1.35)
BW_STREAM(copy, "vector loads and stores" PAST_CACHES, "4", 1.38)
BW_STREAM(triad, "vector arithmetic in fp32" PAST_CACHES, "4", 1.17)

BW_STREAM_LAUNCH(write, write, BW_WALK_LINEAR)
static const bw_variant write_rows[] = {
    BW_CPU_ROW("vector", write, .text = "vector stores" PAST_CACHES,
               .prediction = {.changes = "the only variant: vector stores" PAST_CACHES})};
BW_STREAM_TABLE(write)
