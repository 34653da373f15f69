/* The facts of a device that only CUDA's kernels need (bw_device_facts.own). */
#pragma once

#include "backend/backend.h"

typedef struct bw_plan_cache bw_plan_cache; /* plan_cache.h */

struct bw_own_facts {
    int major, minor;     /* compute capability */
    int64_t shared_bytes; /* shared memory that a block may use */
    int64_t memory_clock_khz, bus_bits;
    const bw_plan_cache *plans; /* NULL: none are kept */
    int64_t host_numa_node;     /* of the host's memory that is nearest; -1 = not known, or all is as near */
};
