/* cuBLASLt, opened at its first use. */
#pragma once

#include <cublasLt.h>

#include "cuda/libraries/find.h"
#include "cuda/runtime/device.h"

#define BW_CUBLASLT_CALLS(X)                \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetVersion)                   \
    X(cublasLtGetStatusString)              \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)          \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmul)

typedef struct bw_cublaslt {
    bw_library file;
    cublasLtHandle_t lt; /* NULL: it is not open */
#define BW_CUBLASLT_MEMBER(name) __typeof__(name) *name;
    BW_CUBLASLT_CALLS(BW_CUBLASLT_MEMBER)
#undef BW_CUBLASLT_MEMBER
} bw_cublaslt;

/* The device's library, opened at the first call; after a failure the next call tries again. */
bw_status bw_cublaslt_get(bw_device *device, bw_cublaslt **out);

/* Path and version of the library; BW_CODE_UNAVAILABLE where there is none. */
bw_status bw_cublaslt_describe(bw_device *device, bw_library_info *out);

/* BW_CUBLASLT(library, cublasLtCreate(...)): the call, and what its result means. */
#define BW_CUBLASLT(library, call) bw_cublaslt_status((library), (library)->call, #call)
bw_status bw_cublaslt_status(const bw_cublaslt *library, cublasStatus_t result, const char *what);
