#include "measure/case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 256,
    SETS_MAX = 2048,
    CACHE_FACTOR_LEAST = 2 /* with less than this the row is not called cold */
};

static bw_checked align_up(bw_checked bytes) {
    bw_checked padded = bw_add(bytes, bw_num(ALIGNMENT - 1));
    padded.value -= padded.value % ALIGNMENT;
    return padded;
}

static const bw_device_facts *facts_of(const bw_case *self) {
    return self->session->backend->devices->facts(self->session->device);
}

/* ---- variants ---- */

const char *bw_variant_refuses(const bw_variant *row, const bw_dims *dims, const bw_precision *precision,
                               const bw_device_facts *facts) {
    if (!bw_precision_in(row->precisions, precision)) return "not in this precision";
    return row->refuses ? row->refuses(dims, precision, facts) : NULL;
}

bw_status bw_variant_default(const bw_variant_table *table, const bw_op *op, const bw_dims *dims,
                             const bw_precision *precision, const bw_device_facts *facts, uint64_t passed_over,
                             const bw_variant **out) {
    const bw_variant *chosen = NULL, *preferred = NULL;
    char reasons[768] = "";
    for (int i = 0; i < table->count; i++) {
        const bw_variant *row = &table->rows[i];
        if (passed_over >> i & 1) continue;
        const char *refusal = bw_variant_refuses(row, dims, precision, facts);
        if (refusal) {
            size_t used = strlen(reasons);
            snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", used ? "; " : "", row->name, refusal);
            continue;
        }
        chosen = row;
        if (row->prefers && row->prefers(dims, precision, facts)) preferred = row;
    }
    if (!chosen) {
        return bw_fail(BW_CODE_UNSUPPORTED, "%s in %s does not run on this device (%s)", op->name, precision->name,
                       reasons[0] ? reasons : "no kernels for it");
    }
    *out = preferred ? preferred : chosen;
    return BW_OK;
}

static bw_status variant_named(const bw_variant_table *table, const bw_op *op, const char *name, const bw_dims *dims,
                               const bw_precision *precision, const bw_device_facts *facts, const bw_variant **out) {
    char allowed[512] = "";
    for (int i = 0; i < table->count; i++) {
        const bw_variant *row = &table->rows[i];
        size_t used = strlen(allowed);
        snprintf(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "", row->name);
        if (strcmp(row->name, name) != 0) continue;
        const char *refusal = bw_variant_refuses(row, dims, precision, facts);
        if (refusal) {
            return bw_fail(BW_CODE_UNSUPPORTED, "%s: variant '%s' does not run this case in %s: %s", op->name, name,
                           precision->name, refusal);
        }
        *out = row;
        return BW_OK;
    }
    return bw_fail(BW_CODE_INVALID, "%s has no variant '%s': allowed are %s", op->name, name, allowed);
}

bw_status bw_cost_of(const bw_op *op, const bw_variant *variant, const bw_dims *dims, const bw_precision *precision,
                     const bw_device_facts *facts, bw_cost *out) {
    BW_TRY(op->cost(dims, precision, out));
    if (variant && variant->extra_cost) BW_TRY(variant->extra_cost(dims, precision, facts, out));
    if (!variant || !variant->scratch_bytes) return BW_OK;
    bw_checked footprint = bw_add(bw_num(out->footprint_bytes), bw_num(variant->scratch_bytes(dims, precision, facts)));
    if (footprint.overflow) {
        return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: operands and intermediates pass 2^63 bytes",
                       op->name);
    }
    out->footprint_bytes = footprint.value;
    return BW_OK;
}

/* ---- creation ---- */

/* Room for what others will see; `cause` is why the variant before is passed over, NULL for the first one. */
static bw_status create_view(const bw_case_view *before, const char *cause, bw_case_view **out) {
    const char *note = before ? before->note : "", *name = before ? before->variant->name : "";
    size_t size = cause ? strlen(note) + strlen(cause) + strlen(name) + 32 : 1;
    bw_case_view *view = malloc(sizeof *view + size);
    if (!view) return bw_fail(BW_CODE_MEMORY, "no host memory for a case");
    *view = (bw_case_view){.before = before};
    view->note[0] = '\0';
    if (cause) snprintf(view->note, size, "%s%svariant %s passed over: %s", note, note[0] ? "; " : "", name, cause);
    *out = view;
    return BW_OK;
}

