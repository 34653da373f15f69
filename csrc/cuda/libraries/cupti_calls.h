/* The functions and records of CUPTI that cupti.c and cupti_trace.c use. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cuda/libraries/find.h"

/* The head of every kernel record since CUPTI 9; later versions append to it. Those of copies and memsets have their
 * timestamps in the same place, and the numbers of device, context and stream right behind them. */
typedef struct kernel_record {
    uint32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    uint32_t partitioned_requested, partitioned_executed;
    uint64_t start, end;
    union {
        struct {
            uint64_t completed;
            uint32_t device, context, stream;
        } kernel;
        struct {
            uint32_t device, context, stream;
        } copy;
    } of;
} kernel_record;

_Static_assert(offsetof(kernel_record, start) == 16 && offsetof(kernel_record, end) == 24 &&
                   offsetof(kernel_record, of.kernel.stream) == 48 && offsetof(kernel_record, of.copy.stream) == 40,
               "CUPTI's layout");

typedef void (*buffer_requested)(uint8_t **buffer, size_t *size, size_t *record_limit);
typedef void (*buffer_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);
typedef void (*callback)(void *user, int domain, uint32_t id, const void *data);

/* X(CUPTI's function, argument types); all return a CUptiResult. */
#define BW_CUPTI_CALLS(X)                                                   \
    X(cuptiGetVersion, (uint32_t *))                                        \
    X(cuptiGetResultString, (int, const char **))                           \
    X(cuptiSubscribe, (void **, callback, void *))                          \
    X(cuptiUnsubscribe, (void *))                                           \
    X(cuptiActivityRegisterCallbacks, (buffer_requested, buffer_completed)) \
    X(cuptiActivityEnable, (int))                                           \
    X(cuptiActivityDisable, (int))                                          \
    X(cuptiActivityFlushAll, (uint32_t))                                    \
    X(cuptiActivityGetNextRecord, (uint8_t *, size_t, kernel_record **))    \
    X(cuptiActivityGetNumDroppedRecords, (void *, uint32_t, size_t *))

struct bw_cupti {
    bw_library file;
    bw_status failure; /* why it cannot be used; NULL: it can, or was not opened yet */
#define BW_CUPTI_MEMBER(name, arguments) int(*name) arguments;
    BW_CUPTI_CALLS(BW_CUPTI_MEMBER)
#undef BW_CUPTI_MEMBER
};

#define BW_CUPTI(library, name, ...) bw_cupti_status((library), (library)->name(__VA_ARGS__), #name)
