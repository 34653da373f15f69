/* The thread pool. Who waits for a run, or for its end, spins for a short while and sleeps on a futex after it, so that
 * launches in a row start within a microsecond and an idle pool costs nothing. Where threads outnumber CPUs nobody
 * spins: whoever spins then keeps the one it waits for from running. */
#include "cpu/threads.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parallel.h"

enum { CPU_LIMIT = 8 * CPU_SETSIZE, CACHE_LINE = 64, PAUSES_PER_LOOK = 32, THREAD_LIMIT = 4096 };
enum { SPIN_NS = 100000 };

typedef struct cpu_mask {
    cpu_set_t sets[CPU_LIMIT / CPU_SETSIZE]; /* seen as one long set by the CPU_*_S macros */
} cpu_mask;

typedef struct worker {
    bw_pool *pool;
    int rank;
    pthread_t thread;
    _Atomic pid_t id; /* the system's number of the thread */
} worker;

/* A count of what happened, on a cache line of its own. */
typedef struct event {
    _Alignas(CACHE_LINE) _Atomic uint32_t count; /* a futex */
    _Atomic uint32_t sleepers;
} event;

struct bw_pool {
    event started, finished;                       /* runs */
    _Alignas(CACHE_LINE) _Atomic uint32_t pending; /* workers that have not finished this run */
    _Alignas(CACHE_LINE) _Atomic int64_t next;
    _Alignas(CACHE_LINE) bw_pool_task task; /* NULL: stop */
    void *context;
    int threads, workers_started;
    int64_t spin_ns;
    pid_t process; /* a fork has no workers to join */
    int cpu_count;
    int *cpus;
    cpu_mask caller; /* the caller's own CPUs between enter and leave */
    bool entered;
    worker workers[];
};

static inline void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Spins until the count is not `seen` (returns true) or the pool's patience is over. */
static bool spin(const bw_pool *pool, event *awaited, uint32_t seen) {
    if (pool->spin_ns == 0) return false;
    int64_t end = bw_now_ns() + pool->spin_ns;
    do {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (atomic_load_explicit(&awaited->count, memory_order_acquire) != seen) return true;
            pause_cpu();
        }
    } while (bw_now_ns() < end);
    return false;
}

