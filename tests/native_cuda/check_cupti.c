/* csrc/cuda's use of CUPTI driven without a GPU: a toy device, and the fake library that BWPROF_TEST_CUPTI names.
 * `check_cupti <check>`; without the library, `open` prints why. */
#include "cuda/runtime/nvtx.h"
#include "toy_gpu.h"

/* ---- checks ---- */

static bool counted(bw_device *device, bw_counters *out) {
    bw_status status = bw_cuda_counters(device, &once, out);
    CHECK(!status);
    if (out->status[0]) CHECK(isnan(out->dram_bytes_read) && isnan(out->dram_bytes_written) && isnan(out->l2_bytes));
    return out->status[0] == '\0';
}

static void check_counts(void) {
    bw_device device;
    bw_counters c;
    open_toy(&device);
    for (int i = 0; i < 3; i++) {
        CHECK(counted(&device, &c));
        CHECK(c.dram_bytes_read == READ && c.dram_bytes_written == WRITTEN && c.l2_bytes == READ + WRITTEN);
    }
    close_toy(&device);
}

/* At rest nothing is held, and whatever is wanted next is opened anew. */
static void check_rest(void) {
    bw_device device;
    bw_counters c;
    open_toy(&device);
    bw_cuda_release_profilers(&device);
    for (int i = 0; i < 2; i++) {
        CHECK(counted(&device, &c) && c.dram_bytes_written == WRITTEN && toy.books->profilers == 1);
        bw_cuda_release_profilers(&device);
        CHECK(toy.books->hosts == 0 && toy.books->profilers == 0 && toy.books->started == 0);
    }
    close_toy(&device);
}

/* One count of three that is too high is outvoted; two are seen, and outvoted by more counts. */
static void check_disturbed(void) {
    for (int64_t disturbed = 0; disturbed <= 2; disturbed++) {
        bw_device device;
        bw_counters c;
        open_toy(&device);
        CHECK(counted(&device, &c));
        toy.disturbed = disturbed;
        toy.launches = 0;
        CHECK(counted(&device, &c) && c.dram_bytes_read == READ);
        CHECK(c.dram_bytes_written == WRITTEN && toy.launches == 1 + (disturbed < 2 ? 3 : 5));
        close_toy(&device);
    }
}

static void check_passes(void) {
    toy.books->passes = 3;
    check_counts();
}

static void check_other_names(void) {
    toy.books->op_names = 1;
    check_counts();
}

static void check_no_l2(void) {
    bw_device device;
    bw_counters c;
    toy.books->no_l2 = 1;
    open_toy(&device);
    CHECK(counted(&device, &c) && c.dram_bytes_read == READ && isnan(c.l2_bytes));
    close_toy(&device);
}

static void refused(const char *word) {
    bw_device device;
    bw_counters c;
    open_toy(&device);
    CHECK(!counted(&device, &c));
    printf("%s\n", c.status);
    CHECK(strstr(c.status, word));
    long calls = toy.books ? toy.books->calls : 0;
    bw_cuda_release_profilers(&device);
    CHECK(!counted(&device, &c) && strstr(c.status, word)); /* remembered, not tried again */
    CHECK(!toy.books || toy.books->calls == calls);
    close_toy(&device);
}

static void check_no_dram(void) {
    toy.books->no_dram = 1;
    refused("FAKE100");
}

static void check_virtual_gpu(void) {
    toy.books->virtual_gpu = 1;
    refused("virtual GPU");
}

/* Each code has its own words. */
static void check_codes(void) {
    const struct {
        int code;
        const char *word;
    } codes[] = {{35, "NVreg_RestrictProfilingToAdminUsers"},
                 {26, "dcgmi"},
                 {39, "another CUPTI user"},
                 {23, "another profiler"},
                 {27, "platform"},
                 {15, "driver"},
                 {33, "virtual GPU"},
                 {40, "hypervisor"},
                 {41, "confidential"},
                 {42, "mining"},
                 {43, "MIG"},
                 {44, "SLI"},
                 {45, "WSL"},
                 {46, "newer"},
                 {999, "CUPTI_CODE_999"}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        toy.books->calls = 0;
        toy.books->fail_at = 1;
        toy.books->fail_code = codes[i].code;
        refused(codes[i].word);
    }
}

