#include "measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    SAMPLES_MOST = 4096,
    LAUNCHES_MOST = 8192, /* of one replay, unless there are more sets */
    FLUSHED_CALLS = 16,   /* of a caller's function, with a flush before each */
    WARMUP_LEAST = 3,     /* replays */
    WARMUP_WINDOW = 4
};

static const double replay_least_ns = 1e6; /* a sample lasts at least this */
static const double warmup_least_ns = 20e6;
static const double warmup_most_ns = 400e6; /* a clock that has not settled by then is the samples' noise */
static const double warmup_least_s = 20e-3;
static const double warmup_most_s = 0.4; /* with everything between the timed launches, flushes above all */
static const double settled_spread = 0.01;

static bool stop_asked(const bw_measure_options *options) {
    return options->poll && options->poll(options->poll_context);
}

static bw_status interrupted(void) {
    return bw_fail(BW_CODE_INTERRUPTED, "interrupted");
}

/* What is timed: a case, or a function of the caller's. */
typedef struct timed {
    bw_session *session;
    const bw_backend *backend;
    bw_case *content;  /* whose outputs are checked; NULL for a function */
    bw_plan_spec spec; /* of the plan */
    bw_plan *plan;
    int64_t run;     /* launches of this plan so far; it began with set 0 */
    int64_t watched; /* of these, the ones before `watch` */
} timed;

static bool replays_are_fixed(const timed *timed) {
    return timed->backend->device_facts(timed->session->device)->fixed_replay;
}

/* Launches per replay: long enough to time well; where a replay repeats the same launches it holds every set equally
 * often, and with a flush each set just once (a second use would find it warm). A function has its flush before every
 * call, which says how many are worth while: on a CPU it takes long. */
static int64_t launches_for(const timed *timed, double launch_ns) {
    int64_t wanted = (int64_t)fmin(LAUNCHES_MOST, ceil(replay_least_ns / fmax(launch_ns, 1.0)));
    bool fixed = replays_are_fixed(timed);
    if (timed->spec.flush_bytes && timed->spec.callable) {
        return fixed ? bw_max64(timed->spec.set_count, bw_min64(wanted, FLUSHED_CALLS)) : 1;
    }
    if (timed->spec.flush_bytes) return timed->spec.set_count;
    if (!fixed) return bw_max64(1, wanted);
    return bw_ceil_div(bw_max64(1, wanted), timed->spec.set_count) * timed->spec.set_count;
}

static bw_status replay(timed *timed, double *launch_ns) {
    double elapsed;
    BW_TRY(timed->backend->plan_run(timed->plan, &elapsed));
    timed->run += timed->spec.launches;
    *launch_ns = elapsed / (double)timed->spec.launches;
    return BW_OK;
}

static bw_status create_plan(timed *timed, int64_t launches) {
    timed->backend->plan_free(timed->plan);
    timed->plan = NULL;
    timed->spec.launches = launches;
    timed->run = timed->watched = 0;
    return timed->backend->plan_create(timed->session->device, &timed->spec, &timed->plan);
}

/* A first plan tells how long a launch takes, a second one has the right number of them. */
static bw_status size_plan(timed *timed) {
    int64_t first = replays_are_fixed(timed) || timed->spec.flush_bytes ? timed->spec.set_count : 1;
    double launch_ns = INFINITY;
    BW_TRY(create_plan(timed, first));
    for (int i = 0; i < 2; i++) {
        double ns;
        BW_TRY(replay(timed, &ns));
        launch_ns = fmin(launch_ns, ns);
    }
    int64_t launches = launches_for(timed, launch_ns);
    return launches == first ? BW_OK : create_plan(timed, launches);
}

/* Replays until the last few agree, so that clocks, caches and pages are as they will stay. Adds to *spent_ns. */
static bw_status warm_up(const bw_measure_options *options, timed *timed, double *spent_ns, double *launch_ns) {
    double window[WARMUP_WINDOW];
    double deadline = bw_now_s() + fmin(warmup_most_s, fmax(warmup_least_s, options->max_seconds));
    double least_ns = fmin(warmup_least_ns, options->max_seconds * 1e9);
    for (int64_t i = 0;; i++) {
        if (stop_asked(options)) return interrupted();
        double ns;
        BW_TRY(replay(timed, &ns));
        window[i % WARMUP_WINDOW] = *launch_ns = ns;
        *spent_ns += ns * (double)timed->spec.launches;
        if (i + 1 < WARMUP_LEAST) continue;
        if (*spent_ns >= warmup_most_ns || bw_now_s() >= deadline) return BW_OK;
        if (i + 1 < WARMUP_WINDOW || *spent_ns < least_ns) continue;
        double low = window[0], high = window[0];
        for (int j = 1; j < WARMUP_WINDOW; j++) {
            low = fmin(low, window[j]);
            high = fmax(high, window[j]);
        }
        if (high - low <= settled_spread * high) return BW_OK;
    }
}

