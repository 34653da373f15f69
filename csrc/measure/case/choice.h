/* A choice: the variant that runs a case on a device, with its cost and layout. It never changes. A variant that
 * replaces another one is a new choice; the old one stays until the case is freed, since threads may read it.
 * A rotation: how its inputs are made cold, over several buffer sets or by a flush. */
#pragma once

#include "backend/backend.h"

typedef struct bw_choice {
    const struct bw_choice *before; /* that it replaces: a variant that is passed over, or the same one whose cost has
                                     * become another (bw_choice_renew); NULL: it is the first */
    const bw_variant *variant;
    bool is_fixed; /* the caller has named the variant: no other one replaces it */
    bw_cost cost;
    bw_set_layout layout; /* of each operand, then of the scratch; those that are absent take nothing */
    bw_set_layout host;   /* of the operands that lie in the host's memory, which take nothing of the other */
    int64_t scratch_bytes, workspace_bytes;
    char note[]; /* why defaults were passed over; "" = none was */
} bw_choice;

/* What a device offers: its variants of the operation, and its facts. */
typedef struct bw_offer {
    const bw_variant_table *table;
    const bw_device_facts *facts;
} bw_offer;

static inline bw_offer bw_offer_of(const bw_backend *backend, const bw_device *device, int op_index) {
    return (bw_offer){backend->devices->variants(device, op_index), backend->devices->facts(device)};
}

/* The variant of this name (NULL: the default). */
bw_status bw_choice_first(const bw_case_spec *spec, const bw_offer *offer, const char *name, const bw_choice **out);

/* The next best row where `before` cannot be had (`cause` is BW_CODE_UNAVAILABLE: a library is missing) and nobody
 * named it. Consumes the cause, or returns it where nothing steps in. */
bw_status bw_choice_next(const bw_case_spec *spec, const bw_offer *offer, const bw_choice *before, bw_status cause,
                         const bw_choice **out);

/* The choice after a variant has been prepared: its search may have found a plan that moves other bytes. */
bw_status bw_choice_renew(const bw_case_spec *spec, const bw_offer *offer, const bw_choice *before,
                          const bw_choice **out);

void bw_choice_free(const bw_choice *self); /* with those before it; NULL is fine */

/* The last of the supported rows that prefer the shape, else the last supported one. BW_CODE_UNSUPPORTED with every
 * row's reason when none runs. The rows of `before` and of those before it are left out. */
bw_status bw_variant_default(const bw_op *op, const bw_dims *dims, const bw_precision *precision, const bw_offer *offer,
                             const bw_choice *before, const bw_variant **out);

/* The row of this name; BW_CODE_INVALID, with what is allowed, for any other. */
bw_status bw_variant_find(const bw_op *op, const bw_variant_table *table, const char *name, const bw_variant **out);

/* NULL when the row runs this shape, else why not. */
const char *bw_variant_refuses(const bw_variant *row, const bw_dims *dims, const bw_precision *precision,
                               const bw_device_facts *facts);

/* The descriptor's cost with the variant's own on top; variant and facts may be NULL. */
bw_status bw_cost_of(const bw_op *op, const bw_variant *variant, const bw_dims *dims, const bw_precision *precision,
                     const bw_device_facts *facts, bw_cost *out);

/* ---- rotations ---- */

/* FLUSHED: one set, driven out of the cache before every sample, a single launch. Cold, but each sample's writes stay
 * behind for the flush: rotation is better wherever there is memory for it. */
typedef enum bw_cache { BW_CACHE_COLD, BW_CACHE_HOT, BW_CACHE_FLUSHED } bw_cache;

typedef struct bw_rotation {
    int64_t sets;
    int64_t flush_bytes; /* read before each replay because the sets alone do not drive the inputs out; 0 = none */
    bool cold;           /* false for a hot case, and where memory allows neither rotation nor flush */
    const char *note;    /* static text; "" = plain rotation */
} bw_rotation;

bw_rotation bw_rotation_of(const bw_choice *choice, bw_cache cache, const bw_device_facts *facts, int64_t usable_bytes);

/* The rotation of a caller's function with `sets` sets of its own and so many bytes in each (0: not known). */
bw_rotation bw_rotation_of_call(int64_t sets, int64_t footprint_bytes, bw_cache cache, const bw_device_facts *facts,
                                int64_t usable_bytes);

/* Of so many sets, the workspace and a flush; INT64_MAX when that overflows. */
int64_t bw_bytes_needed(const bw_choice *choice, int64_t sets, int64_t flush_bytes);

/* Whether so much fits into what is free, of which the last bytes belong to the driver or the operating system; else
 * BW_CODE_MEMORY. */
bool bw_bytes_fit(int64_t needed_bytes, int64_t free_bytes);
bw_status bw_bytes_check(const bw_case_spec *spec, int64_t needed_bytes, int64_t free_bytes);
