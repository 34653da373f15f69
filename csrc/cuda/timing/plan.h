/* The plans of the backend's vtable: launches or calls that are timed again and again. */
#pragma once

#include "backend/backend.h"

extern const char *const bw_cuda_call_timers[];
extern const char *const bw_cuda_timers[]; /* names; a spec's `timer` is an index */
extern const bw_plan_calls bw_cuda_plan_calls;