/* Every call of CUPTI's made to fail in turn: a status that names it, or a result where only clean-up failed. */
static void check_count_faults(void) {
    for (long n = 1;; n++) {
        bw_device device;
        bw_counters c;
        open_toy(&device);
        toy.books->calls = toy.books->passes_run = 0;
        toy.books->fail_at = n;
        toy.books->fail_code = PRIVILEGES;
        toy.books->failed_call[0] = '\0';
        bool good = counted(&device, &c);
        if (!good) CHECK(strstr(c.status, toy.books->failed_call) || strstr(c.status, "no DRAM counters"));
        if (good && !isnan(c.l2_bytes)) CHECK(c.dram_bytes_read == READ && c.dram_bytes_written == WRITTEN);
        close_toy(&device);
        if (toy.books->calls < n) break;
    }
}

/* Every CUDA call made to fail in turn. */
static void check_count_cuda_faults(void) {
    for (int64_t n = 1;; n++) {
        bw_device device;
        bw_counters c;
        open_toy(&device);
        device.api.fault_countdown = n;
        bw_status status = bw_cuda_counters(&device, &once, &c);
        bool failed = status != NULL;
        bw_status_free(status);
        bool reached = device.api.fault_countdown == 0;
        device.api.fault_countdown = 0;
        if (failed) CHECK(counted(&device, &c) && c.dram_bytes_read == READ); /* the next one is fine */
        close_toy(&device);
        if (!reached) break;
    }
}

static void check_launch_fails(void) {
    bw_device device;
    bw_counters c;
    open_toy(&device);
    toy.launch_error = cudaErrorLaunchFailure;
    bw_status status = bw_cuda_counters(&device, &once, &c);
    CHECK(bw_status_code(status) == BW_CODE_DEVICE);
    bw_status_free(status);
    toy.launch_error = cudaSuccess;
    CHECK(counted(&device, &c));
    close_toy(&device);
}

static bw_status time_launches(bw_device *device, int64_t launches, double *ns, bw_kernel_times *kernels) {
    bw_plan *plan = NULL;
    bw_plan_spec timed = spec;
    timed.timer = TIMER_CUPTI;
    timed.launches = launches;
    BW_TRY(bw_cuda_plan_calls.create(device, &timed, &plan));
    bw_status status = BW_OK;
    for (int i = 0; i < 2 && !status; i++) {
        run_kernel(77777); /* somebody else's, before the replay */
        status = bw_cuda_plan_calls.run(plan, ns);
    }
    *kernels = bw_cuda_plan_calls.kernels(plan);
    bw_cuda_plan_calls.free(plan);
    return status;
}

static bw_status time_plan(bw_device *device, double *ns, bw_kernel_times *kernels) {
    return time_launches(device, spec.launches, ns, kernels);
}

/* Five launches of kernels of 1 and 2 us, 0.1 us apart: spans of 3.1 us and sums of 3 us. */
static void check_trace(void) {
    bw_device device;
    double ns;
    bw_kernel_times kernels;
    open_toy(&device);
    for (int i = 0; i < 2; i++) {
        CHECK(!time_plan(&device, &ns, &kernels));
        CHECK(ns == 5 * 3100.0 && kernels.span_ns == ns && kernels.sum_ns == 5 * 3000.0);
    }
    close_toy(&device);
}

/* Replays of two launches of 1 and 2 us: what the tool's log, which the kernels are in, has between its marks. The last
 * one has none. */
