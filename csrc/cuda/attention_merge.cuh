// Putting a decode's pieces together: first the block's own warps, then the splits of a K/V head. A piece is, per query
// head, the maximum of its scores, the sum of its weights and its weighted values; all exponentials are powers of 2.
//
// Splits meet in scratch without fences. A record is 16 bytes: three values of a head's normalised output and the
// base-2 logarithm of its sum of weights, so that whoever reads it needs nothing else. A word of all ones, a NaN that
// no arithmetic yields, says "not there yet": every word of a record vouches for itself, and a reader polls until all
// four are there, then empties the record for the next launch. Who reads is settled early: each block takes a ticket
// while its keys are on their way, and the last `combiners` blocks of a column to do so divide its records.
//
// No block waits for one that cannot start: all others of a column have started when the last ticket is taken, and the
// plan keeps the earlier combiners of all columns together below the number of blocks that run at once.
#ifndef BW_CUDA_ATTENTION_MERGE_CUH
#define BW_CUDA_ATTENTION_MERGE_CUH

#include "cuda/attention.cuh"
#include "cuda/intrinsics.cuh"

// Where a block stands: the grid is (column, split), a column being a chunk of a K/V head's query heads.
struct bw_decode_place {
    int64_t kv_at;  // offset of this block's first key in k and v
    int64_t row0;   // first query head, as a row of q and out
    int keys;       // this block's; 0 when the entry has fewer splits than the grid
    int heads;      // query heads of this block
    int splits;     // of this entry
};

BW_DEVICE bw_decode_place bw_decode_locate(const bw_attention_shape &shape, const bw_decode_work &work) {
    bw_decode_place place;
    int64_t head = blockIdx.x, chunk = 0, length = shape.keys;
    if (work.chunks > 1) {
        head = work.by_chunks.quotient(blockIdx.x);
        chunk = blockIdx.x - head * work.chunks;
    }
    const int64_t batch = work.by_kv_heads.quotient(head), kv_head = head - batch * shape.kv_heads;
    const int64_t first = (int64_t)blockIdx.y * work.split_keys;
    place.splits = work.splits;
    if (work.kv_lens) {
        length = min(max((int64_t)work.kv_lens[batch], (int64_t)1), shape.keys);
        place.splits = (int)work.by_split_keys.quotient(length + work.split_keys - 1);
    }
    place.kv_at = batch * work.batch_elems + first * work.key_elems + kv_head * shape.head_dim;
    place.keys = (int)max(min(length - first, work.split_keys), (int64_t)0);
    place.row0 = head * shape.group + chunk * work.block_heads;
    place.heads = (int)min((int64_t)work.block_heads, shape.group - chunk * work.block_heads);
    return place;
}

// A weight relative to a maximum that is -infinity while nothing was seen.
BW_DEVICE float bw_decode_reference(float top) {
    return top == -INFINITY ? 0.0f : top;
}

// -- records in scratch --

constexpr unsigned bw_decode_empty = 0xffffffffu;
constexpr int bw_record_values = 3;

// Seen by all blocks of the device, not held back in L1.
BW_DEVICE uint4 bw_record_load(const uint4 *record) {
    uint4 bits;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
                 : "l"(record)
                 : "memory");
    return bits;
}

BW_DEVICE void bw_record_store(uint4 *record, uint4 bits) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(record), "r"(bits.x), "r"(bits.y),
                 "r"(bits.z), "r"(bits.w)
                 : "memory");
}

BW_DEVICE void bw_record_clear(uint4 *record) {
    bw_record_store(record, make_uint4(bw_decode_empty, bw_decode_empty, bw_decode_empty, bw_decode_empty));
}

BW_DEVICE bool bw_record_there(uint4 bits) {
    return bits.x != bw_decode_empty && bits.y != bw_decode_empty && bits.z != bw_decode_empty &&
           bits.w != bw_decode_empty;
}

// A caller's NaN may have any bits; it stays a NaN.
BW_DEVICE unsigned bw_record_word(float value) {
    const unsigned bits = __float_as_uint(value);
    return bits == bw_decode_empty ? 0x7fffffffu : bits;
}

// A block's records: first head, then record of its row, in split `split`.
struct bw_decode_slots {
    uint4 *first;
    int splits, row_records;
    unsigned magic;

    __device__ __forceinline__ bw_decode_slots(const bw_decode_work &work, const bw_decode_place &place)
        : first(work.records + place.row0 * (work.splits * work.row_records)),
          splits(work.splits),
          row_records(work.row_records),
          magic(work.record_magic) {
    }
    // i / row_records: right for i below 64 row_records, whose product with row_records is below 2^20.
    __device__ __forceinline__ int head(int i) const {
        return (int)(((unsigned)i * magic) >> 20);
    }
    __device__ __forceinline__ uint4 *at(int head, int split, int record) const {
        return first + ((head * splits + split) * row_records + record);
    }
};

// -- a block's warps --

