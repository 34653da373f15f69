// Formats of narrow weights: how 32 neighboring weights of a row become fragments of tensor cores, as pairs of
// FP16 (weights_bf16.cuh: BF16) that hold them exactly, and what factor their sums take.
//
// A tile of a row is 256 weights. Its bytes, `chunks` times 16, lie in shared memory at a `pitch` of 16 bytes more than
// a multiple of 128: the same words of 8 rows are in different banks. Four lanes share a row; of each group of 32
// weights each takes 8, two words of bytes or one of nibbles. The order of k within a group is free where A is read in
// the same one (bw_order). A tile's row has `scale_bytes` of scales and `zero_bytes` of zero points beside it.
// `per_factor` groups share a factor of their sum (0: only the whole row has one). A lane needs `count` of a tile's
// factors, from `first` on: of scales and zero points `begin` is given what begins there.
#pragma once

#include <type_traits>

#include "cuda/kernels/common/element8.cuh"
#include "cuda/kernels/common/sm80.cuh"

constexpr int bw_tile_weights = 256, bw_group_weights = 32, bw_tile_groups = 8;

// Lane c of the four has elements 8 c to 8 c + 7 (run), or 4 c to 4 c + 3 and those 16 further on (split).
enum bw_order {
    BW_ORDER_SPLIT,        // as pairs of neighbors
    BW_ORDER_RUN,          // likewise
    BW_ORDER_SPLIT_BYTES,  // as pairs (0, 2) and (1, 3): every other byte of a word
    BW_ORDER_RUN_NIBBLES,  // as pairs (0, 4), (2, 6), (1, 5), (3, 7): every fourth nibble of a word
};

enum bw_last_factor { BW_LAST_NONE, BW_LAST_ROW, BW_LAST_WHOLE };

// The operand B as it is stored; `scale`, `zero` and `whole_scale` where the format has them.
struct bw_weights_stored {
    const unsigned char *bytes, *scale, *zero;
    const float *whole_scale;
};

template <int bytes>
struct bw_raw {
    uint32_t word[(bytes + 3) / 4 + (bytes == 0)];
};
// Where they are `whole`, at a multiple of their number; else the first `left`, in units of 2 or 1, and zeros.
template <int bytes, int unit>
BW_DEVICE bw_raw<bytes> bw_load_raw(const unsigned char *from, bool whole, int left) {
    bw_raw<bytes> raw = {};
    if (bytes == unit || !whole) {
#pragma unroll
        for (int i = 0; i < bytes; i += unit) {
            if (i < left) raw.word[i / 4] |= (unit == 2 ? *(const uint16_t *)(from + i) : from[i]) << i % 4 * 8;
        }
    } else if constexpr (bytes == 16) {
        const uint4 four = bw_load_cached(from);
        raw = {{four.x, four.y, four.z, four.w}};
    } else if constexpr (bytes == 8) {
        const uint2 two = __ldg((const uint2 *)from);
        raw = {{two.x, two.y}};
    } else if constexpr (bytes == 4) {
        raw.word[0] = __ldg((const uint32_t *)from);
    } else if constexpr (bytes == 2) {
        raw.word[0] = __ldg((const uint16_t *)from);
    }
    return raw;
}

// The same to shared memory, asynchronously if `whole`; at least 4 bytes.
template <int bytes, int unit>
BW_DEVICE void bw_copy_raw(unsigned char *to_shared, const unsigned char *from, bool whole, int left) {
    if (whole) {
        bw_copy_async_some<bytes>(to_shared, from);
    } else {
        const bw_raw<bytes> raw = bw_load_raw<bytes, unit>(from, false, left);
#pragma unroll
        for (int i = 0; i < bytes / 4; i++) ((uint32_t *)to_shared)[i] = raw.word[i];
    }
}
// From shared memory, aligned to `bytes`.
template <int bytes>
BW_DEVICE bw_raw<bytes> bw_shared_raw(const unsigned char *from) {
    bw_raw<bytes> raw = {};
    if constexpr (bytes > 0) memcpy(raw.word, __builtin_assume_aligned(from, bytes), bytes);
    return raw;
}

