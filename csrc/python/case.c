/* _core.Case: one operation with its parameters on one device. */
#include "python/core.h"

#include <time.h>

static bw_case *content_of(const case_object *self) {
    if (self->content && !self->closers) return self->content;
    return (void *)PyErr_Format(PyExc_ValueError, "this Case is closed");
}

static unsigned long *find_user(const case_object *self) {
    for (Py_ssize_t i = 0; i < self->user_count; i++) {
        if (self->users[i] == PyThread_get_thread_ident()) return &self->users[i];
    }
    return NULL;
}

bw_case *core_case_hold(case_object *self) {
    if (!content_of(self)) return NULL;
    unsigned long *users = PyMem_Realloc(self->users, (size_t)(self->user_count + 1) * sizeof *users);
    if (!users) return (void *)PyErr_NoMemory();
    users[self->user_count++] = PyThread_get_thread_ident();
    self->users = users;
    return self->content;
}

void core_case_let_go(case_object *self) {
    *find_user(self) = self->users[self->user_count - 1];
    self->user_count--;
}

static int case_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"device",  "operation", "precision", "params", "kv_lens",
                            "variant", "seed",      "name",      "nvtx",   NULL};
    case_object *self = (case_object *)object;
    device_object *device;
    const char *variant = NULL, *name = NULL;
    int nvtx = 1;
    uint64_t seed = 0;
    core_subject subject = {0};
    bw_status status;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!ssO|$OzO&zp", names, core_types(object)[CORE_DEVICE], &device,
                                     CORE_SUBJECT(&subject), &variant, core_convert_seed, &seed, &name, &nvtx)) {
        return -1;
    }
    if (core_subject_read(object, &subject) < 0) return -1;
    CORE_ASK(status, device,
             self->content || self->device ? bw_fail(BW_CODE_INVALID, "this Case is open already")
                                           : bw_case_create(session, subject.index, subject.precision, &subject.dims,
                                                            variant, seed, &self->content));
    core_subject_free(&subject);
    if (core_check(object, status) < 0) return -1;
    if (name || !nvtx) bw_case_set_label(self->content, nvtx ? name : NULL);
    self->device = (device_object *)Py_NewRef((PyObject *)device);
    device->open_cases++;
    return 0;
}

static void free_memory(case_object *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->users);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* In the session, or after a fork, where the memory is the parent's. The case is closed when it has no device. */
static void free_content(case_object *self) {
    device_object *device = self->device;
    bw_case *content = self->content;
    self->content = NULL;
    if (!bw_session_is_foreign(device->session)) {
        device->freeing = true;
        Py_BEGIN_ALLOW_THREADS;
        bw_case_free(content);
        Py_END_ALLOW_THREADS;
        device->freeing = false;
    }
    if (!self->dropped) device->open_cases--;
    self->device = NULL;
    if (self->dropped) free_memory(self);
    Py_DECREF(device);
}

/* The device's unused cases; within the session. */
static void free_cases(device_object *device) {
    while (device->unused) {
        case_object *self = device->unused;
        device->unused = self->next;
        self->queued = false;
        /* A signal may have ended the wait of the one that closes it. */
        if (self->dropped || (self->closers && !self->user_count)) free_content(self);
    }
}

bw_status core_device_open(const device_object *self) {
    return self->session ? BW_OK : bw_fail(BW_CODE_INVALID, "this Device is closed");
}

void core_pause(int us) {
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&(struct timespec){.tv_nsec = us * 1000L}, NULL);
    Py_END_ALLOW_THREADS;
}

bw_status core_device_enter(device_object *self) {
    while (self->session && self->freeing && !bw_session_is_foreign(self->session)) core_pause(1000);
    BW_TRY(core_device_open(self));
    return bw_session_enter(self->session);
}

void core_device_leave(device_object *self) {
    free_cases(self);
    bw_session_leave(self->session);
}

/* A thread in the session frees it when it leaves: others may wait for ever for one that makes call after call. */
static void free_if_unused(case_object *self) {
    device_object *device = self->device;
    if (!device) return;
    if (bw_session_is_foreign(device->session)) {
        free_content(self);
        return;
    }
    if (!self->content || self->user_count) return; /* no content: another thread frees it just now */
    if (!self->queued) {
        self->next = device->unused;
        device->unused = self;
        self->queued = true;
    }
    Py_INCREF(device);                         /* the case's own reference ends with it */
    if (bw_session_is_mine(device->session)) { /* in a poll function, between two batches: that is safe */
        free_cases(device);
    } else {
        bw_status busy = core_device_enter(device);
        if (!busy) core_device_leave(device);
        bw_status_free(busy);
    }
    Py_DECREF(device);
}

