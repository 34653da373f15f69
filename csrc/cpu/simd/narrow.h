/* Weights of narrow types as vectors of floats in registers, for products with FP32 activations.
 *
 * A row is read in chunks of 256 elements, a chunk in units: 32 bytes of four-bit elements for each eight lanes, four
 * vectors of eight-bit ones, or a block. A unit's word of four-bit elements is shifted right four bits at a time, so
 * that lane i of vector v is the v-th half byte of its i-th 32 bits; activations are packed in that order once a launch
 * (bw_narrow_pack), which costs the weights no instruction. An element is stored * scale [+ shift], or just stored. A
 * new type is a row of bw_narrow_of, a case in each function below, and its name in BW_NARROW_TYPES.
 * `dtype`, `unit` and `v` are constants wherever these functions are inlined and loops unrolled. */
#pragma once

#include "base/types/blocks.h"
#include "cpu/simd/micro.h"

enum { BW_CHUNK = 256, BW_CHUNK_BYTES_MAX = BW_CHUNK / BW_Q8_0_ELEMS * BW_Q8_0_BYTES, BW_UNIT_SCALES = 2 };
enum { BW_Q4_K_DATA = 16, BW_SPREAD_ROOM = BW_SIMD_FLOATS };

typedef struct bw_narrow {
    int chunk_bytes;
    int vectors; /* of a unit */
    int scales;  /* of a unit: vector v has number v % scales; 0: none, a row is scaled as a whole */
    bool shifts; /* there are shifts, too */
} bw_narrow;

BW_INLINE bw_narrow bw_narrow_of(bw_dtype dtype) {
    switch (dtype) {
        case BW_INT8:
        case BW_FP8_E4M3: return (bw_narrow){BW_CHUNK, 4, 0, false};
        case BW_Q8_0: return (bw_narrow){BW_CHUNK_BYTES_MAX, BW_Q8_0_ELEMS / BW_SIMD_FLOATS, 1, false};
        case BW_UINT4: return (bw_narrow){BW_CHUNK / 2, 8, 1, true};
        case BW_FP4_E2M1: return (bw_narrow){BW_CHUNK / 2, 8, 1, false};
        case BW_Q4_0: return (bw_narrow){BW_CHUNK / BW_Q4_0_ELEMS * BW_Q4_0_BYTES, 8, 1, false};
        case BW_Q4_K: return (bw_narrow){BW_Q4_K_BYTES, 8, 2, true};
        default: abort();
    }
}

/* The types above: X(id) for each. */
#define BW_NARROW_TYPES(X) X(INT8) X(FP8_E4M3) X(Q8_0) X(UINT4) X(FP4_E2M1) X(Q4_0) X(Q4_K)

/* E4M3 as FP16 with the same bits of exponent and fraction, 1/256 of the value; NaN, all of them set, gets FP16's
 * highest exponent by a carry. */
BW_INLINE bw_vf bw_vf_load_e4m3(const void *p) {
    const bw_vh x = bw_vh_load_int8(p) << 7, carried = x + 0x80;
    return bw_vf_from_fp16((x & 0xbf80) | ((carried ^ x) & 0x4000));
}

/* What a row's sum is multiplied by beside its scales. */
BW_INLINE float bw_narrow_factor(bw_dtype dtype) {
    return dtype == BW_FP8_E4M3 ? 256.0f : 1.0f;
}

/* Vector `v` of a unit, as stored. */
BW_INLINE bw_vf bw_narrow_load(bw_dtype dtype, const char *chunk, int unit, int v) {
    const char *word = chunk + unit * BW_SIMD_BYTES;
    switch (dtype) {
        case BW_INT8: return bw_vf_load_int8(word + v * BW_SIMD_FLOATS);
        case BW_FP8_E4M3: return bw_vf_load_e4m3(word + v * BW_SIMD_FLOATS);
        case BW_Q8_0: return bw_vf_load_int8(chunk + unit * BW_Q8_0_BYTES + 2 + v * BW_SIMD_FLOATS);
        case BW_UINT4: return bw_vf_from_uint4(bw_vu_load(word) >> 4 * v, 0);
        case BW_FP4_E2M1: return bw_vf_from_e2m1(bw_vu_load(word) >> 4 * v);
        case BW_Q4_0:
            word = chunk + unit * (BW_SIMD_FLOATS / 4) * BW_Q4_0_BYTES + 2;
            return bw_vf_from_uint4(bw_vu_load_pieces(word, BW_Q4_0_BYTES) >> 4 * v, 8);
        case BW_Q4_K: return bw_vf_from_uint4(bw_vu_load(word + BW_Q4_K_DATA) >> 4 * v, 0);
        default: abort();
    }
}

