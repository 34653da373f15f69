/* Attention, softmax(q k^T / sqrt(D)) v, with grouped K and V heads: query head h reads K/V head h / (H / G).
 *   q(B, Sq, H, D), k(B, L, G, D), v(B, L, G, D) -> out(B, Sq, H, D)
 * Prefill may be causal: query s then attends keys 0 .. L - Sq + s. Decode is Sq = 1; entry b attends its first
 * kv_lens[b] keys where kv_lens is given (k and v stay padded to L), else all L. */
#pragma once

#include "base/types/precision.h"

#define BW_ATTENTION_OPERATIONS(X)         \
    X(attention_prefill, KERNELS, KERNELS) \
    X(attention_decode, KERNELS, KERNELS)

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

/* KV_LENS (int32, one per batch entry) is there only for a decode with kv_lens; K_SCALE, V_SCALE(B, L, G), one per
 * token and head, for precisions with scales beside the values. K and V are a cache's
 * (bw_attention_kv_dtype), Q and OUT results. */
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

enum { BW_HEAD_DIM_MAX = 256 };

/* Of K and V: a cache's type; in a precision without one (tf32) what a prompt just made. */
static inline bw_dtype bw_attention_kv_dtype(const bw_precision *precision) {
    return precision->cache != BW_NONE ? precision->cache : precision->activation;
}
