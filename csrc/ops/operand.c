/* Describes operands, generates their values, and reads them as float64 for reference rows. */
#include "ops/operand.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"

double bw_operand_scale(bw_dtype of) {
    return exp2(round(0.5 * log2(bw_dtype_get(of)->inverse_square / 3.0)));
}

int bw_operand_find(const bw_operand *operands, int count, const char *name) {
    for (int i = 0; i < count; i++) {
        if (operands[i].present && strcmp(operands[i].name, name) == 0) return i;
    }
    return -1;
}

static int64_t rows_of(const bw_operand *operand) {
    return operand->row_elems ? operand->elems / operand->row_elems : 1;
}

bw_status bw_operand_measure(const char *op_name, bw_operand *operands, int count) {
    bw_checked_int total = bw_num(0);
    for (int i = 0; i < count; i++) {
        bw_operand *operand = &operands[i];
        bw_checked_int elems = bw_num(operand->present ? 1 : 0);
        for (int axis = 0; axis < operand->rank; axis++) elems = bw_mul(elems, bw_num(operand->shape[axis]));
        operand->elems = elems.value;
        int64_t row = operand->row_elems ? operand->row_elems : elems.value;
        bw_checked_int bytes = elems.overflow ? elems : bw_num(bw_dtype_bytes(operand->dtype, row));
        if (!bytes.overflow) bytes = bytes.value < 0 ? bw_num(-1) : bw_mul(bytes, bw_num(rows_of(operand)));
        total = bw_add(total, bytes);
        if (bytes.overflow || bytes.value < 0 || total.overflow) {
            return bw_fail(BW_CODE_INVALID, "%s: these sizes overflow: operand %s would be larger than 2^63 bytes",
                           op_name, operand->name);
        }
        operand->bytes = bytes.value;
    }
    return BW_OK;
}

static void store(bw_dtype dtype, float value, int64_t index, void *out) {
    const bw_dtype_info *info = bw_dtype_get(dtype);
    info->encode_blocks(&value, 1, (char *)out + index * info->block_bytes);
}

/* Of BW_RECIPE_POSITIVE, whose types have blocks of one element. */
static float positive_value(const bw_operand *operand, bw_input_key key, int64_t index) {
    return (float)operand->value * 0.25f * (3.0f + bw_input_value(key, (uint64_t)index));
}

static void fill_list(const bw_operand *operand, const bw_dims *dims, void *out) {
    for (int64_t i = 0; i < operand->elems; i++) {
        if (operand->dtype == BW_I32) {
            ((int32_t *)out)[i] = (int32_t)dims->list[i];
        } else {
            ((int64_t *)out)[i] = dims->list[i];
        }
    }
}

void bw_operand_fill(const bw_op *op, const bw_dims *dims, uint64_t seed, const bw_operand *operand, int index,
                     void *out) {
    const bw_dtype_info *info = bw_dtype_get(operand->dtype);
    const bw_input_key key = bw_input_key_make(seed, index);
    switch (operand->recipe) {
        case BW_RECIPE_HASH: bw_input_fill(operand->dtype, key, 0, operand->bytes / info->block_bytes, out); break;
        case BW_RECIPE_HOST: op->host_input(dims, seed, out); break;
        case BW_RECIPE_LIST: fill_list(operand, dims, out); break;
        case BW_RECIPE_POSITIVE:
            for (int64_t i = 0; i < operand->elems; i++) store(operand->dtype, positive_value(operand, key, i), i, out);
            break;
        case BW_RECIPE_POISON: memset(out, 0xff, (size_t)operand->bytes); break;
    }
}

bw_source bw_source_of(const bw_operand *operands, int count, int index, uint64_t seed) {
    const bw_operand *operand = &operands[index];
    const int block = bw_dtype_get(operand->dtype)->block_elems;
    bw_source source = {.operand = operand,
                        .key = bw_input_key_make(seed, index),
                        .padded = bw_ceil_div(operand->row_elems, block) * block};
    for (int i = 0; i < count; i++) {
        const bw_operand *scales = &operands[i];
        if (!scales->present || !scales->scale_of || strcmp(scales->scale_of, operand->name) != 0) continue;
        source.scales = scales;
        source.scale_key = bw_input_key_make(seed, i);
    }
    return source;
}

/* Within a stored row. */
static void read_stretch(const bw_operand *operand, bw_input_key key, int64_t first, int64_t count, double *out) {
    if (operand->recipe == BW_RECIPE_HASH) {
        bw_input_doubles(operand->dtype, key, first, count, out);
        return;
    }
    const bw_dtype_info *info = bw_dtype_get(operand->dtype);
    char stored[BW_BLOCK_BYTES_MAX];
    for (int64_t i = 0; i < count; i++) {
        store(operand->dtype, positive_value(operand, key, first + i), 0, stored);
        info->decode_blocks(stored, 1, out + i);
    }
}

static void apply_scales(const bw_source *source, int64_t first, int64_t count, double *out) {
    const int64_t each = source->operand->elems / source->scales->elems;
    for (int64_t done = 0; done < count;) {
        const int64_t scaled = (first + done) / each;
        const int64_t end = bw_min64(count, (scaled + 1) * each - first);
        double scale;
        read_stretch(source->scales, source->scale_key, scaled, 1, &scale);
        for (; done < end; done++) out[done] *= scale;
    }
}

void bw_source_read(const bw_source *source, int64_t first, int64_t count, double *out) {
    const int64_t row = source->operand->row_elems;
    for (int64_t done = 0, taken; done < count; done += taken) {
        int64_t at = first + done;
        taken = count - done;
        if (source->padded != row) {
            taken = bw_min64(taken, row - at % row);
            at = at / row * source->padded + at % row;
        }
        read_stretch(source->operand, source->key, at, taken, out + done);
    }
    if (source->scales) apply_scales(source, first, count, out);
}

/* Of numbers that are uniform from half of `value` up to it: their mean square is 7/12 of its square. */
static double positive_inverse_square(const bw_operand *operand) {
    return 12.0 / 7.0 / (operand->value * operand->value);
}

double bw_source_inverse_square(const bw_source *source) {
    const bw_operand *operand = source->operand;
    double result = operand->recipe == BW_RECIPE_HASH ? bw_dtype_get(operand->dtype)->inverse_square
                                                      : positive_inverse_square(operand);
    if (source->scales) result *= positive_inverse_square(source->scales);
    return result;
}
