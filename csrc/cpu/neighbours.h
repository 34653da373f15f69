/* Who else wanted the CPUs: time for which the pool's threads were ready but not running, and time that the hypervisor
 * gave to other guests. */
#ifndef BW_CPU_NEIGHBOURS_H
#define BW_CPU_NEIGHBOURS_H

#include "backend/backend.h"
#include "cpu/threads.h"

typedef struct bw_neighbours bw_neighbours;

bw_status bw_neighbours_create(bw_pool *pool, bw_neighbours **out);
void bw_neighbours_free(bw_neighbours *self); /* NULL is fine */

/* What happened since the look before this one. */
void bw_neighbours_look(bw_neighbours *self, bw_disturbance *out);

#endif
