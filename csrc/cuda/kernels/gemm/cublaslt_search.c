/* gemm through cuBLASLt.
 *
 * cuBLASLt is column-major: the row-major D(M, N) is its D'(N, M), so D' = B'^T A' with B'(K, N) and A'(K, M), the very
 * arrays that we have, leading dimension K.
 *
 * `prepare` takes the fastest of up to 32 algorithms (launch/search.c), for a single launch the heuristic's first.
 * Sums over K that blocks share may not pass through D's own type: that would cost 16-bit results their accuracy.
 *
 * Of E4M3 the library itself takes the rows' and columns' scales. Of INT8 it leaves whole sums, in scratch, of which a
 * kernel of ours (eight/scale.cu) makes D. */
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
    void *scaling;                                       /* the prepared launch that follows; NULL: there is none */
    lt_candidate chosen;
} lt_case;

/* What of cuBLASLt 12.9 its older headers do not name. */
enum { SCALE_MODE_A = 31, SCALE_MODE_B = 32, SCALES_OF_ROWS = 3 };

typedef struct lt_search {
    const lt_case *state;
    const bw_launch *sets;
    int64_t set_count;
    const lt_candidate *candidates;
    uint32_t loaded; /* a bit for each candidate */
} lt_search;

/* Types of A and B, of D, of sums, and of the factors of product and addend. */
typedef struct lt_types {
    cudaDataType_t operand, result;
    cublasComputeType_t compute;
    cudaDataType_t factor;
} lt_types;

/* CUBLAS_COMPUTE_32F keeps FP32 products in full precision; only TF32, FP32 in memory, may use the tensor cores'
 * shorter one. False where cuBLASLt is not made for the precision. */
static bool find_types(const bw_precision *precision, lt_types *out) {
    static const lt_types types[BW_PRECISION_COUNT] = {
        [BW_PRECISION_FP32] = {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
        [BW_PRECISION_TF32] = {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F},
        [BW_PRECISION_FP16] = {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
        [BW_PRECISION_BF16] = {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F},
        [BW_PRECISION_FP8_E4M3] = {CUDA_R_8F_E4M3, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
        [BW_PRECISION_FP8_TENSOR] = {CUDA_R_8F_E4M3, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F},
        [BW_PRECISION_INT8] = {CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I},
    };
    *out = types[precision->id];
    return out->compute != 0;
}

static bool leaves_whole_sums(const bw_precision *precision) {
    return precision->compute == BW_INT8;
}

/* Bytes of the sums that are left in scratch. */
static bw_checked_int sum_bytes(const bw_dims *dims, const bw_precision *precision) {
    if (!leaves_whole_sums(precision)) return bw_num(0);
    return bw_mul(bw_mul(bw_num(dims->value[BW_GEMM_M]), bw_num(dims->value[BW_GEMM_N])), bw_num(sizeof(int32_t)));
}

static const char *refuses_eight_bits(const bw_dims *dims, const bw_precision *precision,
                                      const bw_device_facts *facts) {
    const int64_t *value = dims->value;
    if (value[BW_GEMM_BETA] != 0) return "cuBLASLt takes 8 bits without an addend";
    if (value[BW_GEMM_N] % 16 != 0 || value[BW_GEMM_K] % 16 != 0) {
        return "cuBLASLt takes 8 bits where N and K are multiples of 16";
    }
    if (leaves_whole_sums(precision)) {
        if (value[BW_GEMM_K] > INT32_MAX / (128 * 128))
            return "sums of more than 131071 products of INT8 may pass 2^31";
        return sum_bytes(dims, precision).overflow ? "sums of more than 2^63 bytes" : NULL;
    }
    if (precision->activation_scales->rows && (!facts->own || facts->own->major != 9))
        return "cuBLASLt takes scales of rows on compute capability 9.0 alone";
    if (!facts->own || 10 * facts->own->major + facts->own->minor < 89)
        return "products of E4M3 need compute capability 8.9";
    return NULL;
}

const char *bw_cublaslt_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    if (dims->value[BW_GEMM_M] > INT_MAX || dims->value[BW_GEMM_N] > INT_MAX || dims->value[BW_GEMM_K] > INT_MAX) {
        return "cuBLASLt takes sizes up to 2^31 - 1";
    }
    return precision->weight_scales->type != BW_NONE ? refuses_eight_bits(dims, precision, facts) : NULL;
}

int64_t bw_cublaslt_scratch_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)facts;
    return sum_bytes(dims, precision).value;
}

bw_status bw_cublaslt_extra_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                 bw_cost *cost) {
    (void)facts;
    return bw_cost_add_intermediates(sum_bytes(dims, precision), cost);
}

int64_t bw_cublaslt_workspace_bytes(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)dims;
    (void)precision;
    (void)facts;
    return WORKSPACE_BYTES;
}

