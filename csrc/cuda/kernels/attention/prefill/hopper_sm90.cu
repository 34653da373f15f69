// attention_prefill on Hopper's tensor cores, FP16 and BF16, as hopper.cuh says; head_dim is padded to 64, 128, 192 or
// 256. Q, and K and V 128 keys at a time (96 and 64 of the wider two), two stages of each, come by TMA; what lies
// beyond a sequence or head_dim is zeros. V is read transposed by its descriptor.
#include "cuda/kernels/attention/attention.h"

#include "cuda/kernels/attention/prefill/hopper.cuh"
#include "cuda/kernels/attention/scores.cuh"

namespace {

constexpr int panel_columns = 64;  // of 16-bit elements

template <int padded, int consumers, int keys>
struct hopper_layout {
    static constexpr int stages = 2, tile_keys = keys;
    static constexpr int rows = 64 * consumers, threads = (1 + consumers) * bw_warpgroup;
    static constexpr int panels = padded / panel_columns;
    static constexpr int query_panel = rows * bw_panel_bytes, key_panel = keys * bw_panel_bytes;
    static constexpr int query_bytes = panels * query_panel, key_bytes = panels * key_panel;
    static constexpr int k_at = query_bytes, v_at = k_at + stages * key_bytes, barriers_at = v_at + stages * key_bytes;
    static constexpr int task_at = barriers_at + hopper_barriers<stages>::count * (int)sizeof(uint64_t);
    static constexpr int shared_bytes = bw_panels_spare + task_at + 16;
};

template <typename layout>
struct hopper_copies {
    const CUtensorMap &q_map, &k_map, &v_map;
    uint32_t shared;

    __device__ __forceinline__ void queries(uint32_t barrier, const hopper_task &task) const {
        bw_barrier_expect(barrier, layout::query_bytes);
#pragma unroll
        for (int i = 0; i < layout::panels; i++) {
            bw_tensor_load(shared + i * layout::query_panel, q_map, barrier, i * panel_columns, task.head, task.query0,
                           task.batch);
        }
    }
    __device__ __forceinline__ void tile(uint32_t to, const CUtensorMap &map, uint32_t barrier, const hopper_task &task,
                                         int kv_head, int tile) const {
        bw_barrier_expect(barrier, layout::key_bytes);
#pragma unroll
        for (int i = 0; i < layout::panels; i++) {
            bw_tensor_load(to + i * layout::key_panel, map, barrier, i * panel_columns, kv_head,
                           tile * layout::tile_keys, task.batch);
        }
    }
    __device__ __forceinline__ void keys(int stage, uint32_t barrier, const hopper_task &task, int kv_head,
                                         int number) const {
        tile(shared + layout::k_at + stage * layout::key_bytes, k_map, barrier, task, kv_head, number);
    }
    __device__ __forceinline__ void values(int stage, uint32_t barrier, const hopper_task &task, int kv_head,
                                           int number) const {
        tile(shared + layout::v_at + stage * layout::key_bytes, v_map, barrier, task, kv_head, number);
    }
};

// What a warpgroup's thread holds, and its place in the rings.
template <int padded, int consumers, int keys, typename T>
struct hopper_consumer {
    using layout = hopper_layout<padded, consumers, keys>;
    static constexpr int stages = layout::stages, key_steps = keys / 16;
    float out[padded / 8][4], scores[keys / 8][4];
    uint32_t weights[key_steps][4];
    float top[2], sum[2], shrink[2];
    uint32_t shared, used;  // tiles of K so far
    int group, reach[2];    // last key of the thread's rows
    float scale, slack;
    hopper_barriers<stages> barriers;

    __device__ __forceinline__ void begin(int64_t, int64_t, int, int) {
    }

