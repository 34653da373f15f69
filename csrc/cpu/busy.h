/* How busy other programs kept the CPUs: time in which threads of the pool waited to run, time that the hypervisor
 * took, and time in which processes waited for memory. */
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
