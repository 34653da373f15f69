// Marks of ranges beside a caller's own capture of a stream, without a GPU: a runtime that knows capture modes alone.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/runtime/calls.h"

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static struct {
    cudaStreamCaptureMode mode;     // the thread's
    bool captured, spoilt;          // a capture in global mode, of another thread; and what ended it
    bool reached;                   // the stream has
    int queries, waits, exchanges;  // that were allowed
    int64_t fails;                  // that call from now on; 0: none
} runtime;

static cudaError_t unsafe() {
    if (!runtime.captured || runtime.mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    runtime.spoilt = true;
    return cudaErrorStreamCaptureUnsupported;
}

static cudaError_t exchange(cudaStreamCaptureMode *mode) {
    const cudaStreamCaptureMode before = runtime.mode;
    runtime.mode = *mode;
    *mode = before;
    runtime.exchanges++;
    return cudaSuccess;
}

static cudaError_t query(cudaEvent_t) {
    const cudaError_t error = unsafe();
    if (error == cudaSuccess) runtime.queries++;
    return error != cudaSuccess ? error : runtime.reached ? cudaSuccess : cudaErrorNotReady;
}

static cudaError_t synchronize(cudaEvent_t) {
    const cudaError_t error = unsafe();
    if (error == cudaSuccess) runtime.waits++;
    runtime.reached = true;
    return error;
}

static cudaError_t elapsed(float *ms, cudaEvent_t, cudaEvent_t) {
    *ms = 2.0f;
    const cudaError_t error = unsafe();
    return error != cudaSuccess ? error : runtime.reached ? cudaSuccess : cudaErrorNotReady;
}

static cudaError_t create(cudaEvent_t *out) {
    *out = nullptr;
    return unsafe();
}

static cudaError_t destroy(cudaEvent_t) {
    return cudaSuccess;
}

static cudaError_t record(cudaEvent_t, cudaStream_t) {
    return cudaSuccess;
}

static cudaError_t get_device(int *index) {
    *index = 0;
    return cudaSuccess;
}

static cudaError_t last_error() {
    return cudaSuccess;
}

extern "C" cudaError_t bw_cuda_take_injected_fault(bw_cuda_api *) {
    return runtime.fails && --runtime.fails == 0 ? cudaErrorUnknown : cudaSuccess;
}
extern "C" bw_status bw_cuda_status(bw_cuda_api *, cudaError_t error, const char *expression, const char *, int) {
    return error == cudaSuccess ? BW_OK : bw_fail(BW_CODE_DEVICE, "%s failed", expression);
}
extern "C" bw_status bw_cuda_event_passed(bw_cuda_api *api, cudaEvent_t event, bool *out) {
    const cudaError_t error = BW_CUDA_ERROR(api, event_query(event));
    *out = error == cudaSuccess;
    return error == cudaErrorNotReady ? BW_OK : bw_cuda_status(api, error, "event_query", "", 0);
}
extern "C" bw_status bw_cuda_enter(bw_device *) {
    return BW_OK;
}
extern "C" void bw_cuda_driver_function(const char *, void *out) {
    memset(out, 0, sizeof(void *));
}

static void open_marks(bw_device *device, bw_marks **marks) {
    memset(device, 0, sizeof *device);
    device->api.exchange_capture_mode = exchange;
    device->api.event_query = query;
    device->api.event_synchronize = synchronize;
    device->api.event_elapsed = elapsed;
    device->api.event_create = create;
    device->api.event_destroy = destroy;
    device->api.event_record = record;
    device->api.get_device = get_device;
    device->api.last_error = last_error;
    device->api.fault = cudaErrorUnknown;
    CHECK(!bw_cuda_mark_calls.create(device, nullptr, marks));
}

// Everything that ranges ask while another thread captures, in whatever mode this one is: the capture goes on.
static void check_captures_go_on() {
    const cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                           cudaStreamCaptureModeRelaxed};
    for (cudaStreamCaptureMode mode : modes) {
        bw_device device;
        bw_marks *marks;
        bool passed = true;
        double ns = 0;
        runtime = {};
        runtime.mode = mode;
        runtime.captured = true;
        open_marks(&device, &marks);
        CHECK(!bw_cuda_mark_calls.reserve(marks, 4) && runtime.mode == mode);
        CHECK(!bw_cuda_mark_calls.take(marks, 0) && !bw_cuda_mark_calls.take(marks, 1));
        CHECK(runtime.exchanges == 2);  // taking a mark is the hot path
        CHECK(!bw_cuda_mark_calls.passed(marks, 1, &passed) && !passed && runtime.mode == mode);
        CHECK(!bw_cuda_mark_calls.elapsed(marks, 0, 1, &ns) && ns == 2e6 && runtime.mode == mode);
        CHECK(!bw_cuda_mark_calls.passed(marks, 1, &passed) && passed);
        CHECK(runtime.queries == 2 && runtime.waits == 1 && !runtime.spoilt);
        bw_cuda_mark_calls.free(marks);
    }
}

// A call that fails leaves the thread's mode as it was.
static void check_failures() {
    for (int64_t at = 1; at <= 4; at++) {
        bw_device device;
        bw_marks *marks;
        bool passed;
        double ns;
        runtime = {};
        runtime.mode = cudaStreamCaptureModeThreadLocal;
        open_marks(&device, &marks);
        CHECK(!bw_cuda_mark_calls.reserve(marks, 2));
        runtime.fails = at;
        bw_status_free(bw_cuda_mark_calls.passed(marks, 0, &passed));
        runtime.fails = at;
        bw_status_free(bw_cuda_mark_calls.elapsed(marks, 0, 1, &ns));
        runtime.fails = at;
        bw_status_free(bw_cuda_mark_calls.reserve(marks, 4));
        runtime.fails = 0;
        CHECK(runtime.mode == cudaStreamCaptureModeThreadLocal);
        bw_cuda_mark_calls.free(marks);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*check)();
    } checks[] = {
        {"captures_go_on", check_captures_go_on},
        {"failures", check_failures},
    };
    for (const auto &row : checks) {
        if (argc == 2 && !strcmp(argv[1], row.name)) return row.check(), 0;
    }
    return 2;
}
