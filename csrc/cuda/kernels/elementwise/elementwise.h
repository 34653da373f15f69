/* The kernels of element-wise operations: elementwise.cu; of their chain: chain.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_relu_choose, bw_gelu_choose, bw_residual_add_choose, bw_silu_mul_choose;
const char *bw_elementwise_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

bw_cuda_choose bw_chain_unfused_choose, bw_chain_fused_choose;
const char *bw_chain_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

BW_C_END
