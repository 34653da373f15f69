/* gemm through cuBLASLt.
 *
 * cuBLASLt is column-major: the row-major D(M, N) is its D'(N, M), so D' = B'^T A' with B'(K, N) and A'(K, M), the very
 * arrays that we have, leading dimension K.
 *
 * `prepare` takes the fastest of up to 32 algorithms (launch/search.c), for a single launch the heuristic's first.
 * Sums over K that blocks share may not pass through D's own type: that would cost 16-bit results their accuracy. */
#include <limits.h>
#include <stdlib.h>

#include "cuda/kernels/gemm/gemm.h"
#include "cuda/launch/search.h"
#include "cuda/libraries/cublaslt.h"
#include "cuda/libraries/cupti.h"
#include "ops/families/gemm.h"

enum { WORKSPACE_BYTES = 32 << 20 };

typedef struct lt_candidate {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes; /* what the algorithm asked for */
} lt_candidate;

/* What a case keeps: its descriptors and the algorithm it settled on. */
typedef struct lt_case {
    bw_cublaslt *library;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t weights, activations, output; /* B, A, D in cuBLASLt's view */
    lt_candidate chosen;
} lt_case;

typedef struct lt_search {
    const lt_case *state;
    const bw_launch *sets;
    int64_t set_count;
    const lt_candidate *candidates;
    uint32_t loaded; /* a bit for each candidate */
} lt_search;

/* Of operands that are all stored alike; TF32 is FP32 in memory. False where cuBLASLt is not made for the precision. */
static bool find_data_type(const bw_precision *precision, cudaDataType_t *out) {
    switch (precision->id) {
        case BW_PRECISION_FP32:
        case BW_PRECISION_TF32: *out = CUDA_R_32F; return true;
        case BW_PRECISION_FP16: *out = CUDA_R_16F; return true;
        case BW_PRECISION_BF16: *out = CUDA_R_16BF; return true;
        default: return false;
    }
}

/* CUBLAS_COMPUTE_32F keeps FP32 products in full precision; only TF32 may use the tensor cores' shorter one. */
static cublasComputeType_t compute_type(bw_dtype dtype) {
    return dtype == BW_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

const char *bw_cublaslt_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)precision;
    (void)facts;
    if (dims->value[BW_GEMM_M] > INT_MAX || dims->value[BW_GEMM_N] > INT_MAX || dims->value[BW_GEMM_K] > INT_MAX) {
        return "cuBLASLt takes sizes up to 2^31 - 1";
    }
    return NULL;
}

int64_t bw_cublaslt_workspace_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)dims;
    (void)precision;
    (void)facts;
    return WORKSPACE_BYTES;
}

static cublasStatus_t enqueue(const lt_case *state, const bw_launch *launch, const lt_candidate *candidate) {
    const float alpha = 1.0f, beta = launch->dims->value[BW_GEMM_BETA] ? 1.0f : 0.0f;
    void *output = launch->operand[BW_GEMM_D];
    const void *addend = launch->dims->value[BW_GEMM_BETA] ? launch->operand[BW_GEMM_C] : output;
    return state->library->cublasLtMatmul(state->library->lt, state->product, &alpha, launch->operand[BW_GEMM_B],
                                          state->weights, launch->operand[BW_GEMM_A], state->activations, &beta, addend,
                                          state->output, output, state->output, &candidate->algorithm,
                                          launch->workspace, candidate->workspace_bytes, launch->device->stream);
}

bw_status bw_cublaslt_launch(const bw_launch *launch) {
    const lt_case *state = launch->state;
    cublasStatus_t result = enqueue(state, launch, &state->chosen);
    if (result == CUBLAS_STATUS_SUCCESS) return BW_OK;
    BW_TRY(BW_CUDA(&launch->device->api, last_error())); /* a device error says more than the library's */
    return bw_fail(BW_CODE_DEVICE, "%s: cublasLtMatmul failed: %s", state->library->file.path,
                   state->library->cublasLtGetStatusString(result));
}

