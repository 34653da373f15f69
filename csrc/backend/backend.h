/* What a backend offers: a vtable for the measuring code, and one kernel table per operation.
 * Graph capture, events, streams and threads stay behind this header. */
#ifndef BW_BACKEND_BACKEND_H
#define BW_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "ops/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bw_device bw_device; /* a device's handle; each backend defines its own */
typedef struct bw_plan bw_plan;     /* n launches over R buffer sets, ready to be timed again and again */

typedef struct bw_device_facts {
    char name[128];
    char uuid[64];       /* "" where there is none */
    char pci_bus_id[32]; /* "00000000:1b:00.0"; "" where there is none */
    char driver[64];     /* driver's version; the kernel's release on a CPU */
    char runtime[64];    /* CUDA runtime's version; the instruction set in use on a CPU */
    int major, minor;    /* compute capability; 0 on a CPU */
    int units;           /* multiprocessors, or threads used */
    int64_t memory_bytes;
    int64_t cache_bytes;  /* L2, or the last-level cache; 0 = unknown */
    int64_t shared_bytes; /* shared memory a block may use; 0 on a CPU */
    int64_t memory_clock_khz, bus_bits;
    double peak_gb_s;                   /* theoretical; NaN = unknown */
    char peak_source[96];               /* where peak_gb_s comes from */
    double peak_tflops[BW_DTYPE_COUNT]; /* dense, theoretical or measured: see the source; NaN = unknown */
    char tflops_source[96];
    char timer[16];    /* the clock of plan_run: "graph", "monotonic" */
    bool fixed_replay; /* a plan replays the same launches each time, so it must hold all sets */
    char note[256];    /* what a reader should know: what is not cold, pages, governor; "" = nothing */
} bw_device_facts;

/* Reasons for which a device holds its clock down. */
typedef enum bw_throttle {
    BW_THROTTLE_POWER_CAP = 1,    /* the power limit, kept by software */
    BW_THROTTLE_HW_SLOWDOWN = 2,  /* hardware, for heat or power */
    BW_THROTTLE_SW_THERMAL = 4,   /* heat, kept by software */
    BW_THROTTLE_HW_THERMAL = 8,   /* heat, by hardware */
    BW_THROTTLE_POWER_BRAKE = 16, /* the system's power supply asked for it */
    BW_THROTTLE_UNKNOWN = 1 << 30 /* nobody can tell: no other bit is set */
} bw_throttle;

/* What a device says of itself at one moment. NaN = not known. */
typedef struct bw_conditions {
    double sm_clock_mhz, mem_clock_mhz, power_w, temperature_c;
    double energy_j;   /* a counter that only grows */
    unsigned throttle; /* bits of bw_throttle */
} bw_conditions;

/* What the system's management library knows of a device beside what the runtime does. */
typedef struct bw_management {
    char library[512];    /* the library's file; "" = none */
    char note[512];       /* what is not known, and why; "" = everything is */
    char driver[64];      /* full version; "" = not known */
    int ecc, persistence; /* 1 = on, 0 = off, -1 = not known */
    double power_limit_w; /* NaN = not known */
} bw_management;

/* One launch on one buffer set. */
typedef struct bw_launch {
    const bw_dims *dims;
    bw_dtype dtype;
    void *operand[BW_MAX_OPERANDS]; /* in the descriptor's order; 256-byte aligned; NULL = absent */
    void *scratch;                  /* this set's own scratch: traffic that the variant's cost models */
    void *workspace;                /* shared by all sets: a library's */
    void *state;                    /* what `prepare` made */
    bool once;                      /* one launch is all there will be: `prepare` may not launch */
    bw_device *device;
} bw_launch;

/* A variant: a rung of a kernel ladder, or a library. A family's rows stand cheapest rung first; the last row that
 * is supported is the default, unless an earlier supported row `prefers` the shape. */
typedef struct bw_variant {
    const char *name;
    const char *text; /* one line */
    unsigned precisions;
    /* NULL when it runs this shape on this device, else why not (a whole sentence's worth, static text). */
    const char *(*refuses)(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts);
    bool (*prefers)(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts);
    int64_t (*scratch_bytes)(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts);
    int64_t (*workspace_bytes)(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts);
    /* Adds what the variant's intermediates move to the cost's algorithmic bytes. facts may be NULL (a cost asked
     * for without a device): assume what most devices would do. */
    bw_status (*extra_cost)(const bw_dims *dims, bw_dtype dtype, const bw_device_facts *facts, bw_cost *cost);
    /* Everything that may not be captured or timed: handles, algorithm search. `sets` are the launches of all
     * buffer sets, filled and ready (a search may time them, unless they are for `once`). */
    bw_status (*prepare)(const bw_launch *sets, int64_t set_count, void **state);
    void (*release)(void *state);
    bw_status (*launch)(const bw_launch *launch); /* enqueues all kernels; must not wait */
} bw_variant;

