/* The functions of the module: lists of operations, precisions and backends, costs, and plain numbers. */
#include "base/clock.h"
#include "base/names.h"
#include "python/core.h"

static PyObject *precision_names(unsigned mask) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < BW_PRECISION_COUNT; i++) {
        const bw_precision *precision = bw_precision_get((bw_precision_id)i);
        if (bw_precision_in(mask, precision)) core_append(&list, PyUnicode_FromString(precision->name));
    }
    return list;
}

static PyObject *param_dict(const bw_param *param) {
    PyObject *fallback = param->fallback_from ? Py_NewRef(Py_None) : PyLong_FromLongLong(param->fallback);
    return Py_BuildValue("{s:s,s:s,s:s,s:N,s:z,s:L,s:L}", "name", param->name, "unit", param->unit, "text", param->text,
                         "default", fallback, "default_from", param->fallback_from, "minimum",
                         (long long)param->minimum, "maximum", (long long)param->maximum);
}

static PyObject *params_list(const bw_op *op) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < op->param_count; i++) core_append(&list, param_dict(&op->params[i]));
    return list;
}

PyObject *core_variant_dict(const bw_variant_table *table, const bw_variant *variant) {
    const bw_variant_prediction *prediction = &variant->prediction;
    PyObject *predicted = prediction->predicted > 0 ? PyFloat_FromDouble(prediction->predicted) : Py_NewRef(Py_None);
    return Py_BuildValue("{s:s,s:s,s:z,s:N,s:z,s:z,s:N}", "name", variant->name, "text", variant->text, "changes",
                         prediction->changes, "predicted", predicted, "because", prediction->because, "at",
                         prediction->at ? prediction->at : table->at, "precisions",
                         precision_names(variant->precisions));
}

static PyObject *variants_dict(int op_index) {
    PyObject *dict = PyDict_New();
    for (int b = 0; dict && b < bw_backend_count(); b++) {
        const bw_backend *backend = bw_backend_at(b);
        if (!backend->built) continue;
        const bw_variant_table *table = backend->devices->variants(NULL, op_index);
        PyObject *list = PyList_New(0);
        for (int i = 0; list && i < table->count; i++) core_append(&list, core_variant_dict(table, &table->rows[i]));
        core_set(&dict, backend->name, list);
    }
    return dict;
}

static PyObject *operations(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < bw_op_count(); i++) {
        const bw_op *op = bw_op_at(i);
        PyObject *item =
            Py_BuildValue("{s:s,s:s,s:s,s:O,s:O,s:O,s:O,s:N,s:{s:s,s:s,s:s},s:N,s:N}", "name", op->name, "family",
                          op->family, "text", op->text, "takes_kv_lens", op->list ? Py_True : Py_False, "is_stream",
                          op->is_stream ? Py_True : Py_False, "is_link", op->is_link ? Py_True : Py_False, "is_product",
                          op->is_product ? Py_True : Py_False, "precisions", precision_names(op->precisions),
                          "formulas", "bytes_read", op->formula.bytes_read, "bytes_written", op->formula.bytes_written,
                          "flops", op->formula.flops, "params", params_list(op), "variants", variants_dict(i));
        core_append(&list, item);
    }
    return list;
}

static const char *type_name(bw_dtype dtype) {
    return dtype == BW_NONE ? NULL : bw_dtype_get(dtype)->name;
}

static PyObject *scaling_dict(const bw_scaling *scaling) {
    if (scaling->type == BW_NONE) Py_RETURN_NONE;
    return Py_BuildValue("{s:s,s:i,s:i,s:z,s:z}", "type", type_name(scaling->type), "rows", scaling->rows, "columns",
                         scaling->columns, "zero", type_name(scaling->zero), "whole", type_name(scaling->whole));
}