    __device__ __forceinline__ void release(int stage, bool values) {
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barriers.empty(stage, values));
    }
    // Starts scores = Q K^T of the `used`th tile.
    __device__ __forceinline__ void start_scores() {
        const int stage = used % stages;
        const uint64_t q = bw_describe_rows(shared + group * 64 * bw_panel_bytes);
        const uint64_t k = bw_describe_rows(shared + layout::k_at + stage * layout::key_bytes);
        bw_registers_hold(scores);
        bw_products_begin();
#pragma unroll
        for (int i = 0; i < padded / 16; i++) {
            bw_product(scores, q + (i / 4 * layout::query_panel >> 4) + i % 4 * 2,
                       k + (i / 4 * layout::key_panel >> 4) + i % 4 * 2, i != 0, T());
        }
        bw_products_commit();
    }
    // Starts out += weights V of the tile before the `used`th.
    __device__ __forceinline__ void start_values(uint32_t tile, int more) {
        const int stage = tile % stages;
        const uint64_t v = bw_describe_columns(shared + layout::v_at + stage * layout::key_bytes, layout::key_panel);
        bw_registers_hold(out);
        bw_registers_hold(weights);
        bw_products_begin();
#pragma unroll
        for (int i = 0; i < key_steps; i++) {
            bw_product_transposed(out, weights[i], v + i * (16 * bw_panel_bytes >> 4), i != 0 || more, T());
        }
        bw_products_commit();
    }
    __device__ __forceinline__ void wait_values(uint32_t tile) {
        bw_barrier_wait(barriers.full(tile % stages, true), tile / stages & 1);
    }

    template <bool masked>
    __device__ __forceinline__ void update_softmax_of_tile(int tile) {
        const int room[2] = {reach[0] - tile * keys, reach[1] - tile * keys};
        bw_scores_to_weights<masked>(scores, room, scale, slack, top, sum, shrink);
    }

    __device__ __forceinline__ void first(int tile) {
        bw_barrier_wait(barriers.full(used % stages, false), used / stages & 1);
        start_scores();
        bw_products_wait<0>();
        bw_registers_hold(scores);
        release(used % stages, false);
        used++;
        update_softmax_of_tile<true>(tile);
        bw_round_weights<T>(scores, weights);
    }

    template <bool masked>
    __device__ __forceinline__ void next(int tile, int more) {
        bw_barrier_wait(barriers.full(used % stages, false), used / stages & 1);
        start_scores();
        wait_values(used - 1);
        start_values(used - 1, more);
        bw_products_wait<1>();
        bw_registers_hold(scores);
        release(used % stages, false);
        update_softmax_of_tile<masked>(tile);
        bw_products_wait<0>();
        bw_registers_hold(out);
        bw_registers_hold(weights);
        release((used - 1) % stages, true);
        used++;
        if (__any_sync(bw_all_lanes, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
            for (int n = 0; n < padded / 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) out[n][i] *= shrink[i / 2];
            }
        }
        bw_round_weights<T>(scores, weights);
    }

    __device__ __forceinline__ void last(int more) {
        wait_values(used - 1);
        start_values(used - 1, more);
        bw_products_wait<0>();
        bw_registers_hold(out);
        bw_registers_hold(weights);
        release((used - 1) % stages, true);
    }

    __device__ __forceinline__ void walk(int tiles, int open) {
        int tile = tiles - 1, more = 0;
        first(tile);
        for (tile--; tile >= open; tile--, more = 1) next<true>(tile, more);
        for (; tile >= 0; tile--, more = 1) next<false>(tile, more);
        // By the lane that has read the task. (An arrival by each thread takes 40 more instructions in each tile of
        // keys: the compiler then no longer knows that a warp's descriptors are the same.)
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barriers.query_empty());
        last(more);
    }
};

template <int padded, int consumers, int keys, typename T>
__global__ void __launch_bounds__(hopper_layout<padded, consumers, keys>::threads, 1)
    attention_hopper_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                            const __grid_constant__ CUtensorMap v_map, T *out, bw_attention_shape shape,
                            hopper_tasks tasks, hopper_counters *counters) {
    using layout = hopper_layout<padded, consumers, keys>;
    const uint32_t shared = bw_panels_shared();
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(q_map);
        bw_tensor_prefetch(k_map);
        bw_tensor_prefetch(v_map);
        hopper_barriers<layout::stages>{shared + layout::barriers_at}.init(consumers);
    }
    __syncthreads();
    if (threadIdx.x < bw_warpgroup) {
        bw_registers_fewer<consumers == 2 ? 24 : 32>();
        if (threadIdx.x == 0) {
            produce<layout>(hopper_copies<layout>{q_map, k_map, v_map, shared}, tasks, counters, shared);
        }
    } else {
        bw_registers_more<consumers == 2 ? 240 : 160>();
        hopper_consumer<padded, consumers, keys, T> self;
        self.scale = shape.scale;
        self.slack = bw_softmax_slack / shape.scale;
        consume(self, out, shape, shared);
    }
}

