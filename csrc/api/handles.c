/* A handle holds numbers of a slot and its owner, no address: a destroyed one is known without reading freed memory. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#include "api/profiler.h"

enum { SLOT_BITS = 16 };

typedef struct slot {
    _Atomic bool taken;
    _Atomic uint32_t owner; /* a number that no earlier owner had; odd: there is one */
    _Atomic int users;      /* calls under way */
    _Atomic bool on;
    int64_t forks; /* of this process when it was made */
    bw_profiler *content;
} slot;

/* The slots of all handles. A process needs one table, since a handle may be used after it was destroyed. */
static struct {
    slot slots[BWPROF_PROFILERS_MOST];
    _Atomic int64_t forks;   /* that led to this process, since the first profiler */
    _Atomic bool watched;    /* forks are counted */
    _Atomic int64_t threads; /* that have a number */
} bw_api_handles;

/* The system's thread numbers are no substitute: a new thread may get the number of one that has ended. */
static _Thread_local int64_t bw_api_thread_number; /* 0: none yet */

int64_t bw_api_thread(void) {
    if (!bw_api_thread_number) bw_api_thread_number = atomic_fetch_add(&bw_api_handles.threads, 1) + 1;
    return bw_api_thread_number;
}

static void count_fork(void) {
    atomic_fetch_add_explicit(&bw_api_handles.forks, 1, memory_order_relaxed);
}

static slot *slot_of(const bwprof_profiler *handle, uint32_t *owner) {
    uintptr_t number = (uintptr_t)handle, rest = number >> SLOT_BITS, index = (number & ((1u << SLOT_BITS) - 1)) - 1;
    *owner = (uint32_t)rest;
    return index < BWPROF_PROFILERS_MOST && rest == *owner && (*owner & 1) ? &bw_api_handles.slots[index] : NULL;
}

static bool is_owner(const slot *self, uint32_t owner) {
    return self && atomic_load(&self->owner) == owner;
}

static bw_status refuse(const bwprof_profiler *handle) {
    if (!handle) return bw_fail(BW_CODE_INVALID, "profiler is NULL");
    return bw_fail(BW_CODE_INVALID, "this profiler was destroyed, or never created");
}

static bool is_foreign(const slot *self) {
    return self->forks != atomic_load_explicit(&bw_api_handles.forks, memory_order_relaxed);
}

/* This increments `users` before it reads `owner`; bw_handle_take changes `owner` before it reads `users`. */
bw_status bw_handle_hold(const bwprof_profiler *handle, bw_profiler **out) {
    uint32_t owner;
    slot *self = slot_of(handle, &owner);
    if (!self) return refuse(handle);
    atomic_fetch_add(&self->users, 1);
    bool there = is_owner(self, owner);
    if (there && !is_foreign(self)) {
        *out = self->content;
        return BW_OK;
    }
    atomic_fetch_sub(&self->users, 1);
    if (!there) return refuse(handle);
    return bw_fail(BW_CODE_UNAVAILABLE, "this profiler was created before a fork: create a new one here");
}

void bw_handle_let_go(const bwprof_profiler *handle) {
    uint32_t owner;
    atomic_fetch_sub_explicit(&slot_of(handle, &owner)->users, 1, memory_order_release);
}

bool bw_handle_is_off(const bwprof_profiler *handle) {
    uint32_t owner;
    const slot *self = slot_of(handle, &owner);
    return is_owner(self, owner) && !atomic_load_explicit(&self->on, memory_order_relaxed);
}

void bw_handle_switch(const bwprof_profiler *handle, bool on) {
    uint32_t owner;
    atomic_store(&slot_of(handle, &owner)->on, on);
}

bw_status bw_handle_make(bw_profiler *content, bwprof_profiler **out) {
    if (!atomic_exchange(&bw_api_handles.watched, true)) pthread_atfork(NULL, NULL, count_fork);
    for (uintptr_t i = 0; i < BWPROF_PROFILERS_MOST; i++) {
        slot *self = &bw_api_handles.slots[i];
        if (atomic_exchange(&self->taken, true)) continue;
        self->content = content;
        self->forks = atomic_load(&bw_api_handles.forks);
        atomic_store(&self->on, true);
        uint32_t owner = atomic_fetch_add(&self->owner, 1) + 1;
        *out = (bwprof_profiler *)((uintptr_t)owner << SLOT_BITS | (i + 1));
        return BW_OK;
    }
    return bw_fail(BW_CODE_BUSY, "%d profilers are open, which is as many as there may be: destroy one",
                   BWPROF_PROFILERS_MOST);
}

bw_status bw_handle_take(const bwprof_profiler *handle, bw_profiler **out) {
    uint32_t owner;
    slot *self = slot_of(handle, &owner);
    *out = NULL;
    if (!self || !atomic_compare_exchange_strong(&self->owner, &owner, owner + 1)) return refuse(handle);
    if (is_foreign(self)) return BW_OK; /* the parent process owns it, and its threads may have been changing it */
    while (atomic_load(&self->users)) sched_yield();
    *out = self->content;
    atomic_store(&self->taken, false);
    return BW_OK;
}
