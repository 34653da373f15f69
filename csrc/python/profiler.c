/* _core.Profiler: named ranges of a running program. */
#include "python/core.h"

#include <math.h>

#include "measure/ranges.h"

typedef struct profiler_object {
    PyObject_HEAD
    bool on;      /* false: start and stop do nothing, and this is all that they look at */
    bool reading; /* other threads, and what the garbage collector runs, may not close it under that */
    device_object *device;
    bw_ranges *ranges;    /* NULL: closed, or not open yet */
    PyObject *ids;        /* name -> number */
    PyObject *moved;      /* name -> bytes, for a tool that watches; NULL: none is told */
    unsigned long thread; /* the first one that used it; 0 = none yet */
} profiler_object;

static core_state *state_of(PyObject *object) {
    return core_state_of(Py_TYPE(object));
}

static int check_open(const profiler_object *self) {
    if (self->ranges) return 0;
    PyErr_SetString(PyExc_ValueError, "this Profiler is not open");
    return -1;
}

static int check_thread(profiler_object *self) {
    unsigned long mine = PyThread_get_thread_ident();
    if (!self->thread) self->thread = mine;
    if (self->thread == mine) return 0;
    PyErr_SetString(PyExc_RuntimeError,
                    "this Profiler belongs to another thread: each thread marks ranges with a Profiler of its own");
    return -1;
}

/* A name's number, or -1 with an exception. */
static int64_t find_id(profiler_object *self, PyObject *name, bool add) {
    PyObject *known = PyDict_GetItemWithError(self->ids, name);
    if (known) return PyLong_AsLongLong(known);
    if (PyErr_Occurred()) return -1;
    if (!add) {
        PyErr_Format(PyExc_ValueError, "no range %.200R was started", name);
        return -1;
    }
    int64_t id = -1;
    const char *text = PyUnicode_AsUTF8(name);
    if (!text) PyErr_Clear(); /* half a letter: tools that watch do without its name */
    bw_status status = bw_ranges_add(self->ranges, &id);
    if (!status && text) status = bw_ranges_call(self->ranges, id, text);
    if (status) {
        core_raise(state_of((PyObject *)self), status);
        return -1;
    }
    PyObject *number = PyLong_FromLongLong(id);
    int result = number ? PyDict_SetItem(self->ids, name, number) : -1;
    Py_XDECREF(number);
    return result < 0 ? -1 : id;
}

/* A new reference to the name as a plain str: comparing and hashing one runs no code of anybody's. */
static PyObject *plain_name(PyObject *name) {
    if (PyUnicode_CheckExact(name)) return Py_NewRef(name);
    if (PyUnicode_Check(name)) return PyUnicode_FromObject(name);
    return PyErr_Format(PyExc_TypeError, "a range's name is a str, not %.200R", name);
}

/* What a tool that watches is told of the next range. */
static int tell_bytes(profiler_object *self, PyObject *name, int64_t id) {
    PyObject *moved = PyDict_GetItemWithError(self->moved, name);
    if (!moved) return PyErr_Occurred() ? -1 : 0;
    bw_ranges_move(self->ranges, id, PyLong_AsLongLong(moved));
    return 0;
}

/* None lets go of the GIL: marking takes less time than that. */
static PyObject *start_range(profiler_object *self, PyObject *name) {
    int64_t id = find_id(self, name, true);
    if (id < 0 || (self->moved && tell_bytes(self, name, id) < 0)) return NULL;
    bw_status status = bw_ranges_start(self->ranges, id);
    if (status) return core_raise(state_of((PyObject *)self), status);
    Py_RETURN_NONE;
}

static PyObject *stop_range(profiler_object *self, PyObject *name) {
    int64_t id = find_id(self, name, false);
    if (id < 0) return NULL;
    if (!bw_ranges_running(self->ranges, id)) {
        PyErr_Format(PyExc_ValueError, "range %.200R is not running: start it first, and stop it once", name);
        return NULL;
    }
    bw_status status = bw_ranges_stop(self->ranges, id);
    if (status) return core_raise(state_of((PyObject *)self), status);
    Py_RETURN_NONE;
}

/* For context managers: a range that does not run is none of their business (switched on or off inside it). */
static PyObject *finish_range(profiler_object *self, PyObject *name) {
    PyObject *known = PyDict_GetItemWithError(self->ids, name);
    if (!known && PyErr_Occurred()) return NULL;
    if (!known || !bw_ranges_running(self->ranges, PyLong_AsLongLong(known))) Py_RETURN_NONE;
    return stop_range(self, name);
}

static PyObject *with_name(PyObject *object, PyObject *name, PyObject *(*use)(profiler_object *, PyObject *)) {
    profiler_object *self = (profiler_object *)object;
    if (!self->on) Py_RETURN_NONE;
    if (check_thread(self) < 0) return NULL;
    PyObject *plain = plain_name(name);
    PyObject *result = plain ? use(self, plain) : NULL;
    Py_XDECREF(plain);
    return result;
}