static PyObject *precisions(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < BW_PRECISION_COUNT; i++) {
        const bw_precision *row = bw_precision_get((bw_precision_id)i);
        PyObject *item =
            Py_BuildValue("{s:s,s:z,s:z,s:z,s:z,s:z,s:N,s:N,s:N,s:s}", "name", row->name, "activation",
                          type_name(row->activation), "weight", type_name(row->weight), "cache", type_name(row->cache),
                          "result", type_name(row->result), "compute", type_name(row->compute), "activation_scales",
                          scaling_dict(row->activation_scales), "weight_scales", scaling_dict(row->weight_scales),
                          "cache_scales", scaling_dict(row->cache_scales), "text", row->text);
        core_append(&list, item);
    }
    return list;
}

static PyObject *matrix_bytes(PyObject *module, PyObject *args) {
    static const char *const roles[] = {"activation", "weight", "cache", "result", NULL};
    const char *name, *role;
    long long rows, columns;
    char allowed[64];
    int64_t bytes;
    const bw_precision *precision;
    if (!PyArg_ParseTuple(args, "ssLL", &name, &role, &rows, &columns)) return NULL;
    if (core_check(module, bw_precision_find(name, &precision)) < 0) return NULL;
    const int index = bw_name_find(role, bw_name_of_text, roles, allowed, sizeof allowed);
    if (index < 0) {
        return core_raise(module, bw_fail(BW_CODE_INVALID, "unknown role '%.200s': allowed are %s", role, allowed));
    }
    if (rows < 0 || columns < 0) {
        return core_raise(module, bw_fail(BW_CODE_INVALID, "a matrix of %lld x %lld has no bytes", rows, columns));
    }
    static const bw_scaling none = {.type = BW_NONE};
    const bw_dtype types[] = {precision->activation, precision->weight, precision->cache, precision->result};
    const bw_scaling *const scales[] = {precision->activation_scales, precision->weight_scales, precision->cache_scales,
                                        &none};
    if (core_check(module, bw_matrix_bytes(types[index], scales[index], rows, columns, &bytes)) < 0) return NULL;
    return PyLong_FromLongLong(bytes);
}

static PyObject *dtypes(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < BW_DTYPE_COUNT; i++) {
        const bw_dtype_info *info = bw_dtype_get((bw_dtype)i);
        if (!info->encode_blocks) continue;
        PyObject *item =
            Py_BuildValue("{s:s,s:i,s:i,s:d,s:d,s:O,s:s}", "name", info->name, "block_elems", info->block_elems,
                          "block_bytes", info->block_bytes, "bits", 8.0 * info->block_bytes / info->block_elems,
                          "roundoff", bw_dtype_roundoff((bw_dtype)i), "narrow",
                          info->kind == BW_KIND_BITS ? Py_True : Py_False, "text", info->text);
        core_append(&list, item);
    }
    return list;
}

static PyObject *backend_devices(PyObject *module, const bw_backend *backend, char *reason, size_t reason_size) {
    int count = 0;
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    if (!backend->built) {
        PyOS_snprintf(reason, reason_size, "%s", backend->absence);
        return list;
    }
    bw_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = backend->devices->count(&count, reason, reason_size);
    Py_END_ALLOW_THREADS;
    for (int i = 0; list && !status && i < count; i++) {
        char name[128];
        Py_BEGIN_ALLOW_THREADS;
        status = backend->devices->name(i, name, sizeof name);
        Py_END_ALLOW_THREADS;
        if (!status) core_append(&list, Py_BuildValue("{s:i,s:N}", "index", i, "name", core_text(name)));
    }
    if (core_check(module, status) < 0) Py_CLEAR(list);
    return list;
}

static PyObject *names_list(const char *const *names) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && names && names[i]; i++) core_append(&list, PyUnicode_FromString(names[i]));
    return list;
}

