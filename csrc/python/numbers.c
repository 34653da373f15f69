/* Functions on plain numbers: bandwidth, statistics, and the bits of a type. */
#include "base/clock.h"
#include "python/core.h"

/* ---- bandwidth ---- */

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
    if (cases_left < 1) {
        return PyErr_Format(PyExc_ValueError, "cases_left = %lld: allowed is 1 or more", cases_left);
    }
    return PyFloat_FromDouble(bw_case_seconds(seconds_left, cases_left, most));
}

/* ---- statistics ---- */

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

/* ---- bits ---- */

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

PyMethodDef core_number_methods[] = {
    {"bandwidth_gb_s", CORE_WITH_KEYWORDS(bandwidth_gb_s),
     "bandwidth_gb_s(bytes, seconds)\n--\n\nbytes / seconds / 1e9."},
    {"case_seconds", case_seconds, METH_VARARGS,
     "case_seconds(seconds_left, cases_left, most, /)\n--\n\nSeconds of sampling for a run's next case."},
    {"statistics", statistics, METH_O,
     "statistics(samples_ns, /)\n--\n\nMedian, its confidence interval, noise, states, drift."},
    {"encode", encode, METH_VARARGS, "encode(dtype, values, /)\n--\n\nfloat32 values to stored bits."},
    {"decode", decode, METH_VARARGS, "decode(dtype, data, /)\n--\n\nStored bits to float32 values."},
    {NULL, NULL, 0, NULL},
};
