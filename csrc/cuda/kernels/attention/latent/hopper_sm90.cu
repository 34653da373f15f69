// mla_decode on Hopper's tensor cores, FP16 and BF16, rows of 512 + 64 elements: a block takes 64 query heads, 64 keys
// at a time, of which 73 728 bytes are K and V at once, for the tiles that are its part (plan.h).
//   - a producer thread brings Q and the tiles, two of these, by TMA: what a block needs again for V stays;
//   - the first warpgroup works out scores and softmax, and the left half of the output, 64 x 256 in registers; the
//     second one the right half, with the weights that the first has left in shared memory. A thread of either holds
//     the same heads and keys, so that these are just the registers of a thread for its like;
//   - where tensor cores decide (`lags`), the second warpgroup stays behind by the next tile's scores, so that its
//     product falls into the first one's softmax. The right half of a tile is then used longer than the left one: each
//     has barriers of its own, and the right one is waited for last;
//   - of heads above 64 two blocks are a cluster (`pair`): each brings one half of a tile's rows for both;
//   - rows of FP8 (`narrow`) come by plain copies; the producer's warpgroup makes FP16 of them, exactly, a tile at a
//   time.
//     A token's scale multiplies its scores, and then its weights.
#include "cuda/kernels/attention/latent/walk.cuh"
#include "cuda/kernels/attention/scores.cuh"
#include "cuda/kernels/common/sm90.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int consumers = 2, threads = (1 + consumers) * bw_warpgroup;
constexpr int tile_keys = bw_latent_tile_keys, tile_heads = bw_latent_tile_heads;
constexpr int panel_columns = 64;  // of 16-bit elements
constexpr int panel_bytes = tile_keys * bw_panel_bytes;
static_assert(tile_keys == tile_heads, "panels of Q and of a tile have the same size");
constexpr int panels = bw_latent_key_dim / panel_columns, value_panels = bw_latent_dim / panel_columns;
constexpr int half_panels = value_panels / 2, half_columns = bw_latent_dim / 2;
constexpr int tile_bytes = panels * panel_bytes;
constexpr int right_bytes = half_panels * panel_bytes, left_bytes = tile_bytes - right_bytes;
constexpr int key_steps = tile_keys / 16;

// Of tiles as products take them. Two tiles of FP8 lie where the second one of these would.
constexpr int stages_of(bool narrow) {
    return narrow ? 1 : 2;
}
constexpr int raw_row_bytes = bw_latent_key_dim, raw_bytes = tile_keys * raw_row_bytes;
static_assert(2 * raw_bytes == tile_bytes, "room for two");

// Shared memory, behind Q and the tiles: the weights, what sums are multiplied by, tokens' scales, barriers.
constexpr int tiles_at = tile_bytes, raw_at = tiles_at + tile_bytes, weights_at = raw_at + tile_bytes;
constexpr int factors_at = weights_at + key_steps * bw_warpgroup * (int)sizeof(uint4);
constexpr int scales_at = factors_at + bw_warpgroup * (int)sizeof(float2);
constexpr int barriers_at = scales_at + tile_keys * (int)sizeof(float);
constexpr int barriers = 15;
constexpr int shared_bytes = bw_panels_spare + barriers_at + barriers * (int)sizeof(uint64_t);
static_assert(shared_bytes <= 232448, "what a block may have");

// Full ones wait for bytes or for the warps that write, empty ones for the warps that read.
struct latent_barriers {
    uint32_t base;
    __device__ __forceinline__ uint32_t query_full() const {
        return base;
    }
    __device__ __forceinline__ uint32_t query_empty() const {
        return base + 8;
    }
    __device__ __forceinline__ uint32_t weights_full() const {
        return base + 16;
    }
    __device__ __forceinline__ uint32_t weights_empty() const {
        return base + 24;
    }
    __device__ __forceinline__ uint32_t scores_done() const {
        return base + 32;
    }
    // Of a tile's left half, which has the last panel, too, or of its right one.
    __device__ __forceinline__ uint32_t full(int stage, bool right) const {
        return base + 40 + 8 * (2 * stage + (right ? 1 : 0));
    }
    __device__ __forceinline__ uint32_t empty(int stage, bool right) const {
        return full(stage, right) + 32;
    }
    __device__ __forceinline__ uint32_t raw_full(int stage) const {
        return base + 104 + 8 * stage;
    }
};

