/* Opens NVML and reads a device's clocks, power, temperature, energy and throttle reasons. */
#include "cuda/libraries/nvml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/libraries/find.h"

/* ---- what we use of NVML's interface, in our own words ---- */

typedef int nvml_result;
typedef struct nvml_device *nvml_handle;

enum { NVML_SUCCESS = 0, NVML_FUNCTION_NOT_FOUND = 13 };
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };
enum { NVML_SENSOR_GPU = 0 };
enum { NVML_FIELD_POWER_INSTANT = 186 }; /* mW */
enum { NVML_TYPE_UNSIGNED_INT = 1 };

/* A field is asked for by number; the answer says how it went and of which type it is. */
typedef struct nvml_field {
    unsigned field, scope;
    long long timestamp_us, latency_us;
    unsigned type;
    nvml_result result;
    union {
        double floating;
        unsigned whole;
        unsigned long long long_whole;
    } value;
} nvml_field;
_Static_assert(sizeof(nvml_field) == 40, "NVML's layout of a field value");

/* Without these nothing works. */
#define REQUIRED_CALLS(X)                                                    \
    X(nvml_result, nvmlInit_v2, (void))                                      \
    X(nvml_result, nvmlShutdown, (void))                                     \
    X(const char *, nvmlErrorString, (nvml_result))                          \
    X(nvml_result, nvmlDeviceGetHandleByUUID, (const char *, nvml_handle *)) \
    X(nvml_result, nvmlDeviceGetHandleByPciBusId_v2, (const char *, nvml_handle *))

/* Each stands for one value. Clocks are "event reasons" in newer drivers, "throttle reasons" in older ones. */
#define OPTIONAL_CALLS(X)                                                                          \
    X(nvml_result, nvmlSystemGetDriverVersion, (char *, unsigned))                                 \
    X(nvml_result, nvmlDeviceGetClockInfo, (nvml_handle, unsigned, unsigned *))                    \
    X(nvml_result, nvmlDeviceGetFieldValues, (nvml_handle, int, nvml_field *))                     \
    X(nvml_result, nvmlDeviceGetPowerUsage, (nvml_handle, unsigned *))                             \
    X(nvml_result, nvmlDeviceGetTemperature, (nvml_handle, unsigned, unsigned *))                  \
    X(nvml_result, nvmlDeviceGetCurrentClocksEventReasons, (nvml_handle, unsigned long long *))    \
    X(nvml_result, nvmlDeviceGetCurrentClocksThrottleReasons, (nvml_handle, unsigned long long *)) \
    X(nvml_result, nvmlDeviceGetTotalEnergyConsumption, (nvml_handle, unsigned long long *))       \
    X(nvml_result, nvmlDeviceGetEccMode, (nvml_handle, unsigned *, unsigned *))                    \
    X(nvml_result, nvmlDeviceGetPersistenceMode, (nvml_handle, unsigned *))                        \
    X(nvml_result, nvmlDeviceGetEnforcedPowerLimit, (nvml_handle, unsigned *))

struct bw_nvml {
    void *library;
    bool running; /* nvmlInit_v2 is to be paired with nvmlShutdown */
    nvml_handle device;
    char path[512];
#define NVML_MEMBER(type, name, arguments) type(*name) arguments;
    REQUIRED_CALLS(NVML_MEMBER)
    OPTIONAL_CALLS(NVML_MEMBER)
#undef NVML_MEMBER
};

/* A call that this driver's library may not have. */
#define CALL(nvml, name, ...) ((nvml)->name ? (nvml)->name(__VA_ARGS__) : NVML_FUNCTION_NOT_FOUND)

static const bw_library_query library_query = {
    .title = "NVML",
    .stem = "libnvidia-ml.so",
    .sonames = (const char *const[]){"libnvidia-ml.so.1", NULL},
    .advice = "it comes with the NVIDIA driver: in a container, ask for the driver's `utility` capability",
    .test_variable = "BWPROF_TEST_NVML",
};

