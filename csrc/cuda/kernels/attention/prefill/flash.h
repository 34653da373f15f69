// The kernels of flash: fp32.cu, tf32.cu, and mma.cu for FP16 and BF16.
#pragma once

#include "cuda/kernels/attention/shape.h"
#include "cuda/launch/prepared.h"

bw_status bw_flash_fp32_choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_launch_spec *out);
bw_status bw_flash_tf32_choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_launch_spec *out);
bw_status bw_flash_mma_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out);
