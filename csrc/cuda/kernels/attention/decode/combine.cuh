// Putting a decode's pieces together: first the block's own warps, then the splits of a K/V head. A piece is, per query
// head, the maximum of its scores, the sum of its weights and its weighted values; all exponentials are powers of 2.
//
// Splits meet in scratch without fences. A record is 72 bytes: sixteen values of a head's output, the maximum and the
// sum they stand on. A word of all ones, a NaN that no arithmetic yields, says "not there yet": a reader polls until
// all words are there, then empties the record for the next launch. Who reads is settled early: each block takes a
// ticket while its keys are on their way, and the last `combiners` blocks of a column to do so divide its records.
// Blocks that take runs of parts (runs.cc) need no ticket: all of an entry's splits but the last one end their runs,
// and these divide them.
//
// No block waits for one that cannot start. Where all blocks of a launch can run at once, it is cooperative: none
// begins before all can. (On an H200 this takes 0.2 us of cases below 5 us.) Where they cannot, all others of a column
// have started when the last ticket is taken, and the plan keeps the earlier combiners of all columns together below
// the number of blocks that run at once; whoever waits has stored all that others wait for. Of several such launches at
// once this holds where a device begins a launch's blocks before those of a later one; nothing promises it.
#pragma once

#include <stddef.h>

#include "cuda/kernels/attention/decode/plan.h"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/common/softmax.cuh"
#include "cuda/launch/choose.cuh"

// Where a block stands. A column is a chunk of a K/V head's query heads.
struct bw_decode_place {
    int64_t kv_at;      // offset of this block's first key in k and v
    int64_t row0;       // first query head, as a row of q and out
    int64_t column;     // over all entries
    int keys;           // this block's
    int heads;          // query heads of this block
    int split, splits;  // of this entry
};

BW_DEVICE bw_decode_part bw_decode_load_part(const bw_decode_part *from) {
    const uint4 bits = bw_load_cached(from);
    return {(int)bits.x,
            (int)bits.y,
            (int)bits.z,
            (unsigned char)bits.w,
            (unsigned char)(bits.w >> 8),
            (unsigned short)(bits.w >> 16)};
}

BW_DEVICE bw_decode_place bw_decode_locate(const bw_attention_shape &shape, const bw_decode_work &work) {
    bw_decode_place place;
    int64_t head = blockIdx.x, chunk = 0;
    if (work.chunks > 1) {
        head = work.by_chunks.quotient(blockIdx.x);
        chunk = blockIdx.x - head * work.chunks;
    }
    int64_t batch = work.by_kv_heads.quotient(head), first = (int64_t)blockIdx.y * work.split_keys;
    const int64_t kv_head = head - batch * shape.kv_heads;
    place.column = blockIdx.x;
    place.keys = (int)min(shape.keys - first, work.split_keys);
    place.split = (int)blockIdx.y;
    place.splits = work.exchange.splits;
    if (work.parts) {
        const bw_decode_part part = bw_decode_load_part(work.parts + batch);
        batch = part.entry;
        first = part.first;
        head = batch * shape.kv_heads + kv_head;
        place.column = head * work.chunks + chunk;
        place.keys = part.keys;
        place.split = part.split;
        place.splits = part.splits;
    }
    place.kv_at = batch * work.batch_elems + first * work.key_elems + kv_head * shape.head_dim;
    place.row0 = head * shape.group + chunk * work.block_heads;
    place.heads = (int)min((int64_t)work.block_heads, shape.group - chunk * work.block_heads);
    return place;
}

constexpr unsigned bw_decode_empty = 0xffffffffu;
constexpr int bw_record_quads = 4;                    // groups of four values in a record
constexpr int bw_split_lanes = 32 / bw_record_quads;  // lanes of a warp that share out a record's splits
static_assert(4 * bw_record_quads == bw_decode_record_dims &&
                  bw_decode_record_bytes == bw_record_quads * sizeof(float4) + sizeof(float2),
              "the plan sizes scratch and traffic by the same record");

