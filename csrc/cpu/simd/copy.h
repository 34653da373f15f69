/* Copies bytes, past the caches where blocks are large. */
#pragma once

#include "cpu/device.h"
#include "cpu/simd/simd.h"

/* An ordinary store first reads the line that it overwrites (write-allocate: a copy then moves 1.5 times its bytes).
 * A destination larger than a core's own caches is written past them instead, where the instruction set can. The
 * last-level cache does not count: it is shared with others, and measured cold, which is the rule, its lines are stale
 * whatever their number. */
enum { BW_LARGE_BYTES = 2 << 20 };

enum {
    BW_LINE_BYTES = 64,
    BW_PAGE_BYTES = 4096,
    BW_LINEAR_AHEAD = 2048, /* bytes that a linear walk asks for what it will need */
    BW_COPY_WINDOW = 4 * BW_PAGE_BYTES
};

/* Decides device->walks; does nothing when they are known. Takes some 50 ms, and memory for that long. */
void BW_CPU_NAME(walks_choose)(bw_device *device);

BW_INLINE bool bw_is_large(int64_t bytes) {
    return bytes >= BW_LARGE_BYTES;
}

BW_INLINE void bw_copy_line(char *to, const char *from) {
    bw_vf x[BW_LINE_BYTES / BW_SIMD_BYTES];
#pragma GCC unroll 4
    for (int i = 0; i < BW_LINE_BYTES / BW_SIMD_BYTES; i++) {
        x[i] = bw_vf_load((const float *)(from + i * BW_SIMD_BYTES));
    }
#pragma GCC unroll 4
    for (int i = 0; i < BW_LINE_BYTES / BW_SIMD_BYTES; i++) bw_stream_vector(to + i * BW_SIMD_BYTES, x[i]);
}

/* One line of each page of a window in turn, and `ahead` bytes further on what comes after it. */
BW_INLINE void bw_copy_window(char *to, const char *from, int64_t ahead) {
    for (int64_t line = 0; line < BW_PAGE_BYTES; line += BW_LINE_BYTES) {
#pragma GCC unroll 4
        for (int64_t page = 0; page < BW_COPY_WINDOW; page += BW_PAGE_BYTES) {
            __builtin_prefetch(from + page + line + ahead);
            bw_copy_line(to + page + line, from + page + line);
        }
    }
}

/* A large copy's stores are not ordered with others until a bw_stream_fence, which is the caller's. */
BW_INLINE void bw_copy_bytes(char *to, const char *from, int64_t bytes, bool large, bw_walk walk) {
    int64_t i = (int64_t)(-(uintptr_t)to % BW_LINE_BYTES);
    if (!large || bytes < i + BW_LINE_BYTES) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    memcpy(to, from, (size_t)i);
    if (walk == BW_WALK_PAGES) {
        for (; i + BW_COPY_WINDOW <= bytes; i += BW_COPY_WINDOW) {
            bw_copy_window(to + i, from + i, i + 2 * BW_COPY_WINDOW <= bytes ? BW_COPY_WINDOW : 0);
        }
    }
    for (; BW_SIMD_STREAMS && i + BW_LINE_BYTES <= bytes; i += BW_LINE_BYTES) {
        __builtin_prefetch(from + bw_min64(i + BW_LINEAR_AHEAD, bytes - 1));
        bw_copy_line(to + i, from + i);
    }
    memcpy(to + i, from + i, (size_t)(bytes - i));
}