template <int padded, int consumers, int keys, typename T>
bw_status choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_device_facts *facts,
                 bw_cuda_launch_spec *out) {
    using layout = hopper_layout<padded, consumers, keys>;
    const hopper_tasks tasks = list_tasks<layout>(shape, sizeof(T), facts);
    bw_choose(out, attention_hopper_kernel<padded, consumers, keys, T>,
              dim3((unsigned)bw_min64(tasks.count, facts->units)), dim3(layout::threads), layout::shared_bytes,
              view_of(BW_ATTENTION_Q, dtype, shape, shape.heads, shape.queries, layout::rows),
              view_of(BW_ATTENTION_K, dtype, shape, shape.kv_heads, shape.keys, keys),
              view_of(BW_ATTENTION_V, dtype, shape, shape.kv_heads, shape.keys, keys),
              bw_from_operand(BW_ATTENTION_OUT), shape, tasks, bw_from_scratch(0));
    return BW_OK;
}

}  // namespace

const char *bw_hopper_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const bw_attention_shape shape = bw_prefill_shape(dims, bw_attention_kv_dtype(precision));
    if (!facts->own || facts->own->major != 9) return "wgmma and TMA need compute capability 9.0";
    if (!shape.vectors) return "head_dim must be a multiple of 8";
    if (shape.keys > INT32_MAX / 2 || shape.queries > INT32_MAX / 2) return "sequences of 2^30 tokens and more";
    if (bw_flash_refuses(dims, precision, facts)) return bw_flash_refuses(dims, precision, facts);
    const bw_tensor_view views[] = {
        view_of(BW_ATTENTION_Q, bw_attention_kv_dtype(precision), shape, shape.heads, shape.queries, 128),
        view_of(BW_ATTENTION_K, bw_attention_kv_dtype(precision), shape, shape.kv_heads, shape.keys, 128)};
    const char *refusal = bw_tensor_view_refuses(&views[0]);
    return refusal ? refusal : bw_tensor_view_refuses(&views[1]);
}

bw_status bw_hopper_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                           bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_prefill_shape(dims, bw_attention_kv_dtype(precision));
    return bw_cuda_by_half_type(bw_attention_kv_dtype(precision), [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (shape.head_dim > 192) return choose<256, 2, 64, T>(bw_attention_kv_dtype(precision), shape, facts, out);
        if (shape.head_dim > 128) return choose<192, 2, 96, T>(bw_attention_kv_dtype(precision), shape, facts, out);
        if (shape.head_dim > 64) return choose<128, 2, 128, T>(bw_attention_kv_dtype(precision), shape, facts, out);
        // Long tiles read K and V less often; short ones fill more multiprocessors.
        const int64_t long_tiles = shape.batch * shape.heads * bw_ceil_div(shape.queries, 192);
        if (long_tiles < 3 * facts->units)
            return choose<64, 2, 128, T>(bw_attention_kv_dtype(precision), shape, facts, out);
        return choose<64, 3, 128, T>(bw_attention_kv_dtype(precision), shape, facts, out);
    });
}

int64_t bw_hopper_scratch_bytes(const bw_dims *, const bw_precision *, const bw_device_facts *) {
    return sizeof(hopper_counters);
}

bw_status bw_hopper_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    BW_TRY(clear_counters(sets, set_count));
    return bw_cuda_prepare(sets, set_count, bw_hopper_choose, state);
}

bw_status bw_hopper_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, bw_hopper_choose, out);
}
