/* The thread pool: pinned workers that share one task at a time with the calling thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/checked.h"
#include "base/status.h"

typedef struct bw_pool bw_pool;
typedef void (*bw_pool_task)(void *context, int rank, int ranks);

/* `threads` 0: one for each CPU that the process may use. */
bw_status bw_pool_create(int threads, bw_pool **out);
void bw_pool_free(bw_pool *pool); /* NULL is fine */
int bw_pool_size(const bw_pool *pool);
int bw_pool_cpus(const bw_pool *pool);            /* CPUs that the threads are pinned to; 0 = they are not pinned */
const int *bw_pool_cpu_list(const bw_pool *pool); /* bw_pool_cpus of them; NULL = they are not pinned */
bool bw_pool_uses(const bw_pool *pool, int cpu);
pid_t bw_pool_thread(const bw_pool *pool, int rank); /* rank 0 is the calling thread */

/* Runs task(context, rank, ranks) once per rank and returns when all are done; the caller is rank 0. */
void bw_pool_run(bw_pool *pool, bw_pool_task task, void *context);

/* Inside a task: the next index that no rank has taken yet, 0 upwards. For work of uneven size. */
int64_t bw_pool_next(bw_pool *pool);

/* Pins the calling thread to rank 0's CPU, and gives it back the CPUs it had. */
void bw_pool_enter(bw_pool *pool);
void bw_pool_leave(bw_pool *pool);

/* This rank's contiguous share of `count` things. */
static inline void bw_pool_share(int64_t count, int rank, int ranks, int64_t *first, int64_t *last) {
    int64_t each = count / ranks, more = count % ranks;
    *first = each * rank + bw_min64(rank, more);
    *last = *first + each + (rank < more);
}

/* The same in whole units of `unit` things; the last share ends with the count. */
static inline void bw_pool_share_units(int64_t count, int64_t unit, int rank, int ranks, int64_t *first,
                                       int64_t *last) {
    bw_pool_share(bw_ceil_div(count, unit), rank, ranks, first, last);
    *first = bw_min64(*first * unit, count);
    *last = bw_min64(*last * unit, count);
}