typedef struct bw_variant_table {
    const bw_variant *rows;
    int count;
} bw_variant_table;

/* A piece of a device's memory. */
typedef struct bw_span {
    const void *from;
    int64_t bytes;
} bw_span;

enum { BW_TIMERS_MAX = 4 }; /* of one backend */

/* One empty launch: the timer's floor is measured with it. Every backend defines one. */
typedef struct bw_plan_spec {
    const bw_variant *variant; /* NULL: the backend's empty kernel */
    const bw_launch *sets;
    int64_t set_count;
    int64_t launches;    /* per replay; launch i uses set i % set_count */
    int64_t flush_bytes; /* before each replay, outside the timing, read this much other memory; 0 = no flush */
    int timer;           /* an index into the backend's `timers`; 0 = its own */
} bw_plan_spec;

/* What hardware counters saw of one launch that found its inputs cold, the write-back of its output included. */
typedef struct bw_counters {
    double dram_bytes_read, dram_bytes_written, l2_bytes; /* NaN = not counted */
    char status[480];                                     /* "" = counted; else why not and what to do */
} bw_counters;

typedef struct bw_backend {
    const char *name;
    const char *text;
    bool built;                /* compiled in */
    const char *const *timers; /* NULL-terminated, the default first, at most BW_TIMERS_MAX; NULL = facts.timer only */

    /* 0 devices is no failure; `reason` (of reason_size) then says why there are none. */
    bw_status (*device_count)(int *count, char *reason, size_t reason_size);
    bw_status (*device_name)(int index, char *name, size_t name_size); /* without opening it */
    bw_status (*device_open)(int index, bw_device **out);
    void (*device_close)(bw_device *device);
    const bw_device_facts *(*device_facts)(const bw_device *device);
    bw_status (*device_memory)(bw_device *device, int64_t *free_bytes, int64_t *total_bytes);

    const bw_variant_table *(*variants)(const bw_device *device, int op_index); /* device NULL: any device's */

    bw_status (*allocate)(bw_device *device, int64_t bytes, void **out); /* 256-byte aligned */
    void (*release)(bw_device *device, void *memory, int64_t bytes);
    /* Elements [0, count) of operand `operand` for `seed`, as base/input.h defines them. */
    bw_status (*fill)(bw_device *device, bw_dtype dtype, uint64_t seed, int operand, int64_t count, void *out);
    bw_status (*poison)(bw_device *device, void *memory, int64_t bytes); /* every byte 0xff */
    bw_status (*duplicate)(bw_device *device, void *to, const void *from, int64_t bytes);
    bw_status (*upload)(bw_device *device, void *to, const void *from, int64_t bytes);
    bw_status (*download)(bw_device *device, void *to, const void *from, int64_t bytes);
    /* The spans one behind the other, `bytes` in all, into host memory. */
    bw_status (*gather)(bw_device *device, const bw_span *spans, int64_t count, int64_t bytes, void *to);
    bw_status (*synchronize)(bw_device *device);

    /* The spec's sets must outlive the plan. A timer that cannot be had here is BW_CODE_UNAVAILABLE. */
    bw_status (*plan_create)(bw_device *device, const bw_plan_spec *spec, bw_plan **out);
    bw_status (*plan_run)(bw_plan *plan, double *ns); /* one replay: elapsed time of all its launches */
    double (*plan_host_ns)(const bw_plan *plan);      /* host time of one plain launch; NaN = not measured */
    void (*plan_free)(bw_plan *plan);                 /* NULL is fine */
    /* Optional. Of the last replay, all launches: the sum of the kernels' own durations; NaN where the timer sees no
     * single kernels. */
    double (*plan_kernel_sum_ns)(const bw_plan *plan);

    /* Optional. Counts one launch of spec's variant on its first set. Counters that cannot be had are no failure: NaN
     * and a status text. The first call on a device takes about a second. */
    bw_status (*counters)(bw_device *device, const bw_plan_spec *spec, bw_counters *out);

    /* Both NULL where a backend has nothing to say, and neither ever a reason to end a measurement. `conditions` reads
     * the sensors, the energy counter only `with_energy`: that takes milliseconds. */
    bw_status (*conditions)(bw_device *device, bool with_energy, bw_conditions *out);
    void (*management)(bw_device *device, bw_management *out);

    /* For tests: the countdown-th device call from now on fails (0: none does); how many were made so far. NULL where a
     * backend makes no calls that could fail this way. */
    bw_status (*fault_set)(bw_device *device, int64_t countdown);
    int64_t (*calls_made)(const bw_device *device);
} bw_backend;

/* The backends, preferred first; a backend that is not compiled in is listed with built = false. */
int bw_backend_count(void);
const bw_backend *bw_backend_at(int index);
bw_status bw_backend_find(const char *name, const bw_backend **out);

#ifdef __cplusplus
}
#endif
#endif
