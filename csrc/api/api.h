/* Declarations that the files of the C library share. The library and the Python module are built from the same code,
 * and neither includes the other. */
#pragma once

#include <bwprof.h>
#include <stdbool.h>
#include <stddef.h>

#include "measure/session.h"

/* ---- library.c ---- */

/* The one place where a status becomes an answer: keeps its text for bwprof_last_error, and frees it. */
bwprof_status bw_api_answer(bw_status status);
enum { BW_CODE_UNKNOWN = BWPROF_UNKNOWN }; /* a code of the library alone */

bw_status bw_api_need(const void *argument, const char *name); /* BW_CODE_INVALID where it is NULL */

/* A backend by its name, built or not with a device; NULL: the first that has one. */
bw_status bw_api_backend(const char *name, const bw_backend **out);
/* A device by the name of its backend; NULL: the first that has one. */
bw_status bw_api_open(const char *backend, int device, bw_session **out);
void bw_api_close(bw_session *session); /* NULL is fine */

/* The calling thread's current device, which its own code works on: bwprof makes its own one current, and then this one
 * again. */
typedef struct bw_current_device {
    const bw_backend *backend; /* NULL: nothing to go back to */
    int device;
} bw_current_device;
bw_current_device bw_current_device_save(const bw_backend *backend);
void bw_current_device_restore(const bw_current_device *current);

/* ---- text.c ---- */

/* Text that grows; what could not be added for want of memory shows in `failed`. */
typedef struct bw_text {
    char *bytes; /* ended by a 0; NULL while nothing was added */
    size_t size, capacity;
    bool failed;
} bw_text;

void bw_text_free(bw_text *text);
void bw_text_add(bw_text *text, const char *format, ...) BW_PRINTF(2, 3); /* no floating-point numbers: see below */
/* A number in as few digits as give it back, or with so many decimals (-1: the former), its point a point whatever the
 * locale; `absent` for NaN. */
void bw_text_number(bw_text *text, double value, int decimals, const char *absent);
/* Plain text; a header and a cell of CSV, the latter quoted where that is needed, with an apostrophe where a
 * spreadsheet would calculate; JSON, with quotes. */
typedef enum bw_form { BW_PLAIN, BW_HEADER, BW_CSV, BW_JSON } bw_form;
/* A name or a message: control characters, and bytes that are no UTF-8, as \xNN; the former in JSON as \u00NN. */
void bw_text_name(bw_text *text, const char *name, bw_form form);

/* Named values one behind the other: a header or a line of CSV, or the inside of an object of JSON. */
typedef struct bw_row {
    bw_text *to;
    bw_form form;
    const char *between; /* values of JSON */
    bool begun;
} bw_row;
void bw_row_text(bw_row *row, const char *name, const char *value);
void bw_row_number(bw_row *row, const char *name, double value);              /* NaN: nothing, or null */
void bw_row_whole(bw_row *row, const char *name, bool known, uint64_t value); /* not known: likewise */
void bw_row_truth(bw_row *row, const char *name, bool known, bool value);     /* of CSV: True or False, or nothing */

/* ---- file.c ---- */

/* BW_CODE_SYSTEM with the reason of errno: the system refused this file. */
bw_status bw_file_error(const char *path);
/* Whether the place can be written to at all; makes no file. */
bw_status bw_file_check(const char *path);
/* The text as the whole content of a file, in one step: beside its place, on disk, then renamed. */
bw_status bw_file_write(const char *path, const bw_text *text);

/* ---- names.c ---- */

/* Names and their numbers, 0, 1, 2, ... in the order in which they came. */
typedef struct bw_names {
    char **name;
    int32_t *slots; /* number + 1, by hash; 0 = free */
    int64_t count, capacity, slot_count;
} bw_names;

uint64_t bw_names_hash(const char *name); /* whose lowest bits are the first slot to look into */
void bw_names_free(bw_names *names);
int64_t bw_names_find(const bw_names *names, const char *name); /* -1: not there */
/* BW_CODE_INVALID for a name that is NULL, empty or too long, BW_CODE_MEMORY where there are too many. */
bw_status bw_names_add(bw_names *names, const char *name, int64_t *out);
/* The same, with a row for each name in *rows, by its number; a new one is 0. */
bw_status bw_names_add_row(bw_names *names, const char *name, void **rows, size_t row_size, int64_t *out);
void bw_names_take_back(bw_names *names); /* the one that was added last, as if it had never been */
bw_status bw_name_check(const char *name);
