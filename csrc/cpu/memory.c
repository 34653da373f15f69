/* Maps memory for buffers, places its pages near the threads that use them, and caches released mappings. */
#include "cpu/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "cpu/host.h"

enum { PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20, WASTE_FACTOR = 4 };
static const double poll_every_s = 0.02;

struct bw_mapping {
    bw_mapping *next;
    bool used;
    char *start; /* huge-page aligned where the mapping is that large */
    int64_t bytes;
    void *base; /* what mmap returned */
    size_t base_bytes;
};

static void unmap(bw_mapping *mapping) {
    munmap(mapping->base, mapping->base_bytes);
    free(mapping);
}

static void drop_cached(bw_memory *memory) {
    for (bw_mapping **link = &memory->mappings, *mapping; (mapping = *link);) {
        if (mapping->used) {
            link = &mapping->next;
        } else {
            *link = mapping->next;
            unmap(mapping);
        }
    }
    memory->cached_bytes = 0;
}

/* The smallest cached mapping that is large enough; one much too large is left for a case that needs it. */
static bw_mapping *find_cached(const bw_memory *memory, int64_t bytes) {
    bw_mapping *best = NULL;
    for (bw_mapping *at = memory->mappings; at; at = at->next) {
        if (at->used || at->bytes < bytes || at->bytes / WASTE_FACTOR > bytes) continue;
        if (!best || at->bytes < best->bytes) best = at;
    }
    return best;
}

/* Large mappings are rounded up to a quarter of a power of two where there is memory for it, so that the next case, a
 * little larger, finds this one large enough. */
static bw_status map_fresh(int64_t bytes, int64_t free_bytes, bw_mapping **out) {
    const int64_t unit = bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES;
    int64_t step = unit;
    while (unit == HUGE_BYTES && step <= bytes / 8) step *= 2;
    bw_checked_int rounded = bw_mul(bw_num(bw_ceil_div(bytes, step)), bw_num(step));
    if (rounded.overflow || rounded.value > free_bytes / 2) {
        rounded = bw_mul(bw_num(bw_ceil_div(bytes, unit)), bw_num(unit));
    }
    bw_checked_int padded = bw_add(rounded, bw_num(unit == HUGE_BYTES ? HUGE_BYTES : 0));
    if (padded.overflow) return bw_fail(BW_CODE_MEMORY, "%lld bytes are more than can be addressed", (long long)bytes);
    bw_mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping) return bw_fail(BW_CODE_MEMORY, "no memory for a mapping's record");
    mapping->base_bytes = (size_t)padded.value;
    mapping->base =
        mmap(NULL, mapping->base_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping->base == MAP_FAILED) {
        free(mapping);
        return bw_fail(BW_CODE_MEMORY, "the system refused a mapping of %lld bytes: %s", (long long)bytes,
                       strerror(errno));
    }
    mapping->start = (char *)(((uintptr_t)mapping->base + (uintptr_t)unit - 1) / (uintptr_t)unit * (uintptr_t)unit);
    mapping->bytes = rounded.value;
    madvise(mapping->start, (size_t)mapping->bytes, MADV_HUGEPAGE); /* a hint: refusal is fine */
    *out = mapping;
    return BW_OK;
}

int bw_memory_owner(const bw_set_layout *layout, int64_t start, int64_t page_bytes, int ranks) {
    int64_t middle = (start + page_bytes / 2) % layout->set_bytes;
    int part = layout->parts - 1;
    while (part > 0 && layout->starts[part] > middle) part--;
    int64_t end = part + 1 < layout->parts ? layout->starts[part + 1] : layout->set_bytes;
    int64_t bytes = end - layout->starts[part];
    if (bytes / ranks < page_bytes) return (int)(start / page_bytes % ranks * bw_spread_step(ranks) % ranks);
    return (int)((double)(middle - layout->starts[part]) / (double)bytes * ranks);
}

