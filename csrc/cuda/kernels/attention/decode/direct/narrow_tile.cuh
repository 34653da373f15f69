// Keys of 8 bits as matrix instructions take them (key_tiles.cuh): as they are stored until they are used, then as
// FP16, which holds them exactly. What a key's scale of K multiplies is its scores, its scale of V its weights.
#pragma once

#include "cuda/kernels/attention/decode/direct/key_tiles.cuh"
#include "cuda/kernels/common/element8.cuh"

namespace {

BW_DEVICE void words_of(uint4 bits, uint32_t (&out)[4]) {
    out[0] = bits.x, out[1] = bits.y, out[2] = bits.z, out[3] = bits.w;
}
BW_DEVICE void words_of(uint2 bits, uint32_t (&out)[2]) {
    out[0] = bits.x, out[1] = bits.y;
}

// A lane's elements of q, in the order of bw_widen.
template <int chunks>
struct narrow_query : lane_query<chunks, false> {
    using lane_query<chunks, false>::lane_query;
    __device__ __forceinline__ void set(int j, uint4 bits) {
        this->data[j] = make_uint4(__byte_perm(bits.x, bits.y, 0x5410), __byte_perm(bits.x, bits.y, 0x7632),
                                   __byte_perm(bits.z, bits.w, 0x5410), __byte_perm(bits.z, bits.w, 0x7632));
    }
};

// 16 keys. Lane 4 r + c of a warp:
//   K: rows r and r + 8, of every 64 elements the sixteen from 16 c on: each word is a lane's part of an m16n8k16 step
//   V: keys 2 c, 2 c + 1, 2 c + 8, 2 c + 9, of every 128 elements the sixteen from 16 r on or, of rows that these do
//   not
//      divide, of every 64 the eight from 8 r on: rows r and r + 8 of a tile, transposed, stand for two neighbors
//   one of the scales of rows r and r + 8: of K, of K, of V, of V
template <typename T, int padded>
struct narrow_tile {
    static constexpr bool scaled = true;
    static constexpr int k_chunks = padded / 64, k_chunk = 64, per_load = 16;
    static constexpr int v_words = padded % 128 == 0 ? 4 : 2, v_per_load = 4 * v_words;
    static constexpr int v_chunk = 8 * v_per_load, v_chunks = padded / v_chunk;
    using v_bits = std::conditional_t<v_words == 4, uint4, uint2>;
    uint4 k[2][k_chunks];
    v_bits v[4][v_chunks];
    float scale, v_scale[2];

    using query = narrow_query<2 * k_chunks>;

