// attention_prefill on Hopper's tensor cores, both products of E4M3 factors, as hopper.cuh says; head_dim is padded to
// 64 or 128. Two kernels:
//   prepare   the matrix unit reads 8-bit factors only with the summed dimension within their rows, so V is transposed
//             once, a tile of 128 keys after the other, and lies behind its scales as shared memory is to hold it. The
//             order of its keys is the one in which a thread's scores become a fragment of weights: nothing has to be
//             exchanged between threads;
//   attend    queries are rounded to E4M3 as they are read, each pair of rows by its largest element, and stay in
//             registers. A score takes its key's scale before softmax, a weight its value's behind it.
// While the matrix unit works, registers serve other units half as often, and shared memory answers late. So scores are
// sums in FP16, in half as many registers, softmax works on pairs of them, and scales are read a tile ahead. Queries
// become 7/8 at most: 128 products with elements of K, 448 at most, do not leave FP16's range. Weights times scales of
// values are rounded to E4M3: exponents are taken relative to a maximum that holds the tile's largest scale of a value.
// Tiles behind the first stand on the maximum so far, so that none has to find its own: their sums say when weights
// leave E4M3's range, and then they are worked out again. Maxima are multiples of 1/8, which FP16 holds.
#include "cuda/kernels/attention/attention.h"

#include "cuda/kernels/attention/prefill/hopper.cuh"

