// The end of a decode block with many query heads (staged_mma.cuh, `wide`): its warps' sums, then the entry's splits,
// which meet in scratch (combine.cuh) or, where they are a cluster, in each other's shared memory.
#pragma once

#include "cuda/kernels/attention/decode/combine.cuh"
#include "cuda/kernels/common/cluster.cuh"

namespace {

constexpr int row_heads = 16, most_warps = 8;  // of a warp, of a block

// The sums of a wide block's warps. A warp's cell holds them as they lie in registers, of each half of its heads 16
// columns at a time: whoever adds them up holds the same heads and elements, and moves whole vectors without conflicts.
// It lies in a stage of the ring that the share's warps have left, so that nobody waits for room.
template <int padded, int most_shares>
struct wide_cells {
    static constexpr int steps = padded / 16;  // a record's elements
    float4 *values;                            // [step][half][lane], the block's first cell of this warp's heads
    float2 *stands;                            // [warp][head]: maximum, sum
    unsigned *ticket;
    int hop, shares, slot_bits, slot;  // `hop`: from one share's cell to the next

    __device__ __forceinline__ void put(const bw_softmax_sums<padded, 2> &sums, int share) const {
        const int lane = (int)threadIdx.x % 32;
        float4 *own = values + share * hop + lane;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float weight = bw_quad_sum(sums.sum[half]);
            if (lane % 4 == 0) *stand(share, half) = make_float2(sums.top[half], weight);
#pragma unroll
            for (int step = 0; step < steps; step++) {
                const float(&left)[4] = sums.out[2 * step], (&right)[4] = sums.out[2 * step + 1];
                own[(2 * step + half) * 32] =
                    make_float4(left[2 * half], left[2 * half + 1], right[2 * half], right[2 * half + 1]);
            }
        }
    }
    __device__ __forceinline__ float2 *stand(int share, int half) const {
        return stands + ((share << slot_bits) + slot) * row_heads + half * 8 + (int)threadIdx.x % 32 / 4;
    }
    // Of a head of this lane: what each share's values count, and what their sum stands on.
    __device__ __forceinline__ float2 weigh(int half, float (&factor)[most_shares]) const {
        float2 all[most_shares], whole = make_float2(-INFINITY, 0.0f);
#pragma unroll
        for (int share = 0; share < most_shares; share++) {
            all[share] = share < shares ? *stand(share, half) : make_float2(-INFINITY, 0.0f);
            whole.x = fmaxf(whole.x, all[share].x);
        }
        const float reference = bw_softmax_reference(whole.x);
#pragma unroll
        for (int share = 0; share < most_shares; share++) {
            factor[share] = bw_exp2(all[share].x - reference);
            whole.y = fmaf(all[share].y, factor[share], whole.y);
        }
        return whole;
    }
    __device__ __forceinline__ float4 total(int step, int half, const float (&factor)[most_shares]) const {
        const float4 *from = values + (2 * step + half) * 32 + (int)threadIdx.x % 32;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int share = 0; share < most_shares; share++) {
            if (share < shares) bw_add_scaled(sum, from[share * hop], factor[share]);
        }
        return sum;
    }
};

// One block's sum of a head of this lane, in four elements: step `step`'s, of a record.
struct wide_sum {
    float4 value;
    float2 stand;
    int step, half;
};

// This warp's share of what the block's warps hold for its heads.
template <int padded, int most_shares, typename Take>
BW_DEVICE void add_up(const wide_cells<padded, most_shares> &cells, int first, int steps, Take take) {
    float factor[2][most_shares];
    const float2 stand[2] = {cells.weigh(0, factor[0]), cells.weigh(1, factor[1])};
#pragma unroll 1
    for (int step = first; step < steps; step += cells.shares) {
        const float4 left = cells.total(step, 0, factor[0]), right = cells.total(step, 1, factor[1]);
        take(wide_sum{left, stand[0], step, 0});
        take(wide_sum{right, stand[1], step, 1});
    }
}

// Four neighbors of a lane's values, added up over all keys.
template <typename T>
BW_DEVICE void write_sum(float4 value, float weight, const bw_decode_place &place, int head_dim, int head, int step,
                         int quad, T *out) {
    const int dim = step * bw_decode_record_dims + 2 * quad;
    if (head >= place.heads || dim >= head_dim) return;
    const float inverse = __fdividef(1.0f, weight);
    T *to = out + (place.row0 + head) * head_dim + dim;
    *(uint32_t *)to = bw_pack_pair(value.x * inverse, value.y * inverse, T());
    if (dim + 8 < head_dim) *(uint32_t *)(to + 8) = bw_pack_pair(value.z * inverse, value.w * inverse, T());
}

