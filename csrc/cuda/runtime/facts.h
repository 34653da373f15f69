/* What only CUDA's devices have, and their kernels ask for: bw_device_facts.own. */
#ifndef BW_CUDA_RUNTIME_FACTS_H
#define BW_CUDA_RUNTIME_FACTS_H

#include "backend/backend.h"

struct bw_own_facts {
    int major, minor;     /* compute capability */
    int64_t shared_bytes; /* shared memory that a block may use */
    int64_t memory_clock_khz, bus_bits;
};

#ifdef __cplusplus
extern "C" {
#endif

bw_status bw_cuda_facts_read(bw_device *device);
void bw_cuda_version_text(int version, char *out, size_t out_size); /* 12040: "12.4" */

#ifdef __cplusplus
}
#endif

#endif
