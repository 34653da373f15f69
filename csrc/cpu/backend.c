/* The CPU as a device: one, with all CPUs the process may use.
 * BWPROF_CPU_THREADS sets the number of threads, BWPROF_CPU_ISA a lesser instruction set, BWPROF_CPU_CACHE_MIB the
 * last-level cache where the system reports more than this machine has of it. */
#include "backend/backend.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "cpu/device.h"
#include "cpu/host.h"

enum { PARALLEL_BYTES = 1 << 20, CACHED_SHARE = 4, THREADS_MAX = 4096, CACHE_MIB_MAX = 1 << 20, ALIGNMENT = 256 };
enum { REFERENCE_LEAST = 1 << 25, REFERENCE_MOST = 1 << 30 };
enum { PEAK_ROUNDS = 100000, PEAK_RUNS = 7 };
enum { PIECE_BYTES = 1 << 25 }; /* of long work, between two questions whether to go on */

static bw_status device_count(int *count, char *reason, size_t reason_size) {
    *count = 1;
    if (reason_size) reason[0] = '\0';
    return BW_OK;
}

/* 0 where the environment does not say. */
static bw_status read_variable(const char *variable, int most, int *out) {
    const char *text = getenv(variable);
    *out = 0;
    if (!text || !*text) return BW_OK;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || *end || value < 1 || value > most) {
        return bw_fail(BW_CODE_INVALID, "%s is '%.200s': allowed are 1 to %d", variable, text, most);
    }
    *out = (int)value;
    return BW_OK;
}

static void find_facts(bw_device *device) {
    bw_device_facts *facts = &device->facts;
    const bw_pool *pool = device->pool;
    memset(facts, 0, sizeof *facts);
    bw_host_name(facts->name, sizeof facts->name);
    bw_host_release(facts->driver, sizeof facts->driver);
    snprintf(facts->runtime, sizeof facts->runtime, "%s", device->kernels->isa);
    facts->units = bw_pool_size(pool);
    facts->memory_bytes = bw_host_memory_of(BW_HOST_ROOT).total;
    bw_host_caches caches = bw_host_caches_of(BW_HOST_SYSTEM, bw_pool_cpu_list(pool), bw_pool_cpus(pool));
    int64_t taken_bytes = device->cache_mib ? (int64_t)device->cache_mib << 20 : caches.bytes;
    facts->cache_bytes = bw_cache_usable_bytes(device, taken_bytes, caches.count);
    facts->cache_measured = facts->cache_bytes < taken_bytes;
    facts->peak_gb_s = NAN;
    snprintf(facts->peak_source, sizeof facts->peak_source, "unknown: the memory's channels and clock cannot be read");
    snprintf(facts->timer, sizeof facts->timer, "monotonic");
    char pinned[32] = ", not pinned", quota_note[48] = "", measured[96] = "", host[304];
    int cpus = bw_pool_cpus(pool);
    if (cpus) snprintf(pinned, sizeof pinned, " pinned to %d CPU%s", cpus, cpus == 1 ? "" : "s");
    double quota = bw_host_quota_of(BW_HOST_ROOT);
    if (isfinite(quota)) snprintf(quota_note, sizeof quota_note, "the container's quota: %.3g CPUs; ", quota);
    if (facts->cache_measured) {
        snprintf(measured, sizeof measured, "the threads hold less than %lld MiB of the last-level cache, measured; ",
                 (long long)(2 * facts->cache_bytes >> 20));
    }
    bw_host_note(&caches, taken_bytes, host, sizeof host);
    snprintf(facts->note, sizeof facts->note, "%d thread%s%s; %s%s%s", facts->units, facts->units == 1 ? "" : "s",
             pinned, quota_note, measured, host);
}

static void peak_share(void *context, int rank, int ranks) {
    (void)rank, (void)ranks;
    const bw_cpu_kernels *kernels = context;
    volatile float sum = kernels->multiply_adds(PEAK_ROUNDS); /* so that it is worked out */
    (void)sum;
}

