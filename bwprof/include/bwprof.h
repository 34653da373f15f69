/* bwprof in C: what the Python package does, for engines that have no Python in the process.
 *
 *   cc engine.c $(python -m bwprof.config --cflags --libs) -o engine
 *
 * C99, and C++. Every function but bwprof_last_error, bwprof_version and bwprof_abi_version returns a bwprof_status,
 * 0 for success; results are given back by pointer, last. Nothing is printed, except by what is asked to print, and
 * by cuda_benchmark_bandwidth, which says on stderr why it failed. A GB is 10^9 bytes, a MB 10^6, sizes have 64 bits.
 *
 * Where bwprof works on a GPU of its own choice, the calling thread's current device is afterwards what it was before.
 *
 * Handles are numbers in a pointer's clothes: no function reads the memory behind one, so that one that was destroyed,
 * or that another process (before a fork) created, is refused and not followed. */
#ifndef BWPROF_H
#define BWPROF_H

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a program that was compiled against another version of this header must be compiled again. */
#define BWPROF_ABI_VERSION 1

/* The library's functions have this mark; what else it exports is for the Python module of the same build alone. */
#if defined(__GNUC__)
#define BWPROF_API __attribute__((visibility("default")))
#else
#define BWPROF_API
#endif

typedef int bwprof_status;

enum {
    BWPROF_OK = 0,
    BWPROF_INVALID = 1,     /* an argument is wrong, or a handle is no more */
    BWPROF_UNSUPPORTED = 2, /* right, but not on this device or in this build */
    BWPROF_MEMORY = 3,      /* host or device memory is not enough */
    BWPROF_UNAVAILABLE = 4, /* a device, driver or library is missing */
    BWPROF_DEVICE = 5,      /* a device call failed; the device is still usable */
    BWPROF_DEVICE_LOST = 6, /* a device call failed for good: only a new process helps */
    BWPROF_BUSY = 7,        /* somebody else uses it, or more waits to be read than may */
    BWPROF_INTERRUPTED = 8, /* a callback asked to stop */
    BWPROF_SYSTEM = 9,      /* the operating system refused: a file cannot be written */
    BWPROF_UNKNOWN = 10     /* there is no such number (yet): what was asked for is NaN */
};

/* The text of this thread's last failure; "" before the first. Stays until the thread's next failure. It is UTF-8, of
 * names and paths the beginning; control characters, and what is no UTF-8, as \xNN. */
BWPROF_API const char *bwprof_last_error(void);

BWPROF_API const char *bwprof_version(void); /* "0.1.0" */
BWPROF_API int bwprof_abi_version(void);     /* the library's BWPROF_ABI_VERSION */

/* ---- profiler: named ranges of a running program ----
 *
 *   bwprof_profiler *profiler;
 *   if (bwprof_profiler_create(NULL, 0, &profiler)) return puts(bwprof_last_error()), 1;
 *   bwprof_profiler_set_bytes(profiler, "gemm", bytes_read, bytes_written);
 *   bwprof_profiler_start(profiler, "gemm", stream);
 *   launch_gemm(stream);
 *   bwprof_profiler_stop(profiler, "gemm", stream);
 *   bwprof_profiler_print_report(profiler, stdout);     // waits for the stream; the lines above do not
 *   bwprof_profiler_destroy(profiler);
 *
 * BWPROF_INVALID: a handle that is no more, an argument that is NULL, a name that is empty or too long, a range that
 * does not run. BWPROF_UNAVAILABLE: no such device, or a handle from before a fork. BWPROF_MEMORY and BWPROF_BUSY: more
 * than what follows. BWPROF_SYSTEM: a file that cannot be written. */

