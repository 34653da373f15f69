/* Finds functions of the driver through the runtime. */
#include <string.h>

#include "cuda/runtime/api.h"

bw_status bw_cuda_driver_function(bw_cuda_api *api, const char *name, unsigned version, void *out) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *symbol = NULL;
#ifdef BW_CUDA_HAS_VERSIONED_ENTRIES
    BW_TRY(BW_CUDA(api, driver_entry(name, &symbol, version, cudaEnableDefault, &found)));
#else
    (void)version;
    BW_TRY(BW_CUDA(api, driver_entry(name, &symbol, cudaEnableDefault, &found)));
#endif
    if (found != cudaDriverEntryPointSuccess) symbol = NULL;
    memcpy(out, &symbol, sizeof symbol);
    return BW_OK;
}