const bw_case_view *bw_case_look(bw_case *self) {
    return atomic_load(&self->view);
}

/* Everything that follows from the variant: layout of a set, cost. Changes nothing when it fails. */
static bw_status adopt_variant(bw_case *self, const bw_variant *variant, const char *cause) {
    const bw_device_facts *facts = facts_of(self);
    int64_t scratch_bytes = variant->scratch_bytes ? variant->scratch_bytes(&self->dims, self->precision, facts) : 0;
    int64_t workspace_bytes =
        variant->workspace_bytes ? variant->workspace_bytes(&self->dims, self->precision, facts) : 0;
    bw_case_view *view = NULL;
    bw_cost cost;
    bw_checked offset = bw_num(0);
    for (int i = 0; i < self->operand_count; i++) {
        self->offsets[i] = offset.value; /* the same for every variant */
        offset = align_up(bw_add(offset, bw_num(self->operands[i].bytes)));
    }
    bw_checked end = align_up(bw_add(offset, bw_num(scratch_bytes)));
    if (end.overflow || scratch_bytes < 0 || workspace_bytes < 0) {
        return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: one buffer set would be larger than 2^63 bytes",
                       self->op->name);
    }
    BW_TRY(bw_cost_of(self->op, variant, &self->dims, self->precision, facts, &cost));
    BW_TRY(create_view(self->view, cause, &view));
    self->variant = view->variant = variant;
    self->scratch_offset = offset.value;
    self->scratch_bytes = scratch_bytes;
    self->workspace_bytes = view->workspace_bytes = workspace_bytes;
    self->set_bytes = view->set_bytes = end.value;
    self->cost = view->cost = cost;
    atomic_store(&self->view, view);
    return BW_OK;
}

bw_status bw_case_create(bw_session *session, int op_index, const bw_precision *precision, const bw_dims *dims,
                         const char *variant_name, uint64_t seed, bw_case **out) {
    const bw_variant_table *table = session->backend->devices->variants(session->device, op_index);
    const bw_device_facts *facts = session->backend->devices->facts(session->device);
    const bw_variant *variant = NULL;
    bw_status status = BW_OK;
    bw_case *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for a case");
    self->session = session;
    self->op_index = op_index;
    self->op = bw_op_at(op_index);
    self->precision = precision;
    self->dims = *dims;
    self->seed = seed;
    self->variant_asked = variant_name != NULL;
    if (dims->kv_lens) {
        size_t bytes = (size_t)dims->kv_lens_count * sizeof *self->kv_lens;
        self->kv_lens = malloc(bytes);
        if (!self->kv_lens) {
            BW_GOTO(bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " kv_lens", dims->kv_lens_count));
        }
        memcpy(self->kv_lens, dims->kv_lens, bytes);
        self->dims.kv_lens = self->kv_lens;
    }
    BW_GOTO(bw_op_operands(self->op, &self->dims, precision, self->operands, &self->operand_count));
    if (variant_name) {
        BW_GOTO(variant_named(table, self->op, variant_name, &self->dims, precision, facts, &variant));
    } else {
        BW_GOTO(bw_variant_default(table, self->op, &self->dims, precision, facts, 0, &variant));
    }
    BW_GOTO(adopt_variant(self, variant, NULL));
    *out = self;
    return BW_OK;
cleanup:
    bw_case_free(self);
    return status;
}

static void release_memory(bw_case *self) {
    const bw_backend *backend = self->session->backend;
    bw_device *device = self->session->device;
    if (self->prepared && self->variant->release) self->variant->release(self->state);
    self->prepared = self->once = false;
    self->state = NULL;
    if (self->memory) backend->memory->release(device, self->memory, self->memory_bytes);
    self->memory = NULL;
    if (self->workspace) backend->memory->release(device, self->workspace, self->workspace_bytes);
    self->workspace = NULL;
    free(self->launches);
    self->launches = NULL;
    self->set_count = 0;
}

