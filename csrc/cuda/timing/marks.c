/* Marks on a stream: events, made ahead and used again.
 *
 * The driver's call records them where there is one; the runtime's takes 30 to 50 ns more (of 700, on an H200) and says
 * what is wrong. A runtime's event or stream is the driver's, NULL the legacy default stream in both. The runtime reads
 * them: it knows the driver's newest cuEventElapsedTime, from CUDA 12.8 on (0.07 us instead of 2.5). */
#include <cuda.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cuda/runtime/calls.h"

struct bw_marks {
    bw_device *device;
    cudaStream_t stream;
    cudaEvent_t *events;
    int64_t count;
    CUresult (*record)(CUevent, CUstream); /* NULL: the driver has none */
};

static bw_status create(bw_device *device, void *stream, bw_marks **out) {
    bw_marks *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for marks");
    self->device = device;
    self->stream = (cudaStream_t)stream;
    bw_cuda_driver_function("cuEventRecord", &self->record);
    *out = self;
    return BW_OK;
}

/* While anybody captures a stream in global mode, calls such as a query or a wait fail in every thread that does not
 * allow them itself, and end the capture. Here they are of events that no capture holds. */
static enum cudaStreamCaptureMode exchange_mode(bw_marks *self, enum cudaStreamCaptureMode mode) {
    BW_CUDA_IGNORE(&self->device->api, exchange_capture_mode(&mode));
    return mode;
}

static bw_status create_events(bw_marks *self, int64_t count) {
    BW_TRY(bw_resize((void **)&self->events, count, sizeof *self->events, "events"));
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

static bw_status reserve(bw_marks *self, int64_t count) {
    const enum cudaStreamCaptureMode mode = exchange_mode(self, cudaStreamCaptureModeRelaxed);
    bw_status status = create_events(self, count);
    exchange_mode(self, mode);
    return status;
}

/* The hot path: the stream's device must be current, and is, where the work is enqueued. A thread that has not used
 * CUDA yet has no current context for the driver; the runtime then makes one. */
static bw_status take(bw_marks *self, int64_t index) {
    bw_cuda_api *api = &self->device->api;
    if (bw_cuda_take_injected_fault(api) != cudaSuccess)
        return bw_cuda_status(api, api->fault, "event_record", __FILE__, __LINE__);
    if (self->record && self->record(self->events[index], self->stream) == CUDA_SUCCESS) return BW_OK;
    return bw_cuda_status(api, api->event_record(self->events[index], self->stream), "event_record", __FILE__,
                          __LINE__);
}

static bw_status passed(bw_marks *self, int64_t index, bool *out) {
    const enum cudaStreamCaptureMode mode = exchange_mode(self, cudaStreamCaptureModeRelaxed);
    bw_status status = bw_cuda_event_passed(&self->device->api, self->events[index], out);
    exchange_mode(self, mode);
    return status;
}

static bw_status wait_and_read(bw_marks *self, int64_t from, int64_t to, double *ns) {
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

static bw_status elapsed(bw_marks *self, int64_t from, int64_t to, double *ns) {
    const enum cudaStreamCaptureMode mode = exchange_mode(self, cudaStreamCaptureModeRelaxed);
    bw_status status = wait_and_read(self, from, to, ns);
    exchange_mode(self, mode);
    return status;
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
