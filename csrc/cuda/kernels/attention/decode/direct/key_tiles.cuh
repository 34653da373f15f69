// Keys as matrix instructions take them, for up to 8 query heads per K/V head: K and V go from memory straight into
// registers, as the instructions' tall operand, and the group's heads are the 8 columns.
//   - which row of a matrix stands for which key or element is ours to choose: always so that a lane loads 16
//     neighboring bytes;
//   - FP32 elements are met as sums of two TF32 ones: three products of them are as exact as an FP32 product.
#pragma once

#include "cuda/kernels/attention/decode/combine.cuh"

namespace {

constexpr int tile_keys = 16, group_heads = 8;  // a matrix instruction's rows and columns

BW_DEVICE uint32_t transpose(uint32_t matrix) {
    uint32_t result;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
    return result;
}

BW_DEVICE void load_there(const void *from, bool there, uint4 &to) {
    to = there ? bw_load_streaming(from) : make_uint4(0, 0, 0, 0);
}
BW_DEVICE void load_there(const void *from, bool there, uint2 &to) {
    to = make_uint2(0, 0);
    if (!there) return;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];" : "=r"(to.x), "=r"(to.y) : "l"(from));
}

// A lane's elements of q, 16 bytes of each chunk: in registers or, where keys need them all, in its warp's part of the
// shared memory that later takes the sums. A lane reads there what it wrote itself.
template <int chunks, bool shared>
struct lane_query {
    static constexpr int parts = chunks;
    uint4 data[chunks];
    __device__ __forceinline__ explicit lane_query(float *) {
    }
    __device__ __forceinline__ void set(int j, uint4 bits) {
        data[j] = bits;
    }
    __device__ __forceinline__ uint4 get(int j) const {
        return data[j];
    }
};
template <int chunks>
struct lane_query<chunks, true> {
    static constexpr int parts = chunks;
    uint32_t at;
    __device__ __forceinline__ explicit lane_query(float *shared)
        : at(bw_shared_address((uint4 *)shared + threadIdx.x % 32)) {
    }
    __device__ __forceinline__ void set(int j, uint4 bits) {
        bw_spare_store(at + j * 512, bits);
    }
    __device__ __forceinline__ uint4 get(int j) const {
        return bw_spare_load(at + j * 512);
    }
};

// 16 keys in 16-bit precisions. Lane 4 r + c of a warp:
//   K: rows r and r + 8, of every 32 elements the eight from 8 c on: an m16n8k16 step takes the first four of them, the
//      next one the others, from K and q alike
//   V: keys 2 c, 2 c + 1, 2 c + 8, 2 c + 9, of every 64 elements the eight from 8 r on: rows r and r + 8 of a tile,
//      transposed, stand for two neighbors of these
template <typename T, int padded>
struct key_tile {
    static constexpr int k_chunks = padded / 32, v_chunks = padded / 64, k_chunk = 32, v_chunk = 64, per_load = 8;
    static constexpr int v_per_load = per_load;
    uint4 k[2][k_chunks], v[4][v_chunks];

    static constexpr bool scaled = false;
    using query = lane_query<k_chunks, (padded > 192)>;

