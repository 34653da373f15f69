/* The marks of the backend's vtable: points in time on a stream. */
#ifndef BW_CUDA_MARKS_H
#define BW_CUDA_MARKS_H

#include "backend/backend.h"

extern const bw_mark_calls bw_cuda_mark_calls;

#endif