static void case_dealloc(PyObject *object) {
    case_object *self = (case_object *)object;
    if (!self->device) {
        free_memory(self);
        return;
    }
    self->device->open_cases--;
    self->dropped = true;
    free_if_unused(self);
}

/* Returns when the case is closed, whichever thread frees it. After an exception by a signal the case is as it was. */
static PyObject *case_close(PyObject *object, PyObject *Py_UNUSED(unused)) {
    case_object *self = (case_object *)object;
    const unsigned long thread = PyThread_get_thread_ident(), before = self->closer;
    int signaled = 0;
    if (find_user(self)) {
        return PyErr_Format(PyExc_ValueError, "this Case cannot be closed from within a call of its own");
    }
    if (!self->device || (self->closers && before == thread)) Py_RETURN_NONE; /* a signal's handler, in such a call */
    self->closers++;
    self->closer = thread;
    for (free_if_unused(self); self->device && signaled == 0; free_if_unused(self)) {
        core_pause(1000);
        signaled = PyErr_CheckSignals();
    }
    self->closers--;
    self->closer = before;
    if (signaled < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *operand_dict(const bw_operand *operand) {
    static const char *const roles[] = {[BW_IN] = "in", [BW_OUT] = "out", [BW_INOUT] = "inout"};
    PyObject *extents = PyList_New(0);
    for (int axis = 0; extents && axis < operand->rank; axis++) {
        core_append(&extents, PyLong_FromLongLong(operand->shape[axis]));
    }
    PyObject *shape = extents ? PyList_AsTuple(extents) : NULL;
    Py_XDECREF(extents);
    return Py_BuildValue("{s:s,s:s,s:s,s:N,s:L,s:L,s:z}", "name", operand->name, "role", roles[operand->role], "dtype",
                         bw_dtype_get(operand->dtype)->name, "shape", shape, "bytes", (long long)operand->bytes,
                         "row_elems", (long long)operand->row_elems, "scale_of", operand->scale_of);
}

static PyObject *operands_list(const bw_case_spec *spec) {
    const int count = spec->operand_count;
    bw_operand operands[BW_MAX_OPERANDS];
    memcpy(operands, spec->operands, sizeof operands);
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < count; i++) {
        if (operands[i].present) core_append(&list, operand_dict(&operands[i]));
    }
    return list;
}

enum { OPERATION, PRECISION, VARIANT, PARAMS, COST, OPERANDS };

/* Also while another thread measures. Objects are made of copies: making one may run code that closes the case. */
static PyObject *get_attribute(PyObject *object, void *which) {
    bw_case *content = content_of((case_object *)object);
    if (!content) return NULL;
    const bw_case_spec *spec = content->spec;
    const bw_choice *choice = bw_case_choice(content);
    const bw_dims dims = spec->dims;
    const bw_cost cost = choice->cost;
    switch ((intptr_t)which) {
        case OPERATION: return PyUnicode_FromString(spec->op->name);
        case PRECISION: return PyUnicode_FromString(spec->precision->name);
        case VARIANT: return PyUnicode_FromString(choice->variant->name);
        case PARAMS: return core_params_dict(spec->op, &dims);
        case COST: return core_cost_dict(&cost);
        case OPERANDS: return operands_list(spec);
        default: Py_UNREACHABLE();
    }
}

static PyObject *case_memory_needed(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"cache", NULL};
    case_object *self = (case_object *)object;
    const char *cache_name = "cold";
    bw_cache cache;
    bw_rotation rotation = {.sets = 1};
    int64_t needed = 0, free_bytes = 0;
    bw_status status;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s", names, &cache_name)) return NULL;
    if (core_read_cache(cache_name, &cache) < 0) return NULL;
    bw_case *content = core_case_hold(self);
    if (!content) return NULL;
    CORE_RUN(status, self->device, bw_case_rotation(content, cache, &rotation, &needed, &free_bytes));
    const int64_t scratch = bw_case_choice(content)->scratch_bytes;
    core_case_let_go(self);
    /* Too little memory is an answer here, not an error. */
    if (status && bw_status_code(status) != BW_CODE_MEMORY) return core_raise(object, status);
    bool fits = !status;
    bw_status_free(status);
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:O}", "needed", (long long)needed, "free", (long long)free_bytes, "scratch",
                         (long long)scratch, "buffer_sets", (long long)rotation.sets, "fits",
                         fits ? Py_True : Py_False);
}