static void check_marks(void) {
    bw_annotation_stack annotation_stack = {{{.name = "toy fp32 plain", .category = "toy", .bytes = 4 * MIB},
                                             {.name = "measure", .category = "toy", .bytes = 4 * MIB}},
                                            2};
    bw_device device;
    bw_plan *plan = NULL;
    bw_plan_spec timed = spec;
    double ns;
    open_toy(&device);
    timed.annotation_stack = &annotation_stack;
    timed.timer = TIMER_CUPTI;
    timed.launches = 2;
    CHECK(!bw_cuda_nvtx_open(&device));
    CHECK(!bw_cuda_plan_calls.create(&device, &timed, &plan));
    toy.log = fopen(getenv("BWPROF_NVTX_LOG"), "a");
    CHECK(toy.log && !bw_cuda_plan_calls.run(plan, &ns));
    annotation_stack.count = 0;
    CHECK(!bw_cuda_plan_calls.run(plan, &ns));
    bw_cuda_plan_calls.free(plan);
    fclose(toy.log);
    toy.log = NULL;
    close_toy(&device);
}

/* What a launch clears first is a part of it: 0.4 us, and the gap of 0.1 us behind it. */
static void check_trace_clears(void) {
    bw_device device;
    double ns;
    bw_kernel_times kernels;
    open_toy(&device);
    toy.clears = true;
    CHECK(!time_plan(&device, &ns, &kernels));
    CHECK(ns == 5 * 3600.0 && kernels.span_ns == ns && kernels.sum_ns == 5 * 3400.0);
    close_toy(&device);
}

/* Whatever a replay's launches, no more kernels are held back than a stream's queue has room for. */
static void check_trace_queue(void) {
    const int64_t counts[] = {1, 64, 65, 1500};
    for (int64_t kernels_each = 1; kernels_each <= 3; kernels_each++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            bw_device device;
            double ns;
            bw_kernel_times kernels;
            open_toy(&device);
            toy.kernels_per_launch = kernels_each;
            CHECK(!time_launches(&device, counts[i], &ns, &kernels));
            const double sum_ns = 500.0 * (double)(kernels_each * (kernels_each + 1));
            CHECK(kernels.sum_ns == (double)counts[i] * sum_ns);
            CHECK(ns == (double)counts[i] * (sum_ns + 100.0 * (double)(kernels_each - 1)));
            CHECK(toy.queue <= 513 && (counts[i] < 1500 || toy.queue > 500)); /* the hold's own kernel with them */
            close_toy(&device);
        }
    }
}

/* Rotating over five sets: each launch's own bytes, with nothing of the launches before them. */
static void check_rotation(void) {
    bw_device device;
    bw_counters c;
    open_toy(&device);
    toy.dirty_bytes = 0;
    CHECK(!bw_cuda_counters(&device, &spec, &c));
    CHECK(c.status[0] == '\0' && c.dram_bytes_read == READ && isnan(c.dram_bytes_written));
    close_toy(&device);
}

typedef struct toy_function {
    int64_t entered, calls;
    bw_code fails;
} toy_function;

static bw_status function_call(void *context, int64_t number, bool captured) {
    toy_function *self = context;
    CHECK(self->entered == 1 && number == 0 && !captured);
    self->calls++;
    return self->fails ? bw_fail(self->fails, "the function failed") : toy_launch(NULL, 0, false);
}

static void function_enter(void *context) {
    ((toy_function *)context)->entered++;
}

static void function_leave(void *context) {
    ((toy_function *)context)->entered--;
}

/* A caller's function: one call to warm up, one for each of three ranges. One that fails is nobody else's failure. */
static void check_function(void) {
    bw_device device;
    bw_counters c;
    toy_function function = {0};
    const bw_work work = {function_call, function_enter, function_leave, &function, NULL, true, false};
    const bw_plan_spec called = {.work = work, .set_count = 1, .launches = 1, .flush_bytes = 1};
    open_toy(&device);
    CHECK(!bw_cuda_counters(&device, &called, &c));
    CHECK(c.status[0] == '\0' && c.dram_bytes_read == READ && c.dram_bytes_written == WRITTEN);
    CHECK(function.calls == 4 && function.entered == 0);
    function.fails = BW_CODE_INTERRUPTED;
    bw_status status = bw_cuda_counters(&device, &called, &c);
    CHECK(bw_status_code(status) == BW_CODE_INTERRUPTED && isnan(c.dram_bytes_read) && function.entered == 0);
    bw_status_free(status);
    CHECK(counted(&device, &c) && c.dram_bytes_read == READ);
    close_toy(&device);
}

