/* Counts devices, opens and closes them, and switches a thread's current device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/devices/driver_facts.h"
#include "cuda/launch/service.h"
#include "cuda/runtime/attachments.h"
#include "cuda/runtime/calls.h"
#include "cuda/runtime/nvtx.h"

static void explain_absence(bw_cuda_api *api, cudaError_t error, char *reason, size_t reason_size) {
    int driver = 0, runtime = 0;
    if (BW_CUDA_ERROR(api, driver_version(&driver)) != cudaSuccess) driver = 0;
    if (BW_CUDA_ERROR(api, runtime_version(&runtime)) != cudaSuccess) runtime = CUDART_VERSION;
    char driver_text[16], runtime_text[16];
    bw_cuda_version_text(driver, driver_text, sizeof driver_text);
    bw_cuda_version_text(runtime, runtime_text, sizeof runtime_text);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    if (driver == 0 && (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice)) {
        snprintf(reason, reason_size, "no NVIDIA driver was found: libcuda.so.1 cannot be loaded");
    } else if (error == cudaErrorInsufficientDriver || error == cudaErrorCallRequiresNewerDriver) {
        snprintf(reason, reason_size,
                 "the NVIDIA driver is too old: it supports CUDA %s, bwprof was built with CUDA %s", driver_text,
                 runtime_text);
    } else if ((error == cudaErrorNoDevice || error == cudaSuccess) && visible) {
        snprintf(reason, reason_size, "no GPU is visible: CUDA_VISIBLE_DEVICES is '%s'", visible);
    } else if (error == cudaErrorNoDevice || error == cudaSuccess) {
        snprintf(reason, reason_size, "the NVIDIA driver (CUDA %s) is installed but finds no GPU", driver_text);
    } else {
        bw_status status = bw_cuda_status(api, error, "get_device_count", __FILE__, __LINE__);
        snprintf(reason, reason_size, "%s (driver's CUDA %s, bwprof's CUDA %s)", bw_status_message(status), driver_text,
                 runtime_text);
        bw_status_free(status);
    }
}

static int count_devices(bw_cuda_api *api, char *reason, size_t reason_size) {
    int count = 0;
    cudaError_t error = BW_CUDA_ERROR(api, get_device_count(&count));
    if (reason_size > 0) reason[0] = '\0';
    if (error == cudaSuccess && count > 0) return count;
    if (error != cudaSuccess) (void)api->last_error();
    explain_absence(api, error, reason, reason_size);
    return 0;
}

bw_status bw_cuda_device_count(int *count, char *reason, size_t reason_size) {
    bw_cuda_api api;
    bw_cuda_api_init(&api, "count");
    *count = count_devices(&api, reason, reason_size);
    return BW_OK;
}

bw_status bw_cuda_device_name(int index, char *name, size_t name_size) {
    bw_cuda_api api;
    bw_cuda_api_init(&api, "count");
    struct cudaDeviceProp properties;
    BW_TRY(BW_CUDA(&api, get_properties(&properties, index)));
    snprintf(name, name_size, "%s", properties.name);
    return BW_OK;
}

/* The empty kernel shows at once whether this build holds code for the device and whether the device is well. */
static bw_status start_device(bw_device *device) {
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(bw_cuda_facts_read(device));
    BW_TRY(BW_CUDA(&device->api, stream_create(&device->stream, cudaStreamNonBlocking)));
    BW_TRY(bw_cuda_launch_empty(device));
    BW_TRY(bw_cuda_synchronize(device));
    return bw_cuda_nvtx_open(device);
}

void bw_cuda_device_close(bw_device *device) {
    if (!device) return;
    bw_status_free(bw_cuda_enter(device));
    bw_cuda_attachments_close(device);
    if (device->gathered) BW_CUDA_IGNORE(&device->api, memory_free(device->gathered));
    if (device->stream) BW_CUDA_IGNORE(&device->api, stream_destroy(device->stream));
    free(device);
}

bw_status bw_cuda_device_open(int index, bw_device **out) {
    char reason[512];
    bw_cuda_api api;
    bw_cuda_api_init(&api, "open");
    const int count = count_devices(&api, reason, sizeof reason);
    if (count == 0) return bw_fail(BW_CODE_UNAVAILABLE, "no CUDA device: %s", reason);
    if (index < 0 || index >= count) {
        return bw_fail(BW_CODE_INVALID, "CUDA device %d does not exist: allowed are 0 to %d", index, count - 1);
    }
    bw_device *device = calloc(1, sizeof *device);
    if (!device) return bw_fail(BW_CODE_MEMORY, "out of host memory for a device handle");
    device->api = api;
    device->index = index;
    bw_status status = start_device(device);
    if (status) {
        bw_cuda_device_close(device);
        return status;
    }
    *out = device;
    return BW_OK;
}

const bw_device_facts *bw_cuda_device_facts(const bw_device *device) {
    return &device->facts;
}

/* A thread that has no context works on device 0, whichever one our runtime has last seen. */
static bw_status current_device(int *index) {
    bw_cuda_api api;
    void *context = NULL;
    bw_cuda_api_init(&api, "count");
    BW_TRY(BW_CUDA(&api, get_device(index)));
    bw_status none = bw_cuda_context(&context);
    if (none) *index = 0;
    bw_status_free(none);
    return BW_OK;
}

/* Making a device current takes some of its memory: device 0, the default, is left alone where nobody uses it. */
static bw_status make_current(int index) {
    bw_cuda_api api;
    bw_cuda_api_init(&api, "count");
    if (index == 0 && !bw_cuda_is_in_use(index) && bw_cuda_leave()) return BW_OK;
    return BW_CUDA(&api, set_device(index));
}

static void *device_stream(const bw_device *device) {
    return device->stream;
}

const bw_context_calls bw_cuda_context_calls = {
    .current = current_device,
    .make_current = make_current,
    .stream = device_stream,
};

static bw_status fault_set(bw_device *device, int64_t countdown) {
    if (countdown < 0) {
        return bw_fail(BW_CODE_INVALID, "countdown is %lld: allowed are 0 (off) and more", (long long)countdown);
    }
    device->api.fault_countdown = countdown;
    return BW_OK;
}

static int64_t calls_made(const bw_device *device) {
    return device->api.calls_made;
}

static void plan_force(bw_device *device, int plan) {
    device->plans.forced = plan;
}

const bw_fault_calls bw_cuda_fault_calls = {.set = fault_set, .calls_made = calls_made, .force_plan = plan_force};
