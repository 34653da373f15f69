#include <inttypes.h>
#include <string.h>

#include "ops/list.h"
#include "ops/op.h"

#define BW_OP_EXTERN(name) extern const bw_op bw_op_##name;
BW_OPERATIONS(BW_OP_EXTERN)
#undef BW_OP_EXTERN

static const bw_op *const operations[] = {
#define BW_OP_ENTRY(name) &bw_op_##name,
    BW_OPERATIONS(BW_OP_ENTRY)
#undef BW_OP_ENTRY
};

int bw_op_count(void) {
    return (int)(sizeof operations / sizeof operations[0]);
}

const bw_op *bw_op_at(int index) {
    return operations[index];
}

bw_status bw_op_find(const char *name, int *out) {
    char allowed[512] = "";
    for (int i = 0; i < bw_op_count(); i++) {
        if (strcmp(operations[i]->name, name) == 0) {
            *out = i;
            return BW_OK;
        }
        if (i) strncat(allowed, ", ", sizeof allowed - strlen(allowed) - 1);
        strncat(allowed, operations[i]->name, sizeof allowed - strlen(allowed) - 1);
    }
    return bw_fail(BW_CODE_INVALID, "unknown operation '%s': allowed are %s", name, allowed);
}

int bw_op_param_index(const bw_op *op, const char *name) {
    for (int i = 0; i < op->param_count; i++) {
        if (strcmp(op->params[i].name, name) == 0) return i;
    }
    return -1;
}

static bw_status check_kv_lens(const bw_op *op, const bw_dims *dims) {
    if (!dims->kv_lens) return BW_OK;
    if (!op->takes_kv_lens) {
        return bw_fail(BW_CODE_INVALID, "%s takes no kv_lens: all its sequences are kv_len long", op->name);
    }
    int64_t batch = dims->value[bw_op_param_index(op, "batch")];
    int64_t longest = dims->value[bw_op_param_index(op, "kv_len")];
    if (dims->kv_lens_count != batch) {
        return bw_fail(BW_CODE_INVALID, "kv_lens has %" PRId64 " lengths: allowed is one per batch entry, %" PRId64,
                       dims->kv_lens_count, batch);
    }
    for (int64_t b = 0; b < batch; b++) {
        if (dims->kv_lens[b] >= 1 && dims->kv_lens[b] <= longest) continue;
        return bw_fail(BW_CODE_INVALID, "kv_lens[%" PRId64 "] = %" PRId64 ": allowed is 1 to kv_len = %" PRId64, b,
                       dims->kv_lens[b], longest);
    }
    return BW_OK;
}

bw_status bw_op_complete(const bw_op *op, const bw_precision *precision, unsigned given, bw_dims *dims) {
    if (!bw_precision_in(op->precisions, precision)) {
        return bw_fail(BW_CODE_UNSUPPORTED, "%s has no precision %s", op->name, precision->name);
    }
    for (int i = 0; i < op->param_count; i++) {
        const bw_param *param = &op->params[i];
        if (!(given & (1u << i))) {
            dims->value[i] =
                param->fallback_from ? dims->value[bw_op_param_index(op, param->fallback_from)] : param->fallback;
        }
        if (dims->value[i] >= param->minimum && dims->value[i] <= param->maximum) continue;
        return bw_fail(BW_CODE_INVALID, "%s: %s = %" PRId64 ": allowed is %" PRId64 " to %" PRId64, op->name,
                       param->name, dims->value[i], param->minimum, param->maximum);
    }
    BW_TRY(check_kv_lens(op, dims));
    if (op->validate) BW_TRY(op->validate(dims, precision));
    bw_operand operands[BW_MAX_OPERANDS];
    int count;
    BW_TRY(bw_op_operands(op, dims, precision, operands, &count));
    bw_cost cost;
    return op->cost(dims, precision, &cost);
}

bw_status bw_op_operands(const bw_op *op, const bw_dims *dims, const bw_precision *precision,
                         bw_operand out[BW_MAX_OPERANDS], int *count) {
    *count = op->operands(dims, precision, out);
    bw_checked total = bw_num(0);
    for (int i = 0; i < *count; i++) {
        bw_checked elems = bw_num(1);
        for (int axis = 0; axis < out[i].rank; axis++) elems = bw_mul(elems, bw_num(out[i].shape[axis]));
        int64_t bytes = elems.overflow ? -1 : bw_dtype_bytes(out[i].dtype, elems.value);
        total = bw_add(total, bw_num(bytes));
        if (bytes < 0 || total.overflow) {
            return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: operand %s would be larger than 2^63 bytes",
                           op->name, out[i].name);
        }
        out[i].elems = elems.value;
        out[i].bytes = bytes;
    }
    return BW_OK;
}