void bw_case_free(bw_case *self) {
    if (!self) return;
    release_memory(self);
    bw_expected_free(self->expected);
    for (const bw_case_view *view = self->view, *before; view; view = before) {
        before = view->before;
        free((void *)view);
    }
    free(self->kv_lens);
    free(self);
}

/* ---- rotation ---- */

int64_t bw_case_footprint(const bw_case *self) {
    return self->cost.footprint_bytes;
}

/* Of so many sets, the workspace and a flush; INT64_MAX when that overflows. */
static int64_t bytes_needed(const bw_case *self, int64_t sets, int64_t flush_bytes) {
    bw_checked bytes = bw_add(bw_mul(bw_num(sets), bw_num(self->set_bytes)), bw_num(self->workspace_bytes));
    bytes = bw_add(bytes, bw_num(flush_bytes));
    return bytes.overflow ? INT64_MAX : bytes.value;
}

/* The last bytes of a device belong to its driver or operating system. */
static bool bytes_fit(int64_t needed_bytes, int64_t free_bytes) {
    return needed_bytes <= free_bytes - free_bytes / 32;
}

static bw_status refuse_memory(const bw_case *self, int64_t needed_bytes, int64_t free_bytes) {
    return bw_fail(BW_CODE_MEMORY, "%s needs %" PRId64 " bytes (%.2f GB), free are %" PRId64 " (%.2f GB)",
                   self->op->name, needed_bytes, (double)needed_bytes * 1e-9, free_bytes, (double)free_bytes * 1e-9);
}

/* Where memory or the number of sets ends the rotation early, a flush makes up for it. A case that is too small for
 * a full rotation keeps its many sets, so the flush costs it little; one whose sets are too large would be left with
 * few launches per replay, so that a rotation over at least twice the cache is preferred to it. */
static void rotate_cold(const bw_case *self, int64_t usable_bytes, bw_rotation *out) {
    int64_t cache_bytes = facts_of(self)->cache_bytes;
    int64_t touched = bw_max64(1, bw_case_footprint(self));
    int64_t wanted = bw_max64(1, bw_ceil_div(BW_COLD_CACHE_FACTOR * cache_bytes, touched));
    int64_t most = bw_min64(wanted, SETS_MAX);
    /* Rotation may take half of what is free: the rest belongs to others. */
    int64_t budget = usable_bytes / 2 - self->workspace_bytes;
    out->sets = bw_max64(1, bw_min64(most, budget / self->set_bytes));
    if (cache_bytes <= 0) {
        out->note = "the cache's size is unknown: the inputs may be in it";
        return;
    }
    out->cold = out->sets >= bw_min64(wanted, bw_ceil_div(CACHE_FACTOR_LEAST * cache_bytes, touched));
    if (out->sets >= wanted) return;

    int64_t flush_bytes = BW_COLD_CACHE_FACTOR * cache_bytes;
    int64_t sets = bw_max64(1, bw_min64(most, (budget - flush_bytes) / self->set_bytes));
    bool too_small = out->sets == SETS_MAX;
    if ((too_small || !out->cold) && bytes_fit(bytes_needed(self, sets, flush_bytes), usable_bytes)) {
        out->sets = sets;
        out->flush_bytes = flush_bytes;
        out->cold = true;
        out->note = too_small ? "too small to rotate out of the cache: read flush before each sample"
                              : "memory allows no full rotation: read flush before each sample";
    } else {
        out->note = out->cold ? "memory allows a rotation over two to four times the cache only"
                              : "memory allows neither rotation nor a flush: the inputs may be in the cache";
    }
}

