/* attention_prefill, attention_decode and mla_decode: see ops/families/attention.h.
 * Bytes: q, k, v (with their scales) and out once each, however the heads are grouped and whether causal or not. FLOPs:
 * 2 B H (D + Dv) N, where D elements of a key meet a query's and Dv of a value are added up, with N the query-key pairs
 * attended: Sq L, or causal Sq L - Sq (Sq - 1) / 2; decode N = L. */
#include "ops/families/attention.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/types/input.h"
#include "ops/operand.h"

#define BATCH_PARAM \
    BW_PARAM("batch", "sequences", "sequences", 1, INT32_MAX, .fallback = 1, .small = 2, .from_list = BW_FROM_COUNT)
#define NUM_HEADS_PARAM(heads) BW_PARAM("num_heads", "heads", "query heads", 1, 65536, .fallback = heads, .small = 6)
#define KV_LEN_PARAM                                                                                              \
    BW_PARAM("kv_len", "tokens", "keys per sequence (the longest, with kv_lens)", 1, INT32_MAX, .fallback = 4096, \
             .small = 7, .from_list = BW_FROM_LARGEST)
#define HEAD_PARAMS                                                                       \
    NUM_HEADS_PARAM(32),                                                                  \
        BW_PARAM("num_kv_heads", "heads", "key/value heads; divides num_heads", 1, 65536, \
                 .fallback_from = "num_heads", .small = 2),                               \
        BW_PARAM("head_dim", "elements", "elements of one head", 1, BW_HEAD_DIM_MAX, .fallback = 128, .small = 8)

static const bw_param prefill_params[] = {
    BATCH_PARAM,
    BW_PARAM("seq_len", "tokens", "queries per sequence", 1, INT32_MAX, .fallback = 512, .small = 5),
    BW_PARAM("kv_len", "tokens", "keys per sequence", 1, INT32_MAX, .fallback_from = "seq_len", .small = 7),
    HEAD_PARAMS,
    BW_PARAM("causal", "", "1: a query attends the keys up to its own position", 0, 1, .fallback = 1, .small = 1),
};

static const bw_param decode_params[] = {
    BATCH_PARAM,
    KV_LEN_PARAM,
    HEAD_PARAMS,
};

static const bw_param mla_params[] = {
    BATCH_PARAM,
    KV_LEN_PARAM,
    NUM_HEADS_PARAM(128),
    BW_PARAM("latent_dim", "elements", "elements of a token's latent: its value, and most of its key", 1,
             BW_LATENT_DIM_MAX, .fallback = 512, .small = 8),
    BW_PARAM("rope_dim", "elements", "elements of its key that hold the position", 1, BW_ROPE_DIM_MAX, .fallback = 64,
             .small = 4),
};

extern const bw_op bw_op_attention_prefill;

/* One shape for all operations, so that everything below is written once. */
typedef struct shape {
    const char *op_name;
    int64_t batch, seq, len, heads, kv_heads, dim, value_dim; /* of a query and a key; of a value and a result */
    bool causal;
    const int64_t *kv_lens; /* NULL: all are `len` */
    double scale;           /* of scores */
} shape;

static shape shape_of(const bw_dims *dims) {
    const int64_t *v = dims->value;
    if (dims->op == &bw_op_attention_prefill) {
        const int64_t dim = v[BW_PREFILL_HEAD_DIM];
        return (shape){"attention_prefill",
                       v[BW_PREFILL_BATCH],
                       v[BW_PREFILL_SEQ_LEN],
                       v[BW_PREFILL_KV_LEN],
                       v[BW_PREFILL_NUM_HEADS],
                       v[BW_PREFILL_NUM_KV_HEADS],
                       dim,
                       dim,
                       v[BW_PREFILL_CAUSAL] != 0,
                       NULL,
                       1.0 / sqrt((double)dim)};
    }
    const bw_decode_sizes sizes = bw_decode_sizes_of(dims);
    return (shape){dims->op->name, sizes.batch,     1,     sizes.kv_len, sizes.heads, sizes.kv_heads,
                   sizes.key_dim,  sizes.value_dim, false, dims->list,   sizes.scale};
}

