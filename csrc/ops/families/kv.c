/* kv_append, kv_gather, kv_copy, rope, rope_append: see ops/families/kv.h. Moves of K and V are checked bit by bit; so
 * are the scales, and the numbers that kv_append quantizes. Bytes: append 2 T G D e read (+ 8 T slot ids if paged), the
 * same written; gather and copy 2 L G D e per sequence read
 * (+ 4 ceil(L / page) page ids for gather) and written; with scales 2 G e of the scale more per token of a cache.
 * A gather that dequantizes writes results. Rope: q, k and the angles of the tokens' positions, once each, q and k
 * written; FLOPs: 3 per element, by convention. */
#include "ops/families/kv.h"

#include <inttypes.h>
#include <math.h>

#include "base/types/input.h"
#include "ops/operand.h"

#define BATCH_PARAM BW_PARAM("batch", "sequences", "sequences", 1, INT32_MAX, .fallback = 1, .small = 2)
#define HEAD_PARAMS                                                                            \
    BW_PARAM("num_kv_heads", "heads", "key/value heads", 1, 65536, .fallback = 8, .small = 2), \
        BW_PARAM("head_dim", "elements", "elements of one head", 1, 65536, .fallback = 128, .small = 8)

extern const bw_op bw_op_kv_gather;

/* Logical pages are scattered over the physical ones, neighbors far apart: page p lies at (step p + offset) mod
 * count. */
static int64_t physical_page(int64_t page, int64_t count, uint64_t seed) {
    int64_t step = bw_spread_step(count);
    int64_t offset = (int64_t)(seed % (uint64_t)count);
    return (int64_t)(((unsigned __int128)step * (uint64_t)page + (uint64_t)offset) % (uint64_t)count);
}

/* A token's K or V is checked in parts, which are the reference's rows: so every token is looked at somewhere in the
 * time that whole ones would take for a few. Its scales, one for each head, follow its values. */
enum { PART_ELEMS = 64 };

static int64_t parts_of(const bw_precision *precision, int64_t heads, int64_t dim) {
    const bool scaled = precision->cache_scales->type != BW_NONE;
    return bw_ceil_div(heads * dim, PART_ELEMS) + (scaled ? bw_ceil_div(heads, PART_ELEMS) : 0);
}

/* Elements [first, first + count) of `width`, a token's values or scales. */
typedef struct part {
    bool is_scale;
    int64_t width, first, count;
} part;

static part part_of(int64_t index, int64_t heads, int64_t dim) {
    const int64_t values = bw_ceil_div(heads * dim, PART_ELEMS);
    part p = {.is_scale = index >= values};
    p.width = p.is_scale ? heads : heads * dim;
    p.first = (p.is_scale ? index - values : index) * PART_ELEMS;
    p.count = bw_min64(PART_ELEMS, p.width - p.first);
    return p;
}

/* A part of token `token` of operand `to`. */
static void place_part(const part *p, int to, int64_t token, bw_reference_row *out) {
    out->operand = to;
    out->offset = token * p->width + p->first;
    out->count = p->count;
    out->scale = 1.0;
}

/* What token `token` of operand `from` holds there, as it was generated. */
static void read_part(const bw_dims *dims, const bw_precision *precision, uint64_t seed, const part *p, int from,
                      int64_t token, double *out) {
    bw_operand operands[BW_MAX_OPERANDS];
    dims->op->operands(dims, precision, operands);
    const bw_source source = {.operand = &operands[from], .key = bw_input_key_make(seed, from)};
    bw_source_read(&source, token * p->width + p->first, p->count, out);
}

/* The scale of a head's elements, which begin with element `first` of a generated input: its largest number becomes the
 * cache's largest. */
static float scale_of_head(const bw_precision *precision, bw_input_key key, int64_t first, int64_t dim) {
    enum { ELEMS = 256 };
    double some[ELEMS], largest = 0.0;
    for (int64_t done = 0; done < dim; done += ELEMS) {
        const int64_t count = bw_min64(ELEMS, dim - done);
        bw_input_doubles(precision->result, key, first + done, count, some);
        for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(some[i]));
    }
    return (float)largest / bw_dtype_largest(precision->cache);
}

