/* What variants add to a cost. */
#pragma once

#include "base/checked.h"
#include "ops/op.h"

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