static PyObject *backends(PyObject *module, PyObject *Py_UNUSED(unused)) {
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < bw_backend_count(); i++) {
        const bw_backend *backend = bw_backend_at(i);
        char reason[256] = "";
        PyObject *devices = backend_devices(module, backend, reason, sizeof reason);
        PyObject *item =
            devices ? Py_BuildValue("{s:s,s:s,s:O,s:N,s:N,s:N,s:N}", "name", backend->name, "text", backend->text,
                                    "built", backend->built ? Py_True : Py_False, "reason", core_text(reason),
                                    "devices", devices, "timers", names_list(backend->timers), "metrics",
                                    names_list(backend->counters ? backend->counters->groups : NULL))
                    : NULL;
        core_append(&list, item);
    }
    return list;
}

static const char *backend_name_at(const void *unused, int index) {
    (void)unused;
    return index < bw_backend_count() ? bw_backend_at(index)->name : NULL;
}

static PyObject *backend_facts(PyObject *module, PyObject *args) {
    const char *name;
    char allowed[64];
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    int index = bw_name_find(name, backend_name_at, NULL, allowed, sizeof allowed);
    if (index < 0) {
        return core_raise(module, bw_fail(BW_CODE_INVALID, "unknown backend '%.200s': allowed are %s", name, allowed));
    }
    const bw_backend *backend = bw_backend_at(index);
    const bw_budgets *budgets = &backend->budgets;
    return Py_BuildValue(
        "{s:O,s:O,s:N,s:s,s:s,s:L,s:d,s:d,s:d,s:d,s:d}", "runs_on_host", backend->runs_on_host ? Py_True : Py_False,
        "has_streams", backend->context ? Py_True : Py_False, "call_timers", names_list(backend->call_timers),
        "range_clock", backend->marks ? backend->marks->clock : "", "remedy", backend->remedy ? backend->remedy : "",
        "largest_stream_bytes", (long long)budgets->largest_stream_bytes, "cold_streams_s", budgets->cold_streams_s,
        "hot_streams_s", budgets->hot_streams_s, "cold_point_s", budgets->cold_point_s, "hot_point_s",
        budgets->hot_point_s, "guessed_gb_s", budgets->guessed_gb_s);
}

/* A variant of a backend that need not have a device; both NULL: the compulsory cost alone. */
static bw_status find_variant(const char *backend_name, const char *variant_name, int op_index,
                              const bw_variant **out) {
    const bw_backend *backend;
    *out = NULL;
    if (!variant_name) return BW_OK;
    if (!backend_name) return bw_fail(BW_CODE_INVALID, "variant '%.200s' needs a backend", variant_name);
    BW_TRY(bw_backend_find(backend_name, &backend));
    return bw_variant_find(bw_op_at(op_index), backend->devices->variants(NULL, op_index), variant_name, out);
}

static PyObject *complete(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "kv_lens", NULL};
    core_subject subject = {0};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssO|O", names, CORE_SUBJECT(&subject))) return NULL;
    if (core_subject_read(module, &subject) < 0) return NULL;
    PyObject *result = core_params_dict(subject.op, &subject.dims);
    core_subject_free(&subject);
    return result;
}

static PyObject *cost(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "kv_lens", "backend", "variant", NULL};
    const char *backend = NULL, *variant_name = NULL;
    core_subject subject = {0};
    const bw_variant *variant;
    bw_cost result;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssO|Ozz", names, CORE_SUBJECT(&subject), &backend, &variant_name)) {
        return NULL;
    }
    if (core_subject_read(module, &subject) < 0) return NULL;
    bw_status status = find_variant(backend, variant_name, subject.index, &variant);
    if (!status) status = bw_cost_of(subject.op, variant, &subject.dims, subject.precision, NULL, &result);
    core_subject_free(&subject);
    return status ? core_raise(module, status) : core_cost_dict(&result);
}

/* A row of costs is a bw_cost: all its members are int64_t. */
enum { COST_COLUMNS = sizeof(bw_cost) / sizeof(int64_t) };

