/* Marks on a stream: events, made ahead and used again. */
#include "cuda/timing/marks.h"

#include <stdlib.h>

#include "cuda/runtime/device.h"

struct bw_marks {
    bw_device *device;
    cudaStream_t stream;
    cudaEvent_t *events;
    int64_t count;
};

static bw_status create(bw_device *device, void *stream, bw_marks **out) {
    bw_marks *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for marks");
    self->device = device;
    self->stream = (cudaStream_t)stream;
    *out = self;
    return BW_OK;
}

static bw_status reserve(bw_marks *self, int64_t count) {
    cudaEvent_t *events = realloc(self->events, (size_t)count * sizeof *events);
    if (!events) return bw_fail(BW_CODE_MEMORY, "out of host memory for %lld events", (long long)count);
    self->events = events;
    /* In the middle of the caller's own work: its current device stays what it is. */
    bw_cuda_api *api = &self->device->api;
    int before = self->device->index;
    BW_TRY(BW_CUDA(api, get_device(&before)));
    bw_status status = bw_cuda_enter(self->device);
    while (!status && self->count < count) {
        status = BW_CUDA(api, event_create(&self->events[self->count]));
        if (!status) self->count++;
    }
    if (before != self->device->index) BW_CUDA_IGNORE(api, set_device(before));
    return status;
}

/* The hot path: the stream's device must be current, and is, where the work is enqueued. */
static bw_status take(bw_marks *self, int64_t index) {
    return BW_CUDA(&self->device->api, event_record(self->events[index], self->stream));
}

static bw_status passed(bw_marks *self, int64_t index, bool *out) {
    return bw_cuda_passed(&self->device->api, self->events[index], out);
}

static bw_status elapsed(bw_marks *self, int64_t from, int64_t to, double *ns) {
    bw_cuda_api *api = &self->device->api;
    float elapsed_ms = 0;
    cudaError_t error = BW_CUDA_ERROR(api, event_elapsed(&elapsed_ms, self->events[from], self->events[to]));
    if (error == cudaErrorNotReady) {
        (void)api->last_error();
        BW_TRY(BW_CUDA(api, event_synchronize(self->events[to])));
        error = BW_CUDA_ERROR(api, event_elapsed(&elapsed_ms, self->events[from], self->events[to]));
    }
    BW_TRY(bw_cuda_status(api, error, "event_elapsed", __FILE__, __LINE__));
    *ns = (double)elapsed_ms * 1e6;
    return BW_OK;
}

static void free_marks(bw_marks *self) {
    if (!self) return;
    for (int64_t i = 0; i < self->count; i++) BW_CUDA_IGNORE(&self->device->api, event_destroy(self->events[i]));
    free(self->events);
    free(self);
}

const bw_mark_calls bw_cuda_mark_calls = {
    .clock = "events",
    .create = create,
    .reserve = reserve,
    .take = take,
    .passed = passed,
    .elapsed = elapsed,
    .free = free_marks,
};