/* Outputs as never written in the sets that verify_after looks at: the timed launches must write them. (A plan may have
 * launched on every set when it was made.) */
static bw_status watch(timed *timed) {
    bw_case *self = timed->content;
    if (!self) return BW_OK;
    int64_t first = timed->run % self->set_count, last = self->set_count - 1;
    timed->watched = timed->run;
    BW_TRY(bw_case_reset(self, first));
    return first == last ? BW_OK : bw_case_reset(self, last);
}

static bw_verify_options verify_options(const bw_measure_options *options) {
    return (bw_verify_options){options->verify_budget_s, options->poll, options->poll_context};
}

/* After timing, the first set that was launched on and the last one must hold the right result. */
static bw_status verify_after(bw_case *self, const bw_measure_options *options, const timed *timed,
                              bw_measurement *out) {
    int64_t first = timed->watched % self->set_count;
    bool all_sets = timed->run - timed->watched >= self->set_count;
    int64_t last = all_sets ? self->set_count - 1 : (timed->run - 1) % self->set_count;
    const bw_verify_options verify = verify_options(options);
    BW_TRY(bw_verify_set(self, first, &verify, &out->verdict));
    if (!out->verdict.verified || last == first) return BW_OK;
    return bw_verify_set(self, last, &verify, &out->verdict);
}

/* Warms up; a plan that was made while the clock was still low, or pages were missing, is too short after that. */
static bw_status settle(const bw_measure_options *options, timed *timed, bw_measurement *out) {
    double launch_ns = INFINITY;
    out->warmup_ns = 0.0;
    BW_TRY(watch(timed));
    BW_TRY(warm_up(options, timed, &out->warmup_ns, &launch_ns));
    int64_t launches = launches_for(timed, launch_ns);
    if (launches <= timed->spec.launches + timed->spec.launches / 4) return BW_OK;
    BW_TRY(create_plan(timed, launches));
    BW_TRY(watch(timed));
    return warm_up(options, timed, &out->warmup_ns, &launch_ns);
}

static bool narrow_enough(const bw_statistics *statistics, double target) {
    double widest = fmax(statistics->high - statistics->median, statistics->median - statistics->low);
    return widest <= target * statistics->median;
}

/* One sample; `busy_ns` adds up the timed launches for whoever watches the conditions. */
static bw_status sample_once(timed *timed, bw_watch *watch, double *busy_ns, double *launch_ns) {
    bw_watch_look(watch, bw_now_s(), timed->run, *busy_ns, false);
    BW_TRY(replay(timed, launch_ns));
    *busy_ns += *launch_ns * (double)timed->spec.launches;
    return BW_OK;
}

static void note_kernels(const timed *timed, bw_kernel_times *out) {
    *out = (bw_kernel_times){NAN, NAN};
    if (timed->backend->plan_kernels) *out = timed->backend->plan_kernels(timed->plan);
}

/* The median of one member over the samples, per launch; `sorted` is overwritten. */
static double median_kernels(const bw_kernel_times *kernels, size_t member, double *sorted, int64_t count,
                             int64_t launches) {
    for (int64_t i = 0; i < count; i++) {
        memcpy(&sorted[i], (const char *)&kernels[i] + member, sizeof sorted[i]);
        if (isnan(sorted[i])) return NAN;
    }
    return bw_statistics_of(sorted, count).median / (double)launches;
}

/* What others took since the last call. */
static void look_at_neighbours(bw_session *session, bw_disturbance *out) {
    *out = (bw_disturbance){NAN, NAN};
    if (session->backend->neighbours) session->backend->neighbours(session->device, out);
}

static bw_status sample(const bw_measure_options *options, timed *timed, bw_measurement *out) {
    bw_watch watch;
    double busy_ns = 0.0;
    double *sorted = malloc(SAMPLES_MOST * sizeof *sorted);
    bw_kernel_times *kernels = malloc(SAMPLES_MOST * sizeof *kernels);
    out->samples_ns = malloc(SAMPLES_MOST * sizeof *out->samples_ns);
    bw_status status = BW_OK;
    if (!sorted || !kernels || !out->samples_ns) BW_GOTO(bw_fail(BW_CODE_MEMORY, "no host memory for samples"));
    int64_t count = 0, next_look = options->min_samples;
    double deadline = bw_now_s() + options->max_seconds;
    bw_watch_begin(&watch, timed->session, bw_now_s());
    look_at_neighbours(timed->session, &out->disturbance);
    for (;;) {
        if (stop_asked(options)) BW_GOTO(interrupted());
        BW_GOTO(sample_once(timed, &watch, &busy_ns, &out->samples_ns[count]));
        note_kernels(timed, &kernels[count++]);
        if (timed->backend->plan_late && timed->backend->plan_late(timed->plan)) out->late_samples++;
        bool out_of_time = count >= options->min_samples && bw_now_s() >= deadline;
        if (count < next_look && !out_of_time && count < SAMPLES_MOST) continue;
        memcpy(sorted, out->samples_ns, (size_t)count * sizeof *sorted);
        out->statistics = bw_statistics_of(sorted, count);
        out->converged = narrow_enough(&out->statistics, options->precision_target);
        if (out->converged || out_of_time || count == SAMPLES_MOST) break;
        next_look = count + bw_max64(2, count / 8);
    }
    look_at_neighbours(timed->session, &out->disturbance);
    bw_watch_look(&watch, bw_now_s(), timed->run, busy_ns, true);
    bw_watch_end(&watch, &out->conditions);
    double *members[] = {&out->kernels.sum_ns, &out->kernels.span_ns};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        size_t member = (size_t)((char *)members[i] - (char *)&out->kernels);
        *members[i] = median_kernels(kernels, member, sorted, count, timed->spec.launches);
    }
