// The products of unfused attention on tensor cores: unfused_mma.cu.
#pragma once

#include "cuda/kernels/attention/shape.h"
#include "cuda/launch/prepared.h"

// FP16 and BF16: S = q k^T / sqrt(D), masked, and out = P v; S and P lie in the scratch.
bw_status bw_unfused_mma_scores(bw_dtype dtype, const bw_attention_shape &shape, bw_cuda_launch_spec *out);
bw_status bw_unfused_mma_output(bw_dtype dtype, const bw_attention_shape &shape, bw_cuda_launch_spec *out);