static void wait_for(const bw_pool *pool, event *awaited, uint32_t seen) {
    if (spin(pool, awaited, seen)) return;
    atomic_fetch_add(&awaited->sleepers, 1);
    while (atomic_load(&awaited->count) == seen) {
        syscall(SYS_futex, &awaited->count, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
    atomic_fetch_sub(&awaited->sleepers, 1);
}

static void announce(event *happened) {
    atomic_fetch_add(&happened->count, 1);
    if (atomic_load(&happened->sleepers)) {
        syscall(SYS_futex, &happened->count, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

static bool find_allowed(cpu_mask *mask) {
    memset(mask, 0, sizeof *mask);
    return sched_getaffinity(0, sizeof *mask, mask->sets) == 0;
}

static bool pin(int cpu) {
    cpu_mask mask;
    memset(&mask, 0, sizeof mask);
    CPU_SET_S(cpu, sizeof mask, mask.sets);
    return sched_setaffinity(0, sizeof mask, mask.sets) == 0;
}

/* A worker that cannot be pinned (its CPU was taken away meanwhile) still works. */
static void *work(void *argument) {
    worker *self = argument;
    bw_pool *pool = self->pool;
    atomic_store(&self->id, gettid());
    if (pool->cpu_count) pin(pool->cpus[self->rank % pool->cpu_count]);
    for (uint32_t seen = 0;; seen++) {
        wait_for(pool, &pool->started, seen);
        if (!pool->task) return NULL;
        pool->task(pool->context, self->rank, pool->threads);
        if (atomic_fetch_sub(&pool->pending, 1) == 1) announce(&pool->finished);
    }
}

void bw_pool_run(bw_pool *pool, bw_pool_task task, void *context) {
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    if (pool->threads == 1) {
        task(context, 0, 1);
        return;
    }
    uint32_t finished = atomic_load(&pool->finished.count);
    pool->task = task;
    pool->context = context;
    atomic_store_explicit(&pool->pending, (uint32_t)(pool->threads - 1), memory_order_relaxed);
    announce(&pool->started);
    task(context, 0, pool->threads);
    wait_for(pool, &pool->finished, finished);
}

int64_t bw_pool_next(bw_pool *pool) {
    return atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
}

int bw_pool_size(const bw_pool *pool) {
    return pool->threads;
}

int bw_pool_cpus(const bw_pool *pool) {
    return pool->cpu_count < pool->threads ? pool->cpu_count : pool->threads;
}

const int *bw_pool_cpu_list(const bw_pool *pool) {
    return pool->cpus;
}

bool bw_pool_uses(const bw_pool *pool, int cpu) {
    for (int i = 0; i < bw_pool_cpus(pool); i++) {
        if (pool->cpus[i] == cpu) return true;
    }
    return false;
}

pid_t bw_pool_thread(const bw_pool *pool, int rank) {
    return rank ? atomic_load(&pool->workers[rank].id) : gettid();
}

void bw_pool_enter(bw_pool *pool) {
    if (pool->entered || pool->cpu_count == 0) return;
    pool->entered = find_allowed(&pool->caller) && pin(pool->cpus[0]);
}

void bw_pool_leave(bw_pool *pool) {
    if (!pool->entered) return;
    sched_setaffinity(0, sizeof pool->caller, pool->caller.sets);
    pool->entered = false;
}

/* The CPUs this process may use: none, and threads unpinned, where the system will not say. */
static bw_status find_cpus(int **out, int *count) {
    cpu_mask mask;
    if (!find_allowed(&mask)) return BW_OK;
    int *cpus = malloc((size_t)CPU_COUNT_S(sizeof mask, mask.sets) * sizeof *cpus);
    if (!cpus) return bw_fail(BW_CODE_MEMORY, "no memory for the list of CPUs");
    for (int cpu = 0; cpu < CPU_LIMIT; cpu++) {
        if (CPU_ISSET_S(cpu, sizeof mask, mask.sets)) cpus[(*count)++] = cpu;
    }
    *out = cpus;
    return BW_OK;
}

/* Signals are the caller's. */
static bw_status start_worker(bw_pool *pool, int rank) {
    worker *self = &pool->workers[rank];
    self->pool = pool;
    self->rank = rank;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&self->thread, NULL, work, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        return bw_fail(BW_CODE_SYSTEM, "cannot start thread %d of %d: %s; set BWPROF_CPU_THREADS to fewer", rank + 1,
                       pool->threads, strerror(error));
    }
    pool->workers_started++;
    return BW_OK;
}

bw_status bw_pool_create(int threads, bw_pool **out) {
    bw_status status = BW_OK;
    bw_pool *pool = NULL;
    int *cpus = NULL;
    int cpu_count = 0;
    BW_GOTO(find_cpus(&cpus, &cpu_count));
    if (threads == 0) threads = cpu_count ? cpu_count : bw_parallel_processors();
    threads = (int)bw_max64(1, bw_min64(threads, THREAD_LIMIT));

    size_t bytes = sizeof *pool + (size_t)threads * sizeof pool->workers[0];
    pool = aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool) BW_GOTO(bw_fail(BW_CODE_MEMORY, "no memory for a pool of %d threads", threads));
    memset(pool, 0, bytes);
    pool->threads = threads;
    pool->process = getpid();
    pool->cpus = cpus;
    pool->cpu_count = cpu_count;
    pool->spin_ns = cpu_count && threads > cpu_count ? 0 : SPIN_NS;
    cpus = NULL;
    for (int rank = 1; rank < threads; rank++) BW_GOTO(start_worker(pool, rank));
    *out = pool;
    pool = NULL;

cleanup:
    free(cpus);
    bw_pool_free(pool);
    return status;
}

void bw_pool_free(bw_pool *pool) {
    if (!pool) return;
    if (pool->process == getpid()) {
        pool->task = NULL;
        announce(&pool->started);
        for (int i = 1; i <= pool->workers_started; i++) pthread_join(pool->workers[i].thread, NULL);
    }
    free(pool->cpus);
    free(pool);
}
