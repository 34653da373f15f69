/* Operations with parameters by name, as callers give them: what is meant, its bytes and FLOPs. */
#include "api/operations/given.h"
#include "measure/case/choice.h"

enum { GIVEN_MOST = BW_MAX_PARAMS };

static bw_status read_dims(const bw_given *given, const bw_op *op, bw_dims *dims, unsigned *set) {
    for (int i = 0; i < given->count; i++) {
        BW_TRY(bw_api_need(given->names[i], "a parameter's name"));
        int index = bw_op_param_index(op, given->names[i]);
        if (index < 0) {
            return bw_fail(BW_CODE_INVALID, "%s has no parameter '%.100s': `bwprof operations` lists them", op->name,
                           given->names[i]);
        }
        if (*set & 1u << index) {
            return bw_fail(BW_CODE_INVALID, "%s: %s is given twice", op->name, given->names[i]);
        }
        dims->value[index] = given->values[i];
        *set |= 1u << index;
    }
    return BW_OK;
}

bw_status bw_given_read(const bw_given *given, bw_asked *out) {
    unsigned set = 0;
    *out = (bw_asked){.op = NULL};
    BW_TRY(bw_api_need(given->operation, "operation"));
    BW_TRY(bw_api_need(given->precision, "precision"));
    if (given->count < 0 || given->count > GIVEN_MOST) {
        return bw_fail(BW_CODE_INVALID, "count = %d: allowed is 0 to %d", given->count, GIVEN_MOST);
    }
    if (given->count) {
        BW_TRY(bw_api_need(given->names, "names"));
        BW_TRY(bw_api_need(given->values, "values"));
    }
    BW_TRY(bw_op_find(given->operation, &out->op_index));
    BW_TRY(bw_precision_find(given->precision, &out->precision));
    out->op = bw_op_at(out->op_index);
    BW_TRY(read_dims(given, out->op, &out->dims, &set));
    return bw_op_complete(out->op, out->precision, set, &out->dims);
}

static bw_status find_cost(const bw_given *given, bw_cost *out) {
    bw_asked asked;
    BW_TRY(bw_given_read(given, &asked));
    return bw_cost_of(asked.op, NULL, &asked.dims, asked.precision, NULL, out);
}

bwprof_status bw_given_cost(const bw_given *given, uint64_t *bytes_read, uint64_t *bytes_written, uint64_t *flops) {
    bw_cost cost = {0};
    bw_status status = find_cost(given, &cost);
    if (bytes_read) *bytes_read = (uint64_t)cost.bytes_read;
    if (bytes_written) *bytes_written = (uint64_t)cost.bytes_written;
    if (flops) *flops = (uint64_t)cost.flops;
    return bw_api_answer(status);
}

bwprof_status bwprof_cost(const char *operation, const char *precision, const char *const *names, const int64_t *values,
                          int count, uint64_t *bytes_read, uint64_t *bytes_written, uint64_t *flops) {
    return bw_given_cost(&(bw_given){operation, precision, names, values, count}, bytes_read, bytes_written, flops);
}
