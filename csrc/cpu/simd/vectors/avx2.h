/* The primitives of simd.h with AVX2, FMA and F16C. */
#pragma once

#include <immintrin.h>

enum { BW_SIMD_FLOATS = 8, BW_MICRO_ROWS = 6 };
#define BW_SIMD_STREAMS 1
#define BW_SIMD_PARTS 1
typedef float bw_vf __attribute__((vector_size(32)));
typedef __m128i bw_vh;

BW_PRIMITIVE(bw_vf, bw_vf_fma, (bw_vf a, bw_vf b, bw_vf c), _mm256_fmadd_ps(a, b, c))
BW_PRIMITIVE(bw_vf, bw_vf_max, (bw_vf a, bw_vf b), _mm256_max_ps(a, b))
BW_PRIMITIVE(bw_vf, bw_vf_zip_low, (bw_vf a, bw_vf b),
             _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20))
BW_PRIMITIVE(bw_vf, bw_vf_zip_high, (bw_vf a, bw_vf b),
             _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31))
BW_PRIMITIVE(bw_vf, bw_vf_load_fp16, (const uint16_t *p), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)))
BW_PRIMITIVE(bw_vh, bw_vf_to_fp16, (bw_vf x), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))

BW_INLINE bw_vf bw_vf_load_bf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

BW_INLINE bw_vh bw_vf_to_bf16(bw_vf x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    __m256i narrow = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    return _mm256_castsi256_si128(narrow);
}

BW_PRIMITIVE(bw_vf, bw_vh_join, (bw_vh low, bw_vh high),
             _mm256_castsi256_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1)))
BW_PRIMITIVE(__m256i, bw_vf_mask, (int n),
             _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)))

/* n of 1 .. BW_SIMD_FLOATS: the others read as zero, and stay unwritten. */
BW_PRIMITIVE(bw_vf, bw_vf_load_part, (const float *p, int n), _mm256_maskload_ps(p, bw_vf_mask(n)))

BW_INLINE void bw_vf_store_part(float *p, bw_vf x, int n) {
    _mm256_maskstore_ps(p, bw_vf_mask(n), x);
}

BW_INLINE void bw_stream_vector(void *p, bw_vf x) {
    _mm256_stream_ps(p, x);
}

BW_INLINE void bw_stream_fence(void) {
    _mm_sfence();
}
