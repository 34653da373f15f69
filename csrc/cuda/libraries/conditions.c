/* Reads sensors and device settings from NVML, which is opened at the first call. A failure to open it is stored. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cuda/libraries/nvml.h"
#include "cuda/runtime/attachments.h"
#include "cuda/runtime/calls.h"

typedef struct nvml_state {
    bw_nvml *nvml;
    bw_status failure; /* why there is none; NULL until it was tried */
} nvml_state;

static void close_nvml(bw_device *device, void *state) {
    nvml_state *self = state;
    (void)device;
    bw_nvml_close(self->nvml);
    bw_status_free(self->failure);
}

static const bw_cuda_part nvml_part = {.state_bytes = sizeof(nvml_state), .close = close_nvml};

static bw_status nvml_get(bw_device *device, bw_nvml **out) {
    void *state = NULL;
    BW_TRY(bw_cuda_attach(device, &nvml_part, &state));
    nvml_state *self = state;
    if (!self->nvml && !self->failure) {
        self->failure = bw_nvml_open(device->facts.uuid, device->facts.pci_bus_id, &self->nvml);
    }
    *out = self->nvml;
    return self->nvml ? BW_OK : bw_fail(BW_CODE_UNAVAILABLE, "%s", bw_status_message(self->failure));
}

static bw_status conditions(bw_device *device, bool with_energy, bw_conditions *out) {
    bw_nvml *nvml = NULL;
    BW_TRY(nvml_get(device, &nvml));
    return bw_nvml_conditions(nvml, with_energy, out);
}

static void management(bw_device *device, bw_management *out) {
    bw_nvml *nvml = NULL;
    bw_status failure = nvml_get(device, &nvml);
    if (nvml) {
        bw_nvml_management(nvml, out);
        return;
    }
    *out = (bw_management){.ecc = -1, .persistence = -1, .power_limit_w = NAN, .link_gb_s = NAN};
    snprintf(out->note, sizeof out->note, "%s", bw_status_message(failure));
    bw_status_free(failure);
}

const bw_sensor_calls bw_cuda_sensor_calls = {.read = conditions, .management = management};
