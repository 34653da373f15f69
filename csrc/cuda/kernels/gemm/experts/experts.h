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

/* streamed.cu */
const char *bw_streamed_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_streamed_prepare(const bw_launch *sets, int64_t set_count, void **state); /* times plans */
bw_status bw_streamed_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);

BW_C_END