/* Which element of a chunk lane `lane` of that vector is. */
BW_INLINE int bw_narrow_place(bw_dtype dtype, int unit, int v, int lane) {
    const int vectors = bw_narrow_of(dtype).vectors;
    const int byte = unit * BW_SIMD_BYTES + 4 * lane + v / 2, high = v % 2;
    switch (dtype) {
        case BW_UINT4:
        case BW_FP4_E2M1: return 2 * byte + high;
        case BW_Q4_0: return byte / 16 * 32 + high * 16 + byte % 16;
        case BW_Q4_K: return byte / 32 * 64 + high * 32 + byte % 32;
        default: return (unit * vectors + v) * BW_SIMD_FLOATS + lane;
    }
}

/* ---- scales ---- */

/* A row of weights: its bytes and, where scales lie beside them, those and the shifts as floats. */
typedef struct bw_narrow_row {
    const char *data;
    float *scales, *shifts;
} bw_narrow_row;

/* One or two scales and shifts of a unit, lane by lane. */
typedef struct bw_narrow_scales {
    bw_vf scale[BW_UNIT_SCALES], shift[BW_UNIT_SCALES];
} bw_narrow_scales;

/* Lane number / 2^bits. */
BW_INLINE bw_vu bw_lane_groups(int bits) {
    bw_vu lane;
    for (int i = 0; i < BW_SIMD_FLOATS; i++) lane[i] = (uint32_t)i;
    return lane >> (uint32_t)bits;
}

/* Up to four FP16 numbers, `stride` bytes apart, in the first lanes. */
BW_INLINE bw_vf bw_vf_load_few(const char *from, int count, int stride, uint64_t signs) {
    typedef uint64_t words __attribute__((vector_size(2 * BW_SIMD_FLOATS)));
    uint64_t bits = 0;
    for (int i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + i * stride, sizeof half);
        bits |= (uint64_t)half << 16 * i;
    }
    return bw_vf_from_fp16((bw_vh)(words){bits ^ signs});
}

/* What Q4_K has a chunk: d s of its eight groups, then -m t. */
BW_INLINE void bw_q4_k_scales(const char *chunk, float out[16]) {
    uint32_t low, middle, high;
    memcpy(&low, chunk + 4, sizeof low);
    memcpy(&middle, chunk + 8, sizeof middle);
    memcpy(&high, chunk + 12, sizeof high);
    const uint64_t scales = (low & 0x3f3f3f3fu) | (uint64_t)((high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u)) << 32;
    const uint64_t minima = (middle & 0x3f3f3f3fu) | (uint64_t)((high >> 4 & 0x0f0f0f0fu) | (middle >> 2 & 0x30303030u))
                                                         << 32;
    const bw_vf dm = bw_vf_load_few(chunk, 2, 2, 0x80000000u);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += BW_SIMD_FLOATS) {
        const uint64_t bytes = (i < 8 ? scales : minima) >> i % 8 * 8;
        bw_vf_store(out + i, bw_vf_from_bytes(bytes, minima) * bw_vf_pick(dm, bw_lane_groups(3) + (uint32_t)i / 8));
    }
}

