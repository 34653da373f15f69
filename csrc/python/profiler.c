/* _core.Profiler: named ranges of a running program. */
#include "python/core.h"

#include <math.h>

#include "measure/ranges.h"

enum { READ_AT_ONCE = 64, PAUSE_US = 20 };
enum { CAPACITY = 4096, CAPACITY_MOST = 1 << 24 }; /* marks for so many ranges at first */

typedef struct profiler_object {
    PyObject_HEAD
    bool on;     /* false: start and stop do nothing, and this is all that they look at */
    int reading; /* how many read: other threads, and what the garbage collector runs, may not close it under that */
    device_object *device;
    void *stream;
    bw_ranges *ranges; /* NULL: closed, or not open yet */
    PyObject *ids;     /* name -> number */
    PyObject *unused;  /* the same of names whose bytes are known and that nobody has started yet */
} profiler_object;

static int check_open(const profiler_object *self) {
    return self->ranges ? 0 : core_refuse("this Profiler is not open");
}

static PyObject *add_id(profiler_object *self, PyObject *name) {
    int64_t id;
    const char *text = PyUnicode_AsUTF8(name);
    if (!text) PyErr_Clear(); /* half a letter: tools that watch do without its name */
    bw_status status = bw_ranges_add(self->ranges, &id);
    if (!status && text) status = bw_ranges_set_name(self->ranges, id, text);
    return core_check((PyObject *)self, status) < 0 ? NULL : PyLong_FromLongLong(id);
}

/* The number of a name, which a new one gets in `dict`; -1 with an exception. */
static int64_t find_id(profiler_object *self, PyObject *name, PyObject *dict) {
    PyObject *number = PyDict_GetItemWithError(self->ids, name);
    if (number) return PyLong_AsLongLong(number);
    if (!PyErr_Occurred()) number = Py_XNewRef(PyDict_GetItemWithError(self->unused, name));
    if (!number && !PyErr_Occurred()) number = add_id(self, name);
    int64_t id = number && PyDict_SetItem(dict, name, number) == 0 ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return id;
}

/* A new reference to the name as a plain str: comparing and hashing one runs no code of anybody's. */
static PyObject *plain_name(PyObject *name) {
    if (PyUnicode_CheckExact(name)) return Py_NewRef(name);
    if (PyUnicode_Check(name)) return PyUnicode_FromObject(name);
    return PyErr_Format(PyExc_TypeError, "a range's name is a str, not %.200R", name);
}

/* None lets go of the GIL: marking takes less time than that. 0, or -1 with an exception. */
static int start_range(profiler_object *self, PyObject *name) {
    int64_t id = find_id(self, name, self->ids);
    return id < 0 ? -1 : core_check((PyObject *)self, bw_ranges_start(self->ranges, id));
}

/* For context managers: a range that does not run is none of their business (switched on or off inside it). */
static int finish_range(profiler_object *self, PyObject *name) {
    PyObject *known = PyDict_GetItemWithError(self->ids, name);
    int64_t id = known ? PyLong_AsLongLong(known) : -1;
    if (id < 0 || !bw_ranges_count_running(self->ranges, id)) return PyErr_Occurred() ? -1 : 0;
    return core_check((PyObject *)self, bw_ranges_stop(self->ranges, id)) < 0 ? -1 : 1;
}

static int stop_range(profiler_object *self, PyObject *name) {
    int stopped = finish_range(self, name);
    return stopped ? stopped : core_refuse("range %.200R is not running: start it first, and stop it once", name);
}

