/* The process-wide state of CUPTI: recorded kernel timestamps, and which handle has the profiler of each device. */
#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cuda/libraries/cupti.h"
#include "cuda/libraries/cupti_calls.h"
#include "cuda/runtime/attachments.h"

enum { FLUSH_FORCED = 1, NO_MORE_RECORDS = 12, BUFFER_BYTES = 4 << 20, DEVICES_MOST = 64 };

enum { KIND_COPY = 1, KIND_MEMSET = 2, KIND_KERNEL = 3, KIND_CONCURRENT_KERNEL = 10 };

/* What a handle that has traced keeps. */
typedef struct trace_state {
    const bw_cupti *library;
    void *subscriber; /* NULL: it does not trace */
    uint32_t device;  /* its number in CUPTI, which counts as CUDA does */
} trace_state;

/* Where the records of the whole process go. CUPTI's buffer callbacks carry no pointer of the caller's, and come from
 * a thread of its own, so this cannot live in a handle. */
static struct {
    pthread_mutex_t lock;                    /* whose holder may be put to sleep, or have a lower priority */
    const trace_state *owner;                /* NULL: no handle traces */
    bw_cupti_counter counters[DEVICES_MOST]; /* the handle whose profiler is up, by the device's number; zero: none */
    bw_cupti_holder holder[DEVICES_MOST];    /* of that profiler */
    pthread_cond_t released;                 /* a holder or a counter is gone */
    bw_kernel_span *spans;
    bw_kernel_span *snapshot; /* what the last `take` gave out: CUPTI's thread goes on writing to `spans` */
    int64_t count, capacity;
    int64_t lost; /* records dropped by CUPTI or by a lack of memory */
} bw_cupti_sink = {.lock = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};

static void sink_lock(void) {
    pthread_mutex_lock(&bw_cupti_sink.lock);
}

static void sink_unlock(void) {
    pthread_mutex_unlock(&bw_cupti_sink.lock);
}

static void on_callback(void *user, int domain, uint32_t id, const void *data) {
    (void)user, (void)domain, (void)id, (void)data;
}

static void on_buffer_requested(uint8_t **buffer, size_t *size, size_t *record_limit) {
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *size = *buffer ? BUFFER_BYTES : 0;
    *record_limit = 0;
}

static bw_kernel_span span_of(const kernel_record *record) {
    const bool is_kernel = record->kind == KIND_CONCURRENT_KERNEL;
    const bool finished = record->end > 0 && record->end >= record->start;
    return (bw_kernel_span){
        .start_ns = finished ? record->start : 0,
        .end_ns = finished ? record->end : 0,
        .device = is_kernel ? record->of.kernel.device : record->of.copy.device,
        .stream = is_kernel ? record->of.kernel.stream : record->of.copy.stream,
    };
}

/* The sink is locked. */
static bool has_room(void) {
    if (bw_cupti_sink.count < bw_cupti_sink.capacity) return true;
    const int64_t capacity = bw_max64(1024, 2 * bw_cupti_sink.capacity);
    bw_status status = bw_resize((void **)&bw_cupti_sink.spans, capacity, sizeof *bw_cupti_sink.spans, "spans");
    if (!status) bw_cupti_sink.capacity = capacity;
    bw_status_free(status);
    return bw_cupti_sink.count < bw_cupti_sink.capacity;
}

