/* gemm through cuBLASLt.
 *
 * cuBLASLt is column-major: the row-major D(M, N) is its D'(N, M), so D' = B'^T A' with B'(K, N) and A'(K, M), the very
 * arrays that we have, leading dimension K.
 *
 * `prepare` asks for up to 32 algorithms and times them as a case is timed: a graph of several launches over the
 * rotating sets, each going on where the one before ended, so that all find their inputs equally cold, with nothing up
 * that delays kernels, and once the clock is up: the library's first choices come first and would be timed worst. After
 * the first round, which is short, whatever came near the best stays; then the field halves from round to round while
 * the time doubles. An algorithm that fails is dropped.
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
    FIRST_LAUNCHES = 4,
    LAUNCHES_MOST = 512, /* of one graph */
    SURE_CANDIDATES = 4, /* timed however long they take */
    FIELD_MOST = 16      /* after the first round */
};
static const double search_budget_ms = 40.0;
static const double warm_least_ms = 20.0, warm_most_ms = 100.0, warm_graph_ms = 2.0;
static const double settled_share = 0.01; /* of two graphs' times, when the clock has stopped rising */
static const double near_share = 0.25;    /* of the best: a first round may be off by so much */
static const double first_round_ms = 0.1; /* and each next round twice that, but at least twice as many launches */
static const double tie_share = 0.01;

/* What a case keeps: its descriptors and the algorithm it settled on. */
typedef struct lt_case {
    bw_cublaslt *library;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t weights, activations, output; /* B, A, D in cuBLASLt's view */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes; /* what the algorithm asked for */
} lt_case;

typedef struct lt_candidate {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    int rank;  /* in the library's own opinion */
    double ms; /* per launch; infinite: failed */
} lt_candidate;

/* The search's tools: created once, reused for every candidate. */
typedef struct lt_search {
    const bw_launch *sets;
    int64_t set_count;
    int64_t launched; /* so far: the next launch's set */
    bw_replay replay;
    double spent_ms;
} lt_search;

/* Of operands that are all stored alike; TF32 is FP32 in memory. */
static const struct {
    bw_precision_id precision;
    cudaDataType_t type;
} data_types[] = {{BW_PRECISION_FP32, CUDA_R_32F},
                  {BW_PRECISION_TF32, CUDA_R_32F},
                  {BW_PRECISION_FP16, CUDA_R_16F},
                  {BW_PRECISION_BF16, CUDA_R_16BF}};

