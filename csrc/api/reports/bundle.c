/* Proof bundles: one folder for each run, with its reports, in the working directory. bwprof.BandwidthReport writes the
 * same files. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/reports/report.h"

#define ROOT ".test-results/bandwidth"
#define NAME "bandwidth_report.json"

enum { RUN_ID_MOST = 128, PATH_SIZE = sizeof ROOT + sizeof NAME + RUN_ID_MOST + 2, BYTES_MOST = 1 << 28 };

typedef struct place {
    char folder[PATH_SIZE], path[PATH_SIZE];
} place;

/* It becomes a folder's name, which must not lead anywhere else. */
static bw_status check_run_id(const char *run_id) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    BW_TRY(bw_api_need(run_id, "run_id"));
    size_t size = strnlen(run_id, RUN_ID_MOST + 1);
    if (size && size <= RUN_ID_MOST && *run_id != '.' && strspn(run_id, allowed) == size) return BW_OK;
    return bw_fail(BW_CODE_INVALID,
                   "run_id is '%.*s%s': allowed are %d of the letters A-Z a-z, digits, '.', '_' and '-', not beginning "
                   "with '.'",
                   RUN_ID_MOST, run_id, size > RUN_ID_MOST ? "..." : "", RUN_ID_MOST);
}

static bw_status refuse_link(const char *path) {
    struct stat found;
    if (lstat(path, &found) != 0 || !S_ISLNK(found.st_mode)) return BW_OK;
    return bw_fail(BW_CODE_INVALID, "%.300s is a symbolic link, which may lead out of its folder: remove it", path);
}

/* The folder with those above it, made where there are none. */
static bw_status make_folder(const char *folder) {
    char part[PATH_SIZE];
    for (const char *at = folder; at;) {
        at = strchr(at + 1, '/');
        snprintf(part, sizeof part, "%.*s", at ? (int)(at - folder) : (int)strlen(folder), folder);
        if (mkdir(part, 0777) != 0 && errno != EEXIST) return bw_file_error(part);
    }
    return BW_OK;
}

static bw_status find_place(const char *run_id, place *out) {
    BW_TRY(check_run_id(run_id));
    snprintf(out->folder, sizeof out->folder, "%s/%s", ROOT, run_id);
    snprintf(out->path, sizeof out->path, "%s/%s/%s", ROOT, run_id, NAME);
    BW_TRY(refuse_link(out->folder));
    BW_TRY(refuse_link(out->path));
    return make_folder(out->folder);
}

/* *out is NULL where there is no file yet. */
static bw_status read_file(const char *path, char **out, size_t *size) {
    struct stat found;
    bw_status status = BW_OK;
    char *text = NULL;
    *out = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return errno == ENOENT ? BW_OK : bw_file_error(path);
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_size > BYTES_MOST) {
        BW_GOTO(bw_fail(BW_CODE_INVALID, "%.300s is not a proof bundle: move it away, or take another run_id", path));
    }
    text = malloc((size_t)found.st_size + 1);
    if (!text) BW_GOTO(bw_fail(BW_CODE_MEMORY, "no host memory for %.300s", path));
    *size = 0;
    for (ssize_t part = 1; part > 0 && *size < (size_t)found.st_size; *size += (size_t)part) {
        do part = read(file, text + *size, (size_t)found.st_size - *size);
        while (part < 0 && errno == EINTR);
        if (part < 0) BW_GOTO(bw_file_error(path));
    }
    text[*size] = '\0';
    *out = text;
    text = NULL;
cleanup:
    free(text);
    close(file);
    return status;
}

/* Whether a text begins and ends like this, and ends once. */
static bool is_framed(const char *text, size_t size, const char *begin, const char *end) {
    const char *found = strstr(text, end);
    return strncmp(text, begin, strlen(begin)) == 0 && found && found + strlen(end) == text + size;
}

static void add_indented(bw_text *to, const char *lines) {
    for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
        bw_text_add(to, "\n  %.*s", (int)(end - lines), lines);
    }
}

/* The file's content with one more report. Only its first and last bytes are examined: bwprof writes what is between
 * them in one step. */
static bw_status add_to(bw_text *to, const char *before, size_t size, const bwprof_report *report, const char *path) {
    if (!before) {
        bw_report_add(to, report, "");
        bw_text_add(to, "\n");
        return BW_OK;
    }
    if (is_framed(before, size, "[\n  {\n    \"operation\": ", "\n  }\n]\n")) {
        bw_text_add(to, "%.*s", (int)(size - strlen("\n]\n")), before);
    } else if (is_framed(before, size, "{\n  \"operation\": ", "\n}\n")) {
        bw_text_add(to, "[");
        add_indented(to, before);
    } else {
        bool is_run = strncmp(before, "{\n  \"run\": ", strlen("{\n  \"run\": ")) == 0;
        return bw_fail(BW_CODE_INVALID, "%.300s %s: move it away, or take another run_id", path,
                       is_run ? "holds a whole run's results" : "is not a proof bundle");
    }
    bw_text_add(to, ",\n  ");
    bw_report_add(to, report, "  ");
    bw_text_add(to, "\n]\n");
    return BW_OK;
}

/* One at a time, whichever threads and processes save reports of this run. */
static bw_status add_report(const bwprof_report *report, const place *place) {
    char *before = NULL;
    size_t size = 0;
    bw_text text = {0};
    bw_file_lock lock;
    bw_status status = BW_OK;
    BW_TRY(bw_file_lock_take(place->folder, NAME, &lock));
    BW_GOTO(read_file(place->path, &before, &size));
    BW_GOTO(add_to(&text, before, size, report, place->path));
    status = bw_file_write(place->path, &text);
cleanup:
    bw_file_lock_release(&lock);
    bw_text_free(&text);
    free(before);
    return status;
}

static bw_status save(const bwprof_report *report, const char *run_id) {
    place place;
    BW_TRY(bw_report_check(report));
    BW_TRY(find_place(run_id, &place));
    return add_report(report, &place);
}

bwprof_status bwprof_report_save_to_proof_bundle(const bwprof_report *report, const char *run_id) {
    return bw_api_answer(save(report, run_id));
}
