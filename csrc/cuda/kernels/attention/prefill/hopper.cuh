// What the kernels of prefill on Hopper share: how a block's warpgroups divide the work.
//   - a producer thread brings K and V, a tile of keys at a time, in rings of stages;
//   - two warpgroups (three at head_dim up to 64) take 64 queries each: scores, weights and sums stay in their
//     registers, of which the producer's warpgroup gives up its share;
//   - keys are walked from the last to the first: only the first few tiles have a mask, and sums hardly ever have to be
//     scaled;
//   - a block per multiprocessor takes tile after tile of queries, the longest first, from a counter in the scratch;
//     the copies of the next begin while this one ends.
#pragma once

#include "cuda/kernels/attention/prefill/order.cuh"
#include "cuda/kernels/common/sm90.cuh"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/kernels/common/swizzled_tile.cuh"
#include "cuda/launch/choose.cuh"

namespace {

// Of one block: full ones wait for bytes, empty ones for all warps of the consumers.
template <int stages>
struct hopper_barriers {
    static constexpr int count = 2 + 4 * stages;
    uint32_t base;
    __device__ __forceinline__ void init(int consumers) const {
        bw_barrier_init(query_full(), 1);
        bw_barrier_init(query_empty(), 4 * consumers);
        for (int i = 0; i < stages; i++) {
            for (int values = 0; values < 2; values++) {
                bw_barrier_init(full(i, values), 1);
                bw_barrier_init(empty(i, values), 4 * consumers);
            }
        }
        bw_barrier_publish();
    }
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

template <typename layout>
hopper_tasks list_tasks(const bw_attention_shape &shape, int64_t element_bytes, const bw_device_facts *facts) {
    const int64_t query_tiles = bw_ceil_div(shape.queries, layout::rows), pairs = shape.batch * shape.heads;
    const bw_flash_order order = bw_flash_order_make(shape, query_tiles, element_bytes, facts->cache_bytes, 0);
    return {(unsigned)(query_tiles * pairs),
            (unsigned)query_tiles,
            (unsigned)order.section,
            (unsigned)pairs,
            (unsigned)shape.heads,
            (int)shape.queries,
            (int)shape.keys,
            (int)shape.group,
            shape.causal};
}

// In the scratch, 0 before and after a launch: tasks that were taken beside each block's first; blocks that are done.
struct hopper_counters {
    unsigned taken, done;
};

BW_DEVICE void leave(hopper_counters *counters) {
    __threadfence();  // the block takes no task any more
    if (atomicAdd(&counters->done, 1) + 1 == gridDim.x) counters->taken = counters->done = 0;
}

// The producer's thread. `copies` start those of a task's queries, and of a tile's keys and values into a stage.
template <typename layout, typename Copies>
BW_DEVICE void produce(const Copies &copies, const hopper_tasks &tasks, hopper_counters *counters, uint32_t shared) {
    constexpr int stages = layout::stages;
    const hopper_barriers<stages> barriers = {shared + layout::barriers_at};
    uint32_t loaded = 0;  // tiles so far
    unsigned index = blockIdx.x;
    for (int round = 0;; round++) {
        const hopper_task task = find_task<layout>(tasks, index);
        const int kv_head = task.head / tasks.group;
        bw_barrier_wait(barriers.query_empty(), round & 1 ^ 1);
        publish(shared + layout::task_at, task);
        if (task.tiles == 0) break;
        copies.queries(barriers.query_full(), task);
        // V is one tile behind K: that is how they are needed.
        for (int i = 0; i <= task.tiles; i++) {
            const uint32_t k_count = loaded + i, v_count = k_count - 1;
            if (i < task.tiles) {
                const int stage = k_count % stages;
                bw_barrier_wait(barriers.empty(stage, false), k_count / stages & 1 ^ 1);
                copies.keys(stage, barriers.full(stage, false), task, kv_head, task.tiles - 1 - i);
            }
            if (i > 0) {
                const int stage = v_count % stages;
                bw_barrier_wait(barriers.empty(stage, true), v_count / stages & 1 ^ 1);
                copies.values(stage, barriers.full(stage, true), task, kv_head, task.tiles - i);
            }
        }
        loaded += task.tiles;
        // Not before everything is on its way: who is done first takes the next.
        index = gridDim.x + atomicAdd(&counters->taken, 1);
    }
    bw_barrier_arrive(barriers.query_full());
    leave(counters);
}

// A consumer's thread, until there is no task left. Consumer is what it holds, and how it walks a task's tiles of keys.
template <typename Consumer, typename T>
BW_DEVICE void consume(Consumer &self, T *out, const bw_attention_shape &shape, uint32_t shared) {
    using layout = typename Consumer::layout;
    self.shared = shared;
    self.barriers = {shared + layout::barriers_at};
    self.used = 0;
    self.group = __shfl_sync(bw_all_lanes, (int)threadIdx.x / bw_warpgroup - 1, 0);
    const int row = 64 * self.group + (int)threadIdx.x % bw_warpgroup / 32 * 16 + (int)threadIdx.x % 32 / 4;
    for (int round = 0;; round++) {
        bw_barrier_wait(self.barriers.query_full(), round & 1);
        const hopper_task task = read_by_one(shared + layout::task_at);
        if (task.tiles == 0) break;
        const int offset = (int)(shape.keys - shape.queries) + task.query0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            self.reach[half] = shape.causal ? min((int)shape.keys - 1, offset + row + 8 * half) : (int)shape.keys - 1;
            self.top[half] = -INFINITY;
            self.sum[half] = 0.0f;
        }
        const int rows = (int)min((int64_t)layout::rows, shape.queries - task.query0);
        const int64_t stride = shape.heads * shape.head_dim;
        const int64_t at = (task.batch * shape.queries + task.query0) * stride + (int64_t)task.head * shape.head_dim;
        self.begin(at, stride, row, rows);
        // Tiles that end before the warpgroup's first row's last key need no mask.
        const int open = (shape.causal ? min((int)shape.keys, offset + 64 * self.group + 1) : (int)shape.keys);
        self.walk(task.tiles, open / layout::tile_keys);
        const float factor[2] = {1.0f / bw_quad_sum(self.sum[0]), 1.0f / bw_quad_sum(self.sum[1])};
        bw_store_fragment(self.out, out + at, stride, row, rows, shape.head_dim, factor);
    }
}

bw_status clear_counters(const bw_launch *sets, int64_t set_count) {
    bw_device *device = sets[0].device;
    for (int64_t i = 0; i < set_count; i++) {
        BW_TRY(BW_CUDA(&device->api, memory_set(sets[i].scratch, 0, sizeof(hopper_counters), device->stream)));
    }
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

// A panel of (batch, length, heads, head_dim), `box_rows` of one head.
bw_tensor_view view_of(int operand, bw_dtype dtype, const bw_attention_shape &shape, int64_t heads, int64_t length,
                       int box_rows) {
    const int bytes = bw_dtype_get(dtype)->block_bytes;
    bw_tensor_view view = {};
    view.operand = operand;
    view.dtype = dtype;
    view.rank = 4;
    view.extent[0] = shape.head_dim;
    view.extent[1] = heads;
    view.extent[2] = length;
    view.extent[3] = shape.batch;
    view.stride[1] = bytes * shape.head_dim;
    view.stride[2] = view.stride[1] * heads;
    view.stride[3] = view.stride[2] * length;
    view.box[0] = bw_panel_bytes / bytes;
    view.box[1] = view.box[3] = 1;
    view.box[2] = box_rows;
    return view;
}

}  // namespace
