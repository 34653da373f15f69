// mla_decode on Hopper's tensor cores, FP16 and BF16, rows of 512 + 64 elements: a block takes 64 query heads, 64 keys
// at a time, of which 73 728 bytes are K and V at once, for the tiles that are its part (plan.h).
//   - a producer thread brings Q and the tiles, two of these, by TMA: what a block needs again for V stays. What holds
//     products up is L2, which all blocks read at once, so that a tile's panels are asked for again as soon as they are
//     read, and a product with one starts as soon as it is there;
//   - the first warpgroup works out scores and softmax, and the left half of the output, 64 x 256 in registers; the
//     second one the right half, with the weights that the first has left in shared memory. A thread of either holds
//     the same heads and keys, so that these are just the registers of a thread for its like;
//   - the second warpgroup stays behind by the next tile's scores, so that its product falls into the first one's
//     softmax (5 % of the time with 128 heads). The right half of a tile is then used longer than the left one: it is
//     waited for last, and given back in two steps;
//   - blocks that have an entry's parts add these up in a cluster, before what is left goes to scratch (combine.cu);
//   - rows of FP8 (`narrow`) come as they are to where FP16 will lie. The producer's warpgroup makes that of them,
//     exactly. A token's scale multiplies its scores, and then its weights.
// (No faster: two blocks of different heads that bring one tile for both; tiles that are asked for in L2 beforehand; a
// softmax of both rows of a thread at once. Takes 1.9 times as long: FP8 that comes to registers a tile ahead.)
#include "cuda/kernels/attention/latent/narrow.cuh"
#include "cuda/kernels/attention/scores.cuh"
#include "cuda/launch/choose.cuh"

namespace {

BW_DEVICE void store_two(uint32_t to, float2 two) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(two.x), "f"(two.y) : "memory");
}

BW_DEVICE void produce(const CUtensorMap &q_map, const CUtensorMap &cache_map, const bw_latent_work &work,
                       bw_latent_walk walk, uint32_t shared, const latent_barriers &at) {
    bw_latent_segment segment;
    uint32_t n = 0;  // tiles so far
    for (uint32_t round = 0; walk.next(work, (int)blockIdx.y, segment); round++) {
        load_queries(q_map, segment.entry, round, shared, at);
        for (int i = 0; i < segment.tiles; i++, n++) {
            const int stage = n % stages, key = (segment.tile + i) * tile_keys;
            const uint32_t tile = shared + tiles_at + stage * tile_bytes;
            for (int group = 0; group < groups; group++) {
                bw_barrier_wait(at.empty(stage, group), n / stages & 1 ^ 1);
                for (int p = 0; p < panels_of(group); p++) {
                    const int panel = panel_of(group, p);
                    bw_barrier_expect(at.full(stage, panel), panel_bytes);
                    bw_tensor_load(tile + panel * panel_bytes, cache_map, at.full(stage, panel), panel * panel_columns,
                                   0, key, segment.entry);
                }
            }
        }
    }
}