BW_DEVICE void load_queries(const CUtensorMap &q_map, int entry, uint32_t round, uint32_t shared,
                            const latent_barriers &at) {
    bw_barrier_wait(at.query_empty(), round & 1 ^ 1);
    bw_barrier_expect(at.query_full(), tile_bytes);
    for (int i = 0; i < panels; i++) {
        bw_tensor_load(shared + i * panel_bytes, q_map, at.query_full(), i * panel_columns,
                       (int)blockIdx.y * tile_heads, 0, entry);
    }
}

template <bool pair>
BW_DEVICE void load_panel(uint32_t tile, int panel, const CUtensorMap &map, uint32_t barrier, int key, int entry) {
    const uint32_t to = tile + panel * panel_bytes;
    if constexpr (pair) {
        const int rank = (int)blockIdx.y % 2, rows = tile_keys / 2;
        bw_tensor_load_for(3, to + rank * rows * bw_panel_bytes, map, barrier, panel * panel_columns, 0,
                           key + rank * rows, entry);
    } else {
        bw_tensor_load(to, map, barrier, panel * panel_columns, 0, key, entry);
    }
}

template <bool pair>
BW_DEVICE void produce(const CUtensorMap &q_map, const CUtensorMap &cache_map, const bw_latent_work &work,
                       bw_latent_walk walk, uint32_t shared, const latent_barriers &at) {
    bw_latent_segment segment;
    uint32_t n = 0;  // tiles so far
    for (uint32_t round = 0; walk.next(work, (int)blockIdx.x, segment); round++) {
        load_queries(q_map, segment.entry, round, shared, at);
        for (int i = 0; i < segment.tiles; i++, n++) {
            const int stage = n % 2, key = (segment.tile + i) * tile_keys;
            const uint32_t tile = shared + tiles_at + stage * tile_bytes, parity = n / 2 & 1 ^ 1;
            bw_barrier_wait(at.empty(stage, false), parity);
            bw_barrier_expect(at.full(stage, false), left_bytes);
            for (int p = 0; p < half_panels; p++) {
                load_panel<pair>(tile, p, cache_map, at.full(stage, false), key, segment.entry);
            }
            load_panel<pair>(tile, value_panels, cache_map, at.full(stage, false), key, segment.entry);
            bw_barrier_wait(at.empty(stage, true), parity);
            bw_barrier_expect(at.full(stage, true), right_bytes);
            for (int p = half_panels; p < value_panels; p++) {
                load_panel<pair>(tile, p, cache_map, at.full(stage, true), key, segment.entry);
            }
        }
    }
}

// A block's tiles, one after the other.
struct tile_cursor {
    bw_latent_walk walk;
    bw_latent_segment segment;
    int index;  // in the segment

    __device__ __forceinline__ bool next(const bw_latent_work &work) {
        if (++index < segment.tiles) return true;
        index = 0;
        return walk.next(work, (int)blockIdx.x, segment);
    }
    __device__ __forceinline__ int tile() const {
        return segment.tile + index;
    }
};

// Begins to copy a tile of FP8, and returns the scale of one of its tokens.
BW_DEVICE float start_raw(tile_cursor &ahead, const bw_latent_work &work, uint32_t raw, uint32_t barrier) {
    if (!ahead.next(work)) return 0.0f;
    const int key = ahead.tile() * tile_keys, rows = min(tile_keys, work.keys - key);
    const int64_t row = (int64_t)ahead.segment.entry * work.keys + key;
    if (threadIdx.x == 0) {
        bw_barrier_expect(barrier, rows * raw_row_bytes);
        bw_bulk_load(raw, work.rows + row * raw_row_bytes, rows * raw_row_bytes, barrier);
    }
    return (int)threadIdx.x < rows ? work.scales[row + threadIdx.x] : 0.0f;
}

BW_DEVICE uint32_t pair_of(uint32_t two) {
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)two));
    return pair;
}

