/* A cuBLASLt that offers the algorithms that the test says. Compiled against NVIDIA's header, so that a prototype that
 * is wrong does not compile. */
#include "fake_cublaslt.h"

#include <cublasLt.h>
#include <string.h>

static fake_cublaslt fake;
static int object;

FAKE_EXPORT fake_cublaslt *fake_cublaslt_books(void) {
    return &fake;
}

FAKE_EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    *out = (cublasLtHandle_t)&object;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT size_t cublasLtGetVersion(void) {
    return 130200;
}

FAKE_EXPORT const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "failure";
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                                    cudaDataType_t scale) {
    (void)compute, (void)scale;
    *out = (cublasLtMatmulDesc_t)&object;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
    (void)description;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                                          cublasLtMatmulDescAttributes_t attribute, const void *value,
                                                          size_t size) {
    (void)description, (void)attribute, (void)value, (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                                      uint64_t columns, int64_t stride) {
    (void)type, (void)rows, (void)columns, (void)stride;
    *out = (cublasLtMatrixLayout_t)&object;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    (void)layout;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    *out = (cublasLtMatmulPreference_t)&object;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    (void)preference;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                                cublasLtMatmulPreferenceAttributes_t attribute,
                                                                const void *value, size_t size) {
    (void)preference, (void)attribute, (void)value, (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                                          cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                          cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                          cublasLtMatmulPreference_t preference, int wanted,
                                                          cublasLtMatmulHeuristicResult_t results[], int *found) {
    (void)handle, (void)description, (void)a, (void)b, (void)c, (void)d, (void)preference;
    for (*found = 0; *found < wanted && *found < fake.algorithms; (*found)++) {
        memset(&results[*found], 0, sizeof results[*found]);
        results[*found].algo.data[0] = (uint64_t)*found;
        results[*found].state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

FAKE_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                                          const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                                          cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                                          cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                          const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                                          cudaStream_t stream) {
    (void)handle, (void)description, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta;
    (void)c, (void)c_layout, (void)d, (void)d_layout, (void)workspace, (void)bytes, (void)stream;
    return (cublasStatus_t)fake.run((int)algorithm->data[0]);
}