/* Of one attribute of the product; `size` bytes from `value` on. */
static cublasStatus_t set(const lt_case *state, int attribute, const void *value, size_t size) {
    return state->library->cublasLtMatmulDescSetAttribute(state->product, (cublasLtMatmulDescAttributes_t)attribute,
                                                          value, size);
}

/* The buffer set's own, where the library takes them. */
static cublasStatus_t set_scales(const lt_case *state, const bw_launch *launch) {
    if (launch->precision->compute != BW_FP8_E4M3) return CUBLAS_STATUS_SUCCESS;
    void *of_b = launch->operand[BW_GEMM_B_SCALE], *of_a = launch->operand[BW_GEMM_A_SCALE];
    cublasStatus_t result = set(state, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &of_b, sizeof of_b);
    return result ? result : set(state, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &of_a, sizeof of_a);
}

static cublasStatus_t enqueue(const lt_case *state, const bw_launch *launch, const lt_candidate *candidate) {
    const bool whole = state->scaling != NULL, adds = launch->dims->value[BW_GEMM_BETA] != 0;
    const float numbers[2] = {1.0f, adds ? 1.0f : 0.0f};
    const int32_t whole_numbers[2] = {1, 0};
    const void *alpha = whole ? (const void *)&whole_numbers[0] : &numbers[0];
    const void *beta = whole ? (const void *)&whole_numbers[1] : &numbers[1];
    void *output = whole ? launch->scratch : launch->operand[BW_GEMM_D];
    const void *addend = adds ? launch->operand[BW_GEMM_C] : output;
    cublasStatus_t result = set_scales(state, launch);
    if (result) return result;
    return state->library->cublasLtMatmul(state->library->lt, state->product, alpha, launch->operand[BW_GEMM_B],
                                          state->weights, launch->operand[BW_GEMM_A], state->activations, beta, addend,
                                          state->output, output, state->output, &candidate->algorithm,
                                          launch->workspace, candidate->workspace_bytes, launch->device->stream);
}

bw_status bw_cublaslt_launch(const bw_launch *launch) {
    const lt_case *state = launch->state;
    cublasStatus_t result = enqueue(state, launch, &state->chosen);
    if (result == CUBLAS_STATUS_SUCCESS) {
        bw_launch after = *launch;
        after.state = state->scaling;
        return after.state ? bw_cuda_prepared_launch(&after) : BW_OK;
    }
    BW_TRY(BW_CUDA(&launch->device->api, last_error())); /* a device error says more than the library's */
    return bw_fail(BW_CODE_DEVICE, "%s: cublasLtMatmul failed: %s", state->library->file.path,
                   state->library->cublasLtGetStatusString(result));
}

static bw_status describe(lt_case *state, const bw_launch *launch) {
    bw_cublaslt *library = state->library;
    const int64_t *value = launch->dims->value;
    const int64_t m = value[BW_GEMM_M], n = value[BW_GEMM_N], k = value[BW_GEMM_K];
    const cublasOperation_t transpose = CUBLAS_OP_T;
    const int32_t of_rows = SCALES_OF_ROWS;
    const bool scales = launch->precision->compute == BW_FP8_E4M3;
    lt_types types;
    if (!find_types(launch->precision, &types)) {
        return bw_fail(BW_CODE_UNSUPPORTED,
                       "cublaslt is not made for %s: allowed are fp32, tf32, fp16, bf16, fp8_e4m3, "
                       "int8",
                       launch->precision->name);
    }
    BW_TRY(BW_CUBLASLT(library, cublasLtMatmulDescCreate(&state->product, types.compute, types.factor)));
    BW_TRY(bw_cublaslt_status(library, set(state, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
                              "asking for transposed weights"));
    if (scales) BW_TRY(bw_cublaslt_status(library, set_scales(state, launch), "giving scales"));
    if (scales && launch->precision->activation_scales->rows) {
        cublasStatus_t result = set(state, SCALE_MODE_A, &of_rows, sizeof of_rows);
        if (!result) result = set(state, SCALE_MODE_B, &of_rows, sizeof of_rows);
        BW_TRY(bw_cublaslt_status(library, result, "asking for scales of rows, which is new in cuBLASLt 12.9,"));
    }
    BW_TRY(
        BW_CUBLASLT(library, cublasLtMatrixLayoutCreate(&state->weights, types.operand, (uint64_t)k, (uint64_t)n, k)));
    BW_TRY(BW_CUBLASLT(library,
                       cublasLtMatrixLayoutCreate(&state->activations, types.operand, (uint64_t)k, (uint64_t)m, k)));
    BW_TRY(BW_CUBLASLT(library, cublasLtMatrixLayoutCreate(&state->output, types.result, (uint64_t)n, (uint64_t)m, n)));
    if (!leaves_whole_sums(launch->precision)) return BW_OK;
    return bw_cuda_prepare(launch, 1, bw_gemm_scale_choose, &state->scaling);
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
    bw_cuda_prepared_release(self->scaling);
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