// Relaxed: seen by all blocks of the device, not held back in L1.
BW_DEVICE float4 bw_record_load(const float4 *from) {
    float4 part;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w)
                 : "l"(from)
                 : "memory");
    return part;
}

BW_DEVICE float2 bw_record_load(const float2 *from) {
    float2 part;
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(part.x), "=f"(part.y) : "l"(from) : "memory");
    return part;
}

BW_DEVICE void bw_record_store(float4 *to, float4 part) {
    asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(part.x), "f"(part.y),
                 "f"(part.z), "f"(part.w)
                 : "memory");
}

BW_DEVICE void bw_record_store(float2 *to, float2 part) {
    asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(part.x), "f"(part.y) : "memory");
}

BW_DEVICE bool bw_word_there(float word) {
    return __float_as_uint(word) != bw_decode_empty;
}

// A caller's NaN may have any bits; it stays a NaN.
BW_DEVICE float bw_record_word(float value) {
    return bw_word_there(value) ? value : __uint_as_float(0x7fffffffu);
}

// Four values of a record, by the first of its quads with what they stand on.
BW_DEVICE void bw_record_fill(float4 *values, float2 *sums, int record, int quad, float4 part, float2 stand) {
    bw_record_store(
        values + record * bw_record_quads + quad,
        make_float4(bw_record_word(part.x), bw_record_word(part.y), bw_record_word(part.z), bw_record_word(part.w)));
    if (quad != 0) return;
    bw_record_store(sums + record, make_float2(bw_record_word(stand.x), bw_record_word(stand.y)));
}

BW_DEVICE bool bw_words_there(float4 part) {
    return bw_word_there(part.x) && bw_word_there(part.y) && bw_word_there(part.z) && bw_word_there(part.w);
}
BW_DEVICE bool bw_words_there(float2 part) {
    return bw_word_there(part.x) && bw_word_there(part.y);
}

// A block's records: of its first head's row on, then record of the row, then split. What a combiner reads lies
// together, and a block stores 64 bytes to each of them: neither end has many lines to touch.
struct bw_decode_slots {
    float4 *values;  // bw_record_quads of a record
    float2 *sums;    // maximum, sum of the weights
    int splits, row_records;
    unsigned magic;

    __device__ __forceinline__ bw_decode_slots(const bw_decode_exchange &exchange, int64_t row0)
        : values(exchange.values + row0 * (exchange.splits * exchange.row_records) * bw_record_quads),
          sums(exchange.sums + row0 * (exchange.splits * exchange.row_records)),
          splits(exchange.splits),
          row_records(exchange.row_records),
          magic(exchange.record_magic) {
    }
    // i / row_records: right for i below 64 row_records, whose product with row_records is below 2^20.
    __device__ __forceinline__ int head(int i) const {
        return (int)(((unsigned)i * magic) >> 20);
    }
    // Of record i, one of head `head`: the element that quad `quad` begins with.
    __device__ __forceinline__ int dim(int i, int head, int quad) const {
        return ((i - head * row_records) * bw_record_quads + quad) * 4;
    }
};

BW_DEVICE void bw_add_scaled(float4 &sum, float4 part, float scale) {
    sum.x = fmaf(part.x, scale, sum.x);
    sum.y = fmaf(part.y, scale, sum.y);
    sum.z = fmaf(part.z, scale, sum.z);
    sum.w = fmaf(part.w, scale, sum.w);
}

// One block's cells in shared memory: a cell is a (part of a) warp that met some of the keys for `cell_heads` heads.
// Head h of the block belongs to slot h / cell_heads; its cells are (share * slots + slot) * parts + part. Where all
// warps hold the same heads (`static_shares` of them; else 0), everything is known when this is compiled.
template <int cell_heads, int padded, int parts, int static_shares>
struct bw_decode_cells {
    static constexpr int stride = padded + bw_decode_cell_gap;  // keeps neighboring rows in different banks
    static constexpr int batch = static_shares ? static_shares : 2;
    float *top, *sum, *out;  // [cell][cell_heads], [cell][cell_heads], [cell][cell_heads][stride]
    unsigned *ticket;        // the block's, for all its threads
    int shares, slot_bits;

