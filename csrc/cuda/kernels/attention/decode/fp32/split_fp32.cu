// attention_decode, FP32, on tensor cores: the query heads of a group are the rows of 16-row matrices, and an element
// is a sum of two TF32 numbers (common/split_tf32.cuh). On CUDA cores an element takes 2 FLOP a head, and with what it
// takes to share it among heads these last longer than memory does from 9 heads on; here 16 heads take what one does.
//   - a warp meets keys 16 at a time. They come by asynchronous copies through a ring of its own: 16 rows of K, 16 of V
//     and so on, each waited for by itself, so that nobody waits for anybody;
//   - of a product's 8 columns, which is which only K and q must agree on, and V's keys and the weights: a lane reads
//     16 bytes of K and of q for two products, of V for four, and C fragments of scores are A fragments of weights;
//   - a row's 16-byte chunks are permuted so that all of these reads find all banks;
//   - q lies in shared memory, taken apart once: 32 heads' sums take half of the registers, and a group of more takes
//     several blocks, which find each other's keys in the L2;
//   - what is no finite number takes more instructions than all else: blocks that find their sums to be none meet their
//     keys once more, carefully;
// On an H200 4 x 20011 keys of 20/4 heads of 128 take 81 us, 89 % of a stream, and 16 x 8192 of 64/2 94 (on CUDA cores
// 204), 63 %: 32 heads' products take longer than their keys. More chains of products and shorter loops do not help. Up
// to 8 heads of rows of up to 64 elements are faster on CUDA cores, and so are rows of more than 128, whose rings leave
// room for two warps a block.
#include "cuda/kernels/attention/decode/combine.cuh"
#include "cuda/kernels/attention/prefill/softmax.cuh"
#include "cuda/kernels/common/split_tf32.cuh"

namespace {

constexpr int tile_keys = 16, row_heads = 16, most_warps = 4;

template <int padded, int blocks>
constexpr int depth_of = bw_decode_split_depth(padded, row_heads *blocks);

// What a lane copies of 16 rows of K or of V: of every so-many-th row one chunk.
template <int padded>
struct tile_reader {
    static constexpr int chunks = padded / 4, pace = 32 / chunks;
    const float *from_k, *from_v;  // this lane's place in the next tile's first row
    int64_t stride;                // elements from one key to the next
    int left_k, left_v;            // keys from the next tile's first on
    int row, chunk, width;         // `width`: elements of a row from this chunk on

    // Rows without a key become zeros.
    __device__ __forceinline__ void fetch_rows(float *tile, const float *&from, int &left, int keys_on) const {
        if (left > 0) {
            const float *at = from;
#pragma unroll
            for (int i = 0; i < tile_keys / pace; i++) {
                const int key = row + i * pace;
                bw_copy_async(tile + key * padded + (chunk ^ bw_row_turn(key)) * 4, at, key < left && width > 0);
                at += pace * stride;
            }
        }
        bw_copy_commit();
        from += keys_on * stride;
        left -= keys_on;
    }
    template <bool of_v>
    __device__ __forceinline__ void fetch(float *tile, int keys_on) {
        if constexpr (of_v) {
            fetch_rows(tile, from_v, left_v, keys_on);
        } else {
            fetch_rows(tile, from_k, left_k, keys_on);
        }
    }
};

// A lane's place in the 16 rows whose fragments it reads: row lane / 4, of every fourth chunk the one that the tile's
// permutation puts at lane % 4.
template <int padded>
BW_DEVICE uint4 read_row(const float *rows, int row, int step) {
    const int lane = (int)threadIdx.x % 32, chunk = lane % 4 ^ bw_row_turn(lane / 4);
    return *(const uint4 *)(rows + (lane / 4 + row) * padded + (chunk ^ step % 2 * 4) * 4 + step / 2 * 32);
}

// The block's query heads as A fragments: of each 16 heads and 8 elements what a lane needs, high parts and behind all
// of them low ones; zeros in place of heads and elements that there are not. Of 16 elements, lane 4 r + c meets four
// neighbors from 4 c on, of heads r and r + 8: two in the first product, two in the second.
template <int padded, int blocks>
struct query_parts {
    static constexpr int count = blocks * padded * row_heads / 8, each = count / (32 * most_warps);
    uint4 data[each][2];

