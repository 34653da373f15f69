/* What a backend offers: tables of calls for the measuring code, and one kernel table per operation.
 * Graph capture, events, streams and threads stay behind this header. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/types/precision.h"
#include "ops/op.h"

typedef struct bw_device bw_device;       /* a device's handle; each backend defines its own */
typedef struct bw_marks bw_marks;         /* points in time on a stream */
typedef struct bw_plan bw_plan;           /* n launches over R buffer sets, ready to be timed again and again */
typedef struct bw_own_facts bw_own_facts; /* what only the backend's own kernels ask of a device; likewise its own */

typedef struct bw_device_facts {
    char name[128];
    char uuid[64];       /* "" where there is none */
    char pci_bus_id[32]; /* "00000000:1b:00.0"; "" where there is none */
    char driver[64];     /* driver's version; where there is none the operating system's */
    char runtime[64];    /* what kernels run on: the runtime library's version, the instruction set */
    int units;           /* that work is shared by: multiprocessors, threads */
    int64_t memory_bytes;
    int64_t cache_bytes;                /* the last one before the memory; 0 = unknown */
    bool cache_measured;                /* it is what the threads were seen to hold, less than what is reported */
    double peak_gb_s;                   /* theoretical; NaN = unknown */
    char peak_source[96];               /* where peak_gb_s comes from */
    double peak_tflops[BW_DTYPE_COUNT]; /* by bw_precision.compute; dense, theoretical or measured; NaN = unknown */
    char tflops_source[96];
    char timer[16];          /* the clock of a plan: "graph", "monotonic" */
    bool fixed_replay;       /* a plan replays the same launches each time, so it must hold all sets */
    char note[512];          /* what a reader should know: what is not cold, pages, governor; "" = nothing */
    const bw_own_facts *own; /* NULL: there are none */
} bw_device_facts;

enum { BW_FACTS_MAX = 8 };

/* A number that only some devices have. */
typedef struct bw_fact {
    const char *name; /* static text */
    int64_t value;
} bw_fact;

/* Reasons for which a device holds its clock down. */
typedef enum bw_throttle {
    BW_THROTTLE_POWER_CAP = 1,    /* the power limit, kept by software */
    BW_THROTTLE_HW_SLOWDOWN = 2,  /* hardware, for heat or power */
    BW_THROTTLE_SW_THERMAL = 4,   /* heat, kept by software */
    BW_THROTTLE_HW_THERMAL = 8,   /* heat, by hardware */
    BW_THROTTLE_POWER_BRAKE = 16, /* the system's power supply asked for it */
    BW_THROTTLE_UNKNOWN = 1 << 30 /* not known; no other bit is set then */
} bw_throttle;

/* What a device says of itself at one moment. NaN = not known. */
typedef struct bw_conditions {
    double sm_clock_mhz, mem_clock_mhz, power_w, temperature_c;
    double energy_j;   /* a counter that only grows */
    unsigned throttle; /* bits of bw_throttle */
} bw_conditions;

/* What other programs took of the device, as shares of the time. NaN = not known. */
typedef struct bw_disturbance {
    double waited;    /* a thread of ours was ready to run and did not, the longest of any thread */
    double throttled; /* the container's quota of processor time held a thread of ours back */
    double stolen;    /* the hypervisor ran another guest */
    double pressed;   /* a process waited for memory: for swapping, or for free pages */
    double slowed;    /* a stream that is always the same took longer by so much of its shortest time */
} bw_disturbance;

/* What the system's management library knows of a device beside what the runtime does. */
typedef struct bw_management {
    char library[512];    /* the library's file; "" = none */
    char note[512];       /* what is not known, and why; "" = everything is */
    char driver[64];      /* full version; "" = not known */
    int ecc, persistence; /* 1 = on, 0 = off, -1 = not known */
    double power_limit_w; /* NaN = not known */
    char link[32];        /* to the host: "PCIe 5.0 x16"; "" = not known */
    double link_gb_s;     /* what it carries in each direction, in theory; NaN = not known */
} bw_management;

enum { BW_LIBRARIES_MAX = 4 }; /* of one backend */

/* A library that is opened at run time. */
typedef struct bw_library_info {
    const char *name;    /* static text */
    const char *purpose; /* what needs it; static text */
    char path[512];      /* "" = there is none */
    char version[32];    /* "" = not known */
    char note[640];      /* why there is none, or what is missing of it; "" = all is well */
} bw_library_info;

