/* The primitives of simd.h with AVX-512 (F, BW, DQ, VL). */
#pragma once

#include <immintrin.h>

BW_VECTORS(16, 12)
#define BW_SIMD_STREAMS 1 /* has non-temporal stores */
#define BW_SIMD_PARTS 1   /* loads and stores parts of a vector */

BW_PRIMITIVE(bw_vf, bw_vf_fma, (bw_vf a, bw_vf b, bw_vf c), _mm512_fmadd_ps(a, b, c))
BW_PRIMITIVE(bw_vu, bw_vu_even_products, (bw_vu a, bw_vu b), (bw_vu)_mm512_mul_epu32((__m512i)a, (__m512i)b))
BW_PRIMITIVE(bw_vf, bw_vf_max, (bw_vf a, bw_vf b), _mm512_max_ps(a, b))

BW_INLINE bw_vf bw_vf_zip_low(bw_vf a, bw_vf b) {
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, order, b);
}

BW_INLINE bw_vf bw_vf_zip_high(bw_vf a, bw_vf b) {
    const __m512i order = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, order, b);
}

BW_PRIMITIVE(bw_vf, bw_vf_load_bf16, (const uint16_t *p),
             (bw_vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16))
BW_PRIMITIVE(bw_vh, bw_vu_narrow, (bw_vu x), (bw_vh)_mm512_cvtepi32_epi16((__m512i)x))
BW_PRIMITIVE(bw_vu, bw_vu_if_nan, (bw_vf x, bw_vu yes, bw_vu no),
             (bw_vu)_mm512_mask_mov_epi32((__m512i)no, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), (__m512i)yes))
BW_PRIMITIVE(bw_vf, bw_vf_from_fp16, (bw_vh x), _mm512_cvtph_ps((__m256i)x))
BW_PRIMITIVE(bw_vh, bw_vf_to_fp16, (bw_vf x), (bw_vh)_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
BW_PRIMITIVE(bw_vf, bw_vh_join, (bw_vh low, bw_vh high),
             (bw_vf)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)low), (__m256i)high, 1))
BW_PRIMITIVE(bw_vf, bw_vf_load_part, (const float *p, int n), _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p))

BW_PRIMITIVE(bw_vf, bw_vf_pick, (bw_vf x, bw_vu index), _mm512_permutexvar_ps((__m512i)index, x))
BW_KEEP("v")
BW_PRIMITIVE(bw_vw, bw_vw_load_int8, (const void *p), (bw_vw)_mm512_cvtepi8_epi16(_mm256_loadu_si256(p)))
BW_PRIMITIVE(bw_vh, bw_vw_low, (bw_vw x), (bw_vh)_mm512_castsi512_si256((__m512i)x))
BW_PRIMITIVE(bw_vh, bw_vw_high, (bw_vw x), (bw_vh)_mm512_extracti64x4_epi64((__m512i)x, 1))
BW_PRIMITIVE(bw_vf, bw_vf_load_int8, (const void *p), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))))
BW_PRIMITIVE(bw_vb, bw_vu_low_bytes, (bw_vu x), (bw_vb)_mm512_cvtepi32_epi8((__m512i)x))
BW_PRIMITIVE(bw_vf, bw_vf_from_bytes, (uint64_t low, uint64_t high),
             _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_set_epi64x((int64_t)high, (int64_t)low))))

/* Sums of the products of neighboring words; the words of a and b by turns, those of each 16 bytes; and the numbers
 * that such turns have put in other places. */
BW_PRIMITIVE(bw_vi, bw_vw_dot, (bw_vw a, bw_vw b), (bw_vi)_mm512_madd_epi16((__m512i)a, (__m512i)b))
BW_PRIMITIVE(bw_vw, bw_vw_turns_low, (bw_vw a, bw_vw b), (bw_vw)_mm512_unpacklo_epi16((__m512i)a, (__m512i)b))
BW_PRIMITIVE(bw_vw, bw_vw_turns_high, (bw_vw a, bw_vw b), (bw_vw)_mm512_unpackhi_epi16((__m512i)a, (__m512i)b))
BW_PRIMITIVE(bw_vi, bw_vi_first, (bw_vi low, bw_vi high),
             (bw_vi)_mm512_permutex2var_epi64((__m512i)low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), (__m512i)high))
