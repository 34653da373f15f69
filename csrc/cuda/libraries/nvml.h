/* NVML, NVIDIA's management library, which comes with the driver: read only, opened with dlopen, without its header.
 * What is missing, a symbol or a permission, costs the value that it stands for, with a reason. */
#pragma once

#include <stdbool.h>

#include "backend/backend.h"

typedef struct bw_nvml bw_nvml;

/* Finds the device by UUID, else (a part of a partitioned GPU has a UUID of its own) by PCI bus id: NVML's order of
 * devices is not CUDA's. BW_CODE_UNAVAILABLE when there is no library, driver or such device. */
bw_status bw_nvml_open(const char *uuid, const char *pci_bus_id, bw_nvml **out);
void bw_nvml_close(bw_nvml *nvml); /* NULL is fine */

/* Fails, with BW_CODE_UNAVAILABLE, only when not a single value could be read. */
bw_status bw_nvml_conditions(bw_nvml *nvml, bool with_energy, bw_conditions *out);
void bw_nvml_management(bw_nvml *nvml, bw_management *out);
