/* The list of operations; completes and checks a case's parameters. */
#include <inttypes.h>
#include <string.h>

#include "base/names.h"
#include "ops/list.h"
#include "ops/op.h"
#include "ops/operand.h"

#define BW_OP_EXTERN(name, cpu, cuda) extern const bw_op bw_op_##name;
BW_OPERATIONS(BW_OP_EXTERN)
#undef BW_OP_EXTERN

static const bw_op *const operations[] = {
#define BW_OP_ENTRY(name, cpu, cuda) &bw_op_##name,
    BW_OPERATIONS(BW_OP_ENTRY)
#undef BW_OP_ENTRY
};

int bw_op_count(void) {
    return (int)(sizeof operations / sizeof operations[0]);
}

const bw_op *bw_op_at(int index) {
    return operations[index];
}

static const char *op_name_at(const void *unused, int index) {
    (void)unused;
    return index < bw_op_count() ? operations[index]->name : NULL;
}

bw_status bw_op_find(const char *name, int *out) {
    char allowed[320];
    int index = bw_name_find(name, op_name_at, NULL, allowed, sizeof allowed);
    if (index < 0) return bw_fail(BW_CODE_INVALID, "unknown operation '%.200s': allowed are %s", name, allowed);
    *out = index;
    return BW_OK;
}

int bw_op_param_index(const bw_op *op, const char *name) {
    for (int i = 0; i < op->param_count; i++) {
        if (strcmp(op->params[i].name, name) == 0) return i;
    }
    return -1;
}

static const bw_param *param_from_list(const bw_op *op, bw_from_list what) {
    for (int i = 0; i < op->param_count; i++) {
        if (op->params[i].from_list == what) return &op->params[i];
    }
    return NULL;
}

static bw_status check_list_count(const bw_op *op, const bw_dims *dims) {
    if (!dims->list) return BW_OK;
    const bw_param *param = param_from_list(op, BW_FROM_COUNT);
    const int64_t count = dims->value[param - op->params];
    if (dims->list_count == count) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "%s has %" PRId64 " lengths: allowed is one per %s entry, %" PRId64, op->list,
                   dims->list_count, param->name, count);
}

static bw_status check_list(const bw_op *op, const bw_dims *dims, const bw_operand *operands, int count) {
    const bw_operand *list = NULL;
    for (int i = 0; i < count; i++) {
        if (operands[i].present && operands[i].recipe == BW_RECIPE_LIST) list = &operands[i];
    }
    if (!list) return BW_OK;
    for (int64_t i = 0; i < list->elems; i++) {
        if (dims->list[i] >= list->minimum && dims->list[i] <= list->maximum) continue;
        return bw_fail(BW_CODE_INVALID, "%s[%" PRId64 "] = %" PRId64 ": allowed is %" PRId64 " to %s = %" PRId64,
                       list->name, i, dims->list[i], list->minimum, param_from_list(op, BW_FROM_LARGEST)->name,
                       list->maximum);
    }
    return BW_OK;
}

static int64_t default_of(const bw_op *op, const bw_param *param, const bw_dims *dims) {
    int64_t largest = param->minimum;
    if (dims->list && param->from_list == BW_FROM_COUNT) return dims->list_count;
    if (dims->list && param->from_list == BW_FROM_LARGEST) {
        for (int64_t i = 0; i < dims->list_count; i++) largest = bw_max64(largest, dims->list[i]);
        return largest;
    }
    return param->fallback_from ? dims->value[bw_op_param_index(op, param->fallback_from)] : param->fallback;
}

static bw_status cost_of_operands(const bw_op *op, const bw_dims *dims, const bw_operand *operands, int count,
                                  bw_cost *out) {
    bw_checked_int read = bw_num(0), written = bw_num(0), flops = op->flops ? op->flops(dims) : bw_num(0);
    for (int i = 0; i < count; i++) {
        const bw_operand *operand = &operands[i];
        if (!operand->present || operand->moved < 0) continue;
        int64_t bytes = operand->moved ? bw_dtype_bytes(operand->dtype, operand->moved) : operand->bytes;
        bw_checked_int *sum = operand->role == BW_IN ? &read : &written;
        *sum = bw_add(*sum, bw_num(bytes));
    }
    bw_checked_int total = bw_add(read, written);
    if (total.overflow || flops.overflow) {
        return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: bytes or FLOPs pass 2^63", op->name);
    }
    *out = (bw_cost){read.value, written.value, flops.value, read.value, written.value, total.value};
    return BW_OK;
}

bw_status bw_op_cost(const bw_op *op, const bw_dims *dims, const bw_precision *precision, bw_cost *out) {
    bw_operand operands[BW_MAX_OPERANDS];
    int count;
    BW_TRY(bw_op_operands(op, dims, precision, operands, &count));
    return cost_of_operands(op, dims, operands, count, out);
}

bw_status bw_op_complete(const bw_op *op, const bw_precision *precision, unsigned present, bw_dims *dims) {
    if (!bw_precision_in(op->precisions, precision)) {
        return bw_fail(BW_CODE_UNSUPPORTED, "%s has no precision %s", op->name, precision->name);
    }
    dims->op = op;
    if (dims->list && !op->list) return bw_fail(BW_CODE_INVALID, "%s takes no list of lengths", op->name);
    for (int i = 0; i < op->param_count; i++) {
        const bw_param *param = &op->params[i];
        if (!(present & (1u << i))) dims->value[i] = default_of(op, param, dims);
        if (dims->value[i] >= param->minimum && dims->value[i] <= param->maximum) continue;
        return bw_fail(BW_CODE_INVALID, "%s: %s = %" PRId64 ": allowed is %" PRId64 " to %" PRId64, op->name,
                       param->name, dims->value[i], param->minimum, param->maximum);
    }
    if (op->settle) op->settle(dims);
    if (op->validate) BW_TRY(op->validate(dims));
    BW_TRY(check_list_count(op, dims)); /* operands count the keys of as many entries */
    bw_operand operands[BW_MAX_OPERANDS];
    int count;
    BW_TRY(bw_op_operands(op, dims, precision, operands, &count));
    BW_TRY(check_list(op, dims, operands, count));
    bw_cost unused;
    return cost_of_operands(op, dims, operands, count, &unused);
}

bw_status bw_op_operands(const bw_op *op, const bw_dims *dims, const bw_precision *precision,
                         bw_operand out[BW_MAX_OPERANDS], int *count) {
    *count = op->operands(dims, precision, out);
    return bw_operand_measure(op->name, out, *count);
}