BW_DEVICE __half2 bw_half2(uint32_t bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}
BW_DEVICE uint32_t bw_half2_bits(__half2 pair) {
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

// Four bytes at `offset` from a multiple of 4; where that is only even, of the words below and above.
template <int offset>
BW_DEVICE uint32_t bw_shared_word(const unsigned char *from) {
    static_assert(offset % 2 == 0, "blocks begin at even bytes");
    if constexpr (offset % 4 == 0) {
        return *(const uint32_t *)(from + offset);
    } else {
        return __byte_perm(*(const uint32_t *)(from + offset - 2), *(const uint32_t *)(from + offset + 2), 0x5432);
    }
}

// A lane's words of a row's tile, in registers: `bw_words_shared` reads them of 16 rows, four 8 x 8 blocks at a time.
template <int count>
struct bw_words {
    uint32_t word[count];
};
template <int offset, int count>
BW_DEVICE uint32_t bw_shared_word(const bw_words<count> &from) {
    static_assert(offset % 16 == 0, "a lane has every fourth word");
    return from.word[offset / 16];
}
template <int count>
BW_DEVICE void bw_words_shared(const unsigned char *from, int pitch, int lane, bw_words<count> &low,
                               bw_words<count> &high) {
#pragma unroll
    for (int i = 0; i < count; i += 2) {
        uint32_t four[4];
        bw_load_matrix(four, from + lane % 16 * pitch + (lane / 16 + i) * 16);
        low.word[i] = four[0];
        high.word[i] = four[1];
        low.word[i + 1] = four[2];
        high.word[i + 1] = four[3];
    }
}
// What a row reads its words from: where they are, or `bw_words`, filled later.
template <typename From>
BW_DEVICE From bw_from_shared(const unsigned char *from) {
    if constexpr (std::is_pointer_v<From>) return from;
    return {};
}

// 1024 in FP16: a number below 1024 in its mantissa makes 1024 + q.
constexpr uint32_t bw_thousands = 0x64006400u;

// Four bytes, q for q - `zero`.
template <int zero>
BW_DEVICE void bw_unpack_bytes(uint32_t word, uint32_t *out) {
    const __half2 offset = bw_half2(bw_thousands + zero * 0x00010001u);
    out[0] = bw_half2_bits(__hsub2(bw_half2(__byte_perm(word, bw_thousands, 0x7150)), offset));
    out[1] = bw_half2_bits(__hsub2(bw_half2(__byte_perm(word, bw_thousands, 0x7352)), offset));
}

// Nibbles 0 and 4, 2 and 6, then 1 and 5, 3 and 7, as numbers below FP16's normal ones: 2^-24 q, then 2^-20 q. Tensor
// cores take them as they are, so that a mask is all there is to do. A zero point is taken off the sums.
BW_DEVICE void bw_unpack_nibbles(uint32_t word, uint32_t (&out)[4]) {
    out[0] = word & 0x000f000fu;
    out[1] = word >> 8 & 0x000f000fu;
    out[2] = word & 0x00f000f0u;
    out[3] = word >> 8 & 0x00f000f0u;
}
constexpr float bw_nibble_unit = 16777216.0f;  // 2^24
constexpr uint32_t bw_nibble_one = 0x00010001u;

// Eight E2M1, each 2^-14 of itself: sign, exponent and mantissa moved to where FP16 has them, subnormals too.
BW_DEVICE void bw_unpack_e2m1(uint32_t word, uint32_t (&out)[4]) {
    constexpr uint32_t signs = 0x80808080u, upper = 0x8e008e00u;
    const uint32_t even = bw_blend(signs, word << 4, word << 1), odd = bw_blend(signs, word, word >> 3);
    out[0] = (even << 8) & upper;
    out[1] = even & upper;
    out[2] = (odd << 8) & upper;
    out[3] = odd & upper;
}

// Two E4M3 in the upper bytes of halves, each 2^-8 of itself. A NaN would become a number: then bw_find_e4m3_nan has
// one of the bits bw_nan_bits.
BW_DEVICE uint32_t bw_e4m3_pair(uint32_t upper_bytes) {
    return (upper_bytes & 0x80008000u) | ((upper_bytes >> 1) & 0x3f803f80u);
}
constexpr uint32_t bw_nan_bits = 0x80808080u;
BW_DEVICE uint32_t bw_find_e4m3_nan(uint32_t four) {
    return (four & 0x7f7f7f7fu) + 0x01010101u;
}
BW_DEVICE float bw_e4m3_to_float(uint32_t byte) {
    if ((byte & 0x7f) == 0x7f) return __uint_as_float(0x7fffffffu);
    return bw_unpack_pair(bw_e4m3_pair(byte << 8), __half()).x * 256.0f;
}
BW_DEVICE float bw_e2m1_to_float(uint32_t nibble) {
    const float size = bw_unpack_pair((nibble & 7) << 9, __half()).x * 16384.0f;
    return nibble & 8 ? -size : size;
}
// 2^(byte - 127). 0 is a subnormal float.
BW_DEVICE float bw_e8m0_to_float(uint32_t byte) {
    return byte == 255 ? __uint_as_float(0x7fffffffu) : __uint_as_float(max(byte << 23, 0x00400000u));
}
template <typename Index>
BW_DEVICE uint32_t bw_nibble(const unsigned char *row, Index index) {
    return row[index / 2] >> index % 2 * 4 & 15;
}
BW_DEVICE float bw_half_at(const unsigned char *from) {
    return bw_to_float(*(const __half *)from);
}

// Element j of 8 neighbors, the first a multiple of 8. Quotients by 8 or more are the same for all of them, which the
// compiler does not find out: what is read by such an index is read once.
struct bw_eighth {
    int64_t first;
    int j;
};
BW_DEVICE int64_t operator/(bw_eighth i, int64_t by) {
    return i.first / by + (by < 8 ? i.j / by : 0);
}
BW_DEVICE int64_t operator%(bw_eighth i, int64_t by) {
    return i.first % by + (by < 8 ? i.j % by : i.j);
}
BW_DEVICE int64_t operator+(int64_t before, bw_eighth i) {
    return before + i.first + i.j;
}

// What formats have unless they say otherwise.
struct bw_weights {
    using activation = __half;  // and result
    static constexpr int scale_bytes = 0, zero_bytes = 0, per_factor = 0, scale_unit = 1, scale_rows = 1;
    static constexpr int activation_bytes = 2;
    static constexpr int words = 0;  // of a lane and a row's tile, where those of rows lie at multiples of 16 bytes
    static constexpr bool has_mins = false, has_offset = false, has_nan = false;
    static constexpr bw_last_factor last = BW_LAST_NONE;
    static constexpr float unit = 1.0f;           // of what the first two pairs hold,
    static constexpr float ratio = 1.0f;          // and of the others in that one's terms
    static constexpr uint32_t one = 0x3c003c00u;  // in the unit of zero points or mins times the first pairs'
};

struct bw_weights_int8 : bw_weights {
    static constexpr bw_order order = BW_ORDER_SPLIT;
    static constexpr int chunks = 16, words = 16, pitch = 272;
    static constexpr bw_last_factor last = BW_LAST_ROW;
    template <int, typename From = const unsigned char *>
    struct row {
        From from;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<0>, bw_raw<0>, int lane, int) {
            return {bw_from_shared<From>(tile + lane * 4)};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            bw_unpack_bytes<128>(bw_shared_word<group * 32>(from) ^ 0x80808080u, out);
            bw_unpack_bytes<128>(bw_shared_word<group * 32 + 16>(from) ^ 0x80808080u, out + 2);
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        return (float)((const signed char *)w.bytes)[n * k + at] * ((const float *)w.scale)[n];
    }
};

struct bw_weights_e4m3 : bw_weights {
    static constexpr bw_order order = BW_ORDER_SPLIT_BYTES;
    static constexpr int chunks = 16, words = 16, pitch = 272;
    static constexpr bool has_nan = true;
    static constexpr bw_last_factor last = BW_LAST_ROW;
    static constexpr float unit = 256.0f;
    template <int, typename From = const unsigned char *>
    struct row {
        From from;
        uint32_t nan;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<0>, bw_raw<0>, int lane, int) {
            return {bw_from_shared<From>(tile + lane * 4), 0};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) {
            const uint32_t word[2] = {bw_shared_word<group * 32>(from), bw_shared_word<group * 32 + 16>(from)};
#pragma unroll
            for (int i = 0; i < 2; i++) {
                out[2 * i] = ((word[i] << 8) & 0x80008000u) | ((word[i] << 7) & 0x3f803f80u);
                out[2 * i + 1] = bw_e4m3_pair(word[i]);
            }
            nan |= bw_find_e4m3_nan(word[0]) | bw_find_e4m3_nan(word[1]);
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        return bw_e4m3_to_float(w.bytes[n * k + at]) * ((const float *)w.scale)[n];
    }
};

// The upper bytes of FP16.
struct bw_weights_e5m2 : bw_weights {
    static constexpr bw_order order = BW_ORDER_SPLIT_BYTES;
    static constexpr int chunks = 16, words = 16, pitch = 272;
    static constexpr bw_last_factor last = BW_LAST_ROW;
    template <int, typename From = const unsigned char *>
    struct row {
        From from;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<0>, bw_raw<0>, int lane, int) {
            return {bw_from_shared<From>(tile + lane * 4)};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t word = i ? bw_shared_word<group * 32 + 16>(from) : bw_shared_word<group * 32>(from);
                out[2 * i] = (word << 8) & 0xff00ff00u;
                out[2 * i + 1] = word & 0xff00ff00u;
            }
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        return bw_unpack_pair((uint32_t)w.bytes[n * k + at] << 8, __half()).x * ((const float *)w.scale)[n];
    }
};

