/* A tool that watches by NVTX, as nsys and ncu do: NVTX_INJECTION64_PATH names it, and it writes what it is told into
 * the file that BWPROF_NVTX_LOG names, a line each. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;
static _Atomic unsigned long long ranges;

static nvtxDomainHandle_t NVTX_API domain_create(const char *name) {
    static int any;
    fprintf(file, "domain %s\n", name);
    return (nvtxDomainHandle_t)&any;
}

static void NVTX_API domain_destroy(nvtxDomainHandle_t domain) {
    (void)domain;
    fprintf(file, "destroy\n");
    fflush(file);
}

static void NVTX_API name_category(nvtxDomainHandle_t domain, uint32_t number, const char *name) {
    (void)domain;
    fprintf(file, "category %u %s\n", (unsigned)number, name);
}

/* A line is one thread's from its first letter to its end. */
static void record(const char *what, const nvtxEventAttributes_t *event) {
    flockfile(file);
    fprintf(file, "%s %s category %u", what, event->message.ascii, (unsigned)event->category);
    if (event->payloadType == NVTX_PAYLOAD_TYPE_INT64) fprintf(file, " bytes %lld", (long long)event->payload.llValue);
    fputc('\n', file);
    fflush(file);
    funlockfile(file);
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    (void)domain;
    record("push", event);
    return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain) {
    (void)domain;
    fprintf(file, "pop\n");
    fflush(file);
    return 0;
}

static nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    (void)domain;
    record("start", event);
    return ++ranges;
}

static void NVTX_API end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
    (void)domain;
    fprintf(file, "end %llu\n", (unsigned long long)range);
    fflush(file);
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    const char *path = getenv("BWPROF_NVTX_LOG");
    file = path ? fopen(path, "a") : NULL;
    if (!file || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
    *table[NVTX_CBID_CORE2_DomainDestroy] = (NvtxFunctionPointer)domain_destroy;
    *table[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    *table[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)start;
    *table[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end;
    return 1;
}