    // The first element of a lane's part j of q.
    static __device__ __forceinline__ int query_element(int j, int c) {
        return k_chunk * j + per_load * c;
    }
    static __device__ __forceinline__ int v_key(int i, int c) {
        return 2 * c + i % 2 + i / 2 * 8;
    }
    // `alone`: no other tile's products come between, and two chains of dependent ones are half as long.
    template <bool alone>
    __device__ __forceinline__ void score(const query &query, float (&out)[4]) const {
        float other[4] = {};
#pragma unroll
        for (int e = 0; e < 4; e++) out[e] = 0.0f;
#pragma unroll
        for (int j = 0; j < k_chunks; j++) {
            const uint32_t first[4] = {k[0][j].x, k[1][j].x, k[0][j].y, k[1][j].y};
            const uint32_t second[4] = {k[0][j].z, k[1][j].z, k[0][j].w, k[1][j].w};
            const uint4 q = query.get(j);
            bw_multiply(out, first, q.x, q.y, T());
            bw_multiply(alone ? other : out, second, q.z, q.w, T());
        }
#pragma unroll
        for (int e = 0; alone && e < 4; e++) out[e] += other[e];
    }
    // Rows r and r + 8 of out[2 p] and out[2 p + 1]: elements element(p) .. + 3, for heads 2 c and 2 c + 1.
    static __device__ __forceinline__ int element(int p, int r) {
        return p / 2 * 64 + 8 * r + p % 2 * 4;
    }
    // The weights' sums as a product with ones: those of heads 2 c and 2 c + 1 in every lane.
    __device__ __forceinline__ void accumulate(const float (&weight)[4], float (&out)[padded / 16][4],
                                               float (&sum)[2]) const {
        const uint32_t b0 = transpose(bw_pack_pair(weight[0], weight[1], T()));
        const uint32_t b1 = transpose(bw_pack_pair(weight[2], weight[3], T()));
        const uint32_t one = bw_pack_pair(1.0f, 1.0f, T()), ones[4] = {one, one, one, one};
        float whole_sum[4] = {sum[0], sum[1], 0.0f, 0.0f};
        bw_multiply(whole_sum, ones, b0, b1, T());
        sum[0] = whole_sum[0];
        sum[1] = whole_sum[1];
#pragma unroll
        for (int g = 0; g < v_chunks; g++) {
            const uint32_t word[4][4] = {{v[0][g].x, v[0][g].y, v[0][g].z, v[0][g].w},
                                         {v[1][g].x, v[1][g].y, v[1][g].z, v[1][g].w},
                                         {v[2][g].x, v[2][g].y, v[2][g].z, v[2][g].w},
                                         {v[3][g].x, v[3][g].y, v[3][g].z, v[3][g].w}};
#pragma unroll
            for (int t = 0; t < 4; t++) {
                const uint32_t left[4] = {
                    __byte_perm(word[0][t], word[1][t], 0x5410), __byte_perm(word[0][t], word[1][t], 0x7632),
                    __byte_perm(word[2][t], word[3][t], 0x5410), __byte_perm(word[2][t], word[3][t], 0x7632)};
                bw_multiply(out[4 * g + t], left, b0, b1, T());
            }
        }
    }
    static __device__ __forceinline__ float whole(float sum) {
        return sum;
    }
};

// An FP32 number as two TF32 ones: what the second leaves out is below 2^-23 of it.
struct split_float {
    uint32_t high, low;
    __device__ __forceinline__ explicit split_float(float input) {
        // The conversion drops the low bits of a NaN, and may leave an infinity; a sum is a NaN with all bits.
        const float value = __fadd_rn(input, 0.0f);
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(value));
        const float rest = value - __uint_as_float(high);
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low) : "f"(rest));
    }
};