namespace {

constexpr int keys = 128;  // of a tile: a row of the transposed V is a panel's
constexpr int consumers = 2, stage_count = 4;
constexpr float most = 448.0f;        // of E4M3
constexpr float most_query = 0.875f;  // 448 / 512
constexpr float weight_lift = 4.25f;  // log2 of a limit on the weights of a tile with a new maximum
constexpr int64_t counters_bytes = 128;

// A tile's scales: relative to the largest of keys, and to 2^power, from which the largest of values is at most 1/8
// octave away. A thread's lie together, as scale_place says.
struct tile_scales {
    __half of_keys[keys], of_values[keys];
    float2 of_tile[4];  // the largest of keys, and power: for each lane of a quad
};

template <int padded>
struct fp8_layout {
    static constexpr int stages = stage_count, tile_keys = keys;
    static constexpr int rows = 64 * consumers, threads = (1 + consumers) * bw_warpgroup;
    static constexpr int scale_bytes = sizeof(tile_scales), key_bytes = keys * bw_panel_bytes;
    static constexpr int value_bytes = padded * bw_panel_bytes;
    static constexpr int image_bytes = scale_bytes + value_bytes;  // of a tile in the scratch
    static constexpr int k_at = 0, v_at = stages * key_bytes, scales_at = v_at + stages * value_bytes;
    static constexpr int barriers_at = scales_at + stages * scale_bytes;
    static constexpr int task_at = barriers_at + hopper_barriers<stages>::count * (int)sizeof(uint64_t);
    static constexpr int shared_bytes = bw_panels_spare + task_at + 16;
};

// Two pairs become four bytes.
BW_DEVICE uint32_t round_to_e4m3(uint32_t low, uint32_t high) {
    uint32_t word;
    asm("{\n.reg .b16 a, b;\ncvt.rn.satfinite.e4m3x2.f16x2 a, %1;\ncvt.rn.satfinite.e4m3x2.f16x2 b, %2;\n"
        "mov.b32 %0, {a, b};\n}"
        : "=r"(word)
        : "r"(low), "r"(high));
    return word;
}
BW_DEVICE uint32_t round_to_e4m3(float a, float b, float c, float d) {
    uint32_t word;
    asm("{\n.reg .b16 a, b;\ncvt.rn.satfinite.e4m3x2.f32 a, %2, %1;\ncvt.rn.satfinite.e4m3x2.f32 b, %4, %3;\n"
        "mov.b32 %0, {a, b};\n}"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return word;
}

BW_DEVICE float next_eighth(float x) {
    return ceilf(8.0f * x) / 8.0f;
}

// ---- prepare ----

constexpr int prepare_threads = 256;

// Four words of four bytes, in place: word i gets byte i of each.
BW_DEVICE void transpose_bytes(uint32_t (&word)[4]) {
    const uint32_t a = __byte_perm(word[0], word[1], 0x5140), b = __byte_perm(word[2], word[3], 0x5140);
    const uint32_t c = __byte_perm(word[0], word[1], 0x7362), d = __byte_perm(word[2], word[3], 0x7362);
    word[0] = __byte_perm(a, b, 0x5410);
    word[1] = __byte_perm(a, b, 0x7632);
    word[2] = __byte_perm(c, d, 0x5410);
    word[3] = __byte_perm(c, d, 0x7632);
}

// Lane c of a quad has the scores of keys 8 n + 2 c and 8 n + 2 c + 1: those of four n are 16 bytes.
BW_DEVICE int scale_place(int key) {
    return (key / 32 * 4 + key % 8 / 2) * 8 + key % 32 / 8 * 2 + key % 2;
}

// Block: a tile of keys of a K/V head. Keys that are not there are zeros, and so are their scales.
template <int padded>
__global__ void __launch_bounds__(prepare_threads)
    attention_fp8_prepare_kernel(const unsigned char *v, const float *k_scale, const float *v_scale,
                                 unsigned char *images, bw_attention_shape shape, int tiles) {
    using layout = fp8_layout<padded>;
    __shared__ uint32_t tile[keys][padded / 4 + 1];
    __shared__ float warp_largest[2][keys / 32];  // of keys, of values
    const int64_t head = blockIdx.x / tiles;      // of all entries
    const int key0 = (int)(blockIdx.x % tiles) * keys, thread = (int)threadIdx.x;
    const int64_t row0 = head / shape.kv_heads * shape.keys * shape.kv_heads + head % shape.kv_heads;
    unsigned char *image = images + (int64_t)blockIdx.x * layout::image_bytes;
    tile_scales *scales = (tile_scales *)image;
    for (int i = thread; i < keys * padded / 16; i += prepare_threads) {
        const int key = i / (padded / 16), column = i % (padded / 16) * 16;
        const bool there = key0 + key < shape.keys && column < shape.head_dim;
        const int64_t row = row0 + (key0 + key) * shape.kv_heads;
        const uint4 bits = there ? bw_load_streaming(v + row * shape.head_dim + column) : make_uint4(0, 0, 0, 0);
        tile[key][column / 4] = bits.x;
        tile[key][column / 4 + 1] = bits.y;
        tile[key][column / 4 + 2] = bits.z;
        tile[key][column / 4 + 3] = bits.w;
    }
    float own[2] = {};
    if (thread < keys) {
        const bool there = key0 + thread < shape.keys;
        const int64_t row = row0 + (key0 + thread) * shape.kv_heads;
        own[0] = there ? k_scale[row] : 0.0f;
        own[1] = there ? v_scale[row] : 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float largest = fabsf(own[i]);
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(bw_all_lanes, largest, offset));
            }
            warp_largest[i][thread / 32] = largest;
        }
    }
    __syncthreads();
    if (thread < keys) {
        float largest[2] = {1e-18f, 1e-18f};  // of scales that are all 0, too
#pragma unroll
        for (int i = 0; i < 2; i++) {
            for (float one : warp_largest[i]) largest[i] = fmaxf(largest[i], one);
        }
        const float power = next_eighth(log2f(largest[1]));
        scales->of_keys[scale_place(thread)] = __float2half_rn(own[0] / largest[0]);
        scales->of_values[scale_place(thread)] = __float2half_rn(own[1] * exp2f(-power));
        if (thread < 4) scales->of_tile[thread] = make_float2(largest[0], power);
    }
    // Four rows of V's transpose, and 16 keys of theirs: those that four lanes have of two neighboring fragments.
    for (int i = thread; i < padded / 4 * (keys / 16); i += prepare_threads) {
        const int four = i % (padded / 4), chunk = i / (padded / 4);
        uint32_t row[4][4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const int key = 16 * chunk + 2 * c;
            uint32_t word[4] = {tile[key][four], tile[key + 1][four], tile[key + 8][four], tile[key + 9][four]};
            transpose_bytes(word);
#pragma unroll
            for (int d = 0; d < 4; d++) row[d][c] = word[d];
        }
#pragma unroll
        for (int d = 0; d < 4; d++) {
            const int at = 4 * four + d;
            *(uint4 *)(image + layout::scale_bytes + at * bw_panel_bytes + ((chunk ^ (at & 7)) << 4)) =
                make_uint4(row[d][0], row[d][1], row[d][2], row[d][3]);
        }
    }
}

// ---- attend ----

template <int padded>
struct fp8_copies {
    using layout = fp8_layout<padded>;
    const CUtensorMap &k_map;
    const unsigned char *images;
    uint32_t shared;
    int kv_heads, tiles;

