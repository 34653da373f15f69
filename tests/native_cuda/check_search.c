/* csrc/cuda/kernels/gemm/cublaslt_search.c's search for the fastest algorithm, without a GPU: a toy runtime whose clock
 * rises from idle, and a fake library. `check_search <check>`; BWPROF_TEST_CUBLASLT names the library. */
#include "cuda/kernels/gemm/gemm.h"
#include "cuda/launch/search.h"
#include "fake_cublaslt.h"
#include "ops/families/gemm.h"
#include "toy_runtime.h"

enum { ALGORITHMS = 32, GAP_NS = 100 };

static struct {
    fake_cublaslt *library;
    uint64_t length_ns[ALGORITHMS];        /* 0: the product fails */
    int64_t launches, quiet, last, scaled; /* `scaled`: how many launches there were when sums were scaled last */
    bw_code busy;
} toy;

static int run(int algorithm) {
    toy.launches++;
    toy.last = algorithm;
    if (toy.length_ns[algorithm] == 0) return 14;
    if (!runtime_run(GAP_NS, toy.length_ns[algorithm])) runtime.now_ns += toy.length_ns[algorithm];
    return 0;
}

/* ---- what cublaslt_search.c and replay.c need of the rest ---- */

bw_status bw_cuda_launch_hold(bw_device *device, cudaStream_t stream, int64_t ns) {
    (void)stream, (void)ns;
    return BW_CUDA(&device->api, last_error());
}

bw_status bw_cuda_event_passed(bw_cuda_api *api, cudaEvent_t event, bool *out) {
    (void)event;
    *out = false;
    return BW_CUDA(api, last_error());
}

bw_status bw_cuda_take_down_all_profilers(bw_device *device) {
    (void)device;
    CHECK(toy.launches == 0);
    toy.quiet++;
    return toy.busy ? bw_fail(toy.busy, "another device handle is counting") : BW_OK;
}

/* The launch that scales whole sums, as prepared once and then launched after each product. */
static int scaling;

bw_status bw_gemm_scale_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                               bw_cuda_launch_spec *out) {
    (void)dims, (void)precision, (void)facts, (void)out;
    return BW_OK;
}

bw_status bw_cuda_prepare(const bw_launch *sets, int64_t set_count, bw_cuda_choose *choose, void **state) {
    CHECK(set_count == 1 && choose == bw_gemm_scale_choose && sets[0].precision->compute == BW_INT8);
    *state = &scaling;
    return BW_OK;
}

bw_status bw_cuda_prepared_launch(const bw_launch *launch) {
    CHECK(launch->state == &scaling);
    toy.scaled = toy.launches;
    return BW_OK;
}

void bw_cuda_prepared_release(void *state) {
    CHECK(!state || state == &scaling);
}

/* ---- checks ---- */

static void open_toy(bw_device *device) {
    fake_cublaslt *library = toy.library;
    runtime_open(device);
    device->stream = (cudaStream_t)&toy;
    memset(&toy, 0, sizeof toy);
    toy.library = library;
    toy.last = -1;
    library->algorithms = ALGORITHMS;
    library->run = run;
    for (int i = 0; i < ALGORITHMS; i++) toy.length_ns[i] = 11000 + 100 * (uint64_t)i;
}

static void close_toy(bw_device *device) {
    bw_cuda_attachments_close(device);
    CHECK(runtime.live == 0 && !runtime.capturing);
}

/* Prepares a case; says how that went, and which algorithm it runs from then on, -1 where none could be had. */
static bw_code prepared(bw_device *device, bw_precision_id precision, bool once, int64_t *algorithm) {
    bw_dims dims = {0};
    *algorithm = -1;
    dims.value[BW_GEMM_M] = dims.value[BW_GEMM_N] = dims.value[BW_GEMM_K] = 64;
    bw_launch sets[3];
    void *state = NULL;
    memset(sets, 0, sizeof sets);
    for (int i = 0; i < 3; i++)
        sets[i] = (bw_launch){.dims = &dims, .precision = bw_precision_get(precision), .once = once, .device = device};
    bw_status status = bw_cublaslt_prepare(sets, 3, &state);
    if (status) {
        const bw_code code = bw_status_code(status);
        CHECK(!state);
        bw_status_free(status);
        return code;
    }
    sets[0].state = state;
    CHECK(!bw_cublaslt_launch(&sets[0]));
    bw_cublaslt_release(state);
    *algorithm = toy.last;
    return BW_CODE_OK;
}

static int64_t chosen(bw_device *device, bool once) {
    int64_t algorithm;
    (void)prepared(device, BW_PRECISION_FP32, once, &algorithm);
    return algorithm;
}

/* Wherever the fastest stands in the library's list: the first ones are not timed worst. */
static void check_idle_clock(void) {
    for (int fastest = 0; fastest < ALGORITHMS; fastest++) {
        bw_device device;
        open_toy(&device);
        runtime.idle_pace = 5.0;
        toy.length_ns[fastest] = 10000;
        CHECK(chosen(&device, false) == fastest);
        CHECK(toy.quiet == 1);
        close_toy(&device);
    }
}

