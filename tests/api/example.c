/* An engine in C: ranges, costs, a measurement of its own function, kept as a report, a benchmark.
 * usage: example FOLDER   (files go there; what tests compare is printed) */
#include <bwprof.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 1 << 18 };

typedef struct arrays {
    float *from, *to;
} arrays;

static int copy(void *user, int64_t set) {
    arrays *self = user;
    (void)set;
    memcpy(self->to, self->from, ELEMENTS * sizeof *self->to);
    return 0;
}

static int check(bwprof_status status, const char *what) {
    if (status) fprintf(stderr, "%s: %s\n", what, bwprof_last_error());
    return status != BWPROF_OK;
}
#define TRY(call) \
    if (check(call, #call)) return 1

static int profile(const char *folder, arrays *data) {
    char path[4096];
    double ms, gb_s;
    bwprof_profiler *profiler;
    TRY(bwprof_profiler_create("cpu", 0, &profiler));
    TRY(bwprof_profiler_set_bytes(profiler, "copy", ELEMENTS * sizeof(float), ELEMENTS * sizeof(float)));
    for (int i = 0; i < 20; i++) {
        TRY(bwprof_profiler_start(profiler, "step", NULL));
        TRY(bwprof_profiler_start(profiler, "copy", NULL));
        copy(data, 0);
        TRY(bwprof_profiler_stop(profiler, "copy", NULL));
        TRY(bwprof_profiler_stop(profiler, "step", NULL));
    }
    TRY(bwprof_profiler_elapsed_ms(profiler, "copy", &ms));
    TRY(bwprof_profiler_bandwidth_gb_s(profiler, "copy", &gb_s));
    printf("ranges %d\n", ms > 0 && gb_s > 0);
    TRY(bwprof_profiler_print_report(profiler, stdout));
    snprintf(path, sizeof path, "%s/ranges.csv", folder);
    TRY(bwprof_profiler_write_csv(profiler, path));
    snprintf(path, sizeof path, "%s/ranges.json", folder);
    TRY(bwprof_profiler_write_json(profiler, path));
    TRY(bwprof_profiler_destroy(profiler));
    return 0;
}

static int costs(void) {
    uint64_t read, written, flops;
    TRY(bwprof_gemm_cost(1, 14336, 4096, "fp16", &read, &written, &flops));
    printf("gemm %llu %llu %llu\n", (unsigned long long)read, (unsigned long long)written, (unsigned long long)flops);
    TRY(bwprof_attention_decode_cost(2, 4096, 32, 8, 128, "fp16", &read, &written, &flops));
    printf("decode %llu %llu %llu\n", (unsigned long long)read, (unsigned long long)written, (unsigned long long)flops);
    TRY(bwprof_attention_prefill_cost(1, 512, 14, 2, 64, 1, "fp32", &read, &written, &flops));
    printf("prefill %llu %llu %llu\n", (unsigned long long)read, (unsigned long long)written,
           (unsigned long long)flops);
    TRY(bwprof_kv_append_cost(8, 128, 2, 64, "bf16", &read, &written, &flops));
    printf("append %llu %llu %llu\n", (unsigned long long)read, (unsigned long long)written, (unsigned long long)flops);
    return 0;
}

static int measure(arrays *data) {
    bwprof_measurement found;
    bwprof_measure_options options = {0};
    options.backend = "cpu";
    options.bytes_read = options.bytes_written = ELEMENTS * sizeof(float);
    options.hot = 1;
    options.max_seconds = 0.05;
    TRY(bwprof_measure(copy, data, NULL, &options, &found));
    printf("measured %s %lld %d %d\n", found.timer, (long long)found.samples,
           found.time_ms_lo <= found.time_ms && found.time_ms <= found.time_ms_hi, found.bandwidth_gb_s > 0);
    bwprof_report report = {"copy", "FP32", 0, 0, ELEMENTS * sizeof(float), ELEMENTS * sizeof(float)};
    report.time_ms = found.time_ms;
    report.bandwidth_gb_s = found.bandwidth_gb_s;
    TRY(bwprof_report_save_to_proof_bundle(&report, "c-example"));
    return 0;
}

static int show(void *user, const bwprof_case *now) {
    (void)user;
    printf("case %d/%d %s %s %s %s\n", now->index + 1, now->count, now->name, now->precision, now->variant,
           now->status);
    return 0;
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc != 2 || bwprof_abi_version() != BWPROF_ABI_VERSION) return 2;
    arrays data = {calloc(ELEMENTS, sizeof(float)), calloc(ELEMENTS, sizeof(float))};
    if (!data.from || !data.to) return 2;
    snprintf(path, sizeof path, "%s/smoke.csv", argv[1]);
    int failed = profile(argv[1], &data) || costs() || measure(&data) ||
                 check(bwprof_benchmark("cpu", "smoke", path, show, NULL), "benchmark");
    free(data.from);
    free(data.to);
    return failed;
}
