/* What the checks and the fake CUPTI share: its books. */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_EXPORT __attribute__((visibility("default")))

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
    /* kernels run but not delivered yet */
    int kernels, copies; /* copies: they are copies all */
    uint64_t start_ns[64], end_ns[64];
} fake_cupti;

fake_cupti *fake_cupti_books(void);

#ifdef __cplusplus
}
#endif
#endif
