/* The functions of the C library that are named after an operation. No other file here names one. */
#include "api/operations/arguments.h"

/* An operation whose parameters have these names, as many as there are values. */
#define PARAMS(operation, precision, names, ...)                                                    \
    &(bw_params) {                                                                                  \
        operation, precision, names, (const int64_t[]){__VA_ARGS__}, sizeof names / sizeof names[0] \
    }
#define COST(...) bw_params_compute_cost(PARAMS(__VA_ARGS__), bytes_read, bytes_written, flops)
#define PROFILE(operation, names, ...) \
    bw_params_measure(PARAMS(operation, use_fp16 ? "fp16" : "fp32", names, __VA_ARGS__), out)

enum { APPEND_PAGE_SIZE = 16 }; /* tokens, as kv_gather has it by default */
static const char *const append_names[] = {"batch", "seq_len", "num_kv_heads", "head_dim", "page_size"};

/* ---- bytes and FLOPs ---- */

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

/* ---- one measurement ---- */

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