// A panel of a tile in FP16; of tokens from `room` on there are zeros.
BW_DEVICE void widen_panel(uint32_t tile, uint32_t raw, int panel, int room) {
    const int quarter = (int)threadIdx.x % 4;
#pragma unroll 1
    for (int row = (int)threadIdx.x / 4; row < tile_keys; row += bw_warpgroup / 4) {
        uint4 from = bw_spare_load(raw + row * raw_row_bytes + panel * panel_columns + quarter * 16);
        if (row >= room) from = make_uint4(0, 0, 0, 0);
        const uint32_t to = tile + panel * panel_bytes + row * bw_panel_bytes;
        bw_spare_store(to + ((2 * quarter ^ row % 8) << 4),
                       make_uint4(pair_of(from.x), pair_of(from.x >> 16), pair_of(from.y), pair_of(from.y >> 16)));
        bw_spare_store(to + ((2 * quarter + 1 ^ row % 8) << 4),
                       make_uint4(pair_of(from.z), pair_of(from.z >> 16), pair_of(from.w), pair_of(from.w >> 16)));
    }
}

// By the whole warpgroup.
BW_DEVICE void produce_narrow(const CUtensorMap &q_map, const bw_latent_work &work, const bw_latent_walk &walk,
                              uint32_t shared, const latent_barriers &at) {
    tile_cursor now = {walk, {}, 0}, ahead = now;
    const uint32_t tile = shared + tiles_at, raw = shared + raw_at;
    const auto arrive = [](uint32_t barrier) {
        bw_shared_publish();
        __syncwarp();
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barrier);
    };
    float scale = start_raw(ahead, work, raw, at.raw_full(0));
    float next_scale = start_raw(ahead, work, raw + raw_bytes, at.raw_full(1));
    uint32_t round = 0;
    for (uint32_t n = 0; now.next(work); n++) {
        const uint32_t from = raw + n % 2 * raw_bytes;
        const int room = now.segment.keys - now.tile() * tile_keys;
        if (now.index == 0 && threadIdx.x == 0) load_queries(q_map, now.segment.entry, round++, shared, at);
        bw_barrier_wait(at.raw_full(n % 2), n / 2 & 1);
        bw_barrier_wait(at.empty(0, false), n & 1 ^ 1);
        if (threadIdx.x < tile_keys) {
            const float own = (int)threadIdx.x < room ? scale : 0.0f;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + scales_at + 4 * threadIdx.x), "f"(own) : "memory");
        }
        for (int p = 0; p < half_panels; p++) widen_panel(tile, from, p, room);
        widen_panel(tile, from, value_panels, room);
        arrive(at.full(0, false));
        bw_barrier_wait(at.empty(0, true), n & 1 ^ 1);
        for (int p = half_panels; p < value_panels; p++) widen_panel(tile, from, p, room);
        arrive(at.full(0, true));
        asm volatile("bar.sync 3, %0;" ::"n"(bw_warpgroup) : "memory");  // all have read the tile
        scale = next_scale;
        next_scale = start_raw(ahead, work, from, at.raw_full(n % 2));
    }
}

// What both consumers do; `right` says which half of the output is theirs.
template <bool pair, bool narrow, bool right, typename T>
struct latent_consumer {
    static constexpr int stages = stages_of(narrow);
    const bw_latent_work &work;
    uint32_t shared;
    latent_barriers at;
    uint32_t tiles, exchanges, rounds;  // so far
    float out[half_columns / 8][4];
    uint32_t weights[key_steps][4];
    float shrink[2];

