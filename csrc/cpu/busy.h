/* Who else wanted the CPUs: time for which the pool's threads were ready but not running, time that the hypervisor gave
 * to other guests, and time for which somebody waited for memory to become free. */
#ifndef BW_CPU_BUSY_H
#define BW_CPU_BUSY_H

#include "backend/backend.h"
#include "cpu/threads.h"

typedef struct bw_busy bw_busy;

bw_status bw_busy_create(bw_pool *pool, bw_busy **out);
void bw_busy_free(bw_busy *self); /* NULL is fine */

/* What happened since the look before this one; `slowed` is left alone. */
void bw_busy_look(bw_busy *self, bw_disturbance *out);

#endif