// A column's records lie as warps hold them: of a unit (half a warp's heads, a record of each) and a split 512 bytes,
// which a warp stores at once. (Where the heads lay apart, 64 of them, 4 x 4096 keys, took 8 % more on an H200.)
struct wide_records {
    static constexpr int unit_heads = row_heads / 2;
    float4 *values;  // [unit][split][row][quad]
    float2 *stands;  // [unit][split][row]: maximum, sum of the weights
    int split, splits, steps, rows;
    unsigned magic;

    __device__ __forceinline__ wide_records(const bw_decode_exchange &exchange, int64_t column, int split_,
                                            int block_heads)
        : split(split_),
          splits(exchange.splits),
          steps(exchange.row_records),
          rows(block_heads * exchange.row_records),
          magic(exchange.record_magic) {
        const int64_t first = column * (rows * splits);
        values = exchange.values + first * bw_record_quads;
        stands = exchange.sums + first;
    }
    __device__ __forceinline__ void store(int slot, const wide_sum &sum) const {
        const int lane = (int)threadIdx.x % 32, quad = lane % bw_record_quads;
        const int unit = (slot * steps + sum.step) * 2 + sum.half;
        const int record = (unit * splits + split) * unit_heads + lane / bw_record_quads;
        bw_record_fill(values, stands, record, quad, sum.value, sum.stand);
    }
};

// One combiner's share of a column's records: a thread takes four values of one from every 2^bits-th split, `ahead` of
// them at once: a wait is a round trip. Threads without work share out a record's splits, down to four each.
template <int ahead, typename T>
BW_DEVICE void combine_wide(const wide_records &records, const bw_decode_place &place, int head_dim, int combiner,
                            int combiners, T *out) {
    const int each = (records.rows + combiners - 1) / combiners;
    const int first = combiner * each, items = min(each, records.rows - first);
    int bits = 0;  // 2^bits sharers, all in one warp
    while (bits < 3 && 4 << bits < place.splits && items * bw_record_quads << (bits + 1) <= (int)blockDim.x) {
        bits++;
    }
    const int sharers = 1 << bits, quad = (int)threadIdx.x % bw_record_quads;
    const int sub = (int)threadIdx.x / bw_record_quads & (sharers - 1);
    const int pace = (int)blockDim.x / bw_record_quads >> bits;
#pragma unroll 1
    for (int base = 0; base < items; base += pace) {
        const int own = base + ((int)threadIdx.x / bw_record_quads >> bits);
        const unsigned item = first + own, unit = item / records.unit_heads, row = item % records.unit_heads;
        const int slot = unit / 2 * records.magic >> 20, step = unit / 2 - slot * records.steps;
        const int head = slot * row_heads + unit % 2 * records.unit_heads + row;
        const int end = own < items && head < place.heads ? place.splits : 0;
        const unsigned at = unit * records.splits * records.unit_heads + row;
        bw_decode_sum sum = bw_decode_gather<ahead, wide_records::unit_heads>(
            records.values + at * bw_record_quads + quad, records.stands + at, sharers, sub, place.splits, end,
            quad == 0);
        float top = sum.top;
#pragma unroll 1
        for (int offset = bw_record_quads; offset < bw_record_quads << bits; offset *= 2) {
            top = fmaxf(top, __shfl_xor_sync(bw_all_lanes, top, offset));
        }
        sum.shrink_to(top);
#pragma unroll 1
        for (int offset = bw_record_quads; offset < bw_record_quads << bits; offset *= 2) sum.add_lane(offset);
        if (end == 0 || sub != 0) continue;
        write_sum(make_float4(sum.value[0], sum.value[1], sum.value[2], sum.value[3]), sum.weight, place, head_dim,
                  head, step, quad, out);
    }
}

// To the output where the entry has one split, else to scratch, and this block's part of the column's splits.
template <int padded, int most_shares, typename T>
BW_DEVICE void finish_wide(const wide_cells<padded, most_shares> &cells, const bw_decode_exchange &exchange,
                           int block_heads, const bw_decode_place &place, int head_dim, int first, T *out) {
    const wide_records records(exchange, place.column, place.split, block_heads);
    const int row = cells.slot * row_heads + (int)threadIdx.x % 32 / 4, quad = (int)threadIdx.x % 4;
    add_up(cells, first, records.steps, [&](const wide_sum &sum) {
        const int head = row + 8 * sum.half;
        if (head >= place.heads) return;
        if (place.splits == 1) {
            write_sum(sum.value, sum.stand.y, place, head_dim, head, sum.step, quad, out);
        } else {
            records.store(cells.slot, sum);
        }
    });
    if (place.splits == 1) return;
    __syncwarp();  // no lane may poll for what its neighbors have yet to store
    const int combiners = min(exchange.combiners, place.splits);
    const int combiner = (int)*cells.ticket - (place.splits - combiners);
    if (combiner >= 0) {
        combine_wide<most_shares == most_warps ? 4 : 8>(records, place, head_dim, combiner, combiners, out);
    }
}