    __device__ __forceinline__ int stage() const {
        return tiles % stages;
    }
    __device__ __forceinline__ uint32_t tile_at(uint32_t tile) const {
        return shared + tiles_at + tile % stages * tile_bytes;
    }
    __device__ __forceinline__ void wait_full(uint32_t tile, bool right_half) {
        bw_barrier_wait(at.full(tile % stages, right_half), tile / stages & 1);
    }
    // By each warp, of each block that gets a part of the tile from whom the barrier holds back.
    __device__ __forceinline__ void release() {
        const int lane = (int)threadIdx.x % 32;
        if constexpr (pair) {
            if (lane < 2) bw_cluster_barrier_arrive(at.empty(stage(), right), lane);
        } else {
            if (lane == 0) bw_barrier_arrive(at.empty(stage(), right));
        }
    }
    __device__ __forceinline__ void arrive(uint32_t barrier) {
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barrier);
    }
    __device__ __forceinline__ uint32_t weights_word(int i) const {
        return shared + weights_at + (i * bw_warpgroup + (int)threadIdx.x % bw_warpgroup) * (int)sizeof(uint4);
    }
    __device__ __forceinline__ uint32_t factors_word() const {
        return shared + factors_at + (int)threadIdx.x % bw_warpgroup * (int)sizeof(float2);
    }

    // Of keys that are not there V may be anything, which a weight of 0 would not make 0.
    __device__ __forceinline__ void clear_beyond(int room) {
        if (narrow) return;  // there are zeros
        const int rows = tile_keys - room, each = bw_panel_bytes / 16;
        const uint32_t from = tile_at(tiles) + (right ? half_panels * panel_bytes : 0) + room * bw_panel_bytes;
        for (int i = (int)threadIdx.x % bw_warpgroup; i < rows * each * half_panels; i += bw_warpgroup) {
            bw_spare_store(from + i / (rows * each) * panel_bytes + i % (rows * each) * 16, make_uint4(0, 0, 0, 0));
        }
        bw_shared_publish();
        asm volatile("bar.sync %0, %1;" ::"n"(right ? 2 : 1), "n"(bw_warpgroup) : "memory");
    }
    __device__ __forceinline__ void rescale() {
        if (!__any_sync(bw_all_lanes, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
        for (int n = 0; n < half_columns / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) out[n][i] *= shrink[i / 2];
        }
    }
    // Starts out += weights V of the tile.
    __device__ __forceinline__ void start_values(int more) {
        const uint64_t v = bw_describe_columns(tile_at(tiles) + (right ? half_panels * panel_bytes : 0), panel_bytes);
        bw_registers_hold(out);
        bw_registers_hold(weights);
        bw_products_begin();
#pragma unroll
        for (int i = 0; i < key_steps; i++) {
            bw_product_transposed(out, weights[i], v + i * (16 * bw_panel_bytes >> 4), i != 0 || more, T());
        }
        bw_products_commit();
    }
    // The half of the output, or of a part of it.
    __device__ __forceinline__ void store(T *to, const bw_latent_segment &segment, const float (&factor)[2]) {
        const int first = (int)blockIdx.y * tile_heads, rows = min(tile_heads, work.heads - first);
        const int row = (int)threadIdx.x % bw_warpgroup / 32 * 16 + (int)threadIdx.x % 32 / 4;
        if (segment.slot < 0) {
            const int64_t at_row = (int64_t)segment.entry * work.heads + first;
            bw_store_fragment(out, to + at_row * bw_latent_dim + (right ? half_columns : 0), bw_latent_dim, row, rows,
                              half_columns, factor);
            return;
        }
        float *part = work.values + ((int64_t)segment.slot * work.heads + first) * bw_latent_dim +
                      (right ? half_columns : 0) + (int)threadIdx.x % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (row + 8 * half >= rows) continue;
#pragma unroll
            for (int n = 0; n < half_columns / 8; n++) {
                *(float2 *)&part[(row + 8 * half) * bw_latent_dim + 8 * n] =
                    make_float2(out[n][2 * half] * factor[half], out[n][2 * half + 1] * factor[half]);
            }
        }
    }
};

template <bool pair, bool narrow, typename T>
struct latent_left : latent_consumer<pair, narrow, false, T> {
    float scores[tile_keys / 8][4], top[2], sum[2], normal;