static bw_status check_shape(const bw_dims *dims) {
    const shape s = shape_of(dims);
    if (s.heads % s.kv_heads) {
        return bw_fail(BW_CODE_INVALID,
                       "%s: num_heads = %" PRId64 " is not a multiple of num_kv_heads = %" PRId64
                       ": every key/value head serves the same number of query heads",
                       s.op_name, s.heads, s.kv_heads);
    }
    if (s.causal && s.len < s.seq) {
        return bw_fail(BW_CODE_INVALID,
                       "%s: kv_len = %" PRId64 " is less than seq_len = %" PRId64
                       ": causal queries stand at the end of the keys, so allowed is kv_len >= seq_len",
                       s.op_name, s.len, s.seq);
    }
    return BW_OK;
}

static bw_checked_int keys_in_all(const shape *s) {
    if (!s->kv_lens) return bw_mul(bw_num(s->batch), bw_num(s->len));
    bw_checked_int sum = bw_num(0);
    for (int64_t b = 0; b < s->batch; b++) sum = bw_add(sum, bw_num(s->kv_lens[b]));
    return sum;
}

static bw_checked_int shape_flops(const bw_dims *dims) {
    const shape s = shape_of(dims);
    bw_checked_int pairs = bw_mul(keys_in_all(&s), bw_num(s.seq));
    if (s.causal) {
        bw_checked_int masked = bw_mul(bw_num(s.seq), bw_num(s.seq - 1));
        masked.value /= 2;
        pairs = bw_sub(pairs, bw_mul(masked, bw_num(s.batch))); /* never negative: kv_len >= seq_len */
    }
    return bw_mul(pairs, bw_mul3(2, s.heads, s.dim + s.value_dim));
}

static int shape_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const shape s = shape_of(dims);
    const bw_dtype cache = bw_attention_kv_dtype(precision), result = precision->result;
    out[BW_ATTENTION_Q] = bw_operand_make("q", BW_IN, result, BW_SHAPE(s.batch, s.seq, s.heads, s.dim));
    const bool has_values = s.dim == s.value_dim; /* else a value is the beginning of its key */
    out[BW_ATTENTION_K] =
        bw_operand_make(has_values ? "k" : "cache", BW_IN, cache, BW_SHAPE(s.batch, s.len, s.kv_heads, s.dim));
    out[BW_ATTENTION_V] = bw_operand_make("v", BW_IN, cache, BW_SHAPE(s.batch, s.len, s.kv_heads, s.dim));
    out[BW_ATTENTION_OUT] = bw_operand_make("out", BW_OUT, result, BW_SHAPE(s.batch, s.seq, s.heads, s.value_dim));
    out[BW_ATTENTION_KV_LENS] = bw_operand_indices("kv_lens", BW_RECIPE_LIST, BW_I32, 1, s.len, BW_SHAPE(s.batch));
    out[BW_ATTENTION_KV_LENS].present = s.kv_lens != NULL;
    out[BW_ATTENTION_KV_LENS].moved = -1;
    out[BW_ATTENTION_K_SCALE] = bw_operand_scales(has_values ? "k_scale" : "cache_scale", &out[BW_ATTENTION_K], s.dim,
                                                  precision->cache_scales, BW_SHAPE(s.batch, s.len, s.kv_heads));
    out[BW_ATTENTION_V_SCALE] = bw_operand_scales("v_scale", &out[BW_ATTENTION_V], s.dim, precision->cache_scales,
                                                  BW_SHAPE(s.batch, s.len, s.kv_heads));
    const bw_checked_int heads = bw_mul(keys_in_all(&s), bw_num(s.kv_heads));
    out[BW_ATTENTION_K].moved = out[BW_ATTENTION_V].moved = bw_mul(heads, bw_num(s.dim)).value;
    out[BW_ATTENTION_K_SCALE].moved = out[BW_ATTENTION_V_SCALE].moved = heads.value;
    out[BW_ATTENTION_V].present &= has_values;
    out[BW_ATTENTION_V_SCALE].present &= has_values;
    return BW_ATTENTION_OPERANDS;
}

/* A reference row: one query's rows of up to so many heads that share a K/V head, whose rows then serve them all. */
enum { HEADS_AT_ONCE = 8, KEY_DIM_MAX = BW_LATENT_DIM_MAX + BW_ROPE_DIM_MAX };

static int64_t chunks_of(const shape *s) {
    return bw_ceil_div(s->heads / s->kv_heads, HEADS_AT_ONCE);
}

static bw_rows shape_rows(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    const shape s = shape_of(dims);
    int64_t line = s.kv_heads * chunks_of(&s);
    return (bw_rows){.count = s.batch * s.seq * line,
                     .elems = bw_min64(s.heads / s.kv_heads, HEADS_AT_ONCE) * s.value_dim,
                     .line = line};
}