/* A number as a cache holds it: divided by its scale in FP32, then rounded to the nearest, the even one of two. */
static double quantized(bw_dtype cache, double value, float scale) {
    const bw_dtype_info *info = bw_dtype_get(cache);
    const float most = bw_dtype_largest(cache), quotient = scale == 0.0f ? 0.0f : (float)value / scale;
    const float kept = fminf(fmaxf(quotient, -most), most);
    char stored[BW_BLOCK_BYTES_MAX];
    double result[BW_BLOCK_ELEMS_MAX];
    info->encode_blocks(&kept, 1, stored);
    info->decode_blocks(stored, 1, result);
    return result[0];
}

/* What a cache with scales holds of token `token` of operand `from`, whose heads have `dim` elements. */
static void quantize_part(const bw_precision *precision, uint64_t seed, const part *p, int from, int64_t token,
                          int64_t dim, double *out) {
    const bw_input_key key = bw_input_key_make(seed, from);
    if (p->is_scale) {
        const int64_t head = token * p->width + p->first;
        for (int64_t i = 0; i < p->count; i++) out[i] = scale_of_head(precision, key, (head + i) * dim, dim);
        return;
    }
    const int64_t first = token * p->width + p->first;
    float scale = 0.0f;
    bw_input_doubles(precision->result, key, first, p->count, out);
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t at = first + i;
        if (i == 0 || at % dim == 0) scale = scale_of_head(precision, key, at / dim * dim, dim);
        out[i] = quantized(precision->cache, out[i], scale);
    }
}

/* What a gather that dequantizes writes as its results: a cache of the results' type, without scales. */
static const bw_precision *gathered_as(const bw_dims *dims, const bw_precision *precision, bw_precision *room) {
    static const bw_scaling none = {.type = BW_NONE};
    if (dims->op != &bw_op_kv_gather || !dims->value[BW_GATHER_DEQUANTIZE]) return precision;
    *room = *precision;
    room->cache = precision->result;
    room->cache_scales = &none;
    return room;
}

/* Values that begin with element `first` of token `token`, of a width of heads of `dim` elements: each times its
 * scale, of operand `scales`, in FP32, and rounded to a result. */
static void dequantize_part(const bw_dims *dims, const bw_precision *precision, uint64_t seed, const part *p,
                            int scales, int64_t token, int64_t dim, double *values) {
    const bw_dtype_info *info = bw_dtype_get(precision->result);
    const part heads = {.width = p->width / dim,
                        .first = p->first / dim,
                        .count = (p->first + p->count - 1) / dim + 1 - p->first / dim};
    double scale[PART_ELEMS + 1];
    read_part(dims, precision, seed, &heads, scales, token, scale);
    for (int64_t i = 0; i < p->count; i++) {
        const float product = (float)values[i] * (float)scale[(p->first + i) / dim - heads.first];
        char stored[BW_BLOCK_BYTES_MAX];
        info->encode_blocks(&product, 1, stored);
        info->decode_blocks(stored, 1, &values[i]);
    }
}

/* Of the K and the V that a gather or a copy writes, whose first parameters are the same. */
_Static_assert((int)BW_GATHER_HEAD_DIM == (int)BW_COPY_HEAD_DIM, "one rule for both");
static bw_rows whole_rows(const bw_dims *dims, const bw_precision *precision) {
    const int64_t *v = dims->value;
    int64_t tokens = v[BW_COPY_BATCH] * v[BW_COPY_KV_LEN], heads = v[BW_COPY_NUM_KV_HEADS], dim = v[BW_COPY_HEAD_DIM];
    bw_precision room;
    int64_t parts = parts_of(gathered_as(dims, precision, &room), heads, dim);
    return (bw_rows){.count = 2 * tokens * parts,
                     .elems = bw_min64(heads * dim, PART_ELEMS),
                     .line = tokens * parts,
                     .parts = parts};
}

/* A K and a V cache, of which so many tokens are moved, each with a scale per token and head; `names` in that order. */
static void cache_pair(bw_operand *values, bw_operand *scales, const char *const *names, bw_role role,
                       const bw_precision *precision, int64_t outer, int64_t inner, int64_t heads, int64_t dim,
                       int64_t moved) {
    for (int i = 0; i < 2; i++) {
        values[i] = bw_operand_make(names[i], role, precision->cache, BW_SHAPE(outer, inner, heads, dim));
        values[i].moved = bw_mul3(moved, heads, dim).value;
        scales[i] =
            bw_operand_scales(names[2 + i], &values[i], dim, precision->cache_scales, BW_SHAPE(outer, inner, heads));
        scales[i].moved = bw_mul(bw_num(moved), bw_num(heads)).value;
    }
}

