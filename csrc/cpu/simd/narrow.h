/* Weights of narrow types as vectors of floats in registers, for products with FP32 activations; four-bit ones also as
 * pairs of BF16 numbers, for products with the two BF16 parts of FP16 activations, which are as exact, or with BF16
 * ones.
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
enum { BW_Q4_K_DATA = 16, BW_Q4_K_SCALES = 16 };

typedef struct bw_narrow {
    int chunk_bytes;
    int vectors; /* of a unit */
    int scales;  /* of a unit: vector v has number v % scales; 0: none, a row is scaled as a whole */
} bw_narrow;

BW_INLINE bw_narrow bw_narrow_of(bw_dtype dtype) {
    switch (dtype) {
        case BW_INT8:
        case BW_FP8_E4M3:
        case BW_FP8_E5M2: return (bw_narrow){BW_CHUNK, 4, 0};
        case BW_Q8_0: return (bw_narrow){BW_CHUNK_BYTES_MAX, BW_Q8_0_ELEMS / BW_SIMD_FLOATS, 1};
        case BW_UINT4:
        case BW_FP4_E2M1: return (bw_narrow){BW_CHUNK / 2, 8, 1};
        case BW_Q4_0: return (bw_narrow){BW_CHUNK / BW_Q4_0_ELEMS * BW_Q4_0_BYTES, 8, 1};
        case BW_Q4_K: return (bw_narrow){BW_Q4_K_BYTES, 8, 2};
        default: abort();
    }
}

/* The types above: X(id) for each. */
#define BW_NARROW_TYPES(X) X(INT8) X(FP8_E4M3) X(FP8_E5M2) X(Q8_0) X(UINT4) X(FP4_E2M1) X(Q4_0) X(Q4_K)

/* Two vectors' worth of E4M3 as FP16 with the same bits of exponent and fraction, 1/256 of the value, of which vector
 * `v` is taken; NaN, all of them set, gets FP16's highest exponent by a carry. */
BW_INLINE bw_vf bw_vf_load_e4m3(const char *p, int v) {
    const bw_vw x = bw_vw_load_int8(p + v / 2 * 2 * BW_SIMD_FLOATS) << 7; /* twice the sign, then the size */
    const bw_vw half = x ^ ((x + 0x80) & 0x4000);                         /* the second sign becomes the carry */
    return bw_vf_from_fp16(v % 2 ? bw_vw_high(half) : bw_vw_low(half));
}

/* What a row's sum is multiplied by beside its scales. */
BW_INLINE float bw_narrow_factor(bw_dtype dtype) {
    return dtype == BW_FP8_E4M3 ? 256.0f : 1.0f;
}

/* The word of a unit of four-bit elements. */
BW_INLINE bw_vu bw_narrow_word(bw_dtype dtype, const char *chunk, int unit) {
    const char *word = chunk + unit * BW_SIMD_BYTES;
    switch (dtype) {
        case BW_UINT4:
        case BW_FP4_E2M1: return bw_vu_keep(bw_vu_load(word));
        case BW_Q4_0: return bw_vu_load_q4_0(chunk + unit * (BW_SIMD_FLOATS / 4) * BW_Q4_0_BYTES);
        case BW_Q4_K: return bw_vu_keep(bw_vu_load(word + BW_Q4_K_DATA));
        default: return (bw_vu){0};
    }
}

/* Vector `v` of a unit, as stored. */
BW_INLINE bw_vf bw_narrow_load(bw_dtype dtype, bw_vu word, const char *chunk, int unit, int v) {
    switch (dtype) {
        case BW_INT8: return bw_vf_load_int8(chunk + unit * BW_SIMD_BYTES + v * BW_SIMD_FLOATS);
        case BW_FP8_E4M3: return bw_vf_load_e4m3(chunk + unit * BW_SIMD_BYTES, v);
        case BW_FP8_E5M2: return bw_vf_load_as(BW_FP8_E5M2, chunk, unit * BW_SIMD_BYTES + v * BW_SIMD_FLOATS);
        case BW_Q8_0: return bw_vf_load_int8(chunk + unit * BW_Q8_0_BYTES + 2 + v * BW_SIMD_FLOATS);
        case BW_UINT4:
        case BW_Q4_K: return bw_vf_from_uint4(word >> 4 * v, 0);
        case BW_FP4_E2M1: return bw_vf_from_e2m1(word >> 4 * v);
        case BW_Q4_0: return bw_vf_from_uint4(word >> 4 * v, 8);
        default: abort();
    }
}

/* Half bytes `n` and `n` + 4 of each lane of a unit's word, as pairs. */
BW_INLINE bw_vw bw_narrow_pairs(bw_dtype dtype, bw_vu word, int n) {
    const bw_vw x = (bw_vw)word >> 4 * n;
    return dtype == BW_FP4_E2M1 ? bw_pairs_from_e2m1(x) : bw_pairs_from_uint4(x, dtype == BW_Q4_0 ? 8 : 0);
}

