/* The vtable's conditions and management: NVML, opened when first asked for; why it could not be is asked once. */
#include "cuda/runtime/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* NULL, with device->nvml_failure, where there is no NVML. */
static bw_nvml *nvml_of(bw_device *device) {
    if (!device->nvml && !device->nvml_failure) {
        device->nvml_failure = bw_nvml_open(device->facts.uuid, device->facts.pci_bus_id, &device->nvml);
    }
    return device->nvml;
}

bw_status bw_cuda_conditions(bw_device *device, bool with_energy, bw_conditions *out) {
    bw_nvml *nvml = nvml_of(device);
    if (nvml) return bw_nvml_conditions(nvml, with_energy, out);
    return bw_fail(BW_CODE_UNAVAILABLE, "%s", bw_status_message(device->nvml_failure));
}

void bw_cuda_management(bw_device *device, bw_management *out) {
    bw_nvml *nvml = nvml_of(device);
    if (nvml) {
        bw_nvml_management(nvml, out);
        return;
    }
    *out = (bw_management){.ecc = -1, .persistence = -1, .power_limit_w = NAN};
    snprintf(out->note, sizeof out->note, "%s", bw_status_message(device->nvml_failure));
}

void bw_cuda_conditions_close(bw_device *device) {
    bw_nvml_close(device->nvml);
    bw_status_free(device->nvml_failure);
    device->nvml = NULL;
    device->nvml_failure = BW_OK;
}
