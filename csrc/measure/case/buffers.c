/* Allocates, fills and resets a case's buffer sets, and launches its variant on them. */
#include "measure/case/buffers.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const bw_memory_calls *memory_of(const bw_case *self) {
    return self->session->backend->memory;
}

void *bw_case_address(const bw_case *self, int64_t set, int operand) {
    const bw_choice *choice = bw_case_choice(self);
    assert(set >= 0 && set < self->buffers.set_count && operand >= 0 && operand <= self->spec->operand_count);
    if (operand < self->spec->operand_count && self->spec->operands[operand].on_host) {
        return self->buffers.host + set * choice->host.set_bytes + choice->host.starts[operand];
    }
    return self->buffers.memory + set * choice->layout.set_bytes + choice->layout.starts[operand];
}

static bw_status fill_operand(const bw_case *self, int64_t set, int index) {
    const bw_case_spec *spec = self->spec;
    const bw_operand *operand = &spec->operands[index];
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    void *to = bw_case_address(self, set, index);
    if (!operand->present) return BW_OK;
    if (operand->on_host) {
        BW_TRY(self->session->backend->devices->synchronize(device)); /* no launch writes there any more */
        bw_operand_fill(spec->op, &spec->dims, spec->seed, operand, index, to);
        return BW_OK;
    }
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

/* What launches read in another form, made anew. */
static bw_status transform(bw_case *self, int64_t set) {
    const bw_variant *variant = bw_case_choice(self)->variant;
    return variant->transform ? variant->transform(&self->buffers.launches[set]) : BW_OK;
}

bw_status bw_case_reset(bw_case *self, int64_t set) {
    const bool renews = set == 0 && self->buffers.own_inputs;
    for (int i = 0; i < self->spec->operand_count; i++) {
        if (self->spec->operands[i].role == BW_IN && !renews) continue;
        BW_TRY(fill_operand(self, set, i));
    }
    if (set == 0) self->buffers.own_inputs = false;
    return renews ? transform(self, set) : BW_OK;
}

bw_status bw_case_write(bw_case *self, int operand, const void *from) {
    const bw_operand *what = &self->spec->operands[operand];
    void *to = bw_case_address(self, 0, operand);
    if (what->role != BW_OUT) self->buffers.own_inputs = true;
    if (what->on_host) {
        BW_TRY(self->session->backend->devices->synchronize(self->session->device));
        memcpy(to, from, (size_t)what->bytes);
    } else {
        BW_TRY(memory_of(self)->upload(self->session->device, to, from, what->bytes));
    }
    return what->role != BW_OUT ? transform(self, 0) : BW_OK;
}

bw_status bw_case_read(const bw_case *self, int operand, void *to) {
    const bw_operand *what = &self->spec->operands[operand];
    const void *from = bw_case_address(self, 0, operand);
    if (!what->on_host) return memory_of(self)->download(self->session->device, to, from, what->bytes);
    BW_TRY(self->session->backend->devices->synchronize(self->session->device));
    memcpy(to, from, (size_t)what->bytes);
    return BW_OK;
}

static bw_status fill_sets(bw_case *self) {
    const bw_choice *choice = bw_case_choice(self);
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    char *first = self->buffers.memory;
    int operands = self->spec->operand_count;
    int64_t set_bytes = choice->layout.set_bytes, host_bytes = choice->host.set_bytes;
    for (int i = 0; i < operands; i++) BW_TRY(fill_operand(self, 0, i));
    /* Scratch that a kernel reads before it wrote it shows as NaN. */
    if (choice->scratch_bytes)
        BW_TRY(memory->poison(device, first + choice->layout.starts[operands], choice->scratch_bytes));
    for (int64_t set = 1; set < self->buffers.set_count; set++) {
        BW_TRY(memory->duplicate(device, first + set * set_bytes, first, set_bytes));
        if (host_bytes) memcpy(self->buffers.host + set * host_bytes, self->buffers.host, (size_t)host_bytes);
    }
    return self->session->backend->devices->synchronize(device);
}

static void lay_out_launches(bw_case *self) {
    int operands = self->spec->operand_count;
    bool has_scratch = bw_case_choice(self)->scratch_bytes;
    for (int64_t set = 0; set < self->buffers.set_count; set++) {
        bw_launch *launch = &self->buffers.launches[set];
        *launch = (bw_launch){.dims = &self->spec->dims,
                              .precision = self->spec->precision,
                              .scratch = has_scratch ? bw_case_address(self, set, operands) : NULL,
                              .workspace = self->buffers.workspace,
                              .set = set,
                              .once = self->buffers.once,
                              .device = self->session->device};
        for (int i = 0; i < operands; i++) {
            launch->operand[i] = self->spec->operands[i].present ? bw_case_address(self, set, i) : NULL;
        }
    }
}

static bw_status allocate(bw_case *self) {
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    bw_buffers *buffers = &self->buffers;
    const bw_choice *choice = bw_case_choice(self);
    int64_t sets = buffers->set_count;
    void *all = NULL;
    buffers->launches = calloc((size_t)sets, sizeof *buffers->launches);
    if (!buffers->launches) return bw_fail(BW_CODE_MEMORY, "no host memory for %" PRId64 " buffer sets", sets);
    BW_TRY(memory->allocate_sets ? memory->allocate_sets(device, sets, &choice->layout, &all)
                                 : memory->allocate(device, sets * choice->layout.set_bytes, &all));
    buffers->memory = all;
    if (choice->host.set_bytes) {
        BW_TRY(memory->allocate_host(device, sets * choice->host.set_bytes, choice->variant->pageable, &all));
        buffers->host = all;
    }
    return choice->workspace_bytes ? memory->allocate(device, choice->workspace_bytes, &buffers->workspace) : BW_OK;
}

static bw_status prepare(bw_case *self) {
    const bw_variant *variant = bw_case_choice(self)->variant;
    bw_buffers *buffers = &self->buffers;
    for (int64_t set = 0; set < buffers->set_count; set++) BW_TRY(transform(self, set));
    if (variant->prepare) {
        BW_TRY(variant->prepare(buffers->launches, buffers->set_count, &buffers->state));
        for (int64_t set = 0; set < buffers->set_count; set++) buffers->launches[set].state = buffers->state;
    }
    buffers->prepared = true;
    return self->session->backend->devices->synchronize(self->session->device);
}

bw_status bw_case_make_buffers(bw_case *self, int64_t sets, bool once) {
    int64_t free_bytes, total_bytes;
    assert(sets >= 1 && !self->buffers.launches);
    /* Asked first: where memory is overcommitted too large an allocation succeeds, and kills the process later. */
    BW_TRY(memory_of(self)->ask(self->session->device, &free_bytes, &total_bytes));
    BW_TRY(bw_bytes_check(self->spec, bw_bytes_needed(bw_case_choice(self), sets, 0), free_bytes));
    self->buffers = (bw_buffers){.set_count = sets, .once = once};
    BW_TRY(allocate(self));
    lay_out_launches(self);
    BW_TRY(fill_sets(self));
    return prepare(self);
}

void bw_case_release_buffers(bw_case *self) {
    const bw_memory_calls *memory = memory_of(self);
    bw_device *device = self->session->device;
    const bw_buffers *buffers = &self->buffers;
    const bw_choice *choice = bw_case_choice(self);
    if (buffers->prepared && choice->variant->release) choice->variant->release(buffers->state);
    if (buffers->memory) memory->release(device, buffers->memory, buffers->set_count * choice->layout.set_bytes);
    if (buffers->host) memory->release_host(device, buffers->host, choice->variant->pageable);
    if (buffers->workspace) memory->release(device, buffers->workspace, choice->workspace_bytes);
    free(buffers->launches);
    self->buffers = (bw_buffers){0};
}

bw_status bw_case_enqueue_set(const bw_case *self, int64_t set) {
    assert(self->buffers.prepared && set >= 0 && set < self->buffers.set_count);
    return bw_case_choice(self)->variant->launch(&self->buffers.launches[set]);
}

static bw_status run_launch(void *context, int64_t set, bool captured) {
    (void)captured;
    return bw_case_enqueue_set(context, set);
}

bw_work bw_case_work(bw_case *self) {
    const bw_context_calls *context = self->session->backend->context;
    return (bw_work){.run = run_launch,
                     .context = self,
                     .stream = context ? context->stream(self->session->device) : NULL,
                     .on_host = bw_case_choice(self)->variant->pageable};
}

static bw_status run_transform(void *context, int64_t set, bool captured) {
    (void)captured;
    return transform(context, set);
}

bw_work bw_case_transforms(bw_case *self) {
    bw_work work = bw_case_work(self);
    work.run = bw_case_choice(self)->variant->transform ? run_transform : NULL;
    return work;
}
