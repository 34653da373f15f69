/* Work on all processors of the host for a short time, mostly for reference rows. */
#pragma once

#include <stdint.h>

/* Processors that this process may use, at least 1. */
int bw_parallel_processors(void);

/* A number that no other running thread has. */
uint64_t bw_parallel_thread(void);

/* Calls task(context), whose result nobody reads, once on the calling thread and once on each of up to `threads` - 1
 * others, and waits for all of them. Fewer others, where the system gives no more threads, is no failure: the task must
 * share what is to be done, not count on who does it. */
void bw_parallel_run(int threads, void *(*task)(void *context), void *context);