static const char *const cache_names[] = {"k_cache", "v_cache", "k_cache_scale", "v_cache_scale"};
static const char *const names[] = {"k", "v", "k_scale", "v_scale"};

/* Of a gather, or of a copy, whose cache is contiguous. */
static bw_status whole_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                 bw_reference_row *out) {
    static const int gathered[2][2] = {{BW_GATHER_K_CACHE, BW_GATHER_K}, {BW_GATHER_K_CACHE_SCALE, BW_GATHER_K_SCALE}};
    static const int copied[2][2] = {{BW_COPY_K, BW_COPY_K_COPY}, {BW_COPY_K_SCALE, BW_COPY_K_COPY_SCALE}};
    const int64_t *v = dims->value;
    const bool gathers = dims->op == &bw_op_kv_gather;
    int64_t batch = v[BW_GATHER_BATCH], len = v[BW_GATHER_KV_LEN], page = gathers ? v[BW_GATHER_PAGE_SIZE] : len;
    int64_t heads = v[BW_GATHER_NUM_KV_HEADS], dim = v[BW_GATHER_HEAD_DIM], pages = bw_ceil_div(len, page);
    bw_precision room;
    const bw_precision *written = gathered_as(dims, precision, &room);
    int64_t parts = parts_of(written, heads, dim);
    int64_t token = row / parts, index = token % (batch * len), position = index % len;
    bool is_v = token >= batch * len;
    int64_t logical = index / len * pages + position / page;
    int64_t physical = gathers ? physical_page(logical, batch * pages, seed) : logical;
    const part p = part_of(row % parts, heads, dim);
    const int *operand = (gathers ? gathered : copied)[p.is_scale];
    place_part(&p, operand[1] + is_v, index, out);
    const int64_t from = physical * page + position % page;
    read_part(dims, precision, seed, &p, operand[0] + is_v, from, out->values);
    if (precision->cache_scales->type != written->cache_scales->type) {
        dequantize_part(dims, precision, seed, &p, BW_GATHER_K_CACHE_SCALE + is_v, from, dim, out->values);
    }
    return BW_OK;
}

#define APPEND_PARAMS                                                                                                 \
    BATCH_PARAM, BW_PARAM("seq_len", "tokens", "new tokens per sequence", 1, INT32_MAX, .fallback = 128, .small = 5), \
        BW_PARAM("kv_len", "tokens", "tokens already in each sequence's cache", 0, INT32_MAX, .fallback = 512,        \
                 .small = 7)
#define PAGE_SIZE_PARAM \
    BW_PARAM("page_size", "tokens", "tokens per page; 0 = a contiguous cache", 0, INT32_MAX, .fallback = 0, .small = 4)

static const bw_param append_params[] = {APPEND_PARAMS, HEAD_PARAMS, PAGE_SIZE_PARAM};

typedef struct append_shape {
    int64_t batch, seq, cached, heads, dim, page;
    int64_t tokens;             /* batch * seq */
    int64_t pages_per_sequence; /* of one sequence; 1 when contiguous */
    int64_t page_rows;          /* tokens of a page; the whole sequence when contiguous */
} append_shape;

static append_shape append_of(const bw_dims *dims) {
    const int64_t *v = dims->value;
    append_shape s = {.batch = v[BW_APPEND_BATCH],
                      .seq = v[BW_APPEND_SEQ_LEN],
                      .cached = v[BW_APPEND_KV_LEN],
                      .heads = v[BW_APPEND_NUM_KV_HEADS],
                      .dim = v[BW_APPEND_HEAD_DIM],
                      .page = v[BW_APPEND_PAGE_SIZE]};
    int64_t length = s.cached + s.seq;
    s.tokens = s.batch * s.seq; /* below 2^62 */
    s.page_rows = s.page ? s.page : length;
    s.pages_per_sequence = bw_ceil_div(length, s.page_rows);
    return s;
}