enum {
    BWPROF_NAME_MOST = 1000,     /* bytes of a range's name */
    BWPROF_NAMES_MOST = 65536,   /* names of a thread on a stream, and names with bytes */
    BWPROF_WAITING_MOST = 65536, /* ranges of a thread on a stream that may wait to be read */
    BWPROF_TIMES_MOST = 65536,   /* times of a name, thread and stream that medians are of: the latest */
    BWPROF_TRACKS_MOST = 4096,   /* threads x streams of a profiler */
    BWPROF_PROFILERS_MOST = 1024 /* that are open at once */
};

typedef struct bwprof_profiler bwprof_profiler;

/* `backend` is "cuda", "cpu", or NULL: the first that has a device. `device` is its number. The profiler is enabled. */
BWPROF_API bwprof_status bwprof_profiler_create(const char *backend, int device, bwprof_profiler **out);

/* NULL is fine. Waits for calls that other threads are making with it, not for the GPU. */
BWPROF_API bwprof_status bwprof_profiler_destroy(bwprof_profiler *profiler);

/* While it is not enabled (0) start and stop do nothing and succeed. Ranges that run when it is switched are dropped.
 */
BWPROF_API bwprof_status bwprof_profiler_enable(bwprof_profiler *profiler, int enabled);

/* Begins and ends a range: two event records on `stream` (a cudaStream_t; NULL is the legacy default stream; on a CPU
 * it only tells ranges apart), and no wait. The stream's device is the calling thread's current one. Each thread has
 * ranges of its own, which may nest, overlap and repeat; `stop` ends the latest one of its name on its stream that
 * this thread began, and is BWPROF_INVALID where none runs. BWPROF_BUSY: BWPROF_WAITING_MOST wait already, and this
 * range is left out. The first range of a thread on a stream makes events. A stream stays at least until its ranges
 * have been stopped, though not until they are read: CUDA itself crashes when it records an event on one that was
 * destroyed. */
BWPROF_API bwprof_status bwprof_profiler_start(bwprof_profiler *profiler, const char *name, void *stream);
BWPROF_API bwprof_status bwprof_profiler_stop(bwprof_profiler *profiler, const char *name, void *stream);

/* What one run of a range moves, for its bandwidth; of all threads. It holds for ranges that begin from now on, and for
 * those that began before any was set. Where runs moved different bytes, their mean is reported, the bandwidth is all
 * bytes over all time, and the flag is bytes_vary; else it is the bytes over the median time. */
BWPROF_API bwprof_status bwprof_profiler_set_bytes(bwprof_profiler *profiler, const char *name, uint64_t bytes_read,
                                                   uint64_t bytes_written);

/* The median time of a range, of all threads and streams. These wait for the ranges that have been stopped; threads
 * that mark ranges meanwhile do not wait. BWPROF_UNKNOWN and NaN before its first stop. */
BWPROF_API bwprof_status bwprof_profiler_elapsed_ms(bwprof_profiler *profiler, const char *name, double *time_ms);

/* Its bytes over that time. BWPROF_UNKNOWN and NaN where the time is 0 or unknown, or nobody has set its bytes. */
BWPROF_API bwprof_status bwprof_profiler_bandwidth_gb_s(bwprof_profiler *profiler, const char *name, double *gb_s);

/* How often it was stopped, of all threads; 0 of a name that nobody used. */
BWPROF_API bwprof_status bwprof_profiler_count(bwprof_profiler *profiler, const char *name, int64_t *count);

/* All ranges: as text; as CSV with bwprof.Profiler.frame()'s columns; as JSON. Ranges whose median is within three
 * times an empty one's have the flag near_timer_floor: their bandwidth is the timer's. Numbers do not depend on the
 * locale. Files are written beside their place and renamed, so that no half of one is left. Bytes of a name that are no
 * UTF-8, and control characters, are written as \xNN (in JSON these as \u00NN); what a spreadsheet would take for a
 * formula has an apostrophe before it. */
BWPROF_API bwprof_status bwprof_profiler_print_report(bwprof_profiler *profiler, FILE *stream);
BWPROF_API bwprof_status bwprof_profiler_write_csv(bwprof_profiler *profiler, const char *path);
BWPROF_API bwprof_status bwprof_profiler_write_json(bwprof_profiler *profiler, const char *path);