/* One launch on one buffer set. */
typedef struct bw_launch {
    const bw_dims *dims;
    const bw_precision *precision;
    void *operand[BW_MAX_OPERANDS]; /* in the descriptor's order; 256-byte aligned; NULL = absent */
    void *scratch;                  /* this set's own scratch: traffic that the variant's cost models */
    void *workspace;                /* shared by all sets: a library's */
    void *state;                    /* what `prepare` made */
    int64_t set;                    /* the buffer set's number: `prepare` may have made something of each */
    bool once;                      /* one launch is all there will be: `prepare` may not launch */
    bw_device *device;
} bw_launch;

enum { BW_KERNELS_MAX = 4 }; /* of one launch */

/* A kernel of a launch, and what it takes of a multiprocessor. */
typedef struct bw_kernel {
    const char *symbol;  /* as the linker has it; stays as long as the device is open; NULL = not known */
    int registers;       /* of a thread */
    int64_t local_bytes; /* of a thread: what registers spill to, and arrays of its own */
    int64_t static_shared_bytes, dynamic_shared_bytes; /* of a block */
    int threads;                                       /* of a block */
    int64_t blocks;                                    /* of the grid */
    int resident_blocks;                               /* at once on a multiprocessor, as the runtime says */
} bw_kernel;

typedef struct bw_kernels {
    int count;
    bw_kernel kernel[BW_KERNELS_MAX]; /* one after the other */
} bw_kernels;

/* What a variant changes and how much that should save. A prediction is written before its measurement and stays when
 * they differ. Predictions are for an H200, and for two threads with AVX-512. */
typedef struct bw_variant_prediction {
    const char *changes; /* what it changes against the variant before it; one line */
    double predicted;    /* speedup over the last variant before it that takes the shape; 0 = there is none before it */
    const char *because; /* why so much; one line */
    const char *at;      /* the precision and the shape that this is about; NULL: the table's `at` */
} bw_variant_prediction;

/* A variant: one kernel of a ladder, or a library. A family's rows stand cheapest variant first; the last row that
 * is supported is the default, or of the supported rows that `prefer` the shape, the last. */
