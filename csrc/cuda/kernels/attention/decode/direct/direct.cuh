// attention_decode for up to 8 query heads per K/V head: K and V go from memory straight into the registers of matrix
// instructions, as their tall operand, and the group's heads are the 8 columns. No element waits in shared memory, none
// is read twice, and nothing but memory's own latency stands between a launch and its scores.
// (No faster on an H200: keys by TMA's boxes, bulk copies or cp.async; steps dealt to splits in turn; a warp that runs
// the end's code beforehand; other cache policies.)
//   - a warp meets `tiles` x 16 keys at a time; as soon as a tile's keys are used, the next step's are asked for;
//   - where an entry's blocks have many long rows each, a part of its keys belongs to none of them: warps take these a
//     tile at a time as they get done, since multiprocessors do not get equal shares of memory. Who takes which differs
//     between launches, and so do the last bits of the output. (On an H100 1 x 32768 keys of 8 K/V heads of 128 take
//     46.5 us so, else 47.1; by 2 tiles at a time 1 % longer. Rows of up to 96 elements take longer so: those of
//     several heads lie together in memory, which heads that do not keep step read piecemeal.)
//   - of entries with lengths of their own a block takes one part or, where that is faster, a run of them, whose next
//     keys are on their way while a part ends (runs.cc).
#pragma once

#include "cuda/kernels/attention/decode/direct/key_tiles.cuh"
#include "cuda/kernels/common/element8.cuh"

namespace {

// Keys that no block has for its own: `tiles` of them from key `first` on, up to `keys`.
struct direct_pool {
    unsigned *taken;  // of each column, by now
    int first, keys;
    unsigned tiles, takes;  // takes: of all, one in vain for each warp
};

// Parameters are read through a cache whose lines are 64 bytes; the first 48 bytes share one with what every kernel
// reads, and hold all that is needed to ask for the keys of entries that are equally long.
struct direct_work {
    const void *k, *v, *q;
    int64_t batch_elems;  // of k and v
    int split_keys, keys;
    unsigned kv_heads;
    uint16_t head_dim;
    uint8_t group, by_parts;
    const bw_decode_part *parts;
    void *out;
    float scale;
    bw_decode_exchange exchange;
    direct_pool pool;
    const float *k_scale, *v_scale;
    int64_t batch_scales;  // from one entry to the next
    unsigned chunks;       // of 8 query heads, each for a column of its own: 1 of caches without scales
};

// What a warp takes of its column's pool, a step of `tiles` at a time: it asks for one ahead, so that the answer is
// there when it is needed.
template <int tiles>
struct tile_taker {
    const direct_work &work;
    unsigned next_tile;  // lane 0's

