/* Operands of an operation, the values that they hold when a case begins, and sums of them for reference rows. */
#pragma once

#include "ops/op.h"

/* Hashed where it is read, poisoned where it is only written; absent where dtype is BW_NONE. Inline, as costs of a
 * million shapes are worked out from operands. */
static inline bw_operand bw_operand_make(const char *name, bw_role role, bw_dtype dtype, int rank,
                                         const int64_t *shape) {
    bw_operand made = {.name = name,
                       .present = dtype != BW_NONE,
                       .role = role,
                       .dtype = dtype,
                       .recipe = role == BW_OUT ? BW_RECIPE_POISON : BW_RECIPE_HASH,
                       .rank = rank};
    for (int axis = 0; axis < rank; axis++) made.shape[axis] = shape[axis];
    return made;
}
#define BW_SHAPE(...)                                                              \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { \
        __VA_ARGS__                                                                \
    }

/* What the scales of elements of a type are about: a power of two, so that scaled elements have about the mean square
 * of values in [-1, 1). */
double bw_operand_scale(bw_dtype of);

/* The scales of `of`, a matrix of so many columns: numbers that make elements of about 1 of its generated ones. Absent
 * where `scaling` has none. `shape` is theirs. */
static inline bw_operand bw_operand_scales(const char *name, const bw_operand *of, int64_t columns,
                                           const bw_scaling *scaling, int rank, const int64_t *shape) {
    bw_operand made = bw_operand_make(name, of->role, scaling->type, rank, shape);
    if (made.recipe == BW_RECIPE_HASH) made.recipe = BW_RECIPE_POSITIVE;
    if (made.present) made.value = bw_operand_scale(of->dtype);
    made.scale_of = of->name;
    made.columns = columns;
    made.rows_each = scaling->rows ? scaling->rows : INT64_MAX;
    made.columns_each = scaling->columns ? scaling->columns : columns;
    return made;
}

/* What a matrix of rows and columns has beside it: scales, zero points, and a scale for the whole; `names` in that
 * order, NULL where it cannot have such. */
static inline void bw_operand_scale_matrix(const char *const names[3], const bw_operand *of, int64_t rows,
                                           int64_t columns, const bw_scaling *scaling, bw_operand *scales,
                                           bw_operand *zeros, bw_operand *whole) {
    const int64_t high = scaling->rows ? bw_ceil_div(rows, scaling->rows) : 1;
    const int64_t wide = scaling->columns ? bw_ceil_div(columns, scaling->columns) : 1;
    *scales = bw_operand_scales(names[0], of, columns, scaling, scaling->columns ? 2 : 1, (int64_t[]){high, wide});
    *zeros = *scales;
    zeros->name = names[1];
    zeros->dtype = scaling->zero;
    zeros->present = scaling->zero != BW_NONE;
    zeros->recipe = BW_RECIPE_HASH;
    zeros->row_elems = wide;
    zeros->is_zero_point = true;
    *whole = bw_operand_scales(names[2], of, columns, &(bw_scaling){.type = scaling->whole}, BW_SHAPE(1));
    whole->value = 1.0;
}

/* Whole numbers of a range: a list of the caller's, or what the operation's host_input makes. */
static inline bw_operand bw_operand_indices(const char *name, bw_recipe recipe, bw_dtype dtype, int64_t minimum,
                                            int64_t maximum, int rank, const int64_t *shape) {
    bw_operand made = bw_operand_make(name, BW_IN, dtype, rank, shape);
    made.recipe = recipe;
    made.minimum = minimum;
    made.maximum = maximum;
    return made;
}

/* Fills in the sizes; fails when one overflows. */
bw_status bw_operand_measure(const char *op_name, bw_operand *operands, int count);

/* A generated operand as numbers, scaled where it has scales: what reference rows are worked out from. */
enum { BW_SOURCE_SCALES = 3 };
typedef struct bw_source {
    const bw_operand *operand, *scales[BW_SOURCE_SCALES]; /* zero points first; NULL: there are no more */
    bw_input_key key, scale_keys[BW_SOURCE_SCALES];
    int64_t padded; /* elements of a stored row */
} bw_source;

bw_source bw_source_of(const bw_operand *operands, int count, int index, uint64_t seed);
void bw_source_read(const bw_source *source, int64_t first, int64_t count, double *out); /* elements of the shape */

/* 1 over the mean square of such numbers: 3, exactly, where they are uniform in [-1, 1). */
double bw_source_inverse_square(const bw_source *source);

/* ---- reference rows ---- */

/* In several sums, which a processor adds to side by side. */
static inline double bw_dot(const double *a, const double *b, int64_t count) {
    enum { SUMS = 8 };
    double sum[SUMS] = {0.0};
    int64_t i = 0;
    for (; i + SUMS <= count; i += SUMS) {
        for (int j = 0; j < SUMS; j++) sum[j] += a[i + j] * b[i + j];
    }
    for (; i < count; i++) sum[0] += a[i] * b[i];
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

static inline void bw_add_scaled(double *to, double factor, const double *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] += factor * from[i];
}

/* Of moves. */
static inline bw_tolerance bw_tolerance_exact(const bw_dims *dims, const bw_precision *precision, bool rounds_once) {
    (void)dims, (void)precision, (void)rounds_once;
    return (bw_tolerance){0.0, 0.0};
}
