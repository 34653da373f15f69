/* Measures a case or a function: verification, warm-up, sampling, the stop rule, verification again. */
#include "measure/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/order.h"
#include "base/parallel.h"

enum {
    SAMPLES_AT_FIRST = 512, /* that the first allocation holds */
    LAUNCHES_MOST = 8192,   /* of one replay, unless there are more sets */
    FLUSHED_CALLS = 16,     /* of a caller's function, with a flush before each */
    WARMUP_LEAST = 3,       /* replays */
    WARMUP_WINDOW = 4,
    TRANSFORM_REPLAYS = 9
};

/* However close they are, samples of a shorter time say nothing of what comes and goes. */
static const double sampling_least_s = 50e-3;
static const double replay_least_ns = 1e6; /* a sample lasts at least this */
static const double warmup_least_ns = 20e6;
static const double warmup_most_ns = 400e6; /* a clock that has not settled by then is the samples' noise */
static const double warmup_least_s = 20e-3;
static const double warmup_most_s = 0.4; /* with everything between the timed launches, flushes above all */
static const double settled_spread = 0.01;

static const double reference_sampling_least_s = 0.2;
static const double reference_interval_least_s = 0.02;
static const double intervals_per_reference = 15.0; /* of one's own length: under a fifteenth of the time */

static const double sampling_share = 0.5; /* of a case's time; the rest is filling, verification and warming up */
static const double case_least_s = 0.05;

static const bw_disturbance not_disturbed = {NAN, NAN, NAN, NAN, NAN}; /* or not known */

static bw_status refuse_number(const char *name, double value, const char *allowed) {
    return bw_fail(BW_CODE_INVALID, "%s = %g: allowed is %s", name, value, allowed);
}

static bw_status check_seconds(const char *name, double value) {
    return isfinite(value) && value >= 0.0 ? BW_OK : refuse_number(name, value, "a finite number >= 0");
}

bw_status bw_measure_options_check(const bw_measure_options *o) {
    if (!(o->precision_target > 0.0)) return refuse_number("precision_target", o->precision_target, "a number > 0");
    BW_TRY(check_seconds("max_seconds", o->max_seconds));
    BW_TRY(check_seconds("verify_budget_s", o->verify_budget_s));
    if (o->min_samples >= 1 && o->min_samples <= BW_SAMPLES_MOST) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "min_samples = %" PRId64 ": allowed is 1 to %d", o->min_samples, BW_SAMPLES_MOST);
}

double bw_case_seconds(double seconds_left, int64_t cases_left, double most) {
    return fmin(most, fmax(case_least_s, seconds_left / (double)cases_left * sampling_share));
}

static bw_status check_interrupt(const bw_measure_options *options) {
    const bool stop = options->poll && options->poll(options->poll_context);
    return stop ? bw_fail(BW_CODE_INTERRUPTED, "interrupted") : BW_OK;
}

/* What is timed: a case, or a function of the caller's. */
typedef struct subject {
    bw_session *session;
    const bw_backend *backend;
    bw_case *content;  /* whose outputs are checked; NULL for a function */
    bw_plan_spec spec; /* of the plan */
    bw_plan *plan;
    bw_annotation_stack annotation_stack; /* the plan's: what samples' launches lie in, and nothing before them */
    int64_t run;                          /* launches of this plan so far; it began with set 0 */
    int64_t watched;                      /* of these, the ones before `watch` */
    double host_ns;                       /* of one plain launch, from the last plan that timed it */
} subject;

static bool replays_are_fixed(const subject *subject) {
    return subject->backend->devices->facts(subject->session->device)->fixed_replay;
}

/* Enough to time well. A replay that repeats its launches holds every set equally often; with a flush it holds each
 * once, as a second use would find it warm. A function is flushed before every call, which takes long on a CPU. */
