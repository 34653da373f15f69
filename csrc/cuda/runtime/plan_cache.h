/* The number of the fastest plan of each case that was searched, as long as a device is open. Two cases may share a
 * slot: the later search stays. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A case's key: begins with BW_PLAN_KEY and takes in one number after the other. FNV-1a. */
#define BW_PLAN_KEY UINT64_C(14695981039346656037)
static inline uint64_t bw_plan_key_mix(uint64_t key, int64_t number) {
    key = (key ^ (uint64_t)number) * UINT64_C(1099511628211);
    return key ^ key >> 32;
}

enum { BW_PLAN_SLOTS = 512, BW_PLAN_COLD = 128 };

struct bw_plan_cache {
    uint64_t slot[BW_PLAN_SLOTS]; /* the key but for its last byte; there the plan's number + 1 and BW_PLAN_COLD */
    int forced;                   /* for tests: above 0, each case takes this plan, counted from 1 */
};

/* -1: none is known, or none that was found with `cold` inputs. What is forced may be too large. `self` may be NULL. */
static inline int bw_plan_cache_find(const struct bw_plan_cache *self, uint64_t key, int count, bool cold) {
    if (!self) return -1;
    if (self->forced > 0) return self->forced - 1;
    const uint64_t word = __atomic_load_n(&self->slot[(key >> 8) % BW_PLAN_SLOTS], __ATOMIC_RELAXED);
    const int plan = (int)(word % BW_PLAN_COLD) - 1;
    if (word >> 8 != key >> 8 || plan >= count || (cold && !(word & BW_PLAN_COLD))) return -1;
    return plan;
}

static inline void bw_plan_cache_store(struct bw_plan_cache *self, uint64_t key, int plan, bool cold) {
    const uint64_t word = (key >> 8 << 8) | (uint64_t)(plan + 1 + (cold ? BW_PLAN_COLD : 0));
    __atomic_store_n(&self->slot[(key >> 8) % BW_PLAN_SLOTS], word, __ATOMIC_RELAXED);
}
