/* Chooses a case's variant, works out its cost and its buffers' layout, and how many sets make it cold. */
#include "measure/case/choice.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"

enum {
    ALIGNMENT = 256,
    SETS_MAX = 2048,
    HOST_SETS_MAX = 256, /* where operands lie on the host: a graph of more copies takes longer to launch than to run */
    CACHE_FACTOR = 4,    /* a rotation touches, and a flush reads, this many times the cache */
    CACHE_FACTOR_LEAST = 2 /* with less than this the row is not called cold */
};

const char *bw_variant_refuses(const bw_variant *row, const bw_dims *dims, const bw_precision *precision,
                               const bw_device_facts *facts) {
    if (!bw_precision_in(row->precisions, precision)) return "not in this precision";
    return row->refuses ? row->refuses(dims, precision, facts) : NULL;
}

static bool is_passed_over(const bw_choice *before, const bw_variant *row) {
    while (before && before->variant != row) before = before->before;
    return before != NULL;
}

bw_status bw_variant_default(const bw_op *op, const bw_dims *dims, const bw_precision *precision, const bw_offer *offer,
                             const bw_choice *before, const bw_variant **out) {
    const bw_variant *chosen = NULL, *preferred = NULL;
    char reasons[768] = "";
    bool takes_precision = offer->table->count == 0;
    for (int i = 0; i < offer->table->count; i++) {
        const bw_variant *row = &offer->table->rows[i];
        takes_precision |= bw_precision_in(row->precisions, precision);
        if (is_passed_over(before, row)) continue;
        const char *refusal = bw_variant_refuses(row, dims, precision, offer->facts);
        if (refusal) {
            size_t used = strlen(reasons);
            snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", used ? "; " : "", row->name, refusal);
            continue;
        }
        chosen = row;
        if (row->prefers && row->prefers(dims, precision, offer->facts)) preferred = row;
    }
    if (!takes_precision) {
        return bw_fail(BW_CODE_UNSUPPORTED,
                       "%s in %s does not run on this device: no kernel takes this precision (its bytes and FLOPs are "
                       "known all the same: bwprof.cost, or a sweep's --dry-run)",
                       op->name, precision->name);
    }
    if (!chosen) {
        return bw_fail(BW_CODE_UNSUPPORTED, "%s in %s does not run on this device (%s)", op->name, precision->name,
                       reasons[0]    ? reasons
                       : op->is_link ? "it crosses a link between host and device: only a GPU has one"
                                     : "no kernels for it");
    }
    *out = preferred ? preferred : chosen;
    return BW_OK;
}

static const char *variant_name_at(const void *list, int index) {
    const bw_variant_table *table = list;
    return index < table->count ? table->rows[index].name : NULL;
}

bw_status bw_variant_find(const bw_op *op, const bw_variant_table *table, const char *name, const bw_variant **out) {
    char allowed[512];
    int index = bw_name_find(name, variant_name_at, table, allowed, sizeof allowed);
    if (index < 0)
        return bw_fail(BW_CODE_INVALID, "%s has no variant '%.200s': allowed are %s", op->name, name, allowed);
    *out = &table->rows[index];
    return BW_OK;
}

static bw_status variant_named(const bw_case_spec *spec, const bw_offer *offer, const char *name,
                               const bw_variant **out) {
    if (!offer->table->count) return bw_variant_default(spec->op, &spec->dims, spec->precision, offer, NULL, out);
    BW_TRY(bw_variant_find(spec->op, offer->table, name, out));
    const char *refusal = bw_variant_refuses(*out, &spec->dims, spec->precision, offer->facts);
    if (!refusal) return BW_OK;
    return bw_fail(BW_CODE_UNSUPPORTED, "%s: variant '%s' does not run this case in %s: %s", spec->op->name, name,
                   spec->precision->name, refusal);
}

bw_status bw_cost_of(const bw_op *op, const bw_variant *variant, const bw_dims *dims, const bw_precision *precision,
                     const bw_device_facts *facts, bw_cost *out) {
    BW_TRY(bw_op_cost(op, dims, precision, out));
    if (variant && variant->extra_cost) BW_TRY(variant->extra_cost(dims, precision, facts, out));
    if (!variant || !variant->scratch_bytes) return BW_OK;
    bw_checked_int footprint =
        bw_add(bw_num(out->footprint_bytes), bw_num(variant->scratch_bytes(dims, precision, facts)));
    if (footprint.overflow) {
        return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: operands and intermediates pass 2^63 bytes",
                       op->name);
    }
    out->footprint_bytes = footprint.value;
    return BW_OK;
}

static bw_checked_int align_up(bw_checked_int bytes) {
    bw_checked_int padded = bw_add(bytes, bw_num(ALIGNMENT - 1));
    padded.value -= padded.value % ALIGNMENT;
    return padded;
}

