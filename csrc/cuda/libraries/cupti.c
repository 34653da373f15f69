#include "cuda/libraries/cupti.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/libraries/find.h"

enum { FLUSH_FORCED = 1, NO_MORE_RECORDS = 12, BUFFER_BYTES = 4 << 20, DEVICES_MOST = 64 };

/* Kinds of records. */
enum { KIND_COPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 3, KIND_CONCURRENT_KERNEL = 10 };

/* The head of every kernel record since CUPTI 9; later versions append to it. Those of copies and memsets have their
 * timestamps in the same place, and the numbers of device, context and stream right behind them. */
typedef struct kernel_record {
    uint32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    uint32_t partitioned_requested, partitioned_executed;
    uint64_t start, end;
    union {
        struct {
            uint64_t completed;
            uint32_t device, context, stream;
        } kernel;
        struct {
            uint32_t device, context, stream;
        } copy;
    } of;
} kernel_record;

_Static_assert(offsetof(kernel_record, start) == 16 && offsetof(kernel_record, end) == 24 &&
                   offsetof(kernel_record, of.kernel.stream) == 48 && offsetof(kernel_record, of.copy.stream) == 40,
               "CUPTI's layout");

typedef void (*buffer_requested)(uint8_t **buffer, size_t *size, size_t *record_limit);
typedef void (*buffer_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size);
typedef void (*callback)(void *user, int domain, uint32_t id, const void *data);

/* X(CUPTI's function, argument types); all return a CUptiResult. */
#define CUPTI_CALLS(X)                                                      \
    X(cuptiGetVersion, (uint32_t *))                                        \
    X(cuptiGetResultString, (int, const char **))                           \
    X(cuptiSubscribe, (void **, callback, void *))                          \
    X(cuptiUnsubscribe, (void *))                                           \
    X(cuptiActivityRegisterCallbacks, (buffer_requested, buffer_completed)) \
    X(cuptiActivityEnable, (int))                                           \
    X(cuptiActivityDisable, (int))                                          \
    X(cuptiActivityFlushAll, (uint32_t))                                    \
    X(cuptiActivityGetNextRecord, (uint8_t *, size_t, kernel_record **))    \
    X(cuptiActivityGetNumDroppedRecords, (void *, uint32_t, size_t *))

struct bw_cupti {
    void *handle;
    char path[512];
    char failure[600]; /* why there is none; "" = it is open */
    bw_code failure_code;
    void *subscriber;
#define CUPTI_MEMBER(name, arguments) int(*name) arguments;
    CUPTI_CALLS(CUPTI_MEMBER)
#undef CUPTI_MEMBER
};

#define CUPTI(library, name, ...) bw_cupti_status((library), (library)->name(__VA_ARGS__), #name)

/* Where the records of the whole process go. CUPTI's buffer callbacks carry no pointer of the caller's, and come from
 * a thread of its own, so this cannot live in a handle. */
static struct {
    atomic_flag lock;
    bw_cupti *owner;                      /* NULL: nobody traces */
    bw_device *counting[DEVICES_MOST];    /* whose profiler is up, by the device's number; NULL: nobody's */
    bw_cupti_holder holder[DEVICES_MOST]; /* of that profiler */
    bw_kernel_span *spans;
    bw_kernel_span *taken; /* what the last `take` gave out: CUPTI's thread goes on writing to `spans` */
    int64_t count, capacity;
    int64_t lost; /* records dropped by CUPTI or by a lack of memory */
} bw_cupti_sink = {.lock = ATOMIC_FLAG_INIT};

static void sink_lock(void) {
    while (atomic_flag_test_and_set_explicit(&bw_cupti_sink.lock, memory_order_acquire)) continue;
}

static void sink_unlock(void) {
    atomic_flag_clear_explicit(&bw_cupti_sink.lock, memory_order_release);
}

/* ---- reasons ---- */

static const struct {
    int code;
    const char *advice;
} advices[] = {
    {15, "the driver is older than this CUPTI, or the GPU was not initialised: update the driver"},
    {23, "another profiler holds CUPTI in this process: run without it"},
    {26,
     "another process uses the GPU's performance monitors (DCGM, ncu, nsys): stop it, or `dcgmi profiling --pause`"},
    {27, "this GPU or platform does not support it"},
    {33, "not supported on a virtual GPU"},
    {35,
     "performance counters are for administrators here: run as root or with CAP_SYS_ADMIN, or have the host load the "
     "driver with NVreg_RestrictProfilingToAdminUsers=0"},
    {39,
     "another CUPTI user is active in this process (a framework's profiler, nsys, ncu, compute-sanitizer, "
     "cuda-gdb): run without it"},
    {40, "the hypervisor forbids profiling on this virtual GPU: ask its administrator to allow it"},
    {41, "not supported while confidential computing is on"},
    {42, "not supported on a mining card (CMP)"},
    {43, "not supported on a MIG instance"},
    {44, "not supported on GPUs joined by SLI"},
    {45, "not supported under WSL"},
    {46, "this CUPTI does not know the GPU's chip: install a newer one"},
};