BW_PRIMITIVE(bw_vi, bw_vi_second, (bw_vi low, bw_vi high),
             (bw_vi)_mm512_permutex2var_epi64((__m512i)low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15),
                                              (__m512i)high))

/* A table of what four bits mean: the permutation ignores the bits above them. */
BW_INLINE bw_vf bw_vf_from_uint4(bw_vu x, int less) {
    const bw_vf table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return bw_vf_pick(table - (float)less, x);
}

BW_INLINE bw_vf bw_vf_from_e2m1(bw_vu x) {
    const bw_vf table = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    return bw_vf_pick(table, x);
}

/* Four blocks, 72 bytes, as 32 words from each of two loads: word 9 b of block b is the scale, the next eight are data.
 */
BW_INLINE bw_vu bw_vu_load_q4_0(const char *p) {
    const bw_vw order = {1,  2,  3,  4,  5,  6,  7,  8,  10, 11, 12, 13, 14, 15, 16, 17,
                         19, 20, 21, 22, 23, 24, 25, 26, 28, 29, 30, 31, 60, 61, 62, 63};
    const __m512i low = _mm512_loadu_si512(p), high = _mm512_loadu_si512(p + 8);
    return (bw_vu)_mm512_permutex2var_epi16(low, (__m512i)order, high);
}

BW_INLINE bw_vf bw_vf_load_q4_0_scales(const char *p) {
    const bw_vh order = {0, 0, 0, 0, 9, 9, 9, 9, 18, 18, 18, 18, 27, 27, 27, 27};
    const __m256i low = _mm256_loadu_si256((const __m256i *)p), high = _mm256_loadu_si256((const __m256i *)(p + 32));
    return bw_vf_from_fp16((bw_vh)_mm256_permutex2var_epi16(low, (__m256i)order, high));
}

/* Pairs of BF16 numbers, where the processor multiplies them: two in each lane. An instruction that the file's flags do
 * not allow is in no intrinsic. */
BW_PRIMITIVE(bool, bw_has_pairs, (void), __builtin_cpu_supports("avx512bf16"))

BW_INLINE bw_vf bw_vf_add_pairs(bw_vf total, bw_vw a, bw_vf b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(a), "v"(b));
    return total;
}

/* Products of four bytes added to a total, those of a from 0 to 255. */
BW_PRIMITIVE(bool, bw_has_dots, (void), __builtin_cpu_supports("avx512vnni"))

BW_INLINE bw_vi bw_vi_add_bytes(bw_vi total, bw_vu a, bw_vu b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(a), "v"(b));
    return total;
}

/* The permutation of words looks at five bits: the table comes twice. */
BW_INLINE bw_vw bw_vw_pick_twice(bw_vh table, bw_vw index) {
    return (bw_vw)_mm512_permutexvar_epi16((__m512i)index, _mm512_broadcast_i64x4((__m256i)table));
}

BW_INLINE bw_vw bw_pairs_from_uint4(bw_vw x, int less) {
    const bw_vh whole = {0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0,
                         0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
    const bw_vh less_8 = {0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80,
                          0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
    return bw_vw_pick_twice(less ? less_8 : whole, x);
}

BW_INLINE bw_vw bw_pairs_from_e2m1(bw_vw x) {
    const bw_vh table = {0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
                         0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    return bw_vw_pick_twice(table, x);
}

BW_INLINE void bw_vf_store_part(float *p, bw_vf x, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}

BW_INLINE void bw_stream_vector(void *p, bw_vf x) {
    _mm512_stream_ps(p, x);
}