/* The clock under load is the processor's secret, so the arithmetic roof is measured: the best of a few short runs of
 * multiply-adds on all threads. Narrower types are widened to FP32, so their roof is the same. */
static void measure_peak(bw_device *device) {
    bw_device_facts *facts = &device->facts;
    double best_s = INFINITY;
    bw_pool_enter(device->pool);
    for (int i = 0; i < PEAK_RUNS; i++) {
        double start_s = bw_now_s();
        bw_pool_run(device->pool, peak_share, (void *)(uintptr_t)device->kernels);
        best_s = fmin(best_s, bw_now_s() - start_s);
    }
    bw_pool_leave(device->pool);
    double flops = (double)PEAK_ROUNDS * device->kernels->flops_per_round * bw_pool_size(device->pool);
    for (int i = 0; i < BW_DTYPE_COUNT; i++) facts->peak_tflops[i] = NAN;
    facts->peak_tflops[BW_FP32] = facts->peak_tflops[BW_FP16] = facts->peak_tflops[BW_BF16] = flops / best_s * 1e-12;
    snprintf(facts->tflops_source, sizeof facts->tflops_source,
             "measured: FP32 multiply-adds in registers, %s, %d threads", device->kernels->isa,
             bw_pool_size(device->pool));
}

static void release(bw_device *device, void *memory, int64_t bytes) {
    (void)bytes; /* the mapping knows */
    if (memory) bw_memory_release(&device->memory, memory);
}

/* Twice the last-level cache: what the cases leave in it must not decide how long the stream takes. */
static int64_t reference_bytes(const bw_device *device) {
    return bw_max64(REFERENCE_LEAST, bw_min64(2 * device->facts.cache_bytes, REFERENCE_MOST));
}

static void device_close(bw_device *device) {
    if (!device) return;
    bw_busy_free(device->busy);
    release(device, device->reference, reference_bytes(device));
    bw_pool_free(device->pool);
    bw_memory_close(&device->memory);
    free(device);
}

/* All that depends on how many threads there are, in place of what there was. */
static bw_status start_threads(bw_device *device, int threads) {
    bw_status status = BW_OK;
    bw_pool *pool = NULL;
    bw_busy *busy = NULL;
    BW_GOTO(bw_pool_create(threads, &pool));
    BW_GOTO(bw_busy_create(pool, &busy));
    bw_busy_free(device->busy);
    bw_pool_free(device->pool);
    device->busy = busy;
    device->pool = pool;
    device->walks = (bw_walks){0};
    busy = NULL;
    pool = NULL;
    find_facts(device);
    measure_peak(device);
    int nodes = bw_host_nodes_of(BW_HOST_SYSTEM, bw_pool_cpu_list(device->pool), bw_pool_cpus(device->pool));
    device->memory.cached_limit = nodes > 1 ? 0 : device->facts.memory_bytes / CACHED_SHARE;

cleanup:
    bw_busy_free(busy);
    bw_pool_free(pool);
    return status;
}

static bw_status limit_threads(bw_device *device, int threads) {
    int most = bw_pool_size(device->pool);
    if (threads < 1 || threads > most) {
        return bw_fail(BW_CODE_INVALID, "threads = %d: allowed is 1 to %d, those of this device", threads, most);
    }
    return threads == most ? BW_OK : start_threads(device, threads);
}

static bw_status device_name(int index, char *name, size_t name_size) {
    (void)index;
    bw_host_name(name, name_size);
    return BW_OK;
}

/* As many threads as a container's quota pays for: more would be held back together. 0: one for each CPU. */
static int threads_paid_for(void) {
    double quota = bw_host_quota_of(BW_HOST_ROOT);
    return quota < bw_parallel_processors() ? (int)fmax(1.0, quota) : 0;
}