/* The cache row of position `position` of sequence `b`. */
static int64_t append_slot(const append_shape *s, uint64_t seed, int64_t b, int64_t position) {
    if (!s->page) return b * s->page_rows + position;
    int64_t logical = b * s->pages_per_sequence + position / s->page_rows;
    int64_t physical = physical_page(logical, s->batch * s->pages_per_sequence, seed);
    return physical * s->page_rows + position % s->page_rows;
}

static int append_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    append_shape s = append_of(dims);
    out[BW_APPEND_K] = bw_operand_make("k", BW_IN, precision->result, BW_SHAPE(s.tokens, s.heads, s.dim));
    out[BW_APPEND_V] = bw_operand_make("v", BW_IN, precision->result, BW_SHAPE(s.tokens, s.heads, s.dim));
    /* Pages are at most batch * (cached + seq), below 2^63. Their rows may be more: bw_op_operands refuses such a
     * shape, so what the last slot's number then is does not matter. */
    int64_t outer = s.batch * s.pages_per_sequence;
    cache_pair(&out[BW_APPEND_K_CACHE], &out[BW_APPEND_K_CACHE_SCALE], cache_names, BW_INOUT, precision, outer,
               s.page_rows, s.heads, s.dim, s.tokens);
    int64_t last = (int64_t)((uint64_t)outer * (uint64_t)s.page_rows - 1);
    out[BW_APPEND_SLOTS] = bw_operand_indices("slots", BW_RECIPE_HOST, BW_I64, 0, last, BW_SHAPE(s.tokens));
    out[BW_APPEND_SLOTS].present = s.page != 0;
    return BW_APPEND_OPERANDS;
}

static void append_host_input(const bw_dims *dims, uint64_t seed, int operand, void *out) {
    (void)operand;
    append_shape s = append_of(dims);
    for (int64_t t = 0; t < s.tokens; t++) {
        ((int64_t *)out)[t] = append_slot(&s, seed, t / s.seq, s.cached + t % s.seq);
    }
}

/* First the rows that are written (K's, then V's), then those that must stay as they were. */
static bw_rows append_rows(const bw_dims *dims, const bw_precision *precision) {
    append_shape s = append_of(dims);
    int64_t slots = s.batch * s.pages_per_sequence * s.page_rows, parts = parts_of(precision, s.heads, s.dim);
    return (bw_rows){.count = 2 * slots * parts,
                     .elems = bw_min64(s.heads * s.dim, PART_ELEMS),
                     .line = s.tokens * parts,
                     .focus = 2 * s.tokens * parts,
                     .parts = parts};
}

static bw_status append_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                  bw_reference_row *out) {
    append_shape s = append_of(dims);
    int64_t parts = parts_of(precision, s.heads, s.dim), token = row / parts;
    bool written = token < 2 * s.tokens;
    int64_t untouched = s.pages_per_sequence * s.page_rows - s.seq; /* per sequence */
    int64_t per_cache = written ? s.tokens : s.batch * untouched;
    int64_t index = written ? token : token - 2 * s.tokens;
    bool is_v = index >= per_cache;
    if (is_v) index -= per_cache;
    int64_t b = written ? index / s.seq : index / untouched;
    int64_t position = written ? s.cached + index % s.seq : index % untouched;
    if (!written && position >= s.cached) position += s.seq;
    int64_t slot = append_slot(&s, seed, b, position);
    const part p = part_of(row % parts, s.heads, s.dim);
    place_part(&p, (p.is_scale ? BW_APPEND_K_CACHE_SCALE : BW_APPEND_K_CACHE) + is_v, slot, out);
    if (!written) {
        read_part(dims, precision, seed, &p, out->operand, slot, out->values);
    } else if (precision->cache_scales->type == BW_NONE) {
        read_part(dims, precision, seed, &p, BW_APPEND_K + is_v, index, out->values);
    } else {
        quantize_part(precision, seed, &p, BW_APPEND_K + is_v, index, s.dim, out->values);
    }
    return BW_OK;
}

