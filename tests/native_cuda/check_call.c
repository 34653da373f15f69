/* csrc/cuda/timing's plans of a caller's function driven without a GPU: a clock, a stream that can be captured, and the
 * fake CUPTI library that BWPROF_TEST_CUPTI names. `check_call <check>`. */
#include "toy_runtime.h"

enum {
    FLUSH_NS = 50000,
    KERNEL_NS = 2000,
    GAP_NS = 100,
    FLUSH_BYTES = 4096,
    CALLS = 4,
    CALLER_STREAM = 7,
    OTHER_STREAM = 13,
    OTHER_GPU = 1
};

static struct {
    fake_cupti *books;
    uint64_t kernel_ns;
    int64_t kernels; /* per call */
    bool apart;      /* the calls run beside the flush, on another stream */
    bool ahead;      /* every second call has run on another stream before its flush began */
    bool waits;      /* what is on another stream waits for the flush */
    bool copies;     /* what is on another stream are copies */
    bool own;        /* not a caller's function, but launches of ours on the device's stream */
    int abroad;      /* so many kernels of a call are another GPU's, on its stream of the same number: the last ones */
    bool unfinished; /* that GPU has not ended them when this one is waited for */
    bool other_gpu;  /* another thread keeps that GPU busy for long while the first flush, or empty kernel, runs */
    int uneven;      /* every second call runs so many kernels more */
    int64_t calls, entered, flushes;
    bool late; /* the last plan's last replay */
    int64_t holds, wait_ns;
    bw_code fails;
} toy;

static void run_kernel_on(uint64_t length_ns, uint32_t gpu, uint32_t stream) {
    if (runtime_run(GAP_NS, length_ns)) return;
    runtime.now_ns += GAP_NS;
    if (toy.books->tracing && toy.books->kernels < FAKE_KERNELS_MOST) {
        toy.books->start_ns[toy.books->kernels] = runtime.now_ns;
        toy.books->is_copy[toy.books->kernels] = toy.copies && stream == OTHER_STREAM;
        toy.books->device[toy.books->kernels] = gpu;
        toy.books->stream[toy.books->kernels] = stream;
        bool ended = gpu != OTHER_GPU || !toy.unfinished;
        toy.books->end_ns[toy.books->kernels++] = ended ? runtime.now_ns + length_ns : 0;
    }
    runtime.now_ns += length_ns;
}

static void run_kernel(uint64_t length_ns, uint32_t stream) {
    run_kernel_on(length_ns, 0, stream);
}

static void run_other_gpu(void) {
    if (toy.other_gpu) run_kernel_on(10 * FLUSH_NS, OTHER_GPU, CALLER_STREAM);
    toy.other_gpu = toy.other_gpu && !toy.books->tracing; /* until it was seen */
}

/* ---- what csrc/cuda/timing needs of the rest ---- */

bw_status bw_cuda_enter(bw_device *device) {
    return BW_CUDA(&device->api, last_error());
}

bw_status bw_cuda_launch_hold(bw_device *device, cudaStream_t stream, int64_t ns) {
    CHECK(stream == (cudaStream_t)&toy && !runtime.capturing);
    toy.holds++;
    toy.wait_ns = ns;
    run_kernel((uint64_t)ns, CALLER_STREAM);
    return BW_CUDA(&device->api, last_error());
}

bw_status bw_cuda_event_passed(bw_cuda_api *api, cudaEvent_t event, bool *out) {
    CHECK(event);
    *out = runtime.slow > 0;
    if (runtime.slow > 0) runtime.slow--;
    return BW_CUDA(api, last_error());
}

bw_status bw_cuda_launch_empty(bw_device *device) {
    (void)device;
    run_kernel(KERNEL_NS, CALLER_STREAM);
    run_other_gpu();
    return BW_OK;
}

bw_status bw_cuda_launch_flush(bw_device *device, cudaStream_t stream, void *memory, int64_t bytes) {
    (void)device;
    CHECK(stream == (cudaStream_t)&toy && memory && bytes == FLUSH_BYTES);
    toy.flushes++;
    run_kernel(FLUSH_NS, CALLER_STREAM);
    run_other_gpu();
    if (toy.apart && !toy.waits) runtime.now_ns -= FLUSH_NS;
    return BW_OK;
}

