/* The CUDA backend's device handle. */
#pragma once

#include "backend/backend.h"
#include "cuda/runtime/api.h"
#include "cuda/runtime/facts.h"
#include "cuda/runtime/plan_cache.h"

BW_C_BEGIN

typedef struct bw_cuda_attachment bw_cuda_attachment; /* attachments.c */
typedef struct bw_cuda_nvtx bw_cuda_nvtx;             /* nvtx.c */

struct bw_device {
    bw_cuda_api api;
    bw_device_facts facts; /* facts.own is own_facts */
    bw_own_facts own_facts;
    bw_plan_cache plans;
    int index;
    cudaStream_t stream; /* the one stream that everything is enqueued on; a capture runs on it too */
    bw_cuda_attachment *attachments;
    bw_cuda_nvtx *nvtx;        /* the tool that watches, as the handle was opened; NULL: none */
    int64_t busy_ns, ended_ns; /* time of replays without a long pause between them; when the last one ended */
    void *gathered;            /* memory that pieces are brought together in, kept for the next ones; NULL: none yet */
};

/* Makes the handle's device the calling thread's current one: CUDA keeps that per thread. */
bw_status bw_cuda_enter(bw_device *device);
bw_status bw_cuda_synchronize(bw_device *device);

BW_C_END