/* Of int64 in buffers that may begin anywhere. */
static bw_status cost_rows(const bw_op *op, const bw_precision *precision, const bw_variant *variant,
                           const char *values, int64_t rows, char *out) {
    const size_t bytes = (size_t)op->param_count * sizeof(int64_t);
    for (int64_t row = 0; row < rows; row++) {
        bw_dims dims = {.list = NULL};
        bw_cost cost;
        memcpy(dims.value, values + (size_t)row * bytes, bytes);
        BW_TRY(bw_op_complete(op, precision, ~0u, &dims));
        BW_TRY(bw_cost_of(op, variant, &dims, precision, NULL, &cost));
        memcpy(out + (size_t)row * sizeof cost, &cost, sizeof cost);
    }
    return BW_OK;
}

static PyObject *cost_many(PyObject *module, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "values", "out", "backend", "variant", NULL};
    const char *op_name, *precision_name, *backend = NULL, *variant_name = NULL;
    Py_buffer values, out;
    int index;
    const bw_precision *precision;
    const bw_variant *variant = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssy*w*|zz", names, &op_name, &precision_name, &values, &out,
                                     &backend, &variant_name)) {
        return NULL;
    }
    bw_status status = bw_op_find(op_name, &index);
    if (!status) status = bw_precision_find(precision_name, &precision);
    if (!status) status = find_variant(backend, variant_name, index, &variant);
    if (!status) {
        const bw_op *op = bw_op_at(index);
        Py_ssize_t row_bytes = (Py_ssize_t)(op->param_count * sizeof(int64_t));
        Py_ssize_t rows = values.len / row_bytes;
        if (values.len % row_bytes || out.len != rows * (Py_ssize_t)(COST_COLUMNS * sizeof(int64_t))) {
            status = bw_fail(BW_CODE_INVALID, "cost_many of %s: values must be int64 (n, %d), out int64 (n, %d)",
                             op_name, op->param_count, COST_COLUMNS);
        } else {
            status = cost_rows(op, precision, variant, values.buf, rows, out.buf);
        }
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&out);
    if (status) return core_raise(module, status);
    Py_RETURN_NONE;
}

static PyObject *current_device(PyObject *module, PyObject *args) {
    const char *name;
    const bw_backend *backend;
    int index = 0;
    if (!PyArg_ParseTuple(args, "s", &name)) return NULL;
    bw_status status = bw_backend_find(name, &backend);
    if (!status && backend->context) status = backend->context->current(&index);
    return status ? core_raise(module, status) : PyLong_FromLong(index);
}

static PyObject *make_current(PyObject *module, PyObject *args) {
    const char *name;
    const bw_backend *backend;
    int index;
    if (!PyArg_ParseTuple(args, "si", &name, &index)) return NULL;
    bw_status status = bw_backend_find(name, &backend);
    if (!status && backend->context) status = backend->context->make_current(index);
    if (status) return core_raise(module, status);
    Py_RETURN_NONE;
}

static PyObject *bandwidth_gb_s(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"bytes", "seconds", NULL};
    double bytes, seconds;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "dd", names, &bytes, &seconds)) return NULL;
    return PyFloat_FromDouble(bw_gb_s(bytes, seconds));
}

static PyObject *case_seconds(PyObject *Py_UNUSED(module), PyObject *args) {
    double seconds_left, most;
    long long cases_left;
    if (!PyArg_ParseTuple(args, "dLd", &seconds_left, &cases_left, &most)) return NULL;
    if (cases_left < 1) return PyErr_Format(PyExc_ValueError, "cases_left = %lld: allowed is 1 or more", cases_left);
    return PyFloat_FromDouble(bw_case_seconds(seconds_left, cases_left, most));
}

static PyObject *statistics(PyObject *Py_UNUSED(module), PyObject *samples) {
    Py_buffer view;
    if (PyObject_GetBuffer(samples, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return NULL;
    bool right = view.itemsize == sizeof(double) && view.format && strcmp(view.format, "d") == 0 && view.len > 0;
    int64_t count = view.len / (Py_ssize_t)sizeof(double);
    double *scratch = right ? PyMem_New(double, bw_statistics_scratch(count)) : NULL;
    bool computed = scratch != NULL;
    bw_statistics s = {0};
    if (computed) s = bw_statistics_of(view.buf, count, scratch);
    PyMem_Free(scratch);
    PyBuffer_Release(&view);
    if (!right) return PyErr_Format(PyExc_ValueError, "samples must be a buffer of at least one float64");
    if (!computed) return PyErr_NoMemory();
    return Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:L,s:O,s:d}", "median_ns", s.median, "lo_ns", s.low, "hi_ns", s.high,
                         "min_ns", s.minimum, "noise", s.noise, "count", (long long)s.count, "two_states",
                         s.two_states ? Py_True : Py_False, "drift", s.drift);
}