const bw_op bw_op_kv_append = {
    .name = "kv_append",
    .family = "kv",
    .text = "write new tokens' K and V into a contiguous or paged cache",
    .params = append_params,
    .param_count = sizeof append_params / sizeof append_params[0],
    .precisions = BW_CACHE_PRECISIONS,
    .formula = {"2*batch*seq_len*num_kv_heads*head_dim*e_result + 8*batch*seq_len*(page_size > 0)",
                "2*batch*seq_len*num_kv_heads*head_dim*e_cache + 2*cache_scales(batch*seq_len*num_kv_heads, head_dim)",
                "0"},
    .operands = append_operands,
    .host_input = append_host_input,
    .rows = append_rows,
    .reference = append_reference,
    .tolerance = bw_tolerance_exact,
};

static const bw_param gather_params[] = {
    BATCH_PARAM,
    BW_PARAM("kv_len", "tokens", "cached tokens per sequence", 1, INT32_MAX, .fallback = 4096, .small = 7),
    HEAD_PARAMS,
    BW_PARAM("page_size", "tokens", "tokens per page", 1, INT32_MAX, .fallback = 16, .small = 4),
    BW_PARAM("dequantize", "", "1: K and V as results, not as the cache holds them", 0, 1, .fallback = 0, .small = 0),
};

static int64_t gather_pages(const bw_dims *dims) {
    return bw_ceil_div(dims->value[BW_GATHER_KV_LEN], dims->value[BW_GATHER_PAGE_SIZE]);
}

static int gather_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t *v = dims->value;
    int64_t batch = v[BW_GATHER_BATCH], len = v[BW_GATHER_KV_LEN], page = v[BW_GATHER_PAGE_SIZE];
    int64_t heads = v[BW_GATHER_NUM_KV_HEADS], dim = v[BW_GATHER_HEAD_DIM], pages = gather_pages(dims);
    cache_pair(&out[BW_GATHER_K_CACHE], &out[BW_GATHER_K_CACHE_SCALE], cache_names, BW_IN, precision, batch * pages,
               page, heads, dim, batch * len);
    out[BW_GATHER_TABLE] =
        bw_operand_indices("table", BW_RECIPE_HOST, BW_I32, 0, batch * pages - 1, BW_SHAPE(batch, pages));
    bw_precision room;
    cache_pair(&out[BW_GATHER_K], &out[BW_GATHER_K_SCALE], names, BW_OUT, gathered_as(dims, precision, &room), batch,
               len, heads, dim, batch * len);
    return BW_GATHER_OPERANDS;
}

static bw_status gather_validate(const bw_dims *dims) {
    if (dims->value[BW_GATHER_BATCH] * gather_pages(dims) > INT32_MAX) { /* both are below 2^31 */
        return bw_fail(BW_CODE_INVALID, "kv_gather: batch x ceil(kv_len / page_size) overflows the table's 32-bit ids");
    }
    return BW_OK;
}

static void gather_host_input(const bw_dims *dims, uint64_t seed, int operand, void *out) {
    (void)operand;
    int64_t count = dims->value[BW_GATHER_BATCH] * gather_pages(dims);
    for (int64_t i = 0; i < count; i++) ((int32_t *)out)[i] = (int32_t)physical_page(i, count, seed);
}

const bw_op bw_op_kv_gather = {
    .name = "kv_gather",
    .family = "kv",
    .text = "collect scattered cache pages into contiguous K and V",
    .params = gather_params,
    .param_count = sizeof gather_params / sizeof gather_params[0],
    .precisions = BW_CACHE_PRECISIONS,
    .formula = {"2*batch*kv_len*num_kv_heads*head_dim*e_cache + 2*cache_scales(batch*kv_len*num_kv_heads, head_dim) + "
                "4*batch*ceil(kv_len/page_size)",
                "2*batch*kv_len*num_kv_heads*head_dim*(e_cache + dequantize*(e_result - e_cache)) + "
                "2*(1 - dequantize)*cache_scales(batch*kv_len*num_kv_heads, head_dim)",
                "0"},
    .validate = gather_validate,
    .operands = gather_operands,
    .host_input = gather_host_input,
    .rows = whole_rows,
    .reference = whole_reference,
    .tolerance = bw_tolerance_exact,
};

static const bw_param copy_params[] = {
    BATCH_PARAM,
    BW_PARAM("kv_len", "tokens", "cached tokens per sequence", 1, INT32_MAX, .fallback = 4096, .small = 7),
    HEAD_PARAMS,
};

