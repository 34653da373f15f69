/* An operation's descriptor: parameters, validation, operands, FLOPs, inputs, reference, tolerance. Everything but how
 * to run it stands here alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/checked.h"
#include "base/status.h"
#include "base/types/precision.h"

enum { BW_MAX_PARAMS = 10, BW_MAX_OPERANDS = 10, BW_MAX_RANK = 4 };

/* What a parameter is by default where the caller gives the operation's list (bw_op.list). */
typedef enum bw_from_list { BW_FROM_NOTHING, BW_FROM_COUNT, BW_FROM_LARGEST } bw_from_list;

typedef struct bw_param {
    const char *name; /* also the result's column */
    const char *unit; /* "elements", "tokens", "heads", "" for a switch */
    const char *text;
    int64_t fallback;          /* the default, unless fallback_from is set */
    const char *fallback_from; /* an earlier parameter whose value is the default */
    int64_t minimum, maximum;  /* inclusive */
    int64_t small;             /* for tests: valid with the small values of the others; of no tile's size */
    bw_from_list from_list;
} bw_param;

/* A row of an operation's parameters; after the range come other fields by name. */
#define BW_PARAM(name_, unit_, text_, minimum_, maximum_, ...) \
    { .name = name_, .unit = unit_, .text = text_, .minimum = minimum_, .maximum = maximum_, __VA_ARGS__ }

/* An operation's parameters in its descriptor's order, and the list that it may be given (bw_op.list): NULL where it
 * is not. The array is borrowed. */
typedef struct bw_dims {
    int64_t value[BW_MAX_PARAMS];
    const int64_t *list;
    int64_t list_count;
    const struct bw_op *op; /* bw_op_complete sets it */
} bw_dims;

/* The cost as text: expressions in the parameters' names, e_activation, e_weight, e_cache and e_result (bytes of an
 * element of that role, 0 where the precision has none; e_cache then is e_activation), activation_scales(rows,
 * columns), weight_scales and cache_scales (bytes of the scales and zero points of such a matrix), and keys: batch *
 * kv_len, or the sum of kv_lens. */
typedef struct bw_formula {
    const char *bytes_read, *bytes_written, *flops;
} bw_formula;

/* Compulsory traffic (each operand moved once) and what a variant's intermediates move on top of it. */
typedef struct bw_cost {
    int64_t bytes_read, bytes_written, flops;
    int64_t algorithmic_bytes_read, algorithmic_bytes_written; /* never below the compulsory bytes */
    int64_t footprint_bytes; /* distinct bytes of one launch, intermediates included */
} bw_cost;

/* A measurement repeats a launch: what it writes to a BW_INOUT operand must be the same each time. */
typedef enum bw_role { BW_IN, BW_OUT, BW_INOUT } bw_role;

typedef enum bw_recipe {
    BW_RECIPE_HASH,     /* bw_input_fill of (seed, operand, element): the only one that a backend fills by itself */
    BW_RECIPE_HOST,     /* small integers that the descriptor's host_input writes; uploaded */
    BW_RECIPE_LIST,     /* the list that the caller gave: as many whole numbers as there are elements; uploaded */
    BW_RECIPE_POSITIVE, /* hashed values, uniform from half of `value` up to it: scales; uploaded */
    BW_RECIPE_POISON    /* outputs: all bits set (a NaN in every float type) until a kernel writes them */
} bw_recipe;

typedef struct bw_operand {
    const char *name;
    bool present; /* absent operands keep their place: those after them keep their numbers, hence their inputs */
    bool on_host; /* it lies in the host's memory, not in the device's */
    bw_role role;
    bw_dtype dtype;
    bw_recipe recipe;
    int rank;
    int64_t shape[BW_MAX_RANK]; /* row-major */
    int64_t row_elems;          /* so many elements begin with a block of their own; 0: all lie behind each other */
    /* Of scales and zero points: the operand that they serve (NULL = none), a matrix of so many columns; how many rows
     * and columns of it each serves; whether they are subtracted, before scales multiply. */
    const char *scale_of;
    int64_t columns, rows_each, columns_each;
    bool is_zero_point;
    double value;             /* BW_RECIPE_POSITIVE */
    int64_t minimum, maximum; /* BW_RECIPE_HOST, BW_RECIPE_LIST: what an element may be */
    int64_t moved;            /* elements that the cost counts; 0: all of them, < 0: none (lengths, checksums) */
    int64_t elems, bytes;     /* from the shape and the type, filled by bw_op_operands; 0 of an absent one */
} bw_operand;

/* One stretch of output, as the reference works it out: `count` elements of operand `operand` from `offset` on. */
typedef struct bw_reference_row {
    int operand;
    int64_t offset, count;
    double scale;   /* the typical size (root mean square) of such values */
    double freedom; /* where rows are bounded (bw_tolerance): of how many independent errors such a row's are made */
    double *values; /* room for bw_rows.elems */
} bw_reference_row;

/* How far a right kernel's output o may lie from the reference r, whose half unit in the last place is h.
 * - Each element: |o - r| <= h + element * max(|r|, scale), so that a value near zero is not asked for a precision that
 *   its summands cannot give, nor allowed the rounding of a large one. 0 asks for equality (moves).
 * - Where intermediate results are rounded too, each element's error is a sum of many small ones, large in some
 * elements by chance, and one wrong summand among thousands hides among them. A row's mean square does not vary as
 * much: `noise` is the root mean square of these errors, relative to the scale, and the mean over the row of (o - r)^2
 * / ((noise * scale)^2 + h^2 / 3) may pass 1 by no more than chance allows. 0: rows are not bounded. */