bw_status bw_cupti_status(const bw_cupti *library, int result, const char *call) {
    if (result == 0) return BW_OK;
    const char *name = NULL, *advice = "";
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++) {
        if (advices[i].code == result) advice = advices[i].advice;
    }
    if (library->cuptiGetResultString(result, &name) != 0 || !name) name = "unknown error";
    return bw_fail(BW_CODE_UNAVAILABLE, "%s failed: %s (%d)%s%s", call, name, result, advice[0] ? "; " : "", advice);
}

/* ---- other tools ---- */

/* Libraries that ncu, nsys, compute-sanitizer and cuda-gdb bring into the process. */
static int tool_object(struct dl_phdr_info *info, size_t size, void *data) {
    static const char *const parts[] = {"sanitizer-collection", "ToolsInjection", "InterceptorInjection",
                                        "TreeLauncher",         "cudadebugger",   "libcuda-injection"};
    (void)size;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof parts / sizeof parts[0]; i++) {
        if (!strstr(slash, parts[i])) continue;
        *(const char **)data = parts[i];
        return 1;
    }
    return 0;
}

/* Whether a CUDA debugger traces this process. */
static bool under_debugger(void) {
    char line[256], path[64];
    long tracer = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "TracerPid: %ld", &tracer) == 1) break;
    }
    if (file) fclose(file);
    if (tracer <= 0) return false;
    snprintf(path, sizeof path, "/proc/%ld/comm", tracer);
    file = fopen(path, "r");
    bool found = file && fgets(line, sizeof line, file) && strstr(line, "cuda-gdb");
    if (file) fclose(file);
    return found;
}

/* CUPTI serves one tool at a time, and some of them crash a process that uses it under them: ask before opening it. */
static bw_status refuse_other_tools(void) {
    const char *library = NULL, *injected = getenv("CUDA_INJECTION64_PATH");
    dl_iterate_phdr(tool_object, &library);
    if (!library && !(injected && injected[0]) && !under_debugger()) return BW_OK;
    return bw_fail(BW_CODE_UNAVAILABLE,
                   "this process runs under another profiler or debugger (%s): CUPTI serves one at a time, run without "
                   "it",
                   library                   ? library
                   : injected && injected[0] ? "CUDA_INJECTION64_PATH is set"
                                             : "cuda-gdb");
}

/* ---- the library ---- */

static const bw_library_query library_query = {
    .title = "CUPTI",
    .stem = "libcupti.so",
    .sonames = (const char *const[]){"libcupti.so.13", "libcupti.so.12", NULL},
    .wheel_folders = (const char *const[]){"nvidia/cu1[0-9]/lib", "nvidia/cuda_cupti/lib", NULL},
    .toolkit_folders = (const char *const[]){"extras/CUPTI/lib64", "lib64", "targets/*/lib", "lib", NULL},
    .advice = "install it with `pip install nvidia-cuda-cupti`, or set CUDA_HOME",
    .test_variable = "BWPROF_TEST_CUPTI",
};

bw_status bw_cupti_symbol(const bw_cupti *library, const char *name, void **out) {
    return bw_library_symbol(library->handle, library->path, name, out);
}