    __device__ __forceinline__ bw_decode_cells(float *memory, int cells, int shares_, int slot_bits_) {
        out = memory;  // first: it is written in vectors
        top = out + cells * cell_heads * stride;
        sum = top + cells * cell_heads;
        ticket = (unsigned *)(sum + cells * cell_heads);
        shares = static_shares ? static_shares : shares_;
        slot_bits = static_shares ? 0 : slot_bits_;
    }
    // Four neighboring values of a head's output over all cells, and what they stand on.
    __device__ __forceinline__ float4 total(int head, int dim, float2 &stand) const {
        const int step = (parts * cell_heads) << slot_bits;  // rows from one share to the next
        const int at0 = static_shares ? head : head / cell_heads * parts * cell_heads + head % cell_heads;
        float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        stand = make_float2(-INFINITY, 0.0f);
#pragma unroll 1
        for (int share = 0; share < shares; share += batch) {
#pragma unroll
            for (int i = 0; i < batch * parts; i++) {
                if (!static_shares && share + i / parts >= shares) break;
                stand.x = fmaxf(stand.x, top[at0 + (share + i / parts) * step + i % parts * cell_heads]);
            }
        }
        const float reference = bw_softmax_reference(stand.x);
#pragma unroll 1
        for (int share = 0; share < shares; share += batch) {
#pragma unroll
            for (int i = 0; i < batch * parts; i++) {
                if (!static_shares && share + i / parts >= shares) break;
                const int at = at0 + (share + i / parts) * step + i % parts * cell_heads;
                const float scale = bw_exp2(top[at] - reference);
                const float4 part = *(const float4 *)&out[at * stride + dim];
                stand.y = fmaf(sum[at], scale, stand.y);
                bw_add_scaled(value, part, scale);
            }
        }
        return value;
    }
};

// Four neighboring elements of a row, at once where rows are `vectors`.
template <typename T>
BW_DEVICE void bw_decode_write(const float (&value)[4], const bw_decode_row &row, int dim, T *out) {
    if (row.vectors) {
        __align__(16) T narrow[4];
#pragma unroll
        for (int e = 0; e < 4; e++) bw_from_float(value[e], &narrow[e]);
        if (dim >= row.head_dim) return;
        if constexpr (sizeof(T) == 4) {
            *(uint4 *)(out + dim) = *(const uint4 *)narrow;
        } else {
            *(uint2 *)(out + dim) = *(const uint2 *)narrow;
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        if (dim + e < row.head_dim) bw_from_float(value[e], &out[dim + e]);
    }
}

template <typename T>
BW_DEVICE void bw_decode_write_item(const float (&value)[4], float weight, const bw_decode_slots &slots,
                                    const bw_decode_place &place, const bw_decode_row &row, int item, int quad,
                                    T *out) {
    const int head = slots.head(item), dim = slots.dim(item, head, quad);
    const float inverse = __fdividef(1.0f, weight);
    const float mean[4] = {value[0] * inverse, value[1] * inverse, value[2] * inverse, value[3] * inverse};
    bw_decode_write(mean, row, dim, out + (place.row0 + head) * row.head_dim);
}

// The block's result: to `out` when the entry has one split, else to scratch. Every split has at least one key, so that
// sums are positive.
template <typename Cells, typename T>
BW_DEVICE void bw_decode_store(const Cells &cells, const bw_decode_slots &slots, const bw_decode_place &place,
                               const bw_decode_row &row, T *out) {
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < place.heads * slots.row_records * bw_record_quads; i += (int)blockDim.x) {
        const int item = i / bw_record_quads, quad = i % bw_record_quads, head = slots.head(item);
        float2 stand;
        const float4 total = cells.total(head, slots.dim(item, head, quad), stand);
        if (place.splits == 1) {
            const float value[4] = {total.x, total.y, total.z, total.w};
            bw_decode_write_item(value, stand.y, slots, place, row, item, quad, out);
        } else {
            bw_record_fill(slots.values, slots.sums, item * slots.splits + place.split, quad, total, stand);
        }
    }
}