static bw_status call(void *context, int64_t set, bool captured) {
    (void)context;
    CHECK(toy.entered == 1 && set == 0 && captured == runtime.capturing);
    toy.calls++;
    if (toy.fails) return bw_fail(toy.fails, "the function failed");
    uint64_t back_ns =
        toy.ahead && toy.calls % 2 ? FLUSH_NS + (uint64_t)toy.kernels * (KERNEL_NS + GAP_NS) + GAP_NS : 0;
    uint32_t stream = toy.apart || toy.ahead ? OTHER_STREAM : CALLER_STREAM;
    runtime.now_ns -= back_ns;
    for (int64_t i = 0; i < toy.kernels; i++) {
        run_kernel_on(toy.kernel_ns, i < toy.kernels - toy.abroad ? 0 : OTHER_GPU, stream);
    }
    for (int i = 0; i < toy.uneven && toy.calls % 2; i++) run_kernel(toy.kernel_ns, stream);
    runtime.now_ns += back_ns;
    return BW_OK;
}

static void enter(void *context) {
    (void)context;
    toy.entered++;
}

static void leave(void *context) {
    (void)context;
    toy.entered--;
}

static bw_device open_toy(void) {
    bw_device device;
    runtime_open(&device);
    fake_cupti *books = toy.books;
    memset(&toy, 0, sizeof toy);
    toy.books = books;
    books->kernels = 0;
    toy.kernels = 2;
    toy.kernel_ns = KERNEL_NS;
    device.stream = (cudaStream_t)&toy;
    return device;
}

static void close_toy(bw_device *device) {
    bw_cuda_attachments_close(device);
    CHECK(runtime.live == 0 && toy.entered == 0 && !runtime.capturing);
    CHECK(toy.books->subscribers == 0 && toy.books->tracing == 0 && toy.books->tracing_copies == 0);
}

/* Two replays of a plan. */
static bw_status time_calls(bw_device *device, int timer, int64_t flush_bytes, double *ns, bw_kernel_times *kernels) {
    const bw_plan_spec spec = {.work = {call, enter, leave, NULL, &toy, !toy.own},
                               .set_count = 1,
                               .launches = CALLS,
                               .flush_bytes = flush_bytes,
                               .timer = timer};
    bw_plan *plan = NULL;
    bw_status status = bw_cuda_plan_calls.create(device, &spec, &plan);
    if (status) return status;
    for (int i = 0; i < 2 && !status; i++) status = bw_cuda_plan_calls.run(plan, ns);
    if (kernels) *kernels = bw_cuda_plan_calls.kernels(plan);
    toy.late = bw_cuda_plan_calls.late(plan);
    bw_cuda_plan_calls.free(plan);
    return status;
}

static void expect_failure(int timer, int64_t flush_bytes, bw_code code, const char *text) {
    bw_device device = open_toy();
    double ns;
    if (strstr(text, "nothing")) toy.kernels = 0;
    bw_status status = time_calls(&device, timer, flush_bytes, &ns, NULL);
    CHECK(bw_status_code(status) == code && strstr(bw_status_message(status), text));
    bw_status_free(status);
    close_toy(&device);
}

/* Two kernels of 2 us, 0.1 us apart: 4.1 us from start to end; events and graphs see the gap before them as well. With
 * launches of ours the flush comes once, before the replay. */
static void check_time(bool own, int timer, int64_t flush_bytes) {
    const double wanted = timer == TIMER_CUPTI ? 4100.0 : 4200.0;
    bw_device device = open_toy();
    double ns = 0.0;
    bw_kernel_times kernels;
    toy.own = own;
    bw_status status = time_calls(&device, timer, flush_bytes, &ns, &kernels);
    CHECK(!status && fabs(ns - CALLS * wanted) < 10.0);
    bool traced = timer == TIMER_CUPTI;
    CHECK(traced ? kernels.sum_ns == CALLS * 4000.0 : isnan(kernels.sum_ns));
    CHECK(traced ? kernels.span_ns == ns : isnan(kernels.span_ns));
    CHECK(traced ? kernels.elsewhere == 0.0 : isnan(kernels.elsewhere));
    CHECK(runtime.captures == (timer != TIMER_GRAPH ? 0 : flush_bytes && !own ? 2 : 1));
    if (own) CHECK(toy.flushes == (flush_bytes ? 3 : 0)); /* when it was made, and before each of two replays */
    close_toy(&device);
}