static PyObject *profiler_start(PyObject *object, PyObject *name) {
    return with_name(object, name, start_range);
}

static PyObject *profiler_stop(PyObject *object, PyObject *name) {
    return with_name(object, name, stop_range);
}

static PyObject *profiler_finish(PyObject *object, PyObject *name) {
    return with_name(object, name, finish_range);
}

static PyObject *profiler_switch(PyObject *object, PyObject *value) {
    profiler_object *self = (profiler_object *)object;
    int on = PyObject_IsTrue(value);
    if (on < 0 || (on && check_open(self) < 0)) return NULL;
    if (self->on && !on && !self->reading) bw_ranges_drop(self->ranges);
    self->on = on;
    Py_RETURN_NONE;
}

static bw_status create_ranges(profiler_object *self, bw_session *session, void *stream, int64_t capacity) {
    if (self->ranges) return bw_fail(BW_CODE_INVALID, "this Profiler is open already");
    return bw_ranges_create(session, stream, capacity, &self->ranges);
}

static PyObject *profiler_open(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device", "stream", "capacity", "nvtx", NULL};
    profiler_object *self = (profiler_object *)object;
    device_object *device;
    PyObject *stream = NULL, *capacity_object = NULL;
    int64_t capacity = CORE_RANGES;
    int nvtx = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OOp", names, state_of(object)->device_type, &device, &stream,
                                     &capacity_object, &nvtx)) {
        return NULL;
    }
    void *handle = stream ? PyLong_AsVoidPtr(stream) : NULL;
    if (PyErr_Occurred()) return NULL;
    if (capacity_object && core_read_int64(NULL, "capacity", capacity_object, &capacity) < 0) return NULL;
    if (capacity < 1 || capacity > CORE_RANGES_MAX) {
        return PyErr_Format(PyExc_ValueError, "capacity = %lld: allowed is 1 to %d", (long long)capacity,
                            CORE_RANGES_MAX);
    }
    PyObject *ids = PyDict_New(), *moved = PyDict_New();
    if (!ids || !moved) {
        Py_XDECREF(ids);
        Py_XDECREF(moved);
        return NULL;
    }
    bw_status status;
    CORE_ASK(status, device, create_ranges(self, session, handle, capacity));
    if (status) {
        Py_DECREF(ids);
        Py_DECREF(moved);
        return core_raise(state_of(object), status);
    }
    bw_ranges_keep_begins(self->ranges);
    if (!nvtx) bw_ranges_hide(self->ranges);
    if (!bw_ranges_watched(self->ranges)) Py_CLEAR(moved);
    self->ids = ids;
    self->moved = moved;
    self->thread = 0;
    self->device = (device_object *)Py_NewRef((PyObject *)device);
    device->open_profilers++;
    Py_RETURN_NONE;
}

static void release(profiler_object *self) {
    self->on = false;
    if (!self->ranges) return;
    bw_ranges_free(self->ranges);
    self->ranges = NULL;
    self->device->open_profilers--;
    Py_CLEAR(self->device);
    Py_CLEAR(self->ids);
    Py_CLEAR(self->moved);
}

static PyObject *profiler_close(PyObject *object, PyObject *unused) {
    (void)unused;
    if (((profiler_object *)object)->reading) {
        PyErr_SetString(PyExc_RuntimeError, "this Profiler is being read: close it after that");
        return NULL;
    }
    release((profiler_object *)object);
    Py_RETURN_NONE;
}

