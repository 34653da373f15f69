/* The sensor calls of the backend's vtable. */
#pragma once

#include "backend/backend.h"

extern const bw_sensor_calls bw_cuda_sensor_calls;

void bw_cuda_management(bw_device *device, bw_management *out);