    static __device__ __forceinline__ int query_element(int j, int c) {
        return j / 2 * k_chunk + 16 * c + j % 2 * 8;
    }
    static __device__ __forceinline__ int v_key(int i, int c) {
        return 2 * c + i % 2 + i / 2 * 8;
    }
    static __device__ __forceinline__ int scale_key(int r, int c) {
        return r + c % 2 * 8;
    }
    template <bool>
    __device__ __forceinline__ void score(const query &query, float (&out)[4]) {
        float sums[2][4] = {};
#pragma unroll
        for (int j = 0; j < k_chunks; j++) {
            uint32_t upper[4], lower[4];
            words_of(k[0][j], upper);
            words_of(k[1][j], lower);
#pragma unroll
            for (int w = 0; w < 4; w++) {
                const uint4 q = query.get(2 * j + w / 2);
                uint32_t first[2], second[2];
                bw_widen(upper[w], first, T());
                bw_widen(lower[w], second, T());
                const uint32_t left[4] = {first[0], second[0], first[1], second[1]};
                bw_multiply(sums[w % 2], left, w % 2 ? q.z : q.x, w % 2 ? q.w : q.y, __half());
            }
        }
        const int quad = (int)threadIdx.x % 32 / 4 * 4;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float k_scale = __shfl_sync(bw_all_lanes, scale, quad + i) * (1.0f / bw_widened<T>);
            v_scale[i] = __shfl_sync(bw_all_lanes, scale, quad + 2 + i);
#pragma unroll
            for (int e = 2 * i; e < 2 * i + 2; e++) out[e] = of_numbers(sums[0][e] + sums[1][e]) * k_scale;
        }
    }
    static __device__ __forceinline__ int element(int p, int r) {
        return p / v_words * v_chunk + v_per_load * r + p % v_words * 4;
    }
    __device__ __forceinline__ void accumulate(const float (&weight)[4], float (&out)[padded / 16][4],
                                               float (&)[2]) const {
        const uint32_t b0 = transpose(bw_pack_pair(weight[0], weight[1], __half()));
        const uint32_t b1 = transpose(bw_pack_pair(weight[2], weight[3], __half()));
#pragma unroll
        for (int g = 0; g < v_chunks; g++) {
            uint32_t word[4][v_words];
#pragma unroll
            for (int i = 0; i < 4; i++) words_of(v[i][g], word[i]);
#pragma unroll
            for (int t = 0; t < 2 * v_words; t++) {
                const int w = t / 2, neighbors = t % 2 ? 0x7632 : 0x5410;  // two elements, each of two keys
                uint32_t first[2], second[2];
                bw_widen(__byte_perm(word[0][w], word[1][w], neighbors), first, T());
                bw_widen(__byte_perm(word[2][w], word[3][w], neighbors), second, T());
                const uint32_t left[4] = {first[0], first[1], second[0], second[1]};
                bw_multiply(out[2 * v_words * g + t], left, b0, b1, __half());
            }
        }
    }
    // What is infinite has met a NaN of E4M3.
    static __device__ __forceinline__ float of_numbers(float sum) {
        return std::is_same_v<T, int8_t> ? sum : fmaf(sum, 0.0f, sum);
    }
    // The weights' sums over this lane's keys.
    static __device__ __forceinline__ float whole(float sum) {
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
        return sum;
    }
};

template <int padded>
struct key_tile<bw_e4m3, padded> : narrow_tile<bw_e4m3, padded> {};
template <int padded>
struct key_tile<int8_t, padded> : narrow_tile<int8_t, padded> {};

constexpr uint32_t exponent_bits = 0x7f800000u, exponent_one = 1u << 23;

// Weights are summed, then take the scales of V, relative to a power of two that none exceeds twice: FP16 holds them
// however small or large the scales are. Values are summed in that unit, its exponent's bits in `unit`; 0: no scale was
// seen, or none above 2^-126.
template <typename Tile, int tiles, int padded>
BW_DEVICE void scale_weights(const Tile (&step)[tiles], float (&weight)[tiles][4], decode_sums<padded> &sums) {
    uint32_t largest = 0;
#pragma unroll
    for (int u = 0; u < tiles; u++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            sums.sum[i] += weight[u][i] + weight[u][i + 2];
            largest = max(largest, __float_as_uint(step[u].v_scale[i]) & exponent_bits);
        }
    }
    if (__any_sync(bw_all_lanes, largest > sums.unit)) {
        // Of scales that are no numbers the exponent is 255: a unit has to have a reciprocal.
        largest = min(__reduce_max_sync(bw_all_lanes, largest), 253 * exponent_one);
        const float shrink = __uint_as_float((uint32_t)max(127 * (int)exponent_one - (int)(largest - sums.unit), 0));
        sums.unit = largest;
#pragma unroll
        for (int t = 0; t < padded / 16; t++) {
#pragma unroll
            for (int e = 0; e < 4; e++) sums.out[t][e] *= shrink;
        }
    }
    const float inverse = __uint_as_float(254 * exponent_one - max(sums.unit, exponent_one));
#pragma unroll
    for (int u = 0; u < tiles; u++) {
#pragma unroll
        for (int e = 0; e < 4; e++) weight[u][e] *= step[u].v_scale[e / 2] * inverse;
    }
}

template <typename T, int padded>
BW_DEVICE void scale_values(const key_tile<T, padded> &tile, decode_sums<padded> &sums) {
    const float unit = __uint_as_float(max(sums.unit, exponent_one)) * (1.0f / bw_widened<T>);
#pragma unroll
    for (int t = 0; t < padded / 16; t++) {
#pragma unroll
        for (int e = 0; e < 4; e++) sums.out[t][e] = tile.of_numbers(sums.out[t][e]) * unit;
    }
}

}  // namespace
