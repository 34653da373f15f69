/* The CUDA backend's device handle. */
#ifndef BW_CUDA_DEVICE_H
#define BW_CUDA_DEVICE_H

#include "backend/backend.h"
#include "cuda/runtime/api.h"
#include "cuda/runtime/facts.h"
#include "ops/list.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bw_cuda_attachment bw_cuda_attachment; /* attachments.c */

struct bw_device {
    bw_cuda_api api;
    bw_device_facts facts; /* facts.own is own_facts */
    bw_own_facts own_facts;
    int index;
    cudaStream_t stream; /* the one stream that everything is enqueued on; a capture runs on it too */
    bw_cuda_attachment *attachments;
};

/* The operations' kernel tables, one definition each in the family's file. */
#define BW_CUDA_TABLE(name) extern const bw_variant_table bw_cuda_##name;
BW_OPERATIONS(BW_CUDA_TABLE)
#undef BW_CUDA_TABLE

/* Makes the handle's device the calling thread's current one: CUDA keeps that per thread. */
bw_status bw_cuda_enter(bw_device *device);

#ifdef __cplusplus
}
#endif
#endif
