/* The CPU backend's device handle. */
#ifndef BW_CPU_DEVICE_H
#define BW_CPU_DEVICE_H

#include "cpu/isa.h"
#include "cpu/memory.h"
#include "cpu/neighbours.h"
#include "cpu/threads.h"

struct bw_device {
    bw_device_facts facts; /* facts.units is the pool's size */
    const bw_cpu_kernels *kernels;
    bw_pool *pool;
    bw_memory memory;
    bw_neighbours *neighbours;
};

#endif
