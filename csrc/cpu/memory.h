/* Memory of the CPU backend: mapped, on huge pages where allowed, and touched by the pool's threads before it is handed
 * out: a page lies in the memory of the processor that touches it first. Released mappings are kept for the next case,
 * because a page's first touch costs more than reading it; but not where there are several memories, since another case
 * would find its pages in the wrong one. */
#pragma once

#include "backend/backend.h"
#include "base/status.h"
#include "cpu/threads.h"

typedef struct bw_mapping bw_mapping;

typedef struct bw_memory {
    bw_mapping *mappings;               /* a list: those in use and those cached for the next case */
    int64_t cached_bytes, cached_limit; /* a limit of 0: nothing is kept */
    bool (*poll)(void *context);        /* true: stop; NULL: never */
    void *poll_context;
    double polled_s;
} bw_memory;

/* Between two pieces of work on memory: BW_CODE_INTERRUPTED where poll, called every 20 ms at most, returns true. */
bw_status bw_memory_poll(bw_memory *memory);

/* `layout` NULL: one set of one part. Asks poll while it touches pages. */
bw_status bw_memory_allocate(bw_memory *memory, bw_pool *pool, int64_t bytes, const bw_set_layout *layout, void **out);
void bw_memory_release(bw_memory *memory, void *pointer);
void bw_memory_close(bw_memory *memory); /* unmaps everything */

/* The rank that a page of `page_bytes` from byte `start` on belongs to: whoever has its middle in an even share of the
 * part that it lies in, as kernels share their operands. Pages too large for that are spread over the ranks, neighbors
 * far apart. */
int bw_memory_owner(const bw_set_layout *layout, int64_t start, int64_t page_bytes, int ranks);