// Taken by thread 0 while the block's keys are on their way. The count comes back to 0.
BW_DEVICE unsigned bw_decode_ticket(const bw_decode_exchange &exchange, int64_t column, int splits) {
    if (splits == 1 || threadIdx.x != 0) return 0;
    return atomicInc(&exchange.tickets[column], (unsigned)splits - 1);
}

struct bw_decode_sum {
    float top, weight, value[4];

    __device__ __forceinline__ void shrink_to(float reference) {
        const float shrink = bw_exp2(top - bw_softmax_reference(reference));
        top = reference;
        weight *= shrink;
#pragma unroll
        for (int e = 0; e < 4; e++) value[e] *= shrink;
    }
    __device__ __forceinline__ void add(float4 values, float2 stand) {
        const float scale = bw_exp2(stand.x - bw_softmax_reference(top));
        weight = fmaf(stand.y, scale, weight);
        value[0] = fmaf(values.x, scale, value[0]);
        value[1] = fmaf(values.y, scale, value[1]);
        value[2] = fmaf(values.z, scale, value[2]);
        value[3] = fmaf(values.w, scale, value[3]);
    }
    // What the lane `offset` away has, of the same reference.
    __device__ __forceinline__ void add_lane(int offset) {
        weight += __shfl_xor_sync(bw_all_lanes, weight, offset);
#pragma unroll
        for (int e = 0; e < 4; e++) value[e] += __shfl_xor_sync(bw_all_lanes, value[e], offset);
    }
};

// A lane's share of an item's records: four of the values of splits sub, sub + lanes, ..., `ahead` of them in flight,
// up to `end`, which is `splits` or, of a lane without an item, 0. `together` records of one split lie side by side.
// Their sums, which several lanes read, are emptied by those that are told to.
template <int ahead, int together>
BW_DEVICE bw_decode_sum bw_decode_gather(float4 *values, float2 *sums, int lanes, int sub, int splits, int end,
                                         bool empty_sums) {
    constexpr int value_step = together * bw_record_quads;
    const float empty = __uint_as_float(bw_decode_empty);
    bw_decode_sum sum = {-INFINITY, 0.0f, {}};
#pragma unroll 1
    for (int first = 0; first < splits; first += ahead * lanes) {
        float4 part[ahead];
        float2 stand[ahead];
#pragma unroll
        for (int u = 0; u < ahead; u++) {
            const bool wanted = first + u * lanes + sub < end;
            part[u] = make_float4(wanted ? empty : 0.0f, 0.0f, 0.0f, 0.0f);
            stand[u] = make_float2(wanted ? empty : -INFINITY, 0.0f);
        }
        bool all;
        do {  // what is missing, at once: a round trip is long (several polls on their way cost 2 to 7 % more)
#pragma unroll
            for (int u = 0; u < ahead; u++) {
                const int split = first + u * lanes + sub;
                if (!bw_words_there(part[u])) part[u] = bw_record_load(values + split * value_step);
                if (!bw_words_there(stand[u])) stand[u] = bw_record_load(sums + split * together);
            }
            all = true;
#pragma unroll
            for (int u = 0; u < ahead; u++) all = all && bw_words_there(part[u]) && bw_words_there(stand[u]);
        } while (!all);
        __syncwarp();  // a record's sum may be read by four lanes and emptied by one of them
        float top = sum.top;
#pragma unroll
        for (int u = 0; u < ahead; u++) {
            const int split = first + u * lanes + sub;
            if (split < end) {
                bw_record_store(values + split * value_step, make_float4(empty, empty, empty, empty));
                if (empty_sums) bw_record_store(sums + split * together, make_float2(empty, empty));
            }
            top = fmaxf(top, stand[u].x);
        }
        sum.shrink_to(top);
#pragma unroll
        for (int u = 0; u < ahead; u++) sum.add(part[u], stand[u]);
    }
    return sum;
}

