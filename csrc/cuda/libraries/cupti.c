/* Opens CUPTI for a device, explains its failures, and refuses it beside other tools. */
#include "cuda/libraries/cupti.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/libraries/cupti_calls.h"
#include "cuda/runtime/attachments.h"

static const struct {
    int code;
    const char *advice;
} advices[] = {
    {15, "the driver is older than this CUPTI, or the GPU was not initialized: update the driver"},
    {23, "another profiler holds CUPTI in this process: run without it"},
    {26,
     "another process uses the GPU's performance monitors (DCGM, ncu, nsys): stop it, or `dcgmi profiling --pause`"},
    {27, "this GPU or platform does not support it"},
    {33, "not supported on a virtual GPU"},
    {35,
     "performance counters are for administrators here: run as root or with CAP_SYS_ADMIN, or have the host load the "
     "driver with NVreg_RestrictProfilingToAdminUsers=0"},
    {39,
     "another CUPTI user is active in this process (a framework's profiler, nsys, ncu, compute-sanitizer, "
     "cuda-gdb): run without it"},
    {40, "the hypervisor forbids profiling on this virtual GPU: ask its administrator to allow it"},
    {41, "not supported while confidential computing is on"},
    {42, "not supported on a mining card (CMP)"},
    {43, "not supported on a MIG instance"},
    {44, "not supported on GPUs joined by SLI"},
    {45, "not supported under WSL"},
    {46, "this CUPTI does not know the GPU's chip: install a newer one"},
};

bw_status bw_cupti_status(const bw_cupti *library, int result, const char *call) {
    if (result == 0) return BW_OK;
    const char *name = NULL, *advice = "";
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
        if (advices[i].code == result) advice = advices[i].advice;
    }
    if (library->cuptiGetResultString(result, &name) != 0 || !name) name = "unknown error";
    return bw_fail(BW_CODE_UNAVAILABLE, "%s failed: %s (%d)%s%s", call, name, result, advice[0] ? "; " : "", advice);
}

/* Libraries that ncu, nsys, compute-sanitizer and cuda-gdb bring into the process. */
static int tool_object(struct dl_phdr_info *info, size_t size, void *data) {
    static const char *const parts[] = {"sanitizer-collection", "ToolsInjection", "InterceptorInjection",
                                        "TreeLauncher",         "cudadebugger",   "libcuda-injection"};
    (void)size;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof parts / sizeof parts[0]; i++) {
        if (!strstr(slash, parts[i])) continue;
        *(const char **)data = parts[i];
        return 1;
    }
    return 0;
}

static bool under_debugger(void) {
    char line[256], path[64];
    long tracer = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "TracerPid: %ld", &tracer) == 1) break;
    }
    if (file) fclose(file);
    if (tracer <= 0) return false;
    snprintf(path, sizeof path, "/proc/%ld/comm", tracer);
    file = fopen(path, "r");
    bool found = file && fgets(line, sizeof line, file) && strstr(line, "cuda-gdb");
    if (file) fclose(file);
    return found;
}

/* CUPTI serves one tool at a time, and some of them crash a process that uses it under them: ask before opening it. */
static bw_status refuse_other_tools(void) {
    const char *library = NULL, *injected = getenv("CUDA_INJECTION64_PATH");
    dl_iterate_phdr(tool_object, &library);
    if (!library && !(injected && injected[0]) && !under_debugger()) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "this process runs under another profiler or debugger (%s): CUPTI serves one at a time, run without "
                   "it",
                   library                   ? library
                   : injected && injected[0] ? "CUDA_INJECTION64_PATH is set"
                                             : "cuda-gdb");
}

static const bw_library_query library_query = {
    .title = "CUPTI",
    .stem = "libcupti.so",
    .sonames = (const char *const[]){"libcupti.so.13", "libcupti.so.12", NULL},
    .wheel_folders = (const char *const[]){"nvidia/cu1[0-9]/lib", "nvidia/cuda_cupti/lib", NULL},
    .toolkit_folders = (const char *const[]){"extras/CUPTI/lib64", "lib64", "targets/*/lib", "lib", NULL},
    .advice = "install it with `pip install nvidia-cuda-cupti`, or set CUDA_HOME",
    .test_variable = "BWPROF_TEST_CUPTI",
};

bw_status bw_cupti_symbol(const bw_cupti *library, const char *name, void *out) {
    return bw_library_symbol(&library->file, name, out);
}

static bw_status open_library(bw_cupti *library) {
    BW_TRY(refuse_other_tools());
    BW_TRY(bw_library_open(&library_query, &library->file));
    /* It hooks into the driver and starts threads: once in the process it stays, whoever closes it. */
    void *pinned = dlopen(library->file.path, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    if (pinned) dlclose(pinned);
#define CUPTI_SYMBOL(name, arguments) BW_TRY(bw_cupti_symbol(library, #name, &library->name));
    BW_CUPTI_CALLS(CUPTI_SYMBOL)
#undef CUPTI_SYMBOL
    return BW_OK;
}

static void close_library(bw_device *device, void *state) {
    bw_cupti *library = state;
    (void)device;
    bw_library_close(&library->file);
    bw_status_free(library->failure);
}

static const bw_cuda_part cupti_part = {.state_bytes = sizeof(bw_cupti), .close = close_library};

bw_status bw_cupti_get(bw_device *device, bw_cupti **out) {
    void *state = NULL;
    BW_TRY(bw_cuda_attach(device, &cupti_part, &state));
    bw_cupti *library = state;
    if (!library->file.handle && !library->failure) library->failure = open_library(library);
    if (library->failure) return bw_fail(bw_status_code(library->failure), "%s", bw_status_message(library->failure));
    *out = library;
    return BW_OK;
}

bw_status bw_cupti_describe(bw_device *device, bw_library_info *out) {
    bw_cupti *library = NULL;
    uint32_t version = 0;
    BW_TRY(bw_cupti_get(device, &library));
    snprintf(out->path, sizeof out->path, "%s", library->file.path);
    BW_TRY(BW_CUPTI(library, cuptiGetVersion, &version));
    /* 130000 = 13.0; before CUDA 13 a number that grew with every change of the interface. */
    if (version >= 10000) {
        snprintf(out->version, sizeof out->version, "%u.%u", version / 10000, version / 100 % 100);
    } else {
        snprintf(out->version, sizeof out->version, "API %u", version);
    }
    return BW_OK;
}