static int copy_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    static const char *const copy_names[] = {"k_copy", "v_copy", "k_copy_scale", "v_copy_scale"};
    const int64_t *v = dims->value;
    int64_t batch = v[BW_COPY_BATCH], len = v[BW_COPY_KV_LEN];
    int64_t heads = v[BW_COPY_NUM_KV_HEADS], dim = v[BW_COPY_HEAD_DIM];
    cache_pair(&out[BW_COPY_K], &out[BW_COPY_K_SCALE], names, BW_IN, precision, batch, len, heads, dim, batch * len);
    cache_pair(&out[BW_COPY_K_COPY], &out[BW_COPY_K_COPY_SCALE], copy_names, BW_OUT, precision, batch, len, heads, dim,
               batch * len);
    return BW_COPY_OPERANDS;
}

const bw_op bw_op_kv_copy = {
    .name = "kv_copy",
    .family = "kv",
    .text = "copy a whole contiguous cache",
    .params = copy_params,
    .param_count = sizeof copy_params / sizeof copy_params[0],
    .precisions = BW_CACHE_PRECISIONS,
    .formula = {"2*batch*kv_len*num_kv_heads*head_dim*e_cache + 2*cache_scales(batch*kv_len*num_kv_heads, head_dim)",
                "2*batch*kv_len*num_kv_heads*head_dim*e_cache + 2*cache_scales(batch*kv_len*num_kv_heads, head_dim)",
                "0"},
    .operands = copy_operands,
    .rows = whole_rows,
    .reference = whole_reference,
    .tolerance = bw_tolerance_exact,
};

#define ROPE_PARAMS                                                                                         \
    BW_PARAM("num_kv_heads", "heads", "key/value heads", 1, 65536, .fallback = 8, .small = 2),              \
        BW_PARAM("head_dim", "elements", "elements of one head, an even number", 2, 65536, .fallback = 128, \
                 .small = 6)
#define QUERY_HEADS_PARAM BW_PARAM("num_heads", "heads", "query heads", 1, 65536, .fallback = 32, .small = 3)
enum { ROPE_PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

static bw_status rope_validate(const bw_dims *dims) {
    const int64_t dim = dims->value[bw_op_param_index(dims->op, "head_dim")];
    if (dim % 2 == 0) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "%s: head_dim = %" PRId64 ": allowed are even numbers, two elements for each angle",
                   dims->op->name, dim);
}

static bw_operand angles_of(int64_t positions, int64_t used, int64_t dim) {
    bw_operand angles = bw_operand_make("angles", BW_IN, BW_FP32, BW_SHAPE(positions, 2, dim / 2));
    angles.moved = bw_mul(bw_num(used), bw_num(dim)).value;
    return angles;
}

/* Part `row` of the heads of all tokens, of operand `from`, each by the angles of its position. */
static void rotate_part(const bw_precision *precision, uint64_t seed, const part *p, int from, int64_t token,
                        int angles, int64_t position, int64_t dim, double *out) {
    const bw_input_key key = bw_input_key_make(seed, from), angle_key = bw_input_key_make(seed, angles);
    const int64_t half = dim / 2;
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t at = token * p->width + p->first + i, column = at % dim, angle = position * dim + column % half;
        const bool first = column < half;
        double own, other, cosine, sine;
        bw_input_doubles(precision->result, key, at, 1, &own);
        bw_input_doubles(precision->result, key, first ? at + half : at - half, 1, &other);
        bw_input_doubles(BW_FP32, angle_key, angle, 1, &cosine);
        bw_input_doubles(BW_FP32, angle_key, angle + half, 1, &sine);
        out[i] = own * cosine + (first ? -other : other) * sine;
    }
}

/* Two products of numbers below 1 and their sum, each rounded to FP32. */
static bw_tolerance rope_tolerance(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)dims, (void)precision, (void)rounds_once;
    return (bw_tolerance){4.0 * bw_dtype_roundoff(BW_FP32), 0.0};
}

static const bw_param rope_params[] = {
    BW_PARAM("tokens", "tokens", "tokens", 1, INT32_MAX, .fallback = 512, .small = 5),
    QUERY_HEADS_PARAM,
    ROPE_PARAMS,
};