static bw_status device_open(int index, bw_device **out) {
    bw_status status = BW_OK;
    bw_device *device = NULL;
    int threads = 0;
    if (index != 0) return bw_fail(BW_CODE_INVALID, "the CPU is one device, index 0; there is no device %d", index);
    device = calloc(1, sizeof *device);
    if (!device) return bw_fail(BW_CODE_MEMORY, "no memory for a device handle");
    const char *isa = getenv("BWPROF_CPU_ISA");
    BW_GOTO(bw_cpu_isa_choose(isa && *isa ? isa : NULL, &device->kernels));
    BW_GOTO(read_variable("BWPROF_CPU_THREADS", THREADS_MAX, &threads));
    BW_GOTO(read_variable("BWPROF_CPU_CACHE_MIB", CACHE_MIB_MAX, &device->cache_mib));
    if (!threads) threads = threads_paid_for();
    BW_GOTO(start_threads(device, threads));
    *out = device;
    device = NULL;

cleanup:
    device_close(device);
    return status;
}

static const bw_device_facts *device_facts(const bw_device *device) {
    return &device->facts;
}

static bw_status device_memory(bw_device *device, int64_t *free_bytes, int64_t *total_bytes) {
    *free_bytes = bw_host_memory_of(BW_HOST_ROOT).available + device->memory.cached_bytes;
    *total_bytes = device->facts.memory_bytes;
    return BW_OK;
}

static const bw_variant_table *variants(const bw_device *device, int op_index) {
    const bw_cpu_kernels *kernels = device ? device->kernels : bw_cpu_isa_best();
    return kernels->tables[op_index];
}

static bw_status allocate(bw_device *device, int64_t bytes, void **out) {
    return bw_memory_allocate(&device->memory, device->pool, bytes, NULL, out);
}

static bw_status allocate_sets(bw_device *device, int64_t sets, const bw_set_layout *layout, void **out) {
    return bw_memory_allocate(&device->memory, device->pool, sets * layout->set_bytes, layout, out);
}

/* Work on units [first, last) of memory, those of one piece. */
typedef struct memory_task memory_task;
struct memory_task {
    bw_device *device;
    void (*work)(const memory_task *task, int64_t first, int64_t count);
    char *to;
    const char *from;
    bw_dtype dtype; /* of inputs, whose blocks the units are */
    bw_input_key key;
    int64_t unit_bytes, first, last;
};

static void memory_share(void *context, int rank, int ranks) {
    const memory_task *task = context;
    int64_t first, last;
    bw_pool_share_units(task->last - task->first, ALIGNMENT, rank, ranks, &first, &last);
    task->work(task, task->first + first, last - first);
}

/* In pieces, after each of which it can be stopped; small ones on the calling thread. */
static bw_status work_on_memory(memory_task task, int64_t units) {
    for (; task.first < units; task.first = task.last) {
        task.last = bw_min64(units, task.first + PIECE_BYTES / task.unit_bytes);
        if ((task.last - task.first) * task.unit_bytes < PARALLEL_BYTES) {
            memory_share(&task, 0, 1);
        } else {
            bw_pool_run(task.device->pool, memory_share, &task);
        }
        BW_TRY(bw_memory_poll(&task.device->memory));
    }
    return BW_OK;
}

static void fill_blocks(const memory_task *task, int64_t first, int64_t count) {
    task->device->kernels->fill(task->dtype, task->key, first, count, task->to + first * task->unit_bytes);
}

static void move_bytes(const memory_task *task, int64_t first, int64_t count) {
    memcpy(task->to + first, task->from + first, (size_t)count);
}

static void poison_bytes(const memory_task *task, int64_t first, int64_t count) {
    memset(task->to + first, 0xff, (size_t)count);
}

bw_status bw_device_fill(bw_device *device, bw_dtype dtype, uint64_t seed, int operand, int64_t count, void *out) {
    memory_task task = {.device = device, .work = fill_blocks, .to = out, .dtype = dtype};
    task.key = bw_input_key_make(seed, operand);
    task.unit_bytes = bw_dtype_get(dtype)->block_bytes;
    return work_on_memory(task, count);
}

