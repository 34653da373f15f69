/* Finding a shared library of NVIDIA's at run time. Nothing from NVIDIA is linked: a missing library costs the feature
 * that needs it, with a reason that says where it was looked for.
 *
 * The order: what the process has loaded already (a framework's copy is shared), NVIDIA's wheels in site-packages, the
 * loader's own path, CUDA_HOME and CUDA_PATH, /usr/local/cuda. */
#pragma once

#include "base/status.h"

/* Lists end with NULL; a NULL list is an empty one. */
typedef struct bw_library_query {
    const char *title;                  /* for messages: "cuBLASLt" */
    const char *stem;                   /* of any version's file name: "libcublasLt.so" */
    const char *const *sonames;         /* newest first: "libcublasLt.so.13" */
    const char *const *wheel_folders;   /* patterns below site-packages: "nvidia/cublas/lib" */
    const char *const *toolkit_folders; /* below the toolkit: "lib64" */
    const char *advice;                 /* what to do when there is none */
    const char *test_variable;          /* an environment variable that names the only file to try; NULL = none */
} bw_library_query;

typedef struct bw_library {
    void *handle; /* NULL: it is not open */
    char path[512];
} bw_library;

/* Fails with BW_CODE_UNAVAILABLE. */
bw_status bw_library_open(const bw_library_query *query, bw_library *out);
void bw_library_close(bw_library *library); /* one that is not open is fine */

/* Puts the function into the pointer that `out` points to; NULL and BW_CODE_UNAVAILABLE where there is none. */
bw_status bw_library_symbol(const bw_library *library, const char *name, void *out);
