/* The measuring methods: verify, measure and count a case, measure and count a Python callable. */
#include "python/core.h"

#include <math.h>

enum { TIMER_SIZE = 32 }; /* of a timer's name */

typedef struct python_options {
    const char *cache, *timer, *flush;
    PyObject *poll;
    int trace, settled;
} python_options;

bool core_poll(void *context) {
    PyObject *function = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    bool stop = PyErr_Occurred() || PyErr_CheckSignals() < 0;
    if (!stop && function) {
        PyObject *answer = PyObject_CallNoArgs(function);
        stop = answer == NULL;
        Py_XDECREF(answer);
    }
    PyGILState_Release(gil);
    return stop;
}

static PyObject *verdict_dict(const bw_verdict *v) {
    return Py_BuildValue("{s:O,s:d,s:d,s:L,s:L,s:N}", "verified", v->verified ? Py_True : Py_False, "max_error",
                         v->max_error, "tolerance", v->tolerance, "rows_checked", (long long)v->rows_checked,
                         "rows_total", (long long)v->rows_total, "reason", core_text(v->reason));
}

PyObject *core_case_verify(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"budget_s", "outputs", NULL};
    case_object *self = (case_object *)object;
    PyObject *outputs = Py_None, *result = NULL;
    bw_budget budget = {.seconds = 0.1, .poll = core_poll};
    core_arrays views = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|dO", names, &budget.seconds, &outputs)) return NULL;
    if (!(budget.seconds >= 0.0)) {
        return core_raise(object, bw_fail(BW_CODE_INVALID, "budget_s = %g: allowed is a number >= 0", budget.seconds));
    }
    bw_case *content = core_case_hold(self);
    if (!content) return NULL;
    if (outputs == Py_None || core_arrays_take(object, content->spec, true, outputs, &views) == 0) {
        bw_verdict verdict;
        bw_status status;
        CORE_RUN(status, self->device, bw_case_verify(content, views.data, &budget, &verdict));
        result = status ? core_raise(object, status) : verdict_dict(&verdict);
    }
    core_arrays_release(&views);
    core_case_let_go(self);
    return result;
}

static PyObject *samples_list(const bw_measurement *m) {
    Py_ssize_t count = m->samples_ns ? (Py_ssize_t)m->statistics.count : 0;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list && i < count; i++) core_append(&list, PyFloat_FromDouble(m->samples_ns[i]));
    return list;
}

PyObject *core_conditions_dict(const bw_conditions *c, const char *note) {
    char throttle[128]; /* for every word */
    bw_throttle_words(c->throttle, throttle, sizeof throttle);
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:s,s:N}", "sm_clock_mhz", c->sm_clock_mhz, "mem_clock_mhz",
                         c->mem_clock_mhz, "power_w", c->power_w, "temperature_c", c->temperature_c, "energy_j",
                         c->energy_j, "throttle", throttle, "note", core_text(note));
}

static PyObject *conditions_dict(const bw_measurement *m) {
    const bw_measured_conditions unknown = {0, NAN, NAN, NAN, NAN, NAN, NAN, BW_THROTTLE_UNKNOWN, ""};
    const bw_measured_conditions *c = m->samples_ns ? &m->conditions : &unknown;
    const bw_conditions conditions = {c->sm_clock_mhz,  c->mem_clock_mhz, c->power_w,
                                      c->temperature_c, c->energy_j,      c->throttle};
    PyObject *dict = core_conditions_dict(&conditions, c->note);
    core_set(&dict, "readings", PyLong_FromLongLong(c->readings));
    core_set(&dict, "reading_us", PyFloat_FromDouble(c->readings ? c->reading_ns * 1e-3 : NAN));
    return dict;
}

/* What only a case has; its variant and cost, too: another thread may close it as soon as it has been measured. */
static int add_case(PyObject *dict, bw_case *content, const bw_measurement *m) {
    const bw_choice *choice = bw_case_choice(content);
    PyObject *verdict = verdict_dict(&m->verdict);
    PyObject *more = Py_BuildValue("{s:s,s:N,s:L,s:N}", "variant", choice->variant->name, "cost",
                                   core_cost_dict(&choice->cost), "footprint_bytes",
                                   (long long)choice->cost.footprint_bytes, "variant_note", core_text(choice->note));
    int result = verdict && more && PyDict_Update(dict, verdict) == 0 ? PyDict_Update(dict, more) : -1;
    Py_XDECREF(verdict);
    Py_XDECREF(more);
    return result;
}

