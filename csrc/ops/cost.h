/* Helpers of the cost formulas. */
#pragma once

#include "base/checked.h"
#include "ops/op.h"

/* A cost whose variant stores nothing in between; fails when a sum overflowed. */
static inline bw_status bw_cost_set(const char *op_name, bw_checked_int read, bw_checked_int written,
                                    bw_checked_int flops, bw_cost *out) {
    bw_checked_int total = bw_add(read, written);
    if (total.overflow || flops.overflow) {
        return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: bytes or FLOPs pass 2^63", op_name);
    }
    *out = (bw_cost){read.value, written.value, flops.value, read.value, written.value, total.value};
    return BW_OK;
}

/* Adds intermediates that a variant writes once and reads once. */
static inline bw_status bw_cost_add_intermediates(bw_checked_int bytes, bw_cost *cost) {
    bw_checked_int read = bw_add(bw_num(cost->algorithmic_bytes_read), bytes);
    bw_checked_int written = bw_add(bw_num(cost->algorithmic_bytes_written), bytes);
    if (read.overflow || written.overflow) {
        return bw_fail(BW_CODE_INVALID, "these sizes overflow: the variant's intermediates pass 2^63 bytes");
    }
    cost->algorithmic_bytes_read = read.value;
    cost->algorithmic_bytes_written = written.value;
    return BW_OK;
}

/* elems of this type in bytes, as a checked value. */
static inline bw_checked_int bw_bytes_of(bw_dtype dtype, bw_checked_int elems) {
    int64_t bytes = elems.overflow ? -1 : bw_dtype_bytes(dtype, elems.value);
    bw_checked_int result = {bytes, bytes < 0};
    return result;
}