// c += a b of m16n8k8; fragments as those of m16n8k16, a register an element: a[0] (r, c), a[1] (r + 8, c), a[2]
// (r, c + 4), a[3] (r + 8, c + 4); b[0] (c, r), b[1] (c + 4, r).
BW_DEVICE void multiply_tf32(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                             uint32_t b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Sums of products high by high, low by high, high by low: apart, they are three chains instead of one.
struct split_sums {
    float part[3][4];
    __device__ __forceinline__ void multiply(float a0, float a1, float a2, float a3, const split_float &b0,
                                             const split_float &b1) {
        const split_float s0(a0), s1(a1), s2(a2), s3(a3);
        multiply_tf32(part[1], s0.low, s1.low, s2.low, s3.low, b0.high, b1.high);
        multiply_tf32(part[0], s0.high, s1.high, s2.high, s3.high, b0.high, b1.high);
        multiply_tf32(part[2], s0.high, s1.high, s2.high, s3.high, b0.low, b1.low);
    }
    // The low part of an infinity is no number, and neither is what it is multiplied with: there the high parts alone
    // say what comes out.
    __device__ __forceinline__ float total(int e) const {
        const float sum = part[0][e] + (part[1][e] + part[2][e]);
        return isfinite(part[0][e]) ? sum : part[0][e];
    }
};

// 16 keys in FP32. Lane 4 r + c of a warp:
//   K: rows r and r + 8, of every 16 elements the four from 4 c on
//   V: keys c, c + 4, c + 8, c + 12, of every 32 elements the four from 4 r on
template <int padded>
struct key_tile<float, padded> {
    static constexpr int k_chunks = padded / 16, v_chunks = padded / 32, k_chunk = 16, v_chunk = 32, per_load = 4;
    static constexpr int v_per_load = per_load;
    uint4 k[2][k_chunks], v[4][v_chunks];

    static constexpr bool scaled = false;
    using query = lane_query<k_chunks, false>;

    static __device__ __forceinline__ int query_element(int j, int c) {
        return k_chunk * j + per_load * c;
    }
    static __device__ __forceinline__ int v_key(int i, int c) {
        return 4 * i + c;
    }
    template <bool>
    __device__ __forceinline__ void score(const query &query, float (&out)[4]) const {
        split_sums sums[2] = {};  // of every other step
#pragma unroll
        for (int j = 0; j < k_chunks; j++) {
            const uint4 q = query.get(j);
            sums[0].multiply(__uint_as_float(k[0][j].x), __uint_as_float(k[1][j].x), __uint_as_float(k[0][j].y),
                             __uint_as_float(k[1][j].y), split_float(__uint_as_float(q.x)),
                             split_float(__uint_as_float(q.y)));
            sums[1].multiply(__uint_as_float(k[0][j].z), __uint_as_float(k[1][j].z), __uint_as_float(k[0][j].w),
                             __uint_as_float(k[1][j].w), split_float(__uint_as_float(q.z)),
                             split_float(__uint_as_float(q.w)));
        }
#pragma unroll
        for (int e = 0; e < 4; e++) out[e] = sums[0].total(e) + sums[1].total(e);
    }
    static __device__ __forceinline__ int element(int p, int r) {
        return 32 * p + 4 * r;
    }
    // The weights' sums over this lane's keys.
    __device__ __forceinline__ void accumulate(const float (&weight)[4], float (&out)[padded / 16][4],
                                               float (&sum)[2]) const {
        const int lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
#pragma unroll
        for (int e = 0; e < 2; e++) sum[e] += weight[e] + weight[e + 2];
        split_sums sums[padded / 16] = {};
#pragma unroll
        for (int s = 0; s < 2; s++) {  // keys 8 s .. + 7
            float b[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {  // this lane's head is r, its keys c and c + 4: others hold their weights
                const int from = (c + 4 * i) * 4 + r / 2;
                const float even = __shfl_sync(bw_all_lanes, weight[2 * s], from);
                const float odd = __shfl_sync(bw_all_lanes, weight[2 * s + 1], from);
                b[i] = r % 2 ? odd : even;
            }
            const split_float b0(b[0]), b1(b[1]);
#pragma unroll
            for (int g = 0; g < v_chunks; g++) {
                const uint4 first = v[2 * s][g], second = v[2 * s + 1][g];
                sums[2 * g].multiply(__uint_as_float(first.x), __uint_as_float(first.y), __uint_as_float(second.x),
                                     __uint_as_float(second.y), b0, b1);
                sums[2 * g + 1].multiply(__uint_as_float(first.z), __uint_as_float(first.w), __uint_as_float(second.z),
                                         __uint_as_float(second.w), b0, b1);
            }
        }
#pragma unroll
        for (int t = 0; t < padded / 16; t++) {
#pragma unroll
            for (int e = 0; e < 4; e++) out[t][e] += sums[t].total(e);
        }
    }
    static __device__ __forceinline__ float whole(float sum) {
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(bw_all_lanes, sum, offset);
        return sum;
    }
};

// What a lane reads of a step: `left` keys from its warp's first on.
template <typename T, int padded, int tiles>
struct step_reader {
    using tile = key_tile<T, padded>;
    const T *from_k, *from_v;
    int key_elems, head_dim;
    const float *from_scale;  // of tiles that have scales, as is the number of K/V heads
    int kv_heads;

    // To what lies so many keys further on, or back.
    __device__ __forceinline__ void skip(int keys) {
        from_k += (int64_t)keys * key_elems;
        from_v += (int64_t)keys * key_elems;
        if constexpr (tile::scaled) from_scale += (int64_t)keys * kv_heads;
    }

    __device__ __forceinline__ void load_k(tile (&to)[tiles], int left) const {
        whole(left) ? load_k<true>(to, left) : load_k<false>(to, left);
    }
    __device__ __forceinline__ void load_v(tile (&to)[tiles], int left) const {
        whole(left) ? load_v<true>(to, left) : load_v<false>(to, left);
    }

  private:
    // Of tiles that have scales, whose arithmetic leaves little time for anything else: whether every load is there.
    __device__ __forceinline__ bool whole(int left) const {
        return tile::scaled && left >= tiles * tile_keys && head_dim == padded;
    }
    template <bool whole>
    __device__ __forceinline__ void load_k(tile (&to)[tiles], int left) const {
        const int lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
#pragma unroll
                for (int j = 0; j < tile::k_chunks; j++) {
                    const bool there = whole || (u * tile_keys + i * 8 + r < left &&
                                                 j * tile::k_chunk + c * tile::per_load < head_dim);
                    load_there(from_k + (u * tile_keys + i * 8) * key_elems + j * tile::k_chunk, there, to[u].k[i][j]);
                }
            }
            if constexpr (tile::scaled) {
                const bool there = whole || u * tile_keys + tile::scale_key(r, c) < left;
                to[u].scale = there ? __ldg(from_scale + u * tile_keys * kv_heads) : 0.0f;
            }
        }
    }
    template <bool whole>
    __device__ __forceinline__ void load_v(tile (&to)[tiles], int left) const {
        const int lane = (int)threadIdx.x % 32, r = lane / 4, c = lane % 4;
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int g = 0; g < tile::v_chunks; g++) {
                    const bool there = whole || (u * tile_keys + tile::v_key(i, c) < left &&
                                                 g * tile::v_chunk + r * tile::v_per_load < head_dim);
                    load_there(from_v + (u * tile_keys + tile::v_key(i, 0)) * key_elems + g * tile::v_chunk, there,
                               to[u].v[i][g]);
                }
            }
        }
    }
};