bw_status bw_case_rotation(bw_case *self, bw_cache cache, bw_rotation *out, int64_t *needed_bytes,
                           int64_t *free_bytes) {
    int64_t total;
    BW_TRY(self->session->backend->memory->ask(self->session->device, free_bytes, &total));
    int64_t usable = *free_bytes; /* what the case holds itself it can give back */
    if (self->memory) usable += self->memory_bytes;
    if (self->workspace) usable += self->workspace_bytes;
    *out = (bw_rotation){.sets = 1, .note = ""};
    if (cache == BW_CACHE_COLD) rotate_cold(self, usable, out);
    if (cache == BW_CACHE_FLUSHED) {
        out->flush_bytes = BW_COLD_CACHE_FACTOR * facts_of(self)->cache_bytes;
        out->cold = out->flush_bytes > 0;
        out->note = out->cold ? "one set, flushed before each sample" : "the cache's size is unknown: no flush";
    }
    *needed_bytes = bytes_needed(self, out->sets, out->flush_bytes);
    return bytes_fit(*needed_bytes, usable) ? BW_OK : refuse_memory(self, *needed_bytes, usable);
}

/* ---- resources ---- */

static bw_status fill_operand(bw_case *self, int index, char *set) {
    const bw_backend *backend = self->session->backend;
    bw_device *device = self->session->device;
    const bw_operand *operand = &self->operands[index];
    void *to = set + self->offsets[index];
    if (operand->recipe == BW_RECIPE_POISON) return backend->memory->poison(device, to, operand->bytes);
    if (operand->recipe == BW_RECIPE_HASH) {
        return backend->memory->fill(device, operand->dtype, self->seed, index, operand->elems, to);
    }
    void *host = malloc((size_t)bw_max64(1, operand->bytes));
    if (!host)
        return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " bytes of %s", operand->bytes, operand->name);
    self->op->host_input(&self->dims, self->seed, index, host);
    bw_status status = backend->memory->upload(device, to, host, operand->bytes);
    free(host);
    return status;
}

bw_status bw_case_reset(bw_case *self, int64_t set) {
    for (int i = 0; i < self->operand_count; i++) {
        if (self->operands[i].role == BW_IN && !(set == 0 && self->own_inputs)) continue;
        BW_TRY(fill_operand(self, i, self->memory + set * self->set_bytes));
    }
    if (set == 0) self->own_inputs = false;
    return BW_OK;
}

static bw_status fill_sets(bw_case *self) {
    const bw_backend *backend = self->session->backend;
    bw_device *device = self->session->device;
    for (int i = 0; i < self->operand_count; i++) BW_TRY(fill_operand(self, i, self->memory));
    /* Scratch that a kernel reads before it wrote it shows as NaN. */
    if (self->scratch_bytes)
        BW_TRY(backend->memory->poison(device, self->memory + self->scratch_offset, self->scratch_bytes));
    for (int64_t set = 1; set < self->set_count; set++) {
        BW_TRY(backend->memory->duplicate(device, self->memory + set * self->set_bytes, self->memory, self->set_bytes));
    }
    return backend->devices->synchronize(device);
}

static void lay_out_launches(bw_case *self) {
    for (int64_t set = 0; set < self->set_count; set++) {
        bw_launch *launch = &self->launches[set];
        char *base = self->memory + set * self->set_bytes;
        *launch = (bw_launch){.dims = &self->dims,
                              .precision = self->precision,
                              .scratch = self->scratch_bytes ? base + self->scratch_offset : NULL,
                              .workspace = self->workspace,
                              .once = self->once,
                              .device = self->session->device};
        for (int i = 0; i < self->operand_count; i++) launch->operand[i] = base + self->offsets[i];
    }
}

static bw_status allocate_sets(bw_case *self, void **out) {
    const bw_backend *backend = self->session->backend;
    if (!backend->memory->allocate_sets)
        return backend->memory->allocate(self->session->device, self->memory_bytes, out);
    bw_set_layout layout = {.set_bytes = self->set_bytes, .parts = self->operand_count};
    memcpy(layout.starts, self->offsets, (size_t)self->operand_count * sizeof layout.starts[0]);
    if (self->scratch_bytes) layout.starts[layout.parts++] = self->scratch_offset;
    return backend->memory->allocate_sets(self->session->device, self->set_count, &layout, out);
}

