/* The specification of a case: an operation, its parameters, its precision, and the seed of its inputs. It knows no
 * device, no kernel and no memory. It never changes, so that any thread may read it. */
#pragma once

#include "ops/op.h"

typedef struct bw_case_spec {
    int op_index;
    const bw_op *op;
    const bw_precision *precision;
    bw_dims dims; /* its list is the copy below */
    uint64_t seed;
    bw_operand operands[BW_MAX_OPERANDS];
    int operand_count;
    int64_t list[];
} bw_case_spec;
