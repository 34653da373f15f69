/* Opens NVML and reads a device's clocks, power, temperature, energy and throttle reasons. */
#include "cuda/libraries/nvml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/libraries/find.h"

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
    X(nvml_result, nvmlDeviceGetEnforcedPowerLimit, (nvml_handle, unsigned *))                     \
    X(nvml_result, nvmlDeviceGetMaxPcieLinkGeneration, (nvml_handle, unsigned *))                  \
    X(nvml_result, nvmlDeviceGetCurrPcieLinkWidth, (nvml_handle, unsigned *))

struct bw_nvml {
    bw_library file;
    bool running; /* nvmlInit_v2 is to be paired with nvmlShutdown */
    nvml_handle device;
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

static const char *error_text(const bw_nvml *nvml, nvml_result result) {
    const char *text = nvml->nvmlErrorString(result);
    return text ? text : "unknown error";
}

static bw_status check(const bw_nvml *nvml, nvml_result result, const char *what) {
    if (result == NVML_SUCCESS) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "%s: %s failed: %s (%d)", nvml->file.path, what, error_text(nvml, result),
                   result);
}

static bw_status find_device(bw_nvml *nvml, const char *uuid, const char *pci_bus_id) {
    if (nvml->nvmlDeviceGetHandleByUUID(uuid, &nvml->device) == NVML_SUCCESS) return BW_OK;
    nvml_result result = nvml->nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id, &nvml->device);
    if (result == NVML_SUCCESS) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "%s: no device has UUID %s or PCI bus id %s: %s (%d)", nvml->file.path, uuid,
                   pci_bus_id, error_text(nvml, result), result);
}

bw_status bw_nvml_open(const char *uuid, const char *pci_bus_id, bw_nvml **out) {
    *out = NULL;
    bw_status status = BW_OK;
    bw_nvml *nvml = calloc(1, sizeof *nvml);
    if (!nvml) return bw_fail(BW_CODE_MEMORY, "out of host memory for NVML's handle");
    BW_GOTO(bw_library_open(&library_query, &nvml->file));
#define NVML_REQUIRED(type, name, arguments) BW_GOTO(bw_library_symbol(&nvml->file, #name, &nvml->name));
#define NVML_OPTIONAL(type, name, arguments) bw_status_free(bw_library_symbol(&nvml->file, #name, &nvml->name));
    REQUIRED_CALLS(NVML_REQUIRED)
    OPTIONAL_CALLS(NVML_OPTIONAL)
#undef NVML_REQUIRED
#undef NVML_OPTIONAL
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
    bw_library_close(&nvml->file);
    free(nvml);
}

enum { READ_SM_CLOCK, READ_MEMORY_CLOCK, READ_POWER, READ_TEMPERATURE, READ_THROTTLE, READ_ENERGY, READINGS };
static const char *const reading_names[READINGS] = {"SM clock",    "memory clock",     "power",
                                                    "temperature", "throttle reasons", "energy"};

/* nvmlDeviceGetPowerUsage is, on recent GPUs, the mean of the last second: longer than most measurements. */
static nvml_result read_power(const bw_nvml *nvml, unsigned *milliwatts) {
    nvml_field field = {.field = NVML_FIELD_POWER_INSTANT};
    nvml_result result = CALL(nvml, nvmlDeviceGetFieldValues, nvml->device, 1, &field);
    if (result == NVML_SUCCESS && field.result == NVML_SUCCESS && field.type == NVML_TYPE_UNSIGNED_INT) {
        *milliwatts = field.value.whole;
        return NVML_SUCCESS;
    }
    return CALL(nvml, nvmlDeviceGetPowerUsage, nvml->device, milliwatts);
}

static nvml_result read_throttle_reasons(const bw_nvml *nvml, unsigned long long *reasons) {
    nvml_result result = CALL(nvml, nvmlDeviceGetCurrentClocksEventReasons, nvml->device, reasons);
    if (result == NVML_SUCCESS) return result;
    return CALL(nvml, nvmlDeviceGetCurrentClocksThrottleReasons, nvml->device, reasons);
}

/* No reasons for doubt: an idle device (0x01), clocks that were set (0x02, 0x100) or kept equal among GPUs (0x10). */
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

static double value_or_nan(nvml_result result, double value) {
    return result == NVML_SUCCESS ? value : NAN;
}

