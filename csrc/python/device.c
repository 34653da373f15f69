/* _core.Device: an open device, and the variants that run on it. */
#include "python/core.h"

#include <limits.h>
#include <math.h>

static int device_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"backend", "index", NULL};
    device_object *self = (device_object *)object;
    const char *backend_name;
    const bw_backend *backend;
    int64_t index = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O&", names, &backend_name, CORE_INT64("index", &index))) {
        return -1;
    }
    if (index != (int)index) index = index < 0 ? -1 : INT_MAX; /* no device has either: the message says which exist */
    if (self->session || self->opening) {
        return core_refuse("this Device is %s", self->session ? "open already" : "being opened by another thread");
    }
    bw_status status = bw_backend_find(backend_name, &backend);
    if (!status) {
        bw_session *session = NULL;
        self->opening = true;
        Py_BEGIN_ALLOW_THREADS;
        status = bw_session_open(backend, (int)index, &session);
        Py_END_ALLOW_THREADS;
        self->opening = self->freeing = false;
        self->unused = NULL; /* a fork has none of the threads that would free them */
        self->session = session;
        self->index = (int)index;
    }
    if (!status && backend->devices->watch) backend->devices->watch(self->session->device, core_poll, NULL);
    return core_check(object, status);
}

static void device_dealloc(PyObject *object) {
    device_object *self = (device_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    bw_session_close(self->session); /* no Case is left: each holds a reference */
    type->tp_free(object);
    Py_DECREF(type);
}

static PyObject *device_close(PyObject *object, PyObject *Py_UNUSED(unused)) {
    device_object *self = (device_object *)object;
    if (!self->session) Py_RETURN_NONE;
    if (self->open_cases) {
        return PyErr_Format(PyExc_ValueError, "%zd Case objects of this Device are open: close them first",
                            self->open_cases);
    }
    if (self->open_profilers) {
        return PyErr_Format(PyExc_ValueError, "a Profiler of this Device is open: close it first");
    }
    /* After a fork the device is the parent's: this process only forgets it. */
    bw_status status = bw_session_is_foreign(self->session) ? BW_OK : bw_session_enter(self->session);
    if (status) return core_raise(object, status);
    bw_session_close(self->session);
    self->session = NULL;
    Py_RETURN_NONE;
}

static PyObject *peak_tflops(const bw_device_facts *facts) {
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < BW_PRECISION_COUNT; i++) {
        const bw_precision *precision = bw_precision_get((bw_precision_id)i);
        core_set(&dict, precision->name, PyFloat_FromDouble(facts->peak_tflops[precision->compute]));
    }
    return dict;
}

static bw_status copy_facts(const bw_session *session, bw_device_facts *facts, bw_fact more[BW_FACTS_MAX], int *count) {
    const bw_device_calls *devices = session->backend->devices;
    *facts = *devices->facts(session->device);
    *count = devices->more_facts ? devices->more_facts(session->device, more) : 0;
    return BW_OK;
}

static PyObject *device_facts(PyObject *object, PyObject *Py_UNUSED(unused)) {
    bw_device_facts facts, *const f = &facts;
    bw_fact more[BW_FACTS_MAX];
    int count = 0;
    CORE_TRY(CORE_ASK, object, copy_facts(session, &facts, more, &count));
    PyObject *dict = Py_BuildValue(
        "{s:N,s:N,s:N,s:N,s:N,s:i,s:L,s:L,s:d,s:N,s:N,s:N,s:N,s:O,s:N}", "name", core_text(f->name), "uuid",
        core_text(f->uuid), "pci_bus_id", core_text(f->pci_bus_id), "driver", core_text(f->driver), "runtime",
        core_text(f->runtime), "units", f->units, "memory_bytes", (long long)f->memory_bytes, "cache_bytes",
        (long long)f->cache_bytes, "peak_gb_s", f->peak_gb_s, "peak_source", core_text(f->peak_source), "peak_tflops",
        peak_tflops(f), "tflops_source", core_text(f->tflops_source), "timer", core_text(f->timer), "fixed_replay",
        f->fixed_replay ? Py_True : Py_False, "note", core_text(f->note));
    for (int i = 0; dict && i < count; i++) core_set(&dict, more[i].name, PyLong_FromLongLong(more[i].value));
    return dict;
}