static int64_t launches_for(const subject *subject, double launch_ns) {
    int64_t wanted = (int64_t)fmin(LAUNCHES_MOST, ceil(replay_least_ns / fmax(launch_ns, 1.0)));
    bool fixed = replays_are_fixed(subject);
    if (subject->spec.flush_bytes && subject->spec.work.foreign) {
        return fixed ? bw_max64(subject->spec.set_count, bw_min64(wanted, FLUSHED_CALLS)) : 1;
    }
    if (subject->spec.flush_bytes) return subject->spec.set_count;
    if (!fixed) return bw_max64(1, wanted);
    return bw_ceil_div(bw_max64(1, wanted), subject->spec.set_count) * subject->spec.set_count;
}

static bw_status replay(subject *subject, double *launch_ns) {
    double elapsed;
    BW_TRY(subject->backend->plans->run(subject->plan, &elapsed));
    subject->run += subject->spec.launches;
    *launch_ns = elapsed / (double)subject->spec.launches;
    return BW_OK;
}

static bw_status create_plan(subject *subject, int64_t launches) {
    subject->backend->plans->free(subject->plan);
    subject->plan = NULL;
    subject->spec.launches = launches;
    subject->run = subject->watched = 0;
    const bw_plan_calls *plans = subject->backend->plans;
    BW_TRY(plans->create(subject->session->device, &subject->spec, &subject->plan));
    const double host_ns = plans->host_ns ? plans->host_ns(subject->plan) : NAN;
    if (!subject->spec.warmed || !isnan(host_ns)) subject->host_ns = host_ns; /* a warmed plan may not time it */
    subject->spec.warmed = true;
    return BW_OK;
}

/* A first plan measures how long a launch takes; a second one has the right number of launches. */
static bw_status size_plan(subject *subject) {
    int64_t first = replays_are_fixed(subject) || subject->spec.flush_bytes ? subject->spec.set_count : 1;
    double launch_ns = INFINITY;
    BW_TRY(create_plan(subject, first));
    for (int i = 0; i < 2; i++) {
        double ns;
        BW_TRY(replay(subject, &ns));
        launch_ns = fmin(launch_ns, ns);
    }
    int64_t launches = launches_for(subject, launch_ns);
    return launches == first ? BW_OK : create_plan(subject, launches);
}

/* What the device did just before this case has raised its clock as well. */
static double least_warmup_ns(const subject *subject, double max_seconds) {
    const bw_plan_calls *plans = subject->backend->plans;
    double done_ns = plans->busy_ns ? plans->busy_ns(subject->session->device) : 0.0;
    return fmin(warmup_least_ns, max_seconds * 1e9) - done_ns;
}

/* Replays until the last few agree, so that clocks, caches and pages are as they will stay. Adds to *spent_ns. */
static bw_status warm_up(const bw_measure_options *options, subject *subject, double deadline, double *spent_ns,
                         double *launch_ns) {
    double window[WARMUP_WINDOW];
    double least_ns = least_warmup_ns(subject, options->max_seconds);
    for (int64_t i = 0;; i++) {
        double ns;
        BW_TRY(check_interrupt(options));
        BW_TRY(replay(subject, &ns));
        window[i % WARMUP_WINDOW] = *launch_ns = ns;
        *spent_ns += ns * (double)subject->spec.launches;
        if (i + 1 < (options->settled ? 1 : WARMUP_LEAST)) continue;
        if (options->settled || *spent_ns >= warmup_most_ns || bw_now_s() >= deadline) return BW_OK;
        if (i + 1 < WARMUP_WINDOW || *spent_ns < least_ns) continue;
        double low = window[0], high = window[0];
        for (int j = 1; j < WARMUP_WINDOW; j++) {
            low = fmin(low, window[j]);
            high = fmax(high, window[j]);
        }
        if (high - low <= settled_spread * high) return BW_OK;
    }
}

/* Poisons the outputs that verify_sets looks at: the timed launches must write them, not those that made the plan. */
static bw_status watch(subject *subject) {
    bw_case *self = subject->content;
    if (!self) return BW_OK;
    int64_t sets = self->buffers.set_count, first = subject->run % sets, last = sets - 1;
    subject->watched = subject->run;
    BW_TRY(bw_case_reset(self, first));
    return first == last ? BW_OK : bw_case_reset(self, last);
}