static bw_status move(bw_device *device, void *to, const void *from, int64_t bytes) {
    return work_on_memory((memory_task){device, move_bytes, to, from, .unit_bytes = 1}, bytes);
}

static bw_status poison(bw_device *device, void *memory, int64_t bytes) {
    return work_on_memory((memory_task){device, poison_bytes, memory, .unit_bytes = 1}, bytes);
}

static bw_status gather(bw_device *device, const bw_span *spans, int64_t count, int64_t bytes, void *to) {
    (void)device, (void)bytes;
    char *next = to;
    for (int64_t i = 0; i < count; i++) {
        memcpy(next, spans[i].from, (size_t)spans[i].bytes);
        next += spans[i].bytes;
    }
    return BW_OK;
}

static void watch(bw_device *device, bool (*poll)(void *context), void *context) {
    device->memory.poll = poll;
    device->memory.poll_context = context;
}

static bw_status synchronize(bw_device *device) {
    (void)device; /* a launch returns when it is done */
    return BW_OK;
}

struct bw_plan {
    bw_device *device;
    bw_plan_spec spec;
    int64_t next_set; /* where the last replay stopped */
    void *flush;
};

static void plan_free(bw_plan *plan) {
    if (!plan) return;
    release(plan->device, plan->flush, plan->spec.flush_bytes);
    free(plan);
}

static bw_status plan_create(bw_device *device, const bw_plan_spec *spec, bw_plan **out) {
    bw_status status = BW_OK;
    if (spec->trace) return bw_fail(BW_CODE_UNAVAILABLE, "a CPU has no kernel timestamps: leave out trace");
    bw_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return bw_fail(BW_CODE_MEMORY, "no memory for a plan");
    plan->device = device;
    plan->spec = *spec;
    if (spec->flush_bytes > 0) BW_GOTO(allocate(device, spec->flush_bytes, &plan->flush));
    *out = plan;
    plan = NULL;

cleanup:
    plan_free(plan);
    return status;
}

static void flush_cache(bw_plan *plan) {
    memory_task set = {.work = poison_bytes, .to = plan->flush, .last = plan->spec.flush_bytes};
    if (!plan->flush) return;
    if (plan->spec.flush != BW_FLUSH_READ) bw_pool_run(plan->device->pool, memory_share, &set);
    if (plan->spec.flush != BW_FLUSH_MEMSET) bw_device_read(plan->device, plan->flush, plan->spec.flush_bytes);
}

static void empty_share(void *context, int rank, int ranks) {
    (void)context, (void)rank, (void)ranks;
}

static bw_status run_empty(void *context, int64_t set, bool captured) {
    bw_device *device = context;
    (void)set, (void)captured;
    bw_pool_run(device->pool, empty_share, NULL);
    return BW_OK;
}

static bw_work empty_work(bw_device *device) {
    return (bw_work){.run = run_empty, .context = device};
}

static bw_status run_launches(bw_plan *plan, int64_t count) {
    bw_status status = BW_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        status = plan->spec.work.run(plan->spec.work.context, plan->next_set, false);
        if (++plan->next_set == plan->spec.set_count) plan->next_set = 0;
    }
    return status;
}

/* A caller's function has threads of its own, if any: it is not pinned, and the pool sleeps beside it. */
static bw_status run_foreign(bw_plan *plan, double *ns) {
    int64_t together = plan->flush ? 1 : plan->spec.launches;
    bw_status status = BW_OK;
    *ns = 0.0;
    for (int64_t done = 0; done < plan->spec.launches && !status; done += together) {
        flush_cache(plan);
        bw_work_enter(&plan->spec.work);
        int64_t start = bw_now_ns();
        status = run_launches(plan, together);
        *ns += (double)(bw_now_ns() - start);
        bw_work_leave(&plan->spec.work);
    }
    return status;
}