static void check_trace_faults(void) {
    for (long n = 1;; n++) {
        bw_device device;
        double ns;
        bw_kernel_times kernels;
        open_toy(&device);
        toy.books->calls = toy.books->kernels = 0;
        toy.books->fail_at = n;
        toy.books->fail_code = 39;
        bw_status status = time_plan(&device, &ns, &kernels);
        if (!status) CHECK(ns == 5 * 3100.0);
        if (bw_status_code(status) == BW_CODE_UNAVAILABLE)
            CHECK(strstr(bw_status_message(status), "another CUPTI user"));
        bw_status_free(status);
        close_toy(&device);
        if (toy.books->calls < n) break;
    }
}

static void check_trace_lost(void) {
    bw_device device;
    double ns;
    bw_kernel_times kernels;
    open_toy(&device);
    toy.books->drop = 3;
    bw_status status = time_plan(&device, &ns, &kernels);
    /* Lost before the replay began: of no interest. */
    CHECK(!status);
    toy.kernels_per_launch = 0;
    status = time_plan(&device, &ns, &kernels);
    CHECK(strstr(bw_status_message(status), "0 kernel records for 5 launches"));
    bw_status_free(status);
    close_toy(&device);
}

static double metric(const bw_metrics *found, const char *name) {
    for (int i = 0; i < found->count; i++) {
        if (strcmp(found->metric[i].name, name) == 0) return found->metric[i].value;
    }
    printf("no metric %s\n", name);
    exit(1);
}

enum { TENSOR = 1, STALLS = 8, SECTORS = 32, DRAM = 64, SM = 128, CACHES = 256, ALL = 511 };

/* The fake's values are the lengths of the names: which name stands behind each metric. */
static void check_metrics(void) {
    bw_device device;
    bw_metrics found;
    bw_counters c;
    open_toy(&device);
    toy.books->passes = 5;
    toy.launches = 0;
    CHECK(!bw_cuda_metrics(&device, &once, TENSOR | SECTORS, &found));
    CHECK(found.status[0] == '\0' && found.count == 5 && found.passes == 5 && toy.launches == 1 + 5);
    CHECK(metric(&found, "tensor_pct") == strlen("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"));
    CHECK(metric(&found, "sectors_per_load") ==
          strlen("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"));
    const double local = strlen("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum"); /* of either name */
    CHECK(metric(&found, "local_bytes") == 32 * (local + local));
    const double lines = strlen("l1tex__t_set_accesses_pipe_lsu_mem_global_op_ld.sum");
    const double loads = strlen("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum");
    CHECK(metric(&found, "lines_per_load") == lines / loads);
    CHECK(!bw_cuda_metrics(&device, &once, DRAM | SM | CACHES, &found) && found.count == 7);
    CHECK(found.status[0] == '\0');
    CHECK(metric(&found, "sm_cycles_ratio") == 1); /* names of one length */
    CHECK(metric(&found, "issue_pct") == strlen("sm__inst_issued.avg.pct_of_peak_sustained_active"));
    CHECK(metric(&found, "active_threads") == strlen("smsp__average_thread_inst_executed_per_inst_executed.ratio"));
    CHECK(metric(&found, "l1_pct") == strlen("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active"));
    const double l2 = strlen("lts__t_sectors.avg.pct_of_peak_sustained_elapsed");
    CHECK(metric(&found, "l2_pct") == l2 * strlen("sm__cycles_elapsed.max") / (double)strlen("sm__cycles_active.max"));
    const double seconds = (double)strlen("sm__cycles_active.max") / strlen("sm__cycles_elapsed.avg.per_second");
    const double most =
        (double)strlen("dram__bytes.sum.peak_sustained") * strlen("dram__cycles_elapsed.avg.per_second");
    /* What it has written is still in the cache. */
    CHECK(fabs(metric(&found, "dram_pct") / (100 * READ / (seconds * most)) - 1) < 1e-12);
    CHECK(metric(&found, "sm_pct") == strlen("sm__throughput.avg.pct_of_peak_sustained_active"));
    toy.launches = 0;
    toy.books->passes = 1;
    CHECK(!bw_cuda_metrics(&device, &once, ALL, &found) && found.count > 20 && found.status[0] == '\0');
    CHECK(found.passes == 2 && toy.launches == 2 * 2); /* what one pass must see is counted apart from the others */
    for (int i = 0; i < found.count; i++) CHECK(found.metric[i].value > 0);
    CHECK(metric(&found, "sm_pct") == strlen("sm__throughput.avg.pct_of_peak_sustained_active"));
    CHECK(metric(&found, "l1_pct") == strlen("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active"));
    toy.books->passes = 1;
    CHECK(counted(&device, &c) && c.dram_bytes_read == READ && c.dram_bytes_written == WRITTEN);
    toy.books->old_pipes = 1;
    CHECK(!bw_cuda_metrics(&device, &once, TENSOR | SECTORS, &found));
    CHECK(metric(&found, "tensor_pct") == strlen("sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"));
    CHECK(isnan(metric(&found, "sectors_per_store")) && !isnan(metric(&found, "sectors_per_load")));
    CHECK(strcmp(found.status, "CUPTI does not know for this GPU: sectors_per_store, local_bytes") == 0);
    CHECK(isnan(metric(&found, "local_bytes")) && !isnan(metric(&found, "lines_per_load")));
    CHECK(!bw_cuda_metrics(&device, &once, STALLS, &found) && found.status[0] == '\0');
    CHECK(isnan(metric(&found, "stall_gmma")) && !isnan(metric(&found, "stall_wait"))); /* no such units there */
    close_toy(&device);
}