/* Forgets the times so far, and drops ranges that nobody has read yet; those that run go on. Waits for no stream. */
BWPROF_API bwprof_status bwprof_profiler_reset(bwprof_profiler *profiler);

/* A range with its bytes: both at once, for a kernel's host function. `bytes_read` and `bytes_written` are set for the
 * name, unless both are 0; the name stays where it is until the range ends. *out is what ends it, in the same thread;
 * where it could not begin, or the profiler is not enabled, it is one that bwprof_range_end passes over, as it does
 * over one that has ended. BWPROF_INVALID at its end where it runs no more: the profiler was switched meanwhile. */
typedef struct bwprof_range {
    bwprof_profiler *profiler; /* NULL: nothing to end */
    const char *name;
    void *stream;
} bwprof_range;

BWPROF_API bwprof_status bwprof_range_begin(bwprof_profiler *profiler, const char *name, void *stream,
                                            uint64_t bytes_read, uint64_t bytes_written, bwprof_range *out);
BWPROF_API bwprof_status bwprof_range_end(bwprof_range *range);

/* In a program's own sources: nothing at all, arguments included, unless BWPROF_ENABLE is defined before this header is
 * included. Answers are dropped: a kernel runs whether or not it is timed.
 *
 *   void gqa_attention(...) {
 *       BWPROF_RANGE(profiler, stream, bytes_read, bytes_written);      // from here to the end of the block, under the
 *       attention_kernel<<<grid, block, 0, stream>>>(...);              // name of the function: "gqa_attention"
 *   }
 *
 * BWPROF_RANGE and BWPROF_RANGE_NAMED declare a variable that ends the range when its block is left, also by return,
 * break or an exception: they need GCC's attributes, which Clang and nvcc have. In plain C99:
 *
 *   BWPROF_RANGE_BEGIN(range, profiler, "gemm", stream, bytes_read, bytes_written);   // declares `range`
 *   ...
 *   BWPROF_RANGE_END(range); */
#ifdef BWPROF_ENABLE
#define BWPROF_START(profiler, name, stream) ((void)bwprof_profiler_start(profiler, name, stream))
#define BWPROF_STOP(profiler, name, stream) ((void)bwprof_profiler_stop(profiler, name, stream))
static inline bwprof_range bwprof_range_begun(bwprof_profiler *profiler, const char *name, void *stream,
                                              uint64_t bytes_read, uint64_t bytes_written) {
    bwprof_range range;
    (void)bwprof_range_begin(profiler, name, stream, bytes_read, bytes_written, &range);
    return range;
}
#define BWPROF_RANGE_BEGIN(range, profiler, name, stream, bytes_read, bytes_written) \
    bwprof_range range = bwprof_range_begun(profiler, name, stream, bytes_read, bytes_written)
#define BWPROF_RANGE_END(range) ((void)bwprof_range_end(&(range)))
#if defined(__GNUC__)
#define BWPROF_JOIN_(a, b) a##b
#define BWPROF_JOIN(a, b) BWPROF_JOIN_(a, b)
#define BWPROF_RANGE_NAMED(profiler, name, stream, bytes_read, bytes_written) \
    __attribute__((cleanup(bwprof_range_end), unused))                        \
    BWPROF_RANGE_BEGIN(BWPROF_JOIN(bwprof_range_, __LINE__), profiler, name, stream, bytes_read, bytes_written)
#define BWPROF_RANGE(profiler, stream, bytes_read, bytes_written) \
    BWPROF_RANGE_NAMED(profiler, __func__, stream, bytes_read, bytes_written)
#endif
#else
#define BWPROF_START(profiler, name, stream) ((void)0)
#define BWPROF_STOP(profiler, name, stream) ((void)0)
#define BWPROF_RANGE_BEGIN(range, profiler, name, stream, bytes_read, bytes_written) ((void)0)
#define BWPROF_RANGE_END(range) ((void)0)
#define BWPROF_RANGE_NAMED(profiler, name, stream, bytes_read, bytes_written) ((void)0)
#define BWPROF_RANGE(profiler, stream, bytes_read, bytes_written) ((void)0)
#endif