/* How many BF16 numbers hold one activation exactly, beside weights of four bits; 0: activations stay floats. */
BW_INLINE int bw_narrow_parts(bw_dtype dtype, bw_dtype activation, int64_t rows) {
    if (bw_narrow_of(dtype).vectors != 8 || dtype == BW_Q8_0 || rows != 1 || !bw_has_pairs()) return 0;
    return activation == BW_BF16 ? 1 : activation == BW_FP16 ? 2 : 0;
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

/* A row of weights: its bytes and, where scales lie beside them, those and the shifts (see below) as floats. */
typedef struct bw_narrow_row {
    const char *data;
    float *scales, *shifts;
} bw_narrow_row;

/* One or two scales of a unit, lane by lane. */
typedef struct bw_narrow_scales {
    bw_vf scale[BW_UNIT_SCALES];
} bw_narrow_scales;

/* Lane number / 2^bits. */
BW_INLINE bw_vu bw_lane_groups(int bits) {
    bw_vu lane;
    for (int i = 0; i < BW_SIMD_FLOATS; i++) lane[i] = (uint32_t)i;
    return lane >> (uint32_t)bits;
}

/* Four bits for each lane, and others above them. */
BW_INLINE bw_vu bw_vu_nibbles(uint64_t bits) {
    const bw_vu lane = bw_lane_groups(0), high = 0 - (lane >> 3);
    return (((uint32_t)bits & ~high) | ((uint32_t)(bits >> 32) & high)) >> (lane & 7) * 4;
}

/* Four FP16 numbers in the first lanes. */
BW_INLINE bw_vf bw_vf_from_four(uint64_t halves) {
    typedef uint64_t words __attribute__((vector_size(2 * BW_SIMD_FLOATS)));
    return bw_vf_from_fp16((bw_vh)(words){halves});
}

/* What Q4_K has a chunk: d s of its eight groups, then -m t. */
BW_INLINE void bw_q4_k_scales(const char *chunk, float out[BW_Q4_K_SCALES]) {
    uint32_t dm, low, middle, high;
    memcpy(&dm, chunk, sizeof dm);
    memcpy(&low, chunk + 4, sizeof low);
    memcpy(&middle, chunk + 8, sizeof middle);
    memcpy(&high, chunk + 12, sizeof high);
    const uint64_t scales = (low & 0x3f3f3f3fu) | (uint64_t)((high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u)) << 32;
    const uint64_t minima = (middle & 0x3f3f3f3fu) | (uint64_t)((high >> 4 & 0x0f0f0f0fu) | (middle >> 2 & 0x30303030u))
                                                         << 32;
    const bw_vf signed_dm = bw_vf_from_four(dm ^ 0x80000000u);
#pragma GCC unroll 4
    for (int i = 0; i < BW_Q4_K_SCALES; i += BW_SIMD_FLOATS) {
        const bw_vf bytes = bw_vf_from_bytes((i < 8 ? scales : minima) >> i % 8 * 8, minima);
        bw_vf_store(out + i, bytes * bw_vf_pick(signed_dm, bw_lane_groups(3) + (uint32_t)i / 8));
    }
}

/* Of the unit that begins with element `k` of a row. `group_bits`: 2^group_bits elements share a scale beside them;
 * `inner`: what bw_q4_k_scales wrote. */
BW_INLINE bw_narrow_scales bw_narrow_scales_of(bw_dtype dtype, const bw_narrow_row *row, int64_t k, int group_bits,
                                               const char *chunk, int unit, const float *inner) {
    bw_narrow_scales out;
    uint64_t halves;
    const int first = unit * BW_SIMD_FLOATS / 8 * 2, base = first / BW_SIMD_FLOATS * BW_SIMD_FLOATS;
    switch (dtype) {
        case BW_Q8_0:
            memcpy(&halves, chunk + unit * BW_Q8_0_BYTES, sizeof halves);
            out.scale[0] = bw_vf_pick(bw_vf_from_four(halves), bw_lane_groups(5));
            break;
        case BW_Q4_0: out.scale[0] = bw_vf_load_q4_0_scales(chunk + unit * (BW_SIMD_FLOATS / 4) * BW_Q4_0_BYTES); break;
        case BW_UINT4:
        case BW_FP4_E2M1:
            out.scale[0] = bw_vf_pick(bw_vf_load(row->scales + (k >> group_bits)), bw_lane_groups(group_bits - 3));
            break;
        case BW_Q4_K:
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                out.scale[i] =
                    bw_vf_pick(bw_vf_load(inner + base), bw_lane_groups(3) * 2 + (uint32_t)(first - base + i));
            }
            break;
        default: out.scale[0] = bw_vf_set(1.0f); /* not used */
    }
    return out;
}

