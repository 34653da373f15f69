/* The KV cache: moves of K and V both, and the rotation of what goes there.
 *   kv_append  k, v(T, G, D) [, slots(T)] -> k_cache, v_cache      T = batch * seq_len new tokens
 *     contiguous (page_size 0): cache (B, kv_len + seq_len, G, D); token s of entry b goes to row kv_len + s of b
 *     paged: cache (pages, page_size, G, D); token t goes to row slots[t] of the cache seen as rows of G * D
 *   kv_gather  k_cache, v_cache(pages, page_size, G, D), table(B, ceil(L / page_size)) -> k, v(B, L, G, D)
 *     row l of entry b comes from page table[b][l / page_size], row l % page_size; with dequantize 1 as a result, a
 *     value of a cache with scales times its scale
 *   kv_copy    k, v(B, L, G, D) -> k_copy, v_copy
 *   rope       q(T, H, D), k(T, G, D), angles(T, 2, D / 2) -> q_out, k_out
 *     element i of a head's first half and element i of its second are the two coordinates of a point (as in Llama and
 *     GPT-NeoX), which turns by angle i of its token: angles[t][0][i] is the cosine, angles[t][1][i] the sine
 *   rope_append  q(T, H, D), k, v(T, G, D), angles(kv_len + seq_len, 2, D / 2) [, slots(T)] -> q_out, k_cache, v_cache
 *     q and k as by rope, but that token s of every entry has angles[kv_len + s]; then k and v as by kv_append
 * In precisions with scales beside the values every cache has a scale per token and head, (..., G), that moves with it.
 * The new tokens of kv_append are results, of another type than the cache: it quantizes them. A scale is the largest
 * magnitude of a head / the cache's largest number (bw_dtype_largest), a value round(x / scale), both divided in FP32;
 * a head of zeros has a scale of 0 and zeros. kv_gather's product, too, is taken in FP32 and then rounded.
 * Generated angles are any numbers in [-1, 1): a rotation is linear in them, so that they show every mistake that
 * cosines and sines do. */
#pragma once

#include "ops/op.h"

#define BW_KV_OPERATIONS(X)        \
    X(kv_append, KERNELS, KERNELS) \
    X(kv_gather, KERNELS, KERNELS) \
    X(kv_copy, KERNELS, KERNELS)   \
    X(rope, KERNELS, KERNELS)      \
    X(rope_append, KERNELS, KERNELS)

enum {
    BW_APPEND_BATCH,
    BW_APPEND_SEQ_LEN,
    BW_APPEND_KV_LEN, /* tokens already in the cache */
    BW_APPEND_NUM_KV_HEADS,
    BW_APPEND_HEAD_DIM,
    BW_APPEND_PAGE_SIZE /* 0: contiguous */
};
enum {
    BW_APPEND_K,
    BW_APPEND_V,
    BW_APPEND_K_CACHE,
    BW_APPEND_V_CACHE,
    BW_APPEND_SLOTS, /* int64; only where the cache is paged */
    BW_APPEND_K_CACHE_SCALE,
    BW_APPEND_V_CACHE_SCALE,
    BW_APPEND_OPERANDS
};

enum {
    BW_GATHER_BATCH,
    BW_GATHER_KV_LEN,
    BW_GATHER_NUM_KV_HEADS,
    BW_GATHER_HEAD_DIM,
    BW_GATHER_PAGE_SIZE,
    BW_GATHER_DEQUANTIZE
};
enum {
    BW_GATHER_K_CACHE,
    BW_GATHER_V_CACHE,
    BW_GATHER_TABLE, /* int32 */
    BW_GATHER_K,
    BW_GATHER_V,
    BW_GATHER_K_CACHE_SCALE,
    BW_GATHER_V_CACHE_SCALE,
    BW_GATHER_K_SCALE,
    BW_GATHER_V_SCALE,
    BW_GATHER_OPERANDS
};

enum { BW_COPY_BATCH, BW_COPY_KV_LEN, BW_COPY_NUM_KV_HEADS, BW_COPY_HEAD_DIM };
enum {
    BW_COPY_K,
    BW_COPY_V,
    BW_COPY_K_COPY,
    BW_COPY_V_COPY,
    BW_COPY_K_SCALE,
    BW_COPY_V_SCALE,
    BW_COPY_K_COPY_SCALE,
    BW_COPY_V_COPY_SCALE,
    BW_COPY_OPERANDS
};

enum { BW_ROPE_TOKENS, BW_ROPE_NUM_HEADS, BW_ROPE_NUM_KV_HEADS, BW_ROPE_HEAD_DIM };
enum { BW_ROPE_Q, BW_ROPE_K, BW_ROPE_ANGLES, BW_ROPE_Q_OUT, BW_ROPE_K_OUT, BW_ROPE_OPERANDS };

/* rope_append begins with the parameters and the operands of kv_append. */
enum { BW_ROPE_APPEND_NUM_HEADS = BW_APPEND_PAGE_SIZE + 1 };
enum { BW_ROPE_APPEND_Q = BW_APPEND_OPERANDS, BW_ROPE_APPEND_ANGLES, BW_ROPE_APPEND_Q_OUT, BW_ROPE_APPEND_OPERANDS };

struct bw_device_facts;
/* As bw_variant has them, of a rope_append that keeps its rotated keys in between. */
BW_C int64_t bw_rope_append_unfused_scratch(const bw_dims *dims, const bw_precision *precision,
                                            const struct bw_device_facts *facts);
BW_C bw_status bw_rope_append_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                           const struct bw_device_facts *facts, bw_cost *cost);
