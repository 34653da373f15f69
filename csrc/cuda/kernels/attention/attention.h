/* Declarations of the attention variants, for their tables. */
#pragma once

#include "cuda/launch/prepared.h"

BW_C_BEGIN

/* unfused.cu */
const char *bw_unfused_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_unfused_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_unfused_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                bw_cost *cost);
bw_cuda_choose bw_unfused_choose;

/* prefill/ */
const char *bw_flash_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bool bw_flash_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_flash_choose;
bw_cuda_choose bw_split_choose; /* of what flash does not refuse */
const char *bw_prefill_rows_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_prefill_strided_choose;
bw_cuda_choose bw_prefill_shared_choose;
bw_cuda_choose bw_prefill_padded_choose;
const char *bw_hopper_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_hopper_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_hopper_choose;
bw_status bw_hopper_prepare(const bw_launch *sets, int64_t set_count, void **state);
bw_status bw_hopper_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);
const char *bw_prefill_fp8_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_prefill_fp8_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_status bw_prefill_fp8_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                    bw_cost *cost);
bw_cuda_choose bw_prefill_fp8_choose;
bw_status bw_prefill_fp8_prepare(const bw_launch *sets, int64_t set_count, void **state);
bw_status bw_prefill_fp8_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision,
                                  bw_kernels *out);

/* decode/ */
const char *bw_decode_rows_refuse(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_decode_split_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_decode_grouped_scratch_bytes(const bw_dims *dims, const bw_precision *precision,
                                        const bw_device_facts *facts);
bw_status bw_decode_split_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                     bw_cost *cost);
bw_status bw_decode_grouped_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                       bw_cost *cost);
bw_cuda_choose bw_decode_simple_choose;
bw_cuda_choose bw_decode_split_choose;
bw_cuda_choose bw_decode_grouped_choose;
const char *bw_decode_cluster_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_decode_cluster_choose;
bool bw_splitkv_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
const char *bw_splitkv_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_splitkv_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_splitkv_largest_scratch_bytes(const bw_dims *dims, const bw_precision *precision,
                                         const bw_device_facts *facts);
bw_status bw_splitkv_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                bw_cost *cost);
bw_status bw_splitkv_prepare(const bw_launch *sets, int64_t set_count, void **state);
bw_status bw_splitkv_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);

/* latent/ */
const char *bw_latent_naive_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
bw_cuda_choose bw_latent_naive_choose;
const char *bw_latent_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_latent_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
int64_t bw_latent_largest_scratch_bytes(const bw_dims *dims, const bw_precision *precision,
                                        const bw_device_facts *facts);
bw_status bw_latent_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                               bw_cost *cost);
bw_status bw_latent_prepare(const bw_launch *sets, int64_t set_count, void **state);
bw_status bw_latent_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);

BW_C_END
