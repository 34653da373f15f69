/* The extension module bwprof._core. */
#include "build_info.h"
#include "python/core.h"

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type && PyModule_AddObjectRef(module, name, type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

static int core_exec(PyObject *module) {
    core_state *state = PyModule_GetState(module);
    if (core_add_exceptions(module, state) < 0) return -1;
    state->device_type = add_type(module, &core_device_spec, "Device");
    state->case_type = add_type(module, &core_case_spec, "Case");
    state->profiler_type = add_type(module, &core_profiler_spec, "Profiler");
    if (!state->device_type || !state->case_type || !state->profiler_type) return -1;
    PyObject *build =
        Py_BuildValue("{s:O,s:s,s:s,s:s,s:s,s:s}", "cuda", BW_BUILD_CUDA ? Py_True : Py_False, "cuda_reason",
                      BW_BUILD_CUDA_REASON, "cuda_version", BW_BUILD_CUDA_VERSION, "cuda_archs", BW_BUILD_CUDA_ARCHS,
                      "compiler", BW_BUILD_COMPILER, "isas", BW_BUILD_ISAS);
    int failed = PyModule_AddObjectRef(module, "build", build);
    Py_XDECREF(build);
    if (failed || PyModule_AddStringConstant(module, "__version__", BW_BUILD_VERSION) < 0) return -1;
    if (PyModule_AddFunctions(module, core_registry_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, core_call_methods) < 0) return -1;
    return PyModule_AddFunctions(module, core_number_methods);
}

static int core_traverse(PyObject *module, visitproc visit, void *arg) {
    core_state *state = PyModule_GetState(module);
    Py_VISIT(state->device_error);
    Py_VISIT(state->unsupported_error);
    Py_VISIT(state->unavailable_error);
    Py_VISIT(state->memory_limit_error);
    Py_VISIT(state->device_type);
    Py_VISIT(state->case_type);
    Py_VISIT(state->profiler_type);
    return 0;
}

static int core_clear(PyObject *module) {
    core_state *state = PyModule_GetState(module);
    Py_CLEAR(state->device_error);
    Py_CLEAR(state->unsupported_error);
    Py_CLEAR(state->unavailable_error);
    Py_CLEAR(state->memory_limit_error);
    Py_CLEAR(state->device_type);
    Py_CLEAR(state->case_type);
    Py_CLEAR(state->profiler_type);
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
    .m_size = sizeof(core_state),
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&core_module);
}
