#include <string.h>

#include "backend/backend.h"

extern const bw_backend bw_cpu_backend;
extern const bw_backend bw_cuda_backend; /* csrc/cuda, or the line below */

/* The one place that knows whether CUDA was compiled in. */
#if !BW_WITH_CUDA
const bw_backend bw_cuda_backend = {.name = "cuda", .text = "NVIDIA GPUs", .built = false};
#endif

static const bw_backend *const backends[] = {&bw_cuda_backend, &bw_cpu_backend};

const bw_variant_table bw_no_variants = {NULL, 0};

int bw_backend_count(void) {
    return (int)(sizeof backends / sizeof backends[0]);
}

const bw_backend *bw_backend_at(int index) {
    return backends[index];
}

bw_status bw_backend_find(const char *name, const bw_backend **out) {
    for (int i = 0; i < bw_backend_count(); i++) {
        if (strcmp(backends[i]->name, name) != 0) continue;
        if (!backends[i]->built) {
            return bw_fail(BW_CODE_UNAVAILABLE,
                           "backend '%s' is not in this build: install nvcc (CUDA_HOME or PATH) and reinstall bwprof",
                           name);
        }
        *out = backends[i];
        return BW_OK;
    }
    return bw_fail(BW_CODE_INVALID, "unknown backend '%s': allowed are cuda, cpu", name);
}
