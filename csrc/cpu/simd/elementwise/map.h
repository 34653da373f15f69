/* The walk of element-wise work: one or two arrays in, one out, all of a type. Results of large arrays leave in whole
 * lines, past the caches. */
#pragma once

#include "cpu/simd/copy.h"

/* Elements [first, last), whole pages of them but for the arrays' end, one rank's share or a part of it; behind it, up
 * to `end`, what may be asked for in advance. */
typedef struct bw_map {
    const void *a, *b; /* b NULL: there is one */
    void *out;
    bw_walk walk;
    bool large;
    int64_t first, last, end;
    const void *context; /* the function's own */
} bw_map;

/* A vector of results: elements from i on. */
typedef bw_vf bw_map_function(bw_dtype dtype, const bw_map *map, int64_t i, bw_vf a, bw_vf b);

/* To a cache, 3 being the nearest; a macro, as it must be a constant. */
#define BW_MAP_PREFETCH(dtype, inputs, map, i, cache)                              \
    do {                                                                           \
        __builtin_prefetch(bw_at(dtype, (map)->a, i), 0, cache);                   \
        if ((inputs) > 1) __builtin_prefetch(bw_at(dtype, (map)->b, i), 0, cache); \
    } while (0)

BW_INLINE bw_vf bw_map_vector(bw_dtype dtype, int inputs, bw_map_function *function, const bw_map *map, int64_t i,
                              int64_t left) {
    const bw_vf a = bw_vf_load_as_upto(dtype, map->a, i, left);
    return function(dtype, map, i, a, inputs > 1 ? bw_vf_load_as_upto(dtype, map->b, i, left) : a);
}

/* A line of results: narrow ones, too, leave in whole vectors. */
BW_INLINE void bw_map_line(bw_dtype dtype, int inputs, bw_map_function *function, const bw_map *map, int64_t i) {
    const int64_t per_vector = BW_SIMD_BYTES / bw_elem_bytes(dtype);
#pragma GCC unroll 4
    for (int64_t end = i + BW_LINE_BYTES / bw_elem_bytes(dtype); i < end; i += per_vector) {
        bw_vf x = bw_map_vector(dtype, inputs, function, map, i, BW_SIMD_FLOATS);
        if (dtype != BW_FP32) {
            const bw_vf y = bw_map_vector(dtype, inputs, function, map, i + BW_SIMD_FLOATS, BW_SIMD_FLOATS);
            x = dtype == BW_FP16 ? bw_vh_join(bw_vf_to_fp16(x), bw_vf_to_fp16(y))
                                 : bw_vh_join(bw_vf_to_bf16(x), bw_vf_to_bf16(y));
        }
        bw_stream_vector(bw_at_mutable(dtype, map->out, i), x);
    }
}

/* What is written past the caches is not ordered with other stores until a bw_stream_fence, which is the caller's. */
BW_INLINE void bw_map_walk(bw_dtype dtype, int inputs, bw_map_function *function, const bw_map *map) {
    const int64_t elem = bw_elem_bytes(dtype), line = BW_LINE_BYTES / elem, page = BW_PAGE_BYTES / elem;
    const int64_t window = BW_COPY_WINDOW / elem, ahead = BW_LINEAR_AHEAD / elem, last = map->last;
    const bool large = map->large, pages = large && map->walk == BW_WALK_PAGES;
    int64_t i = map->first;
    for (; pages && i + window <= last; i += window) {
        const int64_t next = i + 2 * window <= map->end ? window : 0;
        for (int64_t at = i; at < i + page; at += line) {
#pragma GCC unroll 4
            for (int64_t j = at; j < at + window; j += page) {
                BW_MAP_PREFETCH(dtype, inputs, map, j + next, 3);
                bw_map_line(dtype, inputs, function, map, j);
            }
        }
    }
    for (; large && i + line <= last; i += line) {
        const int64_t later = bw_min64(i + ahead, map->end - 1);
        BW_MAP_PREFETCH(dtype, inputs, map, later, 2);
        bw_map_line(dtype, inputs, function, map, i);
    }
    for (; i < last; i += BW_SIMD_FLOATS) {
        bw_vf_store_as_upto(dtype, map->out, i, bw_map_vector(dtype, inputs, function, map, i, last - i), last - i);
    }
}
