/* Status: how every fallible function of the library says what went wrong.
 *
 * A bw_status is NULL for success, or an error that owns its message. Whoever receives an error either
 * returns it to its own caller or frees it. There is no global and no thread-local state. */
#pragma once

#ifdef __cplusplus
#define BW_C extern "C"
#else
#define BW_C
#endif

typedef enum bw_code {
    BW_CODE_OK = 0,
    BW_CODE_INVALID,     /* the caller's argument is wrong: ValueError */
    BW_CODE_UNSUPPORTED, /* right, but not on this device, variant or build */
    BW_CODE_MEMORY,      /* host or device memory is not enough: MemoryError */
    BW_CODE_UNAVAILABLE, /* a device, driver or library is missing */
    BW_CODE_DEVICE,      /* a device call failed; the device is still usable */
    BW_CODE_DEVICE_LOST, /* a device call failed for good: only a new process helps */
    BW_CODE_BUSY,        /* another thread is using the handle */
    BW_CODE_INTERRUPTED, /* the caller's poll function asked to stop */
    BW_CODE_SYSTEM       /* the operating system refused: OSError */
} bw_code;

typedef struct bw_error *bw_status;
#define BW_OK ((bw_status)0)

#define BW_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))

/* Never returns NULL for a code other than BW_CODE_OK: out of memory yields a static error. */
BW_C bw_status bw_fail(bw_code code, const char *format, ...) BW_PRINTF(2, 3);

BW_C bw_code bw_status_code(bw_status status);
BW_C const char *bw_status_message(bw_status status); /* "" for success */
BW_C void bw_status_free(bw_status status);           /* NULL is fine */

/* Keeps the first error: for cleanup code in which a second call may fail too. */
BW_C bw_status bw_status_first(bw_status first, bw_status second);

#define BW_TRY(expression)                \
    do {                                  \
        bw_status bw_try_ = (expression); \
        if (bw_try_) return bw_try_;      \
    } while (0)

/* For functions with a `bw_status status` and a `cleanup:` label. */
#define BW_GOTO(expression)       \
    do {                          \
        status = (expression);    \
        if (status) goto cleanup; \
    } while (0)
