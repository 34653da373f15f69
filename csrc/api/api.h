/* What the files of the C library share. The library and the Python module do not include each other's headers. */
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

/* A backend by its name, with a device or without; NULL, here and below: the first that has one. */
bw_status bw_api_backend(const char *name, const bw_backend **out);
bw_status bw_api_open(const char *backend, int device, bw_session **out);
void bw_api_close(bw_session *session); /* NULL is fine */

/* The calling thread's current device: bwprof makes its own one current, and then this one again. */
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
/* decimals -1: the fewest digits that give the number back. A point in every locale; `absent` for NaN. */
void bw_text_number(bw_text *text, double value, int decimals, const char *absent);
/* A cell of CSV has quotes where it needs them, and an apostrophe where a spreadsheet would calculate. */
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
bw_status bw_file_error(const char *path);                      /* BW_CODE_SYSTEM with the reason of errno */
bw_status bw_file_check(const char *path);                      /* whether it can be written to; leaves no file */
bw_status bw_file_write(const char *path, const bw_text *text); /* the whole content, in one step */

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
