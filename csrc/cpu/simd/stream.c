/* The four streams. One rung each: `vector`, all threads on contiguous shares of whole 4096-byte segments. */
#include "ops/stream.h"

#include "cpu/simd/copy.h"

enum { PATTERN_ELEMS = 64, PREFETCH_BYTES = 2048, TRIAD_BUFFER_BYTES = 1024 };

/* Whole segments for each rank, in bytes; the last share ends where the array does. */
BW_INLINE void share_bytes(int64_t bytes, int rank, int ranks, int64_t *first, int64_t *last) {
    bw_pool_share(bw_ceil_div(bytes, BW_STREAM_SEGMENT_BYTES), rank, ranks, first, last);
    *first *= BW_STREAM_SEGMENT_BYTES;
    *last = bw_min64(*last * BW_STREAM_SEGMENT_BYTES, bytes);
}

BW_INLINE int64_t stream_bytes(const bw_launch *launch) {
    return launch->dims->value[BW_STREAM_ELEMENTS] * bw_elem_bytes(launch->dtype);
}

static uint32_t segment_sum(const char *p) {
    bw_vu total[8] = {0};
    for (int i = 0; i < BW_STREAM_SEGMENT_BYTES; i += 8 * BW_SIMD_BYTES) {
        for (int line = 0; line < 8 * BW_SIMD_BYTES; line += 64) __builtin_prefetch(p + i + line + PREFETCH_BYTES);
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            bw_vu x;
            memcpy(&x, p + i + j * BW_SIMD_BYTES, sizeof x);
            total[j] += x;
        }
    }
    bw_vu all = ((total[0] + total[1]) + (total[2] + total[3])) + ((total[4] + total[5]) + (total[6] + total[7]));
    uint32_t sum = 0;
    for (int i = 0; i < BW_SIMD_FLOATS; i++) sum += all[i];
    return sum;
}

static void read_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    const char *a = launch->operand[BW_STREAM_READ_A];
    uint32_t *checksum = launch->operand[BW_STREAM_READ_CHECKSUM];
    int64_t first, last;
    share_bytes(stream_bytes(launch), rank, ranks, &first, &last);
    for (int64_t i = first; i < last; i += BW_STREAM_SEGMENT_BYTES) {
        char padded[BW_STREAM_SEGMENT_BYTES];
        const char *segment = a + i;
        if (last - i < BW_STREAM_SEGMENT_BYTES) {
            memset(padded, 0, sizeof padded);
            memcpy(padded, segment, (size_t)(last - i));
            segment = padded;
        }
        checksum[i / BW_STREAM_SEGMENT_BYTES] = segment_sum(segment);
    }
}

/* The pattern repeats every 64 elements, and a share starts on a multiple of that. */
BW_INLINE void write_pattern(bw_dtype dtype, char *to, int64_t bytes, bool past_caches) {
    float values[PATTERN_ELEMS];
    char pattern[4 * PATTERN_ELEMS];
    for (int i = 0; i < PATTERN_ELEMS; i++) values[i] = bw_pattern_value((uint64_t)i);
    for (int i = 0; i < PATTERN_ELEMS; i += BW_SIMD_FLOATS) bw_vf_store_as(dtype, pattern, i, bw_vf_load(values + i));
    const int64_t period = PATTERN_ELEMS * bw_elem_bytes(dtype);
    int64_t i = 0;
    for (; i + period <= bytes; i += period) {
        for (int64_t j = 0; j < period; j += BW_SIMD_BYTES) {
            bw_vf x = bw_vf_load((const float *)(pattern + j));
            if (past_caches) {
                bw_stream_vector(to + i + j, x);
            } else {
                bw_vf_store((float *)(to + i + j), x);
            }
        }
    }
    if (past_caches) bw_stream_fence();
    memcpy(to + i, pattern, (size_t)(bytes - i));
}

static void write_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    char *b = launch->operand[BW_STREAM_WRITE_B];
    int64_t bytes = stream_bytes(launch), first, last;
    bool past_caches = bw_writes_past_caches(bytes);
    share_bytes(bytes, rank, ranks, &first, &last);
    if (first >= last) return;
    BW_DTYPE_SWITCH(launch->dtype, write_pattern, b + first, last - first, past_caches);
}

