// attention_decode on Hopper: the blocks that share a K/V head's keys are a cluster, whose shared memory takes the
// place of scratch. Each block pushes its sums to the block that adds up that part of the output, and nobody polls
// memory.
//   - keys as in direct.cu; a block's warps put their sums together in shared memory, four lanes to each four elements
//   - an asynchronous store counts its bytes at a barrier beside what it writes: one way, and it is there.
#include "cuda/kernels/attention/attention.h"
#include "cuda/kernels/attention/decode/direct/key_tiles.cuh"
#include "cuda/kernels/common/cluster.cuh"

namespace {

// What a block needs to find its keys comes first: parameters are read through a cache.
struct cluster_work {
    const void *k, *v, *q;
    int64_t batch_elems;  // of k and v
    int block_keys, keys;
    unsigned kv_heads;
    int group;
    const int *kv_lens;
    void *out;
    float scale;
};

constexpr int sharers = 4;  // lanes that add up the parts of four elements of a head's output: an item

template <int padded, int warps, int blocks>
struct cluster_memory {
    using cells_type = bw_decode_cells<group_heads, padded, 1, warps>;
    static constexpr int row_items = padded / 4, share = group_heads * row_items / blocks;  // items a block adds up
    float cells[warps * group_heads * (cells_type::stride + 2) + 4];
    float4 values[share * blocks];  // of this block's items, by each block
    float2 stands[share * blocks];  // maximum, sum of the weights
    uint64_t barrier;
};

// The block's part of each item, to the block whose item it is. Eight neighboring items a warp at a time.
template <typename Memory, int warps, int blocks>
BW_DEVICE void push_items(Memory &memory, const typename Memory::cells_type &cells, int rank, int items) {
    const int lane = (int)threadIdx.x % 32, sharer = lane / 8;
#pragma unroll 1
    for (int item = (int)threadIdx.x / 32 * 8 + lane % 8; item < items; item += warps * 8) {
        const int head = item / Memory::row_items, dim = item % Memory::row_items * 4;
        float part_top[warps / sharers], top = -INFINITY;
#pragma unroll
        for (int i = 0; i < warps / sharers; i++) {
            part_top[i] = cells.top[(i * sharers + sharer) * group_heads + head];
            top = fmaxf(top, part_top[i]);
        }
        top = fmaxf(top, __shfl_xor_sync(bw_all_lanes, top, 8));
        top = fmaxf(top, __shfl_xor_sync(bw_all_lanes, top, 16));
        bw_decode_sum sum = {top, 0.0f, {}};
#pragma unroll
        for (int i = 0; i < warps / sharers; i++) {
            const int at = (i * sharers + sharer) * group_heads + head;
            sum.add(*(const float4 *)&cells.out[at * cells.stride + dim], make_float2(part_top[i], cells.sum[at]));
        }
        sum.add_lane(8);
        sum.add_lane(16);
        const int owner = item / Memory::share, slot = item % Memory::share * blocks + rank;
        const uint32_t barrier = bw_cluster_address(bw_shared_address(&memory.barrier), owner);
        if (sharer == 0) {
            bw_cluster_push(bw_cluster_address(bw_shared_address(&memory.values[slot]), owner),
                            make_float4(sum.value[0], sum.value[1], sum.value[2], sum.value[3]), barrier);
        }
        if (sharer == 1) {
            bw_cluster_push(bw_cluster_address(bw_shared_address(&memory.stands[slot]), owner),
                            make_float2(top, sum.weight), barrier);
        }
    }
}

// This block's items: what all blocks pushed.
template <typename T, typename Memory, int blocks>
BW_DEVICE void add_items(const Memory &memory, int first, int end, T *out) {
    const int lane = (int)threadIdx.x % 32, sharer = lane % sharers;
    const int local = (int)threadIdx.x / sharers;
    if ((int)threadIdx.x / 32 * (32 / sharers) >= end - first) return;
    bw_cluster_wait_for_pushes(bw_shared_address(&memory.barrier));
    const int from = min(local, end - first - 1) * blocks + sharer;
    float2 stand[blocks / sharers];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < blocks / sharers; i++) {
        stand[i] = memory.stands[from + i * sharers];
        top = fmaxf(top, stand[i].x);
    }
    top = fmaxf(top, __shfl_xor_sync(bw_all_lanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(bw_all_lanes, top, 2));
    bw_decode_sum sum = {top, 0.0f, {}};
#pragma unroll
    for (int i = 0; i < blocks / sharers; i++) sum.add(memory.values[from + i * sharers], stand[i]);
    sum.add_lane(1);
    sum.add_lane(2);
    if (sharer != 0 || local >= end - first) return;
    const float inverse = __fdividef(1.0f, sum.weight);
    const float mean[4] = {sum.value[0] * inverse, sum.value[1] * inverse, sum.value[2] * inverse,
                           sum.value[3] * inverse};
    bw_decode_write(mean, {4, true}, 0, out + (first + local) * 4);
}

template <typename T, int padded, int tiles, int warps, int blocks, int resident>
__global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(warps * 32, resident)
    attention_decode_cluster_kernel(const __grid_constant__ cluster_work work) {
    using tile = key_tile<T, padded>;
    using memory_type = cluster_memory<padded, warps, blocks>;
    constexpr int pace = warps * tiles * tile_keys;
    __shared__ __align__(16) memory_type memory;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, r = lane / 4, c = lane % 4;
    const int rank = (int)blockIdx.x, group = work.group;
    const int first = rank * work.block_keys;
    int length = work.keys;
    if (work.kv_lens) length = min(max(work.kv_lens[blockIdx.z], 1), length);
    int left = min(length - first, work.block_keys) - warp * tiles * tile_keys;

    // Keys first: everything else happens while they are on their way.
    step_reader<T, padded, tiles> reader;
    reader.key_elems = (int)work.kv_heads * padded;
    reader.head_dim = padded;
    const int64_t at = (int64_t)blockIdx.z * work.batch_elems + (int64_t)(blockIdx.y * padded) +
                       (int64_t)(first + warp * tiles * tile_keys) * reader.key_elems;
    reader.from_k = (const T *)work.k + at + r * reader.key_elems + c * tile::per_load;
    reader.from_v = (const T *)work.v + at + tile::v_key(0, c) * reader.key_elems + r * tile::per_load;
    tile step[tiles];
    reader.load_k(step, left);
    typename tile::query query(memory.cells);
    const int64_t row0 = ((int64_t)blockIdx.z * work.kv_heads + blockIdx.y) * group;
    const T *from_q = (const T *)work.q + (row0 + min(r, group - 1)) * padded + c * tile::per_load;
#pragma unroll
    for (int j = 0; j < tile::k_chunks; j++) query.set(j, bw_load_cached(from_q + j * tile::k_chunk));
    reader.load_v(step, left);

    const int items = group * memory_type::row_items;
    const int own = rank * memory_type::share, own_end = min(own + memory_type::share, items);
    if (threadIdx.x == 0) {
        const uint32_t barrier = bw_shared_address(&memory.barrier);
        bw_barrier_init(barrier, 1);
        bw_barrier_publish();
    }
    __syncwarp();
    bw_cluster_arrive();

    decode_sums<padded> sums = {};
    walk_keys(reader, step, query, left, work.scale, sums, in_strides<pace>());
    const typename memory_type::cells_type cells(memory.cells, warps, warps, 0);
    spread<tile>(sums, cells);
    __syncthreads();
    bw_cluster_wait();  // all barriers are there
    if (threadIdx.x == 0) {
        bw_barrier_expect(bw_shared_address(&memory.barrier),
                          max(own_end - own, 0) * blocks * (int)(sizeof(float4) + sizeof(float2)));
    }
    push_items<memory_type, warps, blocks>(memory, cells, rank, items);
    add_items<T, memory_type, blocks>(memory, own, own_end, (T *)work.out + row0 * padded);
}

template <typename T, int padded, int tiles, int warps, int blocks, int resident>
bw_status choose(const bw_attention_shape &shape, bool ragged, bw_cuda_launch_spec *out) {
    cluster_work work = {};
    work.batch_elems = shape.keys * shape.kv_heads * shape.head_dim;
    work.keys = (int)shape.keys;
    // Whole steps, so that only an entry's last block has a part of one.
    work.block_keys = (int)(bw_ceil_div(bw_ceil_div(shape.keys, blocks), tile_keys) * tile_keys);
    work.kv_heads = (unsigned)shape.kv_heads;
    work.group = (int)shape.group;
    work.scale = shape.scale;
    bw_cuda_kernel *kernel =
        bw_choose(out, attention_decode_cluster_kernel<T, padded, tiles, warps, blocks, resident>,
                  dim3(blocks, (unsigned)shape.kv_heads, (unsigned)shape.batch), dim3(warps * 32), 0, work);
    kernel->wide_cluster = blocks > 8;
    bw_decode_place_operands<cluster_work>(kernel);
    bw_choose_place(kernel, 0, offsetof(cluster_work, kv_lens), bw_from_operand_if(ragged, BW_ATTENTION_KV_LENS));
    return BW_OK;
}

// A cluster of 16 takes most of a GPC, of up to 18 multiprocessors, for itself: 7 of them run at once on 132.
constexpr int64_t part_units = 18;

// Of how many blocks the clusters are: 16 where all of those run at once.
bool wide(const bw_attention_shape &shape, const bw_device_facts *facts) {
    return shape.batch * shape.kv_heads <= facts->units / part_units;
}

}  // namespace

