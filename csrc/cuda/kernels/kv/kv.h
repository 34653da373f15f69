/* The kernels of the KV cache's moves: move.cu; what converts: quantize.cu, dequantize.cu; what rotates: rope.cu. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

bw_cuda_choose bw_kv_append_choose, bw_kv_gather_choose, bw_kv_copy_choose;
const char *bw_kv_append_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_kv_gather_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_kv_copy_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

/* kv_append to a cache with scales; what bw_kv_append_refuses does not refuse. */
bw_status bw_kv_quantize_choose(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out);
/* kv_gather from such a one as results; what bw_kv_gather_refuses does not refuse. */
bw_status bw_kv_dequantize_choose(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out);

/* kv_append of the K that is operand `k`, or the scratch. */
bw_status bw_kv_append_from(int k, const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            bw_cuda_launch_spec *out);

bw_cuda_choose bw_rope_choose, bw_rope_unfused_choose, bw_rope_fused_choose;
const char *bw_rope_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_rope_append_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);

BW_C_END
