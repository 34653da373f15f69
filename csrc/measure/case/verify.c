/* Compares the outputs of a buffer set with the rows of the reference. */
#include "measure/case/verify.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    WHOLE_BYTES = 1 << 20, /* outputs up to this size are downloaded whole; of larger ones only the rows compared */
    BATCH_ROWS = 8192,     /* gathered at once ... */
    BATCH_BYTES = 1 << 23, /* ... while they are no more than this (a longer row goes alone) */
    DECODED_AT_ONCE = 2 * BW_BLOCK_ELEMS_MAX
};

/* The element, or row, whose error is the largest part of what it may be. */
typedef struct worst {
    double ratio, error, limit;
    int operand;
    int64_t index, count; /* count: elements of a row, 0 for a single element */
    double found, wanted;
} worst;

/* NaN never passes: an error that is not finite counts as infinite. */
static void weigh(worst one, worst *worst_yet) {
    if (!(one.error <= 1e300)) one.error = INFINITY;
    one.ratio = one.limit > 0.0 ? one.error / one.limit : one.error > 0.0 ? INFINITY : 0.0;
    if (one.ratio > worst_yet->ratio || (one.ratio == worst_yet->ratio && one.error > worst_yet->error)) {
        *worst_yet = one;
    }
}

/* What the mean of `freedom` squares of random errors may be where 1 is expected: beyond it lies less than e^-10 of a
 * sum of squares of normal variables (Laurent and Massart's bound). */
static double chance_limit(double freedom) {
    const double odds = 10.0;
    return 1.0 + 2.0 * sqrt(odds / freedom) + 2.0 * odds / freedom;
}

/* Elements from `first` on: DECODED_AT_ONCE, or as many as there are before `count`, in whole blocks of the type. */
static void decode(bw_dtype dtype, const char *data, int64_t first, int64_t count, double *out) {
    const bw_dtype_info *info = bw_dtype_get(dtype);
    const int64_t left = bw_min64(DECODED_AT_ONCE, count - first);
    info->decode_blocks(data + first / info->block_elems * info->block_bytes, bw_ceil_div(left, info->block_elems),
                        out);
}

static void compare_row(const bw_operand *operand, const bw_reference_row *row, const bw_tolerance *tolerance,
                        const char *data, worst *worst_yet) {
    double noise = tolerance->noise * row->scale, squares = 0.0, decoded[DECODED_AT_ONCE];
    for (int64_t i = 0; i < row->count; i++) {
        if (i % DECODED_AT_ONCE == 0) decode(operand->dtype, data, i, row->count, decoded);
        double found = decoded[i % DECODED_AT_ONCE], wanted = row->values[i];
        double distance = fabs(found - wanted);
        if (distance == 0.0) continue;
        double half_unit = tolerance->element > 0.0 ? bw_dtype_half_unit(operand->dtype, wanted) : 0.0;
        if (!(distance <= half_unit)) {
            weigh((worst){.error = (distance - half_unit) / fmax(fabs(wanted), row->scale),
                          .limit = tolerance->element,
                          .operand = row->operand,
                          .index = row->offset + i,
                          .found = found,
                          .wanted = wanted},
                  worst_yet);
        }
        if (noise > 0.0) squares += distance * distance / (noise * noise + half_unit * half_unit / 3.0);
    }
    if (!(noise > 0.0)) return;
    weigh((worst){.error = tolerance->noise * sqrt(squares / (double)row->count),
                  .limit = tolerance->noise * sqrt(chance_limit(row->freedom)),
                  .operand = row->operand,
                  .index = row->offset,
                  .count = row->count},
          worst_yet);
}

/* "D[3, 17]" */
static void name_element(const bw_operand *operand, int64_t index, char *out, size_t size) {
    int64_t coordinates[BW_MAX_RANK];
    for (int axis = operand->rank - 1; axis >= 0; axis--) {
        coordinates[axis] = index % operand->shape[axis];
        index /= operand->shape[axis];
    }
    int used = snprintf(out, size, "%s[", operand->name);
    for (int axis = 0; axis < operand->rank && used > 0 && (size_t)used < size; axis++) {
        used += snprintf(out + used, size - (size_t)used, "%s%" PRId64, axis ? ", " : "", coordinates[axis]);
    }
    if (used > 0 && (size_t)used < size) snprintf(out + used, size - (size_t)used, "]");
}

typedef struct comparison {
    const bw_case *content;
    int64_t set;
    bw_tolerance tolerance;
    worst worst_yet;
    char *whole[BW_MAX_OPERANDS]; /* outputs that are downloaded whole, each once */
    /* Rows of large outputs, fetched many at a time: one by one they would cost a transfer each. */
    bw_span spans[BATCH_ROWS];
    const bw_reference_row *rows[BATCH_ROWS];
    int64_t count, bytes, capacity;
    char *host;
} comparison;

static const bw_memory_calls *memory_of(const comparison *self) {
    return self->content->session->backend->memory;
}

static const bw_operand *operand_of(const comparison *self, const bw_reference_row *row) {
    const bw_operand *operand = &self->content->spec->operands[row->operand];
    assert(row->offset >= 0 && row->count >= 0 && row->offset + row->count <= operand->elems);
    return operand;
}