    // Starts scores (+)= Q K^T, over `steps` panels from `panel` on, of a tile.
    __device__ __forceinline__ void start_scores(uint32_t tile, int panel, int count, bool more) {
        const uint64_t q = bw_describe_rows(this->shared), k = bw_describe_rows(this->tile_at(tile));
#pragma unroll
        for (int p = panel; p < panel + count; p++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int step = (p * panel_bytes >> 4) + 2 * i;
                bw_product(scores, q + step, k + step, more || p > panel || i > 0, T());
            }
        }
    }
    __device__ __forceinline__ void start_left_scores(uint32_t tile) {
        this->wait_full(tile, false);
        bw_registers_hold(scores);
        bw_products_begin();
        start_scores(tile, 0, half_panels, false);
        start_scores(tile, value_panels, 1, true);
        bw_products_commit();
    }
    __device__ __forceinline__ void finish_scores(uint32_t tile) {
        this->wait_full(tile, true);
        bw_products_begin();
        start_scores(tile, half_panels, half_panels, true);
        bw_products_commit();
        bw_products_wait<0>();
        bw_registers_hold(scores);
    }
    // To the other warpgroup: the weights, and what its sums are multiplied by.
    __device__ __forceinline__ void give(const float (&factor)[2], bool with_weights) {
        bw_barrier_wait(this->at.weights_empty(), this->exchanges & 1 ^ 1);
        if (with_weights) {
#pragma unroll
            for (int i = 0; i < key_steps; i++) {
                const uint32_t(&word)[4] = this->weights[i];
                bw_spare_store(this->weights_word(i), make_uint4(word[0], word[1], word[2], word[3]));
            }
        }
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(this->factors_word()), "f"(factor[0]), "f"(factor[1])
                     : "memory");
        __syncwarp();
        this->arrive(this->at.weights_full());
        this->exchanges++;
    }
    template <bool masked>
    __device__ __forceinline__ void weigh(int room) {
        const int last[2] = {room - 1, room - 1};
        bw_scores_to_weights<masked>(scores, last, this->work.scale, bw_softmax_slack / this->work.scale, top, sum,
                                     this->shrink);
    }

    // Where there are scales, each key's column times its own and `factor`.
    __device__ __forceinline__ void scale_keys(float factor) {
        if constexpr (narrow) {
            const uint32_t from = this->shared + scales_at + (int)threadIdx.x % 4 * (int)sizeof(float2);
#pragma unroll
            for (int n = 0; n < tile_keys / 8; n++) {
                float scale[2];
                asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                             : "=f"(scale[0]), "=f"(scale[1])
                             : "r"(from + n * 8 * (int)sizeof(float)));
#pragma unroll
                for (int i = 0; i < 4; i++) scores[n][i] *= scale[i % 2] * factor;
            }
        }
    }
    // What keeps weights times scales in FP16's range: a power of 2 that makes the first token's scale about 1/16. (A
    // weight is at most 2^8, so that scales may grow to 4000 times that.)
    __device__ __forceinline__ void choose_normal(const bw_latent_segment &segment) {
        normal = 1.0f;
        if (!narrow) return;
        const int64_t row = (int64_t)segment.entry * this->work.keys + segment.tile * tile_keys;
        const int exponent = (int)(__float_as_uint(this->work.scales[row]) >> 23 & 255u);
        if (exponent > 0 && exponent < 246) normal = __uint_as_float((unsigned)(250 - exponent) << 23);
    }
    // A tile whose scores are there, `room` of whose keys are; starts the next one's scores.
    template <bool last>
    __device__ __forceinline__ void step(int more, int room) {
        scale_keys(1.0f);
        weigh<last>(room);
        scale_keys(normal);
        bw_round_weights<T>(scores, this->weights);
        give(this->shrink, true);
        if (last && room < tile_keys) this->clear_beyond(room);
        if (more) this->rescale();
        this->start_values(more);
        if (!last && !narrow) start_left_scores(this->tiles + 1);
        bw_products_wait<last || narrow ? 0 : 1>();
        bw_registers_hold(this->out);
        bw_registers_hold(this->weights);
        this->release();
        this->tiles++;
        if (!last && narrow) start_left_scores(this->tiles);
    }

    __device__ __forceinline__ void run(const bw_latent_segment &segment, T *to) {
        top[0] = top[1] = -INFINITY;
        sum[0] = sum[1] = 0.0f;
        choose_normal(segment);
        bw_barrier_wait(this->at.query_full(), this->rounds & 1);
        start_left_scores(this->tiles);
        finish_scores(this->tiles);
        int more = 0;
        for (int i = 1; i < segment.tiles; i++, more = 1) {
            step<false>(more, tile_keys);
            finish_scores(this->tiles);
            this->arrive(this->at.scores_done());
        }
        this->arrive(this->at.query_empty());
        step<true>(more, segment.keys - (segment.tile + segment.tiles - 1) * tile_keys);
        this->rounds++;
        const float total[2] = {bw_quad_sum(sum[0]), bw_quad_sum(sum[1])};
        const bool whole = segment.slot < 0;
        const float factor[2] = {1.0f / (whole ? normal * total[0] : normal),
                                 1.0f / (whole ? normal * total[1] : normal)};
        give(factor, false);
        this->store(to, segment, factor);
        if (whole || threadIdx.x % 4 != 0) return;
        const int first = (int)blockIdx.y * tile_heads;
        const int row = first + (int)threadIdx.x % bw_warpgroup / 32 * 16 + (int)threadIdx.x % 32 / 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (row + 8 * half >= this->work.heads) continue;
            this->work.stands[(int64_t)segment.slot * this->work.heads + row + 8 * half] =
                make_float2(top[half] * this->work.scale, total[half]);
        }
    }
};

