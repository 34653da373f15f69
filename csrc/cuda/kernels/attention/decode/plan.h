// The division of a decode into blocks, and the values that its kernels get from it.
#pragma once

#include <vector_types.h>

#include "cuda/kernels/attention/shape.h"
#include "cuda/kernels/common/divide.cuh"
#include "cuda/launch/prepared.h"

// How a decode divides its keys. One block takes up to `block_heads` query heads of one K/V head over `split_keys`
// keys; what it takes of the heads is a column.
struct bw_decode_plan {
    int warps;        // per block
    int head_slots;   // a block's warps that hold different heads; the others share out the keys
    int block_heads;  // query heads of a full block
    bool split;       // FP32's elements are split: fp32/split_fp32.cu
    int wide;         // of staged_mma.cuh: 0, or the warps that share keys
    int cluster;      // 0, or as many blocks as there are splits: wide.cuh
    int64_t chunks;   // columns that a group of query heads needs: 1 unless the group is larger than block_heads
    int64_t columns;  // over all batch entries; INT64_MAX when there are more
    int64_t longest;  // entry's keys
    int64_t splits;   // over the longest entry
    int64_t split_keys;
    // Of these, what only the split's block takes, where an entry's blocks share the others (direct.cu); else 0.
    int64_t own_keys;
    int64_t parts;    // over all entries, where they have lengths of their own or blocks take runs; else 0
    int64_t divided;  // of these, of entries that have several
    // Of parts that blocks take one after another, each K/V head's, and among how many they were dealt; 0: a block
    // takes one part.
    int64_t runs, run_limit;
    int64_t waiting;  // blocks that may wait for others that have not begun
    size_t shared_bytes;
    bool direct;         // direct/
    int step_keys;       // direct: keys of a split that a block may meet at one go
    int resident;        // blocks that run on a multiprocessor at once, or, where more do, that are counted on
    int row_records;     // records of combine.cuh that a head's output takes
    int combiners;       // blocks that add up a column's splits
    int combiner_items;  // records of a block's heads, over all splits, that each of them takes; wide blocks divide
                         // them themselves
    // Scratch: a ticket per column and, where blocks share keys, a count of those taken, then the values and the sums
    // of each (row of out, record, split), all 0 when there is one split; then the parts.
    int64_t ticket_bytes, value_bytes, sum_bytes, parts_at, scratch_bytes;
};

// Where entries have lengths of their own, or blocks take runs: keys that a block takes, of each K/V head. The longest
// parts come first, so that the last blocks to begin are short ones; where blocks take runs of parts, the first ones of
// all runs do.
struct alignas(16) bw_decode_part {
    int entry, first, keys;
    unsigned char split, splits;
    unsigned short next;  // of its run, 0: none
};

// What a kernel needs of it to put splits together.
struct bw_decode_exchange {
    unsigned *tickets;
    float4 *values;
    float2 *sums;
    int splits, row_records;
    unsigned record_magic;  // ceil(2^20 / row_records)
    int combiners, combiner_items;
};

// A row of q and out.
struct bw_decode_row {
    int head_dim;
    bool vectors;  // rows start at multiples of 16 bytes
};

// What a kernel gets of it. What it needs to find its keys comes first: parameters are read through a cache, too.
struct bw_decode_work {
    const bw_decode_part *parts;     // NULL: a block finds its part by its place
    int64_t batch_elems, key_elems;  // from one batch entry, and from one key, to the next in k and v
    bw_divider by_kv_heads;
    int64_t split_keys;
    int chunks, block_heads;
    int slot_bits, shares;  // 2^slot_bits warps hold different heads of the keys of one of `shares` shares
    bw_decode_exchange exchange;
    bw_divider by_chunks;
};

// Of an entry's keys: each split adds to the records that are stored and read back.
constexpr int bw_decode_split_limit = 128;

// Of combine.cuh: sixteen values; with their maximum and their sum.
constexpr int bw_decode_record_dims = 16;
constexpr int64_t bw_decode_record_bytes = 72;

// Of wide.cuh's clusters: what a column's blocks add up between them, and the bytes that one of them sends for each.
constexpr int bw_decode_units(int padded) {
    return padded / 8;
}
constexpr int bw_decode_unit_bytes = 576;

// Floats between the rows of a block's partial outputs in shared memory.
constexpr int bw_decode_cell_gap = 8;

// Of staged_mma.cuh: steps of 16 elements of q, of a row of `padded`, that a warp keeps in shared memory, 512 bytes
// each, because its sums take most registers. (Two warps' rings and three steps of each are all that 99 KiB hold.)
constexpr int bw_decode_spare_steps(int padded) {
    return padded > 128 ? 3 : 0;
}

