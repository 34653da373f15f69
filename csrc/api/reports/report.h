/* Reports, and the bundles that they are saved in. */
#ifndef BW_API_REPORT_H
#define BW_API_REPORT_H

#include "api/api.h"

/* ---- report.c ---- */

/* BW_CODE_INVALID for one that no measurement has made. */
bw_status bw_report_check(const bwprof_report *report);
/* As an object of JSON, whose first line stands where the text ends and whose others begin with `indent`. */
void bw_report_add(bw_text *to, const bwprof_report *report, const char *indent);

/* ---- file_lock.c ---- */

/* The right to write a file: a lock on a hidden file beside it, which all processes of bwprof take. */
typedef struct bw_file_lock {
    int file;
    char *path;
} bw_file_lock;

/* Waits for up to ten seconds; then BW_CODE_BUSY. */
bw_status bw_file_lock_take(const char *folder, const char *name, bw_file_lock *out);
void bw_file_lock_release(bw_file_lock *lock);

#endif
