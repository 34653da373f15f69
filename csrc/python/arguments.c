/* From Python's arguments to dims, and back. */
#include "python/core.h"

int core_set(PyObject *dict, const char *key, PyObject *value) {
    if (!value) return -1;
    int result = PyDict_SetItemString(dict, key, value);
    Py_DECREF(value);
    return result;
}

bw_status core_find_op(const char *name, int *index, const bw_op **op) {
    BW_TRY(bw_op_find(name, index));
    *op = bw_op_at(*index);
    return BW_OK;
}

/* An integer, or anything with __index__; 0 or -1 with an exception that names the parameter. */
static int read_int64(const char *op_name, const char *name, PyObject *value, int64_t *out) {
    PyObject *integer = PyBool_Check(value) ? PyNumber_Long(value) : PyNumber_Index(value);
    if (!integer) {
        PyErr_Format(PyExc_ValueError, "%s: %s = %R: allowed is a whole number", op_name, name, value);
        return -1;
    }
    int overflow;
    *out = PyLong_AsLongLongAndOverflow(integer, &overflow);
    Py_DECREF(integer);
    if (overflow) {
        PyErr_Format(PyExc_ValueError, "%s: %s = %R overflows 64 bits", op_name, name, value);
        return -1;
    }
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static void unknown_param(const bw_op *op, PyObject *key) {
    char allowed[256] = "";
    for (int i = 0; i < op->param_count; i++) {
        size_t used = strlen(allowed);
        PyOS_snprintf(allowed + used, sizeof allowed - used, "%s%s", i ? ", " : "", op->params[i].name);
    }
    PyErr_Format(PyExc_ValueError, "%s has no parameter %R: allowed are %s%s", op->name, key, allowed,
                 op->takes_kv_lens ? " and kv_lens" : "");
}

static int read_params(const bw_op *op, PyObject *params, unsigned *given, bw_dims *dims) {
    PyObject *items = PyMapping_Items(params);
    if (!items) return -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); i++) {
        PyObject *pair = PyList_GET_ITEM(items, i);
        PyObject *key = PyTuple_GET_ITEM(pair, 0);
        const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        int index = name ? bw_op_param_index(op, name) : -1;
        if (index < 0) {
            if (!PyErr_Occurred()) unknown_param(op, key);
            Py_DECREF(items);
            return -1;
        }
        if (read_int64(op->name, name, PyTuple_GET_ITEM(pair, 1), &dims->value[index]) < 0) {
            Py_DECREF(items);
            return -1;
        }
        *given |= 1u << index;
    }
    Py_DECREF(items);
    return 0;
}

static int read_kv_lens(const bw_op *op, PyObject *kv_lens, unsigned *given, core_dims *out) {
    PyObject *sequence = PySequence_Fast(kv_lens, "kv_lens must be a sequence of lengths");
    if (!sequence) return -1;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
    int64_t longest = 0;
    out->kv_lens = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *out->kv_lens);
    if (!out->kv_lens) {
        Py_DECREF(sequence);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (read_int64(op->name, "kv_lens", PySequence_Fast_GET_ITEM(sequence, i), &out->kv_lens[i]) < 0) {
            Py_DECREF(sequence);
            return -1;
        }
        longest = bw_max64(longest, out->kv_lens[i]);
    }
    Py_DECREF(sequence);
    out->dims.kv_lens = out->kv_lens;
    out->dims.kv_lens_count = count;
    /* The lengths say both unless the caller does: the batch is their number, kv_len their maximum. */
    int batch = bw_op_param_index(op, "batch"), kv_len = bw_op_param_index(op, "kv_len");
    if (op->takes_kv_lens && !(*given & (1u << batch))) {
        out->dims.value[batch] = count;
        *given |= 1u << batch;
    }
    if (op->takes_kv_lens && !(*given & (1u << kv_len))) {
        out->dims.value[kv_len] = longest;
        *given |= 1u << kv_len;
    }
    return 0;
}

int core_dims_read(core_state *state, const bw_op *op, bw_dtype dtype, PyObject *params, PyObject *kv_lens,
                   core_dims *out) {
    unsigned given = 0;
    memset(out, 0, sizeof *out);
    if (read_params(op, params, &given, &out->dims) < 0) return -1;
    if (kv_lens && kv_lens != Py_None && read_kv_lens(op, kv_lens, &given, out) < 0) {
        core_dims_free(out);
        return -1;
    }
    bw_status status = bw_op_complete(op, dtype, given, &out->dims);
    if (status) {
        core_dims_free(out);
        core_raise(state, status);
        return -1;
    }
    return 0;
}

void core_dims_free(core_dims *dims) {
    PyMem_Free(dims->kv_lens);
    dims->kv_lens = NULL;
}

PyObject *core_params_dict(const bw_op *op, const bw_dims *dims) {
    PyObject *dict = PyDict_New();
    for (int i = 0; dict && i < op->param_count; i++) {
        if (core_set(dict, op->params[i].name, PyLong_FromLongLong(dims->value[i])) < 0) Py_CLEAR(dict);
    }
    return dict;
}

PyObject *core_cost_dict(const bw_cost *cost, int64_t footprint_bytes) {
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L}", "bytes_read", (long long)cost->bytes_read, "bytes_written",
                         (long long)cost->bytes_written, "flops", (long long)cost->flops, "algorithmic_bytes_read",
                         (long long)cost->algorithmic_bytes_read, "algorithmic_bytes_written",
                         (long long)cost->algorithmic_bytes_written, "footprint_bytes", (long long)footprint_bytes);
}
