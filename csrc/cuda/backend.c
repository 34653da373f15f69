/* The CUDA backend's vtable: devices, memory, inputs. Everything is enqueued on the handle's one stream. */
#include "backend/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/libraries/cupti.h"
#include "cuda/runtime/device.h"
#include "cuda/runtime/service.h"
#include "cuda/timing/marks.h"
#include "cuda/timing/plan.h"

static const bw_variant_table *const variant_tables[] = {
#define BW_CUDA_TABLE(name) &bw_cuda_##name,
    BW_OPERATIONS(BW_CUDA_TABLE)
#undef BW_CUDA_TABLE
};

static const bw_variant_table *variants(const bw_device *device, int op_index) {
    (void)device;
    return variant_tables[op_index];
}

bw_status bw_cuda_enter(bw_device *device) {
    return BW_CUDA(&device->api, set_device(device->index));
}

/* ---- devices ---- */

static void version_text(int version, char *out, size_t out_size) {
    snprintf(out, out_size, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Why cudaGetDeviceCount found nothing, for people. */
static void explain_absence(bw_cuda_api *api, cudaError_t error, char *reason, size_t reason_size) {
    int driver = 0, runtime = 0;
    if (BW_CUDA_ERROR(api, driver_version(&driver)) != cudaSuccess) driver = 0;
    if (BW_CUDA_ERROR(api, runtime_version(&runtime)) != cudaSuccess) runtime = CUDART_VERSION;
    char driver_text[16], runtime_text[16];
    version_text(driver, driver_text, sizeof driver_text);
    version_text(runtime, runtime_text, sizeof runtime_text);
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

static bw_status device_count(int *count, char *reason, size_t reason_size) {
    bw_cuda_api api;
    bw_cuda_api_init(&api, "count");
    *count = count_devices(&api, reason, reason_size);
    return BW_OK;
}

/* Dense floating-point operations per multiprocessor and cycle, FP32 accumulation. GeForce and TITAN cards of some
 * generations accumulate in FP32 at half the rate of their professional siblings. */
static const struct {
    int major, minor;
    int fp32, tf32, fp16, bf16;
    bool halved_on_geforce;
} catalogue[] = {
    {8, 0, 128, 1024, 2048, 2048, false}, {8, 6, 256, 512, 1024, 1024, true},    {8, 9, 256, 512, 1024, 1024, true},
    {9, 0, 256, 2048, 4096, 4096, false}, {10, 0, 256, 4096, 8192, 8192, false}, {12, 0, 256, 512, 1024, 1024, true},
};

static void look_up_tflops(bw_device_facts *facts, int64_t clock_khz) {
    const bw_own_facts *own = facts->own;
    for (int i = 0; i < BW_DTYPE_COUNT; i++) facts->peak_tflops[i] = NAN;
    snprintf(facts->tflops_source, sizeof facts->tflops_source, "compute capability %d.%d is not in the catalogue",
             own->major, own->minor);
    for (size_t i = 0; i < sizeof catalogue / sizeof catalogue[0]; i++) {
        if (catalogue[i].major != own->major || catalogue[i].minor != own->minor || clock_khz <= 0) continue;
        bool geforce = strstr(facts->name, "GeForce") || strstr(facts->name, "TITAN");
        double scale = (double)facts->units * (double)clock_khz * 1e3 / 1e12;
        double tensor_scale = catalogue[i].halved_on_geforce && geforce ? scale / 2 : scale;
        facts->peak_tflops[BW_FP32] = catalogue[i].fp32 * scale;
        facts->peak_tflops[BW_TF32] = catalogue[i].tf32 * tensor_scale;
        facts->peak_tflops[BW_FP16] = catalogue[i].fp16 * tensor_scale;
        facts->peak_tflops[BW_BF16] = catalogue[i].bf16 * tensor_scale;
        snprintf(facts->tflops_source, sizeof facts->tflops_source,
                 "catalogue: dense FLOP per SM and cycle x %d SMs x %lld MHz (maximum SM clock)", facts->units,
                 (long long)(clock_khz / 1000));
    }
}

static void look_up_bandwidth(bw_device_facts *facts) {
    const bw_own_facts *own = facts->own;
    if (own->memory_clock_khz <= 0 || own->bus_bits <= 0) {
        facts->peak_gb_s = NAN;
        snprintf(facts->peak_source, sizeof facts->peak_source, "the driver reports no memory clock");
        return;
    }
    facts->peak_gb_s = 2.0 * (double)own->memory_clock_khz * 1e3 * (double)own->bus_bits / 8 / 1e9;
    snprintf(facts->peak_source, sizeof facts->peak_source,
             "2 x memory clock x bus width / 8, as the driver reports them");
}

static bw_status read_versions(bw_device *device) {
    bw_device_facts *facts = &device->facts;
    int driver = 0, runtime = 0;
    BW_TRY(BW_CUDA(&device->api, driver_version(&driver)));
    BW_TRY(BW_CUDA(&device->api, runtime_version(&runtime)));
    version_text(driver, facts->driver, sizeof facts->driver); /* the newest CUDA it supports; NVML knows its own */
    version_text(runtime, facts->runtime, sizeof facts->runtime);
    return BW_OK;
}

static bw_status read_identity(bw_device *device) {
    bw_device_facts *facts = &device->facts;
    struct cudaDeviceProp properties;
    BW_TRY(BW_CUDA(&device->api, get_properties(&properties, device->index)));
    snprintf(facts->name, sizeof facts->name, "%.*s", (int)sizeof facts->name - 1, properties.name);
    facts->memory_bytes = (int64_t)properties.totalGlobalMem;
    snprintf(facts->pci_bus_id, sizeof facts->pci_bus_id, "%08x:%02x:%02x.0", (unsigned)properties.pciDomainID,
             (unsigned)properties.pciBusID, (unsigned)properties.pciDeviceID);
    size_t used = (size_t)snprintf(facts->uuid, sizeof facts->uuid, "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        used += (size_t)snprintf(facts->uuid + used, sizeof facts->uuid - used, "%s%02x", dash ? "-" : "",
                                 (unsigned)(unsigned char)properties.uuid.bytes[i]);
    }
    return BW_OK;
}

static bw_status read_attribute(bw_device *device, enum cudaDeviceAttr attribute, int64_t *out) {
    int value = 0;
    BW_TRY(BW_CUDA(&device->api, get_attribute(&value, attribute, device->index)));
    *out = value;
    return BW_OK;
}

static bw_status read_facts(bw_device *device) {
    bw_device_facts *facts = &device->facts;
    bw_own_facts *own = &device->own_facts;
    int64_t major, minor, units, clock_khz;
    BW_TRY(read_versions(device));
    BW_TRY(read_identity(device));
    BW_TRY(read_attribute(device, cudaDevAttrComputeCapabilityMajor, &major));
    BW_TRY(read_attribute(device, cudaDevAttrComputeCapabilityMinor, &minor));
    BW_TRY(read_attribute(device, cudaDevAttrMultiProcessorCount, &units));
    BW_TRY(read_attribute(device, cudaDevAttrL2CacheSize, &facts->cache_bytes));
    BW_TRY(read_attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin, &own->shared_bytes));
    BW_TRY(read_attribute(device, cudaDevAttrMemoryClockRate, &own->memory_clock_khz));
    BW_TRY(read_attribute(device, cudaDevAttrGlobalMemoryBusWidth, &own->bus_bits));
    BW_TRY(read_attribute(device, cudaDevAttrClockRate, &clock_khz));
    facts->own = own;
    own->major = (int)major;
    own->minor = (int)minor;
    facts->units = (int)units;
    look_up_bandwidth(facts);
    look_up_tflops(facts, clock_khz);
    snprintf(facts->timer, sizeof facts->timer, "graph");
    facts->fixed_replay = true;
    return BW_OK;
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

/* Making a device current takes some of its memory: device 0, which a thread works on when nobody has said otherwise,
 * is left alone where nobody uses it. */
static bw_status make_current(int index) {
    bw_cuda_api api;
    bw_cuda_api_init(&api, "count");
    if (index == 0 && !bw_cuda_is_in_use(index) && bw_cuda_leave()) return BW_OK;
    return BW_CUDA(&api, set_device(index));
}

static void *device_stream(const bw_device *device) {
    return device->stream;
}

static bw_status synchronize(bw_device *device) {
    BW_TRY(bw_cuda_enter(device));
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

/* The empty kernel shows at once whether this build holds code for the device and whether the device is well. */
static bw_status start_device(bw_device *device) {
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(read_facts(device));
    BW_TRY(BW_CUDA(&device->api, stream_create(&device->stream, cudaStreamNonBlocking)));
    BW_TRY(bw_cuda_launch_empty(device));
    return synchronize(device);
}

static void device_close(bw_device *device) {
    if (!device) return;
    bw_status_free(bw_cuda_enter(device));
    bw_cuda_counters_close(device);
    bw_cupti_close(device);
    bw_cublaslt_close(device);
    bw_cuda_conditions_close(device);
    if (device->stream) BW_CUDA_IGNORE(&device->api, stream_destroy(device->stream));
    free(device);
}

static bw_status device_name(int index, char *name, size_t name_size) {
    bw_cuda_api api;
    bw_cuda_api_init(&api, "count");
    struct cudaDeviceProp properties;
    BW_TRY(BW_CUDA(&api, get_properties(&properties, index)));
    snprintf(name, name_size, "%s", properties.name);
    return BW_OK;
}

static bw_status device_open(int index, bw_device **out) {
    bw_status status = BW_OK;
    bw_device *device = calloc(1, sizeof *device);
    if (!device) return bw_fail(BW_CODE_MEMORY, "out of host memory for a device handle");
    bw_cuda_api_init(&device->api, "open");
    char reason[512];
    int count = count_devices(&device->api, reason, sizeof reason);
    if (count == 0) {
        status = bw_fail(BW_CODE_UNAVAILABLE, "no CUDA device: %s", reason);
    } else if (index < 0 || index >= count) {
        status = bw_fail(BW_CODE_INVALID, "CUDA device %d does not exist: allowed are 0 to %d", index, count - 1);
    }
    if (status) {
        free(device);
        return status;
    }
    device->index = index;
    status = start_device(device);
    if (status) {
        device_close(device);
        return status;
    }
    *out = device;
    return BW_OK;
}

static const bw_device_facts *device_facts(const bw_device *device) {
    return &device->facts;
}

static int more_facts(const bw_device *device, bw_fact out[BW_FACTS_MAX]) {
    const bw_own_facts *own = &device->own_facts;
    const bw_fact found[] = {{"major", own->major},
                             {"minor", own->minor},
                             {"shared_bytes", own->shared_bytes},
                             {"memory_clock_khz", own->memory_clock_khz},
                             {"bus_bits", own->bus_bits}};
    memcpy(out, found, sizeof found);
    return sizeof found / sizeof found[0];
}

static bw_status device_memory(bw_device *device, int64_t *free_bytes, int64_t *total_bytes) {
    size_t unused = 0, all = 0;
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(BW_CUDA(&device->api, memory_info(&unused, &all)));
    *free_bytes = (int64_t)unused;
    *total_bytes = (int64_t)all;
    return BW_OK;
}

/* ---- memory ---- */

static bw_status allocate(bw_device *device, int64_t bytes, void **out) {
    if (bytes < 0) return bw_fail(BW_CODE_INVALID, "cannot allocate %lld bytes", (long long)bytes);
    BW_TRY(bw_cuda_enter(device));
    *out = NULL;
    cudaError_t error = BW_CUDA_ERROR(&device->api, memory_allocate(out, (size_t)(bytes > 0 ? bytes : 1)));
    if (error != cudaErrorMemoryAllocation) {
        return bw_cuda_status(&device->api, error, "memory_allocate", __FILE__, __LINE__);
    }
    (void)device->api.last_error();
    size_t unused = 0, all = 0;
    if (BW_CUDA_ERROR(&device->api, memory_info(&unused, &all)) != cudaSuccess) (void)device->api.last_error();
    return bw_fail(BW_CODE_MEMORY, "out of memory on GPU %d: %lld bytes asked for, %lld of %lld free", device->index,
                   (long long)bytes, (long long)unused, (long long)all);
}

static void release(bw_device *device, void *memory, int64_t bytes) {
    (void)bytes;
    if (!memory) return;
    bw_status_free(bw_cuda_enter(device));
    BW_CUDA_IGNORE(&device->api, memory_free(memory));
}

static bw_status fill(bw_device *device, bw_dtype dtype, uint64_t seed, int operand, int64_t count, void *out) {
    BW_TRY(bw_cuda_enter(device));
    return bw_cuda_fill(device, dtype, bw_input_key_make(seed, operand), count, out);
}

static bw_status poison(bw_device *device, void *memory, int64_t bytes) {
    BW_TRY(bw_cuda_enter(device));
    return BW_CUDA(&device->api, memory_set(memory, 0xff, (size_t)bytes, device->stream));
}

static bw_status copy(bw_device *device, void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind) {
    if (bytes == 0) return BW_OK;
    BW_TRY(bw_cuda_enter(device));
    return BW_CUDA(&device->api, memory_copy(to, from, (size_t)bytes, kind, device->stream));
}

static bw_status duplicate(bw_device *device, void *to, const void *from, int64_t bytes) {
    return copy(device, to, from, bytes, cudaMemcpyDeviceToDevice);
}

static bw_status upload(bw_device *device, void *to, const void *from, int64_t bytes) {
    BW_TRY(copy(device, to, from, bytes, cudaMemcpyHostToDevice));
    return synchronize(device);
}

static bw_status download(bw_device *device, void *to, const void *from, int64_t bytes) {
    BW_TRY(copy(device, to, from, bytes, cudaMemcpyDeviceToHost));
    return synchronize(device);
}

/* The pieces are brought together on the device, so that one transfer takes them all. */
static bw_status gather(bw_device *device, const bw_span *spans, int64_t count, int64_t bytes, void *to) {
    bw_status status = BW_OK;
    void *table = NULL, *packed = NULL;
    int64_t table_bytes = count * (int64_t)sizeof(bw_cuda_piece), at = 0;
    bw_cuda_piece *pieces = malloc((size_t)table_bytes);
    if (!pieces) BW_GOTO(bw_fail(BW_CODE_MEMORY, "out of host memory for a list of %lld pieces", (long long)count));
    for (int64_t i = 0; i < count; i++) {
        pieces[i] = (bw_cuda_piece){spans[i].from, spans[i].bytes, at};
        at += spans[i].bytes;
    }
    BW_GOTO(allocate(device, table_bytes, &table));
    BW_GOTO(allocate(device, bytes, &packed));
    BW_GOTO(upload(device, table, pieces, table_bytes));
    BW_GOTO(bw_cuda_gather(device, table, count, packed));
    BW_GOTO(download(device, to, packed, bytes));
cleanup:
    release(device, packed, bytes);
    release(device, table, table_bytes);
    free(pieces);
    return status;
}

/* ---- tests ---- */

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

static const bw_device_calls device_calls = {
    .count = device_count,
    .name = device_name,
    .open = device_open,
    .close = device_close,
    .facts = device_facts,
    .more_facts = more_facts,
    .synchronize = synchronize,
    .variants = variants,
    .libraries = bw_cuda_libraries,
};

static const bw_memory_calls memory_calls = {
    .ask = device_memory,
    .allocate = allocate,
    .release = release,
    .fill = fill,
    .poison = poison,
    .duplicate = duplicate,
    .upload = upload,
    .download = download,
    .gather = gather,
};

static const bw_plan_calls plan_calls = {
    .empty = bw_cuda_plan_empty,
    .create = bw_cuda_plan_create,
    .run = bw_cuda_plan_run,
    .host_ns = bw_cuda_plan_host_ns,
    .free = bw_cuda_plan_free,
    .kernels = bw_cuda_plan_kernels,
    .late = bw_cuda_plan_late,
};

static const bw_mark_calls mark_calls = {
    .clock = "events",
    .create = bw_cuda_marks_create,
    .reserve = bw_cuda_marks_reserve,
    .take = bw_cuda_mark,
    .passed = bw_cuda_mark_passed,
    .elapsed = bw_cuda_marks_elapsed,
    .free = bw_cuda_marks_free,
};

static const bw_sensor_calls sensor_calls = {.read = bw_cuda_conditions, .management = bw_cuda_management};

static const bw_counter_calls counter_calls = {
    .count = bw_cuda_counters,
    .metrics = bw_cuda_metrics,
    .rest = bw_cuda_counters_rest,
    .groups = bw_cuda_metric_groups,
};

static const bw_context_calls context_calls = {
    .current = current_device,
    .make_current = make_current,
    .stream = device_stream,
};

static const bw_fault_calls fault_calls = {.set = fault_set, .calls_made = calls_made};

const bw_backend bw_cuda_backend = {
    .name = "cuda",
    .text = "NVIDIA GPUs",
    .built = true,
    .timers = bw_cuda_timers,
    /* The clock is up after the first point. */
    .budgets = {.largest_stream_bytes = (int64_t)4 << 30,
                .cold_streams_s = 1.9,
                .hot_streams_s = 0.9,
                .cold_point_s = 0.004,
                .hot_point_s = 0.004,
                .guessed_gb_s = 1000.0},
    .devices = &device_calls,
    .memory = &memory_calls,
    .plans = &plan_calls,
    .marks = &mark_calls,
    .sensors = &sensor_calls,
    .counters = &counter_calls,
    .context = &context_calls,
    .faults = &fault_calls,
};