template <bool pair, bool narrow, typename T>
struct latent_right : latent_consumer<pair, narrow, true, T> {
    uint32_t lagged;

    __device__ __forceinline__ void take(bool with_weights) {
        bw_barrier_wait(this->at.weights_full(), this->exchanges & 1);
        if (with_weights) {
#pragma unroll
            for (int i = 0; i < key_steps; i++) {
                const uint4 word = bw_spare_load(this->weights_word(i));
                this->weights[i][0] = word.x;
                this->weights[i][1] = word.y;
                this->weights[i][2] = word.z;
                this->weights[i][3] = word.w;
            }
        }
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(this->shrink[0]), "=f"(this->shrink[1])
                     : "r"(this->factors_word())
                     : "memory");
        __syncwarp();
        this->arrive(this->at.weights_empty());
        this->exchanges++;
    }

    // A tile, `room` of whose keys are there.
    __device__ __forceinline__ void step(int more, int room, bool lags) {
        take(true);
        this->wait_full(this->tiles, true);
        if (lags) bw_barrier_wait(this->at.scores_done(), lagged++ & 1);
        if (room < tile_keys) this->clear_beyond(room);
        if (more) this->rescale();
        this->start_values(more);
        bw_products_wait<0>();
        bw_registers_hold(this->out);
        bw_registers_hold(this->weights);
        this->release();
        this->tiles++;
    }

    __device__ __forceinline__ void run(const bw_latent_segment &segment, T *to, bool lags) {
        int more = 0;
        for (int i = 1; i < segment.tiles; i++, more = 1) step(more, tile_keys, lags);
        step(more, segment.keys - (segment.tile + segment.tiles - 1) * tile_keys, false);
        take(false);
        this->store(to, segment, this->shrink);
    }
};

// `cache_map` NULL: narrow.
template <bool pair, bool narrow, typename T>
BW_DEVICE void attend(const CUtensorMap &q_map, const CUtensorMap *cache_map, T *out, const bw_latent_work &work,
                      bool lags) {
    const uint32_t shared = bw_panels_shared();
    const latent_barriers at = {shared + barriers_at};
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(q_map);
        if (!narrow) bw_tensor_prefetch(*cache_map);
        bw_barrier_init(at.query_full(), 1);
        bw_barrier_init(at.query_empty(), 4);
        bw_barrier_init(at.weights_full(), 4);
        bw_barrier_init(at.weights_empty(), 4);
        bw_barrier_init(at.scores_done(), 4);
        for (int i = 0; i < 4; i++) {
            bw_barrier_init(at.full(i / 2, i % 2), narrow ? 4 : 1);
            bw_barrier_init(at.empty(i / 2, i % 2), pair ? 8 : 4);
        }
        for (int i = 0; i < 2; i++) bw_barrier_init(at.raw_full(i), 1);
        bw_barrier_publish();
    }
    __syncthreads();
    if constexpr (pair) {
        bw_cluster_arrive();
        bw_cluster_wait();
    }
    bw_latent_walk walk(work, (int)blockIdx.x);
    bw_latent_segment segment;
    const int group = __shfl_sync(bw_all_lanes, (int)threadIdx.x / bw_warpgroup, 0);
    if (group == 0) {
        bw_registers_fewer<narrow ? 40 : 24>();
        if constexpr (narrow) {
            produce_narrow(q_map, work, walk, shared, at);
        } else {
            if (threadIdx.x == 0) produce<pair>(q_map, *cache_map, work, walk, shared, at);
            __syncwarp();
        }
    } else if (group == 1) {
        bw_registers_more<narrow ? 232 : 240>();
        latent_left<pair, narrow, T> self = {{work, shared, at, 0, 0, 0}};
        while (walk.next_of_warp(work, (int)blockIdx.x, segment)) self.run(segment, out);
    } else {
        bw_registers_more<narrow ? 232 : 240>();
        latent_right<pair, narrow, T> self = {{work, shared, at, 0, 0, 0}};
        while (walk.next_of_warp(work, (int)blockIdx.x, segment)) self.run(segment, out, lags);
    }
    if constexpr (pair) {  // the other block may still write here
        bw_cluster_arrive();
        bw_cluster_wait();
    }
}

