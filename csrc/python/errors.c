/* Statuses become exceptions of Python, and texts of C become str. */
#include "python/core.h"

PyObject *core_text(const char *text) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
}

core_state *core_state_of(PyTypeObject *type) {
    return PyType_GetModuleState(type);
}

static PyObject *exception_for(core_state *state, bw_code code) {
    switch (code) {
        case BW_CODE_INVALID: return PyExc_ValueError;
        case BW_CODE_UNSUPPORTED: return state->unsupported_error;
        case BW_CODE_MEMORY: return state->memory_limit_error;
        case BW_CODE_UNAVAILABLE: return state->unavailable_error;
        case BW_CODE_DEVICE:
        case BW_CODE_DEVICE_LOST: return state->device_error;
        case BW_CODE_BUSY: return PyExc_RuntimeError;
        case BW_CODE_INTERRUPTED: return PyExc_KeyboardInterrupt;
        case BW_CODE_SYSTEM: return PyExc_OSError;
        case BW_CODE_OK: break;
    }
    return PyExc_SystemError;
}

PyObject *core_raise(core_state *state, bw_status status) {
    bw_code code = bw_status_code(status);
    /* A poll function's own exception (Ctrl-C, a signal handler's) is the better one. */
    if (code == BW_CODE_INTERRUPTED && PyErr_Occurred()) {
        bw_status_free(status);
        return NULL;
    }
    PyObject *type = exception_for(state, code);
    PyObject *text = core_text(bw_status_message(status));
    bw_status_free(status);
    PyObject *error = text ? PyObject_CallOneArg(type, text) : NULL;
    Py_XDECREF(text);
    if (!error) return NULL;
    if (type == state->device_error &&
        PyObject_SetAttrString(error, "fatal", code == BW_CODE_DEVICE_LOST ? Py_True : Py_False) < 0) {
        Py_DECREF(error);
        return NULL;
    }
    PyErr_SetObject(type, error);
    Py_DECREF(error);
    return NULL;
}

/* A type below `first`, and below `second` where there is one. */
static PyObject *add_exception(PyObject *module, const char *name, const char *text, PyObject *first,
                               PyObject *second) {
    PyObject *bases = second ? PyTuple_Pack(2, first, second) : PyTuple_Pack(1, first);
    if (!bases) return NULL;
    char full_name[64];
    PyOS_snprintf(full_name, sizeof full_name, "bwprof._core.%s", name);
    PyObject *type = PyErr_NewExceptionWithDoc(full_name, text, bases, NULL);
    Py_DECREF(bases);
    if (type && PyModule_AddObjectRef(module, name, type) < 0) Py_CLEAR(type);
    return type;
}

int core_add_exceptions(PyObject *module, core_state *state) {
    PyObject *any = add_exception(module, "BwprofError", "The base of bwprof's own exceptions.", PyExc_Exception, NULL);
    if (!any) return -1;
    state->device_error =
        add_exception(module, "DeviceError",
                      "A device call failed. `fatal` is True when only a new process can use the device again.", any,
                      PyExc_RuntimeError);
    state->unsupported_error = add_exception(module, "UnsupportedError",
                                             "Valid, but not on this device, variant or build.", any, PyExc_ValueError);
    state->unavailable_error = add_exception(
        module, "UnavailableError", "A backend, device, driver or library is missing; the message says what to do.",
        any, PyExc_RuntimeError);
    state->memory_limit_error =
        add_exception(module, "MemoryLimitError", "The case needs more memory than is free.", any, PyExc_MemoryError);
    Py_DECREF(any);
    if (!state->device_error || !state->unsupported_error || !state->unavailable_error || !state->memory_limit_error) {
        return -1;
    }
    return PyObject_SetAttrString(state->device_error, "fatal", Py_False);
}