    __device__ __forceinline__ explicit tile_taker(const direct_work &work_) : work(work_), next_tile(0) {
        ask();
    }
    // A tile's first key, or -1: nothing is left.
    __device__ __forceinline__ int take() {
        const unsigned got = __shfl_sync(bw_all_lanes, next_tile, 0);
        if (got >= work.pool.tiles) return -1;
        ask();
        return work.pool.first + (int)got * (tiles * tile_keys);
    }
    // With the last question of all the count comes back to 0. (The column is worked out anew: registers are short.)
    __device__ __forceinline__ void ask() {
        unsigned *taken = work.pool.taken + (blockIdx.z * gridDim.x + blockIdx.x);
        if (threadIdx.x % 32 == 0) next_tile = atomicInc(taken, work.pool.takes - 1);
    }
};

// `runs`: a block takes parts one after another; `shares`: it takes of its column's pool, too. (A kernel that could do
// either took 1 to 3 % longer where it did neither.)
template <typename T, int padded, int tiles, int warps, int resident, bool runs, bool shares>
__global__ void __launch_bounds__(warps * 32, resident)
    attention_decode_direct_kernel(const __grid_constant__ direct_work work) {
    using tile = key_tile<T, padded>;
    using wide = typename bw_wide_type<T>::type;
    using cells_type = bw_decode_cells<group_heads, padded, 1, warps>;
    constexpr int pace = warps * tiles * tile_keys;
    // Registers allow most blocks to know the next part early, and to ask for its query and values before a part's end.
    constexpr bool ample = padded <= 192 && warps <= 8;
    float *cell_memory = (float *)bw_dynamic_shared();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, r = lane / 4, c = lane % 4;
    const int head_dim = work.head_dim, group = work.group;
    // Of equal entries; unsigned, for blockIdx.y may be large where it counts parts.
    int entry = (int)blockIdx.z, first = (int)(blockIdx.y * (unsigned)work.split_keys);
    int keys = (int)min((unsigned)work.keys - (unsigned)first, (unsigned)work.split_keys);
    unsigned split_of = blockIdx.y | (unsigned)work.exchange.splits << 16;  // one register for two numbers
    unsigned next = 0;
    const auto take = [&](const bw_decode_part &part) {
        entry = part.entry;
        first = part.first;
        keys = part.keys;
        split_of = part.split | (unsigned)part.splits << 16;
        if constexpr (runs) next = part.next;
    };
    if (runs || work.by_parts) take(bw_decode_load_part(work.parts + blockIdx.y));

    // Keys first: everything else happens while they are on their way.
    step_reader<T, padded, tiles> reader;
    reader.key_elems = (int)work.kv_heads * head_dim;
    reader.head_dim = head_dim;
    tile step[tiles];
    uint4 query_bits[tile::query::parts];
    int64_t column;
    int left;
    // Of caches without scales a K/V head's query heads are one chunk.
    unsigned kv_head = blockIdx.x, chunk = 0;
    int heads = group;
    if constexpr (tile::scaled) {
        reader.kv_heads = (int)work.kv_heads;
        kv_head = blockIdx.x / work.chunks;
        chunk = blockIdx.x - kv_head * work.chunks;
        heads = min(group_heads, group - (int)chunk * group_heads);
    }
    const auto row_of = [&](int in_entry) {
        return ((int64_t)in_entry * work.kv_heads + kv_head) * group + chunk * group_heads;
    };
    const auto ask_first = [&] {
        column = tile::scaled ? (int64_t)entry * gridDim.x + blockIdx.x : (int64_t)entry * work.kv_heads + blockIdx.x;
        left = keys - warp * tiles * tile_keys;
        const int key = first + warp * tiles * tile_keys;
        const int64_t at =
            (int64_t)entry * work.batch_elems + (int64_t)kv_head * head_dim + (int64_t)key * reader.key_elems;
        if constexpr (tile::scaled) {
            reader.from_scale = (c < 2 ? work.k_scale : work.v_scale) + (int64_t)entry * work.batch_scales + kv_head +
                                (int64_t)(key + tile::scale_key(r, c)) * reader.kv_heads;
        }
        reader.from_k = (const T *)work.k + at + r * reader.key_elems + c * tile::per_load;
        reader.from_v = (const T *)work.v + at + tile::v_key(0, c) * reader.key_elems + r * tile::v_per_load;
        reader.load_k(step, left);
    };
    const auto ask_rest = [&] {
        const wide *from_q = (const wide *)work.q + (row_of(entry) + r) * head_dim;
#pragma unroll
        for (int j = 0; j < tile::query::parts; j++) {
            const int element = tile::query_element(j, c);
            const bool there = r < heads && element < head_dim;
            query_bits[j] = there ? bw_load_cached(from_q + element) : make_uint4(0, 0, 0, 0);
        }
        reader.load_v(step, left);
    };
    ask_first();
    ask_rest();
    const cells_type cells(cell_memory, warps, warps, 0);
#pragma unroll 1
    for (;;) {
        typename tile::query query(cell_memory + warp * group_heads * cells_type::stride);
#pragma unroll
        for (int j = 0; j < tile::query::parts; j++) query.set(j, query_bits[j]);
        const int own_entry = entry;
        const unsigned own = split_of;
        unsigned ticket = 0;
        if (!runs) ticket = bw_decode_ticket(work.exchange, column, (int)(own >> 16));
        bw_decode_part part = {};
        if (runs && ample && next > 0) part = bw_decode_load_part(work.parts + next);

        decode_sums<padded> sums = {};
        if constexpr (shares) {
            tile_taker<tiles> taker(work);
            const int end = first + keys;
            int at = first + warp * tiles * tile_keys;
            walk_keys(reader, step, query, left, work.scale, sums, [&](auto &tile_reader, int) {
                int to = at + pace, count = end - to;
                if (count <= 0) {
                    to = taker.take();
                    if (to < 0) return 0;
                    count = work.pool.keys - to;
                }
                tile_reader.skip(to - at);
                at = to;
                return count;
            });
        } else {
            walk_keys(reader, step, query, left, work.scale, sums, in_strides<pace>());
        }
        const bool more = runs && next > 0;
        if (more) {  // its keys are on their way while this part ends
            if (!ample) part = bw_decode_load_part(work.parts + next);
            take(part);
            ask_first();
            if constexpr (ample) ask_rest();
        }
        spread<tile>(sums, cells);
        bw_decode_place place;
        place.row0 = row_of(own_entry);
        place.heads = heads;
        place.split = (int)(own & 0xffff);
        place.splits = (int)(own >> 16);
        // Of a divided entry's splits all but the last one end their runs, and may wait for others.
        if (runs) ticket = (unsigned)(place.splits - 1 - place.split);
        bw_decode_finish(cells, work.exchange, place, {head_dim, true}, ticket, runs, (wide *)work.out);
        if (!more) return;
        __syncthreads();  // all have read the cells
        if constexpr (!ample) ask_rest();
    }
}

template <typename T, int padded, int tiles, int warps, int resident>
bw_status choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const direct_work &work,
                 bw_cuda_launch_spec *out) {
    auto *function = attention_decode_direct_kernel<T, padded, tiles, warps, resident, false, false>;
    if constexpr (warps >= 8) {  // runs.cc's
        if (plan.runs > 0) function = attention_decode_direct_kernel<T, padded, tiles, warps, resident, true, false>;
    }
    if constexpr (bw_decode_shares_keys(padded, warps)) {
        if (plan.own_keys > 0)
            function = attention_decode_direct_kernel<T, padded, tiles, warps, resident, false, true>;
    }
    const unsigned heads = (unsigned)(shape.kv_heads * plan.chunks);
    bw_cuda_kernel *kernel = bw_choose(out, function,
                                       plan.parts > 0 ? dim3(heads, (unsigned)(plan.runs > 0 ? plan.runs : plan.parts))
                                                      : dim3(heads, (unsigned)plan.splits, (unsigned)shape.batch),
                                       dim3(warps * 32), plan.shared_bytes, work);
    bw_decode_place_operands<direct_work>(kernel);
    bw_choose_place(kernel, 0, offsetof(direct_work, parts), bw_decode_from_parts(plan));
    bw_decode_place_exchange(kernel, 0, offsetof(direct_work, exchange), plan);
    if (plan.own_keys > 0) {  // behind the tickets
        bw_choose_place(kernel, 0, offsetof(direct_work, pool.taken),
                        bw_from_scratch(plan.columns * (int64_t)sizeof(unsigned)));
    }
    if constexpr (bw_is_narrow<T>) {
        bw_choose_place(kernel, 0, offsetof(direct_work, k_scale), bw_from_operand(BW_ATTENTION_K_SCALE));
        bw_choose_place(kernel, 0, offsetof(direct_work, v_scale), bw_from_operand(BW_ATTENTION_V_SCALE));
    }
    return BW_OK;
}

direct_work make_work(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_exchange &exchange) {
    direct_work work = {};
    work.by_parts = plan.parts > 0;
    work.batch_elems = shape.keys * shape.kv_heads * shape.head_dim;
    work.split_keys = (int)plan.split_keys;
    work.keys = (int)shape.keys;
    work.kv_heads = (unsigned)shape.kv_heads;
    work.group = (uint8_t)shape.group;
    work.head_dim = (uint16_t)shape.head_dim;
    work.scale = shape.scale;
    work.exchange = exchange;
    work.batch_scales = shape.keys * shape.kv_heads;
    work.chunks = (unsigned)plan.chunks;
    if (plan.own_keys > 0) {
        const int step_keys = plan.step_keys / plan.warps;
        work.split_keys = (int)plan.own_keys;
        work.keys = work.pool.first = (int)(plan.own_keys * plan.splits);
        work.pool.keys = (int)shape.keys;
        work.pool.tiles = (unsigned)bw_ceil_div(shape.keys - work.pool.first, step_keys);
        work.pool.takes = work.pool.tiles + (unsigned)(plan.splits * plan.warps);
    }
    return work;
}

}  // namespace
