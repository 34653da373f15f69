/* The kernels of access patterns: access.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_strided_read_choose, bw_strided_write_choose, bw_random_read_choose, bw_random_write_choose;
const char *bw_strided_read_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_strided_write_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_random_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

BW_C_END
