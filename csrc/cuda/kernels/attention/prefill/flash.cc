// Flash's entries for the table: refusals, preference, choice of the kernel.
#include "cuda/kernels/attention/prefill/flash.h"

#include "cuda/kernels/attention/attention.h"
#include "cuda/launch/choose.cuh"

// The smallest tile is 32 queries.
const char *bw_flash_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_attention_shape shape = bw_prefill_shape(dims, bw_attention_kv_dtype(precision));
    // Tiles are counted in int.
    if (shape.keys > INT32_MAX - 512) return "2^31 - 512 keys and more";
    const bw_checked_int blocks = bw_mul3(shape.batch, shape.heads, bw_ceil_div(shape.queries, 32));
    return blocks.overflow || !bw_cuda_grid_fits(blocks.value) ? "more tiles of queries than a grid holds (2^31 - 1)"
                                                               : nullptr;
}

// FP32: three products in TF32 for one pay where tensor cores are several times as fast as CUDA cores. 16 bits: with
// one tile of each, hopper costs more than it saves (3.9 us against 4.8).
bool bw_flash_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    if (precision->id == BW_PRECISION_FP32) return !(facts->peak_tflops[BW_TF32] > 4 * facts->peak_tflops[BW_FP32]);
    return dims->value[BW_PREFILL_KV_LEN] <= 64;
}

bw_status bw_flash_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                          bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_prefill_shape(dims, bw_attention_kv_dtype(precision));
    if (precision->id == BW_PRECISION_FP32) return bw_flash_fp32_choose(shape, facts, out);
    if (precision->id == BW_PRECISION_TF32) return bw_flash_tf32_choose(shape, facts, out);
    return bw_flash_mma_choose(precision->cache, shape, facts, out);
}
