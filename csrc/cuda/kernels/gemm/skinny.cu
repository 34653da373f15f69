// Which products the kernels of skinny.cuh take, where they are preferred, and those that every device can do.
#include "cuda/kernels/gemm/skinny.cuh"

namespace {

constexpr int most_exact_rows = 32, most_elements = 1 << 28, least_exact = 16;

}  // namespace

const char *bw_skinny_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const char *reason = bw_gemm_products_refuse(dims, precision, facts);
    if (reason) return reason;
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    if (m > (precision->compute == BW_FP32 && precision->weight == BW_FP32 ? most_exact_rows : most_rows))
        return "skinny takes at most 16 rows of A, 32 in FP32";
    if (k * bw_dtype_get(precision->weight)->block_bytes % 16 != 0)
        return "skinny takes rows of a multiple of 16 bytes";
    if (!bw_cuda_grid_fits(n)) return "skinny takes at most 2^31 - 1 rows of B";
    // What its products of TF32 leave out is more than FP32's roundings of so few.
    if (precision->compute == BW_FP32 && k < least_exact) return "skinny takes rows of at least 16 elements in FP32";
    if (k > most_elements) return "skinny takes rows of at most 2^28 elements";
    return nullptr;
}

// Where it beats cuBLASLt, and gemv, whose arithmetic is as fast as the memory for a row or two of A (in FP32 for four
// where rows of B are long). Timed on an H200 at 47 shapes: M of 2 to 16, N of 896 to 151936, K of 896 to 14336.
bool bw_skinny_prefers(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const int64_t m = dims->value[BW_GEMM_M], n = dims->value[BW_GEMM_N], k = dims->value[BW_GEMM_K];
    if (precision->compute == BW_FP32) return m > 4 || (m > 2 && k < 4096);
    if (precision->compute == BW_TF32) return m > 2;
    if (precision->compute == BW_INT8) return true;
    // Where a scale is of the whole matrix, cuBLASLt is as fast.
    if (precision->compute == BW_FP8_E4M3) return precision->activation_scales->rows != 0;
    // cuBLASLt stores 16 bytes of D's rows at once, or takes up to twice as long.
    if (m > 8) return n % 8 != 0 || n <= 25 * 1000 * 1000 / k || n <= (int64_t)facts->units * 8 * tile;
    if (m > 2) return true;
    return m == 2 && k < 8192 && (n > 8 * (int64_t)facts->units || k >= 4096);
}

bw_status bw_skinny_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                           bw_cuda_launch_spec *out) {
    const auto of = skinny_case_of(dims, precision, facts);
    if (precision->weight == BW_FP8_E4M3) return bw_skinny_e4m3_choose(dims, precision, facts, out);
    if (precision->weight == BW_INT8) return choose_for<int8_t, false>(of, out);
    return bw_cuda_by_type(precision->weight, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (sizeof(T) == 4 && precision->compute == BW_FP32) return choose_for<T, sizeof(T) == 4>(of, out);
        return choose_for<T, false>(of, out);
    });
}
