/* A device of a few lines for check_cupti.c: what its kernels do to DRAM and when they run, in the fake library's
 * books, and whatever else csrc/cuda's use of CUPTI needs of the rest of csrc/cuda. */
#ifndef TOY_GPU_H
#define TOY_GPU_H

#include "toy.h"

enum { MIB = 1 << 20, READ = 3 * MIB, WRITTEN = 1 * MIB, PRIVILEGES = 35 };

/* The toy device: what a launch and a flush do to DRAM, and which kernels they are. */
static struct {
    fake_cupti *books;
    int64_t memory, dirty_bytes, launches, kernels_per_launch;
    bool clears;           /* a launch begins with a memset */
    int64_t queued, queue; /* kernels since the stream was held back; the most there ever were */
    int64_t disturbed;     /* so many of the next counted launches see somebody else's writes */
    uint64_t now_ns;
    cudaError_t launch_error;
    FILE *log;                        /* gets a line for each kernel, ns; NULL: none does */
    void (*meanwhile)(void *context); /* what else goes on during a launch */
    void *meanwhile_context;
} toy;

static void move(double read, double written) {
    if (!toy.books || !toy.books->in_range) return;
    toy.books->seen[0] += read;
    toy.books->seen[1] += written;
    toy.books->seen[2] += read + written;
}

static void run(uint64_t length_ns, bool is_copy) {
    toy.now_ns += 100;
    if (toy.log) {
        fprintf(toy.log, "kernel %llu\n", (unsigned long long)length_ns);
        fflush(toy.log);
    }
    toy.queue = bw_max64(toy.queue, ++toy.queued);
    if (toy.books && (is_copy ? toy.books->tracing_copies : toy.books->tracing)) {
        CHECK(toy.books->kernels < FAKE_KERNELS_MOST);
        toy.books->start_ns[toy.books->kernels] = toy.now_ns;
        toy.books->is_copy[toy.books->kernels] = is_copy;
        toy.books->end_ns[toy.books->kernels++] = toy.now_ns + length_ns;
    }
    toy.now_ns += length_ns;
}

static void run_kernel(uint64_t length_ns) {
    run(length_ns, false);
}

/* ---- what csrc/cuda needs of the rest of itself ---- */

bw_status bw_cuda_context(void **out) {
    *out = &toy;
    return BW_OK;
}

bw_status bw_cuda_enter(bw_device *device) {
    (void)device;
    return BW_OK;
}

bw_status bw_cuda_launch_empty(bw_device *device) {
    (void)device;
    run_kernel(10);
    return BW_OK;
}

bw_status bw_cuda_event_passed(bw_cuda_api *api, cudaEvent_t event, bool *out) {
    (void)api, (void)event;
    *out = false;
    return BW_OK;
}

bw_status bw_cuda_launch_hold(bw_device *device, cudaStream_t stream, int64_t ns) {
    (void)device, (void)stream, (void)ns;
    toy.queued = 0;
    run_kernel(5555);
    return BW_OK;
}

bw_status bw_cuda_launch_flush(bw_device *device, cudaStream_t stream, void *memory, int64_t bytes) {
    (void)device, (void)stream, (void)memory;
    move((double)bytes, (double)toy.dirty_bytes);
    toy.dirty_bytes = 0;
    run_kernel(5000);
    return BW_OK;
}

static bw_status toy_launch(void *context, int64_t set, bool captured) {
    (void)context, (void)set, (void)captured;
    toy.launches++;
    if (toy.meanwhile) toy.meanwhile(toy.meanwhile_context);
    if (toy.launch_error != cudaSuccess) return bw_fail(BW_CODE_DEVICE, "the launch failed");
    move(READ, 0);
    if (toy.books && toy.books->in_range && toy.disturbed > 0) {
        toy.disturbed--;
        move(0, MIB / 4);
    }
    toy.dirty_bytes += WRITTEN;
    if (toy.clears) run(400, true);
    for (int64_t i = 0; i < toy.kernels_per_launch; i++) run_kernel((uint64_t)(1000 * (i + 1)));
    return BW_OK;
}

static cudaError_t toy_allocate(void **out, size_t bytes) {
    (void)bytes;
    toy.memory++;
    *out = malloc(1);
    return cudaSuccess;
}

static cudaError_t toy_release(void *memory) {
    toy.memory--;
    free(memory);
    return cudaSuccess;
}

static cudaError_t toy_set(void *memory, int value, size_t bytes, cudaStream_t stream) {
    (void)memory, (void)value, (void)bytes, (void)stream;
    toy.dirty_bytes += 7 * MIB;
    return cudaSuccess;
}

static cudaError_t toy_synchronize(cudaStream_t stream) {
    (void)stream;
    return cudaSuccess;
}

static cudaError_t toy_synchronize_all(void) {
    return cudaSuccess;
}

static cudaError_t toy_event_create(cudaEvent_t *out) {
    return toy_allocate((void **)out, 1);
}

static cudaError_t toy_event_destroy(cudaEvent_t event) {
    return toy_release(event);
}

static cudaError_t toy_last_error(void) {
    return cudaSuccess;
}

static void open_toy(bw_device *device) {
    memset(device, 0, sizeof *device);
    device->api.memory_allocate = toy_allocate;
    device->api.memory_free = toy_release;
    device->api.memory_set = toy_set;
    device->api.stream_synchronize = toy_synchronize;
    device->api.device_synchronize = toy_synchronize_all;
    device->api.event_create = toy_event_create;
    device->api.event_destroy = toy_event_destroy;
    device->api.last_error = toy_last_error;
    device->api.fault = cudaErrorUnknown;
    device->facts.cache_bytes = 50 * MIB;
    toy.memory = toy.dirty_bytes = toy.queue = 0;
    toy.clears = false;
    toy.kernels_per_launch = 2;
}

static void close_toy(bw_device *device) {
    bw_cuda_attachments_close(device);
    CHECK(toy.memory == 0);
    if (!toy.books) return;
    CHECK(toy.books->subscribers == 0 && toy.books->tracing == 0 && toy.books->initialized == 0);
    CHECK(toy.books->hosts == 0 && toy.books->profilers == 0 && toy.books->started == 0);
}

static const bw_plan_spec spec = {.work = {.run = toy_launch}, .set_count = 1, .launches = 5};
static const bw_plan_spec once = {.work = {.run = toy_launch}, .set_count = 1, .launches = 1, .flush_bytes = 1};

#endif
