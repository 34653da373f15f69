// What both flash kernels share: in which order their blocks take the work.
#ifndef BW_CUDA_PREFILL_ORDER_CUH
#define BW_CUDA_PREFILL_ORDER_CUH

#include "cuda/kernels/attention/prefill/flash.h"
#include "cuda/kernels/common/sm80.cuh"

// The order of a flash kernel's blocks. All tiles of queries pass over the K and V of one section of (batch, head)
// pairs before the next section's turn comes, so that these are read from memory once: two sections fit into the L2
// with room to spare (its halves may hold the same lines). Within a section the longest rows come first.
struct bw_flash_order {
    int64_t query_tiles;
    int64_t section;  // pairs
};

static inline bw_flash_order bw_flash_order_make(const bw_attention_shape &shape, int64_t query_tiles,
                                                 int64_t element_bytes, int64_t cache_bytes) {
    const int64_t head_bytes = 2 * shape.keys * shape.head_dim * element_bytes;
    const int64_t fitting = cache_bytes / 8 / head_bytes, heads = fitting > 1 ? fitting : 1;
    const int64_t pairs = shape.batch * shape.heads;
    return {query_tiles, heads < pairs / shape.group ? heads * shape.group : pairs};
}

// Block `block`'s (batch, head) pair and its tile of queries.
BW_DEVICE void bw_flash_place(const bw_attention_shape &shape, const bw_flash_order &order, int64_t block,
                              int64_t *pair, int64_t *tile) {
    const int64_t first = block / (order.section * order.query_tiles) * order.section;
    const int64_t within = block - first * order.query_tiles;
    const int64_t pairs = min(order.section, shape.batch * shape.heads - first);
    *pair = first + within % pairs;
    *tile = order.query_tiles - 1 - within / pairs;
}

#endif