/* After timing, the first set that was launched on and the last one must hold the right result. */
static bw_status verify_sets(bw_case *self, const bw_budget *budget, const subject *subject, bw_verdict *out) {
    int64_t sets = self->buffers.set_count, first = subject->watched % sets;
    bool all_sets = subject->run - subject->watched >= sets;
    int64_t last = all_sets ? sets - 1 : (subject->run - 1) % sets;
    BW_TRY(bw_case_verify_set(self, first, budget, out));
    return out->verified && last != first ? bw_case_verify_set(self, last, budget, out) : BW_OK;
}

/* `timed` NULL: nothing is timed yet, and one launch is checked. */
static bw_status verify(bw_case *self, const bw_measure_options *options, const subject *timed, bw_verdict *out) {
    const bw_budget budget = {options->verify_budget_s, options->poll, options->poll_context};
    bw_case_push(self, "verify");
    bw_status status = timed ? verify_sets(self, &budget, timed, out) : bw_case_verify(self, NULL, &budget, out);
    bw_case_pop(self);
    return status;
}

/* Warms up; a plan that was made while the clock was still low, or pages were missing, is too short after that. */
static bw_status settle(const bw_measure_options *options, subject *subject, bw_measurement *out) {
    double launch_ns = INFINITY,
           deadline = bw_now_s() + fmin(warmup_most_s, fmax(warmup_least_s, options->max_seconds));
    out->warmup_ns = 0.0;
    BW_TRY(watch(subject));
    BW_TRY(warm_up(options, subject, deadline, &out->warmup_ns, &launch_ns));
    int64_t launches = launches_for(subject, launch_ns);
    if (launches <= subject->spec.launches + subject->spec.launches / 4) return BW_OK;
    BW_TRY(create_plan(subject, launches));
    BW_TRY(watch(subject));
    return warm_up(options, subject, deadline, &out->warmup_ns, &launch_ns);
}

typedef struct sample_set {
    double *ns, *scratch;
    bw_kernel_times *kernels; /* NULL where the backend takes none */
    int64_t count, capacity;
} sample_set;

static bw_status make_room(sample_set *self, bool with_kernels) {
    if (self->count < self->capacity) return BW_OK;
    int64_t capacity = bw_min64(BW_SAMPLES_MOST, bw_max64(SAMPLES_AT_FIRST, 2 * self->capacity));
    BW_TRY(bw_resize((void **)&self->ns, capacity, sizeof *self->ns, "samples"));
    BW_TRY(bw_resize((void **)&self->scratch, bw_statistics_scratch(capacity), sizeof *self->scratch, "samples"));
    if (with_kernels) BW_TRY(bw_resize((void **)&self->kernels, capacity, sizeof *self->kernels, "samples"));
    self->capacity = capacity;
    return BW_OK;
}

static double median_kernels(const sample_set *samples, size_t member, int64_t launches) {
    for (int64_t i = 0; samples->kernels && i < samples->count; i++) {
        memcpy(&samples->scratch[i], (const char *)&samples->kernels[i] + member, sizeof *samples->scratch);
        if (isnan(samples->scratch[i])) return NAN;
    }
    return samples->kernels ? bw_median(samples->scratch, samples->count) / (double)launches : NAN;
}

static void read_disturbance(bw_session *session, bw_disturbance *out) {
    *out = not_disturbed;
    if (session->backend->disturbance) session->backend->disturbance->look(session->device, out);
}

/* They reveal other programs that use the same memory, even from outside a virtual machine: a stream that is always the
 * same becomes slower. One runs before the samples, one after them, and some in between. */
typedef struct references {
    bw_session *session;
    double ns[BW_REFERENCES_MOST];
    int64_t count;
    double next_s, interval_s; /* when the next one is due */
    bool over;                 /* there are none, or one failed: no more of it */
} references;

/* None where the backend has none, or for short samplings: they would be a large part of it. */
static void begin_references(references *self, bw_session *session, double max_seconds) {
    *self = (references){.session = session, .interval_s = reference_interval_least_s};
    self->over = !session->backend->disturbance || max_seconds < reference_sampling_least_s;
}

