// Into how many splits a decode's entries are divided, by models of the time that its blocks take.
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

// Splits of up to `split_keys`, and the blocks that take them, over all entries.
int64_t bw_decode_parts(const bw_dims *dims, int64_t split_keys);
double bw_decode_blocks(const bw_decode_plan &plan, const bw_dims *dims, int64_t split_keys);

// What the blocks of a cluster have for each other.
size_t bw_decode_mailbox_bytes(int padded, int64_t blocks);
// What products of wide blocks take, as a share of what memory does.
double bw_decode_wide_products(const bw_decode_plan &plan);

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
// Of any blocks, for entries with lengths of their own: up to `limit` splits.
bw_decode_split_choice bw_decode_ragged_splits(const bw_decode_plan &plan, const bw_dims *dims, bw_dtype dtype,
                                               int64_t units, int64_t limit);

// Parts of all entries, dealt to up to `limit` runs: runs.cc
struct bw_decode_run_counts {
    int64_t runs, parts, splits;  // splits: of the entry that has most
    int64_t divided;              // parts of entries that have several
    int64_t longest;              // keys of a run
};
void bw_decode_deal_parts(const bw_dims *dims, int64_t limit, int64_t runs, bw_decode_part *out);
// ragged.cc
double bw_decode_runs_time(const bw_decode_plan &plan, const bw_dims *dims, int64_t units,
                           const bw_decode_run_counts &counts);
// Blocks of `plan` by runs: the time they take, and what they are dealt.
struct bw_decode_run_choice {
    int64_t limit;  // 0: none
    double time;
    bw_decode_run_counts counts;
};
bw_decode_run_choice bw_decode_choose_runs(const bw_decode_plan &plan, const bw_dims *dims, int64_t units);

#endif