    __device__ __forceinline__ const unsigned char *image(const hopper_task &task, int kv_head, int tile) const {
        return images + (((int64_t)task.batch * kv_heads + kv_head) * tiles + tile) * layout::image_bytes;
    }
    __device__ __forceinline__ void queries(uint32_t barrier, const hopper_task &) const {
        bw_barrier_arrive(barrier);
    }
    __device__ __forceinline__ void keys(int stage, uint32_t barrier, const hopper_task &task, int kv_head,
                                         int tile) const {
        bw_barrier_expect(barrier, layout::key_bytes + layout::scale_bytes);
        bw_tensor_load(shared + layout::k_at + stage * layout::key_bytes, k_map, barrier, 0, kv_head,
                       tile * layout::tile_keys, task.batch);
        bw_bulk_load(shared + layout::scales_at + stage * layout::scale_bytes, image(task, kv_head, tile),
                     layout::scale_bytes, barrier);
    }
    __device__ __forceinline__ void values(int stage, uint32_t barrier, const hopper_task &task, int kv_head,
                                           int tile) const {
        bw_barrier_expect(barrier, layout::value_bytes);
        bw_bulk_load(shared + layout::v_at + stage * layout::value_bytes,
                     image(task, kv_head, tile) + layout::scale_bytes, layout::value_bytes, barrier);
    }
};

BW_DEVICE float2 shared_pair(uint32_t at) {
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(at));
    return pair;
}
BW_DEVICE void read_shared(uint32_t at, uint32_t (&word)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(at));
}

BW_DEVICE __half2 half2_of(uint32_t bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}
BW_DEVICE uint32_t bits_of(__half2 pair) {
    uint32_t bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

BW_DEVICE __half2 half2_exp2(__half2 x) {
    uint32_t bits;
    asm("ex2.approx.f16x2 %0, %1;" : "=r"(bits) : "r"(bits_of(x)));
    return half2_of(bits);
}

// What a warpgroup's thread holds, and its place in the rings. The product with V of the tile before is under way while
// a tile's softmax runs.
template <int padded>
struct fp8_consumer {
    using layout = fp8_layout<padded>;
    static constexpr int stages = layout::stages;
    static constexpr int query_steps = padded / 32, key_steps = keys / 32;
    float out[padded / 8][4];
    uint32_t scores[keys / 8][2];  // two of a row
    uint32_t query[query_steps][4];
    uint32_t weights[2][key_steps][4];                // of two tiles
    uint32_t of_keys[keys / 8], of_values[keys / 8];  // the next tile's scales
    float largest_of_keys, power, addend[2];          // of its scales; of exponents of the thread's rows
    float top[2], sum[2], shrink[2];
    float factor;           // of scores, beside their keys'
    __half2 up;             // of scales of keys
    float peak;             // largest power of 2 of the values' scales so far
    uint32_t shared, used;  // tiles of K so far
    int group, reach[2];    // last key of the thread's rows
    hopper_barriers<stages> barriers;
    const __half *q;
    int head_dim;
    float scale;

    // Two rows of Q, eight apart, become fragments.
    __device__ __forceinline__ void begin(int64_t at, int64_t stride, int row, int rows) {
        const int column = (int)threadIdx.x % 4 * 4;
        uint2 bits[query_steps][4];
        float largest = 1e-9f;  // of rows of zeros, too; less than FP16 has
#pragma unroll
        for (int i = 0; i < query_steps; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int from_row = row + j % 2 * 8, from_column = 32 * i + j / 2 * 16 + column;
                const bool there = from_row < rows && from_column < head_dim;
                bits[i][j] =
                    there ? __ldg((const uint2 *)(q + at + from_row * stride + from_column)) : make_uint2(0, 0);
                const float2 a = bw_unpack_pair(bits[i][j].x, __half()), b = bw_unpack_pair(bits[i][j].y, __half());
                largest = fmaxf(largest, fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(b.x), fabsf(b.y))));
            }
        }
        largest = bw_quad_max(largest);
        const float scaled = most_query / largest;
        factor = largest / most_query * scale;
        peak = -INFINITY;
