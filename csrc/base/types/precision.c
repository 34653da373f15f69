/* The table of precisions, and finding one by its name. */
#include "base/types/precision.h"

#include "base/names.h"

static const bw_scaling scalings[BW_SCALING_COUNT] = {
#define BW_SCALING_ROW(id, type, rows, columns, zero, whole) {BW_##type, rows, columns, BW_##zero, BW_##whole},
    BW_SCALINGS(BW_SCALING_ROW)
#undef BW_SCALING_ROW
};

static const bw_precision table[BW_PRECISION_COUNT] = {
#define BW_PRECISION_ROW(id, name, activation, weight, cache, result, compute, a_scales, w_scales, c_scales, text) \
    [BW_PRECISION_##id] = {BW_PRECISION_##id,                                                                      \
                           name,                                                                                   \
                           BW_##activation,                                                                        \
                           BW_##weight,                                                                            \
                           BW_##cache,                                                                             \
                           BW_##result,                                                                            \
                           BW_##compute,                                                                           \
                           &scalings[BW_SCALING_##a_scales],                                                       \
                           &scalings[BW_SCALING_##w_scales],                                                       \
                           &scalings[BW_SCALING_##c_scales],                                                       \
                           text},
    BW_PRECISIONS(BW_PRECISION_ROW)
#undef BW_PRECISION_ROW
};

#define BW_PRECISION_SCALES(id, name, activation, weight, cache, result, compute, a_scales, w_scales, c_scales, text) \
    _Static_assert(BW_SCALING_##c_scales <= BW_SCALING_ROWS, #id ": caches have a scale for each row, or none");
BW_PRECISIONS(BW_PRECISION_SCALES)
#undef BW_PRECISION_SCALES

_Static_assert(BW_PRECISION_COUNT <= 32, "a mask of precisions has 32 bits");

const bw_precision *bw_precision_get(bw_precision_id id) {
    return &table[id];
}

static const char *name_at(const void *unused, int index) {
    (void)unused;
    return index < BW_PRECISION_COUNT ? table[index].name : NULL;
}

const bw_precision *bw_precision_of_activations(const bw_precision *precision) {
    return &table[precision->activation == BW_BF16 ? BW_PRECISION_BF16 : BW_PRECISION_FP16];
}

bw_status bw_precision_find(const char *name, const bw_precision **out) {
    char allowed[512];
    int index = bw_name_find(name, name_at, NULL, allowed, sizeof allowed);
    if (index < 0) return bw_fail(BW_CODE_INVALID, "unknown precision '%.200s': allowed are %s", name, allowed);
    *out = &table[index];
    return BW_OK;
}