cleanup:
    free(kernels);
    free(sorted);
    return status;
}

static bw_status measure_timed(const bw_measure_options *options, timed *timed, bw_measurement *out) {
    if (stop_asked(options)) return interrupted();
    bw_watch_prepare(timed->session);
    BW_TRY(size_plan(timed));
    BW_TRY(settle(options, timed, out));
    BW_TRY(sample(options, timed, out));
    out->launches_per_sample = timed->spec.launches;
    out->host_launch_ns = timed->backend->plan_host_ns(timed->plan);
    return BW_OK;
}

static void begin_measurement(bw_measurement *out) {
    memset(out, 0, sizeof *out);
    out->host_launch_ns = out->warmup_ns = NAN;
    out->kernels = (bw_kernel_times){NAN, NAN};
    out->disturbance = (bw_disturbance){NAN, NAN};
}

bw_status bw_measure(bw_case *self, const bw_measure_options *options, bw_measurement *out) {
    timed timed = {.session = self->session, .backend = self->session->backend, .content = self};
    bw_status status = BW_OK;
    const bw_verify_options verify = verify_options(options);
    begin_measurement(out);
    BW_TRY(bw_session_floor(self->session, options->timer, &out->timer_floor_ns));
    BW_TRY(bw_case_ready_for(self, options->cache, &out->rotation));
    BW_TRY(bw_verify_case(self, &verify, &out->verdict));
    if (!out->verdict.verified) return BW_OK;
    timed.spec = (bw_plan_spec){.variant = self->variant,
                                .sets = self->launches,
                                .set_count = self->set_count,
                                .flush_bytes = out->rotation.flush_bytes,
                                .flush = options->flush,
                                .timer = options->timer,
                                .trace = options->trace};
    BW_GOTO(measure_timed(options, &timed, out));
    BW_GOTO(verify_after(self, options, &timed, out));
cleanup:
    timed.backend->plan_free(timed.plan);
    if (status || !out->verdict.verified) {
        bw_measurement_free(out);
        out->converged = false;
    }
    return status;
}

void bw_measurement_free(bw_measurement *measurement) {
    free(measurement->samples_ns);
    measurement->samples_ns = NULL;
}

/* ---- a function of the caller's ---- */

static bw_status rotate_call(const bw_call *self, bw_cache cache, bw_rotation *out) {
    const bw_backend *backend = self->session->backend;
    int64_t cache_bytes = backend->device_facts(self->session->device)->cache_bytes;
    int64_t free_bytes, total_bytes;
    *out = (bw_rotation){.sets = cache == BW_CACHE_COLD ? self->sets : 1, .note = ""};
    if (cache != BW_CACHE_COLD) return BW_OK;
    if (cache_bytes <= 0) {
        out->note = "the cache's size is unknown: the inputs may be in it";
        return BW_OK;
    }
    int64_t wanted = BW_COLD_CACHE_FACTOR * cache_bytes;
    out->cold = self->footprint_bytes >= bw_ceil_div(wanted, self->sets);
    if (out->cold) return BW_OK;
    BW_TRY(backend->device_memory(self->session->device, &free_bytes, &total_bytes));
    out->cold = wanted <= free_bytes - free_bytes / 32;
    if (out->cold) out->flush_bytes = wanted;
    out->note = out->cold ? "read flush before each call" : "memory allows no flush: the inputs may be in the cache";
    return BW_OK;
}

bw_status bw_measure_call(const bw_call *self, const bw_measure_options *options, bw_measurement *out) {
    timed timed = {.session = self->session, .backend = self->session->backend};
    begin_measurement(out);
    BW_TRY(bw_session_call_floor(self->session, self->nothing, options->timer, &out->timer_floor_ns));
    BW_TRY(rotate_call(self, options->cache, &out->rotation));
    timed.spec = (bw_plan_spec){.callable = self->callable,
                                .set_count = out->rotation.sets,
                                .flush_bytes = out->rotation.flush_bytes,
                                .timer = options->timer};
    bw_status status = measure_timed(options, &timed, out);
    timed.backend->plan_free(timed.plan);
    if (status) bw_measurement_free(out);
    return status;
}