// What both consumers do; `right` says which half of the output is theirs.
template <bool narrow, bool right, typename T>
struct latent_consumer {
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
    __device__ __forceinline__ void wait_full(uint32_t tile, int panel) {
        bw_barrier_wait(at.full(tile % stages, panel), tile / stages & 1);
    }
    // By each warp.
    __device__ __forceinline__ void release(int group) {
        arrive(at.empty(stage(), group));
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
    // Starts columns of out += weights V of the tile, from a panel on.
    template <int eights>
    __device__ __forceinline__ void start_values(float (&columns)[eights][4], int panel, int more) {
        const uint64_t v = bw_describe_once(bw_describe_columns(tile_at(tiles) + panel * panel_bytes, panel_bytes));
#pragma unroll
        for (int i = 0; i < key_steps; i++) {
            bw_product_transposed(columns, weights[i], bw_describe_step(v, i * (16 * bw_panel_bytes >> 4)),
                                  i != 0 || more, T());
        }
        bw_products_commit();
    }
    __device__ __forceinline__ void hold_values() {
        bw_registers_hold(out);
        bw_registers_hold(weights);
    }
    // The half of the output, or of a part of it, times `factor`.
    __device__ __forceinline__ void store(T *to, const bw_latent_segment &segment, const float (&factor)[2]) {
        const int first = (int)blockIdx.x * tile_heads, rows = min(tile_heads, work.heads - first);
        const int row = lane_row();
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
    __device__ __forceinline__ int lane_row() const {
        return (int)threadIdx.x % bw_warpgroup / 32 * 16 + (int)threadIdx.x % 32 / 4;
    }
    __device__ __forceinline__ void store_stand(const bw_latent_segment &segment, const float2 (&stand)[2]) {
        if constexpr (!right) {
            if (segment.slot < 0 || threadIdx.x % 4 != 0) return;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int head = (int)blockIdx.x * tile_heads + lane_row() + 8 * half;
                if (head < work.heads) work.stands[(int64_t)segment.slot * work.heads + head] = stand[half];
            }
        }
    }

    // The same where a cluster's blocks have parts of one entry: each adds up some columns of all of them, that the
    // others push into its shared memory where tiles were. Their rows' stands are there when all have come here.
    __device__ __forceinline__ void store_cluster(T *to, const bw_latent_segment &segment, float normal) {
        const int blocks = work.cluster, rank = (int)blockIdx.y % blocks, own = value_panels * 8 / blocks;
        const int thread = (int)threadIdx.x % bw_warpgroup, row = lane_row();
        bw_cluster_sync();
        float2 whole[2] = {{-INFINITY, 0.0f}, {-INFINITY, 0.0f}};
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t stand = shared + stands_at + (row + 8 * half) * (int)sizeof(float2);
            float2 mine = make_float2(0.0f, 0.0f);
            for (int i = 0; i < blocks; i++) {
                const float2 other = bw_cluster_load(bw_cluster_address(stand, i));
                const float top = fmaxf(whole[half].x, other.x), reference = bw_softmax_reference(top);
                whole[half].y =
                    whole[half].y * bw_exp2(whole[half].x - reference) + other.y * bw_exp2(other.x - reference);
                whole[half].x = top;
                if (i == rank) mine = other;
            }
            factor[half] = bw_exp2(mine.x - bw_softmax_reference(whole[half].x)) / normal;
        }
#pragma unroll
        for (int n = 0; n < half_columns / 8; n++) {
            const int column = n + (right ? half_columns / 8 : 0), block = column / own;
            const uint32_t place = shared + tiles_at + ((rank * own + column % own) * bw_warpgroup + thread) * 16;
            bw_cluster_push(
                bw_cluster_address(place, block),
                make_float4(out[n][0] * factor[0], out[n][1] * factor[0], out[n][2] * factor[1], out[n][3] * factor[1]),
                bw_cluster_address(at.gathered(), block));
        }
        bw_cluster_wait_for_pushes(at.gathered());
        const int first = (int)blockIdx.x * tile_heads;
        for (int n = right ? own / 2 : 0; n < (right ? own : own / 2); n++) {
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            for (int i = 0; i < blocks; i++) {
                const uint4 bits = bw_spare_load(shared + tiles_at + ((i * own + n) * bw_warpgroup + thread) * 16);
                sum.x += __uint_as_float(bits.x);
                sum.y += __uint_as_float(bits.y);
                sum.z += __uint_as_float(bits.z);
                sum.w += __uint_as_float(bits.w);
            }
            const int column = (rank * own + n) * 8 + (int)threadIdx.x % 4 * 2;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int head = first + row + 8 * half;
                const float left = half == 0 ? sum.x : sum.z, next = half == 0 ? sum.y : sum.w;
                if (head >= work.heads) continue;
                if (segment.slot < 0) {
                    const float inverse = 1.0f / whole[half].y;
                    *(uint32_t *)&to[((int64_t)segment.entry * work.heads + head) * bw_latent_dim + column] =
                        bw_pack_pair(left * inverse, next * inverse, T());
                } else {
                    *(float2 *)&work.values[((int64_t)segment.slot * work.heads + head) * bw_latent_dim + column] =
                        make_float2(left, next);
                }
            }
        }
        if (rank == 0) store_stand(segment, whole);
    }
};

template <bool narrow, typename T>
struct latent_left : latent_consumer<narrow, false, T> {
    float scores[tile_keys / 8][4], top[2], sum[2], normal;

