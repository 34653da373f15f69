/* What the operating system says about this machine. Everything is read from /proc and /sys; what cannot be read is
 * reported as unknown. */
#ifndef BW_CPU_HOST_H
#define BW_CPU_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Memory this process may still use, and all it could: the machine's, or its control group's where that is less. */
int64_t bw_host_memory_available(void);
int64_t bw_host_memory_total(void);

int64_t bw_host_cache_bytes(void); /* the last-level cache; 0 = unknown */

void bw_host_name(char *out, size_t size);    /* the processor's model */
void bw_host_release(char *out, size_t size); /* the kernel's release */
void bw_host_note(int64_t cache_bytes, char *out, size_t size);

#endif
