/* The kernels of the streams: stream.cu. */
#ifndef BW_CUDA_STREAM_H
#define BW_CUDA_STREAM_H

#include "cuda/launch/prepared.h"

#ifdef __cplusplus
extern "C" {
#endif

bw_cuda_choose bw_stream_read_choose, bw_stream_write_choose, bw_stream_copy_choose, bw_stream_triad_choose;
const char *bw_stream_read_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_stream_tiles_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

#ifdef __cplusplus
}
#endif
#endif
