/* Moving bytes, and when to do so past the caches. */
#ifndef BW_CPU_SIMD_COPY_H
#define BW_CPU_SIMD_COPY_H

#include "cpu/device.h"
#include "cpu/simd/simd.h"

/* An ordinary store first reads the line that it overwrites (write-allocate: a copy then moves 1.5 times its bytes).
 * A destination larger than a core's own caches is written past them instead. The last-level cache does not count:
 * it is shared with others, and measured cold, which is the rule, its lines are stale whatever their number. */
enum { BW_PAST_CACHES_BYTES = 2 << 20 };

BW_INLINE bool bw_writes_past_caches(int64_t bytes) {
    return BW_SIMD_STREAMS && bytes >= BW_PAST_CACHES_BYTES;
}

/* Ends with a fence where it wrote past the caches. */
BW_INLINE void bw_copy_bytes(char *to, const char *from, int64_t bytes, bool past_caches) {
    int64_t head = (int64_t)(-(uintptr_t)to % BW_SIMD_BYTES);
    if (!past_caches || bytes < head + 4 * BW_SIMD_BYTES) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    memcpy(to, from, (size_t)head);
    int64_t i = head;
    for (; i + 4 * BW_SIMD_BYTES <= bytes; i += 4 * BW_SIMD_BYTES) {
        bw_vf x[4];
        for (int j = 0; j < 4; j++) x[j] = bw_vf_load((const float *)(from + i + j * BW_SIMD_BYTES));
        for (int j = 0; j < 4; j++) bw_stream_vector(to + i + j * BW_SIMD_BYTES, x[j]);
    }
    bw_stream_fence();
    memcpy(to + i, from + i, (size_t)(bytes - i));
}

#endif
