/* How cold inputs are made: by a rotation over buffer sets or by a flush. This is arithmetic alone. */
#pragma once

#include "measure/case/choice.h"

/* FLUSHED: one set, driven out of the cache before every sample, a single launch. Cold, but each sample's writes stay
 * behind for the flush: rotation is better wherever there is memory for it. */
typedef enum bw_cache { BW_CACHE_COLD, BW_CACHE_HOT, BW_CACHE_FLUSHED } bw_cache;

typedef struct bw_rotation {
    int64_t sets;
    int64_t flush_bytes; /* read before each replay because the sets alone do not drive the inputs out; 0 = none */
    bool cold;           /* false for a hot case, and where memory allows neither rotation nor flush */
    const char *note;    /* static text; "" = plain rotation */
} bw_rotation;

/* The note of a cold rotation that has no other, where the device's cache_measured is set. */
#define BW_ROTATION_MEASURED "the cache counts as what the threads were measured to hold, less than is reported"

/* Of a choice's sets, on a device with this cache, where so many bytes can be had. */
bw_rotation bw_rotation_of(const bw_choice *choice, bw_cache cache, int64_t cache_bytes, int64_t usable_bytes);

/* The rotation of a caller's function with `sets` sets of its own and so many bytes in each (0: not known). */
bw_rotation bw_rotation_of_call(int64_t sets, int64_t footprint_bytes, bw_cache cache, int64_t cache_bytes,
                                int64_t usable_bytes);

/* Of so many sets, the workspace and a flush; INT64_MAX when that overflows. */
int64_t bw_bytes_needed(const bw_choice *choice, int64_t sets, int64_t flush_bytes);

/* The last bytes of a device belong to its driver or operating system. */
bool bw_bytes_fit(int64_t needed_bytes, int64_t free_bytes);
bw_status bw_bytes_refuse(const bw_case_spec *spec, int64_t needed_bytes, int64_t free_bytes);
