/* The kernels on rows: norms.cu, exponentials.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_rmsnorm_choose, bw_layernorm_choose, bw_residual_rmsnorm_choose, bw_residual_rmsnorm_unfused_choose;
bw_cuda_choose bw_softmax_choose, bw_logsumexp_choose, bw_logsumexp_unfused_choose;

BW_C_END