/* The first ones cannot be used at all, the others only just differ: more than the first round could tell. */
static void check_failing_algorithms(void) {
    bw_device device;
    open_toy(&device);
    runtime.idle_pace = 5.0;
    for (int i = 0; i < 20; i++) toy.length_ns[i] = 0;
    toy.length_ns[27] = 10500;
    CHECK(chosen(&device, false) == 27);
    close_toy(&device);
    open_toy(&device);
    memset(toy.length_ns, 0, sizeof toy.length_ns);
    CHECK(chosen(&device, false) == -1);
    close_toy(&device);
}

/* Within 1 %, the library's order decides, however the times fall. */
static void check_ties(void) {
    bw_device device;
    open_toy(&device);
    for (int i = 0; i < ALGORITHMS; i++) toy.length_ns[i] = 11000;
    toy.length_ns[5] = 10950;
    CHECK(chosen(&device, false) == 0);
    close_toy(&device);
}

/* Of a product that takes long, the first four algorithms are timed, once each, and no others. */
static void check_slow_product(void) {
    bw_device device;
    open_toy(&device);
    for (int i = 0; i < ALGORITHMS; i++) toy.length_ns[i] = 50000000;
    toy.length_ns[3] = 40000000;
    toy.length_ns[4] = 1000;
    CHECK(chosen(&device, false) == 3);
    CHECK(toy.launches <= 4 * 2 + 2 + 1); /* loaded and timed; the clock; the case's own launch */
    close_toy(&device);
}

/* The library's first choice, and nothing is launched to find it. */
static void check_once(void) {
    bw_device device;
    open_toy(&device);
    toy.length_ns[3] = 1000;
    CHECK(chosen(&device, true) == 0 && toy.launches == 1 && toy.quiet == 0);
    close_toy(&device);
}

/* Nothing is timed while another handle counts. */
static void check_counting(void) {
    bw_device device;
    open_toy(&device);
    toy.busy = BW_CODE_BUSY;
    CHECK(chosen(&device, false) == -1 && toy.launches == 0);
    close_toy(&device);
}

/* Launches are distinguished by how long they take: by candidate and buffer set. */
static const int64_t candidate_ns[] = {11000, 11100, 11200, 11300};
static struct {
    int candidate, launches;
    int64_t first;
} made_ready;

static int64_t launch_ns(int candidate, int64_t launch) {
    return candidate_ns[candidate] + launch % 7;
}

static bw_status ready(void *context, int candidate, int64_t first, int launches) {
    (void)context;
    made_ready.candidate = candidate;
    made_ready.first = first;
    made_ready.launches = launches;
    return BW_OK;
}

static bw_status enqueue(void *context, int candidate, int64_t launch) {
    (void)context;
    runtime_run(0, (uint64_t)launch_ns(candidate, launch));
    return BW_OK;
}

static void check_ready(const toy_graph *graph) {
    uint64_t ns = 0;
    for (int i = 0; i < made_ready.launches; i++) ns += (uint64_t)launch_ns(made_ready.candidate, made_ready.first + i);
    CHECK(graph->ns == ns && graph->nodes == (size_t)made_ready.launches);
}

/* What runs is what was made ready just before, launch by launch, as all candidates use the same memory. */
static void check_ready_candidate(void) {
    const bw_search_calls calls = {ready, enqueue, NULL};
    bw_device device;
    int best;
    open_toy(&device);
    runtime.launched = check_ready;
    CHECK(!bw_search_fastest(&device, &calls, 4, &best) && best == 0);
    close_toy(&device);
}

/* What is stored otherwise is refused, never taken for FP32; a kernel scales the sums of INT8 alone. */
static void check_precisions(void) {
    const unsigned known = BW_MASK(FP32) | BW_MASK(TF32) | BW_MASK(FP16) | BW_MASK(BF16) | BW_MASK(FP8_E4M3) |
                           BW_MASK(FP8_TENSOR) | BW_MASK(INT8);
    for (int id = 0; id < BW_PRECISION_COUNT; id++) {
        bw_device device;
        int64_t algorithm;
        open_toy(&device);
        bw_code code = prepared(&device, (bw_precision_id)id, true, &algorithm);
        CHECK(code == (known >> id & 1u ? BW_CODE_OK : BW_CODE_UNSUPPORTED));
        CHECK((toy.launches > 0) == (code == BW_CODE_OK));
        CHECK(toy.scaled == (id == BW_PRECISION_INT8 ? toy.launches : 0));
        close_toy(&device);
    }
}

static const struct {
    const char *name;
    void (*check)(void);
} checks[] = {{"idle_clock", check_idle_clock},
              {"failing_algorithms", check_failing_algorithms},
              {"ties", check_ties},
              {"slow_product", check_slow_product},
              {"once", check_once},
              {"counting", check_counting},
              {"ready_candidate", check_ready_candidate},
              {"precisions", check_precisions}};

int main(int count, char **words) {
    toy.library = open_books("BWPROF_TEST_CUBLASLT", "fake_cublaslt_books"); /* what is loaded is what is found first */
    CHECK(toy.library);
    for (size_t i = 0; count == 2 && i < sizeof checks / sizeof checks[0]; i++) {
        if (strcmp(words[1], checks[i].name) != 0) continue;
        checks[i].check();
        return 0;
    }
    return 2;
}
