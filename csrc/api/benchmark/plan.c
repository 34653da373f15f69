/* Lists the cases of a suite, in the same order as bwprof.runs.plan. */
#include <string.h>

#include "api/benchmark/benchmark.h"
#include "base/names.h"
#include "suite_table.h" /* by setup.py */

static const char *suite_at(const void *backend, int index) {
    if (index == sizeof bw_suites / sizeof bw_suites[0]) return NULL;
    return strcmp(bw_suites[index].backend, backend) == 0 ? bw_suites[index].name : "";
}

bw_status bw_suite_find(const char *name, const bw_backend *backend, const bw_suite **out, int *count) {
    char allowed[256];
    bw_planned_case one = {.entry = NULL};
    int index = bw_name_find(name ? name : "default", suite_at, backend->name, allowed, sizeof allowed);
    if (index < 0) return bw_fail(BW_CODE_INVALID, "unknown suite '%.200s': allowed are %s", name, allowed);
    *out = &bw_suites[index];
    *count = -1;
    do {
        BW_TRY(bw_planned_case_next(*out, &one));
        ++*count;
    } while (one.entry);
    return BW_OK;
}

/* Precisions from wide to narrow follow each other, so that they are compared under the same conditions. */
bw_status bw_planned_case_next(const bw_suite *suite, bw_planned_case *self) {
    const bw_suite_case *entry = self->entry ? self->entry : suite->cases;
    int id = self->entry ? (int)self->precision->id + 1 : 0;
    for (; entry < suite->cases + suite->case_count; entry++, id = 0) {
        *self = (bw_planned_case){.entry = entry, .variant = entry->variant, .cache = entry->cache};
        BW_TRY(bw_op_find(entry->params.operation, &self->op_index));
        self->op = bw_op_at(self->op_index);
        const unsigned runs = entry->precisions & (entry->own_precisions ? ~0u : self->op->precisions);
        for (; id < BW_PRECISION_COUNT; id++) {
            self->precision = bw_precision_get((bw_precision_id)id);
            if (bw_precision_in(runs, self->precision)) return BW_OK;
        }
    }
    self->entry = NULL;
    return BW_OK;
}

bw_status bw_planned_case_dims(const bw_planned_case *self, bw_dims *out) {
    *out = (bw_dims){.list = self->entry->lengths, .list_count = self->entry->length_count};
    return bw_dims_read(self->op, self->precision, &self->entry->params, out);
}
