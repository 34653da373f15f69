// Maps of the KV cache's moves: from a unit's index on the side that is contiguous as a whole to its index on the
// other. A unit is some bytes of a token, or a head of it.
#pragma once

#include "cuda/kernels/common/divide.cuh"

namespace {

struct same_map {
    __device__ int64_t operator()(int64_t i) const {
        return i;
    }
};

// Contiguous append. An entry's new tokens are one stretch in source and cache alike, and the cache holds `shift`
// units more per entry, in front of the stretch.
struct append_map {
    bw_divider entry;  // units of new tokens per batch entry
    int64_t shift;
    __device__ int64_t operator()(int64_t i) const {
        return i + (entry.quotient(i) + 1) * shift;
    }
};

// Paged append: token t's row goes to row slots[t].
struct slot_map {
    const int64_t *slots;
    bw_divider row;
    __device__ int64_t operator()(int64_t i) const {
        const int64_t token = row.quotient(i);
        return slots[token] * row.divisor + (i - token * row.divisor);
    }
};

// Gather: from the output (B, L, G, D) to the pages; a page is one stretch on both sides.
struct page_map {
    const int32_t *table;    // (B, pages per entry)
    bw_divider entry, page;  // units per batch entry and per page
    int64_t entry_pages;
    __device__ int64_t operator()(int64_t i) const {
        const int64_t b = entry.quotient(i);
        const int64_t within = i - b * entry.divisor;
        const int64_t p = page.quotient(within);
        return (int64_t)table[b * entry_pages + p] * page.divisor + (within - p * page.divisor);
    }
};

}  // namespace