static PyObject *device_memory(PyObject *object, PyObject *Py_UNUSED(unused)) {
    int64_t free_bytes, total_bytes;
    CORE_TRY(CORE_RUN, object, session->backend->memory->ask(session->device, &free_bytes, &total_bytes));
    return Py_BuildValue("(LL)", (long long)free_bytes, (long long)total_bytes);
}

static bw_status release_profilers(const bw_session *session) {
    if (session->backend->counters) session->backend->counters->release_profilers(session->device);
    return session->backend->devices->synchronize(session->device);
}

static PyObject *device_release_profilers(PyObject *object, PyObject *Py_UNUSED(unused)) {
    CORE_TRY(CORE_RUN, object, release_profilers(session));
    Py_RETURN_NONE;
}

static bw_status limit_threads(device_object *self, bw_session *session, int64_t threads) {
    if (self->open_cases || self->open_profilers) {
        return bw_fail(BW_CODE_INVALID, "a Case or Profiler of this Device is open: close it first");
    }
    BW_TRY(core_device_enter(self));
    bw_status status = bw_session_limit_threads(session, threads == (int)threads ? (int)threads : 0); /* 0: refused */
    core_device_leave(self);
    return status;
}

/* With the GIL, for the some 20 ms that it takes: what other threads ask of the device meanwhile changes. */
static PyObject *device_limit_threads(PyObject *object, PyObject *value) {
    int64_t threads;
    if (core_read_int64(NULL, "threads", value, &threads) < 0) return NULL;
    CORE_TRY(CORE_ASK, object, limit_threads((device_object *)object, session, threads));
    Py_RETURN_NONE;
}

static bw_status find_floor(bw_session *session, const char *timer_name, double *ns) {
    int timer;
    BW_TRY(bw_timer_find(session, timer_name, &timer));
    return bw_session_floor(session, timer, NULL, ns);
}

static PyObject *device_floor_ns(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"timer", NULL};
    const char *timer_name = NULL;
    double ns;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|z", names, &timer_name)) return NULL;
    CORE_TRY(CORE_RUN, object, find_floor(session, timer_name, &ns));
    return PyFloat_FromDouble(ns);
}

/* Sensors that cannot be read are no failure: the note says why. */
static bw_status read_sensors(const bw_session *session, bw_conditions *out, char *note, size_t note_size) {
    const bw_sensor_calls *sensors = session->backend->sensors;
    *out = (bw_conditions){NAN, NAN, NAN, NAN, NAN, BW_THROTTLE_UNKNOWN};
    note[0] = '\0';
    if (!sensors) {
        snprintf(note, note_size, "the %s backend has no sensors to read", session->backend->name);
        return BW_OK;
    }
    bw_status status = sensors->read(session->device, true, out);
    if (bw_status_code(status) != BW_CODE_UNAVAILABLE) return status;
    snprintf(note, note_size, "%s", bw_status_message(status));
    bw_status_free(status);
    return BW_OK;
}

static PyObject *device_conditions(PyObject *object, PyObject *Py_UNUSED(unused)) {
    bw_conditions found;
    char note[320];
    CORE_TRY(CORE_RUN, object, read_sensors(session, &found, note, sizeof note));
    return core_conditions_dict(&found, note);
}

static bw_status ask_management(const bw_session *session, bw_management *out) {
    *out = (bw_management){.ecc = -1, .persistence = -1, .power_limit_w = NAN, .link_gb_s = NAN};
    if (session->backend->sensors) session->backend->sensors->management(session->device, out);
    return BW_OK;
}