    static __device__ __forceinline__ uint4 load(const float *q, int i, int lower, int there, int head_dim) {
        const int head = i / 32 / (padded / 16) * row_heads + i % 32 / 4 + 8 * lower;
        const int element = i / 32 % (padded / 16) * 16 + i % 4 * 4;
        return head < there && element < head_dim ? bw_load_cached(q + head * head_dim + element)
                                                  : make_uint4(0, 0, 0, 0);
    }
    // What four warps hold, asked for before anything else; fewer warps load the rest when they store it.
    __device__ __forceinline__ query_parts(const float *q, int there, int head_dim) {
#pragma unroll
        for (int i = 0; i < 2 * each; i++) {
            const int at = (int)threadIdx.x + i / 2 * (int)blockDim.x;
            data[i / 2][i % 2] = load(q, at, i % 2, there, head_dim);
        }
    }
    static __device__ __forceinline__ void put(uint4 *queries, int i, uint4 upper, uint4 lower) {
        bw_factors<4, true> first, second;
        first.set(make_uint4(upper.x, lower.x, upper.y, lower.y));
        second.set(make_uint4(upper.z, lower.z, upper.w, lower.w));
        uint4 *to = queries + i / 32 * 64 + i % 32;
        to[0] = make_uint4(first.high[0], first.high[1], first.high[2], first.high[3]);
        to[32] = make_uint4(second.high[0], second.high[1], second.high[2], second.high[3]);
        to[2 * count] = make_uint4(first.low[0], first.low[1], first.low[2], first.low[3]);
        to[2 * count + 32] = make_uint4(second.low[0], second.low[1], second.low[2], second.low[3]);
    }
    __device__ __forceinline__ void store(uint4 *queries, const float *q, int there, int head_dim) const {
        int at = (int)threadIdx.x;
#pragma unroll
        for (int i = 0; i < each; i++, at += (int)blockDim.x) put(queries, at, data[i][0], data[i][1]);
#pragma unroll 1
        for (; at < count; at += (int)blockDim.x) {
            put(queries, at, load(q, at, 0, there, head_dim), load(q, at, 1, there, head_dim));
        }
    }
};

BW_DEVICE void spell(const uint4 &bits, uint32_t (&out)[4]) {
    out[0] = bits.x, out[1] = bits.y, out[2] = bits.z, out[3] = bits.w;
}

// Scores of a tile: keys 8 n + 2 (lane % 4) and the next one of heads lane / 4 and + 8, as C fragments.
template <int padded, int blocks, bool careful>
BW_DEVICE void meet_keys(const uint4 *queries, const float *keys, float (&scores)[blocks][2][4]) {
    bw_sums_of<true> sums[blocks][2] = {};
#pragma unroll
    for (int step = 0; step < padded / 16; step++) {
        bw_factors<4, true> right[2];
#pragma unroll
        for (int n = 0; n < 2; n++) right[n].template set<careful>(read_row<padded>(keys, 8 * n, step));
#pragma unroll
        for (int b = 0; b < blocks; b++) {
            bw_factors<4, true> left[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint4 *fragment = queries + (b * (padded / 8) + 2 * step + i) * 32;
                spell(fragment[0], left[i].high);
                spell(fragment[blocks * (padded / 8) * 32], left[i].low);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) sums[b][i % 2].multiply_add(left[i / 2], right[i % 2], i / 2 * 2);
        }
    }
#pragma unroll
    for (int i = 0; i < 8 * blocks; i++) {
        const bw_sums_of<true> &sum = sums[i / 8][i / 4 % 2];
        scores[i / 8][i / 4 % 2][i % 4] = careful ? sum.total(i % 4) : sum.big[i % 4] + sum.small[i % 4];
    }
}

// Element e of out[n] is of column 32 (n / 4) + 4 (2 (lane % 4) + e % 2) + n % 4.
template <int padded, int blocks, bool careful>
BW_DEVICE void meet_values(const float (&weights)[blocks][2][4], const float *values,
                           bw_softmax_sums<padded, 2> (&sums)[blocks]) {
    const int lane = (int)threadIdx.x % 32, key = lane % 4 * 2, chunk = lane / 4 ^ bw_row_turn(key);
    bw_factors<4, true> left[blocks][2];
#pragma unroll
    for (int i = 0; i < 2 * blocks; i++) {
        const float(&four)[4] = weights[i / 2][i % 2];
        left[i / 2][i % 2].template set<careful>(make_uint4(__float_as_uint(four[0]), __float_as_uint(four[2]),
                                                            __float_as_uint(four[1]), __float_as_uint(four[3])));
    }
#pragma unroll
    for (int g = 0; g < padded / 32; g++) {
        uint4 even[2], odd[2];
#pragma unroll
        for (int n = 0; n < 2; n++) {
            even[n] = *(const uint4 *)(values + (8 * n + key) * padded + chunk * 4 + 32 * g);
            odd[n] = *(const uint4 *)(values + (8 * n + key + 1) * padded + (chunk ^ 4) * 4 + 32 * g);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            bw_sums_of<true> parts[2][blocks] = {};
#pragma unroll
            for (int n = 0; n < 2; n++) {
                bw_factors<4, true> right;  // of two columns
                right.template set<careful>(half == 0 ? make_uint4(even[n].x, odd[n].x, even[n].y, odd[n].y)
                                                      : make_uint4(even[n].z, odd[n].z, even[n].w, odd[n].w));
#pragma unroll
                for (int i = 0; i < 2 * blocks; i++) {
                    bw_sums_of<true> &part = parts[i % 2][i / 2];
                    if constexpr (careful) {
                        part.multiply_add(left[i / 2][n], right, i % 2 * 2);
                    } else {
                        bw_add_products(part.big, left[i / 2][n], right, i % 2 * 2);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < 8 * blocks; i++) {
                const bw_sums_of<true> &part = parts[i / 4 % 2][i / 8];
                sums[i / 8].out[4 * g + 2 * half + i / 4 % 2][i % 4] += careful ? part.total(i % 4) : part.big[i % 4];
            }
        }
    }
}

template <int padded, int blocks>
constexpr int ring_floats_of = depth_of<padded, blocks> *tile_keys *padded;

// This warp's keys: as many tiles as the ring holds but one are asked for.
template <int padded, int blocks>
BW_DEVICE tile_reader<padded> ask_first(const float *k, const float *v, const bw_decode_place &place,
                                        const bw_decode_work &work, int head_dim) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, pace = work.shares * tile_keys;
    float *ring = (float *)bw_dynamic_shared() + warp * ring_floats_of<padded, blocks>;
    tile_reader<padded> reader;
    reader.row = lane / reader.chunks;
    reader.chunk = lane % reader.chunks;
    reader.width = head_dim - reader.chunk * 4;
    reader.stride = work.key_elems;
    reader.left_k = reader.left_v = place.keys - warp * tile_keys;
    const int64_t at = place.kv_at + (warp * tile_keys + reader.row) * reader.stride + reader.chunk * 4;
    reader.from_k = k + at;
    reader.from_v = v + at;
#pragma unroll
    for (int s = 0; s + 1 < depth_of<padded, blocks>; s++) {
        if (s % 2) {
            reader.template fetch<true>(ring + s * tile_keys * padded, pace);
        } else {
            reader.template fetch<false>(ring + s * tile_keys * padded, pace);
        }
    }
    return reader;
}

template <int padded, int blocks, bool careful>
BW_DEVICE void walk_keys(tile_reader<padded> reader, const uint4 *queries, int left, int pace, float scale,
                         bw_softmax_sums<padded, 2> (&sums)[blocks]) {
    constexpr int depth = depth_of<padded, blocks>, tile_floats = tile_keys * padded;
    float *ring = (float *)bw_dynamic_shared() + (int)threadIdx.x / 32 * ring_floats_of<padded, blocks>;
#pragma unroll
    for (int b = 0; b < blocks; b++) {
        sums[b] = {};
        sums[b].top[0] = sums[b].top[1] = -INFINITY;
    }
    int tile_at = 0, used_at = (depth - 1) * tile_floats;
    const auto step_on = [&] {
        used_at = tile_at;
        tile_at = tile_at == (depth - 1) * tile_floats ? 0 : tile_at + tile_floats;
    };
#pragma unroll 1
    for (; left > 0; left -= pace) {
        float scores[blocks][2][4];
        bw_copy_wait<depth - 2>();
        __syncwarp();  // this tile's K is there, and all lanes have used what is fetched over
        reader.template fetch<depth % 2 == 0>(ring + used_at, pace);
        meet_keys<padded, blocks, careful>(queries, ring + tile_at, scores);
        step_on();
        bw_flash_softmax_update(scores, left - 1, 0, false, scale, sums);
        bw_copy_wait<depth - 2>();
        __syncwarp();
        reader.template fetch<depth % 2 == 1>(ring + used_at, pace);
        meet_values<padded, blocks, careful>(scores, ring + tile_at, sums);
        step_on();
    }
    bw_copy_wait<0>();
}

template <int padded, int blocks>
BW_DEVICE bool are_finite(const bw_softmax_sums<padded, 2> (&sums)[blocks]) {
    float none = 0.0f;
#pragma unroll
    for (int i = 0; i < blocks * padded / 2; i++)
        none = fmaf(sums[i % blocks].out[i / blocks / 4][i / blocks % 4], 0.0f, none);
    return none == 0.0f;
}

template <int padded, int blocks, typename Cells>
BW_DEVICE void spread(const bw_softmax_sums<padded, 2> (&sums)[blocks], const Cells &cells, int row0) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * blocks; i++) {
        const bw_softmax_sums<padded, 2> &own = sums[i / 2];
        const int half = i % 2, row = row0 + 8 * i + lane / 4;
        const float sum = bw_quad_sum(own.sum[half]);
        if (lane % 4 == 0) {
            cells.top[row] = own.top[half];
            cells.sum[row] = sum;
        }
#pragma unroll
        for (int n = 0; n < padded / 16; n++) {  // four columns of an even place or an odd one
            const int g = n / 2 * 4, e = 2 * half + n % 2;
            *(float4 *)&cells.out[row * Cells::stride + g * 8 + (lane % 4 * 2 + n % 2) * 4] =
                make_float4(own.out[g][e], own.out[g + 1][e], own.out[g + 2][e], own.out[g + 3][e]);
        }
    }
}

