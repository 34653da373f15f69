/* The CPU backend's device handle. */
#pragma once

#include "cpu/isa.h"
#include "cpu/memory.h"
#include "cpu/threads.h"

/* In what order a thread goes through memory: line by line; or through a window of several pages, one line of each in
 * turn, which keeps more of a core's memory requests in flight where its own prefetchers stop at a page's end. */
typedef enum bw_walk { BW_WALK_LINEAR, BW_WALK_PAGES } bw_walk;

/* The quicker walk of each stream, which depends on the processor: a trial finds it (simd/stream.c). */
typedef struct bw_walks {
    bool known;
    bw_walk read, copy, triad;
} bw_walks;

typedef struct bw_busy bw_busy; /* how busy other programs kept the CPUs */

struct bw_device {
    bw_device_facts facts; /* facts.units is the pool's size */
    const bw_cpu_kernels *kernels;
    bw_pool *pool;
    bw_memory memory;
    bw_busy *busy;
    bw_walks walks;  /* linear until they are known */
    int cache_mib;   /* the last-level cache, as the environment says it; 0 = as the system does */
    void *reference; /* what the reference stream reads; NULL until its first use */
};

/* Of a last-level cache as it is reported, or stated, what the threads can hold: measured, once in a process, where it
 * is more than a core may have. */
int64_t bw_cache_usable_bytes(bw_device *device, int64_t reported_bytes, int caches);

bw_status bw_device_fill(bw_device *device, bw_dtype dtype, uint64_t seed, int operand, int64_t count, void *out);

void bw_device_read(bw_device *device, const void *data, int64_t bytes);

bw_status bw_busy_create(bw_pool *pool, bw_busy **out);
void bw_busy_free(bw_busy *self); /* NULL is fine */
/* Since the last call; `slowed` is left alone. */
void bw_busy_look(bw_device *device, bw_disturbance *out);