static PyObject *truth_or_none(int value) {
    return value < 0 ? Py_NewRef(Py_None) : PyBool_FromLong(value);
}

static PyObject *device_management(PyObject *object, PyObject *Py_UNUSED(unused)) {
    bw_management found, *const m = &found;
    CORE_TRY(CORE_RUN, object, ask_management(session, &found));
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:d,s:N,s:d}", "library", core_text(m->library), "note",
                         core_text(m->note), "driver", core_text(m->driver), "ecc", truth_or_none(m->ecc),
                         "persistence", truth_or_none(m->persistence), "power_limit_w", m->power_limit_w, "link",
                         core_text(m->link), "link_gb_s", m->link_gb_s);
}

static bw_status ask_libraries(const bw_session *session, bw_library_info out[BW_LIBRARIES_MAX], int *count) {
    const bw_device_calls *devices = session->backend->devices;
    *count = 0;
    if (devices->libraries) devices->libraries(session->device, out, count);
    return BW_OK;
}

static PyObject *device_libraries(PyObject *object, PyObject *Py_UNUSED(unused)) {
    bw_library_info libraries[BW_LIBRARIES_MAX];
    int count;
    CORE_TRY(CORE_RUN, object, ask_libraries(session, libraries, &count));
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < count; i++) {
        const bw_library_info *found = &libraries[i];
        core_append(&list, Py_BuildValue("{s:s,s:s,s:N,s:N,s:N}", "name", found->name, "purpose", found->purpose,
                                         "path", core_text(found->path), "version", core_text(found->version), "note",
                                         core_text(found->note)));
    }
    return list;
}

static bw_status inject_fault(const bw_session *session, int64_t countdown, int64_t *made) {
    const bw_fault_calls *faults = session->backend->faults;
    if (!faults) {
        return bw_fail(BW_CODE_UNSUPPORTED, "the %s backend has no calls to make fail", session->backend->name);
    }
    *made = faults->calls_made(session->device);
    return faults->set(session->device, countdown);
}

static PyObject *device_inject_fault(PyObject *object, PyObject *args) {
    long long countdown;
    int64_t made = 0;
    if (!PyArg_ParseTuple(args, "L", &countdown)) return NULL;
    CORE_TRY(CORE_ASK, object, inject_fault(session, countdown, &made));
    return PyLong_FromLongLong(made);
}

static bw_status force_plan(const bw_session *session, int plan) {
    const bw_fault_calls *faults = session->backend->faults;
    if (!faults || plan < 0) return bw_fail(BW_CODE_UNSUPPORTED, "%s has no plan %d", session->backend->name, plan);
    faults->force_plan(session->device, plan);
    return BW_OK;
}

static PyObject *device_force_plan(PyObject *object, PyObject *args) {
    int plan;
    if (!PyArg_ParseTuple(args, "i", &plan)) return NULL;
    CORE_TRY(CORE_ASK, object, force_plan(session, plan));
    Py_RETURN_NONE;
}

/* Both are constant. *chosen NULL: none runs, and every row's refusal says why. */
static bw_status find_rows(const bw_session *session, const core_subject *subject, const bw_variant_table **table,
                           const bw_variant **chosen) {
    const bw_offer offer = bw_offer_of(session->backend, session->device, subject->index);
    *table = offer.table;
    bw_status_free(bw_variant_default(subject->op, &subject->dims, subject->precision, &offer, NULL, chosen));
    return BW_OK;
}

static bw_status find_refusal(const bw_session *session, const core_subject *subject, const bw_variant *row,
                              const char **refusal) {
    const char *found =
        bw_variant_refuses(row, &subject->dims, subject->precision, session->backend->devices->facts(session->device));
    *refusal = found ? found : "";
    return BW_OK;
}