static void copy_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    const char *a = launch->operand[BW_STREAM_COPY_A];
    char *b = launch->operand[BW_STREAM_COPY_B];
    int64_t bytes = stream_bytes(launch), first, last;
    bool past_caches = bw_writes_past_caches(bytes);
    share_bytes(bytes, rank, ranks, &first, &last);
    if (first < last) bw_copy_bytes(b + first, a + first, last - first, past_caches);
}

BW_INLINE bw_vf triad(bw_vf a, bw_vf b) {
    return a + bw_vf_set(BW_STREAM_TRIAD_FACTOR) * b; /* the product is exact */
}

/* By way of a buffer in the L1 cache: narrow results, too, then leave in whole vectors. */
BW_INLINE void triad_stretch(bw_dtype dtype, const bw_launch *launch, int64_t first, int64_t last, bool past_caches) {
    const void *a = launch->operand[BW_STREAM_TRIAD_A], *b = launch->operand[BW_STREAM_TRIAD_B];
    void *c = launch->operand[BW_STREAM_TRIAD_C];
    const int64_t step = TRIAD_BUFFER_BYTES / bw_elem_bytes(dtype);
    int64_t i = first;
    for (; past_caches && i + step <= last; i += step) {
        _Alignas(64) char buffer[TRIAD_BUFFER_BYTES];
        for (int64_t j = 0; j < step; j += BW_SIMD_FLOATS) {
            bw_vf sum = triad(bw_vf_load_as(dtype, a, i + j), bw_vf_load_as(dtype, b, i + j));
            bw_vf_store_as(dtype, buffer, j, sum);
        }
        for (int64_t j = 0; j < TRIAD_BUFFER_BYTES; j += BW_SIMD_BYTES) {
            bw_stream_vector((char *)bw_at_mutable(dtype, c, i) + j, bw_vf_load((const float *)(buffer + j)));
        }
    }
    if (past_caches) bw_stream_fence();
    for (; i < last; i += BW_SIMD_FLOATS) {
        bw_vf sum = triad(bw_vf_load_as_upto(dtype, a, i, last - i), bw_vf_load_as_upto(dtype, b, i, last - i));
        bw_vf_store_as_upto(dtype, c, i, sum, last - i);
    }
}

static void triad_share(void *context, int rank, int ranks) {
    const bw_launch *launch = context;
    int64_t bytes = stream_bytes(launch), elem = bw_elem_bytes(launch->dtype), first, last;
    bool past_caches = bw_writes_past_caches(bytes);
    share_bytes(bytes, rank, ranks, &first, &last);
    if (first >= last) return;
    BW_DTYPE_SWITCH(launch->dtype, triad_stretch, launch, first / elem, last / elem, past_caches);
}

#define PAST_CACHES "; 2 MiB and more are written past the caches (non-temporal), where the ISA can"

/* The launch and the table of stream_<stem>, whose threads run <stem>_share. */
#define BW_STREAM(stem, sentence)                                                                        \
    static bw_status stem##_launch(const bw_launch *launch) {                                            \
        bw_pool_run(launch->device->pool, stem##_share, (void *)(uintptr_t)launch);                      \
        return BW_OK;                                                                                    \
    }                                                                                                    \
    static const bw_variant stem##_rows[] = {                                                            \
        {.name = "vector", .text = sentence, .precisions = BW_CPU_PRECISIONS, .launch = stem##_launch}}; \
    extern const bw_variant_table BW_CPU_TABLE(stream_##stem);                                           \
    const bw_variant_table BW_CPU_TABLE(stream_##stem) = {stem##_rows, 1};

BW_STREAM(read, "vector sums of 4096-byte segments, contiguous shares")
BW_STREAM(write, "vector stores, contiguous shares" PAST_CACHES)
BW_STREAM(copy, "vector loads and stores, contiguous shares" PAST_CACHES)
BW_STREAM(triad, "vector arithmetic in fp32, contiguous shares" PAST_CACHES)
