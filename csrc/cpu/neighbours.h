/* Who else wanted the CPUs: time for which the pool's threads were ready but not running, time that the hypervisor gave
 * to other guests, and time for which somebody waited for memory to become free. */
#ifndef BW_CPU_NEIGHBOURS_H
#define BW_CPU_NEIGHBOURS_H

#include "backend/backend.h"
#include "cpu/threads.h"

typedef struct bw_neighbours bw_neighbours;

bw_status bw_neighbours_create(bw_pool *pool, bw_neighbours **out);
void bw_neighbours_free(bw_neighbours *self); /* NULL is fine */

/* What happened since the look before this one; `slowed` is left alone. */
void bw_neighbours_look(bw_neighbours *self, bw_disturbance *out);

#endif