/* Full: every second one goes, and from here on they are taken half as often. */
static void keep(references *self, double ns) {
    if (self->count == BW_REFERENCES_MOST) {
        self->count /= 2;
        for (int64_t i = 1; i < self->count; i++) self->ns[i] = self->ns[2 * i];
        self->interval_s *= 2.0;
    }
    self->ns[self->count++] = ns;
}

/* Takes one when it is due, or `always`, and says whether it did. Never fails. */
static bool take_reference(references *self, double now_s, bool always) {
    double ns;
    if (self->over || (!always && now_s < self->next_s)) return false;
    bw_status status = self->session->backend->disturbance->reference(self->session->device, &ns);
    if (status) {
        bw_status_free(status);
        self->over = true;
        return false;
    }
    keep(self, ns);
    self->next_s = now_s + fmax(self->interval_s, intervals_per_reference * ns * 1e-9);
    return true;
}

static bw_references summarize_references(const references *self) {
    double sorted[BW_REFERENCES_MOST];
    if (self->count == 0) return (bw_references){NAN, NAN, NAN};
    memcpy(sorted, self->ns, sizeof sorted);
    bw_sort(sorted, self->count);
    double *best = &self->session->reference_ns; /* a median: the lowest of many quartiles would be luck */
    *best = fmin(*best, bw_quantile(sorted, self->count, 0.5)); /* fmin passes NaN over */
    double upper = bw_quantile(sorted, self->count, 0.75), lower = bw_quantile(sorted, self->count, 0.25);
    return (bw_references){.upper_ns = upper, .best_ns = *best, .slowed = upper / fmin(*best, lower) - 1.0};
}

/* A reference stream leaves the caches as no launch would: a replay that is no sample follows it. */
static bw_status take_reference_if_due(references *reference, subject *subject) {
    double unused;
    if (!take_reference(reference, bw_now_s(), false)) return BW_OK;
    const int ranges = subject->annotation_stack.count;
    subject->annotation_stack.count = 0;
    bw_status status = replay(subject, &unused);
    subject->annotation_stack.count = ranges;
    return status;
}

static bw_status take_sample(subject *subject, bw_watch *watch, double *busy_ns, sample_set *samples,
                             bw_measurement *out) {
    const bw_backend *backend = subject->backend;
    BW_TRY(make_room(samples, backend->plans->kernels != NULL));
    bw_watch_look(watch, bw_now_s(), subject->run, *busy_ns, false);
    double *launch_ns = &samples->ns[samples->count];
    BW_TRY(replay(subject, launch_ns));
    *busy_ns += *launch_ns * (double)subject->spec.launches;
    if (samples->kernels) samples->kernels[samples->count] = backend->plans->kernels(subject->plan);
    if (backend->plans->late && backend->plans->late(subject->plan)) out->late_samples++;
    samples->count++;
    return BW_OK;
}

/* Sets out->statistics. Looking at the samples costs time, too: the next look is a while after this one. */
static bool enough(const bw_measure_options *options, const sample_set *samples, double elapsed_s, int64_t *next_look,
                   bw_measurement *out) {
    double least_s = fmin(sampling_least_s, options->max_seconds);
    bool full = samples->count == BW_SAMPLES_MOST, over = full || elapsed_s >= options->max_seconds;
    if (!full && samples->count < options->min_samples) return false;
    if (!over && (samples->count < *next_look || elapsed_s < least_s)) return false;
    *next_look = samples->count + bw_max64(2, samples->count / 8);
    out->statistics = bw_statistics_of(samples->ns, samples->count, samples->scratch);
    out->converged = bw_statistics_converged(&out->statistics, options->precision_target);
    return over || out->converged;
}

