/* A case, put together: a problem on a device, the choice of what runs it, its buffers, its reference.
 *
 *   problem <- choice <- rotation, buffers;   problem <- reference;   buffers, reference <- verify;   all of them <-
 * case
 *
 * None of the parts knows a part to its right. One thread at a time works with a case (bw_session_enter); any other may
 * read its problem and its choice meanwhile: neither ever changes. */
#ifndef BW_MEASURE_CASE_CASE_H
#define BW_MEASURE_CASE_CASE_H

#include <stdatomic.h>

#include "measure/case/rotation.h"
#include "measure/case/verify.h"

enum { BW_CASE_NAME_SIZE = 256 };

typedef struct bw_case {
    bw_session *session;
    const bw_annotation_calls *annotations; /* NULL: no tool watches, or none should be told */
    char name[BW_CASE_NAME_SIZE];           /* for tools that watch; the operation's, until bw_case_set_label */
    const bw_case_spec *spec;
    const bw_choice *_Atomic choice; /* the present one (bw_case_choice): a step-down puts another in its place */
    bw_buffers buffers;
    bw_reference reference;
} bw_case;

/* Validates, chooses the variant (name NULL: the default), allocates nothing on the device. `dims` is complete
 * (bw_op_complete); its list is copied. */
bw_status bw_case_create(bw_session *session, int op_index, const bw_precision *precision, const bw_dims *dims,
                         const char *variant_name, uint64_t seed, bw_case **out);
void bw_case_free(bw_case *self); /* NULL is fine */

/* What tools that watch the process call it, of which the beginning is kept; NULL: they are told nothing of it. */
void bw_case_set_label(bw_case *self, const char *name);

/* Around what the calling thread does with it, for such a tool: "case", and inside "verify", "warmup", "counters". */
void bw_case_push(bw_case *self, const char *what);
void bw_case_pop(bw_case *self);

/* Around measured launches: "NAME PRECISION VARIANT", and inside "measure". Its texts are `name`'s and static. */
typedef struct bw_case_annotation {
    bw_annotation_stack ranges;
    char name[BW_CASE_NAME_SIZE + 128];
} bw_case_annotation;
void bw_case_annotate(bw_case *self, bw_case_annotation *out);

/* What runs now, for any thread; valid until the case is freed. */
const bw_choice *bw_case_choice(bw_case *self);

/* How many sets, and whether that fits: BW_CODE_MEMORY with needed and free bytes when even one set does not. */
bw_status bw_case_rotation(bw_case *self, bw_cache cache, bw_rotation *out, int64_t *needed_bytes, int64_t *free_bytes);

/* Allocates `sets` filled buffer sets and prepares the variant; does nothing when that is already so.
 * BW_CODE_MEMORY, before anything is allocated, when they do not fit. */
bw_status bw_case_ready(bw_case *self, int64_t sets);

/* The same with as many sets as there are, or one. */
bw_status bw_case_ready_any(bw_case *self);

/* The same with as many sets as the variant, once it is known which one runs, needs for this cache. */
bw_status bw_case_ready_for(bw_case *self, bw_cache cache, bw_rotation *out);

/* One plain launch on a set, waited for. */
bw_status bw_case_launch(bw_case *self, int64_t set);

/* One launch on the generated inputs, and not one more: nothing is launched to prepare it. */
bw_status bw_case_launch_once(bw_case *self);

/* One launch on the generated inputs, not waited for. */
bw_status bw_case_enqueue(bw_case *self);

/* By operand: `given` arrays (NULL: generated) take their places, one launch runs if `launch` says so, and operands go
 * into `out` (NULL: not wanted). */
typedef struct bw_case_arrays {
    const void *in[BW_MAX_OPERANDS];
    void *out[BW_MAX_OPERANDS];
    bool launch;
} bw_case_arrays;

bw_status bw_case_run(bw_case *self, const bw_case_arrays *arrays);

/* Compares set `set` as it stands; more rows are worked out where the budget is larger than before. */
bw_status bw_case_verify_set(bw_case *self, int64_t set, const bw_budget *budget, bw_verdict *out);

/* Generated inputs, poisoned outputs, one launch on set 0, then bw_case_verify_set. */
bw_status bw_case_verify(bw_case *self, const bw_budget *budget, bw_verdict *out);

/* The same, with a caller's outputs, by operand, in the place of the launch's (NULL: not given), which nobody needs
 * where all are given. */
bw_status bw_case_verify_outputs(bw_case *self, const void *const outputs[BW_MAX_OPERANDS], const bw_budget *budget,
                                 bw_verdict *out);

#endif