/* ---- cost: the bytes and FLOPs of shapes, as bwprof.cost has them ----
 *
 *   uint64_t bytes_read, bytes_written, flops;
 *   bwprof_gemm_cost(1, 14336, 4096, "fp16", &bytes_read, &bytes_written, &flops);
 *
 * Each operand is moved once; a multiplication with its addition is two FLOPs. NULL: not wanted. BWPROF_INVALID, and
 * zeros, for an unknown name, a size that is none, and sums beyond 63 bits. */

/* `bwprof operations` lists the precisions of each operation: "fp32", "fp16", ... */

/* D(M, N) = A(M, K) B(N, K)^T. */
BWPROF_API bwprof_status bwprof_gemm_cost(int64_t M, int64_t N, int64_t K, const char *precision, uint64_t *bytes_read,
                                          uint64_t *bytes_written, uint64_t *flops);

/* One new token of each of `batch` sequences over its cache of kv_len tokens. */
BWPROF_API bwprof_status bwprof_attention_decode_cost(int64_t batch, int64_t kv_len, int64_t num_heads,
                                                      int64_t num_kv_heads, int64_t head_dim, const char *precision,
                                                      uint64_t *bytes_read, uint64_t *bytes_written, uint64_t *flops);

/* A prompt of seq_len tokens, each of which sees itself and those before it (`causal`), or all. */
BWPROF_API bwprof_status bwprof_attention_prefill_cost(int64_t batch, int64_t seq_len, int64_t num_heads,
                                                       int64_t num_kv_heads, int64_t head_dim, int causal,
                                                       const char *precision, uint64_t *bytes_read,
                                                       uint64_t *bytes_written, uint64_t *flops);

/* The keys and values of seq_len new tokens of each sequence, written into a cache of pages of 16 tokens. */
BWPROF_API bwprof_status bwprof_kv_append_cost(int64_t batch, int64_t seq_len, int64_t num_kv_heads, int64_t head_dim,
                                               const char *precision, uint64_t *bytes_read, uint64_t *bytes_written,
                                               uint64_t *flops);

/* Any operation that `bwprof operations` lists, by its parameters' names; those left out have their defaults. */
BWPROF_API bwprof_status bwprof_cost(const char *operation, const char *precision, const char *const *names,
                                     const int64_t *values, int count, uint64_t *bytes_read, uint64_t *bytes_written,
                                     uint64_t *flops);

/* ---- measure: a function of yours, by the rules of bwprof.measure ----
 *
 *   static int launch(void *user, int64_t set) { return launch_gemm(user, set) != cudaSuccess; }
 *
 *   bwprof_measure_options options = {0};
 *   options.bytes_read = bytes_read;
 *   options.bytes_written = bytes_written;
 *   bwprof_measurement found;
 *   if (bwprof_measure(launch, &engine, stream, &options, &found) == BWPROF_OK)
 *       printf("%.3f ms (%.3f to %.3f), %.2f GB/s\n", found.time_ms, found.time_ms_lo, found.time_ms_hi,
 *              found.bandwidth_gb_s);
 *
 * BWPROF_INTERRUPTED: the callback did not return 0. BWPROF_INVALID: an option that cannot be. BWPROF_BUSY: another
 * thread measures with this profiler. *result then holds NaN. */

/* Enqueues the work on the stream that bwprof_measure was given, or does it on a CPU; called many times, with set
 * numbers from 0 to sets - 1 in turn. Anything but 0 ends the measurement. It returns, and neither throws nor jumps
 * out: the device would stay in use. */
typedef int (*bwprof_callback)(void *user, int64_t set);