// A warp's sums, for heads 2 c and 2 c + 1 of lane 4 r + c. `sum` is whole where the tile says so.
template <int padded>
struct decode_sums {
    float out[padded / 16][4], top[2], sum[2];
    uint32_t unit;  // of tiles that have scales
};

// Scores become weights; what was summed so far shrinks with them. `lazy`: only where one exceeds what sums stand on by
// much, and only then do lanes ask each other for their largest.
template <bool lazy, int padded, int tiles>
BW_DEVICE void weigh(float (&score)[tiles][4], int left, float scale, decode_sums<padded> &sums) {
    const int r = (int)threadIdx.x % 32 / 4;
    float best[2] = {sums.top[0], sums.top[1]};
    if (left < tiles * tile_keys) {
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (u * tile_keys + e / 2 * 8 + r >= left) score[u][e] = -INFINITY;
            }
        }
    }
#pragma unroll
    for (int u = 0; u < tiles; u++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            score[u][e] *= scale;
            best[e % 2] = fmaxf(best[e % 2], score[u][e]);
        }
    }
    const bool near = best[0] <= sums.top[0] + bw_softmax_slack && best[1] <= sums.top[1] + bw_softmax_slack;
    if (!lazy || !__all_sync(bw_all_lanes, near)) {
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
#pragma unroll
            for (int e = 0; e < 2; e++) best[e] = fmaxf(best[e], __shfl_xor_sync(bw_all_lanes, best[e], offset));
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float shrink = bw_exp2(sums.top[e] - bw_softmax_reference(best[e]));
            sums.top[e] = best[e];
            sums.sum[e] *= shrink;
#pragma unroll
            for (int t = 0; t < padded / 16; t++) {
                sums.out[t][e] *= shrink;
                sums.out[t][e + 2] *= shrink;
            }
        }
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float reference = bw_softmax_reference(sums.top[e]);
#pragma unroll
        for (int u = 0; u < tiles; u++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                score[u][2 * i + e] = bw_exp2(score[u][2 * i + e] - reference);
            }
        }
    }
}

// This warp's keys from the tiles in `step` on, whose K and V are on their way: `left` of them. `next` moves the reader
// to those of the next step and says how many there are, 0 where there are none; it is told what is left of these.
template <typename T, int padded, int tiles, typename Next>
BW_DEVICE void walk_keys(step_reader<T, padded, tiles> &reader, key_tile<T, padded> (&step)[tiles],
                         const typename key_tile<T, padded>::query &query, int left, float scale,
                         decode_sums<padded> &sums, Next next) {
    sums.top[0] = sums.top[1] = -INFINITY;
#pragma unroll 1
    while (left > 0) {
        float score[tiles][4];
#pragma unroll
        for (int u = 0; u < tiles; u++) step[u].template score<tiles == 1>(query, score[u]);
        const int more = next(reader, left);
        if (more > 0) reader.load_k(step, more);
        weigh<key_tile<T, padded>::scaled>(score, left, scale, sums);
        if constexpr (key_tile<T, padded>::scaled) scale_weights(step, score, sums);
#pragma unroll
        for (int u = 0; u < tiles; u++) step[u].accumulate(score[u], sums.out, sums.sum);
        left = more;
        if (more > 0) reader.load_v(step, more);
    }
    if constexpr (key_tile<T, padded>::scaled) scale_values(step[0], sums);
}

// The next step of a warp that takes one of every `pace` keys' steps.
template <int pace>
struct in_strides {
    template <typename Reader>
    __device__ __forceinline__ int operator()(Reader &reader, int left) const {
        reader.skip(pace);
        return left - pace;
    }
};

template <typename Tile, int padded, typename Cells>
BW_DEVICE void spread(const decode_sums<padded> &sums, const Cells &cells) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, r = lane / 4, c = lane % 4;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        const float sum = Tile::whole(sums.sum[e]);
        const int row = warp * group_heads + 2 * c + e;
        if (r == 0) {
            cells.top[row] = sums.top[e];
            cells.sum[row] = sum;
        }
#pragma unroll
        for (int p = 0; p < padded / 32; p++) {
            *(float4 *)&cells.out[row * Cells::stride + Tile::element(p, r)] = make_float4(
                sums.out[2 * p][e], sums.out[2 * p][e + 2], sums.out[2 * p + 1][e], sums.out[2 * p + 1][e + 2]);
        }
    }
}

}  // namespace
