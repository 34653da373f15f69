/* The list of backends. This file alone knows whether CUDA is in the build. */
#include "backend/backend.h"
#include "base/names.h"
#include "build_info.h"

extern const bw_backend bw_cpu_backend;
extern const bw_backend bw_cuda_backend; /* csrc/cuda, or the line below */

#if !BW_WITH_CUDA
const bw_backend bw_cuda_backend = {.name = "cuda",
                                    .text = "NVIDIA GPUs",
                                    .built = false,
                                    .absence = BW_BUILD_CUDA_REASON,
                                    .remedy = "install nvcc (CUDA_HOME or PATH) and reinstall bwprof"};
#endif

static const bw_backend *const backends[] = {&bw_cuda_backend, &bw_cpu_backend};

const bw_variant_table bw_no_variants = {NULL, 0, NULL};

int bw_backend_count(void) {
    return (int)(sizeof backends / sizeof backends[0]);
}

const bw_backend *bw_backend_at(int index) {
    return backends[index];
}

static const char *name_at(const void *unused, int index) {
    (void)unused;
    return index < bw_backend_count() ? backends[index]->name : NULL;
}

bw_status bw_backend_find(const char *name, const bw_backend **out) {
    char allowed[64];
    int index = bw_name_find(name, name_at, NULL, allowed, sizeof allowed);
    if (index < 0) return bw_fail(BW_CODE_INVALID, "unknown backend '%.200s': allowed are %s", name, allowed);
    if (!backends[index]->built) {
        return bw_fail(BW_CODE_UNAVAILABLE, "backend '%.200s' is not in this build: %s", name, backends[index]->remedy);
    }
    *out = backends[index];
    return BW_OK;
}