// Integers in the order of the floats whose bits they are made of, and back.
BW_DEVICE int bw_float_order(int bits) {
    return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

// Over lanes that are a multiple of `pace` apart.
template <int pace>
BW_DEVICE void bw_decode_add_lanes(bw_decode_sum &sum) {
    const int most = __reduce_max_sync(bw_all_lanes, bw_float_order(__float_as_int(sum.top)));
    sum.shrink_to(__int_as_float(bw_float_order(most)));
#pragma unroll
    for (int offset = pace; offset < 32; offset *= 2) sum.add_lane(offset);
}

// Few splits: a warp takes as many records at once as its lanes have two splits each of, because every turn waits for a
// round trip.
template <typename T>
BW_DEVICE void bw_decode_combine_few(const bw_decode_slots &slots, const bw_decode_place &place,
                                     const bw_decode_row &row, int first, int items, T *out) {
    const int lane = (int)threadIdx.x % 32, quad = lane % bw_record_quads, splits = place.splits;
    const int bits = splits > 4 ? 2 : splits > 2 ? 1 : 0;  // 2^bits lanes share out a record's splits
    const int sub = lane / bw_record_quads & ((1 << bits) - 1), pace = (int)blockDim.x / bw_record_quads >> bits;
#pragma unroll 1
    for (int base = 0; base < items; base += pace) {
        const int own = base + ((int)threadIdx.x / bw_record_quads >> bits), item = first + own;
        const int end = own < items ? splits : 0;
        bw_decode_sum sum =
            bw_decode_gather<2, 1>(slots.values + item * slots.splits * bw_record_quads + quad,
                                   slots.sums + item * slots.splits, 1 << bits, sub, splits, end, quad == 0);
#pragma unroll
        for (int offset = bw_record_quads; offset < bw_record_quads << 2; offset *= 2) {
            if (offset >> bits >= bw_record_quads) break;
            sum.shrink_to(fmaxf(sum.top, __shfl_xor_sync(bw_all_lanes, sum.top, offset)));
            sum.add_lane(offset);
        }
        if (end == 0 || sub != 0) continue;
        bw_decode_write_item(sum.value, sum.weight, slots, place, row, item, quad, out);
    }
}

// One combiner's share of a column's records: a warp takes all splits of one, four of its values to a lane, or, where
// there are many splits, of four of its values. All threads of the block come here.
template <typename T>
BW_DEVICE void bw_decode_combine(const bw_decode_exchange &exchange, const bw_decode_slots &slots,
                                 const bw_decode_place &place, const bw_decode_row &row, int combiner, int combiners,
                                 T *out) {
    const int all = place.heads * slots.row_records;
    int each = exchange.combiner_items;
    if (combiners < exchange.combiners) each = (all + combiners - 1) / combiners;  // a shorter entry
    const int first = combiner * each, items = min(each, all - first);
    if (place.splits <= bw_split_lanes) return bw_decode_combine_few(slots, place, row, first, items, out);
    const int warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    const bool apart = place.splits > 2 * bw_split_lanes;
#pragma unroll 1
    for (int unit = warp; unit < (apart ? items * bw_record_quads : items); unit += warps) {
        const int item = first + (apart ? unit / bw_record_quads : unit);
        const int quad = (apart ? unit : lane) % bw_record_quads;
        float4 *values = slots.values + item * slots.splits * bw_record_quads + quad;
        float2 *sums = slots.sums + item * slots.splits;
        bw_decode_sum sum;
        if (apart) {
            sum = bw_decode_gather<2, 1>(values, sums, 32, lane, place.splits, place.splits, false);
            bw_decode_add_lanes<1>(sum);
        } else {
            sum = bw_decode_gather<2, 1>(values, sums, bw_split_lanes, lane / bw_record_quads, place.splits,
                                         place.splits, quad == 0);
            bw_decode_add_lanes<bw_record_quads>(sum);
        }
        if (lane >= (apart ? 1 : bw_record_quads)) continue;
        bw_decode_write_item(sum.value, sum.weight, slots, place, row, item, quad, out);
    }
    if (!apart) return;
    __syncthreads();  // a sum has been read by four warps
    const float empty = __uint_as_float(bw_decode_empty);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < items * slots.splits; i += (int)blockDim.x) {
        bw_record_store(slots.sums + first * slots.splits + i, make_float2(empty, empty));
    }
}

