/* The kernels of what quantizes results: quantize.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_silu_unfused_choose, bw_silu_fused_choose;
const char *bw_silu_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_silu_unfused_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_silu_unfused_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                               bw_cost *cost);

BW_C_END
