/* The kernels of the streams: stream.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_stream_read_choose, bw_stream_write_choose, bw_stream_copy_choose, bw_stream_triad_choose;
const char *bw_stream_read_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_stream_tiles_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

BW_C_END