// A row's blocks of 32 weights, each behind its FP16 factor.
template <int bytes>
struct bw_blocks {
    static constexpr int block = bytes;
    const unsigned char *from, *factors;
    BW_DEVICE bw_blocks begin(const unsigned char *tile, bw_raw<0>, bw_raw<0>, int lane, int first) {
        return {tile + lane * 4, tile + first * block};
    }
    __device__ __forceinline__ float factor(int i) const {
        return bw_half_at(factors + i * block);
    }
};

// Blocks of 34 bytes: FP16 d, 32 numbers q of 8 bits; q d.
struct bw_weights_q8_0 : bw_weights {
    static constexpr bw_order order = BW_ORDER_SPLIT;
    static constexpr int chunks = 17, pitch = 272, per_factor = 1, block = 34;
    template <int, typename = void>
    struct row : bw_blocks<block> {
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            bw_unpack_bytes<128>(bw_shared_word<group * block + 2>(this->from) ^ 0x80808080u, out);
            bw_unpack_bytes<128>(bw_shared_word<group * block + 18>(this->from) ^ 0x80808080u, out + 2);
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        const unsigned char *from = w.bytes + (n * ((k + 31) / 32) + at / 32) * block;
        return (float)(signed char)from[2 + at % 32] * bw_half_at(from);
    }
};