static bw_status find_symbols(bw_nvml *nvml) {
    void *symbol;
#define NVML_REQUIRED(type, name, arguments)                              \
    BW_TRY(bw_library_symbol(nvml->library, nvml->path, #name, &symbol)); \
    memcpy(&nvml->name, &symbol, sizeof symbol);
#define NVML_OPTIONAL(type, name, arguments)                                      \
    bw_status_free(bw_library_symbol(nvml->library, nvml->path, #name, &symbol)); \
    memcpy(&nvml->name, &symbol, sizeof symbol);
    REQUIRED_CALLS(NVML_REQUIRED)
    OPTIONAL_CALLS(NVML_OPTIONAL)
#undef NVML_REQUIRED
#undef NVML_OPTIONAL
    return BW_OK;
}

static const char *error_text(const bw_nvml *nvml, nvml_result result) {
    const char *text = nvml->nvmlErrorString(result);
    return text ? text : "unknown error";
}

static bw_status check(const bw_nvml *nvml, nvml_result result, const char *what) {
    if (result == NVML_SUCCESS) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "%s: %s failed: %s (%d)", nvml->path, what, error_text(nvml, result), result);
}

static bw_status find_device(bw_nvml *nvml, const char *uuid, const char *pci_bus_id) {
    if (nvml->nvmlDeviceGetHandleByUUID(uuid, &nvml->device) == NVML_SUCCESS) return BW_OK;
    nvml_result result = nvml->nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, &nvml->device);
    if (result == NVML_SUCCESS) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "%s: no device has UUID %s or PCI bus id %s: %s (%d)", nvml->path, uuid,
                   pci_bus_id, error_text(nvml, result), result);
}

bw_status bw_nvml_open(const char *uuid, const char *pci_bus_id, bw_nvml **out) {
    *out = NULL;
    bw_status status = BW_OK;
    bw_nvml *nvml = calloc(1, sizeof *nvml);
    if (!nvml) return bw_fail(BW_CODE_MEMORY, "out of host memory for NVML's handle");
    BW_GOTO(bw_library_open(&library_query, &nvml->library, nvml->path, sizeof nvml->path));
    BW_GOTO(find_symbols(nvml));
    BW_GOTO(check(nvml, nvml->nvmlInit_v2(), "nvmlInit_v2"));
    nvml->running = true;
    BW_GOTO(find_device(nvml, uuid, pci_bus_id));
    *out = nvml;
    return BW_OK;
cleanup:
    bw_nvml_close(nvml);
    return status;
}

void bw_nvml_close(bw_nvml *nvml) {
    if (!nvml) return;
    if (nvml->running) (void)nvml->nvmlShutdown();
    bw_library_close(nvml->library);
    free(nvml);
}

/* ---- conditions ---- */

/* Each leaves its value as it is, NaN, when NVML does not tell. */
static nvml_result read_sm_clock(const bw_nvml *nvml, bw_conditions *out) {
    unsigned mhz = 0;
    nvml_result result = CALL(nvml, nvmlDeviceGetClockInfo, nvml->device, NVML_CLOCK_SM, &mhz);
    if (result == NVML_SUCCESS) out->sm_clock_mhz = mhz;
    return result;
}

static nvml_result read_mem_clock(const bw_nvml *nvml, bw_conditions *out) {
    unsigned mhz = 0;
    nvml_result result = CALL(nvml, nvmlDeviceGetClockInfo, nvml->device, NVML_CLOCK_MEMORY, &mhz);
    if (result == NVML_SUCCESS) out->mem_clock_mhz = mhz;
    return result;
}

/* nvmlDeviceGetPowerUsage is, on recent GPUs, the mean of the last second: longer than most measurements. */
static nvml_result read_power(const bw_nvml *nvml, bw_conditions *out) {
    nvml_field field = {.field = NVML_FIELD_POWER_INSTANT};
    nvml_result result = CALL(nvml, nvmlDeviceGetFieldValues, nvml->device, 1, &field);
    if (result == NVML_SUCCESS && field.result == NVML_SUCCESS && field.type == NVML_TYPE_UNSIGNED_INT) {
        out->power_w = 1e-3 * field.value.whole;
        return NVML_SUCCESS;
    }
    unsigned milliwatts = 0;
    result = CALL(nvml, nvmlDeviceGetPowerUsage, nvml->device, &milliwatts);
    if (result == NVML_SUCCESS) out->power_w = 1e-3 * milliwatts;
    return result;
}

static nvml_result read_temperature(const bw_nvml *nvml, bw_conditions *out) {
    unsigned celsius = 0;
    nvml_result result = CALL(nvml, nvmlDeviceGetTemperature, nvml->device, NVML_SENSOR_GPU, &celsius);
    if (result == NVML_SUCCESS) out->temperature_c = celsius;
    return result;
}

/* An idle device (0x01), clocks that somebody set (0x02, 0x100) and clocks kept equal among GPUs (0x10) are no reasons
 * to doubt a measurement. */
static unsigned throttle_of(unsigned long long reasons) {
    static const struct {
        unsigned bit, throttle;
    } meanings[] = {
        {0x04, BW_THROTTLE_POWER_CAP},  {0x08, BW_THROTTLE_HW_SLOWDOWN}, {0x20, BW_THROTTLE_SW_THERMAL},
        {0x40, BW_THROTTLE_HW_THERMAL}, {0x80, BW_THROTTLE_POWER_BRAKE},
    };
    unsigned throttle = 0;
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (reasons & meanings[i].bit) throttle |= meanings[i].throttle;
    }
    return throttle;
}

