/* Memory of the CPU backend: mapped, on huge pages where allowed, touched by the pool's threads before it is handed
 * out. Released mappings are kept for the next case, because a page's first touch costs more than reading it. */
#ifndef BW_CPU_MEMORY_H
#define BW_CPU_MEMORY_H

#include "base/status.h"
#include "cpu/threads.h"

typedef struct bw_mapping bw_mapping;

typedef struct bw_memory {
    bw_mapping *used, *cached; /* lists, the newest first */
    int64_t cached_bytes, cached_limit;
} bw_memory;

bw_status bw_memory_allocate(bw_memory *memory, bw_pool *pool, int64_t bytes, void **out);
void bw_memory_release(bw_memory *memory, void *pointer);
void bw_memory_close(bw_memory *memory); /* unmaps everything */

#endif