// `blocks` times 16 heads.
template <int padded, int blocks>
__global__ void __launch_bounds__(most_warps * 32, 2)
    attention_decode_split_kernel(const float *q, const float *k, const float *v, float *out, bw_decode_work work,
                                  bw_attention_shape shape) {
    constexpr int heads = row_heads * blocks;
    const bw_decode_place place = bw_decode_locate(shape, work);
    // Queries before keys: behind all that the rings hold, they would come late.
    const float *query = q + place.row0 * shape.head_dim;
    const query_parts<padded, blocks> parts(query, place.heads, shape.head_dim);
    tile_reader<padded> reader = ask_first<padded, blocks>(k, v, place, work, shape.head_dim);
    const unsigned ticket = bw_decode_ticket(work.exchange, place.column, place.splits);
    uint4 *queries = (uint4 *)((float *)bw_dynamic_shared() + work.shares * ring_floats_of<padded, blocks>);
    parts.store(queries, query, place.heads, shape.head_dim);
    __syncthreads();
    queries += threadIdx.x % 32;
    const int left = place.keys - (int)threadIdx.x / 32 * tile_keys, pace = work.shares * tile_keys;
    bw_softmax_sums<padded, 2> sums[blocks];
    walk_keys<padded, blocks, false>(reader, queries, left, pace, shape.scale, sums);
    if (__syncthreads_or(!are_finite(sums))) {
        reader = ask_first<padded, blocks>(k, v, place, work, shape.head_dim);
        walk_keys<padded, blocks, true>(reader, queries, left, pace, shape.scale, sums);
        __syncthreads();
    }
    // The rings become the cells.
    const bw_decode_cells<heads, padded, 1, 0> cells((float *)bw_dynamic_shared(), work.shares, work.shares, 0);
    spread(sums, cells, (int)threadIdx.x / 32 * heads);
    bw_decode_finish(cells, work.exchange, place, {shape.head_dim, shape.vectors}, ticket, false, out);
}

}  // namespace

bw_status bw_decode_split_fp32_choose(const bw_attention_shape &shape, const bw_decode_plan &plan,
                                      const bw_decode_work &work, bw_cuda_launch_spec *out) {
    const bool many = plan.block_heads > row_heads;
    auto *function = many ? attention_decode_split_kernel<128, 2> : attention_decode_split_kernel<128, 1>;
    if (shape.head_dim <= 64) {
        function = many ? attention_decode_split_kernel<64, 2> : attention_decode_split_kernel<64, 1>;
    }
    return bw_decode_choose_staged(function, shape, plan, work, out);
}
