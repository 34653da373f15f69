/* What every program here stands on: a check that ends it, csrc/cuda's call table without a driver, the fake library.
 */
#ifndef TOY_H
#define TOY_H

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/libraries/cupti.h"
#include "cuda/runtime/attachments.h"
#include "cuda/runtime/calls.h"
#include "fake_cupti.h"

/* In the order of bw_cuda_timers. */
enum { TIMER_GRAPH, TIMER_EVENTS, TIMER_CUPTI, TIMERS };

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

cudaError_t bw_cuda_take_injected_fault(bw_cuda_api *api) {
    api->calls_made++;
    if (api->fault_countdown <= 0) return cudaSuccess;
    return --api->fault_countdown == 0 ? api->fault : cudaSuccess;
}

bw_status bw_cuda_status(bw_cuda_api *api, cudaError_t error, const char *expression, const char *file, int line) {
    (void)api, (void)file, (void)line;
    return error == cudaSuccess ? BW_OK : bw_fail(BW_CODE_DEVICE, "%s failed", expression);
}

/* The books of the fake library that a variable names: what `function` of it gives. */
static void *open_books(const char *variable, const char *function) {
    void *library = dlopen(getenv(variable), RTLD_NOW);
    void *symbol = library ? dlsym(library, function) : NULL;
    void *(*books)(void);
    memcpy(&books, &symbol, sizeof symbol);
    return symbol ? books() : NULL;
}

#endif
