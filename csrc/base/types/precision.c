/* The table of precisions, and finding one by its name. */
#include "base/types/precision.h"

#include "base/names.h"

static const bw_precision table[BW_PRECISION_COUNT] = {
#define BW_PRECISION_ROW(id, name, activation, weight, cache, result, compute, scale, text)           \
    [BW_PRECISION_##id] = {BW_PRECISION_##id, name,         BW_##activation, BW_##weight, BW_##cache, \
                           BW_##result,       BW_##compute, BW_##scale,      text},
    BW_PRECISIONS(BW_PRECISION_ROW)
#undef BW_PRECISION_ROW
};

_Static_assert(BW_PRECISION_COUNT <= 32, "a mask of precisions has 32 bits");

/* Operations count scales of activations, weights and caches alike. */
#define BW_MAY_HAVE_SCALES(type) (BW_##type == BW_NONE || BW_IS_NARROW_##type)
#define BW_PRECISION_SCALES(id, name, activation, weight, cache, result, compute, scale, text)                      \
    _Static_assert(BW_##scale == BW_NONE ||                                                                         \
                       (BW_MAY_HAVE_SCALES(activation) && BW_MAY_HAVE_SCALES(weight) && BW_MAY_HAVE_SCALES(cache)), \
                   #id ": with scales, activations, weights and caches must all be narrow");
BW_PRECISIONS(BW_PRECISION_SCALES)
#undef BW_PRECISION_SCALES
#undef BW_MAY_HAVE_SCALES

const bw_precision *bw_precision_get(bw_precision_id id) {
    return &table[id];
}

static const char *name_at(const void *unused, int index) {
    (void)unused;
    return index < BW_PRECISION_COUNT ? table[index].name : NULL;
}

bw_status bw_precision_find(const char *name, const bw_precision **out) {
    char allowed[256];
    int index = bw_name_find(name, name_at, NULL, allowed, sizeof allowed);
    if (index < 0) return bw_fail(BW_CODE_INVALID, "unknown precision '%.200s': allowed are %s", name, allowed);
    *out = &table[index];
    return BW_OK;
}
