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

bw_status bw_matrix_bytes(bw_dtype dtype, const bw_scaling *scaling, int64_t rows, int64_t columns, int64_t *out) {
    enum { PARTS = 4 };
    bw_operand parts[PARTS];
    parts[0] = bw_operand_make("values", BW_IN, dtype, BW_SHAPE(rows, columns));
    parts[0].row_elems = columns;
    bw_operand_scale_matrix((const char *const[]){"scales", "zero points", "scale"}, &parts[0], rows, columns, scaling,
                            &parts[1], &parts[2], &parts[3]);
    *out = 0;
    if (rows == 0 || columns == 0) return BW_OK;
    BW_TRY(bw_operand_measure("a matrix", parts, PARTS));
    for (int i = 0; i < PARTS; i++) *out += parts[i].bytes;
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
        case BW_RECIPE_HOST: op->host_input(dims, seed, index, out); break;
        case BW_RECIPE_LIST: fill_list(operand, dims, out); break;
        case BW_RECIPE_POSITIVE:
            for (int64_t i = 0; i < operand->elems; i++) store(operand->dtype, positive_value(operand, key, i), i, out);
            break;
        case BW_RECIPE_POISON: memset(out, 0xff, (size_t)operand->bytes); break;
    }
}

static bool serves(const bw_operand *scales, const bw_operand *operand) {
    return scales->present && scales->scale_of && strcmp(scales->scale_of, operand->name) == 0;
}

static int64_t padded_row(const bw_operand *operand) {
    const int block = bw_dtype_get(operand->dtype)->block_elems;
    return bw_ceil_div(operand->row_elems, block) * block;
}

bw_source bw_source_of(const bw_operand *operands, int count, int index, uint64_t seed) {
    const bw_operand *operand = &operands[index];
    bw_source source = {.operand = operand, .key = bw_input_key_make(seed, index), .padded = padded_row(operand)};
    int found = 0;
    for (int zeros = 1; zeros >= 0; zeros--) {
        for (int i = 0; i < count; i++) {
            if (!serves(&operands[i], operand) || operands[i].is_zero_point != (zeros == 1)) continue;
            source.scales[found] = &operands[i];
            source.scale_keys[found++] = bw_input_key_make(seed, i);
        }
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

/* Elements of the shape; `padded`: of a stored row. */
static void read_rows(const bw_operand *operand, bw_input_key key, int64_t padded, int64_t first, int64_t count,
                      double *out) {
    const int64_t row = operand->row_elems;
    for (int64_t done = 0, taken; done < count; done += taken) {
        int64_t at = first + done;
        taken = count - done;
        if (padded != row) {
            taken = bw_min64(taken, row - at % row);
            at = at / row * padded + at % row;
        }
        read_stretch(operand, key, at, taken, out + done);
    }
}

/* Scales, or zero points, of elements [first, first + count) of the matrix. */
static void apply_scales(const bw_operand *scales, bw_input_key key, int64_t first, int64_t count, double *out) {
    const int64_t columns = scales->columns, wide = bw_ceil_div(columns, scales->columns_each);
    for (int64_t done = 0; done < count;) {
        const int64_t row = (first + done) / columns, column = (first + done) % columns;
        const int64_t place = column / scales->columns_each;
        const int64_t end = bw_min64(columns, (place + 1) * scales->columns_each);
        const int64_t stop = bw_min64(count, done + end - column);
        double scale;
        read_rows(scales, key, padded_row(scales), row / scales->rows_each * wide + place, 1, &scale);
        for (; done < stop; done++) out[done] = scales->is_zero_point ? out[done] - scale : out[done] * scale;
    }
}

void bw_source_read(const bw_source *source, int64_t first, int64_t count, double *out) {
    read_rows(source->operand, source->key, source->padded, first, count, out);
    for (int i = 0; i < BW_SOURCE_SCALES && source->scales[i]; i++) {
        apply_scales(source->scales[i], source->scale_keys[i], first, count, out);
    }
}

/* Of numbers that are uniform from half of `value` up to it: their mean square is 7/12 of its square. */
static double positive_inverse_square(const bw_operand *operand) {
    return 12.0 / 7.0 / (operand->value * operand->value);
}

double bw_source_inverse_square(const bw_source *source) {
    const bw_operand *operand = source->operand;
    double result = operand->recipe == BW_RECIPE_HASH ? bw_dtype_get(operand->dtype)->inverse_square
                                                      : positive_inverse_square(operand);
    for (int i = 0; i < BW_SOURCE_SCALES && source->scales[i]; i++) {
        if (source->scales[i]->is_zero_point) {
            result *= 77.5 / 42.5; /* q and z uniform from 0 to 15: q q is 77.5 on average, (q - z) (q - z) is 42.5 */
        } else {
            result *= positive_inverse_square(source->scales[i]);
        }
    }
    return result;
}