static int rope_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const int64_t *v = dims->value, tokens = v[BW_ROPE_TOKENS], dim = v[BW_ROPE_HEAD_DIM];
    const bw_dtype dtype = precision->result;
    out[BW_ROPE_Q] = bw_operand_make("q", BW_IN, dtype, BW_SHAPE(tokens, v[BW_ROPE_NUM_HEADS], dim));
    out[BW_ROPE_K] = bw_operand_make("k", BW_IN, dtype, BW_SHAPE(tokens, v[BW_ROPE_NUM_KV_HEADS], dim));
    out[BW_ROPE_ANGLES] = angles_of(tokens, tokens, dim);
    out[BW_ROPE_Q_OUT] = bw_operand_make("q_out", BW_OUT, dtype, BW_SHAPE(tokens, v[BW_ROPE_NUM_HEADS], dim));
    out[BW_ROPE_K_OUT] = bw_operand_make("k_out", BW_OUT, dtype, BW_SHAPE(tokens, v[BW_ROPE_NUM_KV_HEADS], dim));
    return BW_ROPE_OPERANDS;
}

static bw_checked_int rope_flops(const bw_dims *dims) {
    const int64_t *v = dims->value;
    return bw_mul4(3, v[BW_ROPE_TOKENS], v[BW_ROPE_NUM_HEADS] + v[BW_ROPE_NUM_KV_HEADS], v[BW_ROPE_HEAD_DIM]);
}

/* All of q's parts, then k's. */
static bw_rows rope_rows(const bw_dims *dims, const bw_precision *precision) {
    const int64_t *v = dims->value, tokens = v[BW_ROPE_TOKENS], dim = v[BW_ROPE_HEAD_DIM];
    const int64_t of_q = parts_of(precision, v[BW_ROPE_NUM_HEADS], dim);
    const int64_t of_k = parts_of(precision, v[BW_ROPE_NUM_KV_HEADS], dim);
    return (bw_rows){.count = tokens * (of_q + of_k), .elems = PART_ELEMS, .line = tokens * of_q};
}

static bw_status rope_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                bw_reference_row *out) {
    const int64_t *v = dims->value, dim = v[BW_ROPE_HEAD_DIM];
    const int64_t of_q = v[BW_ROPE_TOKENS] * parts_of(precision, v[BW_ROPE_NUM_HEADS], dim);
    const bool is_k = row >= of_q;
    const int64_t heads = v[is_k ? BW_ROPE_NUM_KV_HEADS : BW_ROPE_NUM_HEADS], index = is_k ? row - of_q : row;
    const int64_t parts = parts_of(precision, heads, dim), token = index / parts;
    const part p = part_of(index % parts, heads, dim);
    place_part(&p, BW_ROPE_Q_OUT + is_k, token, out);
    rotate_part(precision, seed, &p, BW_ROPE_Q + is_k, token, BW_ROPE_ANGLES, token, dim, out->values);
    return BW_OK;
}

const bw_op bw_op_rope = {
    .name = "rope",
    .family = "kv",
    .text = "rotate queries and keys by the angles of their positions",
    .params = rope_params,
    .param_count = sizeof rope_params / sizeof rope_params[0],
    .precisions = ROPE_PRECISIONS,
    .formula = {"tokens*(num_heads + num_kv_heads)*head_dim*e_result + 4*tokens*head_dim",
                "tokens*(num_heads + num_kv_heads)*head_dim*e_result", "3*tokens*(num_heads + num_kv_heads)*head_dim"},
    .validate = rope_validate,
    .flops = rope_flops,
    .operands = rope_operands,
    .rows = rope_rows,
    .reference = rope_reference,
    .tolerance = rope_tolerance,
};

static const bw_param rope_append_params[] = {APPEND_PARAMS, ROPE_PARAMS, PAGE_SIZE_PARAM, QUERY_HEADS_PARAM};

static int rope_append_operands(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]) {
    const append_shape s = append_of(dims);
    const int64_t queries = dims->value[BW_ROPE_APPEND_NUM_HEADS];
    append_operands(dims, precision, out);
    out[BW_ROPE_APPEND_Q] = bw_operand_make("q", BW_IN, precision->result, BW_SHAPE(s.tokens, queries, s.dim));
    out[BW_ROPE_APPEND_ANGLES] = angles_of(s.cached + s.seq, s.seq, s.dim);
    out[BW_ROPE_APPEND_Q_OUT] = bw_operand_make("q_out", BW_OUT, precision->result, BW_SHAPE(s.tokens, queries, s.dim));
    return BW_ROPE_APPEND_OPERANDS;
}

