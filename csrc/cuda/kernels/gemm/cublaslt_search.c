/* gemm through cuBLASLt.
 *
 * cuBLASLt is column-major: the row-major D(M, N) is its D'(N, M), so D' = B'^T A' with B'(K, N) and A'(K, M), the very
 * arrays that we have, leading dimension K.
 *
 * `prepare` asks for up to 32 algorithms, times each once, and then the best four longer. They are timed as a case is
 * timed: a graph of several launches over the rotating sets, each going on where the one before ended, so that all find
 * their inputs equally cold, with nothing up that delays kernels, and once the clock is up: the library's first choices
 * come first and would be timed worst. An algorithm that fails is dropped.
 * For a single launch nothing is timed: the heuristic's first algorithm is taken.
 * Sums over K that are split between blocks may not pass through D's own type: that would cost 16-bit results their
 * accuracy. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/kernels/gemm/gemm.h"
#include "cuda/launch/graph.h"
#include "cuda/launch/replay.h"
#include "cuda/libraries/cublaslt.h"
#include "cuda/libraries/cupti.h"
#include "ops/families/gemm.h"

enum {
    WORKSPACE_BYTES = 32 << 20,
    CANDIDATE_LIMIT = 32,
    FINALISTS = 4,
    LAUNCHES_MOST = 512 /* of one graph */
};
static const double warm_graph_ms = 2.0, first_graph_ms = 0.25, final_graph_ms = 2.0;
static const double warm_least_ms = 20.0, warm_most_ms = 100.0;
static const double settled_share = 0.01;    /* of two graphs' times, when the clock has stopped rising */
static const double search_budget_ms = 40.0; /* the first few are timed however long they take */
static const double tie_share = 0.01;

typedef struct lt_candidate {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes; /* what the algorithm asked for */
    int rank;               /* in the library's own opinion */
    double ms;              /* per launch; infinite: not timed, or failed */
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
    int64_t launched; /* so far: the next launch's set */
    bw_replay replay;
    double spent_ms;
    const lt_candidate *candidate; /* that is captured, so many times */
    int launches;
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
    cublasLtMatmulHeuristicResult_t results[CANDIDATE_LIMIT];
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
                                                                preference, CANDIDATE_LIMIT, results, &found)));
    for (int i = 0; i < found; i++) {
        if (results[i].state != CUBLAS_STATUS_SUCCESS || results[i].workspaceSize > WORKSPACE_BYTES) continue;
        candidates[(*count)++] = (lt_candidate){results[i].algo, results[i].workspaceSize, i, INFINITY};
    }
cleanup:
    if (preference) library->cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* ---- the search ---- */

static bw_status enqueue_launches(void *context) {
    lt_search *self = context;
    for (int i = 0; i < self->launches; i++) {
        const bw_launch *set = &self->sets[self->launched++ % self->set_count];
        if (enqueue(self->state, set, self->candidate) != CUBLAS_STATUS_SUCCESS) {
            return bw_fail(BW_CODE_UNAVAILABLE, "an algorithm that cannot be captured");
        }
    }
    return BW_OK;
}

/* Sets candidate->ms, infinite when the candidate cannot be captured and so is none for us. An error is the device's.
 */
static bw_status time_candidate(lt_search *self, lt_candidate *candidate, int launches) {
    bw_device *device = self->sets[0].device;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;
    double ns = 0.0;
    candidate->ms = INFINITY;
    self->candidate = candidate;
    self->launches = launches;
    bw_status status = bw_cuda_graph_capture(device, device->stream, enqueue_launches, self, &graph);
    if (bw_status_code(status) == BW_CODE_UNAVAILABLE) {
        bw_status_free(status);
        return BW_OK;
    }
    BW_TRY(status);
    status = bw_cuda_graph_finish(device, device->stream, graph, &replay);
    if (!status) status = bw_replay_run(&self->replay, device->stream, replay, NULL, &ns);
    if (!status) candidate->ms = ns / 1e6 / launches;
    self->spent_ms += ns / 1e6;
    if (replay) BW_CUDA_IGNORE(&device->api, graph_exec_destroy(replay));
    return status;
}