#pragma unroll
        for (int i = 0; i < query_steps; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float2 a = bw_unpack_pair(bits[i][j].x, __half()), b = bw_unpack_pair(bits[i][j].y, __half());
                query[i][j] = round_to_e4m3(a.x * scaled, a.y * scaled, b.x * scaled, b.y * scaled);
            }
        }
    }
    __device__ __forceinline__ void wait(uint32_t tile, bool values) const {
        bw_barrier_wait(barriers.full(tile % stages, values), tile / stages & 1);
    }
    __device__ __forceinline__ bool is_there(uint32_t tile, bool values) const {
        return bw_barrier_done(barriers.full(tile % stages, values), tile / stages & 1);
    }
    // Starts scores = Q K^T.
    __device__ __forceinline__ void start_scores(int stage) {
        const uint64_t k = bw_describe_rows(shared + layout::k_at + stage * layout::key_bytes);
#pragma unroll
        for (int i = 0; i < query_steps; i++) bw_product(scores, query[i], k + 2 * i, i != 0, bw_e4m3());
        bw_products_commit();
    }
    // Starts out += weights V.
    template <int which>
    __device__ __forceinline__ void start_values(int stage, int more) {
        const uint64_t v = bw_describe_rows(shared + layout::v_at + stage * layout::value_bytes);
#pragma unroll
        for (int i = 0; i < key_steps; i++) bw_product(out, weights[which][i], v + 2 * i, i != 0 || more, bw_e4m3());
        bw_products_commit();
    }
    // What softmax needs beside scores, early: while products read shared memory it takes long.
    __device__ __forceinline__ void read_scales(uint32_t tile) {
        const uint32_t scales = shared + layout::scales_at + tile % stages * layout::scale_bytes;
        const uint32_t own = scales + (int)threadIdx.x % 4 * 16;
#pragma unroll
        for (int n = 0; n < keys / 8; n += 4) {
            read_shared(own + 16 * n, *(uint32_t(*)[4]) & of_keys[n]);
            read_shared(own + (int)offsetof(tile_scales, of_values) + 16 * n, *(uint32_t(*)[4]) & of_values[n]);
        }
        const float2 of_tile = shared_pair(scales + (int)offsetof(tile_scales, of_tile) + (int)threadIdx.x % 4 * 8);
        largest_of_keys = of_tile.x;
        power = of_tile.y;
    }
    __device__ __forceinline__ void stand_on_maxima() {
#pragma unroll
        for (int half = 0; half < 2; half++) addend[half] = weight_lift + power - bw_softmax_reference(top[half]);
    }
    // Of two keys. `room` is the last key, from the tile's first on, that the row attends.
    template <bool masked>
    __device__ __forceinline__ __half2 exponents(int n, int half, __half2 addend, const int (&room)[2]) const {
        const __half2 pair = __hfma2(half2_of(scores[n][half]), __hmul2(half2_of(of_keys[n]), up), addend);
        if (!masked) return pair;
        const int key = 8 * n + (int)threadIdx.x % 4 * 2;
        const __half never = __ushort_as_half(0xfc00);  // minus infinity
        return __halves2half2(key > room[half] ? never : __low2half(pair),
                              key >= room[half] ? never : __high2half(pair));
    }
    // `shrink` becomes what earlier sums must be multiplied by.
    template <bool masked>
    __device__ __forceinline__ void raise_maxima(const int (&room)[2]) {
        float best[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int n = 0; n < keys / 8; n++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float2 pair = __half22float2(exponents<masked>(n, half, __half2(), room));
                best[half] = fmaxf(best[half], fmaxf(pair.x, pair.y));
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float before = top[half];
            top[half] = fmaxf(before, next_eighth(bw_quad_max(best[half])) + power);
            shrink[half] = bw_exp2(before - bw_softmax_reference(top[half]));
            sum[half] *= shrink[half];
        }
        stand_on_maxima();
    }
    // Scores to weights, on the maxima so far if they fit.
    template <bool masked, int which>
    __device__ __forceinline__ void update_softmax(const int (&room)[2]) {
        float part[2];
        shrink[0] = shrink[1] = 1.0f;
        up = __float2half2_rn(largest_of_keys * factor);
        // Infinite where a row has seen no key: then its weights do not fit.
#pragma unroll
        for (int half = 0; half < 2; half++) addend[half] = weight_lift + power - top[half];
        // Called twice, not a loop: the compiler then interleaves its instructions with those around.
        const auto weigh = [&] {
            __half2 pairs[2] = {};
            const __half2 addends[2] = {__float2half2_rn(addend[0]), __float2half2_rn(addend[1])};
#pragma unroll
            for (int n = 0; n < keys / 8; n += 2) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const __half2 first = half2_exp2(exponents<masked>(n, half, addends[half], room));
                    const __half2 second = half2_exp2(exponents<masked>(n + 1, half, addends[half], room));
                    pairs[half] = __hadd2(__hadd2(pairs[half], first), second);
                    weights[which][n / 4][n % 4 + half] =
                        round_to_e4m3(bits_of(__hmul2(first, half2_of(of_values[n]))),
                                      bits_of(__hmul2(second, half2_of(of_values[n + 1]))));
                }
            }
            const float2 sums[2] = {__half22float2(pairs[0]), __half22float2(pairs[1])};
            part[0] = sums[0].x + sums[0].y;
            part[1] = sums[1].x + sums[1].y;
            return fmaxf(sums[0].x, sums[0].y) <= most && fmaxf(sums[1].x, sums[1].y) <= most;
        };
        if (masked || !__all_sync(bw_all_lanes, weigh())) {
            raise_maxima<masked>(room);
            weigh();
        }
        // If all values of a tile are small, its weights underflow: their sum is then taken in FP32.
        if (power < peak - 8.0f) {
            part[0] = part[1] = 0.0f;
#pragma unroll
            for (int n = 0; n < keys / 8; n++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float2 pair = __half22float2(exponents<masked>(n, half, __half2(), room));
                    part[half] += bw_exp2(pair.x + addend[half]) + bw_exp2(pair.y + addend[half]);
                }
            }
        }
        peak = fmaxf(peak, power);
        const float inverse = bw_exp2(-power);
