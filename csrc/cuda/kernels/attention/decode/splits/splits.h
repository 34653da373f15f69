// Chooses the number of splits of a decode by models of the time that its blocks take.
#ifndef BW_CUDA_DECODE_SPLITS_H
#define BW_CUDA_DECODE_SPLITS_H

#include <math.h>

#include "cuda/kernels/attention/decode/plan.h"

// Of the longest entry. The time is in bytes of keys that a multiprocessor gets of an H200's memory in it (34.4 a
// nanosecond).
struct bw_decode_split_choice {
    int64_t splits;
    double time;
    bool cluster;  // wide.cuh: they are one
};

static inline int64_t bw_decode_length(const bw_dims *dims, int64_t entry) {
    return dims->list ? dims->list[entry] : dims->value[BW_DECODE_KV_LEN];
}

static inline int64_t bw_decode_round_up(int64_t value, int64_t multiple) {
    return bw_ceil_div(value, multiple) * multiple;
}

// The shortest split of staged and of wide blocks, in keys.
static constexpr int64_t bw_decode_staged_keys = 64;

// The largest number of splits of the longest entry, with at least `least_keys` keys each.
static inline int64_t bw_decode_most_splits(const bw_decode_plan &plan, int64_t least_keys) {
    return bw_min64(bw_decode_split_limit, bw_ceil_div(plan.longest, least_keys));
}

// ---- parts.cc ----

// The number of parts of up to `split_keys` keys, and of the blocks that take them, over all entries.
int64_t bw_decode_parts(const bw_dims *dims, int64_t split_keys);
double bw_decode_blocks(const bw_decode_plan &plan, const bw_dims *dims, int64_t split_keys);

// The shared memory in which the blocks of a cluster leave results for each other.
size_t bw_decode_mailbox_bytes(int padded, int64_t blocks);
// The time of a wide block's products, as a share of the time that memory takes.
double bw_decode_wide_products(const bw_decode_plan &plan);

// ---- equal.cc: entries of one length ----

// The fastest number of splits for a plan whose entries and blocks are known (longest, entries; warps, resident, chunks
// and, of direct ones, step_keys).
bw_decode_split_choice bw_decode_direct_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype,
                                               int64_t units);
// `bytes_per_ns`: what the device's memory yields.
int64_t bw_decode_staged_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype, int64_t units,
                                double bytes_per_ns);
// `cluster_limit`: bytes of shared memory that a cluster's block may have.
bw_decode_split_choice bw_decode_wide_splits(const bw_decode_plan &plan, const bw_dims *dims, int padded, int64_t units,
                                             int64_t cluster_limit);

// ---- ragged.cc: entries of different lengths ----

// The same for any blocks, with up to `limit` splits.
bw_decode_split_choice bw_decode_ragged_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype,
                                               int64_t units, int64_t limit);

// The parts of all entries, dealt to runs of blocks.
struct bw_decode_run_counts {
    int64_t runs, parts, splits;  // splits: of the entry that has most
    int64_t divided;              // parts of entries that have several
    int64_t longest;              // keys of a run
};
// How long blocks take that have runs of parts.
double bw_decode_runs_time(const bw_decode_plan &plan, const bw_dims *dims, int64_t units,
                           const bw_decode_run_counts &counts);

// ---- runs.cc ----

// At most `limit` runs.
void bw_decode_deal_parts(const bw_dims *dims, int64_t limit, int64_t runs, bw_decode_part *out);
// The runs of a plan's blocks and the time that they take.
struct bw_decode_run_choice {
    int64_t limit;  // 0: none
    double time;
    bw_decode_run_counts counts;
};
bw_decode_run_choice bw_decode_choose_runs(const bw_decode_plan &plan, const bw_dims *dims, int64_t units);

#endif
