/* A case: one operation with all its parameters, precision, device and variant, and the buffer sets it runs on. */
#ifndef BW_MEASURE_CASE_H
#define BW_MEASURE_CASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "measure/session.h"
#include "ops/op.h"

/* FLUSHED: one set, driven out of the cache before every sample, a single launch. Cold, but each sample's writes stay
 * behind for the flush: rotation is better wherever there is memory for it. */
typedef enum bw_cache { BW_CACHE_COLD, BW_CACHE_HOT, BW_CACHE_FLUSHED } bw_cache;

enum { BW_COLD_CACHE_FACTOR = 4 }; /* a rotation touches, and a flush reads, this many times the cache */

/* How a case's inputs are found cold (or hot). */
typedef struct bw_rotation {
    int64_t sets;
    int64_t flush_bytes; /* read before each replay because the sets alone do not drive the inputs out; 0 = none */
    bool cold;           /* false for a hot case, and where memory allows neither rotation nor flush */
    const char *note;    /* static text; "" = plain rotation */
} bw_rotation;

typedef struct bw_expected bw_expected; /* the sampled reference rows (measure/verify.c) */
void bw_expected_free(bw_expected *expected);

/* The variant that runs and what follows from it, all of one moment. Never changed; kept until the case is freed. */
typedef struct bw_case_view {
    const struct bw_case_view *before; /* of the variant that this one stepped in for; NULL = of the first */
    const bw_variant *variant;
    bw_cost cost;
    int64_t workspace_bytes, set_bytes;
    char note[]; /* why defaults were passed over; "" = none was */
} bw_case_view;

/* One thread at a time works with a case (bw_session_enter); any other may look at it meanwhile with bw_case_look. */
typedef struct bw_case {
    bw_session *session;
    int op_index;
    const bw_op *op;
    const bw_precision *precision;
    bw_dims dims;
    int64_t *kv_lens; /* owned copy behind dims.kv_lens */
    uint64_t seed;
    bool variant_asked;   /* named by the caller: no other may stand in for it */
    uint64_t passed_over; /* a bit per row of the variant table */

    bw_operand operands[BW_MAX_OPERANDS];
    int operand_count;
    int64_t offsets[BW_MAX_OPERANDS]; /* of each operand in a set */

    const bw_variant *variant;
    int64_t scratch_offset, scratch_bytes, workspace_bytes, set_bytes;
    bw_cost cost;
    const bw_case_view *_Atomic view; /* what others see of the variant */

    /* Resources of bw_case_ready. */
    char *memory; /* all sets in one allocation */
    int64_t memory_bytes, set_count;
    void *workspace;
    bw_launch *launches; /* one per set */
    void *state;
    bool prepared;
    bool once;       /* prepared without launching, for bw_case_launch_once alone: what measures prepares again */
    bool own_inputs; /* set 0 holds a caller's arrays: generate anew before the next check */

    bw_expected *expected;
} bw_case;

/* Validates, chooses the variant (name NULL: the default), allocates nothing on the device. `dims` is complete
 * (bw_op_complete); its kv_lens are copied. */
bw_status bw_case_create(bw_session *session, int op_index, const bw_precision *precision, const bw_dims *dims,
                         const char *variant_name, uint64_t seed, bw_case **out);
void bw_case_free(bw_case *self); /* NULL is fine */

/* The default variant for a shape: the last supported row, unless an earlier supported one prefers the shape.
 * BW_CODE_UNSUPPORTED with every row's reason when none runs. `passed_over` has a bit for each row to leave out. */
bw_status bw_variant_default(const bw_variant_table *table, const bw_op *op, const bw_dims *dims,
                             const bw_precision *precision, const bw_device_facts *facts, uint64_t passed_over,
                             const bw_variant **out);

/* NULL when the row runs this shape, else why not. */
const char *bw_variant_refuses(const bw_variant *row, const bw_dims *dims, const bw_precision *precision,
                               const bw_device_facts *facts);

/* The descriptor's cost with the variant's own on top; variant and facts may be NULL. */
bw_status bw_cost_of(const bw_op *op, const bw_variant *variant, const bw_dims *dims, const bw_precision *precision,
                     const bw_device_facts *facts, bw_cost *out);

/* How many sets, and whether that fits: BW_CODE_MEMORY with needed and free bytes when even one set does not. */
bw_status bw_case_rotation(bw_case *self, bw_cache cache, bw_rotation *out, int64_t *needed_bytes, int64_t *free_bytes);

/* Allocates `sets` filled buffer sets and prepares the variant; does nothing when that is already so.
 * BW_CODE_MEMORY, before anything is allocated, when they do not fit. */
bw_status bw_case_ready(bw_case *self, int64_t sets);

/* The same with as many sets as the variant, once it is known which one runs, needs for this cache. */
bw_status bw_case_ready_for(bw_case *self, bw_cache cache, bw_rotation *out);

/* Inputs as generated and outputs as never written, in set `set`. */
bw_status bw_case_reset(bw_case *self, int64_t set);

/* Launches of the variant on its sets, for as long as the case stays ready as it is now. */
bw_work bw_case_work(bw_case *self);

/* One plain launch on a set, waited for. */
bw_status bw_case_launch(bw_case *self, int64_t set);

/* One launch on the generated inputs, and not one more: nothing is launched to prepare it. */
bw_status bw_case_launch_once(bw_case *self);

/* What runs now, for any thread; valid until the case is freed. */
const bw_case_view *bw_case_look(bw_case *self);

/* Distinct bytes that one launch touches, intermediates included. */
int64_t bw_case_footprint(const bw_case *self);

#endif