/* 0 and NULL are the defaults. */
typedef struct bwprof_measure_options {
    const char *backend; /* NULL: the profiler's, or the first that has a device */
    int device;
    bwprof_profiler
        *profiler;     /* its device is used (for many measurements: opening one takes a while); NULL: opened here */
    const char *timer; /* "cupti", "graph", "events"; NULL: the first of these that can be had */
    int hot;           /* 1: inputs may be in the cache; 0: they are driven out before each call */
    int64_t sets;      /* that the callback knows; 0: 1 */
    int64_t footprint_bytes;            /* that one call touches; 0: bytes_read + bytes_written */
    uint64_t bytes_read, bytes_written; /* of one call, for the bandwidth */
    double rel_ci;       /* half width of the median's interval at which sampling stops, below 1; 0: 0.005 */
    int64_t min_samples; /* 0: 10 */
    double max_seconds;  /* of sampling, finite; 0: 2 */
} bwprof_measure_options;

typedef struct bwprof_measurement {
    double time_ms;                /* median time of one call */
    double time_ms_lo, time_ms_hi; /* its 95 % confidence interval */
    double time_ms_min, noise;     /* fastest sample; interquartile range / median */
    double bandwidth_gb_s;         /* NaN where no bytes were given */
    double timer_floor_us;         /* time of an empty kernel, or of an empty call on a CPU, under the same timer */
    int64_t samples, calls_per_sample, sets, flush_bytes;
    int converged, cold; /* 1: the interval is as narrow as asked; inputs were outside the cache */
    char timer[16];
} bwprof_measurement;

/* `options` NULL: all defaults. */
BWPROF_API bwprof_status bwprof_measure(bwprof_callback callback, void *user, void *stream,
                                        const bwprof_measure_options *options, bwprof_measurement *result);

/* ---- reports: one of bwprof's own kernels at a time, verified before and after its timing ---- */

typedef struct bwprof_report {
    char operation[64], precision[16]; /* "gemm", "FP16" */
    double time_ms, bandwidth_gb_s;    /* median of one launch, with cold inputs; its bytes over that time */
    uint64_t bytes_read, bytes_written;
} bwprof_report;

/* Measured on the first CUDA device, or on the CPU where there is none, in FP16 or (use_fp16 = 0) FP32; half a second
 * to a few. Each opens the device anew: for many shapes there is bwprof_benchmark. BWPROF_INVALID for sizes that are
 * none, BWPROF_UNSUPPORTED and BWPROF_MEMORY for what this device cannot run or hold, BWPROF_DEVICE for a wrong result;
 * *out then holds no text, and NaN.
 *
 *   bwprof_report report;
 *   if (bwprof_profile_gemm_bandwidth(1, 896, 896, 1, &report) != BWPROF_OK) {
 *       fprintf(stderr, "%s\n", bwprof_last_error());
 *       return 1;
 *   }
 *   printf("%s: %.3f ms, %.2f GB/s\n", report.precision, report.time_ms, report.bandwidth_gb_s);
 *   bwprof_report_save_to_proof_bundle(&report, "nightly-7"); */

/* D(M, N) = A(M, K) B(N, K)^T. */
BWPROF_API bwprof_status bwprof_profile_gemm_bandwidth(int M, int N, int K, int use_fp16, bwprof_report *out);

/* A prompt of seq_len tokens, each of which sees itself and those before it; as many KV heads as heads. */
BWPROF_API bwprof_status bwprof_profile_attention_bandwidth(int batch_size, int seq_len, int num_heads, int head_dim,
                                                            int use_fp16, bwprof_report *out);

/* The keys and values of seq_len new tokens of each sequence, written into a cache of pages of 16 tokens. */
BWPROF_API bwprof_status bwprof_profile_kv_cache_bandwidth(int batch_size, int seq_len, int num_kv_heads, int head_dim,
                                                           int use_fp16, bwprof_report *out);

