// gemm through wgmma.cuh: what it refuses, where it is preferred, and tiles of elements of 16 and 32 bits.
#include "cuda/kernels/gemm/wgmma.cuh"

const char *bw_wgmma_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    if (!facts->own || facts->own->major != 9) return "wgmma and TMA need compute capability 9.0";
    if (value[BW_GEMM_K] * bw_dtype_get(precision->weight)->block_bytes % 16 != 0 ||
        value[BW_GEMM_N] * bw_dtype_get(precision->result)->block_bytes % 16 != 0)
        return "rows of A, B or D are no multiple of 16 bytes";
    const char *reason = bw_gemm_products_refuse(dims, precision, facts);
    if (reason) return reason;
    if (value[BW_GEMM_M] > INT32_MAX / 2 || value[BW_GEMM_N] > INT32_MAX / 2 || value[BW_GEMM_K] > INT32_MAX / 2) {
        return "2^30 rows or columns and more";
    }
    const bw_checked_int tiles =
        bw_mul(bw_num(bw_ceil_div(value[BW_GEMM_M], 64)), bw_num(bw_ceil_div(value[BW_GEMM_N], 64)));
    return tiles.overflow || tiles.value > INT32_MAX / 2 ? "more than 2^30 tiles" : nullptr;
}

// Where it is faster than cuBLASLt and skinny. cuBLASLt needs one more kernel for INT8, is slow for E4M3 with scales of
// rows, and for TF32 where wide tiles fill the device once. Timed on an H200, M of 1 to 8192.
bool bw_wgmma_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t m = dims->value[BW_GEMM_M], units = facts->units;
    if (precision->compute == BW_INT8) return m > 16 || dims->value[BW_GEMM_N] > units * 64;
    if (precision->compute == BW_TF32) {
        const int64_t tiles = tiles_of(dims, 128, 256);
        return m > 128 && m <= 256 && tiles <= units && 4 * tiles > 3 * units;
    }
    if (precision->compute != BW_FP8_E4M3 || precision->activation_scales->rows == 0) return false;
    return m > 16 || (m > 8 && 3 * tiles_of(dims, 64, 64) >= units);
}

bw_status bw_wgmma_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                          bw_cuda_launch_spec *out) {
    if (bw_dtype_get(precision->weight)->block_bytes == 1) return bw_wgmma_eight_choose(dims, precision, facts, out);
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        choose_columns<T>(dims, precision, facts->units, bw_from_operand_if(dims->value[BW_GEMM_BETA] != 0, BW_GEMM_C),
                          out);
        return BW_OK;
    });
}

bw_status bw_wgmma_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    if (bw_dtype_get(sets[0].precision->weight)->block_bytes == 1)
        return bw_wgmma_eight_prepare(sets, set_count, state);
    return bw_cuda_prepare(sets, set_count, bw_wgmma_choose, state);
}

bw_status bw_wgmma_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, bw_wgmma_choose, out);
}
