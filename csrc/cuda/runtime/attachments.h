/* State that parts of the backend attach to a device's handle at their first use, such as an open library or a
 * profiler. */
#pragma once

#include "cuda/runtime/device.h"

BW_C_BEGIN

typedef struct bw_cuda_part {
    size_t state_bytes;
    /* Both optional. `close` closes what is in the state, which is freed then. `release_profiler` takes a profiler
     * down, which delays every kernel and excludes other tools. */
    void (*close)(bw_device *device, void *state);
    void (*release_profiler)(bw_device *device, void *state);
} bw_cuda_part;

/* The part's state in this handle, zeroed at the first call; `find` gives NULL before that. */
bw_status bw_cuda_attach(bw_device *device, const bw_cuda_part *part, void **state);
void *bw_cuda_find_attachment(const bw_device *device, const bw_cuda_part *part);

/* The first takes down the profilers of all parts; the second closes all parts as well. */
void bw_cuda_release_profilers(bw_device *device);
void bw_cuda_attachments_close(bw_device *device);

BW_C_END
