/* What /proc and /sys say about this machine. What cannot be read is reported as unknown. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where the system describes its processors, and the folder that /proc and /sys are in; tests have others. */
#define BW_HOST_SYSTEM "/sys/devices/system"
#define BW_HOST_ROOT ""

/* The start of a small file, without its last newline; false where it cannot be read, or is empty. */
bool bw_host_read(const char *path, char *out, size_t size);

/* Memory of this process: the machine's, or its control groups' where that is less. */
typedef struct bw_host_memory {
    int64_t total, available;
} bw_host_memory;
bw_host_memory bw_host_memory_of(const char *root);

/* CPUs that the quotas of this process's control groups pay for; INFINITY = no quota. */
double bw_host_quota_of(const char *root);

/* Time in which a quota held threads of its group back, summed over CPUs; -1 = unknown. */
int64_t bw_host_throttled_us_of(const char *root);

/* The last-level caches of these CPUs, each counted once however many of them share it. */
typedef struct bw_host_caches {
    int64_t bytes; /* together; 0 = unknown */
    int count;
} bw_host_caches;
bw_host_caches bw_host_caches_of(const char *system, const int *cpus, int count);

/* The memory nodes that these CPUs belong to; 1 where that is not known. */
int bw_host_nodes_of(const char *system, const int *cpus, int count);

void bw_host_name(char *out, size_t size);    /* the processor's model */
void bw_host_release(char *out, size_t size); /* the kernel's release */
/* `taken_bytes` is the size that counts: the caches' own, or a configured one. */
void bw_host_note(const bw_host_caches *caches, int64_t taken_bytes, char *out, size_t size);
