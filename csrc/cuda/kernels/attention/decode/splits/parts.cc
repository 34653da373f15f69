// Sums over the parts that entries are divided into, for entries of equal and of different lengths.
#include "cuda/kernels/attention/decode/splits/splits.h"

int64_t bw_decode_parts(const bw_dims *dims, int64_t split_keys) {
    const int64_t *value = dims->value, batch = value[BW_DECODE_BATCH];
    int64_t parts = dims->list ? 0 : batch * bw_ceil_div(value[BW_DECODE_KV_LEN], split_keys);
    for (int64_t b = 0; dims->list && b < batch; b++) parts += bw_ceil_div(dims->list[b], split_keys);
    return parts;
}

double bw_decode_blocks(const bw_decode_plan &plan, const bw_dims *dims, int64_t split_keys) {
    return (double)bw_decode_parts(dims, split_keys) * (double)dims->value[BW_DECODE_NUM_KV_HEADS] *
           (double)plan.chunks;
}

double bw_decode_wide_products(const bw_decode_plan &plan) {
    return (plan.wide == 4 ? 9.2 : plan.wide == 2 ? 5.1 : 3.1) / plan.warps;
}

size_t bw_decode_mailbox_bytes(int padded, int64_t blocks) {
    return 16 + (size_t)(blocks * bw_ceil_div(bw_decode_units(padded), blocks) * bw_decode_unit_bytes);
}
