/* What a case holds, and its buffer sets for the present choice. */
#pragma once

#include <stdatomic.h>

#include "measure/case/choice.h"
#include "measure/case/reference.h"
#include "measure/session.h"

enum { BW_CASE_NAME_SIZE = 256 };

/* Operands and scratch, filled, with the present choice's variant prepared for them. */
typedef struct bw_buffers {
    char *memory; /* all sets in one allocation */
    char *host;   /* the same of operands in the host's memory; NULL: there are none */
    int64_t set_count;
    void *workspace;
    bw_launch *launches; /* one per set */
    void *state;
    bool prepared;
    bool once;       /* prepared without launching, for a single launch alone: what measures prepares again */
    bool own_inputs; /* set 0 holds a caller's arrays: generate anew before the next check */
} bw_buffers;

typedef struct bw_case {
    bw_session *session;
    const bw_annotation_calls *annotations; /* NULL: no profiling tool is attached, or this case is hidden */
    char label[BW_CASE_NAME_SIZE];          /* in profiling tools; the operation's name until bw_case_set_label */
    const bw_case_spec *spec;
    const bw_choice
        *_Atomic choice; /* the present one (bw_case_choice): a step-down or a renewal puts another in its place */
    bw_buffers buffers;
    bw_reference reference;
} bw_case;

/* What runs now, for any thread; valid until the case is freed. */
static inline const bw_choice *bw_case_choice(const bw_case *self) {
    return atomic_load(&self->choice);
}

/* Allocates `sets` filled sets and prepares the variant. BW_CODE_MEMORY, before anything is allocated, when they do not
 * fit. Whatever happens, they are the caller's to release. */
bw_status bw_case_make_buffers(bw_case *self, int64_t sets, bool once);
void bw_case_release_buffers(bw_case *self);

/* Inputs as generated and outputs as never written, in set `set`. */
bw_status bw_case_reset(bw_case *self, int64_t set);

/* A caller's array in an operand's place, in set 0, and back; and where an operand lies, on the device or the host. */
bw_status bw_case_write(bw_case *self, int operand, const void *from);
bw_status bw_case_read(const bw_case *self, int operand, void *to);
void *bw_case_address(const bw_case *self, int64_t set, int operand);

/* One launch on a set, not waited for; and launches as something to be timed, for as long as the buffers stay. */
bw_status bw_case_enqueue_set(const bw_case *self, int64_t set);
bw_work bw_case_work(bw_case *self);
/* The same of the variant's `transform`; without `run` where it has none. */
bw_work bw_case_transforms(bw_case *self);