    // Starts scores (+)= Q K^T, over so many panels of a tile from `panel` on, each as soon as it is there.
    __device__ __forceinline__ void start_scores(uint32_t tile, int panel, int count, bool more) {
        const uint64_t q = bw_describe_once(bw_describe_rows(this->shared));
        const uint64_t k = bw_describe_once(bw_describe_rows(this->tile_at(tile)));
#pragma unroll
        for (int p = panel; p < panel + count; p++) {
            this->wait_full(tile, p);
            bw_products_begin();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int step = (p * panel_bytes >> 4) + 2 * i;
                bw_product(scores, bw_describe_step(q, step), bw_describe_step(k, step), more || p > panel || i > 0,
                           T());
            }
            bw_products_commit();
        }
    }
    __device__ __forceinline__ void start_left_scores(uint32_t tile) {
        bw_registers_hold(scores);
        start_scores(tile, 0, half_panels, false);
        start_scores(tile, value_panels, 1, true);
    }
    __device__ __forceinline__ void finish_scores(uint32_t tile) {
        start_scores(tile, half_panels, half_panels, true);
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
        store_two(this->factors_word(), make_float2(factor[0], factor[1]));
        bw_barrier_arrive(this->at.weights_full());
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
            const uint32_t from =
                this->shared + scales_at + this->stage() * scales_bytes + (int)threadIdx.x % 4 * (int)sizeof(float2);
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
        this->hold_values();
        bw_products_begin();
        this->start_values(this->out, 0, more);
        if (!last) start_left_scores(this->tiles + 1);
        bw_products_wait<last ? 0 : panels_of(0)>();
        this->hold_values();
        this->release(0);
        this->tiles++;
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
        const float2 stand[2] = {{top[0] * this->work.scale, bw_quad_sum(sum[0])},
                                 {top[1] * this->work.scale, bw_quad_sum(sum[1])}};
        const bool whole = segment.slot < 0 && this->work.cluster == 1;
        const float factor[2] = {1.0f / (whole ? normal * stand[0].y : normal),
                                 1.0f / (whole ? normal * stand[1].y : normal)};
        give(factor, false);
        if (this->work.cluster > 1) {
            if (threadIdx.x % 4 == 0) {
                store_two(this->shared + stands_at + this->lane_row() * (int)sizeof(float2), stand[0]);
                store_two(this->shared + stands_at + (this->lane_row() + 8) * (int)sizeof(float2), stand[1]);
            }
            this->store_cluster(to, segment, normal);
            return;
        }
        this->store(to, segment, factor);
        this->store_stand(segment, stand);
    }
};

template <bool narrow, typename T>
struct latent_right : latent_consumer<narrow, true, T> {
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
        bw_barrier_arrive(this->at.weights_empty());
        this->exchanges++;
    }

    // A tile, `room` of whose keys are there.
    __device__ __forceinline__ void step(int more, int room, bool last) {
        take(true);
        for (int p = half_panels; p < value_panels; p++) this->wait_full(this->tiles, p);
        if (!last) bw_barrier_wait(this->at.scores_done(), lagged++ & 1);
        if (room < tile_keys) this->clear_beyond(room);
        if (more) this->rescale();
        constexpr int half = half_columns / 8 / 2;
        this->hold_values();
        bw_products_begin();
        this->start_values(reinterpret_cast<float(&)[half][4]>(this->out[0]), half_panels, more);
        this->start_values(reinterpret_cast<float(&)[half][4]>(this->out[half]), half_panels + 2, more);
        bw_products_wait<1>();
        this->release(1);
        bw_products_wait<0>();
        this->hold_values();
        this->release(2);
        this->tiles++;
    }

    __device__ __forceinline__ void run(const bw_latent_segment &segment, T *to) {
        int more = 0;
        for (int i = 1; i < segment.tiles; i++, more = 1) step(more, tile_keys, false);
        step(more, segment.keys - (segment.tile + segment.tiles - 1) * tile_keys, true);
        take(false);
        if (this->work.cluster > 1) {
            this->store_cluster(to, segment, 1.0f / this->shrink[0]);
        } else {
            this->store(to, segment, this->shrink);
        }
    }
};