static bw_status plan_run(bw_plan *plan, double *ns) {
    bw_pool *pool = plan->device->pool;
    if (plan->spec.work.foreign) return run_foreign(plan, ns);
    bw_pool_enter(pool);
    flush_cache(plan);
    bw_pool_run(pool, empty_share, NULL); /* wakes sleeping threads, outside the timing */
    int64_t start = bw_now_ns();
    bw_status status = run_launches(plan, plan->spec.launches);
    *ns = (double)(bw_now_ns() - start);
    bw_pool_leave(pool);
    return status;
}

static bw_status reference(bw_device *device, double *ns) {
    int64_t bytes = reference_bytes(device);
    if (!device->reference) BW_TRY(allocate(device, bytes, &device->reference));
    bw_pool_enter(device->pool);
    bw_pool_run(device->pool, empty_share, NULL);
    int64_t start = bw_now_ns();
    bw_device_read(device, device->reference, bytes);
    *ns = (double)(bw_now_ns() - start);
    bw_pool_leave(device->pool);
    return BW_OK;
}

struct bw_marks {
    int64_t *ns;
};

static bw_status marks_create(bw_device *device, void *stream, bw_marks **out) {
    (void)device, (void)stream;
    *out = calloc(1, sizeof **out);
    return *out ? BW_OK : bw_fail(BW_CODE_MEMORY, "no memory for marks");
}

static bw_status marks_reserve(bw_marks *self, int64_t count) {
    return bw_resize((void **)&self->ns, count, sizeof *self->ns, "marks");
}

static bw_status marks_take(bw_marks *self, int64_t index) {
    self->ns[index] = bw_now_ns();
    return BW_OK;
}

static bw_status marks_passed(bw_marks *self, int64_t index, bool *out) {
    (void)self, (void)index;
    *out = true;
    return BW_OK;
}

static bw_status marks_elapsed(bw_marks *self, int64_t from, int64_t to, double *ns) {
    *ns = (double)(self->ns[to] - self->ns[from]);
    return BW_OK;
}

static void marks_free(bw_marks *self) {
    if (!self) return;
    free(self->ns);
    free(self);
}

static const bw_device_calls device_calls = {
    .count = device_count,
    .name = device_name,
    .open = device_open,
    .close = device_close,
    .facts = device_facts,
    .synchronize = synchronize,
    .variants = variants,
    .limit_threads = limit_threads,
    .watch = watch,
};

static const bw_memory_calls memory_calls = {
    .ask = device_memory,
    .allocate = allocate,
    .allocate_sets = allocate_sets,
    .release = release,
    .fill = bw_device_fill,
    .poison = poison,
    .duplicate = move,
    .upload = move,
    .download = move,
    .gather = gather,
};

static const bw_plan_calls plan_calls = {
    .empty = empty_work,
    .create = plan_create,
    .run = plan_run,
    .free = plan_free,
};

static const bw_mark_calls mark_calls = {
    .clock = "monotonic",
    .create = marks_create,
    .reserve = marks_reserve,
    .take = marks_take,
    .passed = marks_passed,
    .elapsed = marks_elapsed,
    .free = marks_free,
};

static const bw_disturbance_calls disturbance_calls = {.look = bw_busy_look, .reference = reference};

static const char *const timers[] = {"monotonic", NULL};

const bw_backend bw_cpu_backend = {
    .name = "cpu",
    .text = "this machine's processors: C kernels, threaded and vectorized",
    .built = true,
    .timers = timers,
    .runs_on_host = true,
    /* First touches of memory are dear, and each point fills four times the caches before it is measured: the largest
     * streams take 2 s, and with less than this most others would be in doubt. */
    .budgets = {.largest_stream_bytes = (int64_t)256 << 20,
                .cold_streams_s = 6.0,
                .hot_streams_s = 1.8,
                .cold_point_s = 0.12,
                .hot_point_s = 0.02,
                .guessed_gb_s = 20.0},
    .devices = &device_calls,
    .memory = &memory_calls,
    .plans = &plan_calls,
    .marks = &mark_calls,
    .disturbance = &disturbance_calls,
};