typedef struct queries {
    int64_t batch, first_head, heads, first_kv_row, keys;
    double q[HEADS_AT_ONCE * KEY_DIM_MAX];
} queries;

/* Row `row` of the reference, without q. */
static queries queries_of(const shape *s, int64_t row) {
    int64_t group = s->heads / s->kv_heads, chunks = chunks_of(s);
    int64_t kv_head = row / chunks % s->kv_heads, token = row / (chunks * s->kv_heads);
    queries result = {.batch = token / s->seq, .first_head = kv_head * group + row % chunks * HEADS_AT_ONCE};
    result.heads = bw_min64(HEADS_AT_ONCE, (kv_head + 1) * group - result.first_head);
    result.keys = s->kv_lens ? s->kv_lens[result.batch] : s->len;
    if (s->causal) result.keys = s->len - s->seq + token % s->seq + 1;
    result.first_kv_row = result.batch * s->len * s->kv_heads + kv_head;
    return result;
}

/* Scores of one head to their softmax, in place; returns the sum of squared weights. */
static double softmax(double *scores, int64_t keys) {
    double largest = -INFINITY, sum = 0.0, squares = 0.0;
    for (int64_t l = 0; l < keys; l++) largest = fmax(largest, scores[l]);
    for (int64_t l = 0; l < keys; l++) sum += scores[l] = exp(scores[l] - largest);
    for (int64_t l = 0; l < keys; l++) {
        scores[l] /= sum;
        squares += scores[l] * scores[l];
    }
    return squares;
}

static bw_status shape_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                 bw_reference_row *out) {
    const shape s = shape_of(dims);
    bw_operand operands[BW_MAX_OPERANDS];
    const int count = shape_operands(dims, precision, operands);
    BW_TRY(bw_operand_measure(s.op_name, operands, count));
    const bw_source q_source = bw_source_of(operands, count, BW_ATTENTION_Q, seed);
    const bw_source k_source = bw_source_of(operands, count, BW_ATTENTION_K, seed);
    const int value_operand = operands[BW_ATTENTION_V].present ? BW_ATTENTION_V : BW_ATTENTION_K;
    const bw_source v_source = bw_source_of(operands, count, value_operand, seed);
    queries of = queries_of(&s, row);
    const int64_t dim = s.dim, value_dim = s.value_dim, stride = s.kv_heads * dim, first = of.first_kv_row * dim;
    const int64_t first_query = row / (chunks_of(&s) * s.kv_heads) * s.heads + of.first_head;
    double other[KEY_DIM_MAX], squares = 0.0;
    double *weights = malloc((size_t)(of.heads * of.keys) * sizeof *weights);
    if (!weights) return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " reference scores", of.keys);

    out->operand = BW_ATTENTION_OUT;
    out->offset = first_query * value_dim;
    out->count = of.heads * value_dim;
    bw_source_read(&q_source, first_query * dim, of.heads * dim, of.q);
    for (int64_t l = 0; l < of.keys; l++) {
        bw_source_read(&k_source, first + l * stride, dim, other);
        for (int64_t h = 0; h < of.heads; h++) {
            weights[h * of.keys + l] = bw_dot(of.q + h * dim, other, dim) * s.scale;
        }
    }
    for (int64_t h = 0; h < of.heads; h++) squares += softmax(weights + h * of.keys, of.keys) / (double)of.heads;
    for (int64_t i = 0; i < out->count; i++) out->values[i] = 0.0;
    for (int64_t l = 0; l < of.keys; l++) {
        bw_source_read(&v_source, first + l * stride, value_dim, other);
        for (int64_t h = 0; h < of.heads; h++) {
            bw_add_scaled(out->values + h * value_dim, weights[h * of.keys + l], other, value_dim);
        }
    }
    out->scale = sqrt(squares / bw_source_inverse_square(&v_source));
    /* Each head's: the errors of 1 / squares weights, in value_dim mixtures. */
    out->freedom = (double)of.heads / (1.0 / (double)value_dim + squares);
    free(weights);
    return BW_OK;
}

