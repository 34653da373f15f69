/* Creates, reads and frees statuses. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct bw_error {
    bw_code code;
    char message[];
};

/* Handed out when there is no memory left for a message; never freed. */
static struct {
    bw_code code;
    char message[32];
} const no_memory = {BW_CODE_MEMORY, "out of host memory"};

bw_status bw_fail(bw_code code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) length = 0;
    bw_status error = malloc(sizeof *error + (size_t)length + 1);
    if (!error) return (bw_status)&no_memory;
    error->code = code;
    error->message[0] = '\0';
    va_start(arguments, format);
    vsnprintf(error->message, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return error;
}

bw_code bw_status_code(bw_status status) {
    return status ? status->code : BW_CODE_OK;
}

const char *bw_status_message(bw_status status) {
    return status ? status->message : "";
}

void bw_status_free(bw_status status) {
    if (status != (bw_status)&no_memory) free(status);
}

bw_status bw_status_first(bw_status first, bw_status second) {
    if (!first) return second;
    bw_status_free(second);
    return first;
}
