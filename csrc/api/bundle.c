/* Proof bundles: a folder of reports for each run, in the working directory, as bwprof.BandwidthReport writes them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"

#define RESULTS ".test-results"
#define ROOT RESULTS "/bandwidth"
#define NAME "bandwidth_report.json"
#define LOCK_NAME "." NAME ".writing"

enum { RUN_ID_MOST = 128, PATH_SIZE = sizeof ROOT + sizeof LOCK_NAME + RUN_ID_MOST + 2, BYTES_MOST = 1 << 28 };
enum { PATIENCE_S = 10, PAUSE_NS = 10 * 1000 * 1000 };

typedef struct place {
    char folder[PATH_SIZE], path[PATH_SIZE];
    char lock[PATH_SIZE]; /* a hidden file beside it; bwprof's Python package locks the same one */
} place;

static bw_status check_text(const char *text, size_t most, const char *name) {
    if (memchr(text, '\0', most) == NULL) {
        return bw_fail(BW_CODE_INVALID, "%s has no end: allowed are %d bytes and a 0", name, (int)most - 1);
    }
    return *text ? BW_OK : bw_fail(BW_CODE_INVALID, "%s is empty", name);
}

static bw_status check_report(const bwprof_report *self) {
    BW_TRY(bw_api_need(self, "report"));
    BW_TRY(check_text(self->operation, sizeof self->operation, "operation"));
    BW_TRY(check_text(self->precision, sizeof self->precision, "precision"));
    if (!(self->time_ms >= 1e-100 && self->time_ms <= 1e100)) {
        return bw_fail(BW_CODE_INVALID, "time_ms is %g: a time above 0 (1e-100 to 1e+100) is needed", self->time_ms);
    }
    if (!(self->bandwidth_gb_s >= 0.0 && self->bandwidth_gb_s <= 1e100)) {
        return bw_fail(BW_CODE_INVALID, "bandwidth_gb_s is %g: a number from 0 to 1e+100 is needed",
                       self->bandwidth_gb_s);
    }
    return BW_OK;
}

static void add_object(bw_text *to, const bwprof_report *self, const char *indent) {
    char between[8];
    snprintf(between, sizeof between, ",\n%s  ", indent);
    bw_row row = {.to = to, .form = BW_JSON, .between = between};
    bw_text_add(to, "{\n%s  ", indent);
    bw_row_text(&row, "operation", self->operation);
    bw_row_text(&row, "precision", self->precision);
    bw_row_number(&row, "time_ms", self->time_ms);
    bw_row_number(&row, "bandwidth_gb_s", self->bandwidth_gb_s);
    bw_row_whole(&row, "bytes_read", true, self->bytes_read);
    bw_row_whole(&row, "bytes_written", true, self->bytes_written);
    bw_text_add(to, "\n%s}", indent);
}

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

static bw_status make_folder(const char *folder) {
    const char *const folders[] = {RESULTS, ROOT, folder};
    for (int i = 0; i < 3; i++) {
        if (mkdir(folders[i], 0777) != 0 && errno != EEXIST) return bw_file_error(folders[i]);
    }
    return BW_OK;
}

static bw_status find_place(const char *run_id, place *out) {
    BW_TRY(check_run_id(run_id));
    snprintf(out->folder, sizeof out->folder, "%s/%s", ROOT, run_id);
    snprintf(out->path, sizeof out->path, "%s/%s/%s", ROOT, run_id, NAME);
    snprintf(out->lock, sizeof out->lock, "%s/%s/%s", ROOT, run_id, LOCK_NAME);
    BW_TRY(refuse_link(out->folder));
    BW_TRY(refuse_link(out->path));
    return make_folder(out->folder);
}

/* Whether an open file is still the one of that name. */
static bool is_at(int file, const char *path) {
    struct stat open_one, named;
    return fstat(file, &open_one) == 0 && stat(path, &named) == 0 && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

/* *file < 0: another has it. Where the file system knows no locks, everybody does. */
static bw_status try_lock(const char *path, int *file) {
    *file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*file < 0) return bw_file_error(path);
    bool refused = flock(*file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!refused && is_at(*file, path)) return BW_OK;
    close(*file);
    *file = -1; /* or its holder removed it between the two steps */
    return BW_OK;
}

static bw_status take_lock(const place *place, int *file) {
    double end = bw_now_s() + PATIENCE_S;
    bw_status status = BW_OK;
    while (!(status = try_lock(place->lock, file)) && *file < 0 && bw_now_s() < end) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    if (status || *file >= 0) return status;
    return bw_fail(BW_CODE_BUSY, "%.300s: another bwprof is writing to it", place->path);
}

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

/* Only the file's first and last bytes are examined: bwprof writes what is between them in one step. */
static bw_status add_to(bw_text *to, const char *before, size_t size, const bwprof_report *report, const char *path) {
    if (!before) {
        add_object(to, report, "");
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
    add_object(to, report, "  ");
    bw_text_add(to, "\n]\n");
    return BW_OK;
}

static bw_status save(const bwprof_report *report, const char *run_id) {
    place place;
    char *before = NULL;
    size_t size = 0;
    bw_text text = {0};
    int lock;
    bw_status status = BW_OK;
    BW_TRY(check_report(report));
    BW_TRY(find_place(run_id, &place));
    BW_TRY(take_lock(&place, &lock));
    BW_GOTO(read_file(place.path, &before, &size));
    BW_GOTO(add_to(&text, before, size, report, place.path));
    status = bw_file_write(place.path, &text);
cleanup:
    if (is_at(lock, place.lock)) unlink(place.lock);
    close(lock);
    bw_text_free(&text);
    free(before);
    return status;
}

bwprof_status bwprof_report_save_to_proof_bundle(const bwprof_report *report, const char *run_id) {
    return bw_api_answer(save(report, run_id));
}
