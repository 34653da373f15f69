/* Measures a caller's function. */
#include "measure/measure.h"

#include <math.h>

#include "api/profiler.h"
#include "base/clock.h"

typedef struct function {
    bwprof_callback callback;
    void *user;
} function;

static bw_status call(void *context, int64_t set, bool captured) {
    const function *self = context;
    int answer = self->callback(self->user, set);
    if (answer == 0) return BW_OK;
    return bw_fail(captured ? BW_CODE_UNAVAILABLE : BW_CODE_INTERRUPTED, "the callback returned %d%s", answer,
                   captured ? " while its work was captured in a CUDA graph" : "");
}

static int do_nothing(void *user, int64_t set) {
    (void)user, (void)set;
    return 0;
}

static bw_status read_options(const bwprof_measure_options *request, bw_measure_options *out) {
    *out = (bw_measure_options)BW_MEASURE_OPTIONS_DEFAULT;
    if (request->hot) out->cache = BW_CACHE_HOT;
    if (request->rel_ci != 0.0 && !(request->rel_ci > 0.0 && request->rel_ci < 1.0)) {
        return bw_fail(BW_CODE_INVALID, "rel_ci is %g: allowed is a fraction between 0 and 1, or 0 for %g",
                       request->rel_ci, out->precision_target);
    }
    if (!(isfinite(request->max_seconds) && request->max_seconds >= 0.0)) {
        return bw_fail(BW_CODE_INVALID, "max_seconds is %g: a number of seconds from 0 on is needed, 0 for %g",
                       request->max_seconds, out->max_seconds);
    }
    if (request->rel_ci != 0.0) out->precision_target = request->rel_ci;
    if (request->min_samples) out->min_samples = request->min_samples;
    if (request->max_seconds != 0.0) out->max_seconds = request->max_seconds;
    return bw_measure_options_check(out);
}

static int64_t footprint_of(const bwprof_measure_options *request) {
    uint64_t bytes = request->bytes_read + request->bytes_written;
    bool overflow = bytes < request->bytes_read || bytes > INT64_MAX;
    return request->footprint_bytes ? request->footprint_bytes : overflow ? INT64_MAX : (int64_t)bytes;
}

static void write_result(const bw_session *session, const bwprof_measure_options *request,
                         const bw_measure_options *options, const bw_measurement *m, bwprof_measurement *out) {
    double bytes = (double)request->bytes_read + (double)request->bytes_written;
    const bw_statistics *s = &m->statistics;
    *out = (bwprof_measurement){.time_ms = s->median / 1e6,
                                .time_ms_lo = s->low / 1e6,
                                .time_ms_hi = s->high / 1e6,
                                .time_ms_min = s->minimum / 1e6,
                                .noise = s->noise,
                                .bandwidth_gb_s = bytes > 0 && s->median > 0 ? bw_gb_s(bytes, s->median * 1e-9) : NAN,
                                .timer_floor_us = m->timer_floor_ns / 1e3,
                                .samples = s->count,
                                .calls_per_sample = m->launches_per_sample,
                                .sets = m->rotation.sets,
                                .flush_bytes = m->rotation.flush_bytes,
                                .converged = m->converged,
                                .cold = m->rotation.cold};
    snprintf(out->timer, sizeof out->timer, "%s", bw_timer_name(session, options->timer));
}

static bw_status measure_in(bw_session *session, const function *subject, void *stream,
                            const bwprof_measure_options *request, bwprof_measurement *result) {
    function empty = {.callback = do_nothing};
    bw_work work = {.run = call, .context = (void *)subject, .stream = stream, .foreign = true};
    bw_work none = {.run = call, .context = &empty, .foreign = true};
    bw_call of = {session, &work, &none, request->sets ? request->sets : 1, footprint_of(request)};
    bw_measure_options options;
    bw_measurement measurement = {0};
    BW_TRY(read_options(request, &options));
    BW_TRY(bw_call_check(&of));
    if (request->timer) BW_TRY(bw_timer_find(session, request->timer, &options.timer));
    BW_TRY(bw_session_enter(session));
    bw_current_device current = bw_current_device_save(session->backend);
    bw_status status = request->timer ? bw_measure_call(&of, &options, &measurement)
                                      : bw_measure_call_best(&of, &options, &measurement);
    bw_current_device_restore(&current);
    bw_session_leave(session);
    if (!status) write_result(session, request, &options, &measurement, result);
    bw_measurement_free(&measurement);
    return status;
}

static bw_status measure(const function *subject, void *stream, const bwprof_measure_options *request,
                         bwprof_measurement *result) {
    static const bwprof_measure_options defaults;
    bw_session *session = NULL;
    bw_profiler *profiler = NULL;
    BW_TRY(bw_api_need(result, "result"));
    *result = (bwprof_measurement){NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0, 0, 0, 0, 0, 0, ""};
    if (!subject->callback) return bw_fail(BW_CODE_INVALID, "callback is NULL");
    if (!request) request = &defaults;
    if (request->profiler && request->backend) {
        return bw_fail(BW_CODE_INVALID, "options have a backend and a profiler: the profiler has a device already");
    }
    if (request->profiler) {
        BW_TRY(bw_handle_hold(request->profiler, &profiler));
    } else {
        BW_TRY(bw_api_open(request->backend, request->device, &session));
    }
    bw_status status = measure_in(profiler ? profiler->session : session, subject, stream, request, result);
    if (profiler) bw_handle_let_go(request->profiler);
    bw_api_close(session);
    return status;
}

bwprof_status bwprof_measure(bwprof_callback callback, void *user, void *stream, const bwprof_measure_options *options,
                             bwprof_measurement *result) {
    return bw_api_answer(measure(&(function){callback, user}, stream, options, result));
}