/* ---- activations in the order of the weights ---- */

/* Floats that `rows` packed rows take, and the sums of their groups, of 16 elements at least. */
BW_INLINE int64_t bw_narrow_packed_floats(int64_t rows, int64_t k) {
    return rows * bw_round_up(k, BW_CHUNK);
}
BW_INLINE int64_t bw_narrow_sums_floats(int64_t k) {
    return bw_round_up(k, BW_CHUNK) / 16;
}

/* Splits numbers into a BF16 part and what is left of them, exactly where they are FP16 or BF16. */
BW_INLINE void bw_split_pairs(const float *numbers, uint16_t upper[BW_CHUNK], uint16_t lower[BW_CHUNK]) {
    for (int i = 0; i < BW_CHUNK; i++) {
        const uint32_t bits = bw_float_bits(numbers[i]) & 0xffff0000u;
        const float rest = numbers[i] == bw_bits_float(bits) ? 0.0f : numbers[i] - bw_bits_float(bits);
        upper[i] = (uint16_t)(bits >> 16);
        lower[i] = (uint16_t)(bw_float_bits(rest) >> 16);
    }
}

/* A chunk as bw_narrow_pairs meets it: four times a vector of upper parts and one of lower ones. `places`: of lanes of
 * vectors. */
BW_INLINE void bw_narrow_pack_pairs(const float *natural, const uint8_t places[BW_CHUNK], float *out) {
    uint16_t upper[BW_CHUNK], lower[BW_CHUNK];
    bw_split_pairs(natural, upper, lower);
    for (int v = 0; v < BW_CHUNK / BW_SIMD_FLOATS; v++) {
        uint16_t *to = (uint16_t *)(out + (v / 8 * 8 + v % 4 * 2) * BW_SIMD_FLOATS) + v % 8 / 4;
        for (int lane = 0; lane < BW_SIMD_FLOATS; lane++) {
            const int place = places[v * BW_SIMD_FLOATS + lane];
            to[2 * lane] = upper[place];
            to[2 * lane + 2 * BW_SIMD_FLOATS] = lower[place];
        }
    }
}

/* Units one after the other, the rows of each side by side; zeros beyond a row's end. Then, row by row, sums of groups
 * of 2^group_bits elements, which meet the shifts of the weights; for Q4_K eight zeros and the eight sums of a chunk.
 */
BW_INLINE void bw_narrow_pack(bw_dtype dtype, bw_dtype activation, const void *a, int64_t rows, int64_t k,
                              int group_bits, float *out) {
    const int elems = bw_narrow_of(dtype).vectors * BW_SIMD_FLOATS, units = BW_CHUNK / elems, step = BW_SIMD_FLOATS;
    uint8_t places[BW_CHUNK];
    for (int i = 0; i < BW_CHUNK; i++) {
        places[i] = (uint8_t)bw_narrow_place(dtype, i / elems, i % elems / BW_SIMD_FLOATS, i % BW_SIMD_FLOATS);
    }
    const bool pairs = bw_narrow_parts(dtype, activation, rows) > 0;
    float *sums = out + bw_narrow_packed_floats(rows, k);
    for (int64_t row = 0; row < rows; row++, sums += bw_narrow_sums_floats(k)) {
        if (dtype == BW_UINT4 || dtype == BW_Q4_K) memset(sums, 0, 4 * (size_t)bw_narrow_sums_floats(k));
        for (int64_t first = 0; first < k; first += BW_CHUNK) {
            float natural[BW_CHUNK] = {0.0f};
            BW_CACHE_SWITCH(activation, bw_unpack, a, row * k + first, bw_min64(BW_CHUNK, k - first), natural);
            for (int unit = 0; unit < units && !pairs; unit++) {
                float *to = out + ((first / BW_CHUNK * units + unit) * rows + row) * elems;
                for (int i = 0; i < elems; i++) to[i] = natural[places[unit * elems + i]];
            }
            if (pairs) bw_narrow_pack_pairs(natural, places, out + first);
            for (int i = 0; i < BW_CHUNK && (dtype == BW_UINT4 || dtype == BW_Q4_K); i += step * BW_SIMD_FLOATS) {
                bw_vf square[BW_SIMD_FLOATS];
                for (int j = 0; j < BW_SIMD_FLOATS; j++) square[j] = bw_vf_load(natural + i + j * step);
                const bw_vf neighbors = bw_vf_sums(square);
                for (int j = 0; j < BW_SIMD_FLOATS; j++) {
                    const int64_t at = i + j * step;
                    sums[dtype == BW_Q4_K ? first / 16 + 8 + at / 32 : (first + at) >> group_bits] += neighbors[j];
                }
            }
        }
    }
}