/* NULL: it is not made for this precision. */
static const cudaDataType_t *data_type(const bw_precision *precision) {
    for (size_t i = 0; i < sizeof data_types / sizeof data_types[0]; i++) {
        if (data_types[i].precision == precision->id) return &data_types[i].type;
    }
    return NULL;
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

static cublasStatus_t enqueue(const lt_case *state, const bw_launch *launch, const cublasLtMatmulAlgo_t *algorithm,
                              size_t workspace_bytes) {
    const float alpha = 1.0f, beta = launch->dims->value[BW_GEMM_BETA] ? 1.0f : 0.0f;
    void *output = launch->operand[BW_GEMM_D];
    const void *addend = launch->dims->value[BW_GEMM_BETA] ? launch->operand[BW_GEMM_C] : output;
    return state->library->cublasLtMatmul(state->library->lt, state->product, &alpha, launch->operand[BW_GEMM_B],
                                          state->weights, launch->operand[BW_GEMM_A], state->activations, &beta, addend,
                                          state->output, output, state->output, algorithm, launch->workspace,
                                          workspace_bytes, launch->device->stream);
}

bw_status bw_cublaslt_launch(const bw_launch *launch) {
    const lt_case *state = launch->state;
    cublasStatus_t result = enqueue(state, launch, &state->algorithm, state->workspace_bytes);
    if (result == CUBLAS_STATUS_SUCCESS) return BW_OK;
    BW_TRY(BW_CUDA(&launch->device->api, last_error())); /* a device error says more than the library's */
    return bw_fail(BW_CODE_DEVICE, "%s: cublasLtMatmul failed: %s", state->library->path,
                   state->library->cublasLtGetStatusString(result));
}

static bw_status describe(lt_case *state, const bw_launch *launch) {
    bw_cublaslt *library = state->library;
    const int64_t *value = launch->dims->value;
    const int64_t m = value[BW_GEMM_M], n = value[BW_GEMM_N], k = value[BW_GEMM_K];
    const cudaDataType_t *known = data_type(launch->precision);
    const cublasOperation_t transpose = CUBLAS_OP_T;
    if (!known) {
        return bw_fail(BW_CODE_UNSUPPORTED, "cublaslt is not made for %s: allowed are fp32, tf32, fp16, bf16",
                       launch->precision->name);
    }
    const cudaDataType_t type = *known;
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

/* What a graph is captured of: launches one after the other over the sets. */
typedef struct lt_capture {
    const lt_case *state;
    lt_search *search;
    const lt_candidate *candidate;
    int launches;
    bool refused; /* by the library: an algorithm that cannot be captured is none for us */
} lt_capture;

static bw_status enqueue_launches(void *context) {
    lt_capture *self = context;
    lt_search *search = self->search;
    for (int i = 0; i < self->launches; i++) {
        const bw_launch *set = &search->sets[search->launched++ % search->set_count];
        const lt_candidate *candidate = self->candidate;
        self->refused =
            enqueue(self->state, set, &candidate->algorithm, candidate->workspace_bytes) != CUBLAS_STATUS_SUCCESS;
        if (self->refused) return bw_fail(BW_CODE_UNAVAILABLE, "an algorithm that cannot be captured");
    }
    return BW_OK;
}

/* *graph stays NULL when the library refuses. */
static bw_status capture(const lt_case *state, lt_search *search, const lt_candidate *candidate, int launches,
                         cudaGraph_t *graph) {
    bw_device *device = search->sets[0].device;
    lt_capture self = {state, search, candidate, launches, false};
    bw_status status = bw_cuda_graph_capture(device, device->stream, enqueue_launches, &self, graph);
    if (!self.refused) return status;
    bw_status_free(status);
    return BW_OK;
}

/* Sets candidate->ms, infinite when the candidate cannot be used. An error is the device's. */
static bw_status time_candidate(const lt_case *state, lt_search *search, lt_candidate *candidate, int launches) {
    bw_device *device = search->sets[0].device;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t replay = NULL;
    double ns = 0.0;
    bw_status status = BW_OK;
    candidate->ms = INFINITY;
    BW_GOTO(capture(state, search, candidate, launches, &graph));
    if (!graph) goto cleanup;
    BW_GOTO(bw_cuda_graph_finish(device, device->stream, graph, &replay));
    BW_GOTO(bw_replay_run(&search->replay, device->stream, replay, NULL, &ns));
    candidate->ms = ns / 1e6 / launches;
    search->spent_ms += ns / 1e6 + candidate->ms; /* and its warm-up */
cleanup:
    if (replay) BW_CUDA_IGNORE(&device->api, graph_exec_destroy(replay));
    return status;
}

/* The first launch loads the kernel's code, which must not happen during a capture. */
static bw_status warm_candidate(const lt_case *state, lt_search *search, const lt_candidate *candidate, bool *usable) {
    bw_device *device = search->sets[0].device;
    *usable =
        enqueue(state, &search->sets[0], &candidate->algorithm, candidate->workspace_bytes) == CUBLAS_STATUS_SUCCESS;
    return BW_CUDA(&device->api, stream_synchronize(device->stream));
}

static int compare_candidates(const void *left, const void *right) {
    const double a = ((const lt_candidate *)left)->ms, b = ((const lt_candidate *)right)->ms;
    return (a > b) - (a < b);
}

/* As many as take so long, at least `least`. */
static int launches_for(const lt_candidate *candidate, double ms, int least) {
    return (int)fmax(least, fmin(LAUNCHES_MOST, ms / candidate->ms)); /* none of one that has failed: infinite */
}

static bool clock_rises(const lt_search *search, double before_ms, double ms) {
    if (!isfinite(ms) || search->spent_ms >= warm_most_ms) return false;
    return search->spent_ms < warm_least_ms || ms < before_ms * (1.0 - settled_share);
}

/* Replays of the first candidate that runs, until the clock of a GPU that had nothing to do has stopped rising. */
static bw_status raise_clock(const lt_case *state, lt_search *search, lt_candidate *candidates, int count) {
    double before_ms = INFINITY;
    lt_candidate *first = candidates;
    for (; first < candidates + count; first++) {
        bool usable = false;
        BW_TRY(warm_candidate(state, search, first, &usable));
        if (usable) BW_TRY(time_candidate(state, search, first, FIRST_LAUNCHES));
        if (isfinite(first->ms)) break;
    }
    if (first == candidates + count) return BW_OK;
    while (clock_rises(search, before_ms, first->ms)) {
        before_ms = first->ms;
        BW_TRY(time_candidate(state, search, first, launches_for(first, warm_graph_ms, FIRST_LAUNCHES)));
    }
    search->spent_ms = 0.0;
    return BW_OK;
}

/* Meets every candidate until half the budget is spent; the first few in any case. */
static bw_status first_round(const lt_case *state, lt_search *search, lt_candidate *candidates, int count) {
    for (int i = 0; i < count; i++) {
        bool usable = false;
        if (i >= SURE_CANDIDATES && search->spent_ms > search_budget_ms / 2) break;
        BW_TRY(warm_candidate(state, search, &candidates[i], &usable));
        const int launches = search->spent_ms > search_budget_ms / 4 ? 1 : FIRST_LAUNCHES;
        if (usable) BW_TRY(time_candidate(state, search, &candidates[i], launches));
        const int wanted = launches_for(&candidates[i], first_round_ms, launches);
        if (wanted > launches) BW_TRY(time_candidate(state, search, &candidates[i], wanted));
    }
    qsort(candidates, (size_t)count, sizeof *candidates, compare_candidates);
    return BW_OK;
}

/* Looks closer at the first `field`, already sorted, as far as the budget goes; leaves them sorted. */
static bw_status next_round(const lt_case *state, lt_search *search, lt_candidate *candidates, int field, double ms,
                            int least) {
    for (int i = 0; i < field; i++) {
        if (!isfinite(candidates[i].ms)) break;
        const int launches = launches_for(&candidates[i], ms, least);
        if (search->spent_ms + candidates[i].ms * launches > search_budget_ms) break;
        BW_TRY(time_candidate(state, search, &candidates[i], launches));
    }
    qsort(candidates, (size_t)field, sizeof *candidates, compare_candidates);
    return BW_OK;
}

/* Those of the sorted candidates that came near the best. */
static int field_of(const lt_candidate *sorted, int count) {
    int field = 0;
    while (field < count && field < FIELD_MOST && sorted[field].ms <= sorted[0].ms * (1.0 + near_share)) field++;
    return field;
}

static bw_status run_rounds(const lt_case *state, lt_search *search, lt_candidate *candidates, int count) {
    BW_TRY(raise_clock(state, search, candidates, count));
    BW_TRY(first_round(state, search, candidates, count));
    double ms = 2 * first_round_ms;
    int launches = 2 * FIRST_LAUNCHES;
    for (int field = field_of(candidates, count); field >= 2; field /= 2, ms *= 2, launches *= 2) {
        BW_TRY(next_round(state, search, candidates, field, ms, launches));
    }
    return BW_OK;
}

/* Of the last two, which were timed equally well: where noise could have decided, the library does, so that the same
 * case gets the same algorithm the next time. */
static const lt_candidate *favorite(const lt_candidate *sorted, int count) {
    bool tie = count > 1 && sorted[1].ms <= sorted[0].ms * (1.0 + tie_share);
    return tie && sorted[1].rank < sorted[0].rank ? &sorted[1] : &sorted[0];
}

static void adopt(lt_case *state, const lt_candidate *candidate) {
    state->algorithm = candidate->algorithm;
    state->workspace_bytes = candidate->workspace_bytes;
}

static bw_status choose(lt_case *state, const bw_launch *sets, int64_t set_count, lt_candidate *candidates, int count) {
    lt_search search = {.sets = sets, .set_count = set_count};
    bw_status status = BW_OK;
    BW_GOTO(bw_cuda_take_down_all_profilers(sets[0].device));
    BW_GOTO(bw_replay_open(sets[0].device, &search.replay));
    BW_GOTO(run_rounds(state, &search, candidates, count));
    if (count == 0 || !isfinite(candidates[0].ms)) {
        BW_GOTO(bw_fail(BW_CODE_UNAVAILABLE, "%s offers no algorithm for this shape (%d found, none of them ran)",
                        state->library->path, count));
    }
    adopt(state, favorite(candidates, count));
cleanup:
    bw_replay_close(&search.replay);
    return status;
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
    bw_cublaslt *library = NULL;
    int count = 0;
    bw_status status = BW_OK;
    BW_TRY(bw_cublaslt_get(sets[0].device, &library));
    lt_case *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for cuBLASLt's descriptors");
    self->library = library;
    BW_GOTO(describe(self, &sets[0]));
    BW_GOTO(ask_heuristics(self, candidates, &count));
    if (sets[0].once && count > 0) {
        adopt(self, &candidates[0]);
    } else {
        BW_GOTO(choose(self, sets, set_count, candidates, count));
    }
    *state = self;
    return BW_OK;
cleanup:
    bw_cublaslt_release(self);
    return status;
}
