/* Versions, the text of the last failure, and what every file of the library begins with. */
#include <stdarg.h>

#include "api/api.h"
#include "build_info.h"

_Static_assert((int)BWPROF_INVALID == BW_CODE_INVALID && (int)BWPROF_SYSTEM == BW_CODE_SYSTEM &&
                   (int)BWPROF_UNKNOWN == BW_CODE_SYSTEM + 1,
               "answers are the codes of statuses");

/* A thread's own: C has no other place for the text of a call that gave a number back, and a thread's number by the
 * system becomes another's when it has ended. One of the two things here that are neither constant nor in a handle. */
static _Thread_local struct {
    int64_t number; /* 0: none yet */
    char text[1024];
} bw_api_said;

const char *bwprof_last_error(void) {
    return bw_api_said.text;
}

int64_t bw_api_thread(void) {
    if (!bw_api_said.number) bw_api_said.number = bw_handle_next_thread();
    return bw_api_said.number;
}

const char *bwprof_version(void) {
    return BW_BUILD_VERSION;
}

int bwprof_abi_version(void) {
    return BWPROF_ABI_VERSION;
}

/* A message repeats what a caller gave, or the beginning of it, which may end within a character. */
static void say(const char *message) {
    bw_text plain = {0};
    bw_text_plain(&plain, message);
    snprintf(bw_api_said.text, sizeof bw_api_said.text, "%s", plain.bytes && !plain.failed ? plain.bytes : message);
    bw_text_free(&plain);
}

bwprof_status bw_api_answer(bw_status status) {
    if (!status) return BWPROF_OK;
    bwprof_status answer = (bwprof_status)bw_status_code(status);
    say(bw_status_message(status));
    bw_status_free(status);
    return answer;
}

bwprof_status bw_api_unknown(const char *format, ...) {
    va_list arguments;
    char message[sizeof bw_api_said.text];
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    say(message);
    return BWPROF_UNKNOWN;
}

bw_status bw_api_need(const void *argument, const char *name) {
    return argument ? BW_OK : bw_fail(BW_CODE_INVALID, "%s is NULL", name);
}

static bw_status first_backend(const bw_backend **out) {
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

bw_status bw_api_backend(const char *name, const bw_backend **out) {
    return name ? bw_backend_find(name, out) : first_backend(out);
}

bw_here bw_here_now(const bw_backend *backend) {
    bw_here here = {NULL, 0};
    if (!backend || !backend->context) return here;
    bw_status status = backend->context->current(&here.device);
    if (!status) here.backend = backend;
    bw_status_free(status);
    return here;
}

void bw_here_again(const bw_here *self) {
    int now = 0;
    if (!self->backend) return;
    bw_status status = self->backend->context->current(&now);
    if (!status && now != self->device) status = self->backend->context->make_current(self->device);
    bw_status_free(status); /* a device that is lost: whoever uses it next is told */
}

bw_status bw_api_open(const char *backend, int device, bw_session **out) {
    const bw_backend *found;
    BW_TRY(bw_api_backend(backend, &found));
    bw_here here = bw_here_now(found);
    bw_status status = bw_session_open(found, device, out);
    bw_here_again(&here);
    return status;
}

void bw_api_close(bw_session *session) {
    bw_here here = bw_here_now(session ? session->backend : NULL);
    bw_session_close(session);
    bw_here_again(&here);
}