bw_status bw_memory_poll(bw_memory *memory) {
    const double now_s = bw_now_s();
    if (!memory->poll || now_s < memory->polled_s + poll_every_s) return BW_OK;
    memory->polled_s = now_s;
    return memory->poll(memory->poll_context) ? bw_fail(BW_CODE_INTERRUPTED, "interrupted") : BW_OK;
}

typedef struct touch_task {
    bw_memory *memory;
    bw_pool *pool;
    const bw_mapping *mapping;
    bw_set_layout layout;
    bw_status status; /* the caller's */
    atomic_bool stopped;
} touch_task;

/* The caller asks as the thread that it is outside the pool, with its own processors. */
static bool is_stopped(touch_task *task, int rank) {
    if (rank == 0 && task->memory->poll && bw_now_s() >= task->memory->polled_s + poll_every_s) {
        bw_pool_leave(task->pool);
        task->status = bw_memory_poll(task->memory);
        bw_pool_enter(task->pool);
        if (task->status) atomic_store(&task->stopped, true);
    }
    return atomic_load_explicit(&task->stopped, memory_order_relaxed);
}

/* By huge pages where the mapping may have them: the first touch of any part of one decides where all of it lies. */
static void touch_pages(void *context, int rank, int ranks) {
    touch_task *task = context;
    volatile char *memory = task->mapping->start;
    const int64_t bytes = task->mapping->bytes, page_bytes = bytes >= HUGE_BYTES ? HUGE_BYTES : PAGE_BYTES;
    for (int64_t page = 0; page < bytes; page += page_bytes) {
        if (bw_memory_owner(&task->layout, page, page_bytes, ranks) != rank) continue;
        if (is_stopped(task, rank)) return;
        for (int64_t at = page; at < page + page_bytes; at += PAGE_BYTES) memory[at] = 0;
    }
}

bw_status bw_memory_allocate(bw_memory *memory, bw_pool *pool, int64_t bytes, const bw_set_layout *layout, void **out) {
    bytes = bw_max64(1, bytes);
    bw_mapping *mapping = find_cached(memory, bytes);
    if (mapping) {
        memory->cached_bytes -= mapping->bytes;
    } else {
        /* Fails here where pages are missing, before the kernel kills a process for them. */
        int64_t free_bytes = bw_host_memory_of(BW_HOST_ROOT).available;
        if (bytes > free_bytes) {
            drop_cached(memory);
            free_bytes = bw_host_memory_of(BW_HOST_ROOT).available;
        }
        if (bytes > free_bytes) {
            return bw_fail(BW_CODE_MEMORY, "%.3f GB of memory are needed, %.3f GB are free", (double)bytes * 1e-9,
                           (double)free_bytes * 1e-9);
        }
        BW_TRY(map_fresh(bytes, free_bytes, &mapping));
        touch_task task = {memory, pool, mapping, {.set_bytes = mapping->bytes, .parts = 1}, .status = BW_OK};
        if (layout) task.layout = *layout;
        bw_pool_enter(pool);
        bw_pool_run(pool, touch_pages, &task);
        bw_pool_leave(pool);
        if (task.status) {
            unmap(mapping);
            return task.status;
        }
        mapping->next = memory->mappings;
        memory->mappings = mapping;
    }
    mapping->used = true;
    *out = mapping->start;
    return BW_OK;
}

void bw_memory_release(bw_memory *memory, void *pointer) {
    for (bw_mapping **link = &memory->mappings, *mapping; (mapping = *link); link = &mapping->next) {
        if (mapping->start != pointer || !mapping->used) continue;
        if (mapping->bytes > memory->cached_limit) {
            *link = mapping->next;
            unmap(mapping);
            return;
        }
        if (memory->cached_bytes + mapping->bytes > memory->cached_limit) drop_cached(memory);
        mapping->used = false;
        memory->cached_bytes += mapping->bytes;
        return;
    }
}

void bw_memory_close(bw_memory *memory) {
    for (bw_mapping *at = memory->mappings; at; at = at->next) at->used = false;
    drop_cached(memory);
}
