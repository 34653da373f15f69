/* Access patterns: units of an array at addresses that a pattern gives, each read or written once.
 *   strided_read   a(elements) -> checksum(segments): each element offset + stride i that there is, by `readers`
 *                  neighboring threads
 *   strided_write  -> b(elements): bw_pattern_value(i) there; what lies between stays as it was
 *   random_read    a(n granules), index(n) -> checksum(segments): granule index[i] for each i; index is a permutation
 *   random_write   index(n) -> b(n granules): bw_pattern_value(i) in all of granule index[i]
 * A checksum is that of 4096 bytes of units in the order of i: the wrapping sum of their 32-bit words (a unit of two
 * bytes counts as a word), as often as they are read. */
#pragma once

#include "ops/op.h"

#define BW_ACCESS_OPERATIONS(X)        \
    X(strided_read, KERNELS, KERNELS)  \
    X(strided_write, KERNELS, KERNELS) \
    X(random_read, KERNELS, KERNELS)   \
    X(random_write, KERNELS, KERNELS)

enum { BW_STRIDED_ELEMENTS, BW_STRIDED_STRIDE, BW_STRIDED_OFFSET, BW_STRIDED_READERS };
enum { BW_RANDOM_ARRAY_BYTES, BW_RANDOM_GRANULE_BYTES };
enum { BW_ACCESS_ARRAY, BW_ACCESS_CHECKSUM, BW_ACCESS_INDEX, BW_ACCESS_OPERANDS };
enum { BW_ACCESS_SEGMENT_BYTES = 4096 }; /* of units; the last segment may have fewer */

/* Unit i is unit_bytes long and begins at byte offset_bytes + step_bytes * i, of a random pattern * index[i]. */
typedef struct bw_access {
    int64_t units, unit_bytes, step_bytes, offset_bytes;
    int readers_shift; /* 2^readers_shift threads read each */
} bw_access;

static inline bw_access bw_access_strided(const bw_dims *dims, const bw_precision *precision) {
    const int64_t *value = dims->value, elem = bw_dtype_bytes(precision->activation, 1);
    const int64_t stride = value[BW_STRIDED_STRIDE], offset = value[BW_STRIDED_OFFSET];
    return (bw_access){bw_ceil_div(value[BW_STRIDED_ELEMENTS] - offset, stride), elem, stride * elem, offset * elem, 0};
}

static inline bw_access bw_access_shared(const bw_dims *dims, const bw_precision *precision) {
    bw_access made = bw_access_strided(dims, precision);
    while ((int64_t)1 << made.readers_shift < dims->value[BW_STRIDED_READERS]) made.readers_shift++;
    return made;
}

static inline bw_access bw_access_random(const bw_dims *dims, const bw_precision *precision) {
    (void)precision;
    const int64_t granule = dims->value[BW_RANDOM_GRANULE_BYTES];
    return (bw_access){bw_ceil_div(dims->value[BW_RANDOM_ARRAY_BYTES], granule), granule, granule, 0, 0};
}

/* A memory moves whole lines of `line_bytes`: those that the units touch. Lines that are written in part are read
 * first. Nothing here overflows: the parameters' ranges see to that. */
static inline void bw_access_add_lines(const bw_access *access, int64_t line_bytes, bool writes, bool random,
                                       bw_cost *cost) {
    const bool apart = random ? access->unit_bytes < line_bytes : access->step_bytes > line_bytes;
    const int64_t span = (access->units - 1) * access->step_bytes + access->unit_bytes;
    const int64_t lead = access->offset_bytes % line_bytes, useful = access->units * access->unit_bytes;
    const int64_t lines = apart ? access->units : bw_ceil_div(lead + span, line_bytes);
    const int64_t unused = lines * line_bytes - useful;
    if (writes) cost->algorithmic_bytes_written += unused;
    if (!writes) cost->algorithmic_bytes_read += unused;
    if (writes && (random ? apart : access->step_bytes > access->unit_bytes)) {
        cost->algorithmic_bytes_read += lines * line_bytes;
    }
    if (random) cost->algorithmic_bytes_read += 4 * access->units; /* the index */
    cost->footprint_bytes += random ? 4 * access->units : unused;
}