// One block's cells in shared memory: a cell is a (part of a) warp that met some of the keys for `cell_heads` heads.
// Head h of the block belongs to slot h / cell_heads; its cells are (share * slots + slot) * parts + part. Where all
// warps hold the same heads (`static_shares` of them; else 0), everything is known when this is compiled.
template <int cell_heads, int padded, int parts, int static_shares>
struct bw_decode_cells {
    static constexpr int stride = padded + bw_decode_cell_gap;  // keeps neighbouring rows in different banks
    static constexpr int batch = static_shares ? static_shares : 2;
    float *top, *sum, *out;  // [cell][cell_heads], [cell][cell_heads], [cell][cell_heads][stride]
    unsigned *ticket;        // the block's, for all its threads
    int shares, slot_bits;

    __device__ __forceinline__ bw_decode_cells(const bw_decode_work &work, float *memory, int cells) {
        out = memory;  // first: it is written in vectors
        top = out + cells * cell_heads * stride;
        sum = top + cells * cell_heads;
        ticket = (unsigned *)(sum + cells * cell_heads);
        shares = static_shares ? static_shares : work.shares;
        slot_bits = static_shares ? 0 : work.slot_bits;
    }
    // Three neighbouring values of a head's output, and the base-2 logarithm of its sum of weights.
    __device__ __forceinline__ float4 total(int head, int dim) const {
        const int step = (parts * cell_heads) << slot_bits;  // rows from one share to the next
        const int at0 = static_shares ? head : head / cell_heads * parts * cell_heads + head % cell_heads;
        float best = -INFINITY, weight = 0.0f, value[bw_record_values] = {};
#pragma unroll 1
        for (int share = 0; share < shares; share += batch) {
#pragma unroll
            for (int i = 0; i < batch * parts; i++) {
                if (!static_shares && share + i / parts >= shares) break;
                best = fmaxf(best, top[at0 + (share + i / parts) * step + i % parts * cell_heads]);
            }
        }
        const float reference = bw_decode_reference(best);
#pragma unroll 1
        for (int share = 0; share < shares; share += batch) {
#pragma unroll
            for (int i = 0; i < batch * parts; i++) {
                if (!static_shares && share + i / parts >= shares) break;
                const int at = at0 + (share + i / parts) * step + i % parts * cell_heads;
                const float scale = bw_exp2(top[at] - reference);
                weight = fmaf(sum[at], scale, weight);
#pragma unroll
                for (int e = 0; e < bw_record_values; e++) {
                    value[e] = fmaf(out[at * stride + dim + e], scale, value[e]);
                }
            }
        }
        const float inverse = __fdividef(1.0f, weight);
        return make_float4(value[0] * inverse, value[1] * inverse, value[2] * inverse, best + __log2f(weight));
    }
};

template <typename T>
BW_DEVICE void bw_decode_write(const bw_attention_shape &shape, int64_t row, int dim, const float (&value)[3], T *out) {
#pragma unroll
    for (int e = 0; e < bw_record_values; e++) {
        if (dim + e < shape.head_dim) bw_from_float(value[e], &out[row * shape.head_dim + dim + e]);
    }
}

// The block's result: to `out` when the entry has one split, else to scratch. Every split has at least one key, so that
// sums are positive.
template <typename Cells, typename T>
BW_DEVICE void bw_decode_store(const Cells &cells, const bw_attention_shape &shape, const bw_decode_slots &slots,
                               const bw_decode_place &place, T *out) {
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < place.heads * slots.row_records; i += (int)blockDim.x) {
        const int head = slots.head(i), record = i - head * slots.row_records;
        const float4 total = cells.total(head, record * bw_record_values);
        if (place.splits == 1) {
            const float value[bw_record_values] = {total.x, total.y, total.z};
            bw_decode_write(shape, place.row0 + head, record * bw_record_values, value, out);
        } else {
            bw_record_store(slots.at(head, (int)blockIdx.y, record),
                            make_uint4(bw_record_word(total.x), bw_record_word(total.y), bw_record_word(total.z),
                                       bw_record_word(total.w)));
        }
    }
}

// -- a column's splits --

// Taken by thread 0 while the block's keys are on their way. Every block of the grid takes one, so that the count comes
// back to 0 whatever the entries' lengths.
BW_DEVICE unsigned bw_decode_ticket(const bw_decode_work &work) {
    if (work.splits == 1 || threadIdx.x != 0) return 0;
    return atomicInc(&work.tickets[blockIdx.x], (unsigned)work.splits - 1);
}

// Brings the block's empty records into the L2, where a combiner would otherwise poll for what is still in memory.
BW_DEVICE void bw_decode_touch(const bw_decode_work &work, const bw_decode_place &place) {
    if (place.splits == 1 || place.keys == 0) return;
    const bw_decode_slots slots(work, place);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < place.heads * slots.row_records; i += (int)blockDim.x) {
        const int head = slots.head(i);
        bw_record_clear(slots.at(head, (int)blockIdx.y, i - head * slots.row_records));
    }
}

struct bw_decode_sum {
    float top, weight, value[bw_record_values];
};