/* Operands of one memory, then so much of scratch. */
static bw_status lay_out(const bw_case_spec *spec, bool on_host, int64_t scratch_bytes, bw_set_layout *out) {
    bw_checked_int offset = bw_num(0);
    for (int i = 0; i < spec->operand_count; i++) {
        out->starts[i] = offset.value;
        if (spec->operands[i].on_host == on_host) offset = align_up(bw_add(offset, bw_num(spec->operands[i].bytes)));
    }
    bw_checked_int end = align_up(bw_add(offset, bw_num(scratch_bytes)));
    if (end.overflow || scratch_bytes < 0) {
        return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: one buffer set would be larger than 2^63 bytes",
                       spec->op->name);
    }
    out->starts[spec->operand_count] = offset.value;
    out->parts = spec->operand_count + 1;
    out->set_bytes = end.value;
    return BW_OK;
}

static bw_status work_out(bw_choice *self, const bw_case_spec *spec, const bw_device_facts *facts) {
    const bw_variant *variant = self->variant;
    const bw_dims *dims = &spec->dims;
    const bw_precision *precision = spec->precision;
    if (variant->scratch_bytes) self->scratch_bytes = variant->scratch_bytes(dims, precision, facts);
    if (variant->largest_scratch_bytes) self->scratch_bytes = variant->largest_scratch_bytes(dims, precision, facts);
    if (variant->workspace_bytes) self->workspace_bytes = variant->workspace_bytes(dims, precision, facts);
    if (self->workspace_bytes < 0) {
        return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: the workspace would be larger than 2^63 bytes",
                       spec->op->name);
    }
    BW_TRY(lay_out(spec, false, self->scratch_bytes, &self->layout));
    BW_TRY(lay_out(spec, true, 0, &self->host));
    return bw_cost_of(spec->op, variant, dims, precision, facts, &self->cost);
}

static bw_status create(const bw_case_spec *spec, const bw_offer *offer, const bw_variant *variant,
                        const bw_choice *before, const char *why, bool is_fixed, const bw_choice **out) {
    const char *note = before ? before->note : "", *name = before ? before->variant->name : "";
    size_t note_size = strlen(note) + strlen(why) + strlen(name) + 32;
    bw_choice *self = calloc(1, sizeof *self + note_size);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for a case");
    self->variant = variant;
    self->is_fixed = is_fixed;
    if (before) {
        snprintf(self->note, note_size, "%s%svariant %s passed over: %s", note, note[0] ? "; " : "", name, why);
    }
    bw_status status = work_out(self, spec, offer->facts);
    if (status) {
        free(self);
        return status;
    }
    self->before = before;
    *out = self;
    return BW_OK;
}

bw_status bw_choice_first(const bw_case_spec *spec, const bw_offer *offer, const char *name, const bw_choice **out) {
    const bw_variant *variant = NULL;
    BW_TRY(name ? variant_named(spec, offer, name, &variant)
                : bw_variant_default(spec->op, &spec->dims, spec->precision, offer, NULL, &variant));
    return create(spec, offer, variant, NULL, "", name != NULL, out);
}

bw_status bw_choice_next(const bw_case_spec *spec, const bw_offer *offer, const bw_choice *before, bw_status cause,
                         const bw_choice **out) {
    const bw_variant *variant = NULL;
    if (before->is_fixed || bw_status_code(cause) != BW_CODE_UNAVAILABLE) return cause;
    bw_status status = bw_variant_default(spec->op, &spec->dims, spec->precision, offer, before, &variant);
    if (status) {
        bw_status_free(status);
        return cause;
    }
    status = create(spec, offer, variant, before, bw_status_message(cause), false, out);
    bw_status_free(cause);
    return status;
}

bw_status bw_choice_renew(const bw_case_spec *spec, const bw_offer *offer, const bw_choice *before,
                          const bw_choice **out) {
    bw_choice *self = NULL;
    bw_cost cost;
    BW_TRY(bw_cost_of(spec->op, before->variant, &spec->dims, spec->precision, offer->facts, &cost));
    *out = before;
    if (cost.algorithmic_bytes_read == before->cost.algorithmic_bytes_read &&
        cost.algorithmic_bytes_written == before->cost.algorithmic_bytes_written &&
        cost.footprint_bytes == before->cost.footprint_bytes) {
        return BW_OK;
    }
    const size_t size = sizeof *self + strlen(before->note) + 1;
    self = malloc(size);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no host memory for a case");
    memcpy(self, before, size);
    self->before = before;
    self->cost = cost;
    *out = self;
    return BW_OK;
}

void bw_choice_free(const bw_choice *self) {
    while (self) {
        const bw_choice *before = self->before;
        free((void *)self);
        self = before;
    }
}

#define MEASURED "the cache counts as what the threads were measured to hold, less than is reported"