/* content NULL: of a caller's function. */
static PyObject *measurement_dict(const char *timer, bw_case *content, const bw_measure_options *options,
                                  const bw_measurement *m) {
    const bw_statistics none = {.median = NAN, .low = NAN, .high = NAN, .minimum = NAN, .noise = NAN};
    const bw_statistics *s = m->samples_ns ? &m->statistics : &none;
    PyObject *dict = Py_BuildValue(
        "{s:N,s:d,s:d,s:d,s:d,s:d,s:L,s:O,s:N,s:s,s:O,s:s,s:L,s:L,s:L,s:L,s:d,s:d,s:d,s:d,s:d,s:d,s:N,s:d,s:d,s:d,s:d,"
        "s:d,s:d,s:d,s:O,s:d,s:d}",
        "samples_ns", samples_list(m), "median_ns", s->median, "lo_ns", s->low, "hi_ns", s->high, "min_ns", s->minimum,
        "noise", s->noise, "count", (long long)s->count, "converged", m->converged ? Py_True : Py_False, "timer",
        core_text(timer), "cache", options->cache == BW_CACHE_HOT ? "hot" : "cold", "cold",
        m->rotation.cold ? Py_True : Py_False, "cache_note", m->rotation.note ? m->rotation.note : "", "buffer_sets",
        (long long)m->rotation.sets, "launches_per_sample", (long long)m->launches_per_sample, "late_samples",
        (long long)m->late_samples, "flush_bytes", (long long)m->rotation.flush_bytes, "warmup_ns", m->warmup_ns,
        "timer_floor_ns", m->timer_floor_ns, "host_launch_ns", m->host_launch_ns, "kernel_sum_ns", m->kernels.sum_ns,
        "kernel_span_ns", m->kernels.span_ns, "kernels_elsewhere", m->kernels.elsewhere, "conditions",
        conditions_dict(m), "waited_share", m->disturbance.waited, "throttled_share", m->disturbance.throttled,
        "stolen_share", m->disturbance.stolen, "pressed_share", m->disturbance.pressed, "slowed_share",
        m->disturbance.slowed, "reference_ns", m->references.upper_ns, "best_reference_ns", m->references.best_ns,
        "two_states", s->two_states ? Py_True : Py_False, "drift", s->drift, "transform_ns", m->transform_ns);
    if (dict && content && add_case(dict, content, m) < 0) Py_CLEAR(dict);
    return dict;
}

static int read_flush(const char *name, bw_measure_options *out) {
    static const char *const flushes[] = {
        [BW_FLUSH_READ] = "read", [BW_FLUSH_MEMSET] = "memset", [BW_FLUSH_MEMSET_READ] = "memset+read", NULL};
    if (out->cache != BW_CACHE_COLD) return core_refuse("flush = '%.200s' goes with cache = 'cold'", name);
    int index = core_read_choice("flush", name, flushes);
    if (index < 0) return -1;
    out->cache = BW_CACHE_FLUSHED;
    out->flush = (bw_flush)index;
    return 0;
}

static int read_options(PyObject *object, const python_options *arguments, bw_measure_options *out) {
    if (core_read_cache(arguments->cache, &out->cache) < 0) return -1;
    out->trace = arguments->trace != 0;
    out->settled = arguments->settled != 0;
    out->poll = core_poll;
    if (arguments->poll != Py_None) out->poll_context = arguments->poll;
    if (arguments->flush && read_flush(arguments->flush, out) < 0) return -1;
    return core_check(object, bw_measure_options_check(out));
}

/* The timer, and a copy of its name: a device's own lies in its memory. */
static bw_status find_timer(const bw_session *session, const char *name, bw_measure_options *out,
                            char found[TIMER_SIZE]) {
    BW_TRY(bw_timer_find(session, name, &out->timer));
    snprintf(found, TIMER_SIZE, "%s", bw_timer_name(session, out->timer));
    return BW_OK;
}

