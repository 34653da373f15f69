/* The marks of the backend's vtable: points in time on a stream. */
#pragma once

#include "backend/backend.h"

extern const bw_mark_calls bw_cuda_mark_calls;
