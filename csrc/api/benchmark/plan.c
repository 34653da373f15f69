/* Makes the list of cases from a suite, in the same order as bwprof.runs.plan. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/benchmark/benchmark.h"
#include "base/memory.h"
#include "base/names.h"
#include "suite_table.h" /* by setup.py */

static const char *suite_at(const void *unused, int index) {
    (void)unused;
    return index < (int)(sizeof bw_suites / sizeof bw_suites[0]) ? bw_suites[index].name : NULL;
}

static bw_status add(bw_run_plan *self, const bw_planned_case *one) {
    if (self->count == self->capacity) {
        int capacity = self->capacity ? 2 * self->capacity : 64;
        BW_TRY(bw_resize((void **)&self->cases, capacity, sizeof *self->cases, "cases"));
        self->capacity = capacity;
    }
    self->cases[self->count++] = *one;
    return BW_OK;
}

/* Precisions from wide to narrow. */
static bw_status add_precisions(bw_run_plan *self, unsigned precisions, bw_planned_case one) {
    for (int id = 0; id < BW_PRECISION_COUNT; id++) {
        one.precision = bw_precision_get((bw_precision_id)id);
        if (bw_precision_in(precisions, one.precision)) BW_TRY(add(self, &one));
    }
    return BW_OK;
}

/* A variant's precisions follow each other, so that they are compared under the same conditions. */
static bw_status add_case(bw_run_plan *self, const bw_suite_case *entry, unsigned precisions,
                          const bw_backend *backend) {
    bw_planned_case one = {.entry = entry, .variant = entry->variant, .cache = entry->cache};
    BW_TRY(bw_op_find(entry->operation, &one.op_index));
    one.op = bw_op_at(one.op_index);
    precisions = entry->precisions ? entry->precisions : precisions & one.op->precisions;
    if (!one.variant || strcmp(one.variant, "all") != 0) return add_precisions(self, precisions, one);
    const bw_variant_table *table = backend->devices->variants(NULL, one.op_index);
    for (int i = 0; i < table->count; i++) {
        one.variant = table->rows[i].name;
        BW_TRY(add_precisions(self, precisions & table->rows[i].precisions, one));
    }
    return BW_OK;
}

bw_status bw_run_plan_make(const char *name, const bw_backend *backend, bw_run_plan *out) {
    char allowed[256];
    bw_status status = BW_OK;
    *out = (bw_run_plan){.target_seconds = INFINITY};
    int index = bw_name_find(name ? name : "default", suite_at, NULL, allowed, sizeof allowed);
    if (index < 0) return bw_fail(BW_CODE_INVALID, "unknown suite '%.200s': allowed are %s", name, allowed);
    const bw_suite *suite = &bw_suites[index];
    unsigned precisions = suite->precisions;
    double target = suite->target_seconds;
    for (const bw_suite_on *on = suite->on; on->backend; on++) {
        if (strcmp(on->backend, backend->name) != 0) continue;
        if (on->precisions) precisions = on->precisions;
        if (on->target_seconds > 0) target = on->target_seconds;
    }
    if (target > 0) out->target_seconds = target;
    for (int i = 0; i < suite->case_count; i++) {
        const bw_suite_case *entry = &suite->cases[i];
        bool runs = !entry->backends || bw_name_find(backend->name, bw_name_of_text, entry->backends, NULL, 0) >= 0;
        if (runs) BW_GOTO(add_case(out, entry, precisions, backend));
    }
    if (!out->count) BW_GOTO(bw_fail(BW_CODE_INVALID, "suite %s has no case on %s", suite->name, backend->name));
    return BW_OK;
cleanup:
    bw_run_plan_free(out);
    return status;
}

void bw_run_plan_free(bw_run_plan *self) {
    free(self->cases);
    *self = (bw_run_plan){.count = 0};
}

bw_status bw_planned_case_dims(const bw_planned_case *self, bw_dims *out) {
    unsigned present = 0;
    *out = (bw_dims){.list = self->entry->lengths, .list_count = self->entry->length_count};
    for (int i = 0; self->entry->params[i]; i++) {
        int index = bw_op_param_index(self->op, self->entry->params[i]);
        if (index < 0)
            return bw_fail(BW_CODE_INVALID, "%s has no parameter %s", self->op->name, self->entry->params[i]);
        out->value[index] = self->entry->values[i];
        present |= 1u << index;
    }
    return bw_op_complete(self->op, self->precision, present, out);
}