static bw_status open_library(bw_cupti *library) {
    BW_TRY(refuse_other_tools());
    BW_TRY(bw_library_open(&library_query, &library->handle, library->path, sizeof library->path));
    /* It hooks into the driver and starts threads: once in the process it stays, whoever closes it. */
    void *pinned = dlopen(library->path, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    if (pinned) dlclose(pinned);
#define CUPTI_SYMBOL(name, arguments)                     \
    {                                                     \
        void *symbol;                                     \
        BW_TRY(bw_cupti_symbol(library, #name, &symbol)); \
        memcpy(&library->name, &symbol, sizeof symbol);   \
    }
    CUPTI_CALLS(CUPTI_SYMBOL)
#undef CUPTI_SYMBOL
    return BW_OK;
}

bw_status bw_cupti_get(bw_device *device, bw_cupti **out) {
    bw_cupti *library = device->cupti;
    if (!library) {
        library = calloc(1, sizeof *library);
        if (!library) return bw_fail(BW_CODE_MEMORY, "out of host memory for CUPTI's handle");
        device->cupti = library;
        bw_status status = open_library(library);
        if (status) {
            library->failure_code = bw_status_code(status);
            snprintf(library->failure, sizeof library->failure, "%s", bw_status_message(status));
            bw_status_free(status);
        }
    }
    if (library->failure[0]) return bw_fail(library->failure_code, "%s", library->failure);
    *out = library;
    return BW_OK;
}

bw_status bw_cupti_describe(bw_device *device, bw_library_info *out) {
    bw_cupti *library = NULL;
    uint32_t version = 0;
    BW_TRY(bw_cupti_get(device, &library));
    snprintf(out->path, sizeof out->path, "%s", library->path);
    BW_TRY(CUPTI(library, cuptiGetVersion, &version));
    /* 130000 = 13.0; before CUDA 13 a number that grew with every change of the interface. */
    if (version >= 10000) {
        snprintf(out->version, sizeof out->version, "%u.%u", version / 10000, version / 100 % 100);
    } else {
        snprintf(out->version, sizeof out->version, "API %u", version);
    }
    return BW_OK;
}

void bw_cupti_close(bw_device *device) {
    bw_cupti *library = device->cupti;
    if (!library) return;
    bw_cupti_trace_end(device);
    bw_library_close(library->handle);
    free(library);
    device->cupti = NULL;
}

/* ---- kernel timestamps ---- */

static void on_callback(void *user, int domain, uint32_t id, const void *data) {
    (void)user, (void)domain, (void)id, (void)data;
}

static void on_buffer_requested(uint8_t **buffer, size_t *size, size_t *record_limit) {
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *record_limit = 0;
}

/* The sink is locked. */
static void keep_span(const kernel_record *record) {
    if (bw_cupti_sink.count == bw_cupti_sink.capacity) {
        int64_t capacity = bw_max64(1024, 2 * bw_cupti_sink.capacity);
        bw_kernel_span *spans = realloc(bw_cupti_sink.spans, (size_t)capacity * sizeof *spans);
        if (!spans) {
            bw_cupti_sink.lost++;
            return;
        }
        bw_cupti_sink.spans = spans;
        bw_cupti_sink.capacity = capacity;
    }
    bw_cupti_sink.spans[bw_cupti_sink.count++] = (bw_kernel_span){
        .start_ns = record->start,
        .end_ns = record->end,
        .stream = record->kind == KIND_CONCURRENT_KERNEL ? record->of.kernel.stream : record->of.copy.stream,
    };
}

static void on_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size) {
    (void)size;
    sink_lock();
    const bw_cupti *library = bw_cupti_sink.owner;
    kernel_record *record = NULL;
    size_t dropped = 0;
    int result = 0;
    while (library && valid_size) {
        result = library->cuptiActivityGetNextRecord(buffer, valid_size, &record);
        if (result != 0) break;
        if (record->kind > KIND_KERNEL && record->kind != KIND_CONCURRENT_KERNEL) continue;
        if (record->end > 0 && record->end >= record->start) {
            keep_span(record);
        } else {
            bw_cupti_sink.lost++; /* CUPTI had no timestamp for it */
        }
    }
    if (result != 0 && result != NO_MORE_RECORDS) bw_cupti_sink.lost++;
    if (library && library->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == 0) {
        bw_cupti_sink.lost += (int64_t)dropped;
    }
    sink_unlock();
    free(buffer);
}

static void sink_release(void) {
    sink_lock();
    free(bw_cupti_sink.spans);
    free(bw_cupti_sink.taken);
    bw_cupti_sink.spans = bw_cupti_sink.taken = NULL;
    bw_cupti_sink.owner = NULL;
    bw_cupti_sink.count = bw_cupti_sink.capacity = bw_cupti_sink.lost = 0;
    sink_unlock();
}

static const int kinds[] = {KIND_CONCURRENT_KERNEL, KIND_COPY, KIND_MEMSET};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool sink_claim(bw_cupti *library) {
    sink_lock();
    bool free_to_take = bw_cupti_sink.owner == NULL;
    if (free_to_take) bw_cupti_sink.owner = library;
    sink_unlock();
    return free_to_take;
}

bw_status bw_cupti_trace_begin(bw_device *device) {
    bw_cupti *library = NULL;
    bw_status status = BW_OK;
    BW_TRY(bw_cupti_get(device, &library));
    if (!sink_claim(library)) {
        return bw_fail(BW_CODE_BUSY,
                       "kernels are being traced through another device handle: CUPTI traces the whole "
                       "process, so one measurement at a time");
    }
    BW_GOTO(CUPTI(library, cuptiSubscribe, &library->subscriber, on_callback, NULL));
    BW_GOTO(CUPTI(library, cuptiActivityRegisterCallbacks, on_buffer_requested, on_buffer_completed));
    for (int i = 0; i < KINDS; i++) BW_GOTO(CUPTI(library, cuptiActivityEnable, kinds[i]));
    return BW_OK;
cleanup:
    bw_cupti_trace_end(device);
    return status;
}

bw_status bw_cupti_trace_discard(bw_device *device) {
    BW_TRY(CUPTI(device->cupti, cuptiActivityFlushAll, FLUSH_FORCED));
    sink_lock();
    bw_cupti_sink.count = bw_cupti_sink.lost = 0;
    sink_unlock();
    return BW_OK;
}

static int by_start(const void *left, const void *right) {
    const bw_kernel_span *a = left, *b = right;
    return (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns);
}

bw_status bw_cupti_trace_take(bw_device *device, const bw_kernel_span **spans, int64_t *count) {
    BW_TRY(CUPTI(device->cupti, cuptiActivityFlushAll, FLUSH_FORCED));
    sink_lock();
    int64_t lost = bw_cupti_sink.lost;
    bw_kernel_span *taken = bw_cupti_sink.spans;
    free(bw_cupti_sink.taken);
    bw_cupti_sink.taken = taken;
    *count = bw_cupti_sink.count;
    bw_cupti_sink.spans = NULL;
    bw_cupti_sink.count = bw_cupti_sink.capacity = bw_cupti_sink.lost = 0;
    sink_unlock();
    if (*count) qsort(taken, (size_t)*count, sizeof *taken, by_start);
    *spans = taken;
    if (lost == 0) return BW_OK;
    return bw_fail(BW_CODE_DEVICE, "CUPTI lost %lld kernel records: measure with the timer graph", (long long)lost);
}

static bool sink_is_of(const bw_cupti *library) {
    sink_lock();
    bool found = bw_cupti_sink.owner == library;
    sink_unlock();
    return found;
}

void bw_cupti_trace_end(bw_device *device) {
    bw_cupti *library = device->cupti;
    if (!library || !sink_is_of(library)) return;
    /* Whatever fails here has nothing to undo; buffers come back to on_buffer_completed, which frees them. */
    if (library->subscriber) {
        for (int i = 0; i < KINDS; i++) (void)library->cuptiActivityDisable(kinds[i]);
        (void)library->cuptiActivityFlushAll(FLUSH_FORCED);
        (void)library->cuptiUnsubscribe(library->subscriber);
        library->subscriber = NULL;
    }
    sink_release();
}

/* ---- whose profiler is up ---- */

static int slot_of(const bw_device *device) {
    return device->index % DEVICES_MOST;
}

bw_status bw_cupti_count_begin(bw_device *device) {
    bw_device **owner = &bw_cupti_sink.counting[slot_of(device)];
    sink_lock();
    bool taken = *owner != NULL;
    if (!taken) *owner = device;
    sink_unlock();
    if (!taken) return BW_OK;
    return bw_fail(BW_CODE_BUSY,
                   "another device handle of this process uses the hardware counters: close it, or count there");
}

void bw_cupti_count_end(bw_device *device) {
    sink_lock();
    bw_cupti_sink.counting[slot_of(device)] = NULL;
    sink_unlock();
}

bw_device *bw_cupti_count_owner(const bw_device *device) {
    sink_lock();
    bw_device *owner = bw_cupti_sink.counting[slot_of(device)];
    sink_unlock();
    return owner;
}

bool bw_cupti_count_hold(const bw_device *device, bw_cupti_holder what_for) {
    bw_cupti_holder *holder = &bw_cupti_sink.holder[slot_of(device)], before;
    for (;;) {
        sink_lock();
        before = *holder;
        if (before == BW_CUPTI_HELD_BY_NOBODY) *holder = what_for;
        sink_unlock();
        /* Taking a profiler down takes some milliseconds, and runs nothing of the caller's. */
        if (before != BW_CUPTI_TAKES_DOWN) return before == BW_CUPTI_HELD_BY_NOBODY;
    }
}

void bw_cupti_count_release(const bw_device *device) {
    sink_lock();
    bw_cupti_sink.holder[slot_of(device)] = BW_CUPTI_HELD_BY_NOBODY;
    sink_unlock();
}