static void profiler_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    release((profiler_object *)object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* Waits for every range that has been stopped. */
static int read_all(profiler_object *self) {
    if (check_open(self) < 0 || check_thread(self) < 0) return -1;
    bw_status status;
    CORE_RUN(status, self->device, bw_ranges_read(self->ranges));
    if (!status) return 0;
    core_raise(state_of((PyObject *)self), status);
    return -1;
}

typedef const double *(*numbers_of)(const bw_ranges *ranges, int64_t id, int64_t *count);

/* Making a list may collect garbage, and so run code that stops ranges: their times are asked for after that. */
static PyObject *times_list(const bw_ranges *ranges, int64_t id, numbers_of which) {
    int64_t count, now;
    which(ranges, id, &count);
    PyObject *list = PyList_New((Py_ssize_t)count);
    const double *ns = which(ranges, id, &now);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *value = PyFloat_FromDouble(i < now ? ns[i] : NAN);
        if (value) {
            PyList_SET_ITEM(list, (Py_ssize_t)i, value);
        } else {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *all_times(profiler_object *self, numbers_of which) {
    if (read_all(self) < 0) return NULL;
    PyObject *result = PyDict_New(), *name, *number;
    Py_ssize_t position = 0;
    while (result && PyDict_Next(self->ids, &position, &name, &number)) {
        PyObject *list = times_list(self->ranges, PyLong_AsLongLong(number), which);
        if (!list || PyDict_SetItem(result, name, list) < 0) Py_CLEAR(result);
        Py_XDECREF(list);
    }
    return result;
}

static PyObject *read_numbers(PyObject *object, numbers_of which) {
    profiler_object *self = (profiler_object *)object;
    bool nested = self->reading; /* by what the garbage collector runs */
    self->reading = true;
    PyObject *result = all_times(self, which);
    self->reading = nested;
    return result;
}

static PyObject *profiler_read(PyObject *object, PyObject *unused) {
    (void)unused;
    return read_numbers(object, bw_ranges_times);
}

static PyObject *profiler_begins(PyObject *object, PyObject *unused) {
    (void)unused;
    return read_numbers(object, bw_ranges_begins);
}

static PyObject *profiler_forget(PyObject *object, PyObject *unused) {
    (void)unused;
    profiler_object *self = (profiler_object *)object;
    if (check_open(self) < 0 || check_thread(self) < 0) return NULL;
    bw_ranges_forget(self->ranges);
    Py_RETURN_NONE;
}

static PyObject *profiler_floor_ns(PyObject *object, PyObject *unused) {
    (void)unused;
    profiler_object *self = (profiler_object *)object;
    bw_status status;
    double ns;
    if (check_open(self) < 0 || check_thread(self) < 0) return NULL;
    bool nested = self->reading;
    self->reading = true;
    CORE_RUN(status, self->device, bw_ranges_floor(self->ranges, &ns));
    self->reading = nested;
    if (status) return core_raise(state_of(object), status);
    return PyFloat_FromDouble(ns);
}

/* Bytes of a range of that name, where a tool is told of them. */
static PyObject *profiler_move(PyObject *object, PyObject *args) {
    profiler_object *self = (profiler_object *)object;
    PyObject *name, *bytes;
    int64_t known;
    if (!PyArg_ParseTuple(args, "UO", &name, &bytes)) return NULL;
    if (core_read_int64(NULL, "bytes", bytes, &known) < 0) return NULL;
    PyObject *plain = plain_name(name), *number = plain ? PyLong_FromLongLong(known) : NULL;
    int result = number ? 0 : -1;
    if (number && self->moved) result = PyDict_SetItem(self->moved, plain, number);
    Py_XDECREF(plain);
    Py_XDECREF(number);
    if (result < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_watched(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(((profiler_object *)object)->moved != NULL);
}

static PyObject *get_on(PyObject *object, void *closure) {
    (void)closure;
    return PyBool_FromLong(((profiler_object *)object)->on);
}

static PyMethodDef profiler_methods[] = {
    {"open", (PyCFunction)(void (*)(void))profiler_open, METH_VARARGS | METH_KEYWORDS,
     "open($self, /, device, stream=0, capacity=4096, nvtx=True)\n--\n\nMakes marks for so many ranges."},
    {"switch", profiler_switch, METH_O, "switch($self, on, /)\n--\n\nWhether start and stop do anything."},
    {"start", profiler_start, METH_O, "start($self, name, /)\n--\n\nBegins a range."},
    {"stop", profiler_stop, METH_O, "stop($self, name, /)\n--\n\nEnds the latest range of this name."},
    {"finish", profiler_finish, METH_O,
     "finish($self, name, /)\n--\n\nEnds the latest range of this name, if one runs."},
    {"move", profiler_move, METH_VARARGS,
     "move($self, name, bytes, /)\n--\n\nWhat ranges of this name move, for a tool that is told of them."},
    {"read", profiler_read, METH_NOARGS,
     "read($self, /)\n--\n\nWaits for the ranges that were stopped, and returns name -> times in ns."},
    {"begins", profiler_begins, METH_NOARGS,
     "begins($self, /)\n--\n\nThe same, name -> when they began, ns since a moment that stays the same."},
    {"forget", profiler_forget, METH_NOARGS, "forget($self, /)\n--\n\nForgets the times so far."},
    {"floor_ns", profiler_floor_ns, METH_NOARGS, "floor_ns($self, /)\n--\n\nTime of an empty range."},
    {"close", profiler_close, METH_NOARGS, "close($self, /)\n--\n\nReleases the marks."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef profiler_getset[] = {
    {"on", get_on, NULL, "whether start and stop do anything", NULL},
    {"watched", get_watched, NULL, "whether a tool is told of its ranges", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot profiler_slots[] = {
    {Py_tp_doc, (void *)"Profiler()\n--\n\nNamed ranges; open() it first."},
    {Py_tp_new, (void *)PyType_GenericNew},
    {Py_tp_dealloc, (void *)profiler_dealloc},
    {Py_tp_methods, profiler_methods},
    {Py_tp_getset, profiler_getset},
    {0, NULL},
};

PyType_Spec core_profiler_spec = {
    .name = "bwprof._core.Profiler",
    .basicsize = sizeof(profiler_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = profiler_slots,
};