PyObject *core_case_measure(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {
        "cache", "precision_target", "min_samples", "max_seconds", "verify_budget_s", "poll", "timer", "flush",
        "trace", "settled",          NULL};
    case_object *self = (case_object *)object;
    bw_measure_options options = BW_MEASURE_OPTIONS_DEFAULT;
    bw_measurement measured = {0};
    python_options arguments = {.cache = "cold"};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$sdO&ddOzzpp", names, &arguments.cache, &options.precision_target,
                                     CORE_INT64("min_samples", &options.min_samples), &options.max_seconds,
                                     &options.verify_budget_s, &arguments.poll, &arguments.timer, &arguments.flush,
                                     &arguments.trace, &arguments.settled)) {
        return NULL;
    }
    if (read_options(object, &arguments, &options) < 0) return NULL;
    bw_case *content = core_case_hold(self);
    if (!content) return NULL;
    char timer[TIMER_SIZE];
    bw_status status;
    CORE_ASK(status, self->device, find_timer(session, arguments.timer, &options, timer));
    if (!status) CORE_RUN(status, self->device, bw_measure(content, &options, &measured));
    PyObject *result = status ? core_raise(object, status) : measurement_dict(timer, content, &options, &measured);
    core_case_let_go(self);
    bw_measurement_free(&measured);
    return result;
}

static PyObject *counters_dict(const bw_counters *c) {
    return Py_BuildValue("{s:d,s:d,s:d,s:N}", "dram_bytes_read", c->dram_bytes_read, "dram_bytes_written",
                         c->dram_bytes_written, "l2_bytes", c->l2_bytes, "counters_status",
                         core_text(c->status[0] ? c->status : "ok"));
}

PyObject *core_case_count(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"rotated", NULL};
    int rotated = 0;
    bw_counters counters;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p", names, &rotated)) return NULL;
    CORE_TRY_CASE(object, bw_count(content, rotated != 0, &counters));
    return counters_dict(&counters);
}

static int read_groups(device_object *device, PyObject *group_names, unsigned *out) {
    *out = 0;
    PyObject *words = PySequence_Fast(group_names, "metrics must be a list of names");
    int result = words ? 0 : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PySequence_Fast_GET_SIZE(words); i++) {
        const char *name = core_name(PySequence_Fast_GET_ITEM(words, i));
        unsigned group = 0;
        bw_status status = BW_OK;
        if (name) CORE_ASK(status, device, bw_metric_group_find(session, name, &group));
        if (!name) PyErr_SetString(PyExc_TypeError, "metrics must be a list of names: one of these is no name");
        result = name ? core_check((PyObject *)device, status) : -1;
        *out |= group;
    }
    Py_XDECREF(words);
    return result;
}

static PyObject *metrics_dict(const bw_metrics *metrics) {
    PyObject *result = PyDict_New();
    for (int i = 0; result && i < metrics->count; i++) {
        core_set(&result, metrics->metric[i].name, PyFloat_FromDouble(metrics->metric[i].value));
    }
    core_set(&result, "passes", PyLong_FromLong(metrics->passes));
    core_set(&result, "metrics_status", core_text(metrics->status[0] ? metrics->status : "ok"));
    return result;
}

PyObject *core_case_count_metrics(PyObject *object, PyObject *group_names) {
    case_object *self = (case_object *)object;
    bw_case *content = core_case_hold(self);
    bw_metrics metrics = {.count = 0};
    unsigned groups;
    PyObject *result = NULL;
    if (!content) return NULL;
    if (read_groups(self->device, group_names, &groups) == 0) {
        bw_status status;
        CORE_RUN(status, self->device, bw_count_metrics(content, groups, &metrics));
        result = status ? core_raise(object, status) : metrics_dict(&metrics);
    }
    core_case_let_go(self);
    return result;
}

typedef struct python_call {
    PyObject *function;
    bool takes_set; /* it is called with a buffer set's number */
    PyGILState_STATE gil;
} python_call;

static void enter(void *context) {
    python_call *self = context;
    self->gil = PyGILState_Ensure();
}

static void leave(void *context) {
    python_call *self = context;
    PyGILState_Release(self->gil);
}

static bw_status status_of_exception(bw_code code, const char *what) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const char *name = ((PyTypeObject *)type)->tp_name;
    PyObject *message = PyUnicode_FromFormat("%s: %.150S", name, value); /* as far as a status has room for it */
    const char *text = message ? PyUnicode_AsUTF8(message) : NULL;
    bw_status status = bw_fail(code, "%s: %s", what, text ? text : name);
    PyErr_Clear();
    Py_XDECREF(message);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return status;
}

