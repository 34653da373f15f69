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

static bool lists(const char *const *list, const char *name) {
    return bw_name_find(name, bw_name_of_text, list, NULL, 0) >= 0;
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

/* Precisions from wide to narrow; a suite's own are what an operation may choose from, an entry's are all run. */
static bw_status add_precisions(bw_run_plan *self, const char *const *wanted, const bw_variant *row,
                                bw_planned_case one) {
    for (int id = 0; id < BW_PRECISION_COUNT; id++) {
        one.precision = bw_precision_get((bw_precision_id)id);
        if (!lists(wanted, one.precision->name) || (row && !bw_precision_in(row->precisions, one.precision))) continue;
        if (one.entry->precisions || bw_precision_in(one.op->precisions, one.precision)) BW_TRY(add(self, &one));
    }
    return BW_OK;
}

/* A variant's precisions follow each other, so that they are compared under the same conditions. */
static bw_status add_variants(bw_run_plan *self, const char *const *precisions, const bw_backend *backend,
                              bw_planned_case one) {
    const bw_suite_case *entry = one.entry;
    if (!entry->variants) return add_precisions(self, precisions, NULL, one);
    if (lists(entry->variants, "all")) {
        const bw_variant_table *table = backend->devices->variants(NULL, one.op_index);
        for (int i = 0; i < table->count; i++) {
            one.variant = table->rows[i].name;
            BW_TRY(add_precisions(self, precisions, &table->rows[i], one));
        }
        return BW_OK;
    }
    for (const char *const *variant = entry->variants; *variant; variant++) {
        one.variant = *variant;
        BW_TRY(add_precisions(self, precisions, NULL, one));
    }
    return BW_OK;
}

static bw_status add_case(bw_run_plan *self, const bw_suite_case *entry, const char *const *precisions,
                          const bw_backend *backend) {
    static const char *const cold[] = {"cold", NULL}, *const both[] = {"cold", "hot", NULL};
    bw_planned_case one = {.entry = entry};
    const char *const *caches = entry->caches ? entry->caches : cold;
    if (lists(caches, "both")) caches = both;
    BW_TRY(bw_op_find(entry->operation, &one.op_index));
    one.op = bw_op_at(one.op_index);
    for (; *caches; caches++) {
        one.cache = strcmp(*caches, "hot") == 0 ? BW_CACHE_HOT : BW_CACHE_COLD;
        BW_TRY(add_variants(self, entry->precisions ? entry->precisions : precisions, backend, one));
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
    const char *const *precisions = suite->precisions;
    double target = suite->target_seconds;
    for (const bw_suite_on *on = suite->on; on->backend; on++) {
        if (strcmp(on->backend, backend->name) != 0) continue;
        if (on->precisions) precisions = on->precisions;
        if (on->target_seconds > 0) target = on->target_seconds;
    }
    if (target > 0) out->target_seconds = target;
    for (int i = 0; i < suite->case_count; i++) {
        const bw_suite_case *entry = &suite->cases[i];
        if (entry->backends && !lists(entry->backends, backend->name)) continue;
        BW_GOTO(add_case(out, entry, precisions, backend));
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
