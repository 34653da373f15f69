/* Combines the parts of a case: chooses a variant, prepares buffers, launches, and verifies. */
#include "measure/case/case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bw_status create_spec(int op_index, const bw_precision *precision, const bw_dims *dims, uint64_t seed,
                             const bw_case_spec **out) {
    size_t list_bytes = dims->list ? (size_t)dims->list_count * sizeof *dims->list : 0;
    bw_case_spec *self = calloc(1, sizeof *self + list_bytes);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for a case of %" PRId64 " lengths", dims->list_count);
    self->op_index = op_index;
    self->op = bw_op_at(op_index);
    self->precision = precision;
    self->dims = *dims;
    self->dims.op = self->op;
    self->seed = seed;
    if (dims->list) self->dims.list = memcpy(self->list, dims->list, list_bytes);
    bw_status status = bw_op_operands(self->op, &self->dims, precision, self->operands, &self->operand_count);
    if (status) {
        free(self);
        return status;
    }
    *out = self;
    return BW_OK;
}

bw_status bw_case_create(bw_session *session, int op_index, const bw_precision *precision, const bw_dims *dims,
                         const char *variant_name, uint64_t seed, bw_case **out) {
    const bw_choice *choice = NULL;
    bw_status status = BW_OK;
    bw_case *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for a case");
    self->session = session;
    BW_GOTO(create_spec(op_index, precision, dims, seed, &self->spec));
    self->reference.spec = self->spec;
    const bw_offer offer = bw_offer_of(session->backend, session->device, op_index);
    BW_GOTO(bw_choice_first(self->spec, &offer, variant_name, &choice));
    atomic_store(&self->choice, choice);
    self->annotations = bw_session_annotations(session);
    bw_case_set_label(self, self->spec->op->name);
    *out = self;
    return BW_OK;
cleanup:
    bw_case_free(self);
    return status;
}

void bw_case_free(bw_case *self) {
    if (!self) return;
    bw_case_release_buffers(self);
    bw_reference_free(&self->reference);
    bw_choice_free(atomic_load(&self->choice));
    free((void *)self->spec);
    free(self);
}

bw_status bw_case_rotation(bw_case *self, bw_cache cache, bw_rotation *out, int64_t *needed_bytes,
                           int64_t *free_bytes) {
    const bw_backend *backend = self->session->backend;
    const bw_choice *choice = bw_case_choice(self);
    int64_t total_bytes;
    BW_TRY(backend->memory->ask(self->session->device, free_bytes, &total_bytes));
    const bw_buffers *own = &self->buffers; /* which it can give back */
    int64_t usable_bytes = *free_bytes + (own->memory ? own->set_count * choice->layout.set_bytes : 0) +
                           (own->workspace ? choice->workspace_bytes : 0);
    *out = bw_rotation_of(choice, cache, backend->devices->facts(self->session->device), usable_bytes);
    *needed_bytes = bw_bytes_needed(choice, out->sets, out->flush_bytes);
    return bw_bytes_check(self->spec, *needed_bytes, usable_bytes);
}

void bw_case_set_label(bw_case *self, const char *label) {
    if (label) {
        snprintf(self->label, sizeof self->label, "%s", label);
    } else {
        self->annotations = NULL;
    }
}

void bw_case_push(bw_case *self, const char *what) {
    const bw_annotation annotation = {.name = what, .category = self->spec->op->name, .bytes = -1};
    if (self->annotations) self->annotations->push(self->session->device, &annotation);
}

void bw_case_pop(bw_case *self) {
    if (self->annotations) self->annotations->pop(self->session->device);
}

void bw_case_annotate(bw_case *self, bw_case_annotation *out) {
    out->ranges.count = 0;
    if (!self->annotations) return;
    const bw_choice *choice = bw_case_choice(self);
    const bw_annotation measure = {.name = "measure",
                                   .category = self->spec->op->name,
                                   .bytes = choice->cost.bytes_read + choice->cost.bytes_written};
    snprintf(out->name, sizeof out->name, "%s %s %s", self->label, self->spec->precision->name, choice->variant->name);
    for (int i = 0; i < BW_ANNOTATIONS_MOST; i++) out->ranges.range[i] = measure;
    out->ranges.range[0].name = out->name;
    out->ranges.count = BW_ANNOTATIONS_MOST;
}

/* A default variant whose library is missing gives way to the next best row, and the row says so. */
static bw_status step_down(bw_case *self, bw_status cause) {
    const bw_offer offer = bw_offer_of(self->session->backend, self->session->device, self->spec->op_index);
    const bw_choice *next = NULL;
    BW_TRY(bw_choice_next(self->spec, &offer, bw_case_choice(self), cause, &next));
    atomic_store(&self->choice, next);
    return BW_OK;
}

