/* Lists the variants of an operation on a device, and the kernels that they launch. */
#include "python/core.h"

/* The table, and the row that runs without being named: both are constant. NULL where none runs: every row's refusal
 * says why. */
static bw_status find_rows(const bw_session *session, const core_subject *subject, const bw_variant_table **table,
                           const bw_variant **chosen) {
    const bw_offer offer = bw_offer_of(session->backend, session->device, subject->index);
    *table = offer.table;
    bw_status_free(bw_variant_default(subject->op, &subject->dims, subject->precision, &offer, 0, chosen));
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
    if (dict) core_set(&dict, "default", PyBool_FromLong(is_default));
    return dict;
}

PyObject *core_device_variants(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "kv_lens", NULL};
    device_object *self = (device_object *)object;
    const char *operation, *precision;
    PyObject *params, *kv_lens = NULL;
    core_subject subject;
    const bw_variant_table *table = &bw_no_variants;
    const bw_variant *chosen = NULL;
    bw_status status;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssO|O", names, &operation, &precision, &params, &kv_lens))
        return NULL;
    if (core_subject_read(object, operation, precision, params, kv_lens, &subject) < 0) return NULL;
    CORE_ASK(status, self, find_rows(session, &subject, &table, &chosen));
    PyObject *list = status ? core_raise(object, status) : PyList_New(0);
    for (int i = 0; list && i < table->count; i++) {
        const bw_variant *row = &table->rows[i];
        core_append(&list, row_dict(self, &subject, table, row, row == chosen));
    }
    core_subject_free(&subject);
    return list;
}

/* ---- kernels ---- */

static bw_status describe(const bw_session *session, const core_subject *subject, const char *name, bw_kernels *out) {
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

/* `symbol` is the caller's. */
static PyObject *kernel_dict(const bw_kernel *kernel, PyObject *symbol) {
    return Py_BuildValue("{s:O,s:i,s:L,s:L,s:L,s:i,s:L,s:i}", "symbol", symbol, "registers", kernel->registers,
                         "local_bytes", (long long)kernel->local_bytes, "static_shared_bytes",
                         (long long)kernel->static_shared_bytes, "dynamic_shared_bytes",
                         (long long)kernel->dynamic_shared_bytes, "threads", kernel->threads, "blocks",
                         (long long)kernel->blocks, "resident_blocks", kernel->resident_blocks);
}

PyObject *core_device_kernels(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"operation", "precision", "params", "variant", "kv_lens", NULL};
    device_object *self = (device_object *)object;
    const char *operation, *precision, *variant;
    PyObject *params, *kv_lens = NULL, *symbols[BW_KERNELS_MAX] = {NULL};
    core_subject subject;
    bw_kernels found = {.count = 0};
    bw_status status;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ssOs|O", names, &operation, &precision, &params, &variant,
                                     &kv_lens)) {
        return NULL;
    }
    if (core_subject_read(object, operation, precision, params, kv_lens, &subject) < 0) return NULL;
    CORE_RUN(status, self, describe(session, &subject, variant, &found));
    core_subject_free(&subject);
    if (status) return core_raise(object, status);
    /* The device's texts first: making a dict may close it. */
    for (int i = 0; i < found.count; i++) {
        symbols[i] = found.kernel[i].symbol ? core_text(found.kernel[i].symbol) : Py_NewRef(Py_None);
    }
    PyObject *list = PyList_New(0);
    for (int i = 0; i < found.count; i++) {
        PyObject *dict = list && symbols[i] ? kernel_dict(&found.kernel[i], symbols[i]) : NULL;
        if (list) core_append(&list, dict);
        Py_XDECREF(symbols[i]);
    }
    return list;
}
