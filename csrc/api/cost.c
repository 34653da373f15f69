/* Bytes and FLOPs of shapes. The one file here that names operations: those that engines are made of. */
#include "api/api.h"
#include "measure/case/choice.h"

enum { GIVEN_MOST = BW_MAX_PARAMS };

typedef struct given {
    const char *operation, *precision;
    const char *const *names;
    const int64_t *values;
    int count;
} given;

typedef struct wanted {
    uint64_t *bytes_read, *bytes_written, *flops; /* NULL: not wanted */
} wanted;

static bw_status read_dims(const given *given, const bw_op *op, bw_dims *dims, unsigned *set) {
    for (int i = 0; i < given->count; i++) {
        BW_TRY(bw_api_need(given->names[i], "a parameter's name"));
        int index = bw_op_param_index(op, given->names[i]);
        if (index < 0) {
            return bw_fail(BW_CODE_INVALID, "%s has no parameter '%.100s': `bwprof operations` lists them", op->name,
                           given->names[i]);
        }
        if (*set & 1u << index) {
            return bw_fail(BW_CODE_INVALID, "%s: %s is given twice", op->name, given->names[i]);
        }
        dims->value[index] = given->values[i];
        *set |= 1u << index;
    }
    return BW_OK;
}

static bw_status find_cost(const given *given, bw_cost *out) {
    const bw_precision *precision;
    bw_dims dims = {.list = NULL};
    unsigned set = 0;
    int index;
    BW_TRY(bw_api_need(given->operation, "operation"));
    BW_TRY(bw_api_need(given->precision, "precision"));
    if (given->count < 0 || given->count > GIVEN_MOST) {
        return bw_fail(BW_CODE_INVALID, "count = %d: allowed is 0 to %d", given->count, GIVEN_MOST);
    }
    if (given->count) {
        BW_TRY(bw_api_need(given->names, "names"));
        BW_TRY(bw_api_need(given->values, "values"));
    }
    BW_TRY(bw_op_find(given->operation, &index));
    BW_TRY(bw_precision_find(given->precision, &precision));
    BW_TRY(read_dims(given, bw_op_at(index), &dims, &set));
    BW_TRY(bw_op_complete(bw_op_at(index), precision, set, &dims));
    return bw_cost_of(bw_op_at(index), NULL, &dims, precision, NULL, out);
}

static bwprof_status answer_cost(const given *given, wanted to) {
    bw_cost cost = {0};
    bw_status status = find_cost(given, &cost);
    if (to.bytes_read) *to.bytes_read = (uint64_t)cost.bytes_read;
    if (to.bytes_written) *to.bytes_written = (uint64_t)cost.bytes_written;
    if (to.flops) *to.flops = (uint64_t)cost.flops;
    return bw_api_answer(status);
}

bwprof_status bwprof_cost(const char *operation, const char *precision, const char *const *names, const int64_t *values,
                          int count, uint64_t *bytes_read, uint64_t *bytes_written, uint64_t *flops) {
    return answer_cost(&(given){operation, precision, names, values, count},
                       (wanted){bytes_read, bytes_written, flops});
}

/* Of an operation whose parameters have these names, as many as there are values. */
#define ANSWER(operation, precision, names, ...)                                                                       \
    answer_cost(&(given){operation, precision, names, (const int64_t[]){__VA_ARGS__}, sizeof names / sizeof names[0]}, \
                (wanted){bytes_read, bytes_written, flops})

bwprof_status bwprof_gemm_cost(int64_t M, int64_t N, int64_t K, const char *precision, uint64_t *bytes_read,
                               uint64_t *bytes_written, uint64_t *flops) {
    static const char *const names[] = {"M", "N", "K"};
    return ANSWER("gemm", precision, names, M, N, K);
}

bwprof_status bwprof_attention_decode_cost(int64_t batch, int64_t kv_len, int64_t num_heads, int64_t num_kv_heads,
                                           int64_t head_dim, const char *precision, uint64_t *bytes_read,
                                           uint64_t *bytes_written, uint64_t *flops) {
    static const char *const names[] = {"batch", "kv_len", "num_heads", "num_kv_heads", "head_dim"};
    return ANSWER("attention_decode", precision, names, batch, kv_len, num_heads, num_kv_heads, head_dim);
}

bwprof_status bwprof_attention_prefill_cost(int64_t batch, int64_t seq_len, int64_t num_heads, int64_t num_kv_heads,
                                            int64_t head_dim, int causal, const char *precision, uint64_t *bytes_read,
                                            uint64_t *bytes_written, uint64_t *flops) {
    static const char *const names[] = {"batch", "seq_len", "num_heads", "num_kv_heads", "head_dim", "causal"};
    return ANSWER("attention_prefill", precision, names, batch, seq_len, num_heads, num_kv_heads, head_dim,
                  causal != 0);
}

bwprof_status bwprof_kv_append_cost(int64_t batch, int64_t seq_len, int64_t num_kv_heads, int64_t head_dim,
                                    const char *precision, uint64_t *bytes_read, uint64_t *bytes_written,
                                    uint64_t *flops) {
    static const char *const names[] = {"batch", "seq_len", "num_kv_heads", "head_dim"};
    return ANSWER("kv_append", precision, names, batch, seq_len, num_kv_heads, head_dim);
}
