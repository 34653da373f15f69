/* A case: its specification on a device, the choice of a variant, buffer sets, and a reference. One thread at a time
 * works with a case (bw_session_enter); any other may read its spec and its choice meanwhile: neither ever changes. */
#pragma once

#include "measure/case/verify.h"

/* Validates, chooses the variant (name NULL: the default), allocates nothing on the device. `dims` is complete
 * (bw_op_complete); its list is copied. */
bw_status bw_case_create(bw_session *session, int op_index, const bw_precision *precision, const bw_dims *dims,
                         const char *variant_name, uint64_t seed, bw_case **out);
void bw_case_free(bw_case *self); /* NULL is fine */

/* ---- for profiling tools ---- */

/* The name of the case, shortened to BW_CASE_NAME_SIZE; NULL: the case is hidden from them. */
void bw_case_set_label(bw_case *self, const char *label);

/* A range around work of the calling thread: "case", and inside it "verify", "warmup", "counters". */
void bw_case_push(bw_case *self, const char *what);
void bw_case_pop(bw_case *self);

/* The ranges around measured launches: "LABEL PRECISION VARIANT", and "measure" inside it. */
typedef struct bw_case_annotation {
    bw_annotation_stack ranges;
    char name[BW_CASE_NAME_SIZE + 128];
} bw_case_annotation;
void bw_case_annotate(bw_case *self, bw_case_annotation *out);

/* How many sets, and whether that fits: BW_CODE_MEMORY with needed and free bytes when even one set does not. */
bw_status bw_case_rotation(bw_case *self, bw_cache cache, bw_rotation *out, int64_t *needed_bytes, int64_t *free_bytes);

/* bw_case_make_buffers, unless that is already so; another variant steps in for a default that is not available. */
bw_status bw_case_ready(bw_case *self, int64_t sets);
/* The same with as many sets as there are, or one. */
bw_status bw_case_ready_any(bw_case *self);
/* The same with as many sets as the variant, once it is known which one runs, needs for this cache. */
bw_status bw_case_ready_for(bw_case *self, bw_cache cache, bw_rotation *out);

/* One launch on the generated inputs, and not one more: nothing but what fills its buffers is launched before it. */
bw_status bw_case_launch_once(bw_case *self);
/* One launch on the generated inputs, not waited for. */
bw_status bw_case_enqueue(bw_case *self);

/* By operand. `in`: arrays that replace the generated ones (NULL: generated). `launch`: whether one launch runs. `out`:
 * where operands are copied to afterwards (NULL: not wanted). */
typedef struct bw_case_arrays {
    const void *in[BW_MAX_OPERANDS];
    void *out[BW_MAX_OPERANDS];
    bool launch;
} bw_case_arrays;

bw_status bw_case_run(bw_case *self, const bw_case_arrays *arrays);

/* Generated inputs, poisoned outputs, one launch on set 0, then bw_case_verify_set. `outputs` NULL or, by operand, a
 * caller's outputs instead of the launch's (NULL: the launch's): nothing is launched where there is one for each. */
bw_status bw_case_verify(bw_case *self, const void *const *outputs, const bw_budget *budget, bw_verdict *out);