static PyObject *with_name(PyObject *object, PyObject *name, int (*use)(profiler_object *, PyObject *)) {
    profiler_object *self = (profiler_object *)object;
    if (!self->on) Py_RETURN_NONE;
    PyObject *plain = plain_name(name);
    if (self->ranges) self->ranges->thread = PyThreadState_GetID(PyThreadState_Get());
    int result = plain ? use(self, plain) : -1;
    Py_XDECREF(plain);
    if (result < 0) return NULL;
    Py_RETURN_NONE;
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

static void release(profiler_object *self) {
    self->on = false;
    if (!self->ranges) return;
    bw_ranges_free(self->ranges);
    self->ranges = NULL;
    self->device->open_profilers--;
    Py_CLEAR(self->device);
    Py_CLEAR(self->ids);
    Py_CLEAR(self->unused);
}

static PyObject *profiler_open(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device", "stream", "capacity", "nvtx", NULL};
    profiler_object *self = (profiler_object *)object;
    device_object *device;
    PyObject *stream = NULL;
    int64_t capacity = CAPACITY;
    int nvtx = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OO&p", names, core_types(object)[CORE_DEVICE], &device, &stream,
                                     CORE_INT64("capacity", &capacity), &nvtx)) {
        return NULL;
    }
    void *handle = stream ? PyLong_AsVoidPtr(stream) : NULL;
    if (PyErr_Occurred()) return NULL;
    if (capacity < 1 || capacity > CAPACITY_MOST) {
        return PyErr_Format(PyExc_ValueError, "capacity = %lld: allowed is 1 to %d", (long long)capacity,
                            CAPACITY_MOST);
    }
    PyObject *ids = PyDict_New(), *unused = PyDict_New(); /* before it is open: this may run code of others */
    bw_status status = BW_OK;
    if (ids && unused) {
        CORE_ASK(status, device,
                 self->ranges ? bw_fail(BW_CODE_INVALID, "this Profiler is open already")
                              : bw_ranges_create(session, handle, capacity, &self->ranges));
    }
    if (!ids || !unused || status) {
        Py_XDECREF(ids);
        Py_XDECREF(unused);
        return status ? core_raise(object, status) : NULL;
    }
    self->ranges->records_begins = true;
    if (!nvtx) self->ranges->annotations = NULL;
    self->stream = handle;
    self->ids = ids;
    self->unused = unused;
    self->device = (device_object *)Py_NewRef((PyObject *)device);
    device->open_profilers++;
    Py_RETURN_NONE;
}

