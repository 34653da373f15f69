// Element types of gemm's kernels, those of eight bits among them: what sums of products are held in, what D is stored
// in, and the scales of A and B, a number for each row, that make D of those sums.
#pragma once

#include <type_traits>

#include "cuda/kernels/common/element.cuh"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/gemm.h"

template <typename T>
struct bw_gemm_types {
    using sum = std::conditional_t<std::is_same_v<T, int8_t>, int, float>;
    static constexpr bool scaled = sizeof(T) == 1;
    using result = std::conditional_t<scaled, __half, T>;
};

// m16n8k32: a fragment's registers are those of 16-bit elements, two in the place of each. Of E4M3 only in files *_fp8.
BW_DEVICE void bw_multiply(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int8_t) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
BW_DEVICE void bw_multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bw_e4m3) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Why tensor cores cannot multiply this precision; for gemm also because sums of INT8 over all of K may overflow.
static inline const char *bw_products_refuse(const bw_precision *precision, const bw_device_facts *facts) {
    return precision->compute == BW_FP8_E4M3 && (!facts->own || 10 * facts->own->major + facts->own->minor < 89)
               ? "products of E4M3 need compute capability 8.9"
               : nullptr;
}
static inline const char *bw_gemm_products_refuse(const bw_dims *dims, const bw_precision *precision,
                                                  const bw_device_facts *facts) {
    const char *reason = bw_products_refuse(precision, facts);
    if (reason) return reason;
    if (precision->compute == BW_INT8 && dims->value[BW_GEMM_K] > INT32_MAX / (128 * 128))
        return "sums of more than 131071 products of INT8 may pass 2^31";
    return nullptr;
}

// The scales of A and B, as their precision has them: of the whole matrix, of each row, or for each 128 of K, of each
// row of A and of each 128 rows of B. NULL where the type has none.
struct bw_gemm_scales {
    const float *a, *b;
    int groups;   // of 128 of K; 0: a scale is of all of K
    int of_rows;  // 1; 0: of the whole matrix
};

constexpr int bw_scaled_block = 128;

// Factors of a sum over K: 1 where groups of K have scales of their own.
BW_DEVICE float bw_gemm_scale_of_row(const bw_gemm_scales &scales, int64_t row) {
    return scales.groups ? 1.0f : __ldg(&scales.a[row * scales.of_rows]);
}
BW_DEVICE float bw_gemm_scale_of_column(const bw_gemm_scales &scales, int64_t column) {
    return scales.groups ? 1.0f : __ldg(&scales.b[column * scales.of_rows]);
}
// Of the part of a sum that is group `group`.
BW_DEVICE float bw_gemm_scale_of_row(const bw_gemm_scales &scales, int64_t row, int group) {
    return __ldg(&scales.a[row * scales.groups + group]);
}
BW_DEVICE float bw_gemm_scale_of_column(const bw_gemm_scales &scales, int64_t column, int group) {
    return __ldg(&scales.b[column / bw_scaled_block * scales.groups + group]);
}

static inline bool bw_gemm_has_groups(const bw_precision *precision) {
    return precision->activation_scales->columns != 0;
}
static inline bw_gemm_scales bw_gemm_scales_of(int64_t k, const bw_precision *precision) {
    const bool groups = bw_gemm_has_groups(precision);
    return {nullptr, nullptr, groups ? (int)bw_ceil_div(k, bw_scaled_block) : 0,
            precision->activation_scales->rows != 0};
}
static inline bw_gemm_scales bw_gemm_scales_of(const bw_dims *dims, const bw_precision *precision) {
    return bw_gemm_scales_of(dims->value[BW_GEMM_K], precision);
}
// They are the kernel's argument `argument`.
static inline void bw_gemm_place_scales(bw_cuda_kernel *kernel, int argument, const bw_precision *precision) {
    if (precision->activation_scales->type == BW_NONE) return;
    bw_choose_place(kernel, argument, offsetof(bw_gemm_scales, a), bw_from_operand(BW_GEMM_A_SCALE));
    bw_choose_place(kernel, argument, offsetof(bw_gemm_scales, b), bw_from_operand(BW_GEMM_B_SCALE));
}

// bw_cuda_by_type with the types of eight bits.
template <typename Body>
static bw_status bw_gemm_by_type(bw_dtype dtype, Body body) {
    if (dtype == BW_INT8) return body(bw_type<int8_t>{});
    if (dtype == BW_FP8_E4M3) return body(bw_type<bw_e4m3>{});
    return bw_cuda_by_type(dtype, body);
}