/* Every call made to fail in turn, and too many passes: no metrics, a reason, and bytes are counted all the same unless
 * CUPTI refused from the start. */
static void check_metrics_faults(void) {
    for (long n = 1;; n++) {
        bw_device device;
        bw_metrics found;
        open_toy(&device);
        toy.books->calls = toy.books->passes_run = 0;
        toy.books->fail_at = n;
        toy.books->fail_code = PRIVILEGES;
        toy.books->failed_call[0] = '\0';
        CHECK(!bw_cuda_metrics(&device, &once, TENSOR, &found));
        CHECK(found.count == 1);
        bool good = found.status[0] == '\0';
        if (!good) CHECK(isnan(found.metric[0].value));
        if (!good) CHECK(strstr(found.status, toy.books->failed_call) || strstr(found.status, "no DRAM counters"));
        close_toy(&device);
        if (toy.books->calls < n) break;
    }
    bw_device device;
    bw_metrics found;
    bw_counters c;
    open_toy(&device);
    toy.books->fail_at = 0;
    toy.books->passes = 1000;
    CHECK(!bw_cuda_metrics(&device, &once, TENSOR, &found) && strstr(found.status, "more than 128 passes"));
    toy.books->passes = 1;
    CHECK(counted(&device, &c) && c.dram_bytes_read == READ);
    close_toy(&device);
}

static void check_describe(void) {
    bw_device device;
    bw_library_info found = {0};
    open_toy(&device);
    CHECK(!bw_cupti_describe(&device, &found));
    CHECK(strcmp(found.version, "13.1") == 0 && strcmp(found.path, getenv("BWPROF_TEST_CUPTI")) == 0);
    toy.books->fail_at = toy.books->calls + 1;
    toy.books->fail_code = 999;
    bw_status status = bw_cupti_describe(&device, &found);
    CHECK(strstr(bw_status_message(status), "cuptiGetVersion failed: CUPTI_CODE_999"));
    bw_status_free(status);
    close_toy(&device);
}

