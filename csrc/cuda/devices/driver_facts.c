/* Reads a device's properties from the driver, and looks up its peak rates. */
#include "cuda/devices/driver_facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cuda/runtime/calls.h"

void bw_cuda_version_text(int version, char *out, size_t out_size) {
    snprintf(out, out_size, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Dense flops per multiprocessor and cycle, FP32 accumulation: half on GeForce and TITAN cards of some generations.
 * Of 8 bits twice as many as of FP16; INT8 is not halved, and FP8 begins with 8.9. */
static const struct {
    int major, minor;
    int fp32, tf32, fp16, bf16;
    bool halved_on_geforce;
} catalog[] = {
    {8, 0, 128, 1024, 2048, 2048, false}, {8, 6, 256, 512, 1024, 1024, true},    {8, 9, 256, 512, 1024, 1024, true},
    {9, 0, 256, 2048, 4096, 4096, false}, {10, 0, 256, 4096, 8192, 8192, false}, {12, 0, 256, 512, 1024, 1024, true},
};

static void look_up_tflops(bw_device_facts *facts, int64_t clock_khz) {
    const bw_own_facts *own = facts->own;
    for (int i = 0; i < BW_DTYPE_COUNT; i++) facts->peak_tflops[i] = NAN;
    snprintf(facts->tflops_source, sizeof facts->tflops_source, "compute capability %d.%d is not in the catalog",
             own->major, own->minor);
    for (size_t i = 0; i < sizeof catalog / sizeof catalog[0]; i++) {
        if (catalog[i].major != own->major || catalog[i].minor != own->minor || clock_khz <= 0) continue;
        bool geforce = strstr(facts->name, "GeForce") || strstr(facts->name, "TITAN");
        double scale = (double)facts->units * (double)clock_khz * 1e3 / 1e12;
        double tensor_scale = catalog[i].halved_on_geforce && geforce ? scale / 2 : scale;
        facts->peak_tflops[BW_FP32] = catalog[i].fp32 * scale;
        facts->peak_tflops[BW_TF32] = catalog[i].tf32 * tensor_scale;
        facts->peak_tflops[BW_FP16] = catalog[i].fp16 * tensor_scale;
        facts->peak_tflops[BW_BF16] = catalog[i].bf16 * tensor_scale;
        facts->peak_tflops[BW_INT8] = 2 * catalog[i].fp16 * scale;
        if (own->major > 8 || own->minor == 9) facts->peak_tflops[BW_FP8_E4M3] = 2 * catalog[i].fp16 * tensor_scale;
        snprintf(facts->tflops_source, sizeof facts->tflops_source,
                 "catalog: dense FLOP per SM and cycle x %d SMs x %lld MHz (maximum SM clock)", facts->units,
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
    bw_cuda_version_text(driver, facts->driver,
                         sizeof facts->driver); /* the newest CUDA it supports; NVML knows its own */
    bw_cuda_version_text(runtime, facts->runtime, sizeof facts->runtime);
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

/* An older driver does not know the attribute. */
static bw_status read_numa_node(bw_device *device) {
    int node = -1;
#if CUDART_VERSION >= 12030
    cudaError_t error = BW_CUDA_ERROR(&device->api, get_attribute(&node, cudaDevAttrHostNumaId, device->index));
    if (error == cudaErrorInvalidValue) {
        (void)device->api.last_error();
        node = -1;
    } else {
        BW_TRY(bw_cuda_status(&device->api, error, "get_attribute", __FILE__, __LINE__));
    }
#endif
    device->own_facts.host_numa_node = node;
    return BW_OK;
}

bw_status bw_cuda_facts_read(bw_device *device) {
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
    BW_TRY(read_numa_node(device));
    facts->own = own;
    own->major = (int)major;
    own->minor = (int)minor;
    facts->units = (int)units;
    look_up_bandwidth(facts);
    look_up_tflops(facts, clock_khz);
    snprintf(facts->timer, sizeof facts->timer, "graph");
    facts->fixed_replay = true;
    own->plans = &device->plans;
    return BW_OK;
}

int bw_cuda_more_facts(const bw_device *device, bw_fact out[BW_FACTS_MAX]) {
    const bw_own_facts *own = &device->own_facts;
    const bw_fact found[] = {{"major", own->major},
                             {"minor", own->minor},
                             {"shared_bytes", own->shared_bytes},
                             {"memory_clock_khz", own->memory_clock_khz},
                             {"bus_bits", own->bus_bits},
                             {"host_numa_node", own->host_numa_node}};
    memcpy(out, found, sizeof found);
    return sizeof found / sizeof found[0];
}
