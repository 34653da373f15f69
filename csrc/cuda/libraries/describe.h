/* The library list of the backend's vtable. */
#ifndef BW_CUDA_DESCRIBE_H
#define BW_CUDA_DESCRIBE_H

#include "backend/backend.h"

void bw_cuda_libraries(bw_device *device, bw_library_info out[BW_LIBRARIES_MAX], int *count);

#endif
