/* The library list of the backend's vtable. */
#pragma once

#include "backend/backend.h"

void bw_cuda_libraries(bw_device *device, bw_library_info out[BW_LIBRARIES_MAX], int *count);