static void read_conditions(const bw_nvml *nvml, bool with_energy, bw_conditions *out, nvml_result results[READINGS]) {
    unsigned sm_mhz = 0, memory_mhz = 0, milliwatts = 0, celsius = 0;
    unsigned long long reasons = 0, millijoules = 0;
    results[READ_SM_CLOCK] = CALL(nvml, nvmlDeviceGetClockInfo, nvml->device, NVML_CLOCK_SM, &sm_mhz);
    results[READ_MEMORY_CLOCK] = CALL(nvml, nvmlDeviceGetClockInfo, nvml->device, NVML_CLOCK_MEMORY, &memory_mhz);
    results[READ_POWER] = read_power(nvml, &milliwatts);
    results[READ_TEMPERATURE] = CALL(nvml, nvmlDeviceGetTemperature, nvml->device, NVML_SENSOR_GPU, &celsius);
    results[READ_THROTTLE] = read_throttle_reasons(nvml, &reasons);
    results[READ_ENERGY] = NVML_FUNCTION_NOT_FOUND;
    if (with_energy) {
        results[READ_ENERGY] = CALL(nvml, nvmlDeviceGetTotalEnergyConsumption, nvml->device, &millijoules);
    }
    *out = (bw_conditions){
        .sm_clock_mhz = value_or_nan(results[READ_SM_CLOCK], sm_mhz),
        .mem_clock_mhz = value_or_nan(results[READ_MEMORY_CLOCK], memory_mhz),
        .power_w = value_or_nan(results[READ_POWER], 1e-3 * milliwatts),
        .temperature_c = value_or_nan(results[READ_TEMPERATURE], celsius),
        .energy_j = value_or_nan(results[READ_ENERGY], 1e-3 * (double)millijoules),
        .throttle = results[READ_THROTTLE] == NVML_SUCCESS ? throttle_of(reasons) : BW_THROTTLE_UNKNOWN,
    };
}

bw_status bw_nvml_conditions(bw_nvml *nvml, bool with_energy, bw_conditions *out) {
    nvml_result results[READINGS];
    read_conditions(nvml, with_energy, out, results);
    for (int i = 0; i < READINGS; i++) {
        if (results[i] == NVML_SUCCESS) return BW_OK;
    }
    return check(nvml, results[0], "reading the device's sensors");
}

static void note_missing(const bw_nvml *nvml, const nvml_result *results, const char *const *names, int count,
                         bw_management *out) {
    for (int i = 0; i < count; i++) {
        size_t used = strlen(out->note);
        if (results[i] == NVML_SUCCESS) continue;
        snprintf(out->note + used, sizeof out->note - used, "%s%s: %s", used ? "; " : "not known: ", names[i],
                 error_text(nvml, results[i]));
    }
}

/* Of each lane and direction, with the bits that encode bytes: 8 of 10, 128 of 130, 242 of 256. */
static double lane_gb_s(unsigned generation) {
    static const double rates[] = {0.0,
                                   2.5 * 8 / 10 / 8,
                                   5.0 * 8 / 10 / 8,
                                   8.0 * 128 / 130 / 8,
                                   16.0 * 128 / 130 / 8,
                                   32.0 * 128 / 130 / 8,
                                   64.0 * 242 / 256 / 8};
    return generation < sizeof rates / sizeof rates[0] ? rates[generation] : 0.0;
}

/* The best generation that the device and its slot share: the present one falls while nothing is copied. */
static nvml_result read_link(const bw_nvml *nvml, bw_management *out) {
    unsigned generation = 0, width = 0;
    nvml_result result = CALL(nvml, nvmlDeviceGetMaxPcieLinkGeneration, nvml->device, &generation);
    if (result == NVML_SUCCESS) result = CALL(nvml, nvmlDeviceGetCurrPcieLinkWidth, nvml->device, &width);
    const double gb_s = lane_gb_s(generation) * width;
    out->link_gb_s = result == NVML_SUCCESS && gb_s > 0.0 ? gb_s : NAN;
    if (out->link_gb_s > 0.0) snprintf(out->link, sizeof out->link, "PCIe %u.0 x%u", generation, width);
    return result;
}

void bw_nvml_management(bw_nvml *nvml, bw_management *out) {
    enum { READ_DRIVER, READ_ECC, READ_PERSISTENCE, READ_LIMIT, READ_LINK, SETTINGS };
    static const char *const names[SETTINGS] = {"driver's version", "ECC mode", "persistence mode", "power limit",
                                                "link to the host"};
    nvml_result settings[SETTINGS], readings[READINGS];
    unsigned ecc = 0, pending = 0, persistence = 0, limit_mw = 0;
    bw_conditions conditions;
    *out = (bw_management){.note = ""};
    snprintf(out->library, sizeof out->library, "%s", nvml->file.path);

    settings[READ_DRIVER] = CALL(nvml, nvmlSystemGetDriverVersion, out->driver, (unsigned)sizeof out->driver);
    settings[READ_ECC] = CALL(nvml, nvmlDeviceGetEccMode, nvml->device, &ecc, &pending);
    settings[READ_PERSISTENCE] = CALL(nvml, nvmlDeviceGetPersistenceMode, nvml->device, &persistence);
    settings[READ_LIMIT] = CALL(nvml, nvmlDeviceGetEnforcedPowerLimit, nvml->device, &limit_mw);
    settings[READ_LINK] = read_link(nvml, out);
    if (settings[READ_DRIVER] != NVML_SUCCESS) out->driver[0] = '\0';
    out->ecc = settings[READ_ECC] == NVML_SUCCESS ? ecc != 0 : -1;
    out->persistence = settings[READ_PERSISTENCE] == NVML_SUCCESS ? persistence != 0 : -1;
    out->power_limit_w = value_or_nan(settings[READ_LIMIT], 1e-3 * limit_mw);

    read_conditions(nvml, true, &conditions, readings);
    note_missing(nvml, settings, names, SETTINGS, out);
    note_missing(nvml, readings, reading_names, READINGS, out);
}
