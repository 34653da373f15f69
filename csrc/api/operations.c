/* Functions of the C library on operations. Some are named after an operation; no other file here names one. */
#include <math.h>

#include "api/benchmark/benchmark.h"

#define BW_NAME_FITS(id, name, ...)                                      \
    _Static_assert(sizeof name <= sizeof((bwprof_report *)0)->precision, \
                   #id ": bwprof_report has no room for its name");
BW_PRECISIONS(BW_NAME_FITS)
#undef BW_NAME_FITS

bw_status bw_dims_read(const bw_op *op, const bw_precision *precision, const bw_params *params, bw_dims *dims) {
    unsigned set = 0;
    for (int i = 0; i < params->count; i++) {
        BW_TRY(bw_api_need(params->names[i], "a parameter's name"));
        int index = bw_op_param_index(op, params->names[i]);
        if (index < 0) {
            return bw_fail(BW_CODE_INVALID, "%s has no parameter '%.100s': `bwprof operations` lists them", op->name,
                           params->names[i]);
        }
        if (set & 1u << index) {
            return bw_fail(BW_CODE_INVALID, "%s: %s is given twice", op->name, params->names[i]);
        }
        dims->value[index] = params->values[i];
        set |= 1u << index;
    }
    return bw_op_complete(op, precision, set, dims);
}

static bw_status read_params(const bw_params *params, bw_planned_case *out, bw_dims *dims) {
    *out = (bw_planned_case){.op = NULL};
    *dims = (bw_dims){.list = NULL};
    BW_TRY(bw_api_need(params->operation, "operation"));
    BW_TRY(bw_api_need(params->precision, "precision"));
    if (params->count < 0 || params->count > BW_MAX_PARAMS) {
        return bw_fail(BW_CODE_INVALID, "count = %d: allowed is 0 to %d", params->count, BW_MAX_PARAMS);
    }
    if (params->count) {
        BW_TRY(bw_api_need(params->names, "names"));
        BW_TRY(bw_api_need(params->values, "values"));
    }
    BW_TRY(bw_op_find(params->operation, &out->op_index));
    BW_TRY(bw_precision_find(params->precision, &out->precision));
    out->op = bw_op_at(out->op_index);
    return bw_dims_read(out->op, out->precision, params, dims);
}

static bwprof_status compute_cost(const bw_params *params, uint64_t *bytes_read, uint64_t *bytes_written,
                                  uint64_t *flops) {
    bw_cost cost = {0};
    bw_planned_case request;
    bw_dims dims;
    bw_status status = read_params(params, &request, &dims);
    if (!status) status = bw_cost_of(request.op, NULL, &dims, request.precision, NULL, &cost);
    if (bytes_read) *bytes_read = (uint64_t)cost.bytes_read;
    if (bytes_written) *bytes_written = (uint64_t)cost.bytes_written;
    if (flops) *flops = (uint64_t)cost.flops;
    return bw_api_answer(status);
}

static bw_status measure(const bw_params *params, bwprof_report *out) {
    const bw_measure_options usual = BW_MEASURE_OPTIONS_DEFAULT;
    bw_session *session = NULL;
    bw_planned_case request;
    bw_dims dims;
    BW_TRY(bw_api_need(out, "out"));
    *out = (bwprof_report){.time_ms = NAN, .bandwidth_gb_s = NAN};
    BW_TRY(read_params(params, &request, &dims));
    BW_TRY(bw_api_open(NULL, 0, &session));
    bw_outcome row = bw_outcome_blank(&request);
    row.dims = dims;
    bw_status status = bw_outcome_measure(session, usual.max_seconds, &row);
    if (!status && !row.measurement.verdict.verified) {
        status = bw_fail(BW_CODE_DEVICE, "%s %s: %s", params->operation, params->precision, row.reason);
    }
    if (!status) {
        *out = (bwprof_report){.time_ms = row.time_ms,
                               .bandwidth_gb_s = row.gb_s,
                               .bytes_read = (uint64_t)row.cost.bytes_read,
                               .bytes_written = (uint64_t)row.cost.bytes_written};
        snprintf(out->operation, sizeof out->operation, "%s", request.op->name);
        bw_outcome_precision(&row, true, out->precision, sizeof out->precision);
    }
    bw_measurement_free(&row.measurement);
    bw_api_close(session);
    return status;
}

#define PARAMS(operation, precision, names, ...)                                                    \
    &(bw_params) {                                                                                  \
        operation, precision, names, (const int64_t[]){__VA_ARGS__}, sizeof names / sizeof names[0] \
    }
#define COST(...) compute_cost(PARAMS(__VA_ARGS__), bytes_read, bytes_written, flops)
#define PROFILE(operation, names, ...) \
    bw_api_answer(measure(PARAMS(operation, use_fp16 ? "fp16" : "fp32", names, __VA_ARGS__), out))

enum { APPEND_PAGE_SIZE = 16 }; /* tokens, as kv_gather has it by default */
static const char *const append_names[] = {"batch", "seq_len", "num_kv_heads", "head_dim", "page_size"};

bwprof_status bwprof_cost(const char *operation, const char *precision, const char *const *names, const int64_t *values,
                          int count, uint64_t *bytes_read, uint64_t *bytes_written, uint64_t *flops) {
    return compute_cost(&(bw_params){operation, precision, names, values, count}, bytes_read, bytes_written, flops);
}

bwprof_status bwprof_gemm_cost(int64_t M, int64_t N, int64_t K, const char *precision, uint64_t *bytes_read,
                               uint64_t *bytes_written, uint64_t *flops) {
    static const char *const names[] = {"M", "N", "K"};
    return COST("gemm", precision, names, M, N, K);
}

bwprof_status bwprof_attention_decode_cost(int64_t batch, int64_t kv_len, int64_t num_heads, int64_t num_kv_heads,
                                           int64_t head_dim, const char *precision, uint64_t *bytes_read,
                                           uint64_t *bytes_written, uint64_t *flops) {
    static const char *const names[] = {"batch", "kv_len", "num_heads", "num_kv_heads", "head_dim"};
    return COST("attention_decode", precision, names, batch, kv_len, num_heads, num_kv_heads, head_dim);
}

bwprof_status bwprof_attention_prefill_cost(int64_t batch, int64_t seq_len, int64_t num_heads, int64_t num_kv_heads,
                                            int64_t head_dim, int causal, const char *precision, uint64_t *bytes_read,
                                            uint64_t *bytes_written, uint64_t *flops) {
    static const char *const names[] = {"batch", "seq_len", "num_heads", "num_kv_heads", "head_dim", "causal"};
    return COST("attention_prefill", precision, names, batch, seq_len, num_heads, num_kv_heads, head_dim, causal != 0);
}

bwprof_status bwprof_kv_append_cost(int64_t batch, int64_t seq_len, int64_t num_kv_heads, int64_t head_dim,
                                    const char *precision, uint64_t *bytes_read, uint64_t *bytes_written,
                                    uint64_t *flops) {
    return COST("kv_append", precision, append_names, batch, seq_len, num_kv_heads, head_dim, APPEND_PAGE_SIZE);
}

bwprof_status bwprof_profile_gemm_bandwidth(int M, int N, int K, int use_fp16, bwprof_report *out) {
    static const char *const names[] = {"M", "N", "K"};
    return PROFILE("gemm", names, M, N, K);
}

bwprof_status bwprof_profile_attention_bandwidth(int batch_size, int seq_len, int num_heads, int head_dim, int use_fp16,
                                                 bwprof_report *out) {
    static const char *const names[] = {"batch", "seq_len", "num_heads", "num_kv_heads", "head_dim"};
    return PROFILE("attention_prefill", names, batch_size, seq_len, num_heads, num_heads, head_dim);
}

bwprof_status bwprof_profile_kv_cache_bandwidth(int batch_size, int seq_len, int num_kv_heads, int head_dim,
                                                int use_fp16, bwprof_report *out) {
    return PROFILE("kv_append", append_names, batch_size, seq_len, num_kv_heads, head_dim, APPEND_PAGE_SIZE);
}
