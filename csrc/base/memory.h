/* Arrays on the heap that grow. */
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"

/* Room for `count` elements in *memory, which stays as it is on failure; `what` they are is for the message. */
static inline bw_status bw_resize(void **memory, int64_t count, size_t size, const char *what) {
    void *larger = realloc(*memory, (size_t)count * size);
    if (!larger) return bw_fail(BW_CODE_MEMORY, "no host memory for %lld %s", (long long)count, what);
    *memory = larger;
    return BW_OK;
}
