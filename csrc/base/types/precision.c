#include "base/types/precision.h"

#include <string.h>

static const bw_precision table[BW_PRECISION_COUNT] = {
#define BW_PRECISION_ROW(id, name, activation, weight, cache, result, compute, scale, text)           \
    [BW_PRECISION_##id] = {BW_PRECISION_##id, name,         BW_##activation, BW_##weight, BW_##cache, \
                           BW_##result,       BW_##compute, BW_##scale,      text},
    BW_PRECISIONS(BW_PRECISION_ROW)
#undef BW_PRECISION_ROW
};

const bw_precision *bw_precision_get(bw_precision_id id) {
    return &table[id];
}

bw_status bw_precision_find(const char *name, const bw_precision **out) {
    char allowed[256] = "";
    for (int i = 0; i < BW_PRECISION_COUNT; i++) {
        if (strcmp(table[i].name, name) == 0) {
            *out = &table[i];
            return BW_OK;
        }
        if (i) strncat(allowed, ", ", sizeof allowed - strlen(allowed) - 1);
        strncat(allowed, table[i].name, sizeof allowed - strlen(allowed) - 1);
    }
    return bw_fail(BW_CODE_INVALID, "unknown precision '%s': allowed are %s", name, allowed);
}