/* The device is asked after the dict is made, since making one may close the device. */
static PyObject *row_dict(device_object *self, const core_subject *subject, const bw_variant_table *table,
                          const bw_variant *row, bool is_default) {
    const char *refusal;
    bw_status status;
    PyObject *dict = core_variant_dict(table, row);
    if (!dict) return NULL;
    CORE_ASK(status, self, find_refusal(session, subject, row, &refusal));
    PyObject *text = status ? core_raise((PyObject *)self, status) : PyUnicode_FromString(refusal);
    core_set(&dict, "refuses", text);
    core_set(&dict, "default", PyBool_FromLong(is_default));
    return dict;
}

static PyObject *device_variants(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "kv_lens", NULL};
    device_object *self = (device_object *)object;
    core_subject subject = {0};
    const bw_variant_table *table = &bw_no_variants;
    const bw_variant *chosen = NULL;
    bw_status status;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssO|O", names, CORE_SUBJECT(&subject))) return NULL;
    if (core_subject_read(object, &subject) < 0) return NULL;
    CORE_ASK(status, self, find_rows(session, &subject, &table, &chosen));
    PyObject *list = status ? core_raise(object, status) : PyList_New(0);
    for (int i = 0; list && i < table->count; i++) {
        const bw_variant *row = &table->rows[i];
        core_append(&list, row_dict(self, &subject, table, row, row == chosen));
    }
    core_subject_free(&subject);
    return list;
}

static bw_status describe_kernels(const bw_session *session, const core_subject *subject, const char *name,
                                  bw_kernels *out) {
    const bw_offer offer = bw_offer_of(session->backend, session->device, subject->index);
    const bw_dims *dims = &subject->dims;
    const bw_variant *variant;
    BW_TRY(bw_variant_find(subject->op, offer.table, name, &variant));
    const char *refusal = bw_variant_refuses(variant, dims, subject->precision, offer.facts);
    if (refusal) return bw_fail(BW_CODE_UNSUPPORTED, "%s", refusal);
    if (variant->describe) return variant->describe(session->device, dims, subject->precision, out);
    return bw_fail(BW_CODE_UNSUPPORTED, "%s",
                   session->backend->runs_on_host
                       ? "it runs on the host: no registers or shared memory of blocks"
                       : "a library's: it chooses its kernels while a case is prepared; ncu and nsys show them");
}

static PyObject *kernel_dict(const bw_kernel *kernel, PyObject *symbol) {
    return Py_BuildValue("{s:N,s:i,s:L,s:L,s:L,s:i,s:L,s:i}", "symbol", symbol, "registers", kernel->registers,
                         "local_bytes", (long long)kernel->local_bytes, "static_shared_bytes",
                         (long long)kernel->static_shared_bytes, "dynamic_shared_bytes",
                         (long long)kernel->dynamic_shared_bytes, "threads", kernel->threads, "blocks",
                         (long long)kernel->blocks, "resident_blocks", kernel->resident_blocks);
}

static PyObject *device_kernels(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "variant", "kv_lens", NULL};
    device_object *self = (device_object *)object;
    const char *variant;
    PyObject *symbols[BW_KERNELS_MAX] = {NULL};
    core_subject subject = {0};
    bw_kernels found = {.count = 0};
    bw_status status;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssOs|O", names, &subject.op_name, &subject.precision_name,
                                     &subject.params, &variant, &subject.kv_lens)) {
        return NULL;
    }
    if (core_subject_read(object, &subject) < 0) return NULL;
    CORE_RUN(status, self, describe_kernels(session, &subject, variant, &found));
    core_subject_free(&subject);
    if (status) return core_raise(object, status);
    /* The device's texts first: making a dict may close it. */
    for (int i = 0; i < found.count; i++) symbols[i] = core_text(found.kernel[i].symbol);
    PyObject *list = PyList_New(0);
    for (int i = 0; i < found.count; i++) core_append(&list, kernel_dict(&found.kernel[i], symbols[i]));
    return list;
}

enum { BACKEND, INDEX, STREAM, WATCHED };

