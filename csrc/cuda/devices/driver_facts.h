/* What opening a device reads from the driver. */
#pragma once

#include "cuda/runtime/device.h"

bw_status bw_cuda_facts_read(bw_device *device);
void bw_cuda_version_text(int version, char *out, size_t out_size); /* 12040: "12.4" */
