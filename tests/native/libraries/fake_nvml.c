/* A library with NVML's names: one device whose figures are known. */
#include "fake_nvml.h"

#include <stddef.h>
#include <string.h>

fake_nvml_state fake_nvml = {.power_type = 1};

static int device; /* its address is the handle */

static int called(const char *name, bool reads) {
    fake_nvml_state *fake = &fake_nvml;
    if (++fake->calls != fake->fail_at && !(fake->fail_at == -1 && reads)) return 0;
    fake->failed = true;
    strncpy(fake->failed_call, name, sizeof fake->failed_call - 1);
    return fake->fail_code;
}

int nvmlInit_v2(void) {
    int result = called("nvmlInit_v2", false);
    if (!result) fake_nvml.live++;
    return result;
}

int nvmlShutdown(void) {
    fake_nvml.live--;
    return 0;
}

const char *nvmlErrorString(int result) {
    switch (result) {
        case 3: return "Not Supported";
        case 4: return "Insufficient Permissions";
        case 6: return "Not Found";
        case 13: return "Function Not Found";
        case 15: return "GPU is lost";
        default: return NULL;
    }
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    int result = called("nvmlDeviceGetHandleByUUID", false);
    if (result) return result;
    *out = &device;
    return strcmp(uuid, FAKE_NVML_UUID) == 0 ? 0 : 6;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out) {
    int result = called("nvmlDeviceGetHandleByPciBusId_v2", false);
    if (result) return result;
    *out = &device;
    return strcmp(bus_id, FAKE_NVML_PCI) == 0 ? 0 : 6;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    int result = called("nvmlSystemGetDriverVersion", false);
    strncpy(out, result ? "garbage" : "580.159.04", size);
    return result;
}

/* Every reading of the device: 2 for a handle that is none of ours. Failing calls leave rubbish behind. */
static int reading(const char *name, const void *handle) {
    return handle == &device ? called(name, true) : 2;
}

int nvmlDeviceGetClockInfo(void *handle, unsigned type, unsigned *mhz) {
    *mhz = type == 1 ? 1755 : type == 2 ? 3201 : 77;
    return reading("nvmlDeviceGetClockInfo", handle);
}

struct field {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int result;
    unsigned long long value;
};

int nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
    int result = reading("nvmlDeviceGetFieldValues", handle);
    for (int i = 0; i < count; i++) {
        fields[i].type = fake_nvml.power_type;
        fields[i].result = fields[i].field == 186 ? 0 : 3;
        fields[i].value = 412345;
    }
    return result;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    *milliwatts = 300250;
    return reading("nvmlDeviceGetPowerUsage", handle);
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    *celsius = sensor == 0 ? 61 : 1;
    return reading("nvmlDeviceGetTemperature", handle);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    *reasons = fake_nvml.reasons;
    return reading("nvmlDeviceGetCurrentClocksEventReasons", handle);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    *reasons = fake_nvml.reasons;
    return reading("nvmlDeviceGetCurrentClocksThrottleReasons", handle);
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    *millijoules = 5000000123456ull;
    return reading("nvmlDeviceGetTotalEnergyConsumption", handle);
}

int nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
    *current = 1;
    *pending = 0;
    return reading("nvmlDeviceGetEccMode", handle);
}

int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) {
    *mode = 0;
    return reading("nvmlDeviceGetPersistenceMode", handle);
}

int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) {
    *milliwatts = 700000;
    return reading("nvmlDeviceGetEnforcedPowerLimit", handle);
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *generation) {
    *generation = 5;
    return reading("nvmlDeviceGetMaxPcieLinkGeneration", handle);
}

int nvmlDeviceGetCurrPcieLinkWidth(void *handle, unsigned *lanes) {
    *lanes = 16;
    return reading("nvmlDeviceGetCurrPcieLinkWidth", handle);
}
