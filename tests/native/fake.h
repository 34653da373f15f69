/* A backend for the tests of csrc/measure: host memory, a toy clock, and faults on demand. Time stands still but for
 * what its replays say they took.
 *
 * Its kernel works out the outputs from the descriptor's own reference rows, so that it is right by construction for
 * every operation of the registry; what is then planted is the only error there is. One device, one process per check.
 */
#ifndef TESTS_NATIVE_FAKE_H
#define TESTS_NATIVE_FAKE_H

#include "backend/backend.h"

/* Variants, cheapest first: plain, middle, library; the middle one is held to what may round in between. */
enum { FAKE_ROWS = 3 };

typedef enum fake_plant {
    FAKE_RIGHT,
    FAKE_WRONG_ELEMENT, /* element plant_element of reference row plant_row */
    FAKE_NAN,           /* the same place, all bits set */
    FAKE_NOTHING,       /* the launch writes nothing */
    FAKE_SHIFTED,       /* every row holds its neighbor's values */
    FAKE_SET_ZERO       /* replays launch on the first set only */
} fake_plant;

typedef enum fake_when { FAKE_ALWAYS, FAKE_IN_REPLAYS, FAKE_ON_LAST_SET } fake_when;
typedef enum fake_clock { FAKE_QUIET, FAKE_NOISY, FAKE_DRIFTING, FAKE_SLOW_START, FAKE_CUSTOM } fake_clock;

typedef struct fake_state {
    /* What a check asks for. */
    int64_t memory_bytes, cache_bytes;
    bool fixed_replay;
    bool launches_at_create; /* plan_create launches on every set once, as a backend that captures does */
    uint64_t seed;           /* of the case: the inputs that a launch must find */
    fake_plant plant;
    fake_when when;
    int64_t plant_row, plant_element;
    int rows;                     /* variants offered */
    bool missing[FAKE_ROWS];      /* prepare says UNAVAILABLE */
    bool refusing[FAKE_ROWS];     /* refuses every shape */
    bool preferring[FAKE_ROWS];   /* prefers every shape */
    int64_t scratch[FAKE_ROWS];   /* bytes */
    int64_t largest_scratch;      /* room for more of it */
    int64_t found_scratch;        /* above 0: `prepare` finds a plan that takes so much */
    void (*meanwhile)(void);      /* called while a case asks a row what follows from it */
    int64_t workspace[FAKE_ROWS]; /* bytes */
    double launch_ns, amplitude;  /* of the toy clock */
    fake_clock clock;
    double (*custom_time)(void *context, int64_t replay); /* FAKE_CUSTOM: a launch's time in a replay, in ns */
    void *custom_context;
    int64_t late_from;        /* replays from this one on hold some of the host's time; 0 = none */
    int64_t marks_passed;     /* the stream has passed so many marks; -1 = all */
    bw_conditions conditions; /* what the sensors say */
    bool sensors_fail;
    double reference_ns;        /* of a reference stream; 0: it fails */
    double busy_ns;             /* that the device worked just before */
    int64_t slow_from, slow_to; /* the so-many-th streams, counted from 1, that take slow_by as long */
    double slow_by;
    bw_disturbance disturbance; /* what others are said to have taken */
    bool watched;               /* a tool takes annotations */
    int current;                /* device of the thread; 0 after calls that make the toy's own one current */
    int64_t fail_at;            /* the so-many-th backend call fails; 0 = none */
    bw_code fail_code;

    /* What happened. */
    char annotations[48][64]; /* to the tool: "push measure gemm 24", "pop", "start a", "end 1" */
    int annotation_count;
    int64_t annotated_replays;              /* whose launches lay in ranges */
    bw_annotation_stack replay_annotations; /* the last one's; its pointers are not to be followed ... */
    char replay_name[512];                  /* ... the outermost one's name */
    int64_t calls;
    bool failed; /* the planned failure came */
    char failed_call[32];
    int64_t live_allocations, live_bytes, live_plans, live_states, live_devices, live_marks;
    int64_t marks_made, marks_taken, waits; /* waits: for marks that the stream had not passed */
    int64_t refused_allocations;            /* asked for more than was free */
    int64_t now_ns;                         /* of the monotonic clock */
    int64_t look_ns;                        /* that a look at it takes; 0 = one */
    int64_t replays, plans, launches, prepared[FAKE_ROWS];
    int64_t transforms;     /* of the middle row: of all sets, ... */
    uint32_t transformed;   /* ... and the first word of set 0's first input then */
    int64_t prepared_once;  /* of these, the ones for a single launch */
    bw_plan_spec last_plan; /* its pointers are not to be followed */
    double last_replay_ns;
    int64_t readings, energy_readings; /* of the sensors */
    int64_t references;
    int op_index;
} fake_state;

extern fake_state fake;
extern const bw_backend fake_backend, fake_host_backend; /* the second one's calls are the work */

void fake_reset(void);  /* a quiet, right device with plenty of memory */
void fake_forget(void); /* frees the images of outputs that launches keep */

/* Every backend call begins with it; the planned one fails. Tables of fake_marks.c, for fake.c. */
bw_status fake_called(const char *name);
extern const bw_mark_calls fake_mark_calls;
extern const bw_context_calls fake_context_calls;
extern const bw_annotation_calls fake_annotation_calls;
void fake_annotate_replay(const bw_annotation_stack *annotation_stack);

/* The n-th host allocation from now on fails (0: none); returns how many were made since the last call. */
int64_t fake_host_memory(int64_t fail_at);

#endif
