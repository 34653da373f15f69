/* What the linker sends to the fake instead of to the system (-Wl,--wrap): the clock and host memory. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "fake.h"

/* ---- the monotonic clock: the linker sends who asks for it here ---- */

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
    static _Atomic int64_t looked_ns;
    if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, time);
    int64_t now_ns = fake.now_ns + atomic_fetch_add(&looked_ns, fake.look_ns ? fake.look_ns : 1);
    *time = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
    return 0;
}

/* ---- host memory: the linker sends every allocation of the C code here (-Wl,--wrap) ---- */

/* Reference rows are worked out by several threads. */
static _Atomic int64_t host_allocations, host_fail_at;

int64_t fake_host_memory(int64_t fail_at) {
    host_fail_at = fail_at;
    return atomic_exchange(&host_allocations, 0);
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);

static bool host_memory_ends(void) {
    return ++host_allocations == host_fail_at;
}

void *__wrap_malloc(size_t size) {
    return host_memory_ends() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return host_memory_ends() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size) {
    return host_memory_ends() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return host_memory_ends() ? NULL : __real_aligned_alloc(alignment, size);
}