int64_t bw_bytes_needed(const bw_choice *choice, int64_t sets, int64_t flush_bytes) {
    bw_checked_int bytes =
        bw_add(bw_mul(bw_num(sets), bw_num(choice->layout.set_bytes)), bw_num(choice->workspace_bytes));
    bytes = bw_add(bytes, bw_num(flush_bytes));
    return bytes.overflow ? INT64_MAX : bytes.value;
}

bool bw_bytes_fit(int64_t needed_bytes, int64_t free_bytes) {
    return needed_bytes <= free_bytes - free_bytes / 32;
}

bw_status bw_bytes_check(const bw_case_spec *spec, int64_t needed_bytes, int64_t free_bytes) {
    if (bw_bytes_fit(needed_bytes, free_bytes)) return BW_OK;
    return bw_fail(BW_CODE_MEMORY, "%s needs %" PRId64 " bytes (%.2f GB), free are %" PRId64 " (%.2f GB)",
                   spec->op->name, needed_bytes, (double)needed_bytes * 1e-9, free_bytes, (double)free_bytes * 1e-9);
}

/* A flush makes up for a rotation that memory or the number of sets ends early. Large sets would leave few launches
 * to each flush: a rotation over at least twice the cache is preferred to that. */
static void rotate_cold(const bw_choice *choice, int64_t cache_bytes, int64_t usable_bytes, bw_rotation *out) {
    int64_t set_bytes = choice->layout.set_bytes, touched = bw_max64(1, choice->cost.footprint_bytes);
    int64_t wanted = bw_max64(1, bw_ceil_div(CACHE_FACTOR * cache_bytes, touched));
    const int64_t sets_max = choice->host.set_bytes ? HOST_SETS_MAX : SETS_MAX;
    int64_t most = bw_min64(wanted, sets_max);
    /* Rotation may take half of what is free: the rest is left to other programs. */
    int64_t budget = usable_bytes / 2 - choice->workspace_bytes;
    assert(set_bytes > 0);
    out->sets = bw_max64(1, bw_min64(most, budget / set_bytes));
    if (cache_bytes <= 0) {
        out->note = "the cache's size is unknown: the inputs may be in it";
        return;
    }
    out->cold = out->sets >= bw_min64(wanted, bw_ceil_div(CACHE_FACTOR_LEAST * cache_bytes, touched));
    if (out->sets >= wanted) return;

    int64_t flush_bytes = CACHE_FACTOR * cache_bytes;
    int64_t sets = bw_max64(1, bw_min64(most, (budget - flush_bytes) / set_bytes));
    bool too_small = out->sets == sets_max;
    if ((too_small || !out->cold) && bw_bytes_fit(bw_bytes_needed(choice, sets, flush_bytes), usable_bytes)) {
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

bw_rotation bw_rotation_of(const bw_choice *choice, bw_cache cache, const bw_device_facts *facts,
                           int64_t usable_bytes) {
    const int64_t cache_bytes = facts->cache_bytes;
    bw_rotation rotation = {.sets = 1, .note = ""};
    if (cache == BW_CACHE_COLD) rotate_cold(choice, cache_bytes, usable_bytes, &rotation);
    if (cache == BW_CACHE_FLUSHED) {
        rotation.flush_bytes = CACHE_FACTOR * cache_bytes;
        rotation.cold = rotation.flush_bytes > 0;
        rotation.note = rotation.cold ? "one set, flushed before each sample" : "the cache's size is unknown: no flush";
    }
    if (facts->cache_measured && rotation.cold && !*rotation.note) rotation.note = MEASURED;
    assert(rotation.sets >= 1 && rotation.flush_bytes >= 0);
    return rotation;
}

bw_rotation bw_rotation_of_call(int64_t sets, int64_t footprint_bytes, bw_cache cache, const bw_device_facts *facts,
                                int64_t usable_bytes) {
    bw_rotation rotation = {.sets = cache == BW_CACHE_COLD ? sets : 1, .note = ""};
    const int64_t wanted = CACHE_FACTOR * facts->cache_bytes;
    if (cache != BW_CACHE_COLD) return rotation;
    if (facts->cache_bytes <= 0) {
        rotation.note = "the cache's size is unknown: the inputs may be in it";
    } else if (footprint_bytes >= bw_ceil_div(wanted, sets)) {
        rotation.cold = true;
        if (facts->cache_measured) rotation.note = MEASURED;
    } else if (bw_bytes_fit(wanted, usable_bytes)) {
        rotation.cold = true;
        rotation.flush_bytes = wanted;
        rotation.note =
            facts->cache_measured ? "read flush before each call; " MEASURED : "read flush before each call";
    } else {
        rotation.note = "memory allows no flush: the inputs may be in the cache";
    }
    return rotation;
}
