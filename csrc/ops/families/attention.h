/* Attention, softmax(q k^T / sqrt(D)) v, with grouped K and V heads: query head h reads K/V head h / (H / G).
 *   q(B, Sq, H, D), k(B, L, G, D), v(B, L, G, D) -> out(B, Sq, H, D)
 * Prefill may be causal: query s then attends keys 0 .. L - Sq + s. Decode is Sq = 1; entry b attends its first
 * kv_lens[b] keys where kv_lens is given (k and v stay padded to L), else all L.
 * Multi-head latent attention, absorbed (DeepSeek V2, V3; Kimi): a token has one row of R + P elements that all query
 * heads share, a latent and the part with rotary positions. It is the key, and its first R elements the value:
 *   q(B, 1, H, R + P), cache(B, L, 1, R + P) -> out(B, 1, H, R)
 * A score is divided by sqrt(R / 4 + P), the root of a head's size before the absorption: 128 + 64 where R is 512. */
#pragma once

#include <math.h>

#include "ops/op.h"

#define BW_ATTENTION_OPERATIONS(X)         \
    X(attention_prefill, KERNELS, KERNELS) \
    X(attention_decode, KERNELS, KERNELS)  \
    X(mla_decode, KERNELS, KERNELS)

enum {
    BW_PREFILL_BATCH,
    BW_PREFILL_SEQ_LEN,
    BW_PREFILL_KV_LEN,
    BW_PREFILL_NUM_HEADS,
    BW_PREFILL_NUM_KV_HEADS,
    BW_PREFILL_HEAD_DIM,
    BW_PREFILL_CAUSAL
};

enum { BW_DECODE_BATCH, BW_DECODE_KV_LEN, BW_DECODE_NUM_HEADS, BW_DECODE_NUM_KV_HEADS, BW_DECODE_HEAD_DIM };

/* The first ones are a decode's. */
enum { BW_MLA_LATENT_DIM = BW_DECODE_NUM_HEADS + 1, BW_MLA_ROPE_DIM };

/* KV_LENS (int32, one per batch entry) is there only for a decode with kv_lens; K_SCALE, V_SCALE(B, L, G), one per
 * token and head, for precisions with scales beside the values. K and V are a cache's
 * (bw_attention_kv_dtype), Q and OUT results. mla_decode has its cache for K, and no V. */
enum {
    BW_ATTENTION_Q,
    BW_ATTENTION_K,
    BW_ATTENTION_V,
    BW_ATTENTION_OUT,
    BW_ATTENTION_KV_LENS,
    BW_ATTENTION_K_SCALE,
    BW_ATTENTION_V_SCALE,
    BW_ATTENTION_OPERANDS
};

enum { BW_HEAD_DIM_MAX = 256, BW_LATENT_DIM_MAX = 512, BW_ROPE_DIM_MAX = 256 };

/* Of K and V: a cache's type; in a precision without one (tf32) what a prompt just made. */
static inline bw_dtype bw_attention_kv_dtype(const bw_precision *precision) {
    return precision->cache != BW_NONE ? precision->cache : precision->activation;
}

extern const bw_op bw_op_mla_decode;

/* The sizes of attention_decode and mla_decode. */
typedef struct bw_decode_sizes {
    int64_t batch, kv_len, heads, kv_heads, key_dim, value_dim;
    double scale; /* of scores */
} bw_decode_sizes;

static inline bw_decode_sizes bw_decode_sizes_of(const bw_dims *dims) {
    const int64_t *v = dims->value;
    bw_decode_sizes sizes = {v[BW_DECODE_BATCH], v[BW_DECODE_KV_LEN], v[BW_DECODE_NUM_HEADS], 1, 0, 0, 0.0};
    if (dims->op == &bw_op_mla_decode) {
        sizes.value_dim = v[BW_MLA_LATENT_DIM];
        sizes.key_dim = sizes.value_dim + v[BW_MLA_ROPE_DIM];
        sizes.scale = 1.0 / sqrt((double)sizes.value_dim / 4.0 + (double)v[BW_MLA_ROPE_DIM]);
    } else {
        sizes.kv_heads = v[BW_DECODE_NUM_KV_HEADS];
        sizes.key_dim = sizes.value_dim = v[BW_DECODE_HEAD_DIM];
        sizes.scale = 1.0 / sqrt((double)sizes.key_dim);
    }
    return sizes;
}
