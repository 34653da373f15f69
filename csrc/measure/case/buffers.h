/* A case's buffer sets: operands and scratch, filled, with the variant prepared for them. */
#pragma once

#include "measure/case/choice.h"
#include "measure/session.h"

typedef struct bw_buffers {
    bw_session *session;
    const bw_case_spec *spec;
    const bw_choice *choice; /* that they were made for; NULL: there are none */
    char *memory;            /* all sets in one allocation */
    int64_t set_count;
    void *workspace;
    bw_launch *launches; /* one per set */
    void *state;
    bool prepared;
    bool once;       /* prepared without launching, for a single launch alone: what measures prepares again */
    bool own_inputs; /* set 0 holds a caller's arrays: generate anew before the next check */
} bw_buffers;

/* Allocates `sets` filled sets and prepares the variant. BW_CODE_MEMORY, before anything is allocated, when they do not
 * fit. Whatever happens, they are the caller's to release. */
bw_status bw_buffers_make(const bw_choice *choice, int64_t sets, bool once, bw_buffers *out);
void bw_buffers_release(bw_buffers *self); /* session and spec stay */

/* Device memory that they hold. */
int64_t bw_buffers_bytes(const bw_buffers *self);

/* Inputs as generated and outputs as never written, in set `set`. */
bw_status bw_buffers_reset(bw_buffers *self, int64_t set);

/* A caller's array in an operand's place, in set 0; and an operand of that set. */
bw_status bw_buffers_write(bw_buffers *self, int operand, const void *from);
bw_status bw_buffers_read(const bw_buffers *self, int operand, void *to);

/* Where an operand lies on the device. */
void *bw_buffers_at(const bw_buffers *self, int64_t set, int operand);

/* One launch on a set, not waited for; and launches as something to be timed, for as long as the buffers stay. */
bw_status bw_buffers_launch(const bw_buffers *self, int64_t set);
bw_work bw_buffers_work(bw_buffers *self);
