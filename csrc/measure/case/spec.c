/* Creates the specification of a case from checked parameters. */
#include "measure/case/spec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bw_status bw_case_spec_create(int op_index, const bw_precision *precision, const bw_dims *dims, uint64_t seed,
                              const bw_case_spec **out) {
    size_t list_bytes = dims->list ? (size_t)dims->list_count * sizeof *dims->list : 0;
    bw_case_spec *self = calloc(1, sizeof *self + list_bytes);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for a case of %" PRId64 " lengths", dims->list_count);
    self->op_index = op_index;
    self->op = bw_op_at(op_index);
    self->precision = precision;
    self->dims = *dims;
    self->seed = seed;
    if (dims->list) self->dims.list = memcpy(self->list, dims->list, list_bytes);
    bw_status status = bw_op_operands(self->op, &self->dims, precision, self->operands, &self->operand_count);
    if (status) {
        bw_case_spec_free(self);
        return status;
    }
    *out = self;
    return BW_OK;
}

void bw_case_spec_free(const bw_case_spec *self) {
    free((void *)self);
}
