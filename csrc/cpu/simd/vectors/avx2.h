/* The primitives of simd.h with AVX2, FMA and F16C. */
#pragma once

#include <immintrin.h>

BW_VECTORS(8, 6)
#define BW_SIMD_STREAMS 1
#define BW_SIMD_PARTS 1

BW_PRIMITIVE(bw_vf, bw_vf_fma, (bw_vf a, bw_vf b, bw_vf c), _mm256_fmadd_ps(a, b, c))
BW_PRIMITIVE(bw_vu, bw_vu_even_products, (bw_vu a, bw_vu b), (bw_vu)_mm256_mul_epu32((__m256i)a, (__m256i)b))
BW_PRIMITIVE(bw_vf, bw_vf_max, (bw_vf a, bw_vf b), _mm256_max_ps(a, b))
BW_PRIMITIVE(bw_vf, bw_vf_zip_low, (bw_vf a, bw_vf b),
             _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20))
BW_PRIMITIVE(bw_vf, bw_vf_zip_high, (bw_vf a, bw_vf b),
             _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31))
BW_PRIMITIVE(bw_vf, bw_vf_load_bf16, (const uint16_t *p),
             (bw_vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16))
BW_PRIMITIVE(bw_vh, bw_vu_narrow, (bw_vu x),
             (bw_vh)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1)))
BW_PRIMITIVE(bw_vu, bw_vu_if_nan, (bw_vf x, bw_vu yes, bw_vu no),
             (bw_vu)_mm256_blendv_ps((__m256)no, (__m256)yes, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)))
BW_PRIMITIVE(bw_vf, bw_vf_from_fp16, (bw_vh x), _mm256_cvtph_ps((__m128i)x))
BW_PRIMITIVE(bw_vh, bw_vf_to_fp16, (bw_vf x), (bw_vh)_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
BW_PRIMITIVE(bw_vf, bw_vh_join, (bw_vh low, bw_vh high),
             (bw_vf)_mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)low), (__m128i)high, 1))
BW_PRIMITIVE(__m256i, bw_vf_mask, (int n),
             _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)))
BW_PRIMITIVE(bw_vf, bw_vf_load_part, (const float *p, int n), _mm256_maskload_ps(p, bw_vf_mask(n)))
BW_NO_PAIRS
BW_NO_DOTS
BW_PRIMITIVE(bw_vi, bw_vw_dot, (bw_vw a, bw_vw b), (bw_vi)_mm256_madd_epi16((__m256i)a, (__m256i)b))
BW_PRIMITIVE(bw_vw, bw_vw_turns_low, (bw_vw a, bw_vw b), (bw_vw)_mm256_unpacklo_epi16((__m256i)a, (__m256i)b))
BW_PRIMITIVE(bw_vw, bw_vw_turns_high, (bw_vw a, bw_vw b), (bw_vw)_mm256_unpackhi_epi16((__m256i)a, (__m256i)b))
BW_PRIMITIVE(bw_vi, bw_vi_first, (bw_vi low, bw_vi high),
             (bw_vi)_mm256_permute2x128_si256((__m256i)low, (__m256i)high, 0x20))
BW_PRIMITIVE(bw_vi, bw_vi_second, (bw_vi low, bw_vi high),
             (bw_vi)_mm256_permute2x128_si256((__m256i)low, (__m256i)high, 0x31))
BW_PRIMITIVE(bw_vf, bw_vf_pick, (bw_vf x, bw_vu index), _mm256_permutevar8x32_ps(x, (__m256i)index))
BW_KEEP("x")
BW_PRIMITIVE(bw_vw, bw_vw_load_int8, (const void *p), (bw_vw)_mm256_cvtepi8_epi16(_mm_loadu_si128(p)))
BW_PRIMITIVE(bw_vh, bw_vw_low, (bw_vw x), (bw_vh)_mm256_castsi256_si128((__m256i)x))
BW_PRIMITIVE(bw_vh, bw_vw_high, (bw_vw x), (bw_vh)_mm256_extracti128_si256((__m256i)x, 1))
BW_PRIMITIVE(bw_vf, bw_vf_load_int8, (const void *p), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p))))
BW_PRIMITIVE(bw_vf, bw_vf_from_bytes, (uint64_t low, uint64_t high),
             _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_set_epi64x((int64_t)high, (int64_t)low))))

BW_INLINE bw_vb bw_vu_low_bytes(bw_vu x) {
    const __m256i bytes = _mm256_shuffle_epi8((__m256i)x, _mm256_set1_epi32(0x0c080400));
    const __m128i halves = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    return (bw_vb)_mm_cvtsi128_si64(halves);
}

BW_PRIMITIVE(bw_vf, bw_vf_from_uint4, (bw_vu x, int less), _mm256_cvtepi32_ps((__m256i)((bw_vi)(x & 15u) - less)))
BW_PRIMITIVE(bw_vu, bw_vu_load_q4_0, (const char *p),
             (bw_vu)_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(p + 2))),
                                            _mm_loadu_si128((const __m128i *)(p + 20)), 1))

/* Of two blocks, four lanes each. */
BW_INLINE bw_vf bw_vf_load_q4_0_scales(const char *p) {
    uint16_t half[2];
    memcpy(&half[0], p, sizeof half[0]);
    memcpy(&half[1], p + 18, sizeof half[1]);
    return _mm256_cvtph_ps(_mm_set_epi64x((int64_t)(0x0001000100010001u * (uint64_t)half[1]),
                                          (int64_t)(0x0001000100010001u * (uint64_t)half[0])));
}

/* A table of sizes, whose permutation ignores the bits above three, and a sign. */
BW_INLINE bw_vf bw_vf_from_e2m1(bw_vu x) {
    const bw_vf sizes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return (bw_vf)((bw_vu)bw_vf_pick(sizes, x) | (x << 28 & 0x80000000u));
}

BW_INLINE void bw_vf_store_part(float *p, bw_vf x, int n) {
    _mm256_maskstore_ps(p, bw_vf_mask(n), x);
}

BW_INLINE void bw_stream_vector(void *p, bw_vf x) {
    _mm256_stream_ps(p, x);
}