static void check_times(void) {
    for (int own = 0; own <= 1; own++) {
        for (int timer = TIMER_GRAPH; timer < TIMERS; timer++) {
            check_time(own, timer, 0);
            check_time(own, timer, FLUSH_BYTES);
        }
    }
}

/* A GPU that has waited for the host: the replay is made again, so often and no more; then its time is called late. */
static void check_slow_host(void) {
    for (int64_t slow = 0; slow < 12; slow++) {
        bw_device device = open_toy();
        double ns = 0.0;
        runtime.slow = slow;
        CHECK(!time_calls(&device, TIMER_GRAPH, 0, &ns, NULL));
        CHECK(fabs(ns - CALLS * 4200.0 - (slow < 8 ? 0 : RUNTIME_HOST_NS)) < 10.0);
        CHECK(toy.late == (slow >= 8));
        CHECK(toy.holds == (slow < 4 ? 2 + slow : slow < 8 ? slow + 1 : 8) && toy.wait_ns >= 0);
        close_toy(&device);
    }
}

static void check_refusals(void) {
    for (int64_t flush_bytes = 0; flush_bytes <= FLUSH_BYTES; flush_bytes += FLUSH_BYTES) {
        expect_failure(TIMER_CUPTI, flush_bytes, BW_CODE_INVALID, "enqueued nothing");
        expect_failure(TIMER_GRAPH, flush_bytes, BW_CODE_INVALID, "enqueued nothing");
    }
}

/* Work on another stream: beside its flush, or, every second time, before it; kernels, or copies. On a stream that
 * waits for the given one it is in its place, and is timed. */
static void check_other_streams(void) {
    for (int way = 0; way < 8; way++) {
        bw_device device = open_toy();
        double ns = 0.0;
        toy.apart = way % 4 != 2;
        toy.waits = way % 4 == 3;
        toy.ahead = way % 4 == 2 || way % 4 == 1;
        toy.copies = way >= 4;
        bw_status status = time_calls(&device, TIMER_CUPTI, FLUSH_BYTES, &ns, NULL);
        if (toy.waits) {
            CHECK(!status && fabs(ns - CALLS * 4100.0) < 10.0);
        } else {
            CHECK(bw_status_code(status) == BW_CODE_INVALID);
            CHECK(strstr(bw_status_message(status),
                         "8 of 12 kernels and copies were on another stream than the one given"));
        }
        bw_status_free(status);
        close_toy(&device);
    }
}

/* All kernels on another GPU: refused, by its number, whether it has ended them or not. Some of them: timed, and
 * counted; where that GPU still runs them, their time is unknown. What another thread runs there tells nothing. */
static void check_other_gpus(void) {
    for (int way = 0; way < 16; way++) {
        bw_device device = open_toy();
        double ns = 0.0;
        bw_kernel_times kernels;
        toy.abroad = way & 1 ? 1 : 2;
        toy.unfinished = way & 2;
        toy.other_gpu = way & 4;
        bw_status status = time_calls(&device, TIMER_CUPTI, way & 8 ? FLUSH_BYTES : 0, &ns, &kernels);
        if (toy.abroad == 2) {
            CHECK(bw_status_code(status) == BW_CODE_INVALID);
            CHECK(strstr(bw_status_message(status), "ran on GPU 1, while GPU 0 is measured, which ran none of its 8 "));
            CHECK(strstr(bw_status_message(status), "device='cuda:1'"));
        } else if (toy.unfinished) {
            CHECK(bw_status_code(status) == BW_CODE_UNAVAILABLE);
            CHECK(strstr(bw_status_message(status), "GPU 1 still ran 4 of the function's 8 kernels"));
        } else {
            CHECK(!status && fabs(ns - CALLS * 4100.0) < 10.0 && kernels.elsewhere == CALLS);
        }
        bw_status_free(status);
        close_toy(&device);
    }
    bw_device device = open_toy();
    double ns;
    toy.abroad = toy.uneven = 1;
    bw_status status = time_calls(&device, TIMER_CUPTI, FLUSH_BYTES, &ns, NULL);
    CHECK(strstr(bw_status_message(status),
                 "4 of 14 kernels and copies were on another stream or GPU than the one given"));
    bw_status_free(status);
    close_toy(&device);
}

