/* Matrices in narrow types, decoded to floats a piece of a row at a time, and weights as results are stored. */
#pragma once

#include "base/types/blocks.h"
#include "cpu/simd/product.h"

enum { PIECE = 256 }; /* of K: whole blocks and groups of every type */

#define DECODE_BLOCKS(id, decode, from, blocks, out) \
    for (int64_t i = 0; i < (blocks); i++) decode((from) + i * BW_##id##_BYTES, (out) + i * BW_##id##_ELEMS)

/* `count` elements, at most PIECE and up to whole blocks, as they are stored. */
static void decode_stored(bw_dtype dtype, const uint8_t *from, int64_t count, float out[PIECE]) {
    const int64_t bytes = bw_ceil_div(count, 2);
    float value[16]; /* no branch for each sign and exponent */
    switch (dtype) {
        case BW_INT8: bw_unpack(BW_INT8, from, 0, count, out); break;
        case BW_FP8_E4M3: bw_unpack(BW_FP8_E4M3, from, 0, count, out); break;
        case BW_FP8_E5M2: bw_unpack(BW_FP8_E5M2, from, 0, count, out); break;
        case BW_UINT4:
            for (int64_t i = 0; i < bytes; i++) {
                out[2 * i] = (float)(from[i] & 15);
                out[2 * i + 1] = (float)(from[i] >> 4);
            }
            break;
        case BW_FP4_E2M1:
            for (int i = 0; i < 16; i++) value[i] = bw_fp4_e2m1_to_float((uint8_t)i);
            for (int64_t i = 0; i < bytes; i++) {
                out[2 * i] = value[from[i] & 15];
                out[2 * i + 1] = value[from[i] >> 4];
            }
            break;
        case BW_Q4_0: DECODE_BLOCKS(Q4_0, bw_q4_0_decode, from, bw_ceil_div(count, BW_Q4_0_ELEMS), out); break;
        case BW_Q8_0: DECODE_BLOCKS(Q8_0, bw_q8_0_decode, from, bw_ceil_div(count, BW_Q8_0_ELEMS), out); break;
        case BW_Q4_K: DECODE_BLOCKS(Q4_K, bw_q4_k_decode, from, bw_ceil_div(count, BW_Q4_K_ELEMS), out); break;
        default: abort();
    }
}

/* A matrix of K columns as it is stored, with what a precision has beside it. */
typedef struct stored_matrix {
    bw_dtype dtype;
    const bw_scaling *scaling;
    const void *data, *scales, *zeros, *whole;
    int64_t row0; /* the first row's number in the matrix of all experts, for its scales */
} stored_matrix;

static stored_matrix stored_weights(const product *p) {
    const bw_precision *precision = p->launch->precision;
    void *const *operand = p->launch->operand;
    return (stored_matrix){precision->weight,       precision->weight_scales,       p->b,   operand[BW_GEMM_B_SCALE],
                           operand[BW_GEMM_B_ZERO], operand[BW_GEMM_B_WHOLE_SCALE], p->row0};
}

/* Elements [k, k + count) of row `row`, scaled; k is a multiple of PIECE. */
static void read_stored(stored_matrix from, int64_t columns, int64_t row, int64_t k, int64_t count, float out[PIECE]) {
    const bw_scaling *scaling = from.scaling;
    const bw_dtype_info *info = bw_dtype_get(from.dtype);
    const char *line = (const char *)from.data + row * bw_ceil_div(columns, info->block_elems) * info->block_bytes;
    decode_stored(from.dtype, (const uint8_t *)line + k / info->block_elems * info->block_bytes, count, out);
    if (scaling->type == BW_NONE) return;
    const int64_t each = scaling->columns ? scaling->columns : columns;
    const int64_t groups = bw_ceil_div(columns, each), high = scaling->rows ? (from.row0 + row) / scaling->rows : 0;
    const float whole = scaling->whole != BW_NONE ? load_scalar(scaling->whole, from.whole, 0) : 1.0f;
    for (int64_t i = 0; i < count;) {
        const int64_t group = (k + i) / each, end = bw_min64(count, (group + 1) * each - k);
        const float scale = whole * load_scalar(scaling->type, from.scales, high * groups + group);
        float zero = 0.0f;
        if (scaling->zero != BW_NONE) {
            const int64_t stored_row = bw_dtype_bytes(scaling->zero, groups);
            zero = load_scalar(scaling->zero, (const char *)from.zeros + high * stored_row, group);
        }
        for (; i < end; i++) out[i] = (out[i] - zero) * scale;
    }
}

BW_INLINE void put_piece(bw_dtype dtype, const float *values, int64_t count, void *to, int64_t at) {
    for (int64_t i = 0; i < count; i += BW_SIMD_FLOATS) {
        bw_vf_store_as_upto(dtype, to, at + i, bw_vf_load_as_upto(BW_FP32, values, i, count - i), count - i);
    }
}

static void dequantize_share(void *context, int rank, int ranks) {
    const product *p = context;
    const int64_t pieces = bw_ceil_div(p->k, PIECE);
    int64_t first, last;
    bw_pool_share(p->n * pieces, rank, ranks, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const int64_t row = i / pieces, k = i % pieces * PIECE, count = bw_min64(PIECE, p->k - k);
        float values[PIECE];
        read_stored(stored_weights(p), p->k, row, k, count, values);
        BW_DTYPE_SWITCH(p->launch->precision->result, put_piece, values, count, p->d, row * p->k + k);
    }
}