// Each block adds up every so many-th unit of a column: half a warp's heads, a step's elements. The others push theirs.
template <int padded>
struct wide_mailbox {
    static constexpr int units = padded / 8, unit_bytes = 32 * (int)sizeof(float4) + 8 * (int)sizeof(float2);
    static_assert(unit_bytes == bw_decode_unit_bytes && units == bw_decode_units(padded), "the plan makes room");
    uint32_t barrier;       // addresses in shared memory: 8 bytes
    uint32_t values;        // [block][unit][lane]
    uint32_t stands;        // [block][unit][head]
    int blocks, own, most;  // units of this block, and of the one with the most of them
    unsigned magic;         // ceil(2^16 / blocks)

    __device__ __forceinline__ explicit wide_mailbox(uint32_t memory)
        : barrier(memory), values(memory + 16), blocks((int)gridDim.y) {
        own = (units - (int)blockIdx.y + blocks - 1) / blocks;
        most = (units + blocks - 1) / blocks;
        magic = (65535u + (unsigned)blocks) / (unsigned)blocks;
        stands = values + blocks * most * 32 * (int)sizeof(float4);
    }
    // Before anybody pushes, for which all of the cluster's blocks wait once they have something.
    __device__ __forceinline__ void open() const {
        if (threadIdx.x == 0) {
            bw_barrier_init(barrier, 1);
            bw_barrier_publish();
            bw_barrier_expect(barrier, own * blocks * unit_bytes);
        }
        __syncwarp();
        bw_cluster_arrive();
    }
    __device__ __forceinline__ uint32_t value_at(int block, int unit, int lane) const {
        return values + ((block * most + unit) * 32 + lane) * (int)sizeof(float4);
    }
    __device__ __forceinline__ uint32_t stand_at(int block, int unit, int row) const {
        return stands + ((block * most + unit) * 8 + row) * (int)sizeof(float2);
    }
};

template <int padded, typename T>
BW_DEVICE void finish_cluster(const wide_cells<padded, most_warps> &cells, const wide_mailbox<padded> &box,
                              const bw_decode_place &place, int head_dim, int first, T *out) {
    const int lane = (int)threadIdx.x % 32, quad = lane % 4, rank = (int)blockIdx.y;
    bw_cluster_wait();
    add_up(cells, first, padded / 16, [&](const wide_sum &sum) {
        const int unit = sum.step * 2 + sum.half;
        const int there = (int)((unsigned)unit * box.magic >> 16), to = unit - there * box.blocks;
        const uint32_t barrier = bw_cluster_address(box.barrier, to);
        bw_cluster_push(bw_cluster_address(box.value_at(rank, there, lane), to), sum.value, barrier);
        if (quad == 0) {
            bw_cluster_push(bw_cluster_address(box.stand_at(rank, there, lane / 4), to), sum.stand, barrier);
        }
    });
    bw_cluster_wait_for_pushes(box.barrier);
#pragma unroll 1
    for (int i = (int)threadIdx.x / 32; i < box.own; i += (int)blockDim.x / 32) {
        const int unit = i * box.blocks + rank, head = unit % 2 * 8 + lane / 4;
        float top = -INFINITY;
#pragma unroll 4
        for (int block = 0; block < box.blocks; block++) {
            top = fmaxf(top, ((const float2 *)__cvta_shared_to_generic(box.stand_at(block, i, lane / 4)))->x);
        }
        const float reference = bw_softmax_reference(top);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        float weight = 0.0f;
#pragma unroll 4
        for (int block = 0; block < box.blocks; block++) {
            const float2 stand = *(const float2 *)__cvta_shared_to_generic(box.stand_at(block, i, lane / 4));
            const float4 part = *(const float4 *)__cvta_shared_to_generic(box.value_at(block, i, lane));
            const float factor = bw_exp2(stand.x - reference);
            weight = fmaf(stand.y, factor, weight);
            bw_add_scaled(sum, part, factor);
        }
        write_sum(sum, weight, place, head_dim, head, unit / 2, quad, out);
    }
}

}  // namespace