/* The first launch loads the kernel's code, which must not happen during a capture. */
static bw_status load_candidate(const lt_search *self, const lt_candidate *candidate, bool *usable) {
    bw_device *device = self->sets[0].device;
    *usable = enqueue(self->state, &self->sets[0], candidate) == CUBLAS_STATUS_SUCCESS;
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

/* As many as take so long. */
static int launches_for(const lt_candidate *candidate, double graph_ms) {
    return (int)fmax(1, fmin(LAUNCHES_MOST, graph_ms / candidate->ms));
}

/* Replays a candidate until the clock of a GPU that had nothing to do has stopped rising. */
static bw_status raise_clock(lt_search *self, lt_candidate *candidate) {
    double before_ms;
    self->spent_ms = 0.0;
    do {
        before_ms = candidate->ms;
        BW_TRY(time_candidate(self, candidate, launches_for(candidate, warm_graph_ms)));
        if (!isfinite(candidate->ms)) return BW_OK;
    } while (self->spent_ms < warm_least_ms ||
             (self->spent_ms < warm_most_ms && candidate->ms < before_ms * (1.0 - settled_share)));
    self->spent_ms = 0.0;
    return BW_OK;
}

/* Times each candidate once; those after the first few only while the budget lasts. All do the same product, so that
 * the first one's time says how many launches a graph holds. */
static bw_status time_all(lt_search *self, lt_candidate *candidates, int count) {
    int launches = 0;
    for (int i = 0; i < count && (i < FINALISTS || self->spent_ms < search_budget_ms); i++) {
        bool usable = false;
        BW_TRY(load_candidate(self, &candidates[i], &usable));
        if (usable && !launches) {
            BW_TRY(raise_clock(self, &candidates[i]));
            usable = isfinite(candidates[i].ms);
            if (usable) launches = launches_for(&candidates[i], first_graph_ms);
        }
        if (usable) BW_TRY(time_candidate(self, &candidates[i], launches));
    }
    return BW_OK;
}

static int compare_candidates(const void *left, const void *right) {
    const double a = ((const lt_candidate *)left)->ms, b = ((const lt_candidate *)right)->ms;
    return (a > b) - (a < b);
}

/* The fastest. Where noise could have decided, the library does, so that the same case gets the same algorithm the next
 * time. NULL where none has run. */
static const lt_candidate *choose(const lt_candidate *finalists, int count) {
    const lt_candidate *chosen = NULL;
    double best_ms = INFINITY;
    for (int i = 0; i < count; i++) best_ms = fmin(best_ms, finalists[i].ms);
    for (int i = 0; i < count && isfinite(best_ms); i++) {
        if (finalists[i].ms > best_ms * (1.0 + tie_share)) continue;
        if (!chosen || finalists[i].rank < chosen->rank) chosen = &finalists[i];
    }
    return chosen;
}

static bw_status search(lt_search *self, lt_candidate *candidates, int count, const lt_candidate **chosen) {
    BW_TRY(bw_cuda_take_down_all_profilers(self->sets[0].device));
    BW_TRY(bw_replay_open(self->sets[0].device, &self->replay));
    BW_TRY(time_all(self, candidates, count));
    qsort(candidates, (size_t)count, sizeof *candidates, compare_candidates);
    const int finalists = count < FINALISTS ? count : FINALISTS;
    for (int i = 0; i < finalists && isfinite(candidates[i].ms); i++) {
        const int launches = launches_for(&candidates[i], final_graph_ms);
        if (launches > 1) BW_TRY(time_candidate(self, &candidates[i], launches)); /* one launch was timed before */
    }
    *chosen = choose(candidates, finalists);
    return BW_OK;
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
    lt_candidate candidates[CANDIDATE_LIMIT];
    const lt_candidate *chosen = candidates;
    bw_cublaslt *library = NULL;
    int count = 0;
    bw_status status = BW_OK;
    BW_TRY(bw_cublaslt_get(sets[0].device, &library));
    lt_case *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for cuBLASLt's descriptors");
    lt_search tools = {.state = self, .sets = sets, .set_count = set_count};
    self->library = library;
    BW_GOTO(describe(self, &sets[0]));
    BW_GOTO(ask_heuristics(self, candidates, &count));
    if (!sets[0].once || count == 0) BW_GOTO(search(&tools, candidates, count, &chosen));
    if (!chosen) {
        BW_GOTO(bw_fail(BW_CODE_UNAVAILABLE, "%s offers no algorithm for this shape (%d found, none of them ran)",
                        library->file.path, count));
    }
    self->chosen = *chosen;
    *state = self;
cleanup:
    bw_replay_close(&tools.replay);
    if (status) bw_cublaslt_release(self);
    return status;
}
