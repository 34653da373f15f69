// The shape of an attention case, for its kernels.
#pragma once

#include <math.h>

#include "backend/backend.h"
#include "ops/families/attention.h"

// q and out are (batch, queries, heads, head_dim); k and v are (batch, keys, kv_heads, head_dim).
struct bw_attention_shape {
    int64_t batch, queries, keys, heads, kv_heads;
    int64_t group;  // query heads per K/V head
    int head_dim;
    bool causal;
    bool vectors;  // rows start at multiples of 16 bytes
    float scale;   // log2(e) / sqrt(head_dim): softmax is taken in powers of 2
};

static inline bool bw_attention_vectors(int64_t head_dim, bw_dtype dtype) {
    return head_dim * bw_dtype_get(dtype)->block_bytes % 16 == 0;
}

static inline bw_attention_shape bw_attention_shape_make(int64_t batch, int64_t queries, int64_t keys, int64_t heads,
                                                         int64_t kv_heads, int64_t head_dim, bool causal,
                                                         bw_dtype dtype) {
    bw_attention_shape shape = {};
    shape.batch = batch;
    shape.queries = queries;
    shape.keys = keys;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.group = heads / kv_heads;
    shape.head_dim = (int)head_dim;
    shape.causal = causal;
    shape.vectors = bw_attention_vectors(head_dim, dtype);
    shape.scale = (float)(1.4426950408889634 / sqrt((double)head_dim));
    return shape;
}

static inline bw_attention_shape bw_prefill_shape(const bw_dims *dims, bw_dtype dtype) {
    const int64_t *value = dims->value;
    return bw_attention_shape_make(value[BW_PREFILL_BATCH], value[BW_PREFILL_SEQ_LEN], value[BW_PREFILL_KV_LEN],
                                   value[BW_PREFILL_NUM_HEADS], value[BW_PREFILL_NUM_KV_HEADS],
                                   value[BW_PREFILL_HEAD_DIM], value[BW_PREFILL_CAUSAL] != 0, dtype);
}

static inline bw_attention_shape bw_decode_shape(const bw_dims *dims, bw_dtype dtype) {
    const int64_t *value = dims->value;
    return bw_attention_shape_make(value[BW_DECODE_BATCH], 1, value[BW_DECODE_KV_LEN], value[BW_DECODE_NUM_HEADS],
                                   value[BW_DECODE_NUM_KV_HEADS], value[BW_DECODE_HEAD_DIM], false, dtype);
}

// Of a variant's intermediates: each of `bytes` is written once and read once, each of `prepared` is read.
static inline bw_status bw_attention_add_traffic(bw_cost *cost, int64_t bytes, int64_t prepared_bytes = 0) {
    const bw_checked_int all = bw_add(bw_num(bytes), bw_num(prepared_bytes));
    const bw_checked_int read = bw_add(bw_num(cost->algorithmic_bytes_read), all);
    const bw_checked_int written = bw_add(bw_num(cost->algorithmic_bytes_written), bw_num(bytes));
    if (read.overflow || written.overflow) {
        return bw_fail(BW_CODE_INVALID, "the variant's intermediates take more than 2^63 - 1 bytes");
    }
    cost->algorithmic_bytes_read = read.value;
    cost->algorithmic_bytes_written = written.value;
    return BW_OK;
}
