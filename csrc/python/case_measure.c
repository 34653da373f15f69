/* What a _core.Case measures: verify, measure, count. */
#include "python/core.h"

#include <math.h>

typedef struct verify_work {
    bw_case *content;
    double budget_s;
    bw_verdict verdict;
} verify_work;

static bw_status run_verify(void *context) {
    verify_work *work = context;
    return bw_verify_case(work->content, work->budget_s, &work->verdict);
}

PyObject *core_case_verify(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"budget_s", NULL};
    case_object *self = (case_object *)object;
    verify_work work = {.budget_s = 0.1};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|d", names, &work.budget_s)) return NULL;
    if (!(work.budget_s >= 0.0)) {
        core_refuse_float("budget_s", work.budget_s, "a number >= 0");
        return NULL;
    }
    work.content = core_case_hold(self);
    if (!work.content) return NULL;
    bw_status status = core_run(self->device->session, run_verify, &work);
    core_case_let_go(self);
    if (status) return core_raise(core_state_of(Py_TYPE((PyObject *)self)), status);
    const bw_verdict *v = &work.verdict;
    return Py_BuildValue("{s:O,s:d,s:d,s:L,s:L,s:s}", "verified", v->verified ? Py_True : Py_False, "max_error",
                         v->max_error, "tolerance", v->tolerance, "rows_checked", (long long)v->rows_checked,
                         "rows_total", (long long)v->rows_total, "reason", v->reason);
}

/* Called between replays, without the GIL: signals first, then the caller's own function. */
static bool poll_python(void *context) {
    PyObject *function = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool stop = PyErr_CheckSignals() < 0;
    if (!stop && function) {
        PyObject *answer = PyObject_CallNoArgs(function);
        stop = answer == NULL;
        Py_XDECREF(answer);
    }
    PyGILState_Release(gil);
    return stop;
}

typedef struct measure_work {
    bw_case *content;
    bw_measure_options options;
    bw_measurement result;
} measure_work;

static bw_status run_measure(void *context) {
    measure_work *work = context;
    return bw_measure(work->content, &work->options, &work->result);
}

static PyObject *samples_list(const bw_measurement *m) {
    Py_ssize_t count = m->samples_ns ? (Py_ssize_t)m->statistics.count : 0;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *value = PyFloat_FromDouble(m->samples_ns[i]);
        if (value) {
            PyList_SET_ITEM(list, i, value);
        } else {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *conditions_dict(const bw_measurement *m) {
    const bw_measured_conditions *c = &m->conditions;
    bool sampled = m->samples_ns != NULL;
    char throttle[CORE_THROTTLE_SIZE] = "";
    if (sampled) bw_throttle_words(c->throttle, throttle, sizeof throttle);
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:s,s:L,s:d,s:s}", "sm_clock_mhz", sampled ? c->sm_clock_mhz : NAN,
                         "mem_clock_mhz", sampled ? c->mem_clock_mhz : NAN, "power_w", sampled ? c->power_w : NAN,
                         "temperature_c", sampled ? c->temperature_c : NAN, "energy_j", sampled ? c->energy_j : NAN,
                         "throttle", throttle, "readings", (long long)(sampled ? c->readings : 0), "reading_us",
                         sampled && c->readings ? c->reading_ns * 1e-3 : NAN, "note", sampled ? c->note : "");
}

static PyObject *measurement_dict(const bw_case *content, const bw_measure_options *options, const bw_measurement *m) {
    const bw_statistics *s = &m->statistics;
    bool sampled = m->samples_ns != NULL;
    return Py_BuildValue(
        "{s:N,s:d,s:d,s:d,s:d,s:d,s:L,s:O,s:s,s:s,s:O,s:s,s:L,s:L,s:L,s:d,s:d,s:d,s:d,s:L,s:O,s:d,s:d,s:L,s:L,s:s,s:s,"
        "s:N}",
        "samples_ns", samples_list(m), "median_ns", sampled ? s->median : NAN, "lo_ns", sampled ? s->low : NAN, "hi_ns",
        sampled ? s->high : NAN, "min_ns", sampled ? s->minimum : NAN, "noise", sampled ? s->noise : NAN, "count",
        (long long)(sampled ? s->count : 0), "converged", m->converged ? Py_True : Py_False, "timer",
        bw_timer_name(content->session, options->timer), "cache", options->cache == BW_CACHE_HOT ? "hot" : "cold",
        "cold", m->rotation.cold ? Py_True : Py_False, "cache_note", m->rotation.note ? m->rotation.note : "",
        "buffer_sets", (long long)m->rotation.sets, "launches_per_sample", (long long)m->launches_per_sample,
        "flush_bytes", (long long)m->rotation.flush_bytes, "warmup_ns", m->warmup_ns, "timer_floor_ns",
        m->timer_floor_ns, "host_launch_ns", m->host_launch_ns, "kernel_sum_ns", m->kernel_sum_ns, "footprint_bytes",
        (long long)bw_case_footprint(content), "verified", m->verdict.verified ? Py_True : Py_False, "max_error",
        m->verdict.max_error, "tolerance", m->verdict.tolerance, "rows_checked", (long long)m->verdict.rows_checked,
        "rows_total", (long long)m->verdict.rows_total, "reason", m->verdict.reason, "variant_note",
        content->variant_note ? content->variant_note : "", "conditions", conditions_dict(m));
}