static bw_status renew_choice(bw_case *self) {
    const bw_offer offer = bw_offer_of(self->session->backend, self->session->device, self->spec->op_index);
    const bw_choice *choice = NULL;
    BW_TRY(bw_choice_renew(self->spec, &offer, bw_case_choice(self), &choice));
    atomic_store(&self->choice, choice);
    return BW_OK;
}

/* With `rotation`: as many sets as that needs, which depends on the variant, since each has a layout of its own. */
static bw_status get_ready(bw_case *self, int64_t sets, bool once, bw_cache cache, bw_rotation *rotation) {
    const bw_buffers *buffers = &self->buffers;
    for (;;) {
        int64_t needed_bytes, free_bytes;
        if (rotation) {
            BW_TRY(bw_case_rotation(self, cache, rotation, &needed_bytes, &free_bytes));
            sets = rotation->sets;
        }
        if (buffers->prepared && buffers->set_count == sets && (once || !buffers->once)) return BW_OK;
        bw_case_release_buffers(self);
        bw_status status = bw_case_make_buffers(self, sets, once);
        if (status) {
            bw_case_release_buffers(self);
            BW_TRY(step_down(self, status));
            continue;
        }
        const bw_choice *choice = bw_case_choice(self);
        status = renew_choice(self);
        if (status) bw_case_release_buffers(self);
        /* Another footprint may need another rotation. */
        if (status || !rotation || bw_case_choice(self) == choice) return status;
    }
}

bw_status bw_case_ready(bw_case *self, int64_t sets) {
    return get_ready(self, sets, false, BW_CACHE_HOT, NULL);
}

bw_status bw_case_ready_any(bw_case *self) {
    return bw_case_ready(self, bw_max64(1, self->buffers.set_count));
}

bw_status bw_case_ready_for(bw_case *self, bw_cache cache, bw_rotation *out) {
    return get_ready(self, 1, false, cache, out);
}

static bw_status launch(bw_case *self, int64_t set) {
    BW_TRY(bw_case_enqueue_set(self, set));
    return self->session->backend->devices->synchronize(self->session->device);
}

/* Between marks, for tools that watch. */
static bw_status launch_once(bw_case *self) {
    const bw_annotation_calls *annotations = self->annotations;
    bw_case_annotation annotation;
    BW_TRY(get_ready(self, bw_max64(1, self->buffers.set_count), true, BW_CACHE_HOT, NULL));
    if (self->buffers.own_inputs) BW_TRY(bw_case_reset(self, 0));
    bw_case_annotate(self, &annotation);
    for (int i = 0; i < annotation.ranges.count; i++)
        annotations->push(self->session->device, &annotation.ranges.range[i]);
    bw_status status = launch(self, 0);
    for (int i = 0; i < annotation.ranges.count; i++) annotations->pop(self->session->device);
    return status;
}

bw_status bw_case_launch_once(bw_case *self) {
    bw_case_push(self, "case");
    bw_status status = launch_once(self);
    bw_case_pop(self);
    return status;
}

bw_status bw_case_enqueue(bw_case *self) {
    BW_TRY(bw_case_ready_any(self));
    if (self->buffers.own_inputs) BW_TRY(bw_case_reset(self, 0));
    return bw_case_enqueue_set(self, 0);
}

bw_status bw_case_run(bw_case *self, const bw_case_arrays *arrays) {
    BW_TRY(bw_case_ready_any(self));
    BW_TRY(bw_case_reset(self, 0));
    for (int i = 0; i < self->spec->operand_count; i++) {
        if (arrays->in[i]) BW_TRY(bw_case_write(self, i, arrays->in[i]));
    }
    if (arrays->launch) BW_TRY(launch(self, 0));
    for (int i = 0; i < self->spec->operand_count; i++) {
        if (!arrays->out[i]) continue;
        BW_TRY(bw_case_read(self, i, arrays->out[i]));
    }
    return BW_OK;
}

bw_status bw_case_verify(bw_case *self, const void *const *outputs, const bw_budget *budget, bw_verdict *out) {
    const bw_case_spec *spec = self->spec;
    bool has_all = outputs != NULL;
    BW_TRY(bw_case_ready_any(self));
    BW_TRY(bw_case_reset(self, 0));
    for (int i = 0; i < spec->operand_count; i++) {
        const bw_operand *operand = &spec->operands[i];
        has_all = has_all && (!operand->present || operand->role == BW_IN || outputs[i]);
    }
    if (!has_all) BW_TRY(launch(self, 0));
    for (int i = 0; i < spec->operand_count; i++) {
        if (outputs && outputs[i]) BW_TRY(bw_case_write(self, i, outputs[i]));
    }
    return bw_case_verify_set(self, 0, budget, out);
}