static bw_status sample(const bw_measure_options *options, subject *subject, bw_measurement *out) {
    bw_watch watch;
    references reference;
    sample_set samples = {0};
    double busy_ns = 0.0;
    int64_t next_look = 0;
    bw_status status = BW_OK;
    double start_s = bw_now_s();
    bw_watch_begin(&watch, subject->session, start_s);
    begin_references(&reference, subject->session, options->max_seconds);
    read_disturbance(subject->session, &out->disturbance);
    do {
        BW_GOTO(check_interrupt(options));
        BW_GOTO(take_reference_if_due(&reference, subject));
        BW_GOTO(take_sample(subject, &watch, &busy_ns, &samples, out));
    } while (!enough(options, &samples, bw_now_s() - start_s, &next_look, out));
    take_reference(&reference, bw_now_s(), true);
    read_disturbance(subject->session, &out->disturbance);
    out->references = summarize_references(&reference);
    out->disturbance.slowed = out->references.slowed;
    bw_watch_look(&watch, bw_now_s(), subject->run, busy_ns, true);
    bw_watch_end(&watch, &out->conditions);
    out->kernels.sum_ns = median_kernels(&samples, offsetof(bw_kernel_times, sum_ns), subject->spec.launches);
    out->kernels.span_ns = median_kernels(&samples, offsetof(bw_kernel_times, span_ns), subject->spec.launches);
    out->kernels.elsewhere = median_kernels(&samples, offsetof(bw_kernel_times, elsewhere), subject->spec.launches);
    out->samples_ns = samples.ns;
    samples.ns = NULL;
cleanup:
    free(samples.ns);
    free(samples.scratch);
    free(samples.kernels);
    return status;
}

static bw_status make_ready(const bw_measure_options *options, subject *subject, bw_measurement *out) {
    if (subject->content) bw_case_push(subject->content, "warmup");
    bw_status status = size_plan(subject);
    if (!status) status = settle(options, subject, out);
    if (subject->content) bw_case_pop(subject->content);
    return status;
}

static bw_status measure_subject(const bw_measure_options *options, subject *subject,
                                 const bw_annotation_stack *annotations, bw_measurement *out) {
    BW_TRY(check_interrupt(options));
    bw_watch_prepare(subject->session);
    BW_TRY(make_ready(options, subject, out));
    subject->annotation_stack = *annotations;
    BW_TRY(sample(options, subject, out));
    out->launches_per_sample = subject->spec.launches;
    out->host_launch_ns = subject->host_ns;
    return BW_OK;
}

static void begin_measurement(bw_measurement *out) {
    *out = (bw_measurement){.timer_floor_ns = NAN,
                            .host_launch_ns = NAN,
                            .warmup_ns = NAN,
                            .transform_ns = NAN,
                            .kernels = {NAN, NAN, NAN},
                            .disturbance = not_disturbed,
                            .references = {NAN, NAN, NAN}};
}

/* What is done once needs no more than a few replays, over all sets. Afterwards nothing else is replayed. */
static bw_status time_transform(subject *subject, double *ns) {
    double sorted[TRANSFORM_REPLAYS];
    subject->spec.work = bw_case_transforms(subject->content);
    subject->annotation_stack.count = 0;
    subject->spec.warmed = false;
    if (!subject->spec.work.run) return BW_OK;
    BW_TRY(create_plan(subject, subject->spec.set_count));
    for (int i = 0; i < TRANSFORM_REPLAYS; i++) BW_TRY(replay(subject, &sorted[i]));
    bw_sort(sorted, TRANSFORM_REPLAYS);
    *ns = bw_quantile(sorted, TRANSFORM_REPLAYS, 0.5);
    return BW_OK;
}

typedef struct preparation {
    bw_case *content;
    const bw_measure_options *options;
    bw_rotation *rotation;
    uint64_t caller;
    bw_status ready, referred;
} preparation;

static void *prepare_part(void *context) {
    preparation *self = context;
    const bw_budget budget = {.seconds = self->options->verify_budget_s};
    if (bw_parallel_thread() == self->caller) {
        self->ready = bw_case_ready_for(self->content, self->options->cache, self->rotation);
    } else {
        self->referred = bw_reference_extend(&self->content->reference, &budget);
    }
    return NULL;
}

/* A GPU is made ready while the host works out reference rows, which need no device. */
static bw_status prepare(bw_case *self, const bw_measure_options *options, bw_rotation *rotation) {
    preparation preparation = {self, options, rotation, bw_parallel_thread(), BW_OK, BW_OK};
    if (self->session->backend->runs_on_host) return bw_case_ready_for(self, options->cache, rotation);
    bw_parallel_run(2, prepare_part, &preparation);
    return bw_status_first(preparation.ready, preparation.referred);
}

