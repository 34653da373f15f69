/* Declarations of the linear_relu_dropout variants on a GPU. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

/* ../gemv.cu: one row of A */
bw_cuda_choose bw_linear_gemv_choose;

/* skinny.cu: up to 16 rows */
bw_cuda_choose bw_linear_skinny_choose;

/* ../tensor.cu */
bw_cuda_choose bw_linear_tensor_choose;

/* wgmma_sm90.cu */
bw_cuda_choose bw_linear_wgmma_choose;

/* steps.cu: what follows a library's product */
const char *bw_linear_steps_refuse(const bw_dims *dims);
bw_cuda_choose bw_linear_steps_choose;

BW_C_END
