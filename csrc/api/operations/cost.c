/* Reads parameters by name, and computes the bytes and FLOPs of an operation. */
#include "api/operations/arguments.h"
#include "measure/case/choice.h"

enum { PARAMS_MOST = BW_MAX_PARAMS };

static bw_status read_dims(const bw_params *params, const bw_op *op, bw_dims *dims, unsigned *set) {
    for (int i = 0; i < params->count; i++) {
        BW_TRY(bw_api_need(params->names[i], "a parameter's name"));
        int index = bw_op_param_index(op, params->names[i]);
        if (index < 0) {
            return bw_fail(BW_CODE_INVALID, "%s has no parameter '%.100s': `bwprof operations` lists them", op->name,
                           params->names[i]);
        }
        if (*set & 1u << index) {
            return bw_fail(BW_CODE_INVALID, "%s: %s is given twice", op->name, params->names[i]);
        }
        dims->value[index] = params->values[i];
        *set |= 1u << index;
    }
    return BW_OK;
}

bw_status bw_params_read(const bw_params *params, bw_request *out) {
    unsigned set = 0;
    *out = (bw_request){.op = NULL};
    BW_TRY(bw_api_need(params->operation, "operation"));
    BW_TRY(bw_api_need(params->precision, "precision"));
    if (params->count < 0 || params->count > PARAMS_MOST) {
        return bw_fail(BW_CODE_INVALID, "count = %d: allowed is 0 to %d", params->count, PARAMS_MOST);
    }
    if (params->count) {
        BW_TRY(bw_api_need(params->names, "names"));
        BW_TRY(bw_api_need(params->values, "values"));
    }
    BW_TRY(bw_op_find(params->operation, &out->op_index));
    BW_TRY(bw_precision_find(params->precision, &out->precision));
    out->op = bw_op_at(out->op_index);
    BW_TRY(read_dims(params, out->op, &out->dims, &set));
    return bw_op_complete(out->op, out->precision, set, &out->dims);
}

static bw_status find_cost(const bw_params *params, bw_cost *out) {
    bw_request request;
    BW_TRY(bw_params_read(params, &request));
    return bw_cost_of(request.op, NULL, &request.dims, request.precision, NULL, out);
}

bwprof_status bw_params_compute_cost(const bw_params *params, uint64_t *bytes_read, uint64_t *bytes_written,
                                     uint64_t *flops) {
    bw_cost cost = {0};
    bw_status status = find_cost(params, &cost);
    if (bytes_read) *bytes_read = (uint64_t)cost.bytes_read;
    if (bytes_written) *bytes_written = (uint64_t)cost.bytes_written;
    if (flops) *flops = (uint64_t)cost.flops;
    return bw_api_answer(status);
}

bwprof_status bwprof_cost(const char *operation, const char *precision, const char *const *names, const int64_t *values,
                          int count, uint64_t *bytes_read, uint64_t *bytes_written, uint64_t *flops) {
    return bw_params_compute_cost(&(bw_params){operation, precision, names, values, count}, bytes_read, bytes_written,
                                  flops);
}