static void on_buffer_completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid_size) {
    (void)size;
    sink_lock();
    const bw_cupti *library = bw_cupti_sink.owner ? bw_cupti_sink.owner->library : NULL;
    kernel_record *record = NULL;
    size_t dropped = 0;
    int result = 0;
    while (library && valid_size) {
        result = library->cuptiActivityGetNextRecord(buffer, valid_size, &record);
        if (result != 0) break;
        if (record->kind > KIND_KERNEL && record->kind != KIND_CONCURRENT_KERNEL) continue;
        const bw_kernel_span span = span_of(record);
        const bool has_times = span.end_ns > 0 || span.device != bw_cupti_sink.owner->device; /* others may still run */
        if (has_times && has_room()) {
            bw_cupti_sink.spans[bw_cupti_sink.count++] = span;
        } else {
            bw_cupti_sink.lost++;
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
    free(bw_cupti_sink.snapshot);
    bw_cupti_sink.spans = bw_cupti_sink.snapshot = NULL;
    bw_cupti_sink.owner = NULL;
    bw_cupti_sink.count = bw_cupti_sink.capacity = bw_cupti_sink.lost = 0;
    sink_unlock();
}

static const int kinds[] = {KIND_CONCURRENT_KERNEL, KIND_COPY, KIND_MEMSET};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool sink_claim(const trace_state *self) {
    sink_lock();
    bool free_to_take = bw_cupti_sink.owner == NULL;
    if (free_to_take) bw_cupti_sink.owner = self;
    sink_unlock();
    return free_to_take;
}

static bool sink_is_of(const trace_state *self) {
    sink_lock();
    bool found = bw_cupti_sink.owner == self;
    sink_unlock();
    return found;
}

static void end_trace(bw_device *device, void *state) {
    trace_state *self = state;
    const bw_cupti *library = self->library;
    (void)device;
    if (!sink_is_of(self)) return;
    /* Whatever fails here has nothing to undo; buffers come back to on_buffer_completed, which frees them. */
    if (self->subscriber) {
        for (int i = 0; i < KINDS; i++) (void)library->cuptiActivityDisable(kinds[i]);
        (void)library->cuptiActivityFlushAll(FLUSH_FORCED);
        (void)library->cuptiUnsubscribe(self->subscriber);
        self->subscriber = NULL;
    }
    sink_release();
}

static const bw_cuda_part trace_part = {.state_bytes = sizeof(trace_state), .close = end_trace};

static const bw_cupti *library_of(const bw_device *device) {
    const trace_state *self = bw_cuda_find_attachment(device, &trace_part);
    return self->library;
}

void bw_cupti_trace_end(bw_device *device) {
    void *state = bw_cuda_find_attachment(device, &trace_part);
    if (state) end_trace(device, state);
}

bw_status bw_cupti_trace_begin(bw_device *device) {
    bw_cupti *library = NULL;
    void *state = NULL;
    bw_status status = BW_OK;
    BW_TRY(bw_cupti_get(device, &library));
    BW_TRY(bw_cuda_attach(device, &trace_part, &state));
    trace_state *self = state;
    self->library = library;
    self->device = (uint32_t)device->index;
    if (!sink_claim(self)) {
        return bw_fail(BW_CODE_BUSY,
                       "kernels are being traced through another device handle: CUPTI traces the whole "
                       "process, so one measurement at a time");
    }
    BW_GOTO(BW_CUPTI(library, cuptiSubscribe, &self->subscriber, on_callback, NULL));
    BW_GOTO(BW_CUPTI(library, cuptiActivityRegisterCallbacks, on_buffer_requested, on_buffer_completed));
    for (int i = 0; i < KINDS; i++) BW_GOTO(BW_CUPTI(library, cuptiActivityEnable, kinds[i]));
    return BW_OK;
cleanup:
    bw_cupti_trace_end(device);
    return status;
}

bw_status bw_cupti_trace_discard(bw_device *device) {
    BW_TRY(BW_CUPTI(library_of(device), cuptiActivityFlushAll, FLUSH_FORCED));
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
    BW_TRY(BW_CUPTI(library_of(device), cuptiActivityFlushAll, FLUSH_FORCED));
    sink_lock();
    int64_t lost = bw_cupti_sink.lost;
    bw_kernel_span *snapshot = bw_cupti_sink.spans;
    free(bw_cupti_sink.snapshot);
    bw_cupti_sink.snapshot = snapshot;
    *count = bw_cupti_sink.count;
    bw_cupti_sink.spans = NULL;
    bw_cupti_sink.count = bw_cupti_sink.capacity = bw_cupti_sink.lost = 0;
    sink_unlock();
    if (*count) qsort(snapshot, (size_t)*count, sizeof *snapshot, by_start);
    *spans = snapshot;
    if (lost == 0) return BW_OK;
    return bw_fail(BW_CODE_DEVICE, "CUPTI lost %lld kernel records: measure with the timer graph", (long long)lost);
}

static int slot_of(const bw_device *device) {
    return device->index % DEVICES_MOST;
}

bw_status bw_cupti_count_begin(bw_cupti_counter whose) {
    bw_cupti_counter *counters = &bw_cupti_sink.counters[slot_of(whose.device)];
    sink_lock();
    bool is_taken = counters->device != NULL;
    if (!is_taken) *counters = whose;
    sink_unlock();
    if (!is_taken) return BW_OK;
    return bw_fail(BW_CODE_BUSY,
                   "another device handle of this process uses the hardware counters: close it, or count there");
}

void bw_cupti_count_end(const bw_device *device) {
    sink_lock();
    bw_cupti_sink.counters[slot_of(device)] = (bw_cupti_counter){0};
    pthread_cond_broadcast(&bw_cupti_sink.released);
    sink_unlock();
}

bw_cupti_counter bw_cupti_count_owner(const bw_device *device) {
    sink_lock();
    bw_cupti_counter whose = bw_cupti_sink.counters[slot_of(device)];
    sink_unlock();
    return whose;
}

bool bw_cupti_count_hold(const bw_device *device, bw_cupti_holder what_for) {
    bw_cupti_holder *holder = &bw_cupti_sink.holder[slot_of(device)];
    const bw_cupti_counter *counter = &bw_cupti_sink.counters[slot_of(device)];
    sink_lock();
    /* Taking a profiler down takes some milliseconds, and runs nothing of the caller's. */
    while (*holder > BW_CUPTI_COUNTS ||
           (*holder == BW_CUPTI_COUNTS && what_for == BW_CUPTI_CLOSES && counter->device == device)) {
        pthread_cond_wait(&bw_cupti_sink.released, &bw_cupti_sink.lock);
    }
    bool is_free = *holder == BW_CUPTI_FREE;
    if (is_free) *holder = what_for;
    sink_unlock();
    return is_free;
}

void bw_cupti_count_release(const bw_device *device) {
    sink_lock();
    bw_cupti_sink.holder[slot_of(device)] = BW_CUPTI_FREE;
    pthread_cond_broadcast(&bw_cupti_sink.released);
    sink_unlock();
}

bw_status bw_cuda_take_down_all_profilers(bw_device *device) {
    if (!bw_cupti_count_hold(device, BW_CUPTI_TAKES_DOWN)) {
        return bw_fail(BW_CODE_BUSY,
                       "another device handle of this process is counting, and every kernel starts later meanwhile: "
                       "measure when it has finished");
    }
    bw_cupti_counter whose = bw_cupti_count_owner(device);
    if (whose.device) whose.take_down(whose.device, whose.state);
    bw_cupti_count_release(device);
    bw_cuda_release_profilers(device); /* only now: a part may wait for a handle that counts */
    return BW_OK;
}