static bw_status describe(lt_case *state, const bw_launch *launch) {
    bw_cublaslt *library = state->library;
    const int64_t *value = launch->dims->value;
    const int64_t m = value[BW_GEMM_M], n = value[BW_GEMM_N], k = value[BW_GEMM_K];
    const cublasOperation_t transpose = CUBLAS_OP_T;
    cudaDataType_t type;
    if (!find_data_type(launch->precision, &type)) {
        return bw_fail(BW_CODE_UNSUPPORTED, "cublaslt is not made for %s: allowed are fp32, tf32, fp16, bf16",
                       launch->precision->name);
    }
    BW_TRY(BW_CUBLASLT(
        library, cublasLtMatmulDescCreate(&state->product, compute_type(launch->precision->compute), CUDA_R_32F)));
    BW_TRY(BW_CUBLASLT(library, cublasLtMatmulDescSetAttribute(state->product, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                                               sizeof transpose)));
    BW_TRY(BW_CUBLASLT(library, cublasLtMatrixLayoutCreate(&state->weights, type, (uint64_t)k, (uint64_t)n, k)));
    BW_TRY(BW_CUBLASLT(library, cublasLtMatrixLayoutCreate(&state->activations, type, (uint64_t)k, (uint64_t)m, k)));
    return BW_CUBLASLT(library, cublasLtMatrixLayoutCreate(&state->output, type, (uint64_t)n, (uint64_t)m, n));
}

static bw_status ask_heuristics(lt_case *state, lt_candidate *candidates, int *count) {
    bw_cublaslt *library = state->library;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t results[BW_SEARCH_MOST];
    const uint64_t workspace = WORKSPACE_BYTES;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int found = 0;
    bw_status status = BW_OK;
    *count = 0;
    BW_GOTO(BW_CUBLASLT(library, cublasLtMatmulPreferenceCreate(&preference)));
    BW_GOTO(
        BW_CUBLASLT(library, cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                  &workspace, sizeof workspace)));
    BW_GOTO(BW_CUBLASLT(library,
                        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                             &reductions, sizeof reductions)));
    BW_GOTO(BW_CUBLASLT(library, cublasLtMatmulAlgoGetHeuristic(library->lt, state->product, state->weights,
                                                                state->activations, state->output, state->output,
                                                                preference, BW_SEARCH_MOST, results, &found)));
    for (int i = 0; i < found; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > WORKSPACE_BYTES) continue;
        candidates[(*count)++] = (lt_candidate){results[i].algo, results[i].workspaceSize};
    }
cleanup:
    if (preference) library->cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

static bw_status enqueue_candidate(void *context, int candidate, int64_t launch) {
    const lt_search *self = context;
    const bw_launch *set = &self->sets[launch % self->set_count];
    if (enqueue(self->state, set, &self->candidates[candidate]) == CUBLAS_STATUS_SUCCESS) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "an algorithm that fails, or that cannot be captured");
}

/* The first launch loads the kernel's code, which must not happen during a capture. */
static bw_status load_candidate(void *context, int candidate, int64_t first, int launches) {
    lt_search *self = context;
    bw_device *device = self->sets[0].device;
    (void)launches;
    if (self->loaded >> candidate & 1) return BW_OK;
    self->loaded |= (uint32_t)1 << candidate;
    bw_status status = enqueue_candidate(context, candidate, first);
    bw_status synchronized = BW_CUDA(&device->api, stream_synchronize(device->stream));
    return bw_status_first(synchronized, status); /* a device's error says more than the library's */
}

void bw_cublaslt_release(void *state) {
    lt_case *self = state;
    if (!self) return;
    if (self->output) self->library->cublasLtMatrixLayoutDestroy(self->output);
    if (self->activations) self->library->cublasLtMatrixLayoutDestroy(self->activations);
    if (self->weights) self->library->cublasLtMatrixLayoutDestroy(self->weights);
    if (self->product) self->library->cublasLtMatmulDescDestroy(self->product);
    free(self);
}

bw_status bw_cublaslt_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    lt_candidate candidates[BW_SEARCH_MOST];
    bw_cublaslt *library = NULL;
    int count = 0, chosen = 0;
    bw_status status = BW_OK;
    BW_TRY(bw_cublaslt_get(sets[0].device, &library));
    lt_case *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for cuBLASLt's descriptors");
    self->library = library;
    BW_GOTO(describe(self, &sets[0]));
    BW_GOTO(ask_heuristics(self, candidates, &count));
    if (!sets[0].once || count == 0) {
        lt_search search = {self, sets, set_count, candidates, 0};
        const bw_search_calls calls = {load_candidate, enqueue_candidate, &search};
        BW_GOTO(bw_cuda_take_down_all_profilers(sets[0].device));
        BW_GOTO(bw_search_fastest(sets[0].device, &calls, count, &chosen));
    }
    if (chosen < 0) {
        BW_GOTO(bw_fail(BW_CODE_UNAVAILABLE, "%s offers no algorithm for this shape (%d found, none of them ran)",
                        library->file.path, count));
    }
    self->chosen = candidates[chosen];
    *state = self;
    return BW_OK;
cleanup:
    bw_cublaslt_release(self);
    return status;
}