// Every lane's share of a record column: splits sub, sub + lanes, ..., several records in flight.
BW_DEVICE bw_decode_sum bw_decode_gather(uint4 *from, int stride, int sub, int lanes, int splits) {
    constexpr int ahead = 4;
    bw_decode_sum sum = {-INFINITY, 0.0f, {}};
#pragma unroll 1
    for (int s = sub; s < splits; s += ahead * lanes) {
        uint4 bits[ahead];
        float top = sum.top;
#pragma unroll
        for (int u = 0; u < ahead; u++) {
            const unsigned absent = s + u * lanes < splits ? bw_decode_empty : __float_as_uint(-INFINITY);
            bits[u] = make_uint4(0, 0, 0, absent);
        }
#pragma unroll 1
        for (bool all = false; !all;) {  // all that are missing at once: a round trip is long
#pragma unroll
            for (int u = 0; u < ahead; u++) {
                if (!bw_record_there(bits[u])) bits[u] = bw_record_load(from + (s + u * lanes) * stride);
            }
            all = true;
#pragma unroll
            for (int u = 0; u < ahead; u++) all = all && bw_record_there(bits[u]);
        }
#pragma unroll
        for (int u = 0; u < ahead; u++) {
            if (s + u * lanes < splits) bw_record_clear(from + (s + u * lanes) * stride);
            top = fmaxf(top, __uint_as_float(bits[u].w));
        }
        const float reference = bw_decode_reference(top), shrink = bw_exp2(sum.top - reference);
        sum.top = top;
        sum.weight *= shrink;
#pragma unroll
        for (int e = 0; e < bw_record_values; e++) sum.value[e] *= shrink;
#pragma unroll
        for (int u = 0; u < ahead; u++) {
            const float weight = bw_exp2(__uint_as_float(bits[u].w) - reference);
            sum.weight += weight;
            sum.value[0] = fmaf(__uint_as_float(bits[u].x), weight, sum.value[0]);
            sum.value[1] = fmaf(__uint_as_float(bits[u].y), weight, sum.value[1]);
            sum.value[2] = fmaf(__uint_as_float(bits[u].z), weight, sum.value[2]);
        }
    }
    return sum;
}

BW_DEVICE void bw_decode_add_lanes(bw_decode_sum &sum, int lanes) {
    float top = sum.top;
#pragma unroll 1
    for (int offset = lanes / 2; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(bw_all_lanes, top, offset));
    const float scale = bw_exp2(sum.top - bw_decode_reference(top));
    sum.weight *= scale;
#pragma unroll
    for (int e = 0; e < bw_record_values; e++) sum.value[e] *= scale;
#pragma unroll 1
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
        sum.weight += __shfl_xor_sync(bw_all_lanes, sum.weight, offset);
#pragma unroll
        for (int e = 0; e < bw_record_values; e++) {
            sum.value[e] += __shfl_xor_sync(bw_all_lanes, sum.value[e], offset);
        }
    }
}

// One combiner's share of a column's records; neighbouring lanes share out a record's splits.
template <typename T>
BW_DEVICE void bw_decode_combine(const bw_attention_shape &shape, const bw_decode_work &work,
                                 const bw_decode_slots &slots, const bw_decode_place &place, int combiner, T *out) {
    const int first = combiner * work.combiner_items;
    const int end = min(first + work.combiner_items, place.heads * work.row_records);
    const int lanes = 1 << work.lane_bits, sub = (int)threadIdx.x & (lanes - 1);
#pragma unroll 1
    for (int base = first; base < end; base += (int)blockDim.x >> work.lane_bits) {
        const int item = base + ((int)threadIdx.x >> work.lane_bits);
        const int head = slots.head(item), record = item - head * slots.row_records;
        bw_decode_sum sum = {-INFINITY, 0.0f, {}};
        if (item < end) {
            sum = bw_decode_gather(slots.at(head, 0, record), slots.row_records, sub, lanes, place.splits);
        }
        bw_decode_add_lanes(sum, lanes);
        if (item >= end || sub != 0) continue;
        const float inverse = __fdividef(1.0f, sum.weight);
        const float value[bw_record_values] = {sum.value[0] * inverse, sum.value[1] * inverse, sum.value[2] * inverse};
        bw_decode_write(shape, place.row0 + head, record * bw_record_values, value, out);
    }
}

// The end of every decode kernel, once each warp has filled its cells.
template <typename Cells, typename T>
BW_DEVICE void bw_decode_finish(const Cells &cells, const bw_attention_shape &shape, const bw_decode_work &work,
                                const bw_decode_place &place, unsigned ticket, T *out) {
    const bw_decode_slots slots(work, place);
    if (threadIdx.x == 0) *cells.ticket = ticket;
    __syncthreads();
    if (place.keys > 0) bw_decode_store(cells, shape, slots, place, out);
    if (place.splits == 1) return;
    __syncwarp();  // no lane may poll for what its neighbours have yet to store
    const int combiner = (int)*cells.ticket - (work.splits - work.combiners);
    if (combiner >= 0) bw_decode_combine(shape, work, slots, place, combiner, out);
}

#endif
