// attention_prefill on Hopper's tensor cores, FP16 and BF16; head_dim is padded to 64, 128, 192 or 256.
//   - a producer thread brings Q, and K and V 128 keys at a time (96 and 64 of the wider two), two stages of each, by
//     TMA; what lies beyond a sequence or head_dim is zeros;
//   - two warpgroups (three at head_dim up to 64) take 64 queries each: scores, weights and sums stay in their
//     registers, of which the producer's warpgroup gives up its share; V is read transposed by its descriptor;
//   - the scores of the next tile are worked out while this tile's weights multiply V, and softmax follows at once: it
//     falls into the other warpgroups' products (barriers for taking turns brought nothing);
//   - keys are walked from the last to the first: only the first few tiles have a mask; sums hardly ever have to be
//     scaled (bw_softmax_slack);
//   - a block per multiprocessor takes tile after tile of queries, the longest first, from a counter in the scratch;
//     the copies of the next begin while this one ends.
#include "cuda/kernels/attention/attention.h"

#include "cuda/kernels/attention/prefill/order.cuh"
#include "cuda/kernels/attention/scores.cuh"
#include "cuda/kernels/common/sm90.cuh"
#include "cuda/launch/choose.cuh"

namespace {

constexpr int stages = 2;
constexpr int panel_columns = 64;  // of 16-bit elements

template <int padded, int consumers, int keys>
struct hopper_layout {
    static constexpr int tile_keys = keys;
    static constexpr int rows = 64 * consumers, threads = (1 + consumers) * bw_warpgroup;
    static constexpr int panels = padded / panel_columns;
    static constexpr int query_panel = rows * bw_panel_bytes, key_panel = keys * bw_panel_bytes;
    static constexpr int query_bytes = panels * query_panel, key_bytes = panels * key_panel;
    static constexpr int k_at = query_bytes, v_at = k_at + stages * key_bytes, barriers_at = v_at + stages * key_bytes;
    static constexpr int barriers = 2 + 4 * stages;
    static constexpr int task_at = barriers_at + barriers * (int)sizeof(uint64_t);
    static constexpr int shared_bytes = bw_panels_spare + task_at + 16;
};

// Of one block: full ones wait for bytes, empty ones for all warps of the consumers.
struct hopper_barriers {
    uint32_t base;
    __device__ __forceinline__ uint32_t query_full() const {
        return base;
    }
    __device__ __forceinline__ uint32_t query_empty() const {
        return base + 8;
    }
    // Of K, or with `values` of V.
    __device__ __forceinline__ uint32_t full(int stage, bool values) const {
        return base + 16 + 8 * (stage + (values ? stages : 0));
    }
    __device__ __forceinline__ uint32_t empty(int stage, bool values) const {
        return full(stage, values) + 16 * stages;
    }
};

// A tile of queries of a head. The producer works it out, and the consumers read it from shared memory when Q is there.
struct hopper_task {
    int batch, head, query0;
    int tiles;  // of keys; 0: there is nothing left to do
};

BW_DEVICE void publish(uint32_t at, const hopper_task &task) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(task.batch), "r"(task.head),
                 "r"(task.query0), "r"(task.tiles)
                 : "memory");
}
BW_DEVICE hopper_task published(uint32_t at) {
    hopper_task task;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(task.batch), "=r"(task.head), "=r"(task.query0), "=r"(task.tiles)
                 : "r"(at)
                 : "memory");
    return task;
}

// The same for a warp, of which the first lane reads: the one that says later that it has been read.
BW_DEVICE hopper_task read_by_one(uint32_t at) {
    hopper_task task = {0, 0, 0, 0};
    if (threadIdx.x % 32 == 0) task = published(at);
    task.batch = __shfl_sync(bw_all_lanes, task.batch, 0);
    task.head = __shfl_sync(bw_all_lanes, task.head, 0);
    task.query0 = __shfl_sync(bw_all_lanes, task.query0, 0);
    task.tiles = __shfl_sync(bw_all_lanes, task.tiles, 0);
    return task;
}

// What the tasks are found from: all in int.
struct hopper_tasks {
    unsigned count, query_tiles, section, pairs, heads;  // as in bw_flash_order
    int queries, keys, group;
    bool causal;
};

template <typename layout>
BW_DEVICE hopper_task find_task(const hopper_tasks &tasks, unsigned index) {
    if (index >= tasks.count) return {0, 0, 0, 0};
    const unsigned first = index / (tasks.section * tasks.query_tiles) * tasks.section;
    const unsigned within = index - first * tasks.query_tiles, pairs = min(tasks.section, tasks.pairs - first);
    const unsigned pair = first + within % pairs;
    const int query0 = (int)(tasks.query_tiles - 1 - within / pairs) * layout::rows;
    const int key_end = tasks.causal ? min(tasks.keys, tasks.keys - tasks.queries + query0 + layout::rows) : tasks.keys;
    return {(int)(pair / tasks.heads), (int)(pair % tasks.heads), query0,
            (key_end + layout::tile_keys - 1) / layout::tile_keys};
}