static PyObject *profiler_close(PyObject *object, PyObject *Py_UNUSED(unused)) {
    if (((profiler_object *)object)->reading) {
        return PyErr_Format(PyExc_RuntimeError, "this Profiler is being read: close it after that");
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

/* Waits for every range that has been stopped. Other threads mark meanwhile: ranges are touched with the GIL alone. */
static int read_all(profiler_object *self) {
    if (check_open(self) < 0) return -1;
    int64_t wanted = self->ranges->stopped, before = -1;
    bw_status failed = BW_OK;
    for (bool left = true; left;) {
        bw_status status = core_device_enter(self->device);
        left = false;
        if (!status) {
            status = bw_ranges_read_passed(self->ranges, READ_AT_ONCE);
            left = self->ranges->settled < wanted;
            core_device_leave(self->device);
        }
        failed = bw_status_first(failed, status);
        int64_t settled = self->ranges->settled;
        if (left && settled == before) {
            core_pause(PAUSE_US);
            if (PyErr_CheckSignals() < 0) {
                bw_status_free(failed);
                return -1;
            }
        }
        before = settled;
    }
    return core_check((PyObject *)self, failed);
}

static PyObject *event_at(const bw_ranges *ranges, int64_t id, int64_t at) {
    const bw_range_name *name = &ranges->names[id];
    if (at >= name->count) return Py_BuildValue("ddOO", NAN, NAN, Py_None, Py_None);
    const bw_range_time *time = &name->times[at];
    if (!time->bytes.known) return Py_BuildValue("ddOO", time->begin_ns, time->ns, Py_None, Py_None);
    return Py_BuildValue("ddKK", time->begin_ns, time->ns, (unsigned long long)time->bytes.bytes_read,
                         (unsigned long long)time->bytes.bytes_written);
}

/* Making an event may collect garbage, and so run code that stops and forgets ranges: each is looked up by itself. */
static PyObject *events_of(const bw_ranges *ranges, int64_t id) {
    int64_t count = ranges->names[id].count;
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list && i < count; i++) core_append(&list, event_at(ranges, id, i));
    return list;
}

static PyObject *profiler_events(PyObject *object, PyObject *Py_UNUSED(unused)) {
    profiler_object *self = (profiler_object *)object;
    PyObject *result = NULL, *ids = NULL, *name, *number;
    Py_ssize_t position = 0;
    self->reading++;
    if (read_all(self) == 0) ids = PyDict_Copy(self->ids); /* other threads may add names */
    if (ids) result = PyDict_New();
    while (result && PyDict_Next(ids, &position, &name, &number)) {
        PyObject *list = events_of(self->ranges, PyLong_AsLongLong(number));
        if (!list || PyDict_SetItem(result, name, list) < 0) Py_CLEAR(result);
        Py_XDECREF(list);
    }
    Py_XDECREF(ids);
    self->reading--;
    return result;
}

static PyObject *profiler_forget(PyObject *object, PyObject *Py_UNUSED(unused)) {
    profiler_object *self = (profiler_object *)object;
    if (check_open(self) < 0) return NULL;
    bw_ranges_forget(self->ranges);
    Py_RETURN_NONE;
}

/* By marks of its own: other threads mark meanwhile. */
static PyObject *profiler_floor_ns(PyObject *object, PyObject *Py_UNUSED(unused)) {
    profiler_object *self = (profiler_object *)object;
    bw_status status;
    double ns;
    if (check_open(self) < 0) return NULL;
    self->reading++;
    CORE_RUN(status, self->device, bw_marks_floor(session, self->stream, &ns));
    self->reading--;
    if (status) return core_raise(object, status);
    return PyFloat_FromDouble(ns);
}

static PyObject *profiler_move(PyObject *object, PyObject *args) {
    profiler_object *self = (profiler_object *)object;
    PyObject *name;
    int64_t bytes_read, bytes_written;
    if (!PyArg_ParseTuple(args, "UO&O&", &name, CORE_INT64("bytes_read", &bytes_read),
                          CORE_INT64("bytes_written", &bytes_written))) {
        return NULL;
    }
    const bw_range_bytes bytes = {(uint64_t)bytes_read, (uint64_t)bytes_written, true};
    PyObject *plain = plain_name(name);
    if (!plain || check_open(self) < 0) { /* last: reading the numbers may run code that closes it */
        Py_XDECREF(plain);
        return NULL;
    }
    int64_t id = find_id(self, plain, self->unused);
    Py_DECREF(plain);
    if (id < 0) return NULL;
    self->ranges->thread = PyThreadState_GetID(PyThreadState_Get());
    self->ranges->names[id].next = bytes;
    bw_ranges_set_running_bytes(self->ranges, id, bytes);
    Py_RETURN_NONE;
}

static PyObject *get_watched(PyObject *object, void *Py_UNUSED(closure)) {
    const profiler_object *self = (profiler_object *)object;
    return PyBool_FromLong(self->ranges && self->ranges->annotations);
}

static PyObject *get_on(PyObject *object, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(((profiler_object *)object)->on);
}

static PyMethodDef profiler_methods[] = {
    {"open", CORE_WITH_KEYWORDS(profiler_open), "open($self, /, device, stream=0, capacity=4096, nvtx=True)\n--\n\n"},
    {"switch", profiler_switch, METH_O, "switch($self, on, /)\n--\n\n"},
    {"start", profiler_start, METH_O, "start($self, name, /)\n--\n\n"},
    {"stop", profiler_stop, METH_O, "stop($self, name, /)\n--\n\n"},
    {"finish", profiler_finish, METH_O, "finish($self, name, /)\n--\n\n"},
    {"move", profiler_move, METH_VARARGS, "move($self, name, bytes_read, bytes_written, /)\n--\n\n"},
    {"events", profiler_events, METH_NOARGS, "events($self, /)\n--\n\n"},
    {"forget", profiler_forget, METH_NOARGS, "forget($self, /)\n--\n\n"},
    {"floor_ns", profiler_floor_ns, METH_NOARGS, "floor_ns($self, /)\n--\n\n"},
    {"close", profiler_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef profiler_getset[] = {
    {"on", get_on, NULL, "whether start and stop do anything", NULL},
    {"watched", get_watched, NULL, "whether a tool is told of its ranges", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

CORE_TYPE(profiler, "Profiler", "Profiler()\n--\n\n", {Py_tp_methods, profiler_methods});