static nvml_result read_throttle(const bw_nvml *nvml, bw_conditions *out) {
    unsigned long long reasons = 0;
    nvml_result result = CALL(nvml, nvmlDeviceGetCurrentClocksEventReasons, nvml->device, &reasons);
    if (result != NVML_SUCCESS) {
        result = CALL(nvml, nvmlDeviceGetCurrentClocksThrottleReasons, nvml->device, &reasons);
    }
    if (result == NVML_SUCCESS) out->throttle = throttle_of(reasons);
    return result;
}

static nvml_result read_energy(const bw_nvml *nvml, bw_conditions *out) {
    unsigned long long millijoules = 0;
    nvml_result result = CALL(nvml, nvmlDeviceGetTotalEnergyConsumption, nvml->device, &millijoules);
    if (result == NVML_SUCCESS) out->energy_j = 1e-3 * (double)millijoules;
    return result;
}

static const struct {
    const char *what;
    nvml_result (*read)(const bw_nvml *nvml, bw_conditions *out);
} readings[] = {{"SM clock", read_sm_clock},       {"memory clock", read_mem_clock},    {"power", read_power},
                {"temperature", read_temperature}, {"throttle reasons", read_throttle}, {"energy", read_energy}};
enum { READINGS = sizeof readings / sizeof readings[0] };

static void read_conditions(const bw_nvml *nvml, int count, bw_conditions *out, nvml_result results[]) {
    *out = (bw_conditions){NAN, NAN, NAN, NAN, NAN, BW_THROTTLE_UNKNOWN};
    for (int i = 0; i < count; i++) results[i] = readings[i].read(nvml, out);
}

bw_status bw_nvml_conditions(bw_nvml *nvml, bool with_energy, bw_conditions *out) {
    nvml_result results[READINGS];
    int count = with_energy ? READINGS : READINGS - 1; /* energy is the last one */
    read_conditions(nvml, count, out, results);
    for (int i = 0; i < count; i++) {
        if (results[i] == NVML_SUCCESS) return BW_OK;
    }
    return check(nvml, results[0], "reading the device's sensors");
}

/* ---- management ---- */

static void note_missing(const bw_nvml *nvml, nvml_result result, const char *what, bw_management *out) {
    size_t used = strlen(out->note);
    if (result == NVML_SUCCESS) return;
    snprintf(out->note + used, sizeof out->note - used, "%s%s: %s", used ? "; " : "not known: ", what,
             error_text(nvml, result));
}

static int on_or_off(nvml_result result, unsigned value) {
    return result == NVML_SUCCESS ? value != 0 : -1;
}

void bw_nvml_management(bw_nvml *nvml, bw_management *out) {
    unsigned ecc = 0, pending = 0, persistence = 0, limit_mw = 0;
    *out = (bw_management){.power_limit_w = NAN};
    snprintf(out->library, sizeof out->library, "%s", nvml->path);

    nvml_result result = CALL(nvml, nvmlSystemGetDriverVersion, out->driver, (unsigned)sizeof out->driver);
    if (result != NVML_SUCCESS) out->driver[0] = '\0';
    note_missing(nvml, result, "driver's version", out);
    result = CALL(nvml, nvmlDeviceGetEccMode, nvml->device, &ecc, &pending);
    out->ecc = on_or_off(result, ecc);
    note_missing(nvml, result, "ECC mode", out);
    result = CALL(nvml, nvmlDeviceGetPersistenceMode, nvml->device, &persistence);
    out->persistence = on_or_off(result, persistence);
    note_missing(nvml, result, "persistence mode", out);
    result = CALL(nvml, nvmlDeviceGetEnforcedPowerLimit, nvml->device, &limit_mw);
    if (result == NVML_SUCCESS) out->power_limit_w = 1e-3 * limit_mw;
    note_missing(nvml, result, "power limit", out);

    bw_conditions conditions;
    nvml_result results[READINGS];
    read_conditions(nvml, READINGS, &conditions, results);
    for (int i = 0; i < READINGS; i++) note_missing(nvml, results[i], readings[i].what, out);
}
