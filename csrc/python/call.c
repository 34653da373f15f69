/* Measures and counts a Python callable: _core.Device.measure_call, count_call and count_call_metrics. */
#include "python/core.h"

enum { MESSAGE_CHARACTERS = 150 }; /* of an exception's text, in a status's message */

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

/* The exception that is set, as a status with this code; consumes it. */
static bw_status status_of_exception(bw_code code, const char *what) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *message = value ? PyObject_Str(value) : NULL;
    PyObject *start = message ? PyUnicode_Substring(message, 0, MESSAGE_CHARACTERS) : NULL;
    const char *text = start ? PyUnicode_AsUTF8(start) : NULL;
    bw_status status =
        bw_fail(code, "%s: %s: %s", what, type ? ((PyTypeObject *)type)->tp_name : "an exception", text ? text : "");
    PyErr_Clear();
    Py_XDECREF(start);
    Py_XDECREF(message);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return status;
}

/* An exception stays set and is raised in the end; in a capture it says that this cannot be captured. */
static bw_status call(void *context, int64_t set, bool captured) {
    python_call *self = context;
    if (PyErr_Occurred())
        return bw_fail(BW_CODE_INTERRUPTED, "interrupted"); /* by a signal, between two pieces of work */
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

/* What both methods take: a function, its stream, its sets. */
typedef struct call_work {
    python_call call, nothing;
    bw_work work, empty;
    bw_call subject;
} call_work;

/* All but the session; 0, or -1 with an exception. */
static int read_subject(PyObject *object, PyObject *function, PyObject *stream, PyObject *sets, PyObject *footprint,
                        call_work *work) {
    int64_t set_count = 1, footprint_bytes = 0;
    PyObject *nothing = work->nothing.function; /* NULL where it is counted */
    if (!PyCallable_Check(function) || (nothing && !PyCallable_Check(nothing))) {
        PyErr_Format(PyExc_TypeError, "a callable is needed, not %.200R",
                     PyCallable_Check(function) ? nothing : function);
        return -1;
    }
    void *stream_handle = stream && stream != Py_None ? PyLong_AsVoidPtr(stream) : NULL;
    if (PyErr_Occurred()) return -1;
    work->call.takes_set = sets && sets != Py_None;
    if (work->call.takes_set && core_read_int64(NULL, "sets", sets, &set_count) < 0) return -1;
    if (footprint && core_read_int64(NULL, "footprint_bytes", footprint, &footprint_bytes) < 0) return -1;
    work->subject = (bw_call){NULL, &work->work, &work->empty, set_count, footprint_bytes};
    if (core_check(object, bw_call_check(&work->subject)) < 0) return -1;
    work->call.function = function;
    work->nothing.takes_set = work->call.takes_set;
    work->work = work_of(&work->call, stream_handle);
    work->empty = work_of(&work->nothing, NULL);
    return 0;
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
    char timer[CORE_TIMER_SIZE];
    call_work work = {0};
    bw_measure_options options = BW_MEASURE_OPTIONS_DEFAULT;
    bw_measurement measured = {0};
    core_options arguments = {.cache = "cold"};
    PyObject *function, *stream = NULL, *sets = NULL, *footprint = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$OOOsdOdOzp", names, &function, &work.nothing.function, &stream,
                                     &sets, &footprint, &arguments.cache, &options.precision_target,
                                     &arguments.min_samples, &options.max_seconds, &arguments.poll, &arguments.timer,
                                     &arguments.settled)) {
        return NULL;
    }
    if (core_options_read(object, &arguments, &options) < 0) return NULL;
    if (read_subject(object, function, stream, sets, footprint, &work) < 0) return NULL;
    bw_status status;
    CORE_ASK(status, self, core_timer_find(session, arguments.timer, &options, timer));
    if (!status) CORE_RUN(status, self, bw_measure_call(subject_on(session, &work), &options, &measured));
    PyObject *result = status ? core_raise(object, status) : core_measurement_dict(timer, NULL, &options, &measured);
    bw_measurement_free(&measured);
    return result;
}

PyObject *core_device_count_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "sets", NULL};
    call_work work = {0};
    bw_counters counters;
    PyObject *function, *sets = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$O", names, &function, &sets)) return NULL;
    if (read_subject(object, function, NULL, sets, NULL, &work) < 0) return NULL;
    CORE_TRY(CORE_RUN, object, bw_count_call(subject_on(session, &work), &counters));
    return core_counters_dict(&counters);
}

PyObject *core_device_count_call_metrics(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"function", "groups", "sets", NULL};
    call_work work = {0};
    bw_metrics metrics = {.count = 0};
    unsigned groups;
    PyObject *function, *group_names, *sets = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$O", names, &function, &group_names, &sets)) return NULL;
    if (core_read_groups((device_object *)object, group_names, &groups) < 0) return NULL;
    if (read_subject(object, function, NULL, sets, NULL, &work) < 0) return NULL;
    CORE_TRY(CORE_RUN, object, bw_count_call_metrics(subject_on(session, &work), groups, &metrics));
    return core_metrics_dict(&metrics);
}