/* An exception stays set and is raised in the end; in a capture it says that this cannot be captured. */
static bw_status call(void *context, int64_t set, bool captured) {
    python_call *self = context;
    if (PyErr_Occurred()) return bw_fail(BW_CODE_INTERRUPTED, "interrupted"); /* by a signal, between calls */
    PyObject *index = self->takes_set ? PyLong_FromLongLong(set) : NULL, *result = NULL;
    if (!self->takes_set) {
        result = PyObject_CallNoArgs(self->function);
    } else if (index) {
        result = PyObject_CallOneArg(self->function, index);
    }
    Py_XDECREF(index);
    Py_XDECREF(result);
    if (result) return BW_OK;
    if (captured && PyErr_ExceptionMatches(PyExc_Exception)) {
        return status_of_exception(BW_CODE_UNAVAILABLE, "the function cannot be captured in a CUDA graph");
    }
    return bw_fail(BW_CODE_INTERRUPTED, "the function raised an exception");
}

static bw_work work_of(python_call *self, void *stream) {
    return (bw_work){.run = call, .enter = enter, .leave = leave, .context = self, .stream = stream, .foreign = true};
}

typedef struct call_work {
    PyObject *stream, *sets;   /* NULL or None: there are none */
    python_call call, nothing; /* the function of the latter is NULL where the former is counted */
    bw_work work, empty;
    bw_call subject;
} call_work;

static int read_subject(PyObject *object, call_work *work) {
    PyObject *function = work->call.function, *nothing = work->nothing.function, *sets = work->sets;
    if (!PyCallable_Check(function) || (nothing && !PyCallable_Check(nothing))) {
        PyErr_Format(PyExc_TypeError, "a callable is needed, not %.200R",
                     PyCallable_Check(function) ? nothing : function);
        return -1;
    }
    void *stream = work->stream && work->stream != Py_None ? PyLong_AsVoidPtr(work->stream) : NULL;
    if (PyErr_Occurred()) return -1;
    work->call.takes_set = work->nothing.takes_set = sets && sets != Py_None;
    work->subject.sets = 1;
    if (work->call.takes_set && core_read_int64(NULL, "sets", sets, &work->subject.sets) < 0) return -1;
    work->work = work_of(&work->call, stream);
    work->empty = work_of(&work->nothing, NULL);
    work->subject.work = &work->work;
    work->subject.nothing = &work->empty;
    return core_check(object, bw_call_check(&work->subject));
}

static const bw_call *subject_on(bw_session *session, call_work *work) {
    work->subject.session = session;
    return &work->subject;
}

PyObject *core_device_measure_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "nothing",          "stream",      "sets",        "footprint_bytes",
                            "cache",    "precision_target", "min_samples", "max_seconds", "poll",
                            "timer",    "settled",          NULL};
    device_object *self = (device_object *)object;
    char timer[TIMER_SIZE];
    call_work work = {0};
    bw_measure_options options = BW_MEASURE_OPTIONS_DEFAULT;
    bw_measurement measured = {0};
    python_options arguments = {.cache = "cold"};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$OOO&sdO&dOzp", names, &work.call.function,
                                     &work.nothing.function, &work.stream, &work.sets,
                                     CORE_INT64("footprint_bytes", &work.subject.footprint_bytes), &arguments.cache,
                                     &options.precision_target, CORE_INT64("min_samples", &options.min_samples),
                                     &options.max_seconds, &arguments.poll, &arguments.timer, &arguments.settled)) {
        return NULL;
    }
    if (read_options(object, &arguments, &options) < 0) return NULL;
    if (read_subject(object, &work) < 0) return NULL;
    bw_status status;
    CORE_ASK(status, self, find_timer(session, arguments.timer, &options, timer));
    if (!status) CORE_RUN(status, self, bw_measure_call(subject_on(session, &work), &options, &measured));
    PyObject *result = status ? core_raise(object, status) : measurement_dict(timer, NULL, &options, &measured);
    bw_measurement_free(&measured);
    return result;
}

PyObject *core_device_count_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "sets", NULL};
    call_work work = {0};
    bw_counters counters;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O", names, &work.call.function, &work.sets)) return NULL;
    if (read_subject(object, &work) < 0) return NULL;
    CORE_TRY(CORE_RUN, object, bw_count_call(subject_on(session, &work), &counters));
    return counters_dict(&counters);
}

PyObject *core_device_count_call_metrics(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "groups", "sets", NULL};
    call_work work = {0};
    bw_metrics metrics = {.count = 0};
    unsigned groups;
    PyObject *group_names;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$O", names, &work.call.function, &group_names, &work.sets))
        return NULL;
    if (read_groups((device_object *)object, group_names, &groups) < 0) return NULL;
    if (read_subject(object, &work) < 0) return NULL;
    CORE_TRY(CORE_RUN, object, bw_count_call_metrics(subject_on(session, &work), groups, &metrics));
    return metrics_dict(&metrics);
}