// Blocks of 18 bytes: FP16 d, 16 bytes whose lower halves are elements 0 to 15, the upper ones 16 to 31; (q - 8) d.
struct bw_weights_q4_0 : bw_weights {
    static constexpr bw_order order = BW_ORDER_SPLIT_BYTES;
    static constexpr int chunks = 9, pitch = 144, per_factor = 1, block = 18;
    static constexpr bool has_offset = true;
    static constexpr float unit = bw_nibble_unit, ratio = 0.0625f;
    static constexpr uint32_t one = bw_nibble_one;
    template <int, typename = void>
    struct row : bw_blocks<block> {
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            bw_unpack_nibbles(bw_shared_word<group * block + 2>(this->from), out);
        }
        __device__ __forceinline__ float zero(int) const {
            return 8.0f;
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        const unsigned char *from = w.bytes + (n * ((k + 31) / 32) + at / 32) * block;
        const int q = from[2 + at % 16] >> (at % 32 / 16 * 4) & 15;
        return (float)(q - 8) * bw_half_at(from);
    }
};

// Blocks of 144 bytes for 256 weights: FP16 d and dmin, 8 scales and 8 mins of 6 bits in 12 bytes, 128 bytes whose
// lower halves are 32 weights and the upper ones the 32 after them; d scale q - dmin min.
struct bw_weights_q4_k : bw_weights {
    static constexpr bw_order order = BW_ORDER_SPLIT_BYTES;
    static constexpr int chunks = 9, words = 8, pitch = 144, per_factor = 1;
    static constexpr bool has_mins = true;
    static constexpr float unit = bw_nibble_unit, ratio = 0.0625f;
    static constexpr uint32_t one = bw_nibble_one;
    template <int count, typename From = const unsigned char *>
    struct row {
        From from;
        float2 both;  // d, dmin
        uint32_t scale[2], min[2];
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<0>, bw_raw<0>, int lane, int first) {
            const uint4 head = *(const uint4 *)tile;
            row out = {bw_from_shared<From>(tile + 16 + lane * 4),
                       __half22float2(bw_half2(head.x)),
                       {head.y & 0x3f3f3f3fu, (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u)},
                       {head.z & 0x3f3f3f3fu, (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u)}};
            if constexpr (count <= 4) {  // the lane's come first
                out.scale[0] = (first < 4 ? out.scale[0] : out.scale[1]) >> first % 4 * 8;
                out.min[0] = (first < 4 ? out.min[0] : out.min[1]) >> first % 4 * 8;
            }
            return out;
        }
        // All of a group's nibbles are lower ones, or all upper.
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            constexpr uint32_t mask = group % 2 ? 0x00f000f0u : 0x000f000fu;
            const uint32_t low = bw_shared_word<group / 2 * 32>(from), high = bw_shared_word<group / 2 * 32 + 16>(from);
            out[0] = low & mask;
            out[1] = low >> 8 & mask;
            out[2] = high & mask;
            out[3] = high >> 8 & mask;
        }
        __device__ __forceinline__ float factor(int i) const {
            return both.x * (float)(uint8_t)(scale[i / 4] >> i % 4 * 8);
        }
        __device__ __forceinline__ float min_factor(int i) const {
            return both.y * (float)(uint8_t)(min[i / 4] >> i % 4 * 8);
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        const unsigned char *from = w.bytes + (n * ((k + 255) / 256) + at / 256) * 144, *s = from + 4;
        const int sub = (int)(at / 32 % 8);
        const int q = from[16 + sub / 2 * 32 + at % 32] >> (sub % 2 * 4) & 15;
        const int scale = sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | s[sub - 4] >> 6 << 4;
        const int min = sub < 4 ? s[sub + 4] & 63 : s[sub + 4] >> 4 | s[sub] >> 6 << 4;
        return bw_half_at(from) * (float)(scale * q) - bw_half_at(from + 2) * (float)min;
    }
};