static bw_status find_traits(const bw_session *session, const char **backend, void **stream, bool *watched) {
    const bw_context_calls *context = session->backend->context;
    *backend = session->backend->name;
    *stream = context ? context->stream(session->device) : NULL;
    *watched = bw_session_annotations(session) != NULL;
    return BW_OK;
}

static PyObject *get_trait(PyObject *object, void *trait) {
    const char *backend;
    void *stream;
    bool watched;
    if (trait == (void *)INDEX) return PyLong_FromLong(((device_object *)object)->index);
    CORE_TRY(CORE_ASK, object, find_traits(session, &backend, &stream, &watched));
    if (trait == (void *)BACKEND) return PyUnicode_FromString(backend);
    return trait == (void *)STREAM ? PyLong_FromVoidPtr(stream) : PyBool_FromLong(watched);
}

static PyMethodDef device_methods[] = {
    {"facts", device_facts, METH_NOARGS, "facts($self, /)\n--\n\n"},
    {"memory", device_memory, METH_NOARGS, "memory($self, /)\n--\n\n"},
    {"floor_ns", CORE_WITH_KEYWORDS(device_floor_ns), "floor_ns($self, /, timer=None)\n--\n\n"},
    {"limit_threads", device_limit_threads, METH_O, "limit_threads($self, threads, /)\n--\n\n"},
    {"conditions", device_conditions, METH_NOARGS, "conditions($self, /)\n--\n\n"},
    {"management", device_management, METH_NOARGS, "management($self, /)\n--\n\n"},
    {"libraries", device_libraries, METH_NOARGS, "libraries($self, /)\n--\n\n"},
    {"variants", CORE_WITH_KEYWORDS(device_variants),
     "variants($self, /, operation, precision, params, kv_lens=None)\n--\n\n"},
    {"kernels", CORE_WITH_KEYWORDS(device_kernels),
     "kernels($self, /, operation, precision, params, variant, kv_lens=None)\n--\n\n"},
    {"measure_call", CORE_WITH_KEYWORDS(core_device_measure_call),
     "measure_call($self, /, function, nothing, *, stream=0, sets=None, footprint_bytes=0, cache='cold', "
     "precision_target=0.005, min_samples=10, max_seconds=2.0, poll=None, timer=None, settled=False)\n--\n\n"},
    {"count_call", CORE_WITH_KEYWORDS(core_device_count_call), "count_call($self, /, function, *, sets=None)\n--\n\n"},
    {"count_call_metrics", CORE_WITH_KEYWORDS(core_device_count_call_metrics),
     "count_call_metrics($self, /, function, groups, *, sets=None)\n--\n\n"},
    {"release_profilers", device_release_profilers, METH_NOARGS, "release_profilers($self, /)\n--\n\n"},
    {"close", device_close, METH_NOARGS, "close($self, /)\n--\n\n"},
    {"_inject_fault", device_inject_fault, METH_VARARGS, "_inject_fault($self, countdown, /)\n--\n\n"},
    {"_force_plan", device_force_plan, METH_VARARGS, "_force_plan($self, plan, /)\n--\n\n"},
    {"__enter__", core_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n"},
    {"__exit__", device_close, METH_VARARGS, "__exit__($self, /, *exc)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef device_getset[] = {
    {"backend", get_trait, NULL, "the backend's name", (void *)BACKEND},
    {"index", get_trait, NULL, "the device's number within its backend", (void *)INDEX},
    {"stream", get_trait, NULL, "what its work is enqueued on: a cudaStream_t as an int, 0 on a CPU", (void *)STREAM},
    {"watched", get_trait, NULL, "whether a tool took NVTX ranges when it was opened", (void *)WATCHED},
    {NULL, NULL, NULL, NULL, NULL},
};

CORE_TYPE(device, "Device", "Device(backend, index=0)\n--\n\n", {Py_tp_methods, device_methods},
          {Py_tp_init, (void *)device_init});