// Mirrored by the plan: how decode/fp32/staged_fp32.cu holds a head of `padded` elements. A part of a warp holds a key,
// each lane 4 neighboring elements, two or three times where its lanes are not enough; its `steps` keys and `heads`
// query heads make 8 or 16 scores at a time. Two blocks of 8 warps (4) run on a multiprocessor, each warp with a ring
// of 8 to 16 KiB. (Longer rings are slower: with 24 KiB an H200 reaches 93 % of a stream, with 12 KiB 98.)
template <int padded_dim, int slot_heads>
struct bw_decode_lanes {
    static constexpr int padded = padded_dim, heads = slot_heads;
    static constexpr int lanes = padded == 64 || padded == 192 ? 16 : 32, parts = 32 / lanes;
    static constexpr int pace = 4 * lanes, quads = padded / pace;  // of a lane's elements; how often
    static constexpr int steps = padded == 192 ? 2 : 16 / heads, scores = steps * heads;
    static constexpr int warps = padded <= 128 ? 8 : 4;
    static constexpr int stage_floats = 2 * parts * steps * padded;  // a warp's step: K and V
    static constexpr int stages = stage_floats <= 512 ? 6 : 2;
    static constexpr size_t ring_bytes = (size_t)stages * stage_floats * sizeof(float);
};

// Mirrored by the plan: the ring of a warp of decode/fp32/split_fp32.cu, so many times 16 rows of K or of V. Longer
// ones leave no room for two blocks of four warps on a multiprocessor.
constexpr int bw_decode_split_depth(int padded, int heads) {
    return padded <= 64 ? 5 : heads <= 16 ? 3 : 2;
}

constexpr int bw_decode_plans_most = 28;
// A shape's plans, at least one; the first is what most cards should do.
int bw_decode_plan_list(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts,
                        bw_decode_plan out[bw_decode_plans_most]);
// Of these the one that a search has found to be the fastest (plan_cache.h), else the first.
bw_decode_plan bw_decode_plan_make(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts);
uint64_t bw_decode_plan_key(const bw_dims *dims, bw_dtype dtype);
// The plan's parts, in the order in which blocks begin.
void bw_decode_plan_parts(const bw_decode_plan &plan, const bw_dims *dims, bw_decode_part *out);

// runs.cc: the parts of all entries, dealt to at most `limit` runs of blocks.
struct bw_decode_run_counts {
    int64_t runs, parts, splits;  // splits: of the entry that has most
    int64_t divided;              // parts of entries that have several
};
bw_decode_run_counts bw_decode_count_runs(const bw_dims *dims, int64_t limit);
void bw_decode_deal_parts(const bw_dims *dims, int64_t limit, int64_t runs, bw_decode_part *out);

static inline int64_t bw_decode_round_up(int64_t value, int64_t multiple) {
    return bw_ceil_div(value, multiple) * multiple;
}

// An entry of `length` keys in as few even splits of up to `split_keys`, a multiple of 16, as there may be.
struct bw_decode_division {
    int64_t splits, keys;
};
static inline bw_decode_division bw_decode_divide(int64_t length, int64_t split_keys) {
    const int64_t splits = bw_ceil_div(length, split_keys);
    return {splits, bw_ceil_div(bw_ceil_div(length, splits), 16) * 16};
}
// Mirrored by the plan: which blocks of direct.cu may share keys. Those of long rows, alone on their multiprocessors.
constexpr bool bw_decode_shares_keys(int padded, int warps) {
    return padded > 64 && warps == 8;
}
// Whether the blocks that wait for others leave room for these where `resident` blocks run on a multiprocessor at once.
bool bw_decode_plan_holds(const bw_decode_plan &plan, int resident, int units);
// direct.cu: up to 8 query heads per K/V head, aligned rows of up to 256 elements, in FP32 64 and of few keys. For the
// other shapes fp32/; staged_fp16.cu and staged_bf16.cu
bw_status bw_decode_direct_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                  const bw_decode_exchange &exchange, bw_cuda_launch_spec *out);
// narrow.cu: caches of 8 bits, the same rows, query heads in chunks of 8.
bw_status bw_decode_narrow_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                  const bw_decode_exchange &exchange, bw_cuda_launch_spec *out);
// oneshot.cu: of those, where it takes them.
bool bw_decode_oneshot_takes(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan);
bw_status bw_decode_oneshot_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                   const bw_decode_exchange &exchange, bw_cuda_launch_spec *out);
bw_status bw_decode_fp32_choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_work &work,
                                bw_cuda_launch_spec *out);
bw_status bw_decode_split_fp32_choose(const bw_attention_shape &shape, const bw_decode_plan &plan,
                                      const bw_decode_work &work, bw_cuda_launch_spec *out);
bw_status bw_decode_fp16_choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_work &work,
                                bw_cuda_launch_spec *out);
bw_status bw_decode_bf16_choose(const bw_attention_shape &shape, const bw_decode_plan &plan, const bw_decode_work &work,
                                bw_cuda_launch_spec *out);
// wide_sm90.cu
bw_status bw_decode_wide_cluster_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                        const bw_decode_work &work, bw_cuda_launch_spec *out);