// In the scratch, 0 before and after a launch: tasks that were taken beside each block's first; blocks that are done.
struct hopper_counters {
    unsigned taken, done;
};

BW_DEVICE void leave(hopper_counters *counters) {
    __threadfence();  // the block takes no task any more
    if (atomicAdd(&counters->done, 1) + 1 == gridDim.x) counters->taken = counters->done = 0;
}

template <typename layout>
BW_DEVICE void produce_tile(uint32_t to, const CUtensorMap &map, uint32_t barrier, const hopper_task &task, int kv_head,
                            int tile) {
    bw_barrier_expect(barrier, layout::key_bytes);
#pragma unroll
    for (int i = 0; i < layout::panels; i++) {
        bw_tensor_load(to + i * layout::key_panel, map, barrier, i * panel_columns, kv_head, tile * layout::tile_keys,
                       task.batch);
    }
}

template <int padded, int consumers, int keys>
BW_DEVICE void produce(const CUtensorMap &q_map, const CUtensorMap &k_map, const CUtensorMap &v_map,
                       const hopper_tasks &tasks, hopper_counters *counters, uint32_t shared,
                       const hopper_barriers &barriers) {
    using layout = hopper_layout<padded, consumers, keys>;
    uint32_t loaded = 0;  // tiles so far
    unsigned index = blockIdx.x;
    for (int round = 0;; round++) {
        const hopper_task task = find_task<layout>(tasks, index);
        const int kv_head = task.head / tasks.group;
        bw_barrier_wait(barriers.query_empty(), round & 1 ^ 1);
        publish(shared + layout::task_at, task);
        if (task.tiles == 0) break;
        bw_barrier_expect(barriers.query_full(), layout::query_bytes);
#pragma unroll
        for (int i = 0; i < layout::panels; i++) {
            bw_tensor_load(shared + i * layout::query_panel, q_map, barriers.query_full(), i * panel_columns, task.head,
                           task.query0, task.batch);
        }
        // V is one tile behind K: that is how they are needed.
        for (int i = 0; i <= task.tiles; i++) {
            const uint32_t k_count = loaded + i, v_count = k_count - 1;
            if (i < task.tiles) {
                const int stage = k_count % stages;
                bw_barrier_wait(barriers.empty(stage, false), k_count / stages & 1 ^ 1);
                produce_tile<layout>(shared + layout::k_at + stage * layout::key_bytes, k_map,
                                     barriers.full(stage, false), task, kv_head, task.tiles - 1 - i);
            }
            if (i > 0) {
                const int stage = v_count % stages;
                bw_barrier_wait(barriers.empty(stage, true), v_count / stages & 1 ^ 1);
                produce_tile<layout>(shared + layout::v_at + stage * layout::key_bytes, v_map,
                                     barriers.full(stage, true), task, kv_head, task.tiles - i);
            }
        }
        loaded += task.tiles;
        // Not before everything is on its way: who is done first takes the next.
        index = gridDim.x + atomicAdd(&counters->taken, 1);
    }
    bw_barrier_arrive(barriers.query_full());
    leave(counters);
}

// What a warpgroup's thread holds, and its place in the rings.
template <int padded, int consumers, int keys, typename T>
struct hopper_consumer {
    using layout = hopper_layout<padded, consumers, keys>;
    static constexpr int key_steps = keys / 16;
    float out[padded / 8][4], scores[keys / 8][4];
    uint32_t weights[key_steps][4];
    float top[2], sum[2], shrink[2];
    uint32_t shared, used;  // tiles of K so far
    int group, reach[2];    // last key of the thread's rows
    float scale, slack;
    hopper_barriers barriers;

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
};

