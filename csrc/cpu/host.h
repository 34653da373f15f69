/* What the operating system says about this machine. Everything is read from /proc and /sys; what cannot be read is
 * reported as unknown. */
#ifndef BW_CPU_HOST_H
#define BW_CPU_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Memory this process may still use, and all it could: the machine's, or its control group's where that is less. */
int64_t bw_host_memory_available(void);
int64_t bw_host_memory_total(void);

/* Where the system describes its processors; tests have another one. */
#define BW_HOST_SYSTEM "/sys/devices/system"

/* The last-level caches of these CPUs, each counted once however many of them share it. */
typedef struct bw_host_caches {
    int64_t bytes; /* together; 0 = unknown */
    int count;
} bw_host_caches;
bw_host_caches bw_host_caches_of(const char *system, const int *cpus, int count);

/* The memory nodes that these CPUs belong to; 1 where nobody tells. */
int bw_host_nodes_of(const char *system, const int *cpus, int count);

void bw_host_name(char *out, size_t size);    /* the processor's model */
void bw_host_release(char *out, size_t size); /* the kernel's release */
/* `taken_bytes` is the size that counts: the caches' own, or what somebody states instead. */
void bw_host_note(const bw_host_caches *caches, int64_t taken_bytes, char *out, size_t size);

#endif
