/* Versions, the last error of a thread, and opening a device. */
#include "api/api.h"
#include "build_info.h"

_Static_assert((int)BWPROF_INVALID == BW_CODE_INVALID && (int)BWPROF_SYSTEM == BW_CODE_SYSTEM &&
                   (int)BWPROF_UNKNOWN == BW_CODE_SYSTEM + 1,
               "answers are the codes of statuses");

static _Thread_local char bw_api_last_error[1024];

const char *bwprof_last_error(void) {
    return bw_api_last_error;
}

const char *bwprof_version(void) {
    return BW_BUILD_VERSION;
}

int bwprof_abi_version(void) {
    return BWPROF_ABI_VERSION;
}

/* A message repeats what a caller gave, or the beginning of it, which may end within a character. */
bwprof_status bw_api_answer(bw_status status) {
    if (!status) return BWPROF_OK;
    bwprof_status answer = (bwprof_status)bw_status_code(status);
    const char *message = bw_status_message(status);
    bw_text plain = {0};
    bw_text_name(&plain, message, BW_PLAIN);
    snprintf(bw_api_last_error, sizeof bw_api_last_error, "%s", plain.bytes && !plain.failed ? plain.bytes : message);
    bw_text_free(&plain);
    bw_status_free(status);
    return answer;
}

bw_status bw_api_need(const void *argument, const char *name) {
    return argument ? BW_OK : bw_fail(BW_CODE_INVALID, "%s is NULL", name);
}

bw_status bw_api_backend(const char *name, const bw_backend **out) {
    if (name) return bw_backend_find(name, out);
    for (int i = 0; i < bw_backend_count(); i++) {
        char reason[256];
        int count = 0;
        *out = bw_backend_at(i);
        if (!(*out)->built) continue;
        bw_status_free((*out)->devices->count(&count, reason, sizeof reason));
        if (count > 0) return BW_OK;
    }
    return bw_fail(BW_CODE_UNAVAILABLE, "no backend has a device");
}

bw_current_device bw_current_device_save(const bw_backend *backend) {
    bw_current_device current = {NULL, 0};
    if (!backend || !backend->context) return current;
    bw_status status = backend->context->current(&current.device);
    if (!status) current.backend = backend;
    bw_status_free(status);
    return current;
}

void bw_current_device_restore(const bw_current_device *self) {
    int now = 0;
    if (!self->backend) return;
    bw_status status = self->backend->context->current(&now);
    if (!status && now != self->device) status = self->backend->context->make_current(self->device);
    bw_status_free(status); /* a lost device: its next call reports it */
}

bw_status bw_api_open(const char *backend, int device, bw_session **out) {
    const bw_backend *found;
    BW_TRY(bw_api_backend(backend, &found));
    bw_current_device current = bw_current_device_save(found);
    bw_status status = bw_session_open(found, device, out);
    bw_current_device_restore(&current);
    return status;
}

void bw_api_close(bw_session *session) {
    bw_current_device current = bw_current_device_save(session ? session->backend : NULL);
    bw_session_close(session);
    bw_current_device_restore(&current);
}
