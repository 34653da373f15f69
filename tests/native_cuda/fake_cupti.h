/* What the checks and the fake CUPTI share: its books. */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_EXPORT __attribute__((visibility("default")))

enum { FAKE_KERNELS_MOST = 4096 };

typedef struct fake_cupti {
    long calls, fail_at; /* the fail_at-th call reports fail_code; 0 = none */
    int fail_code;
    char failed_call[64];
    /* open things: 0 when all is closed */
    int subscribers, tracing, tracing_copies, initialized, hosts, profilers, started;
    /* what the device is like */
    /* what is counted until all is taken down, 1 = memory, 2 = pipes: the first configuration stays */
    int configuration, enabled;
    int old_pipes; /* the chip has other names for its pipes */
    int virtual_gpu, no_dram, no_l2, op_names, passes, passes_run;
    long drop;
    /* bytes read, written, through the L2 since the range began */
    int in_range;
    double seen[3];
    /* kernels run but not delivered yet, with copies and memsets among them */
    int kernels;
    uint64_t start_ns[FAKE_KERNELS_MOST], end_ns[FAKE_KERNELS_MOST];
    bool is_copy[FAKE_KERNELS_MOST];
    uint32_t device[FAKE_KERNELS_MOST], stream[FAKE_KERNELS_MOST];
} fake_cupti;

fake_cupti *fake_cupti_books(void);

#ifdef __cplusplus
}
#endif
#endif
