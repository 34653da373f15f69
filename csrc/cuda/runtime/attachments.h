/* What parts of the backend keep in a handle, from their first use until it is closed: a library, a profiler. */
#ifndef BW_CUDA_ATTACHMENTS_H
#define BW_CUDA_ATTACHMENTS_H

#include "cuda/runtime/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bw_cuda_part {
    size_t state_bytes;
    /* Both optional: closes what is in the state, which is freed then; gives back what makes every kernel start later,
     * or keeps others from working. */
    void (*close)(bw_device *device, void *state);
    void (*release_profiler)(bw_device *device, void *state);
} bw_cuda_part;

/* The part's state in this handle, zeroed at the first call; `find` gives NULL before that. */
bw_status bw_cuda_attach(bw_device *device, const bw_cuda_part *part, void **state);
void *bw_cuda_find_attachment(const bw_device *device, const bw_cuda_part *part);

/* All parts at rest; all at rest and closed. */
void bw_cuda_release_profilers(bw_device *device);
void bw_cuda_attachments_close(bw_device *device);

#ifdef __cplusplus
}
#endif
#endif
