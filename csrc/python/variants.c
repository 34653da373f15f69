/* What a device runs: the variants of an operation, and the kernels that they launch. */
#include "python/core.h"

/* What a question is about; `dims` is the caller's to free once it is asked. */
typedef struct variant_question {
    bw_session *session;
    int index; /* of the operation */
    const bw_op *op;
    const bw_precision *precision;
    const char *variant; /* NULL: all of them */
    core_dims dims;
    bw_offer offer;
} variant_question;

/* 0, or -1 with an exception and nothing to free. */
static int read_question(device_object *self, const char *const given[3], PyObject *params, PyObject *kv_lens,
                         variant_question *out) {
    core_state *state = core_state_of(Py_TYPE(self));
    bw_status status = core_find_op(given[0], &out->index, &out->op);
    if (!status) status = bw_precision_find(given[1], &out->precision);
    if (status) {
        core_raise(state, status);
        return -1;
    }
    if (core_dims_read(state, out->op, out->precision, params, kv_lens, &out->dims) < 0) return -1;
    out->variant = given[2];
    out->session = core_session_of(self); /* asked last: reading numbers may have run Python code that closed it */
    if (!out->session) {
        core_dims_free(&out->dims);
        return -1;
    }
    const bw_device_calls *devices = out->session->backend->devices;
    out->offer = (bw_offer){devices->variants(out->session->device, out->index), devices->facts(out->session->device)};
    return 0;
}

/* One variant with whether it runs the shape and whether it is the default. */
static PyObject *variant_row(const bw_variant_table *table, const bw_variant *row, const char *refusal,
                             bool is_default) {
    PyObject *dict = core_variant_dict(table, row);
    if (!dict) return NULL;
    if (core_set(dict, "refuses", PyUnicode_FromString(refusal ? refusal : "")) < 0 ||
        core_set(dict, "default", PyBool_FromLong(is_default)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

PyObject *core_device_variants(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "kv_lens", NULL};
    const char *given[3] = {NULL};
    PyObject *params, *kv_lens = NULL;
    variant_question asked;
    if (!core_session_of((device_object *)object)) return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssO|O", names, &given[0], &given[1], &params, &kv_lens))
        return NULL;
    if (read_question((device_object *)object, given, params, kv_lens, &asked) < 0) return NULL;
    const bw_variant_table *table = asked.offer.table;
    const bw_variant *chosen = NULL;
    bw_status status = bw_variant_default(asked.op, &asked.dims.dims, asked.precision, &asked.offer, 0, &chosen);
    bw_status_free(status); /* none runs: every row's `refuses` says why */
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < table->count; i++) {
        const bw_variant *row = &table->rows[i];
        const char *refusal = bw_variant_refuses(row, &asked.dims.dims, asked.precision, asked.offer.facts);
        if (core_append(list, variant_row(table, row, refusal, row == chosen)) < 0) Py_CLEAR(list);
    }
    core_dims_free(&asked.dims);
    return list;
}

/* ---- kernels ---- */

static bw_status describe(const variant_question *asked, bw_kernels *out) {
    const bw_backend *backend = asked->session->backend;
    const bw_dims *dims = &asked->dims.dims;
    const bw_variant *variant;
    BW_TRY(bw_variant_find(asked->op, asked->offer.table, asked->variant, &variant));
    const char *refusal = bw_variant_refuses(variant, dims, asked->precision, asked->offer.facts);
    if (refusal) return bw_fail(BW_CODE_UNSUPPORTED, "%s", refusal);
    if (variant->describe) return variant->describe(asked->session->device, dims, asked->precision, out);
    return bw_fail(BW_CODE_UNSUPPORTED, "%s",
                   backend->runs_on_host
                       ? "it runs on the host: no registers or shared memory of blocks"
                       : "a library's: it chooses its kernels while a case is prepared; ncu and nsys show them");
}

static PyObject *kernel_dict(const bw_kernel *kernel) {
    PyObject *symbol = kernel->symbol ? core_text(kernel->symbol) : Py_NewRef(Py_None);
    return Py_BuildValue("{s:N,s:i,s:L,s:L,s:L,s:i,s:L,s:i}", "symbol", symbol, "registers", kernel->registers,
                         "local_bytes", (long long)kernel->local_bytes, "static_shared_bytes",
                         (long long)kernel->static_shared_bytes, "dynamic_shared_bytes",
                         (long long)kernel->dynamic_shared_bytes, "threads", kernel->threads, "blocks",
                         (long long)kernel->blocks, "resident_blocks", kernel->resident_blocks);
}

PyObject *core_device_kernels(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "variant", "kv_lens", NULL};
    const char *given[3];
    PyObject *params, *kv_lens = NULL;
    variant_question asked;
    bw_kernels found = {.count = 0};
    bw_status status;
    if (!core_session_of((device_object *)object)) return NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssOs|O", names, &given[0], &given[1], &params, &given[2],
                                     &kv_lens)) {
        return NULL;
    }
    if (read_question((device_object *)object, given, params, kv_lens, &asked) < 0) return NULL;
    CORE_RUN(status, asked.session, describe(&asked, &found));
    core_dims_free(&asked.dims);
    if (status) return core_raise(core_state_of(Py_TYPE(object)), status);
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < found.count; i++) {
        if (core_append(list, kernel_dict(&found.kernel[i])) < 0) Py_CLEAR(list);
    }
    return list;
}