#pragma unroll
        for (int half = 0; half < 2; half++) sum[half] = fmaf(part[half], inverse, sum[half]);
    }

    __device__ __forceinline__ void release(int stage, bool values) {
        __syncwarp();  // all lanes have read their scales
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barriers.empty(stage, values));
    }

    // The `used`th tile, whose weights become weights[which], and the product with V of those before. `first`: of a
    // task.
    template <bool masked, bool first, int which>
    __device__ __forceinline__ void take(int tile, int more) {
        bw_registers_hold(out);
        bw_registers_hold(weights[1 - which]);
        bw_registers_hold(query);
        bw_registers_hold(scores);
        bw_products_begin();
        start_scores(used % stages);
        if (!first) start_values<1 - which>((used - 1) % stages, more);
        const bool keys_there = is_there(used + 1, false), values_there = is_there(used, true);
        bw_products_wait<first ? 0 : 1>();
        bw_registers_hold(scores);
        const int key0 = tile * keys, room[2] = {reach[0] - key0, reach[1] - key0};
        update_softmax<masked, which>(room);
        if (!values_there) wait(used, true);
        if (tile > 0) {
            if (!keys_there) wait(used + 1, false);
            read_scales(used + 1);
        }
        bw_products_wait<0>();
        bw_registers_hold(out);
        bw_registers_hold(weights[1 - which]);
        bw_registers_hold(query);
        release(used % stages, false);
        if (!first) release((used - 1) % stages, true);
        if (!first && __any_sync(bw_all_lanes, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
            for (int n = 0; n < padded / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) out[n][i] *= shrink[i / 2];
            }
        }
        used++;
    }
    // weights[1] become weights[0].
    __device__ __forceinline__ void turn() {
#pragma unroll
        for (int i = 0; i < key_steps; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) weights[0][i][j] = weights[1][i][j];
        }
    }
    __device__ __forceinline__ void walk(int tiles, int open) {
        int tile = tiles - 1, more = 0;
        wait(used, false);
        read_scales(used);
        take<true, true, 0>(tile--, 0);
        for (; tile >= open; more = 1) {
            take<true, false, 1>(tile--, more);
            turn();
        }
        while (tile >= 0) {
            take<false, false, 1>(tile--, more);
            more = 1;
            if (tile < 0) {
                turn();
                break;
            }
            take<false, false, 0>(tile--, 1);
        }
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barriers.query_empty());
        bw_registers_hold(out);
        bw_registers_hold(weights[0]);
        bw_products_begin();
        start_values<0>((used - 1) % stages, more);
        bw_products_wait<0>();
        bw_registers_hold(out);
        bw_registers_hold(weights[0]);
        release((used - 1) % stages, true);
    }
};

