// The order in which the blocks of flash, split and hopper take their work.
#pragma once

#include "cuda/kernels/attention/prefill/flash.h"
#include "cuda/kernels/common/sm80.cuh"

// All tiles of queries pass over one section of (batch, head) pairs before the next one's turn: two sections' K and V
// fit into the L2 (whose halves may hold the same lines), and are read from memory once. A section's longest rows come
// first. A short last section would leave most of the GPU waiting for those, so the one before takes it in.
struct bw_flash_order {
    int64_t query_tiles;
    int64_t section;   // pairs
    int64_t sections;  // the last one holds all pairs that are left
};

// `slots`: blocks that run at once; 0: the last section is what is left.
static inline bw_flash_order bw_flash_order_make(const bw_attention_shape &shape, int64_t query_tiles,
                                                 int64_t element_bytes, int64_t cache_bytes, int64_t slots) {
    const int64_t head_bytes = 2 * shape.keys * shape.head_dim * element_bytes;
    const int64_t fitting = cache_bytes / 8 / head_bytes, heads = fitting > 1 ? fitting : 1;
    const int64_t pairs = shape.batch * shape.heads;
    if (heads >= pairs / shape.group) return {query_tiles, pairs, 1};
    const int64_t section = heads * shape.group, whole = pairs / section, left = pairs % section;
    // From three blocks for two slots on, the short rows at its end even out what the long ones leave.
    return {query_tiles, section, whole + (left * query_tiles > slots * 3 / 2 ? 1 : 0)};
}

// Block `block`'s (batch, head) pair and its tile of queries.
BW_DEVICE void bw_flash_place(const bw_attention_shape &shape, const bw_flash_order &order, int64_t block,
                              int64_t *pair, int64_t *tile) {
    const int64_t number = min(block / (order.section * order.query_tiles), order.sections - 1);
    const int64_t first = number * order.section, within = block - first * order.query_tiles;
    const int64_t pairs = number + 1 < order.sections ? order.section : shape.batch * shape.heads - first;
    *pair = first + within % pairs;
    *tile = order.query_tiles - 1 - within / pairs;
}