static bw_status compare_whole(comparison *self, const bw_reference_row *row) {
    const bw_operand *operand = operand_of(self, row);
    char **host = &self->whole[row->operand];
    if (!*host) {
        *host = malloc((size_t)operand->bytes);
        if (!*host) return bw_fail(BW_CODE_MEMORY, "no host memory to check %s", operand->name);
        const void *from = bw_case_address(self->content, self->set, row->operand);
        BW_TRY(memory_of(self)->download(self->content->session->device, *host, from, operand->bytes));
    }
    compare_row(operand, row, &self->tolerance, *host + bw_dtype_bytes(operand->dtype, row->offset), &self->worst_yet);
    return BW_OK;
}

static bw_status compare_batch(comparison *self) {
    if (!self->count) return BW_OK;
    if (self->bytes > self->capacity) {
        free(self->host);
        self->capacity = self->bytes;
        self->host = malloc((size_t)self->bytes);
        if (!self->host) {
            return bw_fail(BW_CODE_MEMORY, "no host memory to check %" PRId64 " bytes of output", self->bytes);
        }
    }
    BW_TRY(memory_of(self)->gather(self->content->session->device, self->spans, self->count, self->bytes, self->host));
    const char *host = self->host;
    for (int64_t i = 0; i < self->count; i++) {
        compare_row(operand_of(self, self->rows[i]), self->rows[i], &self->tolerance, host, &self->worst_yet);
        host += self->spans[i].bytes;
    }
    self->count = self->bytes = 0;
    return BW_OK;
}

static bw_status compare_gathered(comparison *self, const bw_reference_row *row) {
    const bw_dtype dtype = operand_of(self, row)->dtype;
    int64_t start = bw_dtype_bytes(dtype, row->offset), bytes = bw_dtype_bytes(dtype, row->count);
    if (self->count == BATCH_ROWS || self->bytes + bytes > BATCH_BYTES) BW_TRY(compare_batch(self));
    const char *from = bw_case_address(self->content, self->set, row->operand);
    self->spans[self->count] = (bw_span){from + start, bytes};
    self->rows[self->count++] = row;
    self->bytes += bytes;
    return BW_OK;
}

/* What has arrived on the host is read where it lies. */
static void compare_there(comparison *self, const bw_reference_row *row) {
    const bw_operand *operand = operand_of(self, row);
    const char *data = bw_case_address(self->content, self->set, row->operand);
    compare_row(operand, row, &self->tolerance, data + bw_dtype_bytes(operand->dtype, row->offset), &self->worst_yet);
}

static bw_status compare_rows(comparison *self, const bw_reference *reference) {
    bw_status status = BW_OK;
    for (int64_t i = 0; i < reference->count; i++) {
        const bw_reference_row *row = &reference->rows[i];
        const bw_operand *operand = operand_of(self, row);
        bool whole = operand->bytes <= WHOLE_BYTES;
        if (operand->on_host) {
            compare_there(self, row);
            continue;
        }
        BW_GOTO(whole ? compare_whole(self, row) : compare_gathered(self, row));
    }
    BW_GOTO(compare_batch(self));
cleanup:
    for (int i = 0; i < BW_MAX_OPERANDS; i++) free(self->whole[i]);
    free(self->host);
    return status;
}

static void say_why(const bw_case_spec *spec, const worst *worst, bw_verdict *out) {
    char element[128];
    name_element(&spec->operands[worst->operand], worst->index, element, sizeof element);
    if (worst->count) {
        snprintf(out->reason, sizeof out->reason,
                 "the row of %" PRId64
                 " elements from %s on differs from the reference by more than rounding explains "
                 "(root mean square %.3g of its typical size, tolerance %.3g)",
                 worst->count, element, worst->error, worst->limit);
    } else {
        snprintf(out->reason, sizeof out->reason, "%s is %.9g, the reference says %.9g (error %.3g, tolerance %.3g)",
                 element, worst->found, worst->wanted, worst->error, worst->limit);
    }
}

bw_status bw_case_verify_set(bw_case *self, int64_t set, const bw_budget *budget, bw_verdict *out) {
    const bw_case_spec *spec = self->spec;
    const bw_reference *reference = &self->reference;
    bool rounds_once = bw_case_choice(self)->variant->rounds_once;
    BW_TRY(bw_reference_extend(&self->reference, budget));
    comparison *comparison = calloc(1, sizeof *comparison);
    if (!comparison) return bw_fail(BW_CODE_MEMORY, "no host memory to check %s", spec->op->name);
    const worst *worst = &comparison->worst_yet;
    comparison->content = self;
    comparison->set = set;
    comparison->tolerance = spec->op->tolerance(&spec->dims, spec->precision, rounds_once);
    comparison->worst_yet.limit = comparison->tolerance.element;
    bw_status status = compare_rows(comparison, reference);
    *out = (bw_verdict){.verified = !status && worst->ratio <= 1.0,
                        .max_error = worst->error,
                        .tolerance = worst->limit,
                        .rows_checked = reference->count,
                        .rows_total = reference->total};
    if (!status && !out->verified) say_why(spec, worst, out);
    free(comparison);
    return status;
}