static int check_options(const bw_measure_options *o) {
    if (!(o->precision_target > 0.0)) return core_refuse_float("precision_target", o->precision_target, "a number > 0");
    if (!(o->max_seconds >= 0.0)) return core_refuse_float("max_seconds", o->max_seconds, "a number >= 0");
    if (!(o->verify_budget_s >= 0.0)) return core_refuse_float("verify_budget_s", o->verify_budget_s, "a number >= 0");
    if (o->min_samples < 1 || o->min_samples > 4096) {
        PyErr_Format(PyExc_ValueError, "min_samples = %lld: allowed is 1 to 4096", (long long)o->min_samples);
        return -1;
    }
    return 0;
}

PyObject *core_case_measure(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {
        "cache", "precision_target", "min_samples", "max_seconds", "verify_budget_s", "poll", "timer", NULL};
    case_object *self = (case_object *)object;
    measure_work work = {0};
    const char *cache_name = "cold", *timer_name = NULL;
    double precision_target = 0.005, max_seconds = 2.0, verify_budget_s = 0.1;
    int64_t min_samples = 10;
    PyObject *poll = NULL, *min_object = NULL;
    bw_cache cache;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$sdOddOz", names, &cache_name, &precision_target, &min_object,
                                     &max_seconds, &verify_budget_s, &poll, &timer_name)) {
        return NULL;
    }
    if (core_cache_read(cache_name, &cache) < 0) return NULL;
    if (min_object && core_read_int64(NULL, "min_samples", min_object, &min_samples) < 0) return NULL;
    work.options = (bw_measure_options){.cache = cache,
                                        .precision_target = precision_target,
                                        .min_samples = min_samples,
                                        .max_seconds = max_seconds,
                                        .verify_budget_s = verify_budget_s,
                                        .poll = poll_python,
                                        .poll_context = poll && poll != Py_None ? poll : NULL};
    if (check_options(&work.options) < 0) return NULL;
    work.content = core_case_hold(self);
    if (!work.content) return NULL;
    bw_status status = bw_timer_find(self->device->session, timer_name, &work.options.timer);
    if (!status) status = core_run(self->device->session, run_measure, &work);
    PyObject *result = status ? core_raise(core_state_of(Py_TYPE((PyObject *)self)), status)
                              : measurement_dict(work.content, &work.options, &work.result);
    core_case_let_go(self);
    bw_measurement_free(&work.result);
    return result;
}

typedef struct count_work {
    bw_case *content;
    bw_counters result;
} count_work;

static bw_status run_count(void *context) {
    count_work *work = context;
    return bw_count(work->content, &work->result);
}

PyObject *core_case_count(PyObject *object, PyObject *unused) {
    (void)unused;
    case_object *self = (case_object *)object;
    count_work work = {.content = core_case_hold(self)};
    if (!work.content) return NULL;
    bw_status status = core_run(self->device->session, run_count, &work);
    core_case_let_go(self);
    if (status) return core_raise(core_state_of(Py_TYPE((PyObject *)self)), status);
    const bw_counters *c = &work.result;
    return Py_BuildValue("{s:d,s:d,s:d,s:s}", "dram_bytes_read", c->dram_bytes_read, "dram_bytes_written",
                         c->dram_bytes_written, "l2_bytes", c->l2_bytes, "counters_status",
                         c->status[0] ? c->status : "ok");
}