bw_status bw_measure(bw_case *self, const bw_measure_options *options, bw_measurement *out) {
    subject subject = {.session = self->session, .backend = self->session->backend, .content = self};
    bw_status status = BW_OK;
    bw_case_annotation annotations;
    begin_measurement(out);
    bw_case_push(self, "case");
    BW_GOTO(bw_session_floor(self->session, options->timer, NULL, &out->timer_floor_ns));
    BW_GOTO(prepare(self, options, &out->rotation));
    BW_GOTO(verify(self, options, NULL, &out->verdict));
    if (!out->verdict.verified) goto cleanup;
    bw_case_annotate(self, &annotations);
    subject.spec = (bw_plan_spec){.work = bw_case_work(self),
                                  .annotation_stack = &subject.annotation_stack,
                                  .set_count = self->buffers.set_count,
                                  .flush_bytes = out->rotation.flush_bytes,
                                  .flush = options->flush,
                                  .timer = options->timer,
                                  .trace = options->trace};
    BW_GOTO(measure_subject(options, &subject, &annotations.ranges, out));
    BW_GOTO(verify(self, options, &subject, &out->verdict));
    BW_GOTO(time_transform(&subject, &out->transform_ns));
cleanup:
    subject.backend->plans->free(subject.plan);
    if (status || !out->verdict.verified) {
        bw_measurement_free(out);
        out->converged = false;
    }
    bw_case_pop(self);
    return status;
}

void bw_measurement_free(bw_measurement *measurement) {
    free(measurement->samples_ns);
    measurement->samples_ns = NULL;
}

bw_status bw_call_check(const bw_call *self) {
    if (self->sets < 1 || self->sets > BW_CALL_SETS_MAX) {
        return bw_fail(BW_CODE_INVALID, "sets = %" PRId64 ": allowed is 1 to %d", self->sets, BW_CALL_SETS_MAX);
    }
    if (self->footprint_bytes >= 0) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "footprint_bytes = %" PRId64 ": allowed is 0 or more", self->footprint_bytes);
}

static const bw_annotation_stack function_annotations = {.range = {{.name = "measure", .bytes = -1}}, .count = 1};

bw_status bw_measure_call(const bw_call *self, const bw_measure_options *options, bw_measurement *out) {
    subject subject = {.session = self->session, .backend = self->session->backend};
    int64_t free_bytes, total_bytes;
    begin_measurement(out);
    if (!options->settled) {
        BW_TRY(bw_session_floor(self->session, options->timer, self->nothing, &out->timer_floor_ns));
    }
    BW_TRY(subject.backend->memory->ask(self->session->device, &free_bytes, &total_bytes));
    out->rotation = bw_rotation_of_call(self->sets, self->footprint_bytes, options->cache,
                                        subject.backend->devices->facts(self->session->device), free_bytes);
    subject.spec = (bw_plan_spec){.work = *self->work,
                                  .annotation_stack = &subject.annotation_stack,
                                  .set_count = out->rotation.sets,
                                  .flush_bytes = out->rotation.flush_bytes,
                                  .timer = options->timer};
    bw_status status = measure_subject(options, &subject, &function_annotations, out);
    subject.backend->plans->free(subject.plan);
    if (status) bw_measurement_free(out);
    return status;
}

bw_status bw_measure_call_best(const bw_call *self, bw_measure_options *options, bw_measurement *out) {
    const char *const *timers = self->session->backend->call_timers;
    if (!timers) return bw_measure_call(self, options, out);
    for (;; timers++) {
        BW_TRY(bw_timer_find(self->session, *timers, &options->timer));
        bw_status status = bw_measure_call(self, options, out);
        const bw_code code = bw_status_code(status); /* records that CUPTI lost are a device's error */
        if ((code != BW_CODE_UNAVAILABLE && code != BW_CODE_DEVICE) || !timers[1]) return status;
        bw_status_free(status);
    }
}