static PyObject *run_and_collect(case_object *self, bw_case *content, bw_case_arrays *arrays, bw_role left_out) {
    const bw_case_spec *spec = content->spec;
    PyObject *result = PyDict_New();
    bw_status status;
    for (int i = 0; result && i < spec->operand_count; i++) {
        const bw_operand *operand = &spec->operands[i];
        if (!operand->present || operand->role == left_out) continue;
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)operand->bytes);
        if (bytes) arrays->out[i] = PyBytes_AS_STRING(bytes);
        core_set(&result, operand->name, bytes);
    }
    if (!result) return NULL;
    CORE_RUN(status, self->device, bw_case_run(content, arrays));
    if (!status) return result;
    Py_DECREF(result);
    return core_raise((PyObject *)self, status);
}

/* Two methods: with a mapping of arrays one launch and its outputs, without one (NULL) no launch, and the inputs. */
static PyObject *case_run(PyObject *object, PyObject *mapping) {
    case_object *self = (case_object *)object;
    bw_case *content = core_case_hold(self);
    core_arrays views = {0};
    PyObject *result = NULL;
    if (!content) return NULL;
    if (!mapping || core_arrays_take(object, content->spec, false, mapping, &views) == 0) {
        bw_case_arrays arrays = {.launch = mapping != NULL};
        memcpy(arrays.in, views.data, sizeof arrays.in);
        result = run_and_collect(self, content, &arrays, mapping ? BW_IN : BW_OUT);
    }
    core_arrays_release(&views);
    core_case_let_go(self);
    return result;
}

static PyObject *case_launch(PyObject *object, PyObject *Py_UNUSED(unused)) {
    CORE_TRY_CASE(object, bw_case_launch_once(content));
    Py_RETURN_NONE;
}

static PyObject *case_enqueue(PyObject *object, PyObject *Py_UNUSED(unused)) {
    CORE_TRY_CASE(object, bw_case_enqueue(content));
    Py_RETURN_NONE;
}

static PyMethodDef case_methods[] = {
    {"memory_needed", CORE_WITH_KEYWORDS(case_memory_needed), "memory_needed($self, /, cache='cold')\n--\n\n"},
    {"run", case_run, METH_O, "run($self, arrays, /)\n--\n\n"},
    {"inputs", case_run, METH_NOARGS, "inputs($self, /)\n--\n\n"},
    {"verify", CORE_WITH_KEYWORDS(core_case_verify), "verify($self, /, budget_s=0.1, outputs=None)\n--\n\n"},
    {"measure", CORE_WITH_KEYWORDS(core_case_measure),
     "measure($self, /, *, cache='cold', precision_target=0.005, min_samples=10, max_seconds=2.0, verify_budget_s=0.1, "
     "poll=None, timer=None, flush=None, trace=False, settled=False)\n--\n\n"},
    {"count", CORE_WITH_KEYWORDS(core_case_count), "count($self, /, *, rotated=False)\n--\n\n"},
    {"count_metrics", core_case_count_metrics, METH_O, "count_metrics($self, groups, /)\n--\n\n"},
    {"launch", case_launch, METH_NOARGS, "launch($self, /)\n--\n\n"},
    {"enqueue", case_enqueue, METH_NOARGS, "enqueue($self, /)\n--\n\n"},
    {"close", case_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {"__enter__", core_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
    {"__exit__", case_close, METH_VARARGS, "__exit__($self, /, *exc)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef case_getset[] = {
    {"operation", get_attribute, NULL, "the operation's name", (void *)OPERATION},
    {"precision", get_attribute, NULL, "the precision's name", (void *)PRECISION},
    {"variant", get_attribute, NULL, "the variant's name", (void *)VARIANT},
    {"params", get_attribute, NULL, "all parameters", (void *)PARAMS},
    {"cost", get_attribute, NULL, "bytes and FLOPs", (void *)COST},
    {"operands", get_attribute, NULL, "name, role, dtype, shape and bytes of each array", (void *)OPERANDS},
    {NULL, NULL, NULL, NULL, NULL},
};

CORE_TYPE(
    case, "Case",
    "Case(device, operation, precision, params, *, kv_lens=None, variant=None, seed=0, name=None, nvtx=True)\n--\n\n",
    {Py_tp_methods, case_methods}, {Py_tp_init, (void *)case_init});
