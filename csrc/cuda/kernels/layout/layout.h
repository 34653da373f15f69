/* The kernels of moves that swap two axes: transpose.cu, permute.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_layout_naive_choose, bw_transpose_tiled_choose, bw_transpose_swizzled_choose,
    bw_permute_vector_choose;
const char *bw_layout_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_transpose_tiled_refuses(const bw_dims *dims, const bw_precision *precision,
                                       const bw_device_facts *facts);
const char *bw_transpose_swizzled_refuses(const bw_dims *dims, const bw_precision *precision,
                                          const bw_device_facts *facts);

BW_C_END