const char *bw_decode_cluster_refuses(const bw_dims *dims, const bw_precision *precision,
                                      const bw_device_facts *facts) {
    const bw_attention_shape shape = bw_decode_shape(dims, precision->cache);
    if (!facts || !facts->own || facts->own->major != 9) return "clusters of blocks need compute capability 9.0";
    if (shape.head_dim != 64 && shape.head_dim != 128) return "head_dim must be 64 or 128";
    if (shape.group > 8) return "more than 8 query heads per K/V head";
    if (shape.keys > INT32_MAX / 2 || shape.kv_heads > 65535 || shape.batch > 65535) {
        return "2^30 keys, or 2^16 K/V heads or sequences, and more";
    }
    return nullptr;
}

// No shape was faster on an H200: 16 blocks of a cluster share what a GPC gets of memory, and where a block has a
// multiprocessor for itself, only 15 clusters of 8 run at once, and 7 of 16.
bool bw_splitkv_prefers(const bw_dims *, const bw_precision *, const bw_device_facts *) {
    return true;
}

bw_status bw_decode_cluster_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                   bw_cuda_launch_spec *out) {
    const bw_attention_shape shape = bw_decode_shape(dims, precision->cache);
    const bool ragged = dims->list != nullptr;
    return bw_cuda_by_half_type(precision->cache, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (shape.head_dim == 128) {
            return wide(shape, facts) ? choose<T, 128, 1, 8, 16, 1>(shape, ragged, out)
                                      : choose<T, 128, 1, 8, 8, 1>(shape, ragged, out);
        }
        return wide(shape, facts) ? choose<T, 64, 1, 16, 16, 1>(shape, ragged, out)
                                  : choose<T, 64, 2, 8, 8, 2>(shape, ragged, out);
    });
}
