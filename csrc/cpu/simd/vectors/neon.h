/* The primitives of simd.h with NEON, as every aarch64 has it. */
#pragma once

#include <arm_neon.h>

BW_VECTORS(4, 8)
#include "cpu/simd/vectors/four.h"
#define BW_SIMD_PARTS 0
#define BW_SIMD_STREAMS 0

BW_PRIMITIVE(bw_vf, bw_vf_fma, (bw_vf a, bw_vf b, bw_vf c), vfmaq_f32(c, a, b))
BW_PRIMITIVE(bw_vf, bw_vf_max, (bw_vf a, bw_vf b), vmaxq_f32(a, b))
BW_PRIMITIVE(bw_vf, bw_vf_zip_low, (bw_vf a, bw_vf b), vzip1q_f32(a, b))
BW_PRIMITIVE(bw_vf, bw_vf_zip_high, (bw_vf a, bw_vf b), vzip2q_f32(a, b))
BW_PRIMITIVE(bw_vf, bw_vf_load_bf16, (const uint16_t *p), vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)))
BW_PRIMITIVE(bw_vh, bw_vu_narrow, (bw_vu x), vmovn_u32(x))
BW_PRIMITIVE(bw_vu, bw_vu_if_nan, (bw_vf x, bw_vu yes, bw_vu no), vbslq_u32(vceqq_f32(x, x), no, yes))
BW_PRIMITIVE(bw_vf, bw_vf_from_fp16, (bw_vh x), vcvt_f32_f16(vreinterpret_f16_u16(x)))
BW_PRIMITIVE(bw_vh, bw_vf_to_fp16, (bw_vf x), vreinterpret_u16_f16(vcvt_f16_f32(x)))
BW_PRIMITIVE(bw_vf, bw_vh_join, (bw_vh low, bw_vh high), vreinterpretq_f32_u16(vcombine_u16(low, high)))

BW_INLINE bw_vf bw_vf_load_q4_0_scales(const char *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return bw_vf_from_fp16((bw_vh){half, half, half, half});
}