template <bool narrow, typename T>
BW_DEVICE void attend(const CUtensorMap &q_map, const CUtensorMap &cache_map, T *out, const bw_latent_work &work) {
    const uint32_t shared = bw_panels_shared();
    const latent_barriers at = {shared + barriers_at};
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(q_map);
        bw_tensor_prefetch(cache_map);
        bw_barrier_init(at.query_full(), 1);
        bw_barrier_init(at.query_empty(), 4);
        bw_barrier_init(at.weights_full(), bw_warpgroup);
        bw_barrier_init(at.weights_empty(), bw_warpgroup);
        bw_barrier_init(at.scores_done(), 4);
        for (int i = 0; i < stages * panels; i++) bw_barrier_init(at.full(0, i), narrow ? 4 : 1);
        for (int i = 0; i < stages * groups; i++) {
            bw_barrier_init(at.empty(0, i), 4);
            bw_barrier_init(at.raw_full(0, i), 1);
        }
        bw_barrier_init(at.gathered(), 1);
        bw_barrier_publish();
        if (work.cluster > 1) bw_barrier_expect(at.gathered(), gathered_bytes);
    }
    __syncthreads();
    bw_latent_walk walk(work, (int)blockIdx.y);
    bw_latent_segment segment;
    const int group = __shfl_sync(bw_all_lanes, (int)threadIdx.x / bw_warpgroup, 0);
    if (group == 0) {
        bw_registers_fewer<narrow ? 72 : 24>();
        if constexpr (narrow) {
            produce_narrow(q_map, cache_map, work, walk, shared, at);
        } else {
            if (threadIdx.x == 0) produce(q_map, cache_map, work, walk, shared, at);
            __syncwarp();
        }
    } else if (group == 1) {
        bw_registers_more<narrow ? 216 : 240>();
        latent_left<narrow, T> self = {{work, shared, at, 0, 0, 0}};
        while (walk.next_of_warp(work, (int)blockIdx.y, segment)) self.run(segment, out);
    } else {
        bw_registers_more<narrow ? 216 : 240>();
        latent_right<narrow, T> self = {{work, shared, at, 0, 0, 0}};
        while (walk.next_of_warp(work, (int)blockIdx.y, segment)) self.run(segment, out);
    }
}

template <typename T>
__global__ void __launch_bounds__(threads, 1)
    attention_latent_hopper_kernel(const __grid_constant__ CUtensorMap q_map, T *out,
                                   const __grid_constant__ bw_latent_work work,
                                   const __grid_constant__ CUtensorMap cache_map) {
    attend<false>(q_map, cache_map, out, work);
}

__global__ void __launch_bounds__(threads, 1)
    attention_latent_narrow_kernel(const __grid_constant__ CUtensorMap q_map, __half *out,
                                   const __grid_constant__ bw_latent_work work,
                                   const __grid_constant__ CUtensorMap cache_map) {
    attend<true>(q_map, cache_map, out, work);
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
    view.stride[1] = bw_latent_key_dim * (dtype == BW_FP8_E4M3 ? 1 : 2);
    view.stride[2] = view.stride[1] * heads;
    view.stride[3] = view.stride[2] * keys;
    view.box[0] = bw_panel_bytes / (view.stride[1] / bw_latent_key_dim);
    view.box[1] = box_heads;
    view.box[2] = box_keys;
    view.box[3] = 1;
    return view;
}

bw_tensor_view query_view(bw_dtype dtype, const bw_latent_work &work) {
    return view_of(BW_ATTENTION_Q, dtype, work.heads, 1, work.batch, tile_heads, 1);
}

}  // namespace

bw_status bw_latent_choose_main(const bw_precision *precision, const bw_latent_plan &plan, const bw_latent_work &work,
                                bw_cuda_launch_spec *out) {
    const int work_argument = 2;
    const dim3 grid((unsigned)plan.chunks, (unsigned)plan.places);
    return bw_cuda_by_half_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        bw_cuda_kernel *kernel;
        const bw_tensor_view cache = view_of(BW_ATTENTION_K, precision->cache, 1, work.keys, work.batch, 1, tile_keys);
        if (precision->cache == BW_FP8_E4M3) {
            kernel = bw_choose(out, attention_latent_narrow_kernel, grid, dim3(threads), shared_bytes,
                               query_view(precision->result, work), bw_from_operand(BW_ATTENTION_OUT), work, cache);
            bw_choose_place(kernel, work_argument, offsetof(bw_latent_work, scales),
                            bw_from_operand(BW_ATTENTION_K_SCALE));
        } else {
            kernel = bw_choose(out, attention_latent_hopper_kernel<T>, grid, dim3(threads), shared_bytes,
                               query_view(precision->result, work), bw_from_operand(BW_ATTENTION_OUT), work, cache);
        }
        if (plan.cluster > 1) kernel->cluster = plan.cluster;
        bw_latent_place(kernel, work_argument, plan, work.heads);
        return BW_OK;
    });
}
