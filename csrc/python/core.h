/* Declarations of the extension module. Only this folder includes Python.h. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "measure/measure.h"

/* The module's state is an array of types: exceptions, then those of objects. */
enum { CORE_DEVICE_ERROR, CORE_UNSUPPORTED_ERROR, CORE_UNAVAILABLE_ERROR, CORE_MEMORY_LIMIT_ERROR, CORE_ERROR_COUNT };
enum { CORE_DEVICE = CORE_ERROR_COUNT, CORE_CASE, CORE_PROFILER, CORE_TYPE_COUNT };

typedef struct device_object {
    PyObject_HEAD
    bw_session *session; /* NULL once closed */
    bool opening;        /* by a thread that has let go of the GIL */
    int index;
    Py_ssize_t open_cases, open_profilers;
    bool freeing;               /* by a thread in the session that has let go of the GIL: others wait for that */
    struct case_object *unused; /* cases to free: whoever is in the session frees them when it leaves */
} device_object;

typedef struct case_object {
    PyObject_HEAD
    device_object *device; /* NULL once closed */
    bw_case *content;
    unsigned long *users; /* threads whose calls use it: nobody may free it meanwhile */
    Py_ssize_t user_count;
    int closers;          /* calls of close() that wait until there are no users */
    unsigned long closer; /* the thread of the latest of them */
    bool dropped;         /* nobody refers to it: its own memory is freed with its content */
    bool queued;          /* among the device's `unused` */
    struct case_object *next;
} case_object;

/* A method's function and flags. Its signature follows; what it does stands in bwprof/_core.pyi. */
#define CORE_WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS

#define CORE_TYPE(prefix, type_name, signature, ...)            \
    static PyType_Slot prefix##_slots[] = {                     \
        {Py_tp_doc, (void *)(signature)},                       \
        {Py_tp_dealloc, (void *)prefix##_dealloc},              \
        {Py_tp_getset, prefix##_getset},                        \
        __VA_ARGS__,                                            \
        {0, NULL},                                              \
    };                                                          \
    PyType_Spec core_##prefix##_spec = {                        \
        .name = "bwprof._core." type_name,                      \
        .basicsize = sizeof(prefix##_object),                   \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, \
        .slots = prefix##_slots,                                \
    }

/* ---- errors.c ---- */
/* A str of text from outside, in which bytes that are no UTF-8 show as \xNN; None of NULL. */
PyObject *core_text(const char *text);
/* The state of the module or of the module that an object's type belongs to. */
PyObject **core_types(PyObject *object);
/* The one place where a status becomes an exception. Consumes the status; always returns NULL. */
PyObject *core_raise(PyObject *object, bw_status status);
int core_check(PyObject *object, bw_status status); /* the same for any status: 0, or -1 with an exception */
int core_refuse(const char *format, ...);           /* -1 with a ValueError; formats as PyErr_Format does */
/* Sets (*dict)[key] = value and drops the reference; *dict is NULL after a failure, and where one of both was NULL. */
void core_set(PyObject **dict, const char *key, PyObject *value);
void core_append(PyObject **list, PyObject *item);        /* the same for a list */
PyObject *core_enter(PyObject *object, PyObject *unused); /* __enter__ */

/* ---- arguments.c ---- */
/* An operation with its precision and parameters: as Python has them, then as core_subject_read finds them. */
typedef struct core_subject {
    const char *op_name, *precision_name;
    PyObject *params, *kv_lens; /* the latter NULL or None where there are none */
    int index;                  /* of the operation */
    const bw_op *op;
    const bw_precision *precision;
    bw_dims dims;
    int64_t *list; /* the lengths in `dims`; owned */
} core_subject;
#define CORE_SUBJECT(subject) &(subject)->op_name, &(subject)->precision_name, &(subject)->params, &(subject)->kv_lens

/* The text of a str that can be a name; NULL without an exception for anything else. */
const char *core_name(PyObject *key);
/* Anything with __index__ that fits in 64 bits; 0 or -1 with a ValueError that names it (of an operation, or NULL). */
int core_read_int64(const char *op_name, const char *name, PyObject *value, int64_t *out);
/* The same, and that of a seed, for "O&" in a format of PyArg_ParseTuple. */
typedef struct core_integer {
    const char *name;
    int64_t *out;
} core_integer;
#define CORE_INT64(name, out)             \
    core_convert_int64, &(core_integer) { \
        name, out                         \
    }
int core_convert_int64(PyObject *value, void *integer);
int core_convert_seed(PyObject *value, void *out);
typedef struct core_arrays {
    Py_buffer views[BW_MAX_OPERANDS]; /* .obj NULL: not given */
    const void *data[BW_MAX_OPERANDS];
} core_arrays;

/* Takes a mapping of operands' names to arrays. 0, or -1 with an exception; the caller releases *out either way. */
int core_arrays_take(PyObject *object, const bw_case_spec *spec, bool outputs, PyObject *mapping, core_arrays *out);
void core_arrays_release(core_arrays *arrays);
/* The place in `names`, which NULL ends, of what an argument says; -1 with a ValueError that lists what is allowed. */
int core_read_choice(const char *argument, const char *name, const char *const *names);
int core_read_cache(const char *name, bw_cache *out); /* 0, or -1 with an exception */
/* Finds the names, completes and checks the parameters. 0, or -1 with an exception and nothing to free. */
int core_subject_read(PyObject *object, core_subject *subject);
void core_subject_free(core_subject *subject);
PyObject *core_params_dict(const bw_op *op, const bw_dims *dims);
PyObject *core_cost_dict(const bw_cost *cost);

/* ---- functions.c ---- */
extern PyMethodDef core_methods[];
PyObject *core_variant_dict(const bw_variant_table *table, const bw_variant *variant);

/* ---- case.c ---- */
/* The content stays until the same thread lets go, whatever other threads do. NULL with an exception: closed. */
bw_case *core_case_hold(case_object *self);
void core_case_let_go(case_object *self);
void core_pause(int us);
bw_status core_device_open(const device_object *self); /* BW_CODE_INVALID once it is closed */
bw_status core_device_enter(device_object *self);      /* as its only user */
void core_device_leave(device_object *self);

/* ---- measure.c ---- */
/* Takes the GIL, checks signals, then calls the function `context`, if any. True: stop, with an exception. */
bool core_poll(void *context);
PyObject *core_conditions_dict(const bw_conditions *conditions, const char *note);
typedef PyObject *core_method(PyObject *object, PyObject *args, PyObject *kwargs);
core_method core_case_verify, core_case_measure, core_case_count;
core_method core_device_measure_call, core_device_count_call, core_device_count_call_metrics;
PyObject *core_case_count_metrics(PyObject *object, PyObject *group_names);

/* ---- device.c, case.c, profiler.c ---- */
extern PyType_Spec core_device_spec, core_case_spec, core_profiler_spec;

/* The two ways to a device's session. Python code may close the device: `session` exists within `expression` alone,
 * which is C that makes no object. Both set status to the expression's, or to why there is no session. */

/* With the GIL, beside a thread that measures. */
#define CORE_ASK(status, device, expression)           \
    do {                                               \
        bw_session *const session = (device)->session; \
        (status) = core_device_open(device);           \
        if (!(status)) (status) = (expression);        \
    } while (0)

/* Without the GIL, as the only user. The session is entered and left with the GIL: no thread closes it in between. */
#define CORE_RUN(status, device, expression)                                                                         \
    do {                                                                                                             \
        (status) = core_device_enter(device);                                                                        \
        if (status) break;                                                                                           \
        bw_session *const session = (device)->session;                                                               \
        Py_BEGIN_ALLOW_THREADS;                                                                                      \
        (status) = (expression);                                                                                     \
        Py_END_ALLOW_THREADS;                                                                                        \
        (void)session;                                                                                               \
        core_device_leave(device);                                                                                   \
        if (!(status) && PyErr_Occurred()) (status) = bw_fail(BW_CODE_INTERRUPTED, "interrupted"); /* core_poll's */ \
    } while (0)

/* Either, in a method of a Device that has nothing to release: a failure returns NULL with an exception. */
#define CORE_TRY(how, object, expression)                          \
    do {                                                           \
        bw_status core_status_;                                    \
        how(core_status_, (device_object *)(object), expression);  \
        if (core_status_) return core_raise(object, core_status_); \
    } while (0)

/* CORE_RUN of a Case, with what it holds as `content`, in a method that has nothing to release. */
#define CORE_TRY_CASE(object, expression)                          \
    do {                                                           \
        case_object *const self_ = (case_object *)(object);        \
        bw_case *const content = core_case_hold(self_);            \
        bw_status core_status_;                                    \
        if (!content) return NULL;                                 \
        CORE_RUN(core_status_, self_->device, expression);         \
        core_case_let_go(self_);                                   \
        if (core_status_) return core_raise(object, core_status_); \
    } while (0)
