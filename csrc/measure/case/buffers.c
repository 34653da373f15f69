/* Allocates, fills and resets a case's buffer sets, and launches its variant on them. */
#include "measure/case/buffers.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "measure/case/rotation.h"

static const bw_memory_calls *memory_of(const bw_buffers *self) {
    return self->session->backend->memory;
}

void *bw_buffers_at(const bw_buffers *self, int64_t set, int operand) {
    assert(set >= 0 && set < self->set_count && operand >= 0 && operand <= self->spec->operand_count);
    return self->memory + set * self->choice->layout.set_bytes + self->choice->offsets[operand];
}

/* Set `set` holds operand `index` as a launch must find it. */
static bw_status fill_operand(const bw_buffers *self, int64_t set, int index) {
    const bw_case_spec *spec = self->spec;
    const bw_operand *operand = &spec->operands[index];
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    void *to = bw_buffers_at(self, set, index);
    if (!operand->present) return BW_OK;
    if (operand->recipe == BW_RECIPE_POISON) return memory->poison(device, to, operand->bytes);
    if (operand->recipe == BW_RECIPE_HASH) {
        int64_t blocks = operand->bytes / bw_dtype_get(operand->dtype)->block_bytes;
        return memory->fill(device, operand->dtype, spec->seed, index, blocks, to);
    }
    void *host = malloc((size_t)bw_max64(1, operand->bytes));
    if (!host)
        return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " bytes of %s", operand->bytes, operand->name);
    bw_operand_fill(spec->op, &spec->dims, spec->seed, operand, index, host);
    bw_status status = memory->upload(device, to, host, operand->bytes);
    free(host);
    return status;
}

bw_status bw_buffers_reset(bw_buffers *self, int64_t set) {
    for (int i = 0; i < self->spec->operand_count; i++) {
        if (self->spec->operands[i].role == BW_IN && !(set == 0 && self->own_inputs)) continue;
        BW_TRY(fill_operand(self, set, i));
    }
    if (set == 0) self->own_inputs = false;
    return BW_OK;
}

bw_status bw_buffers_write(bw_buffers *self, int operand, const void *from) {
    const bw_operand *what = &self->spec->operands[operand];
    if (what->role != BW_OUT) self->own_inputs = true;
    return memory_of(self)->upload(self->session->device, bw_buffers_at(self, 0, operand), from, what->bytes);
}

bw_status bw_buffers_read(const bw_buffers *self, int operand, void *to) {
    const void *from = bw_buffers_at(self, 0, operand);
    return memory_of(self)->download(self->session->device, to, from, self->spec->operands[operand].bytes);
}

/* ---- making them ---- */

static bw_status fill_sets(bw_buffers *self) {
    const bw_choice *choice = self->choice;
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    int operands = self->spec->operand_count;
    int64_t set_bytes = choice->layout.set_bytes;
    for (int i = 0; i < operands; i++) BW_TRY(fill_operand(self, 0, i));
    /* Scratch that a kernel reads before it wrote it shows as NaN. */
    if (choice->scratch_bytes) BW_TRY(memory->poison(device, bw_buffers_at(self, 0, operands), choice->scratch_bytes));
    for (int64_t set = 1; set < self->set_count; set++) {
        BW_TRY(memory->duplicate(device, self->memory + set * set_bytes, self->memory, set_bytes));
    }
    return self->session->backend->devices->synchronize(device);
}

static void lay_out_launches(bw_buffers *self) {
    int operands = self->spec->operand_count;
    for (int64_t set = 0; set < self->set_count; set++) {
        bw_launch *launch = &self->launches[set];
        *launch = (bw_launch){.dims = &self->spec->dims,
                              .precision = self->spec->precision,
                              .scratch = self->choice->scratch_bytes ? bw_buffers_at(self, set, operands) : NULL,
                              .workspace = self->workspace,
                              .set = set,
                              .once = self->once,
                              .device = self->session->device};
        for (int i = 0; i < operands; i++) {
            launch->operand[i] = self->spec->operands[i].present ? bw_buffers_at(self, set, i) : NULL;
        }
    }
}

static bw_status allocate(bw_buffers *self) {
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    const bw_set_layout *layout = &self->choice->layout;
    void *sets = NULL;
    self->launches = calloc((size_t)self->set_count, sizeof *self->launches);
    if (!self->launches) return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " buffer sets", self->set_count);
    if (memory->allocate_sets) {
        BW_TRY(memory->allocate_sets(device, self->set_count, layout, &sets));
    } else {
        BW_TRY(memory->allocate(device, self->set_count * layout->set_bytes, &sets));
    }
    self->memory = sets;
    return self->choice->workspace_bytes ? memory->allocate(device, self->choice->workspace_bytes, &self->workspace)
                                         : BW_OK;
}

static bw_status prepare(bw_buffers *self) {
    const bw_variant *variant = self->choice->variant;
    if (variant->prepare) {
        BW_TRY(variant->prepare(self->launches, self->set_count, &self->state));
        for (int64_t set = 0; set < self->set_count; set++) self->launches[set].state = self->state;
    }
    self->prepared = true;
    return self->session->backend->devices->synchronize(self->session->device);
}

bw_status bw_buffers_make(const bw_choice *choice, int64_t sets, bool once, bw_buffers *out) {
    int64_t free_bytes, total_bytes, needed_bytes = bw_bytes_needed(choice, sets, 0);
    assert(sets >= 1 && !out->choice);
    /* Asked first: where memory is overcommitted an allocation that is too large succeeds, and kills the process later.
     */
    BW_TRY(memory_of(out)->ask(out->session->device, &free_bytes, &total_bytes));
    if (!bw_bytes_fit(needed_bytes, free_bytes)) return bw_bytes_refuse(out->spec, needed_bytes, free_bytes);
    out->choice = choice;
    out->set_count = sets;
    out->once = once;
    BW_TRY(allocate(out));
    lay_out_launches(out);
    BW_TRY(fill_sets(out));
    return prepare(out);
}

int64_t bw_buffers_bytes(const bw_buffers *self) {
    int64_t sets = self->memory ? self->set_count * self->choice->layout.set_bytes : 0;
    return sets + (self->workspace ? self->choice->workspace_bytes : 0);
}

void bw_buffers_release(bw_buffers *self) {
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    const bw_choice *choice = self->choice;
    if (self->prepared && choice->variant->release) choice->variant->release(self->state);
    if (self->memory) memory->release(device, self->memory, self->set_count * choice->layout.set_bytes);
    if (self->workspace) memory->release(device, self->workspace, choice->workspace_bytes);
    free(self->launches);
    *self = (bw_buffers){.session = self->session, .spec = self->spec};
}

/* ---- launches ---- */

bw_status bw_buffers_launch(const bw_buffers *self, int64_t set) {
    assert(self->prepared && set >= 0 && set < self->set_count);
    return self->choice->variant->launch(&self->launches[set]);
}

static bw_status run_launch(void *context, int64_t set, bool captured) {
    (void)captured;
    return bw_buffers_launch(context, set);
}

bw_work bw_buffers_work(bw_buffers *self) {
    const bw_context_calls *context = self->session->backend->context;
    return (bw_work){
        .run = run_launch, .context = self, .stream = context ? context->stream(self->session->device) : NULL};
}