/* Of the unit that begins with element `k` of a row. `group_bits`: 2^group_bits elements share a scale beside them. */
BW_INLINE bw_narrow_scales bw_narrow_scales_of(bw_dtype dtype, const bw_narrow_row *row, int64_t k, int group_bits,
                                               const char *chunk, int unit, const float *inner) {
    bw_narrow_scales out;
    const int64_t group = k >> group_bits;
    const int place = unit * BW_SIMD_FLOATS / 8 * 2, base = place / BW_SIMD_FLOATS * BW_SIMD_FLOATS;
    switch (dtype) {
        case BW_Q8_0:
            out.scale[0] = bw_vf_pick(bw_vf_load_few(chunk + unit * BW_Q8_0_BYTES, 1, 0, 0), bw_lane_groups(5));
            break;
        case BW_Q4_0:
            out.scale[0] = bw_vf_pick(bw_vf_load_few(chunk + unit * (BW_SIMD_FLOATS / 4) * BW_Q4_0_BYTES,
                                                     BW_SIMD_FLOATS / 4, BW_Q4_0_BYTES, 0),
                                      bw_lane_groups(2));
            break;
        case BW_UINT4:
            out.shift[0] = bw_vf_pick(bw_vf_load(row->shifts + group), bw_lane_groups(group_bits - 3));
            out.scale[0] = bw_vf_pick(bw_vf_load(row->scales + group), bw_lane_groups(group_bits - 3));
            break;
        case BW_FP4_E2M1:
            out.scale[0] = bw_vf_pick(bw_vf_load(row->scales + group), bw_lane_groups(group_bits - 3));
            break;
        case BW_Q4_K:
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                const bw_vu index = bw_lane_groups(3) * 2u + (uint32_t)(place - base + i);
                out.scale[i] = bw_vf_pick(bw_vf_load(inner + base), index);
                const int at = 8 + place, from = at / BW_SIMD_FLOATS * BW_SIMD_FLOATS;
                out.shift[i] = bw_vf_pick(bw_vf_load(inner + from), index + (uint32_t)(at - from - (place - base)));
            }
            break;
        default: break;
    }
    return out;
}

/* ---- activations in the order of the weights ---- */

/* Vectors of a unit and a row of activations: the values and, for a single row, their sums over vectors with the same
 * scale, which meet the shifts. */
BW_INLINE int bw_narrow_packed(bw_dtype dtype, int64_t rows) {
    const bw_narrow narrow = bw_narrow_of(dtype);
    return narrow.vectors + (rows == 1 && narrow.shifts ? narrow.scales : 0);
}

/* Floats that `rows` packed rows take, at most. */
BW_INLINE int64_t bw_narrow_packed_floats(int64_t rows, int64_t k) {
    return rows * bw_round_up(k, BW_CHUNK) / 4 * 5;
}

/* Units one after the other, the rows of each side by side; zeros beyond a row's end. */
BW_INLINE void bw_narrow_pack(bw_dtype dtype, bw_dtype activation, const void *a, int64_t rows, int64_t k, float *out) {
    const bw_narrow narrow = bw_narrow_of(dtype);
    const int units = BW_CHUNK / (narrow.vectors * BW_SIMD_FLOATS), packed = bw_narrow_packed(dtype, rows);
    for (int64_t first = 0; first < k; first += BW_CHUNK) {
        for (int64_t row = 0; row < rows; row++) {
            float natural[BW_CHUNK] = {0.0f};
            BW_DTYPE_SWITCH(activation, bw_unpack, a, row * k + first, bw_min64(BW_CHUNK, k - first), natural);
            for (int unit = 0; unit < units; unit++) {
                float *to = out + ((first / BW_CHUNK * units + unit) * rows + row) * packed * BW_SIMD_FLOATS;
                for (int v = 0; v < narrow.vectors; v++) {
                    for (int lane = 0; lane < BW_SIMD_FLOATS; lane++) {
                        to[v * BW_SIMD_FLOATS + lane] = natural[bw_narrow_place(dtype, unit, v, lane)];
                    }
                }
                for (int sum = 0; sum < packed - narrow.vectors; sum++) {
                    bw_vf total = bw_vf_set(0.0f);
                    for (int v = sum; v < narrow.vectors; v += narrow.scales) {
                        total += bw_vf_load(to + v * BW_SIMD_FLOATS);
                    }
                    bw_vf_store(to + (narrow.vectors + sum) * BW_SIMD_FLOATS, total);
                }
            }
        }
    }
}
