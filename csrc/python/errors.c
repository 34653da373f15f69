/* Statuses become exceptions of Python, texts of C become str, and rows become lists and dicts. */
#include "python/core.h"

PyObject *core_text(const char *text) {
    return !text ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

PyObject **core_types(PyObject *object) {
    return PyModule_Check(object) ? PyModule_GetState(object) : PyType_GetModuleState(Py_TYPE(object));
}

static PyObject *exception_for(PyObject **types, bw_code code) {
    switch (code) {
        case BW_CODE_INVALID: return PyExc_ValueError;
        case BW_CODE_UNSUPPORTED: return types[CORE_UNSUPPORTED_ERROR];
        case BW_CODE_MEMORY: return types[CORE_MEMORY_LIMIT_ERROR];
        case BW_CODE_UNAVAILABLE: return types[CORE_UNAVAILABLE_ERROR];
        case BW_CODE_DEVICE:
        case BW_CODE_DEVICE_LOST: return types[CORE_DEVICE_ERROR];
        case BW_CODE_BUSY: return PyExc_RuntimeError;
        case BW_CODE_INTERRUPTED: return PyExc_KeyboardInterrupt;
        case BW_CODE_SYSTEM: return PyExc_OSError;
        case BW_CODE_OK: break;
    }
    return PyExc_SystemError;
}

PyObject *core_raise(PyObject *object, bw_status status) {
    bw_code code = bw_status_code(status);
    /* A poll function's own exception (Ctrl-C, a signal handler's) is the better one. */
    if (code == BW_CODE_INTERRUPTED && PyErr_Occurred()) {
        bw_status_free(status);
        return NULL;
    }
    PyObject *type = exception_for(core_types(object), code);
    PyObject *text = core_text(bw_status_message(status));
    bw_status_free(status);
    PyObject *error = text ? PyObject_CallOneArg(type, text) : NULL;
    Py_XDECREF(text);
    if (error && code == BW_CODE_DEVICE_LOST && PyObject_SetAttrString(error, "fatal", Py_True) < 0) Py_CLEAR(error);
    if (error) PyErr_SetObject(type, error);
    Py_XDECREF(error);
    return NULL;
}

int core_check(PyObject *object, bw_status status) {
    if (status) core_raise(object, status);
    return status ? -1 : 0;
}

int core_refuse(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    PyErr_FormatV(PyExc_ValueError, format, arguments);
    va_end(arguments);
    return -1;
}

void core_set(PyObject **dict, const char *key, PyObject *value) {
    if (!*dict || !value || PyDict_SetItemString(*dict, key, value) < 0) Py_CLEAR(*dict);
    Py_XDECREF(value);
}

void core_append(PyObject **list, PyObject *item) {
    if (!*list || !item || PyList_Append(*list, item) < 0) Py_CLEAR(*list);
    Py_XDECREF(item);
}

PyObject *core_enter(PyObject *object, PyObject *Py_UNUSED(unused)) {
    return Py_NewRef(object);
}
