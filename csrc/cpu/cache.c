/* Measures how much of the last-level cache the threads can use. A virtual machine reports the host's whole cache but
 * may use only a part of it, and a rotation past all of it would take gigabytes and seconds. The test reads some lines,
 * then other bytes, then the first lines again in random order: they are gone when that takes as long as after an
 * instruction that evicts them. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/order.h"
#include "cpu/device.h"
#include "cpu/host.h"

enum { LINE_BYTES = 64, LINES = 1 << 14, PARTS = 15, PART_LINES = 1024, TRIES = 5 };
enum { BELIEVED_BYTES = 64 << 20 };      /* a cache; more is measured */
static const double slow_share = 0.75;   /* of the time from memory */
static const double probe_most_s = 0.15; /* no third size is tried after that */

/* The last answer, for other handles of this process: MiB reported above, MiB held below. */
static _Atomic uint64_t bw_cpu_cache_known;

/* Evicts the lines of one try, and waits until they are gone; false where no instruction does that. */
static bool evict(const char *lines) {
#if defined(__x86_64__)
    for (int i = 0; i < LINES; i++) __builtin_ia32_clflush(lines + (size_t)i * LINE_BYTES);
    __builtin_ia32_mfence();
    return true;
#elif defined(__aarch64__)
    for (int i = 0; i < LINES; i++) __asm__ volatile("dc civac, %0" ::"r"(lines + (size_t)i * LINE_BYTES) : "memory");
    __asm__ volatile("dsb ish" ::: "memory");
    return true;
#else
    (void)lines;
    return false;
#endif
}

/* The median of a few parts, of which a neighbor stretches one or two. Each line's address follows from what is in the
 * one before, which is 0: nothing can fetch it ahead. */
static double chase_ns(const char *lines) {
    double part_ns[PARTS];
    uint32_t at = 0;
    for (int part = 0; part < PARTS; part++) {
        int64_t start = bw_now_ns();
        for (int i = 0; i < PART_LINES; i++) {
            at = (at * 5 + 12345 + *(const volatile uint32_t *)(lines + (size_t)at * LINE_BYTES)) % LINES;
        }
        part_ns[part] = (double)(bw_now_ns() - start);
    }
    return bw_median(part_ns, PARTS);
}

typedef struct read_task {
    const bw_cpu_kernels *kernels;
    const char *data;
    int64_t bytes;
} read_task;

static void read_share(void *context, int rank, int ranks) {
    read_task *task = context;
    int64_t first, last;
    bw_pool_share(task->bytes, rank, ranks, &first, &last);
    volatile uint32_t sum = task->kernels->sum(task->data + first, last - first);
    (void)sum;
}

void bw_device_read(bw_device *device, const void *data, int64_t bytes) {
    read_task task = {device->kernels, data, bytes};
    bw_pool_run(device->pool, read_share, &task);
}

/* NULL where memory is short. */
static void *allocate(bw_device *device, int64_t bytes) {
    void *memory = NULL;
    bw_status_free(bw_memory_allocate(&device->memory, device->pool, bytes, NULL, &memory));
    return memory;
}

/* Whether lines are gone from the cache once so many other bytes were read, in most of several tries. What they take
 * from memory is measured right after: other work makes either take longer. */
static bool are_gone_after(bw_device *device, const char *lines, int64_t bytes) {
    void *others = allocate(device, bytes);
    double shares[TRIES];
    for (int i = 0; others && i < TRIES; i++) {
        /* Lines of a try's own: some caches keep what is read again and again, however much is read beside it. */
        const char *own = lines + (size_t)i * LINES * LINE_BYTES;
        volatile uint32_t sum = device->kernels->sum(own, (int64_t)LINES * LINE_BYTES);
        (void)sum;
        bw_device_read(device, others, bytes);
        double ns = chase_ns(own);
        evict(own);
        shares[i] = ns / chase_ns(own);
    }
    if (others) bw_memory_release(&device->memory, others);
    return others && bw_median(shares, TRIES) >= slow_share;
}

static int64_t measure_usable(bw_device *device, int64_t reported_bytes, int64_t first_bytes) {
    int64_t lines_bytes = (int64_t)TRIES * LINES * LINE_BYTES, usable_bytes = reported_bytes;
    double end_s = bw_now_s() + probe_most_s;
    char *lines = allocate(device, lines_bytes);
    if (!lines) return reported_bytes;
    memset(lines, 0, (size_t)lines_bytes);
    bool can_tell = evict(lines);
    for (int64_t bytes = first_bytes; can_tell && usable_bytes == reported_bytes && bytes / 2 < reported_bytes;
         bytes *= 2) {
        if (bytes > 2 * first_bytes && bw_now_s() >= end_s) break;
        if (are_gone_after(device, lines, bytes)) usable_bytes = bytes / 2;
    }
    bw_memory_release(&device->memory, lines);
    return usable_bytes;
}

int64_t bw_cache_usable_bytes(bw_device *device, int64_t reported_bytes, int caches) {
    int64_t believed_bytes = bw_max64(1, caches) * BELIEVED_BYTES;
    if (reported_bytes <= believed_bytes) return reported_bytes;
    uint64_t seen = atomic_load(&bw_cpu_cache_known), reported_mib = (uint64_t)reported_bytes >> 20;
    if (seen >> 32 != reported_mib) {
        bool (*poll)(void *context) = device->memory.poll;
        device->memory.poll = NULL; /* half a measurement says nothing, and all of it takes a tenth of a second */
        bw_pool_enter(device->pool);
        seen = reported_mib << 32 | (uint64_t)measure_usable(device, reported_bytes, believed_bytes) >> 20;
        bw_pool_leave(device->pool);
        device->memory.poll = poll;
        atomic_store(&bw_cpu_cache_known, seen);
    }
    uint64_t usable_mib = seen & UINT32_MAX;
    return usable_mib < reported_mib ? (int64_t)usable_mib << 20 : reported_bytes;
}