static void check_one_at_a_time(void) {
    bw_device first, second;
    open_toy(&first);
    open_toy(&second);
    CHECK(!bw_cupti_trace_begin(&first));
    bw_status status = bw_cupti_trace_begin(&second);
    CHECK(bw_status_code(status) == BW_CODE_BUSY);
    bw_status_free(status);
    bw_cupti_trace_end(&second);
    bw_cupti_trace_end(&first);
    CHECK(!bw_cupti_trace_begin(&second));
    bw_cupti_trace_end(&second);
    close_toy(&first);
    close_toy(&second);
}

/* Copies have their timestamps where kernels have them. */
static void check_copies(void) {
    const bw_kernel_span *spans = NULL;
    int64_t count = 0;
    bw_device device;
    open_toy(&device);
    CHECK(!bw_cupti_trace_begin(&device) && toy.books->tracing && toy.books->tracing_copies);
    run(700, true);
    run_kernel(300);
    CHECK(!bw_cupti_trace_take(&device, &spans, &count));
    CHECK(count == 2 && spans[0].end_ns - spans[0].start_ns == 700 && spans[1].end_ns - spans[1].start_ns == 300);
    bw_cupti_trace_end(&device);
    CHECK(!toy.books->tracing && !toy.books->tracing_copies && !toy.books->subscribers);
    close_toy(&device);
}

/* Each call of a traced beginning refused in turn: nothing stays enabled. */
static void check_copies_faults(void) {
    for (long at = 1;; at++) {
        bw_device device;
        open_toy(&device);
        toy.books->calls = 0;
        toy.books->fail_at = at;
        toy.books->fail_code = PRIVILEGES;
        bw_status status = bw_cupti_trace_begin(&device);
        bool begun = !status;
        toy.books->fail_at = 0;
        if (begun) bw_cupti_trace_end(&device);
        bw_status_free(status);
        CHECK(!toy.books->tracing && !toy.books->tracing_copies && !toy.books->subscribers);
        close_toy(&device);
        if (begun) {
            CHECK(at > 5);
            return;
        }
    }
}

static void check_open(void) {
    refused("");
}

#include "check_cupti_handles.h"

static const struct {
    const char *name;
    void (*check)(void);
} checks[] = {{"counts", check_counts},
              {"rest", check_rest},
              {"disturbed", check_disturbed},
              {"rotation", check_rotation},
              {"function", check_function},
              {"passes", check_passes},
              {"other_names", check_other_names},
              {"no_l2", check_no_l2},
              {"no_dram", check_no_dram},
              {"virtual_gpu", check_virtual_gpu},
              {"codes", check_codes},
              {"count_faults", check_count_faults},
              {"count_cuda_faults", check_count_cuda_faults},
              {"launch_fails", check_launch_fails},
              {"trace", check_trace},
              {"trace_faults", check_trace_faults},
              {"marks", check_marks},
              {"trace_clears", check_trace_clears},
              {"trace_queue", check_trace_queue},
              {"trace_lost", check_trace_lost},
              {"metrics", check_metrics},
              {"metrics_faults", check_metrics_faults},
              {"one_counts_at_a_time", check_one_counts_at_a_time},
              {"quiet", check_quiet},
              {"quiet_while_counting", check_quiet_while_counting},
              {"closed_beside_a_try", check_closed_beside_a_try},
              {"attachments", check_attachments},
              {"describe", check_describe},
              {"one_at_a_time", check_one_at_a_time},
              {"copies", check_copies},
              {"copies_faults", check_copies_faults},
              {"open", check_open}};

int main(int count, char **words) {
    for (size_t i = 0; count == 2 && i < sizeof checks / sizeof checks[0]; i++) {
        if (strcmp(words[1], checks[i].name) != 0) continue;
        toy.books = strcmp(words[1], "open") == 0 ? NULL : open_books("BWPROF_TEST_CUPTI", "fake_cupti_books");
        if (strcmp(words[1], "open") != 0) CHECK(toy.books);
        checks[i].check();
        return 0;
    }
    return 2;
}