// The end of a decode kernel, once each warp has filled its cells. `in_run`: of splits in runs, whose first one has the
// last ticket.
template <typename Cells, typename T>
BW_DEVICE void bw_decode_finish(const Cells &cells, const bw_decode_exchange &exchange, const bw_decode_place &place,
                                const bw_decode_row &row, unsigned ticket, bool in_run, T *out) {
    const bw_decode_slots slots(exchange, place.row0);
    if (threadIdx.x == 0) *cells.ticket = ticket;
    __syncthreads();
    bw_decode_store(cells, slots, place, row, out);
    if (place.splits == 1) return;
    __syncwarp();  // no lane may poll for what its neighbors have yet to store
    const int combiners = min(place.splits - in_run, exchange.combiners);
    const int combiner = (int)*cells.ticket - (place.splits - combiners);
    if (combiner >= 0) bw_decode_combine(exchange, slots, place, row, combiner, combiners, out);
}

// Where a kernel whose one argument is a `Work` finds its operands.
template <typename Work>
static void bw_decode_place_operands(bw_cuda_kernel *kernel) {
    bw_choose_place(kernel, 0, offsetof(Work, k), bw_from_operand(BW_ATTENTION_K));
    bw_choose_place(kernel, 0, offsetof(Work, v), bw_from_operand(BW_ATTENTION_V));
    bw_choose_place(kernel, 0, offsetof(Work, q), bw_from_operand(BW_ATTENTION_Q));
    bw_choose_place(kernel, 0, offsetof(Work, out), bw_from_operand(BW_ATTENTION_OUT));
}

static inline void bw_decode_place_exchange(bw_cuda_kernel *kernel, int argument, size_t offset,
                                            const bw_decode_plan &plan) {
    const int64_t values = plan.ticket_bytes, sums = values + plan.value_bytes;
    bw_choose_place(kernel, argument, offset + offsetof(bw_decode_exchange, tickets), bw_from_scratch(0));
    bw_choose_place(kernel, argument, offset + offsetof(bw_decode_exchange, values), bw_from_scratch(values));
    bw_choose_place(kernel, argument, offset + offsetof(bw_decode_exchange, sums), bw_from_scratch(sums));
}

static inline bw_address bw_decode_from_parts(const bw_decode_plan &plan) {
    return plan.parts > 0 ? bw_from_scratch(plan.parts_at) : bw_address{bw_nothing, 0};
}

// Of the kernels whose keys are staged in shared memory.
template <typename Kernel>
static bw_status bw_decode_choose_staged(Kernel *function, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                         const bw_decode_work &work, bw_cuda_launch_spec *out) {
    const int work_argument = 4;
    const int64_t rows = plan.parts > 0 ? plan.parts * shape.kv_heads * plan.chunks : plan.columns;
    bw_cuda_kernel *kernel = bw_choose(out, function, dim3((unsigned)rows, plan.parts > 0 ? 1 : (unsigned)plan.splits),
                                       dim3((unsigned)plan.warps * 32), plan.shared_bytes,
                                       bw_from_operand(BW_ATTENTION_Q), bw_from_operand(BW_ATTENTION_K),
                                       bw_from_operand(BW_ATTENTION_V), bw_from_operand(BW_ATTENTION_OUT), work, shape);
    kernel->cluster = plan.cluster;
    bw_choose_place(kernel, work_argument, offsetof(bw_decode_work, parts), bw_decode_from_parts(plan));
    bw_decode_place_exchange(kernel, work_argument, offsetof(bw_decode_work, exchange), plan);
    return BW_OK;
}