static PyObject *convert(PyObject *module, PyObject *args, bool encode) {
    const char *name;
    Py_buffer view;
    bw_dtype dtype;
    if (!PyArg_ParseTuple(args, "sy*", &name, &view)) return NULL;
    bw_status status = bw_dtype_find(name, &dtype);
    Py_ssize_t item = status ? 1 : (Py_ssize_t)(encode ? sizeof(float) : (size_t)bw_dtype_bytes(dtype, 1));
    PyObject *result = NULL;
    if (!status && view.len % item) {
        status = bw_fail(BW_CODE_INVALID, "%zd bytes are no whole number of %s values of %zd bytes", view.len,
                         encode ? "float32" : name, item);
    }
    if (!status) {
        int64_t count = view.len / item * (encode ? 1 : bw_dtype_get(dtype)->block_elems);
        int64_t bytes = encode ? bw_dtype_bytes(dtype, count) : count * (int64_t)sizeof(float);
        result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
        if (result) {
            void *out = PyBytes_AS_STRING(result);
            status =
                encode ? bw_dtype_encode(dtype, view.buf, count, out) : bw_dtype_decode(dtype, view.buf, count, out);
        }
    }
    PyBuffer_Release(&view);
    if (!status) return result;
    Py_XDECREF(result);
    return core_raise(module, status);
}

static PyObject *encode(PyObject *module, PyObject *args) {
    return convert(module, args, true);
}

static PyObject *decode(PyObject *module, PyObject *args) {
    return convert(module, args, false);
}

PyMethodDef core_methods[] = {
    {"operations", operations, METH_NOARGS, "operations()\n--\n\n"},
    {"precisions", precisions, METH_NOARGS, "precisions()\n--\n\n"},
    {"dtypes", dtypes, METH_NOARGS, "dtypes()\n--\n\n"},
    {"backends", backends, METH_NOARGS, "backends()\n--\n\n"},
    {"backend_facts", backend_facts, METH_VARARGS, "backend_facts(backend, /)\n--\n\n"},
    {"complete", CORE_WITH_KEYWORDS(complete), "complete(operation, precision, params, kv_lens=None)\n--\n\n"},
    {"cost", CORE_WITH_KEYWORDS(cost),
     "cost(operation, precision, params, kv_lens=None, backend=None, variant=None)\n--\n\n"},
    {"cost_many", CORE_WITH_KEYWORDS(cost_many),
     "cost_many(operation, precision, values, out, backend=None, variant=None)\n--\n\n"},
    {"current_device", current_device, METH_VARARGS, "current_device(backend, /)\n--\n\n"},
    {"make_current", make_current, METH_VARARGS, "make_current(backend, index, /)\n--\n\n"},
    {"bandwidth_gb_s", CORE_WITH_KEYWORDS(bandwidth_gb_s), "bandwidth_gb_s(bytes, seconds)\n--\n\n"},
    {"case_seconds", case_seconds, METH_VARARGS, "case_seconds(seconds_left, cases_left, most, /)\n--\n\n"},
    {"statistics", statistics, METH_O, "statistics(samples_ns, /)\n--\n\n"},
    {"matrix_bytes", matrix_bytes, METH_VARARGS, "matrix_bytes(precision, role, rows, columns, /)\n--\n\n"},
    {"encode", encode, METH_VARARGS, "encode(dtype, values, /)\n--\n\n"},
    {"decode", decode, METH_VARARGS, "decode(dtype, data, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