static bw_status make_ready(bw_case *self, int64_t sets) {
    const bw_backend *backend = self->session->backend;
    bw_device *device = self->session->device;
    int64_t free_bytes, total_bytes, needed_bytes = bytes_needed(self, sets, 0);
    /* Asked first: where memory is overcommitted an allocation that is too large succeeds, and kills the process later.
     */
    BW_TRY(backend->memory->ask(device, &free_bytes, &total_bytes));
    if (!bytes_fit(needed_bytes, free_bytes)) return refuse_memory(self, needed_bytes, free_bytes);
    self->set_count = sets;
    self->memory_bytes = sets * self->set_bytes;
    self->launches = calloc((size_t)sets, sizeof *self->launches);
    if (!self->launches) return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " buffer sets", sets);
    void *memory = NULL;
    BW_TRY(allocate_sets(self, &memory));
    self->memory = memory;
    if (self->workspace_bytes) BW_TRY(backend->memory->allocate(device, self->workspace_bytes, &self->workspace));
    lay_out_launches(self);
    BW_TRY(fill_sets(self));
    self->own_inputs = false;
    if (self->variant->prepare) {
        BW_TRY(self->variant->prepare(self->launches, sets, &self->state));
        for (int64_t set = 0; set < sets; set++) self->launches[set].state = self->state;
    }
    self->prepared = true;
    return backend->devices->synchronize(device);
}

/* A default variant whose library is missing gives way to the next best row, and the row says so. */
static bw_status step_down(bw_case *self, bw_status cause) {
    const bw_variant_table *table = self->session->backend->devices->variants(self->session->device, self->op_index);
    const bw_variant *next = NULL;
    if (self->variant_asked || bw_status_code(cause) != BW_CODE_UNAVAILABLE) return cause;
    uint64_t passed_over = self->passed_over | (uint64_t)1 << (self->variant - table->rows);
    bw_status status =
        bw_variant_default(table, self->op, &self->dims, self->precision, facts_of(self), passed_over, &next);
    if (status) {
        bw_status_free(status);
        return cause;
    }
    status = adopt_variant(self, next, bw_status_message(cause));
    bw_status_free(cause);
    if (!status) self->passed_over = passed_over;
    return status;
}

/* *again: another variant stands in now, and its layout is not that of the one before. */
static bw_status try_ready(bw_case *self, int64_t sets, bool once, bool *again) {
    *again = false;
    if (self->prepared && self->set_count == sets && (once || !self->once)) return BW_OK;
    release_memory(self);
    self->once = once;
    bw_status status = make_ready(self, sets);
    if (!status) return BW_OK;
    release_memory(self);
    BW_TRY(step_down(self, status));
    *again = true;
    return BW_OK;
}

bw_status bw_case_ready(bw_case *self, int64_t sets) {
    bool again;
    do {
        BW_TRY(try_ready(self, sets, false, &again));
    } while (again);
    return BW_OK;
}

bw_status bw_case_ready_for(bw_case *self, bw_cache cache, bw_rotation *out) {
    bool again;
    do {
        int64_t needed_bytes, free_bytes;
        BW_TRY(bw_case_rotation(self, cache, out, &needed_bytes, &free_bytes));
        BW_TRY(try_ready(self, out->sets, false, &again));
    } while (again);
    return BW_OK;
}

static bw_status run_variant(void *context, int64_t set, bool captured) {
    const bw_case *self = context;
    (void)captured;
    return self->variant->launch(&self->launches[set]);
}

bw_work bw_case_work(bw_case *self) {
    const bw_context_calls *context = self->session->backend->context;
    return (bw_work){
        .run = run_variant, .context = self, .stream = context ? context->stream(self->session->device) : NULL};
}

bw_status bw_case_launch(bw_case *self, int64_t set) {
    BW_TRY(self->variant->launch(&self->launches[set]));
    return self->session->backend->devices->synchronize(self->session->device);
}

bw_status bw_case_launch_once(bw_case *self) {
    int64_t sets = bw_max64(1, self->set_count);
    bool again;
    do {
        BW_TRY(try_ready(self, sets, true, &again));
    } while (again);
    if (self->own_inputs) BW_TRY(bw_case_reset(self, 0));
    return bw_case_launch(self, 0);
}
