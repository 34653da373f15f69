/* The kernels of what quantizes results: quantize.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_silu_unfused_choose, bw_silu_fused_choose;
const char *bw_silu_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

BW_C_END
