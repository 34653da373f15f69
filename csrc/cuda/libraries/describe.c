/* Lists the libraries that the backend opens at run time, with their paths and versions on this machine. */
#include <stdio.h>
#include <string.h>

#include "cuda/libraries/cublaslt.h"
#include "cuda/libraries/cupti.h"
#include "cuda/runtime/calls.h"

static void fill(bw_library_info *out, const char *name, const char *purpose, bw_status failure) {
    out->name = name;
    out->purpose = purpose;
    if (failure) snprintf(out->note, sizeof out->note, "%s", bw_status_message(failure));
    bw_status_free(failure);
}

/* NVML comes with the driver and has its version. */
static void describe_nvml(bw_device *device, bw_library_info *out) {
    bw_management found;
    bw_cuda_sensor_calls.management(device, &found);
    fill(out, "NVML", "sensors: clocks, power, temperature, energy", BW_OK);
    snprintf(out->path, sizeof out->path, "%s", found.library);
    snprintf(out->version, sizeof out->version, "%.*s", (int)sizeof out->version - 1, found.driver);
    snprintf(out->note, sizeof out->note, "%s", found.note);
}

void bw_cuda_libraries(bw_device *device, bw_library_info out[BW_LIBRARIES_MAX], int *count) {
    memset(out, 0, BW_LIBRARIES_MAX * sizeof *out);
    *count = 3;
    bw_status status = bw_cuda_enter(device);
    if (!status) status = bw_cublaslt_describe(device, &out[0]);
    fill(&out[0], "cuBLASLt", "gemm, variant cublaslt", status);
    fill(&out[1], "CUPTI", "timer cupti, hardware counters", bw_cupti_describe(device, &out[1]));
    describe_nvml(device, &out[2]);
}