/* Three kernels and two in turn: of the first call's number nobody could tell. Three and one, with flushes: as many as
 * calls of two would run, but the flushes are not where they would be. */
static void check_uneven(void) {
    for (int more = 1; more <= 2; more++) {
        bw_device device = open_toy();
        double ns;
        toy.uneven = more;
        toy.kernels = 3 - more;
        bw_status status = time_calls(&device, TIMER_CUPTI, more == 2 ? FLUSH_BYTES : 0, &ns, NULL);
        CHECK(bw_status_code(status) == BW_CODE_UNAVAILABLE);
        CHECK(strstr(bw_status_message(status), more == 2 ? "12 kernels and copies in 4 calls" : "10 kernels"));
        bw_status_free(status);
        close_toy(&device);
    }
}

/* The function fails: in a plain call, in a capture; or what it does invalidates the capture. */
static void check_failing_function(void) {
    for (int timer = TIMER_GRAPH; timer < TIMERS; timer++) {
        bw_device device = open_toy();
        double ns;
        toy.fails = BW_CODE_INTERRUPTED;
        bw_status status = time_calls(&device, timer, FLUSH_BYTES, &ns, NULL);
        CHECK(bw_status_code(status) == BW_CODE_INTERRUPTED && toy.calls == 1);
        bw_status_free(status);
        close_toy(&device);
    }
    bw_device device = open_toy();
    double ns;
    runtime.unfit = true;
    bw_status status = time_calls(&device, TIMER_GRAPH, 0, &ns, NULL);
    CHECK(status && runtime.captures == 1);
    bw_status_free(status);
    close_toy(&device);
}

static void check_cuda_faults(void) {
    for (int timer = TIMER_GRAPH; timer < TIMERS; timer++) {
        for (int64_t at = 1;; at++) {
            bw_device device = open_toy();
            double ns = 0.0;
            device.api.fault_countdown = at;
            bw_status status = time_calls(&device, timer, FLUSH_BYTES, &ns, NULL);
            bool came = device.api.fault_countdown == 0;
            device.api.fault_countdown = 0;
            if (status) CHECK(bw_status_code(status) == BW_CODE_DEVICE && strstr(bw_status_message(status), "failed"));
            bw_status_free(status);
            close_toy(&device);
            if (!came) {
                CHECK(at > 8);
                break;
            }
        }
    }
}

static void check_cupti_faults(void) {
    for (long at = 1;; at++) {
        bw_device device = open_toy();
        double ns = 0.0;
        toy.books->calls = 0;
        toy.books->fail_at = at;
        toy.books->fail_code = 39;
        bw_status status = time_calls(&device, TIMER_CUPTI, FLUSH_BYTES, &ns, NULL);
        long made = toy.books->calls;
        toy.books->fail_at = 0;
        if (!status) CHECK(fabs(ns - CALLS * 4100.0) < 10.0);
        bw_status_free(status);
        close_toy(&device);
        if (made < at) {
            CHECK(at > 8);
            return;
        }
    }
}

static const struct {
    const char *name;
    void (*check)(void);
} checks[] = {{"times", check_times},
              {"slow_host", check_slow_host},
              {"refusals", check_refusals},
              {"other_streams", check_other_streams},
              {"other_gpus", check_other_gpus},
              {"uneven", check_uneven},
              {"failing_function", check_failing_function},
              {"cuda_faults", check_cuda_faults},
              {"cupti_faults", check_cupti_faults}};

int main(int count, char **words) {
    toy.books = open_books("BWPROF_TEST_CUPTI", "fake_cupti_books");
    for (size_t i = 0; toy.books && count == 2 && i < sizeof checks / sizeof checks[0]; i++) {
        if (strcmp(words[1], "--list") == 0) printf("%s\n", checks[i].name);
        if (strcmp(words[1], checks[i].name) != 0) continue;
        checks[i].check();
        return 0;
    }
    return count == 2 && strcmp(words[1], "--list") == 0 ? 0 : 2;
}