typedef struct bw_tolerance {
    double element, noise;
} bw_tolerance;

/* How the output divides into rows that can be worked out one by one. */
typedef struct bw_rows {
    int64_t count; /* rows in all */
    int64_t elems; /* elements in the longest row */
    int64_t line;  /* so many rows make one line of the output: gives the sample its corners */
    int64_t focus; /* rows [0, focus) are drawn as often as all rows together; 0 = draw evenly */
    int64_t parts; /* so many rows from a multiple of it on are one token or stretch: each of these is looked at once
                    * before any is a second time; 0 = 1 */
} bw_rows;

typedef struct bw_op {
    const char *name;
    const char *family; /* the file's name: stream, gemm, attention, kv */
    const char *text;
    const bw_param *params;
    int param_count;
    unsigned precisions; /* BW_MASK(...) */
    bw_formula formula;  /* what bw_op_cost works out */
    const char *list;    /* the operand (BW_RECIPE_LIST) that a caller may give as a list of lengths; NULL = none */
    bool is_stream;      /* one of the four streams that the roofs are made of */
    bool is_link;        /* its bytes cross the link between host and device, which is its roof */
    bool is_product; /* the one whose best rate is the measured arithmetic roof; its parameters with a unit are sizes */

    /* Works out parameters whose value 0 asks for it. NULL: there are none. */
    void (*settle)(bw_dims *dims);
    /* Rules between parameters; single ranges are checked already. NULL: none. Messages name the parameter, its
     * value and what is allowed. */
    bw_status (*validate)(const bw_dims *dims);
    bw_checked_int (*flops)(const bw_dims *dims); /* NULL: none, as it moves data or converts types */
    /* The operands in the order of bw_launch.operand; shapes only, bw_op_operands adds the sizes. */
    int (*operands)(const bw_dims *dims, const bw_precision *precision, bw_operand out[BW_MAX_OPERANDS]);
    /* Writes all of a BW_RECIPE_HOST operand. */
    void (*host_input)(const bw_dims *dims, uint64_t seed, int operand, void *out);
    bw_rows (*rows)(const bw_dims *dims, const bw_precision *precision);
    /* Row `row` in float64 from the same rounded inputs. */
    bw_status (*reference)(const bw_dims *dims, const bw_precision *precision, uint64_t seed, int64_t row,
                           bw_reference_row *out);
    /* `rounds_once`: the result's rounding is the only one to the precision (bw_variant). */
    bw_tolerance (*tolerance)(const bw_dims *dims, const bw_precision *precision, bool rounds_once);
} bw_op;

/* An operation, its parameters, its precision, and the seed of its inputs. It never changes, so that any thread may
 * read it. */
typedef struct bw_case_spec {
    int op_index;
    const bw_op *op;
    const bw_precision *precision;
    bw_dims dims; /* its list is the copy below */
    uint64_t seed;
    bw_operand operands[BW_MAX_OPERANDS];
    int operand_count;
    int64_t list[];
} bw_case_spec;

/* The registry, in the list's order. */
int bw_op_count(void);
const bw_op *bw_op_at(int index);
bw_status bw_op_find(const char *name, int *out);

int bw_op_param_index(const bw_op *op, const char *name); /* -1: no such parameter */

/* dims->op, defaults for the parameters that `present` (a bit per parameter) leaves out, then every check: ranges, the
 * list, the operation's own rules, sizes that would overflow. */
bw_status bw_op_complete(const bw_op *op, const bw_precision *precision, unsigned present, bw_dims *dims);

/* What the operands move and the FLOPs; algorithmic = compulsory here. Fails when a sum overflows. */
bw_status bw_op_cost(const bw_op *op, const bw_dims *dims, const bw_precision *precision, bw_cost *out);

/* Bytes of a matrix with its scales; fails when they overflow. */
bw_status bw_matrix_bytes(bw_dtype dtype, const bw_scaling *scaling, int64_t rows, int64_t columns, int64_t *out);

/* Of the present ones; -1: there is none of this name. */
int bw_operand_find(const bw_operand *operands, int count, const char *name);

/* Whether a caller's elements are checked: they index memory, or are the list that the case was made with. */
static inline bool bw_operand_ranged(const bw_operand *operand) {
    return operand->recipe == BW_RECIPE_HOST || operand->recipe == BW_RECIPE_LIST;
}

/* The stored bits with which operand `index` begins. */
void bw_operand_fill(const bw_op *op, const bw_dims *dims, uint64_t seed, const bw_operand *operand, int index,
                     void *out);

/* Operands with their sizes, absent ones among them; fails when one overflows. */
bw_status bw_op_operands(const bw_op *op, const bw_dims *dims, const bw_precision *precision,
                         bw_operand out[BW_MAX_OPERANDS], int *count);

/* Adds intermediates that a variant writes once and reads once. */
static inline bw_status bw_cost_add_intermediates(bw_checked_int bytes, bw_cost *cost) {
    bw_checked_int read = bw_add(bw_num(cost->algorithmic_bytes_read), bytes);
    bw_checked_int written = bw_add(bw_num(cost->algorithmic_bytes_written), bytes);
    if (read.overflow || written.overflow) {
        return bw_fail(BW_CODE_INVALID, "these sizes overflow: the variant's intermediates pass 2^63 bytes");
    }
    cost->algorithmic_bytes_read = read.value;
    cost->algorithmic_bytes_written = written.value;
    return BW_OK;
}
