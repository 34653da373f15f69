/* Calls the driver, where the runtime has no function of its own. Nothing of it is linked. */
#include <dlfcn.h>
#include <string.h>

#include "cuda/runtime/api.h"

/* The driver stays: closing only gives back what opening took. */
void bw_cuda_driver_function(const char *name, void *out) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver ? dlsym(driver, name) : NULL;
    if (driver) dlclose(driver);
    memcpy(out, &symbol, sizeof symbol);
}

bw_status bw_cuda_context(void **out) {
    int (*current)(void **);
    bw_cuda_driver_function("cuCtxGetCurrent", &current);
    int error = current ? current(out) : -1;
    if (error == 0 && *out) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE, "the driver tells no current context (cuCtxGetCurrent: %d)", error);
}

bool bw_cuda_is_in_use(int index) {
    int (*state)(int, unsigned *, int *);
    unsigned flags;
    int active = 1;
    bw_cuda_driver_function("cuDevicePrimaryCtxGetState", &state);
    return !state || state(index, &flags, &active) != 0 || active;
}

bool bw_cuda_leave(void) {
    int (*set)(void *);
    bw_cuda_driver_function("cuCtxSetCurrent", &set);
    return set && set(NULL) == 0;
}