/* Writes .test-results/bandwidth/<run_id>/bandwidth_report.json below the working directory, folders included, as
 * bwprof.BandwidthReport.save_to_proof_bundle does; bwprof.load reads it. The file appears in one step. A report of the
 * same run is added to those that are there: the file is then a list; threads and processes wait for each other.
 * BWPROF_INVALID for a report that nothing has measured, for a run_id that is not 1 to 128 of the letters A-Z a-z,
 * digits, '.', '_' and '-', or begins with '.', and for a file that does not begin and end as bwprof writes reports,
 * which stays as it is; BWPROF_BUSY when another process has kept it for ten seconds; BWPROF_SYSTEM when it cannot be
 * written. */
BWPROF_API bwprof_status bwprof_report_save_to_proof_bundle(const bwprof_report *report, const char *run_id);

/* The library exports nothing without a prefix but cuda_benchmark_bandwidth. Programs that know these functions by
 * their short names define BWPROF_SHORT_NAMES. */
#ifdef BWPROF_SHORT_NAMES
static inline int profile_gemm_bandwidth(int M, int N, int K, int use_fp16, bwprof_report *out) {
    return bwprof_profile_gemm_bandwidth(M, N, K, use_fp16, out);
}
static inline int profile_attention_bandwidth(int batch_size, int seq_len, int num_heads, int head_dim, int use_fp16,
                                              bwprof_report *out) {
    return bwprof_profile_attention_bandwidth(batch_size, seq_len, num_heads, head_dim, use_fp16, out);
}
static inline int profile_kv_cache_bandwidth(int batch_size, int seq_len, int num_kv_heads, int head_dim, int use_fp16,
                                             bwprof_report *out) {
    return bwprof_profile_kv_cache_bandwidth(batch_size, seq_len, num_kv_heads, head_dim, use_fp16, out);
}
#endif

/* ---- benchmark: a suite of bwprof's own kernels, each verified before and after its timing ----
 *
 *   if (bwprof_benchmark("cpu", "smoke", "out.csv", NULL, NULL)) puts(bwprof_last_error());
 *
 * BWPROF_INVALID: an unknown backend or suite. BWPROF_UNAVAILABLE: no such device. BWPROF_SYSTEM: a file that cannot be
 * written, said before anything is measured. BWPROF_INTERRUPTED: the callback did not return 0. */

typedef struct bwprof_case {
    int index, count;                                           /* of the run's cases */
    const char *name, *operation, *precision, *variant, *cache; /* variant "": the device's choice */
    const char *status, *reason; /* "ok", "skipped", "failed", or "planned" where nothing has run; why */
    double time_ms, bandwidth_gb_s;
    uint64_t bytes_read, bytes_written;
} bwprof_case;

/* Called for each case; the texts stay until it returns. Anything but 0 stops. */
typedef int (*bwprof_progress)(void *user, const bwprof_case *now);

/* Measures a suite ("default", "smoke", ...; NULL: default) on the first device of a backend (NULL: the first that has
 * one) into a CSV that bwprof.load reads; its first nine columns are operation, precision, M, N, K, time_ms,
 * bandwidth_gb_s, bytes_read, bytes_written. The file appears when all cases have run, failed ones among them, for
 * which the answer is BWPROF_DEVICE. `progress` (NULL: none) is called after each case. */
BWPROF_API bwprof_status bwprof_benchmark(const char *backend, const char *suite, const char *output_csv,
                                          bwprof_progress progress, void *user);

/* The cases that it would measure. */
BWPROF_API bwprof_status bwprof_benchmark_cases(const char *backend, const char *suite, bwprof_progress each,
                                                void *user);

/* The default suite on the first GPU, in those nine columns alone: operation is the case's name, with its variant where
 * the case has several; precisions are in capitals. 0; or -1, with a message on stderr, where there is no GPU, the
 * file cannot be written (no half of one is left) or a case fails. */
BWPROF_API int cuda_benchmark_bandwidth(const char *output_csv);

#ifdef __cplusplus
}
#endif
#endif