template <int padded, int consumers, int keys, typename T>
BW_DEVICE void consume(T *out, const bw_attention_shape &shape, uint32_t shared, const hopper_barriers &barriers) {
    using layout = hopper_layout<padded, consumers, keys>;
    hopper_consumer<padded, consumers, keys, T> self;
    self.shared = shared;
    self.barriers = barriers;
    self.used = 0;
    self.scale = shape.scale;
    self.slack = bw_softmax_slack / shape.scale;
    self.group = __shfl_sync(bw_all_lanes, (int)threadIdx.x / bw_warpgroup - 1, 0);
    const int row = 64 * self.group + (int)threadIdx.x % bw_warpgroup / 32 * 16 + (int)threadIdx.x % 32 / 4;
    for (int round = 0;; round++) {
        bw_barrier_wait(barriers.query_full(), round & 1);
        const hopper_task task = read_by_one(shared + layout::task_at);
        if (task.tiles == 0) break;
        const int offset = (int)(shape.keys - shape.queries) + task.query0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            self.reach[half] = shape.causal ? min((int)shape.keys - 1, offset + row + 8 * half) : (int)shape.keys - 1;
            self.top[half] = -INFINITY;
            self.sum[half] = 0.0f;
        }
        // Tiles that end before the warpgroup's first row's last key need no mask.
        const int open = (shape.causal ? min((int)shape.keys, offset + 64 * self.group + 1) : (int)shape.keys) / keys;
        int tile = task.tiles - 1;
        self.first(tile);
        int more = 0;
        for (tile--; tile >= open; tile--, more = 1) self.template next<true>(tile, more);
        for (; tile >= 0; tile--, more = 1) self.template next<false>(tile, more);
        // By the lane that has read the task. (An arrival by each thread takes 40 more instructions in each tile of
        // keys: the compiler then no longer knows that a warp's descriptors are the same.)
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barriers.query_empty());
        self.last(more);
        const float factor[2] = {1.0f / bw_quad_sum(self.sum[0]), 1.0f / bw_quad_sum(self.sum[1])};
        const int64_t stride = shape.heads * shape.head_dim;
        T *to = out + (task.batch * shape.queries + task.query0) * stride + (int64_t)task.head * shape.head_dim;
        const int rows = (int)min((int64_t)layout::rows, shape.queries - task.query0);
        bw_store_fragment(self.out, to, stride, row, rows, shape.head_dim, factor);
    }
}

template <int padded, int consumers, int keys, typename T>
__global__ void __launch_bounds__(hopper_layout<padded, consumers, keys>::threads, 1)
    attention_hopper_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                            const __grid_constant__ CUtensorMap v_map, T *out, bw_attention_shape shape,
                            hopper_tasks tasks, hopper_counters *counters) {
    using layout = hopper_layout<padded, consumers, keys>;
    const uint32_t shared = bw_panels_shared();
    const hopper_barriers barriers = {shared + layout::barriers_at};
    if (threadIdx.x == 0) {
        bw_tensor_prefetch(q_map);
        bw_tensor_prefetch(k_map);
        bw_tensor_prefetch(v_map);
        bw_barrier_init(barriers.query_full(), 1);
        bw_barrier_init(barriers.query_empty(), 4 * consumers);
        for (int i = 0; i < 2 * stages; i++) {
            bw_barrier_init(barriers.full(i, false), 1);
            bw_barrier_init(barriers.empty(i, false), 4 * consumers);
        }
        bw_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < bw_warpgroup) {
        bw_registers_fewer<consumers == 2 ? 24 : 32>();
        if (threadIdx.x == 0) {
            produce<padded, consumers, keys>(q_map, k_map, v_map, tasks, counters, shared, barriers);
        }
    } else {
        bw_registers_more<consumers == 2 ? 240 : 160>();
        consume<padded, consumers, keys>(out, shape, shared, barriers);
    }
}

bw_tensor_view view_of(int operand, bw_dtype dtype, const bw_attention_shape &shape, int64_t heads, int64_t length,
                       int box_rows) {
    bw_tensor_view view = {};
    view.operand = operand;
    view.dtype = dtype;
    view.rank = 4;
    view.extent[0] = shape.head_dim;
    view.extent[1] = heads;
    view.extent[2] = length;
    view.extent[3] = shape.batch;
    view.stride[1] = 2 * shape.head_dim;
    view.stride[2] = view.stride[1] * heads;
    view.stride[3] = view.stride[2] * length;
    view.box[0] = panel_columns;
    view.box[1] = view.box[3] = 1;
    view.box[2] = box_rows;
    return view;
}

template <int padded, int consumers, int keys, typename T>
bw_status choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_device_facts *facts,
                 bw_cuda_launch_spec *out) {
    using layout = hopper_layout<padded, consumers, keys>;
    const int64_t query_tiles = bw_ceil_div(shape.queries, layout::rows);
    const bw_flash_order order = bw_flash_order_make(shape, query_tiles, sizeof(T), facts->cache_bytes, 0);
    const int64_t pairs = shape.batch * shape.heads, count = query_tiles * pairs;
    const hopper_tasks tasks = {(unsigned)count, (unsigned)query_tiles, (unsigned)order.section,
                                (unsigned)pairs, (unsigned)shape.heads, (int)shape.queries,
                                (int)shape.keys, (int)shape.group,      shape.causal};
    bw_choose(out, attention_hopper_kernel<padded, consumers, keys, T>, dim3((unsigned)bw_min64(count, facts->units)),
              dim3(layout::threads), layout::shared_bytes,
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
    bw_device *device = sets[0].device;
    for (int64_t i = 0; i < set_count; i++) {
        BW_TRY(BW_CUDA(&device->api, memory_set(sets[i].scratch, 0, sizeof(hopper_counters), device->stream)));
    }
    BW_TRY(BW_CUDA(&device->api, stream_synchronize(device->stream)));
    return bw_cuda_prepare(sets, set_count, bw_hopper_choose, state);
}

bw_status bw_hopper_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    return bw_cuda_describe(device, dims, precision, bw_hopper_choose, out);
}