template <bool pair, typename T>
__global__ void __launch_bounds__(threads, 1)
    attention_latent_hopper_kernel(const __grid_constant__ CUtensorMap q_map, T *out,
                                   const __grid_constant__ bw_latent_work work, bool lags,
                                   const __grid_constant__ CUtensorMap cache_map) {
    attend<pair, false>(q_map, &cache_map, out, work, lags);
}

__global__ void __launch_bounds__(threads, 1)
    attention_latent_narrow_kernel(const __grid_constant__ CUtensorMap q_map, __half *out,
                                   const __grid_constant__ bw_latent_work work) {
    attend<false, true>(q_map, nullptr, out, work, false);
}

bw_tensor_view view_of(int operand, bw_dtype dtype, int64_t heads, int64_t keys, int64_t batch, int box_heads,
                       int box_keys) {
    bw_tensor_view view = {};
    view.operand = operand;
    view.dtype = dtype;
    view.rank = 4;
    view.extent[0] = bw_latent_key_dim;
    view.extent[1] = heads;
    view.extent[2] = keys;
    view.extent[3] = batch;
    view.stride[1] = 2 * bw_latent_key_dim;
    view.stride[2] = view.stride[1] * heads;
    view.stride[3] = view.stride[2] * keys;
    view.box[0] = panel_columns;
    view.box[1] = box_heads;
    view.box[2] = box_keys;
    view.box[3] = 1;
    return view;
}

bw_tensor_view query_view(bw_dtype dtype, const bw_latent_work &work) {
    return view_of(BW_ATTENTION_Q, dtype, work.heads, 1, work.batch, tile_heads, 1);
}

template <bool pair, typename T>
bw_cuda_kernel *choose(const bw_precision *precision, const bw_latent_plan &plan, const bw_latent_work &work, dim3 grid,
                       bw_cuda_launch_spec *out) {
    bw_cuda_kernel *kernel = bw_choose(
        out, attention_latent_hopper_kernel<pair, T>, grid, dim3(threads), shared_bytes,
        query_view(precision->result, work), bw_from_operand(BW_ATTENTION_OUT), work, plan.lags,
        view_of(BW_ATTENTION_K, precision->cache, 1, work.keys, work.batch, 1, pair ? tile_keys / 2 : tile_keys));
    if (pair) kernel->cluster = 2;
    return kernel;
}

}  // namespace

bw_status bw_latent_choose_main(const bw_precision *precision, const bw_latent_plan &plan, const bw_latent_work &work,
                                bw_cuda_launch_spec *out) {
    const int work_argument = 2;
    const dim3 grid((unsigned)plan.places, (unsigned)plan.chunks);
    return bw_cuda_by_half_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_cuda_kernel *kernel;
        if (precision->cache == BW_FP8_E4M3) {
            kernel = bw_choose(out, attention_latent_narrow_kernel, grid, dim3(threads), shared_bytes,
                               query_view(precision->result, work), bw_from_operand(BW_ATTENTION_OUT), work);
            bw_choose_place(kernel, work_argument, offsetof(bw_latent_work, rows), bw_from_operand(BW_ATTENTION_K));
            bw_choose_place(kernel, work_argument, offsetof(bw_latent_work, scales),
                            bw_from_operand(BW_ATTENTION_K_SCALE));
        } else {
            kernel = plan.pair ? choose<true, T>(precision, plan, work, grid, out)
                               : choose<false, T>(precision, plan, work, grid, out);
        }
        bw_latent_place(kernel, work_argument, plan, work.heads);
        return BW_OK;
    });
}