// Nibbles q without sign, FP16 scales s and zero points z of 4 bits for each `in_group`; (q - z) s.
template <int in_group>
struct bw_weights_int4 : bw_weights {
    static constexpr bw_order order = BW_ORDER_RUN_NIBBLES;
    static constexpr int chunks = 8, words = 8, pitch = 144, per_factor = in_group / bw_group_weights, scale_unit = 2;
    static constexpr int scale_bytes = bw_tile_weights / in_group * 2, zero_bytes = bw_tile_weights / in_group / 2;
    static constexpr bool has_offset = true;
    static constexpr float unit = bw_nibble_unit, ratio = 0.0625f;
    template <int count, typename From = const unsigned char *>
    struct row {
        using raw_scale = bw_raw<2 * count>;
        using raw_zero = bw_raw<(count + 1) / 2>;
        From from;
        raw_scale scale;
        uint32_t zeros;
        BW_DEVICE row begin(const unsigned char *tile, raw_scale scale, raw_zero zero, int lane, int) {
            return {bw_from_shared<From>(tile + lane * 4), scale, zero.word[0]};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            bw_unpack_nibbles(bw_shared_word<group * 16>(from), out);
        }
        __device__ __forceinline__ float zero(int i) const {
            return __low2float(bw_half2(zeros >> i * 4 & 15));  // 2^-24 z, as nibbles are
        }
        __device__ __forceinline__ float factor(int i) const {
            const __half2 pair = bw_half2(scale.word[i / 2]);
            return i % 2 ? __high2float(pair) : __low2float(pair);
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        const int64_t groups = (k + in_group - 1) / in_group;
        const int q = (int)bw_nibble(w.bytes + n * ((k + 1) / 2), at);
        const int z = (int)bw_nibble(w.zero + n * ((groups + 1) / 2), at / in_group);
        return (float)(q - z) * bw_half_at(w.scale + (n * groups + at / in_group) * 2);
    }
};

// E2M1 with an E8M0 scale for each 32.
struct bw_weights_mxfp4 : bw_weights {
    static constexpr bw_order order = BW_ORDER_RUN_NIBBLES;
    static constexpr int chunks = 8, words = 8, pitch = 144, per_factor = 1, scale_bytes = 8;
    static constexpr float unit = 16384.0f;
    template <int count, typename From = const unsigned char *>
    struct row {
        From from;
        bw_raw<count> scale;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<count> scale, bw_raw<0>, int lane, int) {
            return {bw_from_shared<From>(tile + lane * 4), scale};
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            bw_unpack_e2m1(bw_shared_word<group * 16>(from), out);
        }
        __device__ __forceinline__ float factor(int i) const {
            // 2^-127 counts as 0; NaN's byte is infinity, and 0 times that makes one.
            const float factor = __uint_as_float(scale.word[i / 4] >> i % 4 * 8 << 23 & 0x7f800000u);
            return fmaf(factor, 0.0f, factor);
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        return bw_e2m1_to_float(bw_nibble(w.bytes + n * ((k + 1) / 2), at)) *
               bw_e8m0_to_float(w.scale[n * ((k + 31) / 32) + at / 32]);
    }
};

// E2M1 with an E4M3 scale for each 16 and one in FP32 for all. The product of the first two has 6 bits: FP16 holds it.
struct bw_weights_nvfp4 : bw_weights {
    static constexpr bw_order order = BW_ORDER_RUN_NIBBLES;
    static constexpr int chunks = 8, words = 8, pitch = 144, scale_bytes = 16;
    static constexpr bool has_nan = true;
    static constexpr bw_last_factor last = BW_LAST_WHOLE;
    static constexpr float unit = 128.0f;  // 2^14 of E2M1, 2^-7 of what `scale` holds
    template <int, typename From = const unsigned char *>
    struct row {
        From from;
        __half2 scale[4];  // of the lane's groups 0 and 1, 2 and 3, ...
        uint32_t nan;
        BW_DEVICE row begin(const unsigned char *tile, bw_raw<16> raw, bw_raw<0>, int lane, int) {
            row out = {bw_from_shared<From>(tile + lane * 4), {}, 0};
            const int own = lane < 2 ? 0x6420 : 0x7531;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t four = __byte_perm(raw.word[2 * i], raw.word[2 * i + 1], own);
                out.nan |= bw_find_e4m3_nan(four);
                const __half2 unit = bw_half2(0x78007800u);  // 2^15
                out.scale[2 * i] = __hmul2(bw_half2(bw_e4m3_pair(__byte_perm(four, 0, 0x1404))), unit);
                out.scale[2 * i + 1] = __hmul2(bw_half2(bw_e4m3_pair(__byte_perm(four, 0, 0x3424))), unit);
            }
            return out;
        }
        template <int group>
        __device__ __forceinline__ void unpack(uint32_t (&out)[4]) const {
            const __half2 pair = scale[group / 2];
            const __half2 own = group % 2 ? __high2half2(pair) : __low2half2(pair);
            bw_unpack_e2m1(bw_shared_word<group * 16>(from), out);
#pragma unroll
            for (int i = 0; i < 4; i++) out[i] = bw_half2_bits(__hmul2(bw_half2(out[i]), own));
        }
    };
    template <typename Index>
    BW_DEVICE float element(const bw_weights_stored &w, int64_t n, Index at, int64_t k) {
        return bw_e2m1_to_float(bw_nibble(w.bytes + n * ((k + 1) / 2), at)) *
               bw_e4m3_to_float(w.scale[n * ((k + 15) / 16) + at / 16]) * w.whole_scale[0];
    }
};
