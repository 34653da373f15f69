/* Declarations of the moe_gemm variants on a GPU. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

/* naive.cu */
const char *bw_moe_naive_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_moe_naive_choose;

/* ../tensor.cu */
const char *bw_moe_tensor_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_moe_tensor_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_moe_tensor_choose;

/* wgmma_sm90.cu: of narrow weights `separate` */
const char *bw_moe_wgmma_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_moe_wgmma_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_moe_wgmma_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_moe_wgmma_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                  bw_cost *cost);
bw_status bw_moe_wgmma_prepare(const bw_launch *sets, int64_t set_count, void **state); /* times plans */
bw_status bw_moe_wgmma_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);

/* How a launch is shared out. */
typedef struct bw_streamed_plan {
    bool taller; /* tiles of twice as many rows of B */
    int warps;
} bw_streamed_plan;

/* streamed_fp8.cu */
bw_status bw_streamed_e4m3_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                  const bw_streamed_plan *plan, bw_cuda_launch_spec *out);

/* streamed.cu */
const char *bw_streamed_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_streamed_prepare(const bw_launch *sets, int64_t set_count, void **state); /* times plans */
bw_status bw_streamed_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);

BW_C_END
