/* The extension module bwprof._core. */
#include "build_info.h"
#include "python/core.h"

static int add_exceptions(PyObject *module) {
    static const struct {
        const char *name, *text;
        PyObject **base;
    } rows[] = {
        [CORE_DEVICE_ERROR] = {"bwprof._core.DeviceError",
                               "A device call failed. `fatal` is True when only a new process can use the device "
                               "again.",
                               &PyExc_RuntimeError},
        [CORE_UNSUPPORTED_ERROR] = {"bwprof._core.UnsupportedError", "Valid, but not on this device, variant or build.",
                                    &PyExc_ValueError},
        [CORE_UNAVAILABLE_ERROR] = {"bwprof._core.UnavailableError",
                                    "A backend, device, driver or library is missing; the message says what to do.",
                                    &PyExc_RuntimeError},
        [CORE_MEMORY_LIMIT_ERROR] = {"bwprof._core.MemoryLimitError", "The case needs more memory than is free.",
                                     &PyExc_MemoryError},
    };
    PyObject **types = core_types(module);
    PyObject *any =
        PyErr_NewExceptionWithDoc("bwprof._core.BwprofError", "The base of bwprof's own exceptions.", NULL, NULL);
    int result = any ? PyModule_AddType(module, (PyTypeObject *)any) : -1;
    for (int i = 0; i < CORE_ERROR_COUNT && result == 0; i++) {
        PyObject *bases = PyTuple_Pack(2, any, *rows[i].base);
        types[i] = bases ? PyErr_NewExceptionWithDoc(rows[i].name, rows[i].text, bases, NULL) : NULL;
        Py_XDECREF(bases);
        result = types[i] ? PyModule_AddType(module, (PyTypeObject *)types[i]) : -1;
    }
    Py_XDECREF(any);
    return result == 0 ? PyObject_SetAttrString(types[CORE_DEVICE_ERROR], "fatal", Py_False) : -1;
}

static int core_exec(PyObject *module) {
    PyType_Spec *const specs[] = {&core_device_spec, &core_case_spec, &core_profiler_spec};
    PyObject **types = core_types(module);
    if (add_exceptions(module) < 0) return -1;
    for (int i = CORE_DEVICE; i < CORE_TYPE_COUNT; i++) {
        types[i] = PyType_FromModuleAndSpec(module, specs[i - CORE_DEVICE], NULL);
        if (!types[i] || PyModule_AddType(module, (PyTypeObject *)types[i]) < 0) return -1;
    }
    PyObject *build =
        Py_BuildValue("{s:O,s:s,s:s,s:s,s:s,s:s}", "cuda", BW_BUILD_CUDA ? Py_True : Py_False, "cuda_reason",
                      BW_BUILD_CUDA_REASON, "cuda_version", BW_BUILD_CUDA_VERSION, "cuda_archs", BW_BUILD_CUDA_ARCHS,
                      "compiler", BW_BUILD_COMPILER, "isas", BW_BUILD_ISAS);
    int failed = PyModule_AddObjectRef(module, "build", build);
    Py_XDECREF(build);
    return failed ? -1 : PyModule_AddStringConstant(module, "__version__", BW_BUILD_VERSION);
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
    PyObject **types = core_types(module);
    for (int i = 0; i < CORE_TYPE_COUNT; i++) Py_VISIT(types[i]);
    return 0;
}

static int core_clear(PyObject *module) {
    PyObject **types = core_types(module);
    for (int i = 0; i < CORE_TYPE_COUNT; i++) Py_CLEAR(types[i]);
    return 0;
}

static void core_free(void *module) {
    core_clear(module);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, (void *)core_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef core_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "bwprof._core",
    .m_doc = "bwprof's C extension: operations, costs, devices, cases.",
    .m_size = CORE_TYPE_COUNT * sizeof(PyObject *),
    .m_methods = core_methods,
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&core_module);
}