template <int padded>
__global__ void __launch_bounds__(fp8_layout<padded>::threads, 1)
    attention_fp8_kernel(const __grid_constant__ CUtensorMap k_map, const __half *q, const unsigned char *images,
                         __half *out, bw_attention_shape shape, hopper_tasks tasks, hopper_counters *counters) {
    using layout = fp8_layout<padded>;
    const uint32_t shared = bw_panels_shared();
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(k_map);
        hopper_barriers<layout::stages>{shared + layout::barriers_at}.init(consumers);
    }
    __syncthreads();
    if (threadIdx.x < bw_warpgroup) {
        bw_registers_fewer<24>();
        if (threadIdx.x == 0) {
            const fp8_copies<padded> copies = {k_map, images, shared, (int)shape.kv_heads,
                                               (tasks.keys + keys - 1) / keys};
            produce<layout>(copies, tasks, counters, shared);
        }
    } else {
        bw_registers_more<240>();
        fp8_consumer<padded> self;
        self.q = q;
        self.head_dim = shape.head_dim;
        self.scale = shape.scale;
        consume(self, out, shape, shared);
    }
}

int64_t tile_count(const bw_attention_shape &shape) {
    return bw_ceil_div(shape.keys, keys);
}

template <int padded>
bw_status choose(const bw_attention_shape &shape, const bw_device_facts *facts, bw_cuda_launch_spec *out) {
    using layout = fp8_layout<padded>;
    const hopper_tasks tasks = list_tasks<layout>(shape, 1, facts);
    const int64_t tiles = tile_count(shape), blocks = shape.batch * shape.kv_heads * tiles;
    bw_choose(out, attention_fp8_prepare_kernel<padded>, dim3((unsigned)blocks), dim3(prepare_threads), 0,
              bw_from_operand(BW_ATTENTION_V), bw_from_operand(BW_ATTENTION_K_SCALE),
              bw_from_operand(BW_ATTENTION_V_SCALE), bw_from_scratch(counters_bytes), shape, (int)tiles);
    bw_choose(out, attention_fp8_kernel<padded>, dim3((unsigned)bw_min64(tasks.count, facts->units)),
              dim3(layout::threads), layout::shared_bytes,
              view_of(BW_ATTENTION_K, BW_FP8_E4M3, shape, shape.kv_heads, shape.keys, keys),
              bw_from_operand(BW_ATTENTION_Q), bw_from_scratch(counters_bytes), bw_from_operand(BW_ATTENTION_OUT),
              shape, tasks, bw_from_scratch(0));
    return BW_OK;
}

bw_checked_int images_bytes(const bw_attention_shape &shape) {
    const int64_t image = shape.head_dim > 64 ? fp8_layout<128>::image_bytes : fp8_layout<64>::image_bytes;
    return bw_mul4(shape.batch, shape.kv_heads, tile_count(shape), image);
}

}  // namespace

const char *bw_prefill_fp8_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    if (!facts->own || facts->own->major != 9) return "wgmma and TMA need compute capability 9.0";
    if (!shape.vectors) return "head_dim must be a multiple of 16";
    if (shape.head_dim > 128) return "head_dim above 128";
    if (shape.keys > INT32_MAX / 2 || shape.queries > INT32_MAX / 2) return "sequences of 2^30 tokens and more";
    if (bw_flash_refuses(dims, precision, facts)) return bw_flash_refuses(dims, precision, facts);
    const bw_tensor_view view = view_of(BW_ATTENTION_K, BW_FP8_E4M3, shape, shape.kv_heads, shape.keys, keys);
    if (images_bytes(shape).overflow || !bw_cuda_grid_fits(shape.batch * shape.kv_heads * tile_count(shape))) {
        return "more tiles of keys than a grid holds (2^31 - 1)";
    }
    return bw_tensor_view_refuses(&view);
}

int64_t bw_prefill_fp8_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const bw_checked_int bytes = images_bytes(bw_prefill_shape(dims, precision->cache));
    return bytes.overflow ? INT64_MAX : counters_bytes + bytes.value;
}

// The transposed V and the scales beside it.
bw_status bw_prefill_fp8_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                    bw_cost *cost) {
    return bw_attention_add_traffic(cost, bw_prefill_fp8_scratch_bytes(dims, precision, facts) - counters_bytes);
}

bw_status bw_prefill_fp8_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_prefill_shape(dims, precision->cache);
    return shape.head_dim > 64 ? choose<128>(shape, facts, out) : choose<64>(shape, facts, out);
}

bw_status bw_prefill_fp8_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    BW_TRY(clear_counters(sets, set_count));
    return bw_cuda_prepare(sets, set_count, bw_prefill_fp8_choose, state);
}

bw_status bw_prefill_fp8_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision,
                                  bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, bw_prefill_fp8_choose, out);
}
