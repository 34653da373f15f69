/* Reads the arguments of Python's calls, and makes dicts of parameters and costs. */
#include "base/names.h"
#include "python/core.h"

/* A new dict of any mapping's items: Python code cannot change it while it is read. */
static PyObject *dict_of(const char *argument, PyObject *mapping) {
    PyObject *keys = PyObject_GetAttrString(mapping, "keys"), *dict = keys ? PyDict_New() : NULL;
    if (!keys && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Format(PyExc_TypeError, "%s must be a mapping of names to values, not %.200R", argument, mapping);
    }
    Py_XDECREF(keys);
    if (dict && PyDict_Update(dict, mapping) < 0) Py_CLEAR(dict);
    return dict;
}

const char *core_name(PyObject *key) {
    Py_ssize_t size = 0;
    const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &size) : NULL;
    if (!name) PyErr_Clear(); /* a lone surrogate */
    return name && strlen(name) == (size_t)size ? name : NULL;
}

int core_read_int64(const char *op_name, const char *name, PyObject *value, int64_t *out) {
    const char *prefix = op_name ? op_name : "", *separator = op_name ? ": " : "";
    PyObject *integer = PyBool_Check(value) ? PyNumber_Long(value) : PyNumber_Index(value);
    if (!integer && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Format(PyExc_ValueError, "%s%s%s = %.200R: allowed is a whole number", prefix, separator, name, value);
    }
    if (!integer) return -1;
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(integer, &overflow);
    Py_DECREF(integer);
    if (overflow) return core_refuse("%s%s%s = %.200R overflows 64 bits", prefix, separator, name, value);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

int core_convert_int64(PyObject *value, void *integer) {
    const core_integer *self = integer;
    return core_read_int64(NULL, self->name, value, self->out) == 0;
}

int core_convert_seed(PyObject *value, void *out) {
    PyObject *integer = PyNumber_Index(value);
    if (!integer) return 0;
    *(uint64_t *)out = PyLong_AsUnsignedLongLong(integer);
    Py_DECREF(integer);
    if (PyErr_Occurred()) core_refuse("seed = %.200R: allowed is 0 to 2^64 - 1", value);
    return !PyErr_Occurred();
}

int core_read_choice(const char *argument, const char *name, const char *const *names) {
    char allowed[64];
    int index = bw_name_find(name, bw_name_of_text, names, allowed, sizeof allowed);
    if (index < 0) PyErr_Format(PyExc_ValueError, "%s = '%.200s': allowed are %s", argument, name, allowed);
    return index;
}

int core_read_cache(const char *name, bw_cache *out) {
    static const char *const caches[] = {[BW_CACHE_COLD] = "cold", [BW_CACHE_HOT] = "hot", NULL};
    int index = core_read_choice("cache", name, caches);
    *out = (bw_cache)index;
    return index < 0 ? -1 : 0;
}

/* Whether an array's items can be an operand's elements: a letter of the struct module, for the machine's own order. */
static bool items_fit(const bw_operand *operand, const Py_buffer *view) {
    const bw_dtype_info *info = bw_dtype_get(operand->dtype);
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=' || *format == (PY_BIG_ENDIAN ? '>' : '<')) format++;
    if (!*format || format[1]) return false;
    if (strchr("Bbc", *format)) return true; /* bytes, of whatever they are */
    if (view->itemsize != info->block_bytes) return false;
    if (info->kind == BW_KIND_INDEX) return strchr("hHiIlLqQnN", *format) != NULL;
    if (strchr("HILQN", *format)) return true; /* stored bits */
    return *format == info->item;
}

/* Copied where the values are checked: a copy is aligned, and nobody changes it between the check and the use. */
static int take_view(const bw_operand *operand, PyObject *array, Py_buffer *out) {
    if (PyObject_GetBuffer(array, out, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return -1;
    if (!items_fit(operand, out)) {
        return core_refuse(
            "%s: array has items '%s' of %zd bytes: allowed are bytes, or %s items of %d bytes in this machine's "
            "byte order",
            operand->name, out->format, out->itemsize, bw_dtype_get(operand->dtype)->name,
            bw_dtype_get(operand->dtype)->block_bytes);
    }
    if (out->len != operand->bytes) {
        return core_refuse("%s: array has %zd bytes: allowed is %lld", operand->name, out->len,
                           (long long)operand->bytes);
    }
    if (!bw_operand_ranged(operand)) return 0;
    PyObject *copy = PyBytes_FromStringAndSize(out->buf, out->len);
    PyBuffer_Release(out);
    if (!copy) return -1;
    int result = PyObject_GetBuffer(copy, out, PyBUF_C_CONTIGUOUS);
    Py_DECREF(copy);
    return result;
}

/* Page and slot ids index memory. Lengths are the case's own: variants divide work by them before there are arrays. */
static bw_status check_indices(const bw_case_spec *spec, const bw_operand *operand, const void *data) {
    const int64_t *list = operand->recipe == BW_RECIPE_LIST ? spec->dims.list : NULL;
    for (int64_t i = 0; i < operand->elems; i++) {
        int64_t value = operand->dtype == BW_I64 ? ((const int64_t *)data)[i] : ((const int32_t *)data)[i];
        if (list && value == list[i]) continue;
        if (list) {
            return bw_fail(BW_CODE_INVALID,
                           "%s element %lld is %lld: allowed is the case's own, %lld; make a case of other lengths",
                           operand->name, (long long)i, (long long)value, (long long)list[i]);
        }
        if (value >= operand->minimum && value <= operand->maximum) continue;
        return bw_fail(BW_CODE_INVALID, "%s element %lld is %lld: allowed is %lld to %lld", operand->name, (long long)i,
                       (long long)value, (long long)operand->minimum, (long long)operand->maximum);
    }
    return BW_OK;
}

static int take_one(PyObject *object, const bw_case_spec *spec, bool outputs, PyObject *key, PyObject *array,
                    core_arrays *out) {
    const char *name = core_name(key);
    int index = name ? bw_operand_find(spec->operands, spec->operand_count, name) : -1;
    if (index < 0 || spec->operands[index].role == (outputs ? BW_IN : BW_OUT)) {
        return core_refuse("%s has no %s array %.200R", spec->op->name, outputs ? "output" : "input", key);
    }
    /* keys of a subclass of str can be of one text, and differ */
    if (out->views[index].obj) return core_refuse("%s: %s is given twice", spec->op->name, name);
    const bw_operand *operand = &spec->operands[index];
    if (take_view(operand, array, &out->views[index]) < 0) return -1;
    out->data[index] = out->views[index].buf;
    bw_status status = outputs || !bw_operand_ranged(operand) ? BW_OK : check_indices(spec, operand, out->data[index]);
    return core_check(object, status);
}

int core_arrays_take(PyObject *object, const bw_case_spec *spec, bool outputs, PyObject *mapping, core_arrays *out) {
    PyObject *arrays = dict_of(outputs ? "outputs" : "arrays", mapping), *key, *array;
    Py_ssize_t position = 0;
    int result = arrays ? 0 : -1;
    while (result == 0 && PyDict_Next(arrays, &position, &key, &array)) {
        result = take_one(object, spec, outputs, key, array, out);
    }
    Py_XDECREF(arrays);
    return result;
}

void core_arrays_release(core_arrays *arrays) {
    for (int i = 0; i < BW_MAX_OPERANDS; i++) {
        if (arrays->views[i].obj) PyBuffer_Release(&arrays->views[i]);
    }
}

static int refuse_param(const bw_op *op, PyObject *key) {
    char allowed[256] = "";
    for (int i = 0; i < op->param_count; i++) {
        size_t used = strlen(allowed);
        PyOS_snprintf(allowed + used, sizeof allowed - used, "%s%s", i ? ", " : "", op->params[i].name);
    }
    return core_refuse("%s has no parameter %.200R: allowed are %s%s%s", op->name, key, allowed,
                       op->list ? " and " : "", op->list ? op->list : "");
}

static int read_param(const bw_op *op, PyObject *key, PyObject *value, unsigned *present, bw_dims *dims) {
    const char *name = core_name(key);
    int index = name ? bw_op_param_index(op, name) : -1;
    if (index < 0) return refuse_param(op, key);
    if (*present & 1u << index) return core_refuse("%s: %s is given twice", op->name, name);
    *present |= 1u << index;
    return core_read_int64(op->name, name, value, &dims->value[index]);
}

static int read_params(const bw_op *op, PyObject *params, unsigned *present, bw_dims *dims) {
    PyObject *dict = dict_of("params", params), *key, *value;
    Py_ssize_t position = 0;
    int result = dict ? 0 : -1;
    while (result == 0 && PyDict_Next(dict, &position, &key, &value)) {
        result = read_param(op, key, value, present, dims);
    }
    Py_XDECREF(dict);
    return result;
}

static int read_lengths(const bw_op *op, PyObject *tuple, core_subject *out) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (!count) return core_refuse("%s: %s is empty: allowed is one length per batch entry", op->name, op->list);
    int64_t *lengths = out->list = PyMem_New(int64_t, count);
    out->dims.list = lengths;
    out->dims.list_count = count;
    if (!lengths) PyErr_NoMemory();
    for (Py_ssize_t i = 0; lengths && i < count; i++) {
        if (core_read_int64(op->name, op->list, PyTuple_GET_ITEM(tuple, i), &lengths[i]) < 0) return -1;
        if (lengths[i] >= 1) continue;
        return core_refuse("%s: %s[%zd] = %lld: allowed is 1 or more", op->name, op->list, i, (long long)lengths[i]);
    }
    return lengths ? 0 : -1;
}

/* The operation's list, which every caller's argument calls kv_lens. */
static int read_list(const bw_op *op, PyObject *lengths, core_subject *out) {
    if (!op->list) return core_refuse("%s takes no kv_lens: its sequences are all of one length", op->name);
    bool is_list = PySequence_Check(lengths) || PyIter_Check(lengths);
    if (!is_list || PyUnicode_Check(lengths) || PyBytes_Check(lengths)) {
        PyErr_Format(PyExc_TypeError, "%s: %s must be a sequence of lengths, not %.200R", op->name, op->list, lengths);
        return -1;
    }
    PyObject *tuple = PySequence_Tuple(lengths); /* which Python code cannot change while it is read */
    int result = tuple ? read_lengths(op, tuple, out) : -1;
    Py_XDECREF(tuple);
    return result;
}

int core_subject_read(PyObject *object, core_subject *self) {
    unsigned present = 0;
    bw_status status = bw_op_find(self->op_name, &self->index);
    if (!status) status = bw_precision_find(self->precision_name, &self->precision);
    if (core_check(object, status) < 0) return -1;
    self->op = bw_op_at(self->index);
    bool listed = self->kv_lens && self->kv_lens != Py_None;
    bool read = read_params(self->op, self->params, &present, &self->dims) == 0 &&
                (!listed || read_list(self->op, self->kv_lens, self) == 0);
    if (read) status = bw_op_complete(self->op, self->precision, present, &self->dims);
    if (core_check(object, status) == 0 && read) return 0;
    core_subject_free(self);
    return -1;
}

void core_subject_free(core_subject *subject) {
    PyMem_Free(subject->list);
    subject->list = NULL;
}

PyObject *core_params_dict(const bw_op *op, const bw_dims *dims) {
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < op->param_count; i++) {
        core_set(&dict, op->params[i].name, PyLong_FromLongLong(dims->value[i]));
    }
    return dict;
}

PyObject *core_cost_dict(const bw_cost *cost) {
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L}", "bytes_read", (long long)cost->bytes_read, "bytes_written",
                         (long long)cost->bytes_written, "flops", (long long)cost->flops, "algorithmic_bytes_read",
                         (long long)cost->algorithmic_bytes_read, "algorithmic_bytes_written",
                         (long long)cost->algorithmic_bytes_written, "footprint_bytes",
                         (long long)cost->footprint_bytes);
}
