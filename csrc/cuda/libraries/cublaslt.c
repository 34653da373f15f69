/* Opens cuBLASLt for a device and turns its results into statuses. */
#include "cuda/libraries/cublaslt.h"

#include <stdio.h>
#include <string.h>

#include "cuda/runtime/attachments.h"

bw_status bw_cublaslt_status(const bw_cublaslt *library, cublasStatus_t result, const char *what) {
    if (result == CUBLAS_STATUS_SUCCESS) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "%s: %s failed: %s", library->file.path, what,
                   library->cublasLtGetStatusString(result));
}

static const bw_library_query library_query = {
    .title = "cuBLASLt",
    .stem = "libcublasLt.so",
    .sonames = (const char *const[]){"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", NULL},
    .wheel_folders = (const char *const[]){"nvidia/cu1[0-9]/lib", "nvidia/cublas/lib", NULL},
    .toolkit_folders = (const char *const[]){"lib64", "lib", "targets/*/lib", NULL},
    .advice = "install it with `pip install nvidia-cublas`, or set CUDA_HOME",
};

static void close_library(bw_device *device, void *state) {
    bw_cublaslt *library = state;
    (void)device;
    if (library->lt) library->cublasLtDestroy(library->lt);
    bw_library_close(&library->file);
    memset(library, 0, sizeof *library);
}

static const bw_cuda_part cublaslt_part = {.state_bytes = sizeof(bw_cublaslt), .close = close_library};

static bw_status open_library(bw_cublaslt *library) {
    BW_TRY(bw_library_open(&library_query, &library->file));
#define SYMBOL(name) BW_TRY(bw_library_symbol(&library->file, #name, &library->name));
    BW_CUBLASLT_CALLS(SYMBOL)
#undef SYMBOL
    return BW_CUBLASLT(library, cublasLtCreate(&library->lt));
}

bw_status bw_cublaslt_get(bw_device *device, bw_cublaslt **out) {
    void *state = NULL;
    BW_TRY(bw_cuda_attach(device, &cublaslt_part, &state));
    bw_cublaslt *library = state;
    bw_status status = library->lt ? BW_OK : open_library(library);
    if (status) {
        close_library(device, library);
        return status;
    }
    *out = library;
    return BW_OK;
}

bw_status bw_cublaslt_describe(bw_device *device, bw_library_info *out) {
    bw_cublaslt *library = NULL;
    BW_TRY(bw_cublaslt_get(device, &library));
    size_t version = library->cublasLtGetVersion(); /* 130200 = 13.2.0 */
    snprintf(out->path, sizeof out->path, "%s", library->file.path);
    snprintf(out->version, sizeof out->version, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return BW_OK;
}