/* FP32 arithmetic over D and L errs like a random walk. A variant that rounds scores s or weights p to the precision on
 * the way (an unfused kernel stores both, tensor cores take the weights in it) adds to each weight's relative error up
 * to one roundoff u, evenly distributed: a mean square of u^2 / 3 at most, and another u^2 / 3 times the scores'
 * variance: 1/9, of mla_decode a third or so. The weights' errors are independent, so the result's, relative to its
 * scale, has the same mean square. Weights near 1 / L may be subnormal numbers of FP16: half of 2^-24 is then relative
 * to them. One key left out changes a row by about its norm over sqrt(L): in BF16 seen in every row up to L of some
 * 10^4.
 * TF32 rounds queries and weights alike, though results are FP32; so does a prompt's attention that multiplies in FP8:
 * queries in place of scores, and weights relative to the largest. None of these is subnormal then. (Sums in FP16 round
 * scores 128 times as finely as E4M3 does.) One key left out is seen there in rows of up to some 500 keys. */
static bw_tolerance shape_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    const shape s = shape_of(dims);
    double accumulation = bw_dtype_roundoff(BW_FP32) * (32.0 + 8.0 * sqrt((double)s.dim) + 8.0 * sqrt((double)s.len));
    if (rounds_once) return (bw_tolerance){accumulation, 0.0};
    const bool factors =
        precision->compute == BW_TF32 || (precision->compute == BW_FP8_E4M3 && dims->op == &bw_op_attention_prefill);
    double roundoff = bw_dtype_roundoff(factors ? precision->compute : precision->result);
    const double variance = (double)s.dim / 9.0 * s.scale * s.scale;
    double squares = roundoff * roundoff * (1.0 + variance) / 3.0;
    if (precision->result == BW_FP16 && !factors) squares += pow(ldexp((double)s.len, -25), 2.0) / 3.0;
    return (bw_tolerance){accumulation + 5.0 * sqrt(squares), sqrt(squares + accumulation * accumulation)};
}

const bw_op bw_op_attention_prefill = {
    .name = "attention_prefill",
    .family = "attention",
    .text = "attention of a prompt: seq_len queries per sequence",
    .params = prefill_params,
    .param_count = sizeof prefill_params / sizeof prefill_params[0],
    .precisions = BW_CACHE_PRECISIONS | BW_MASK(TF32),
    .formula = {"batch*seq_len*num_heads*head_dim*e_result + 2*batch*kv_len*num_kv_heads*head_dim*e_cache + "
                "2*cache_scales(batch*kv_len*num_kv_heads, head_dim)",
                "batch*seq_len*num_heads*head_dim*e_result",
                "4*batch*num_heads*head_dim*(seq_len*kv_len - causal*seq_len*(seq_len - 1)/2)"},
    .validate = check_shape,
    .flops = shape_flops,
    .operands = shape_operands,
    .rows = shape_rows,
    .reference = shape_reference,
    .tolerance = shape_tolerance,
};

const bw_op bw_op_attention_decode = {
    .name = "attention_decode",
    .family = "attention",
    .text = "attention of one new token per sequence over its KV cache",
    .params = decode_params,
    .param_count = sizeof decode_params / sizeof decode_params[0],
    .precisions = BW_CACHE_PRECISIONS,
    .formula = {"batch*num_heads*head_dim*e_result + 2*keys*num_kv_heads*head_dim*e_cache + "
                "2*cache_scales(keys*num_kv_heads, head_dim)",
                "batch*num_heads*head_dim*e_result", "4*keys*num_heads*head_dim"},
    .list = "kv_lens",
    .validate = check_shape,
    .flops = shape_flops,
    .operands = shape_operands,
    .rows = shape_rows,
    .reference = shape_reference,
    .tolerance = shape_tolerance,
};

const bw_op bw_op_mla_decode = {
    .name = "mla_decode",
    .family = "attention",
    .text = "multi-head latent attention of one new token per sequence, absorbed: one row of a cache for all heads",
    .params = mla_params,
    .param_count = sizeof mla_params / sizeof mla_params[0],
    .precisions = BW_CACHE_PRECISIONS,
    .formula = {"batch*num_heads*(latent_dim + rope_dim)*e_result + keys*(latent_dim + rope_dim)*e_cache + "
                "cache_scales(keys, latent_dim + rope_dim)",
                "batch*num_heads*latent_dim*e_result", "2*keys*num_heads*(2*latent_dim + rope_dim)"},
    .list = "kv_lens",
    .validate = check_shape,
    .flops = shape_flops,
    .operands = shape_operands,
    .rows = shape_rows,
    .reference = shape_reference,
    .tolerance = shape_tolerance,
};
