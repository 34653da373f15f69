/* The list of what parts of the backend attach to a device's handle. */
#include "cuda/runtime/attachments.h"

#include <stddef.h>
#include <stdlib.h>

struct bw_cuda_attachment {
    const bw_cuda_part *part;
    struct bw_cuda_attachment *next;
    max_align_t state[];
};

void *bw_cuda_find_attachment(const bw_device *device, const bw_cuda_part *part) {
    bw_cuda_attachment *found = device->attachments;
    while (found && found->part != part) found = found->next;
    return found ? found->state : NULL;
}

bw_status bw_cuda_attach(bw_device *device, const bw_cuda_part *part, void **state) {
    *state = bw_cuda_find_attachment(device, part);
    if (*state) return BW_OK;
    bw_cuda_attachment *attachment = calloc(1, sizeof *attachment + part->state_bytes);
    if (!attachment) {
        return bw_fail(BW_CODE_MEMORY, "out of host memory for what a device's handle keeps (%zu bytes)",
                       part->state_bytes);
    }
    attachment->part = part;
    attachment->next = device->attachments;
    device->attachments = attachment;
    *state = attachment->state;
    return BW_OK;
}

void bw_cuda_release_profilers(bw_device *device) {
    for (bw_cuda_attachment *each = device->attachments; each; each = each->next) {
        if (each->part->release_profiler) each->part->release_profiler(device, each->state);
    }
}

/* The newest first: a part may use those that were attached before it. */
void bw_cuda_attachments_close(bw_device *device) {
    bw_cuda_release_profilers(device);
    while (device->attachments) {
        bw_cuda_attachment *first = device->attachments;
        if (first->part->close) first->part->close(device, first->state);
        device->attachments = first->next;
        free(first);
    }
}