typedef struct bw_variant {
    const char *name;
    const char *text; /* one line */
    bw_variant_prediction prediction;
    unsigned precisions;
    /* Everything between the inputs and the result is FP32: it is held to the result's rounding alone. Otherwise
     * intermediate results may be rounded to the precision, too (bw_op.tolerance). */
    bool rounds_once;
    bool pageable; /* operands on the host lie in ordinary memory, which a device cannot reach by itself */
    /* NULL when it runs this shape on this device, else why not (a whole sentence's worth, static text). */
    const char *(*refuses)(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
    bool (*prefers)(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
    int64_t (*scratch_bytes)(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
    /* Optional: room for the scratch of any plan that `prepare` may choose; scratch_bytes is that of the chosen one. */
    int64_t (*largest_scratch_bytes)(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
    int64_t (*workspace_bytes)(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts);
    /* Adds what the variant's intermediates move to the cost's algorithmic bytes. facts may be NULL (a cost asked
     * for without a device): assume what most devices would do. */
    bw_status (*extra_cost)(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            bw_cost *cost);
    /* Everything that may not be captured or timed: handles, algorithm search. `sets` are the launches of all
     * buffer sets, filled and ready (a search may time them, unless they are for `once`). */
    bw_status (*prepare)(const bw_launch *sets, int64_t set_count, void **state);
    void (*release)(void *state);
    /* Optional: brings a set's inputs into the form that launches read, in its scratch: once, before any launch, and
     * again where inputs change. No launch's time has any of it. */
    bw_status (*transform)(const bw_launch *launch);
    bw_status (*launch)(const bw_launch *launch); /* enqueues all kernels; must not wait */
    /* Optional: the kernels of a launch, of a shape that is not refused; allocates no memory and launches nothing. */
    bw_status (*describe)(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out);
} bw_variant;

typedef struct bw_variant_table {
    const bw_variant *rows;
    int count;
    const char *at; /* the precision and the shape that its variants are predicted for: "fp16 M=1 N=4096" */
} bw_variant_table;

extern const bw_variant_table bw_no_variants; /* of an operation that a backend has no kernel for */

/* How buffer sets lie in one allocation: one after the other, each of the same parts (operands, scratch). */
typedef struct bw_set_layout {
    int64_t set_bytes;
    int parts;
    int64_t starts[BW_MAX_OPERANDS + 1]; /* of each part in its set, ascending; a part ends where the next one begins */
} bw_set_layout;

typedef struct bw_span {
    const void *from;
    int64_t bytes;
} bw_span;

enum { BW_TIMERS_MAX = 4 }; /* of one backend */

/* What is timed and counted: launches on buffer sets, of a variant's, of nothing (bw_plan_calls.empty), or of a
 * caller's function. Those that follow each other come between `enter` and `leave` (NULL: nothing to do), which nobody
 * times; the backend waits for a device outside them. */
typedef struct bw_work {
    /* Enqueues one launch on set `set`, or does it. `captured`: it goes into a graph, and work that cannot do that is
     * BW_CODE_UNAVAILABLE. */
    bw_status (*run)(void *context, int64_t set, bool captured);
    void (*enter)(void *context);
    void (*leave)(void *context);
    void *context;
    void *stream; /* that it enqueues on: a cudaStream_t, NULL being the legacy default stream; a CPU has none */
    /* A caller's function: it may use other streams and threads of its own, so that the whole device is waited for and
     * the backend's threads keep out of its way; a flush comes before each launch of it, by reading. */
    bool foreign;
    bool on_host; /* the host does a part of a launch while it enqueues it, which belongs to the launch's time */
} bw_work;

static inline void bw_work_enter(const bw_work *work) {
    if (work->enter) work->enter(work->context);
}

static inline void bw_work_leave(const bw_work *work) {
    if (work->leave) work->leave(work->context);
}

/* How unused memory drives a launch's inputs out of the cache. Reading is the honest way; memset, as other
 * tools have it, leaves dirty lines that the next launch pays for: it is here to be compared with. */
typedef enum bw_flush { BW_FLUSH_READ, BW_FLUSH_MEMSET, BW_FLUSH_MEMSET_READ } bw_flush;

/* A range as a profiling tool shows it. */
typedef struct bw_annotation {
    const char *name;
    const char *category; /* an operation's name; NULL: none */
    int64_t bytes;        /* that a launch moves; < 0: not known */
} bw_annotation;

enum { BW_ANNOTATIONS_MOST = 2 };

/* The ranges that timed launches lie in, the outermost first; what is in it may change between replays. */
typedef struct bw_annotation_stack {
    bw_annotation range[BW_ANNOTATIONS_MOST];
    int count;
} bw_annotation_stack;

typedef struct bw_plan_spec {
    bw_work work;        /* its context outlives the plan */
    int64_t set_count;   /* at least 1 */
    int64_t launches;    /* per replay, at least 1; launch i uses set i % set_count */
    int64_t flush_bytes; /* of other memory: gone through before each replay, outside the timing; 0 = no flush */
    bw_flush flush;
    int timer;                                   /* an index into the backend's `timers`; 0 = its own */
    const bw_annotation_stack *annotation_stack; /* for tools that watch; outlives the plan. NULL: none */
    bool trace;  /* take the kernels' timestamps beside the timer's: BW_CODE_UNAVAILABLE where that cannot be */
    bool warmed; /* an earlier plan was of the same work: code is loaded, and host_ns is known */
} bw_plan_spec;

static inline bw_status bw_plan_spec_launch(const bw_plan_spec *spec, int64_t index, bool captured) {
    return spec->work.run(spec->work.context, index % spec->set_count, captured);
}

/* What the kernels' own timestamps say of a replay. NaN where they were not taken. */
typedef struct bw_kernel_times {
    double sum_ns;    /* every kernel's duration */
    double span_ns;   /* first start to last end of each launch, added up */
    double elsewhere; /* how many kernels another device ran */
} bw_kernel_times;

/* What hardware counters saw of one launch, the write-back of its output included. */
typedef struct bw_counters {
    double dram_bytes_read, dram_bytes_written, l2_bytes; /* NaN = not counted */
    char status[480];                                     /* "" = counted; else why not and what to do */
} bw_counters;

enum { BW_METRICS_MAX = 64 };

typedef struct bw_metric {
    const char *name; /* static text */
    double value;     /* NaN = not known */
} bw_metric;

/* What a launch did, by metrics that take many replays of it. */
typedef struct bw_metrics {
    bw_metric metric[BW_METRICS_MAX];
    int count, passes;
    char status[480]; /* "" = all were counted; else which were not, and why */
} bw_metrics;

/* ---- the calls of a backend, by kind; entries that are not called optional are never NULL ---- */

typedef struct bw_device_calls {
    /* 0 devices is no failure; `reason` (of reason_size) then says why there are none. */
    bw_status (*count)(int *count, char *reason, size_t reason_size);
    bw_status (*name)(int index, char *name, size_t name_size); /* without opening it */
    bw_status (*open)(int index, bw_device **out);
    void (*close)(bw_device *device);
    const bw_device_facts *(*facts)(const bw_device *device);
    bw_status (*synchronize)(bw_device *device);
    const bw_variant_table *(*variants)(const bw_device *device, int op_index); /* device NULL: any device's */
    int (*more_facts)(const bw_device *device, bw_fact out[BW_FACTS_MAX]);      /* optional: how many there are */
    /* Optional, for work that is done by threads of the host: so many share it from now on, and the facts are theirs;
     * nothing may be open on the device. */
    bw_status (*limit_threads)(bw_device *device, int threads);
    /* Optional, for work of the host's that takes long: from now on it asks `poll` several times a second, in the
     * calling thread, and ends with BW_CODE_INTERRUPTED where that is true. */
    void (*watch)(bw_device *device, bool (*poll)(void *context), void *context);
    /* Optional: opens whatever the backend can use, and says what it found. */
    void (*libraries)(bw_device *device, bw_library_info out[BW_LIBRARIES_MAX], int *count);
} bw_device_calls;

typedef struct bw_memory_calls {
    bw_status (*ask)(bw_device *device, int64_t *free_bytes, int64_t *total_bytes);
    bw_status (*allocate)(bw_device *device, int64_t bytes, void **out); /* 256-byte aligned */
    /* Optional: the same for buffer sets, where it matters which processor a part's memory is near. */
    bw_status (*allocate_sets)(bw_device *device, int64_t sets, const bw_set_layout *layout, void **out);
    void (*release)(bw_device *device, void *memory, int64_t bytes);
    /* The host's memory, for operands that lie there; NULL where no operation has any. Page-locked unless `pageable`:
     * the device then reaches it by the same address. */
    bw_status (*allocate_host)(bw_device *device, int64_t bytes, bool pageable, void **out);
    void (*release_host)(bw_device *device, void *memory, bool pageable);
    /* Blocks [0, count) of operand `operand` for `seed`, as bw_input_fill makes them. */
    bw_status (*fill)(bw_device *device, bw_dtype dtype, uint64_t seed, int operand, int64_t count, void *out);
    bw_status (*poison)(bw_device *device, void *memory, int64_t bytes); /* every byte 0xff */
    bw_status (*duplicate)(bw_device *device, void *to, const void *from, int64_t bytes);
    bw_status (*upload)(bw_device *device, void *to, const void *from, int64_t bytes);
    bw_status (*download)(bw_device *device, void *to, const void *from, int64_t bytes);
    /* The spans one behind the other, `bytes` in all, into host memory. */
    bw_status (*gather)(bw_device *device, const bw_span *spans, int64_t count, int64_t bytes, void *to);
} bw_memory_calls;

typedef struct bw_plan_calls {
    bw_work (*empty)(bw_device *device); /* launches that do nothing: the timer's floor is measured with them */
    /* A timer that cannot be had here is BW_CODE_UNAVAILABLE. */
    bw_status (*create)(bw_device *device, const bw_plan_spec *spec, bw_plan **out);
    bw_status (*run)(bw_plan *plan, double *ns);     /* one replay: elapsed time of all its launches */
    double (*host_ns)(const bw_plan *plan);          /* optional: host time of one plain launch; NaN = not measured */
    void (*free)(bw_plan *plan);                     /* NULL is fine */
    bw_kernel_times (*kernels)(const bw_plan *plan); /* optional; of the last replay */
    bool (*late)(const bw_plan *plan);          /* optional: the last replay's time holds some of the host's for it */
    double (*busy_ns)(const bw_device *device); /* optional: how long it has worked, at most with short pauses */
} bw_plan_calls;

/* Marks [0, count) on a stream (as in bw_work). A mark is taken when the stream gets there, again and again; `take`
 * waits for nothing, `elapsed` for `to`. */
typedef struct bw_mark_calls {
    const char *clock; /* "events", "monotonic" */
    bw_status (*create)(bw_device *device, void *stream, bw_marks **out);
    bw_status (*reserve)(bw_marks *marks, int64_t count); /* so many, from now on */
    bw_status (*take)(bw_marks *marks, int64_t index);
    bw_status (*passed)(bw_marks *marks, int64_t index, bool *out);
    bw_status (*elapsed)(bw_marks *marks, int64_t from, int64_t to, double *ns);
    void (*free)(bw_marks *marks); /* NULL is fine */
} bw_mark_calls;

/* What they say, or that they say nothing, is never a reason to end a measurement. */
typedef struct bw_sensor_calls {
    bw_status (*read)(bw_device *device, bool with_energy, bw_conditions *out); /* the energy counter takes ms */
    void (*management)(bw_device *device, bw_management *out);
} bw_sensor_calls;

/* Programs beside this one that use the same device. */
typedef struct bw_disturbance_calls {
    void (*look)(bw_device *device, bw_disturbance *out); /* what they took since the last look, but for `slowed` ... */
    bw_status (*reference)(bw_device *device, double *ns); /* ... which is worked out from this stream's times */
} bw_disturbance_calls;

/* Counters that cannot be had are no failure: NaN and a status text. A device's first call takes about a second. */
typedef struct bw_counter_calls {
    /* Counts spec's launches and divides by their number. With flush_bytes they find a flushed cache; without, what a
     * replay before them has left there, whose writes cannot be told from theirs: those are NaN then. */
    bw_status (*count)(bw_device *device, const bw_plan_spec *spec, bw_counters *out);
    /* The metrics of those groups whose bits are set, for one launch on spec's first set after a flush. */
    bw_status (*metrics)(bw_device *device, const bw_plan_spec *spec, unsigned groups, bw_metrics *out);
    /* Gives back what a handle keeps between two calls of `count` or `metrics`, which makes every kernel start later
     * and keeps other tools from counting. Making a plan does so too: what is timed runs without it. */
    void (*release_profilers)(bw_device *device);
    const char *const *groups; /* names of metrics, NULL-terminated, at most 32 */
} bw_counter_calls;

/* The calling thread's current device, which a caller's own code works on, and making another one current; the stream
 * that a handle enqueues on. */
typedef struct bw_context_calls {
    bw_status (*current)(int *index);
    bw_status (*make_current)(int index);
    void *(*stream)(const bw_device *device);
} bw_context_calls;

/* For tests: the countdown-th device call from now on fails (0: none does); how many were made so far. */
typedef struct bw_fault_calls {
    bw_status (*set)(bw_device *device, int64_t countdown);
    int64_t (*calls_made)(const bw_device *device);
    /* A variant that has several plans takes this one from now on, counted from 1; 0: the fastest. */
    void (*force_plan)(bw_device *device, int plan);
} bw_fault_calls;

/* Marks for tools that watch the process from outside; what no tool takes costs next to nothing. */
typedef struct bw_annotation_calls {
    bool (*watched)(bw_device *device); /* a tool was there when it was opened: no other call is worth while without */
    void (*push)(bw_device *device, const bw_annotation *what); /* around what the calling thread does: they nest */
    void (*pop)(bw_device *device);
    uint64_t (*start)(bw_device *device, const bw_annotation *what); /* ranges that may overlap */
    void (*end)(bw_device *device, uint64_t range);
} bw_annotation_calls;

/* How far measurements on such a device go, and how long they may take. */
typedef struct bw_budgets {
    int64_t largest_stream_bytes;         /* of the streams that roofs are made of */
    double cold_streams_s, hot_streams_s; /* for the curves of all of them */
    double cold_point_s, hot_point_s;     /* of sampling, for one point at most */
    double guessed_gb_s;                  /* of an ordinary one: for estimates, where the theory says nothing */
} bw_budgets;

typedef struct bw_backend {
    const char *name;
    const char *text;
    bool built;          /* compiled in; if it is not, absence and remedy are all that follows */
    const char *absence; /* why it is not in this build */
    const char *remedy;  /* what to do about that */
    bw_budgets budgets;
    const char *const *timers; /* NULL-terminated, the default first, at most BW_TIMERS_MAX; NULL = facts.timer only */
    const char *const
        *call_timers;  /* NULL-terminated, of a caller's function: the first that can be had; NULL = the default */
    bool runs_on_host; /* a call returns when its work is done: nothing is waited for */
    const bw_device_calls *devices;
    const bw_memory_calls *memory;
    const bw_plan_calls *plans;
    /* NULL: the backend has no such thing. */
    const bw_mark_calls *marks;
    const bw_sensor_calls *sensors;
    const bw_disturbance_calls *disturbance;
    const bw_counter_calls *counters;
    const bw_context_calls *context;
    const bw_fault_calls *faults;
    const bw_annotation_calls *annotations;
} bw_backend;

/* The backends, preferred first; a backend that is not compiled in is listed with built = false. */
int bw_backend_count(void);
const bw_backend *bw_backend_at(int index);
bw_status bw_backend_find(const char *name, const bw_backend **out);