static bw_checked_int rope_append_flops(const bw_dims *dims) {
    const append_shape s = append_of(dims);
    return bw_mul4(3, s.tokens, dims->value[BW_ROPE_APPEND_NUM_HEADS] + s.heads, s.dim);
}

/* All of q's parts, then those of kv_append. */
static int64_t rope_append_query_rows(const bw_dims *dims, const bw_precision *precision) {
    const append_shape s = append_of(dims);
    return s.tokens * parts_of(precision, dims->value[BW_ROPE_APPEND_NUM_HEADS], s.dim);
}

static bw_rows rope_append_rows(const bw_dims *dims, const bw_precision *precision) {
    bw_rows rows = append_rows(dims, precision);
    const int64_t of_q = rope_append_query_rows(dims, precision);
    rows.count += of_q;
    rows.focus += of_q;
    rows.elems = PART_ELEMS;
    rows.parts = 0; /* a token of q and one of k have different numbers of them */
    return rows;
}

static bw_status rope_append_reference(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                                       bw_reference_row *out) {
    const append_shape s = append_of(dims);
    const int64_t of_q = rope_append_query_rows(dims, precision),
                  written = s.tokens * parts_of(precision, s.heads, s.dim);
    const bool is_q = row < of_q, is_k = !is_q && row < of_q + written;
    if (!is_q) BW_TRY(append_reference(dims, precision, seed, row - of_q, out));
    if (!is_q && !is_k) return BW_OK;
    const int64_t heads = is_q ? dims->value[BW_ROPE_APPEND_NUM_HEADS] : s.heads, index = is_q ? row : row - of_q;
    const int64_t parts = parts_of(precision, heads, s.dim), token = index / parts;
    const part p = part_of(index % parts, heads, s.dim);
    if (is_q) place_part(&p, BW_ROPE_APPEND_Q_OUT, token, out);
    rotate_part(precision, seed, &p, is_q ? BW_ROPE_APPEND_Q : BW_APPEND_K, token, BW_ROPE_APPEND_ANGLES,
                s.cached + token % s.seq, s.dim, out->values);
    return BW_OK;
}

const bw_op bw_op_rope_append = {
    .name = "rope_append",
    .family = "kv",
    .text = "rotate queries and keys, and write keys and values into a contiguous or paged cache",
    .params = rope_append_params,
    .param_count = sizeof rope_append_params / sizeof rope_append_params[0],
    .precisions = ROPE_PRECISIONS,
    .formula = {"batch*seq_len*(num_heads + 2*num_kv_heads)*head_dim*e_result + 4*seq_len*head_dim + "
                "8*batch*seq_len*(page_size > 0)",
                "batch*seq_len*(num_heads + 2*num_kv_heads)*head_dim*e_result",
                "3*batch*seq_len*(num_heads + num_kv_heads)*head_dim"},
    .validate = rope_validate,
    .flops = rope_append_flops,
    .operands = rope_append_operands,
    .host_input = append_host_input,
    .rows = rope_append_rows,
    .reference = rope_append_reference,
    .tolerance = rope_tolerance,
};

/* Of the rotated keys. */
static bw_checked_int key_bytes(const bw_dims *dims, const bw_precision *precision) {
    const append_shape s = append_of(dims);
    return bw_mul4(s.tokens, s.heads, s.dim, bw_dtype_get(precision->result)->block_bytes);
}

int64_t bw_rope_append_unfused_scratch(const bw_dims *dims, const bw_precision *precision,
                                       const struct bw_device_facts *facts) {
    (void)facts;
    const bw_checked_int bytes = key_bytes(dims, precision);
    return bytes.overflow ? INT64_MAX : bytes.value;
}

bw_status bw_rope_append_unfused_cost(const bw_dims *dims, const bw_precision *precision,
                                      const struct bw_device_facts *facts, bw_cost *cost) {
    (void)facts;
    return bw_cost_add_intermediates(key_bytes(dims, precision), cost);
}
