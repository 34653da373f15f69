/* Works out how many buffer sets make a case cold, and whether they fit. */
#include "measure/case/rotation.h"

#include <assert.h>
#include <inttypes.h>

enum {
    SETS_MAX = 2048,
    CACHE_FACTOR = 4,      /* a rotation touches, and a flush reads, this many times the cache */
    CACHE_FACTOR_LEAST = 2 /* with less than this the row is not called cold */
};

int64_t bw_bytes_needed(const bw_choice *choice, int64_t sets, int64_t flush_bytes) {
    bw_checked_int bytes =
        bw_add(bw_mul(bw_num(sets), bw_num(choice->layout.set_bytes)), bw_num(choice->workspace_bytes));
    bytes = bw_add(bytes, bw_num(flush_bytes));
    return bytes.overflow ? INT64_MAX : bytes.value;
}

bool bw_bytes_fit(int64_t needed_bytes, int64_t free_bytes) {
    return needed_bytes <= free_bytes - free_bytes / 32;
}

bw_status bw_bytes_refuse(const bw_case_spec *spec, int64_t needed_bytes, int64_t free_bytes) {
    return bw_fail(BW_CODE_MEMORY, "%s needs %" PRId64 " bytes (%.2f GB), free are %" PRId64 " (%.2f GB)",
                   spec->op->name, needed_bytes, (double)needed_bytes * 1e-9, free_bytes, (double)free_bytes * 1e-9);
}

/* Where memory or the number of sets ends the rotation early, a flush makes up for it. A case that is too small for
 * a full rotation keeps its many sets, so the flush costs it little; one whose sets are too large would be left with
 * few launches per replay, so that a rotation over at least twice the cache is preferred to it. */
static void rotate_cold(const bw_choice *choice, int64_t cache_bytes, int64_t usable_bytes, bw_rotation *out) {
    int64_t set_bytes = choice->layout.set_bytes, touched = bw_max64(1, choice->cost.footprint_bytes);
    int64_t wanted = bw_max64(1, bw_ceil_div(CACHE_FACTOR * cache_bytes, touched));
    int64_t most = bw_min64(wanted, SETS_MAX);
    /* Rotation may take half of what is free: the rest is left to other programs. */
    int64_t budget = usable_bytes / 2 - choice->workspace_bytes;
    assert(set_bytes > 0);
    out->sets = bw_max64(1, bw_min64(most, budget / set_bytes));
    if (cache_bytes <= 0) {
        out->note = "the cache's size is unknown: the inputs may be in it";
        return;
    }
    out->cold = out->sets >= bw_min64(wanted, bw_ceil_div(CACHE_FACTOR_LEAST * cache_bytes, touched));
    if (out->sets >= wanted) return;

    int64_t flush_bytes = CACHE_FACTOR * cache_bytes;
    int64_t sets = bw_max64(1, bw_min64(most, (budget - flush_bytes) / set_bytes));
    bool too_small = out->sets == SETS_MAX;
    if ((too_small || !out->cold) && bw_bytes_fit(bw_bytes_needed(choice, sets, flush_bytes), usable_bytes)) {
        out->sets = sets;
        out->flush_bytes = flush_bytes;
        out->cold = true;
        out->note = too_small ? "too small to rotate out of the cache: read flush before each sample"
                              : "memory allows no full rotation: read flush before each sample";
    } else {
        out->note = out->cold ? "memory allows a rotation over two to four times the cache only"
                              : "memory allows neither rotation nor a flush: the inputs may be in the cache";
    }
}

bw_rotation bw_rotation_of(const bw_choice *choice, bw_cache cache, int64_t cache_bytes, int64_t usable_bytes) {
    bw_rotation rotation = {.sets = 1, .note = ""};
    if (cache == BW_CACHE_COLD) rotate_cold(choice, cache_bytes, usable_bytes, &rotation);
    if (cache == BW_CACHE_FLUSHED) {
        rotation.flush_bytes = CACHE_FACTOR * cache_bytes;
        rotation.cold = rotation.flush_bytes > 0;
        rotation.note = rotation.cold ? "one set, flushed before each sample" : "the cache's size is unknown: no flush";
    }
    assert(rotation.sets >= 1 && rotation.flush_bytes >= 0);
    return rotation;
}

bw_rotation bw_rotation_of_call(int64_t sets, int64_t footprint_bytes, bw_cache cache, int64_t cache_bytes,
                                int64_t usable_bytes) {
    bw_rotation rotation = {.sets = cache == BW_CACHE_COLD ? sets : 1, .note = ""};
    if (cache != BW_CACHE_COLD) return rotation;
    if (cache_bytes <= 0) {
        rotation.note = "the cache's size is unknown: the inputs may be in it";
        return rotation;
    }
    int64_t wanted = CACHE_FACTOR * cache_bytes;
    rotation.cold = footprint_bytes >= bw_ceil_div(wanted, sets);
    if (rotation.cold) return rotation;
    rotation.cold = bw_bytes_fit(wanted, usable_bytes);
    if (rotation.cold) rotation.flush_bytes = wanted;
    rotation.note =
        rotation.cold ? "read flush before each call" : "memory allows no flush: the inputs may be in the cache";
    return rotation;
}
