/* The lock of a file that several processes write. bwprof's Python package uses the same lock. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/reports/report.h"
#include "base/clock.h"

enum { PATIENCE_S = 10, PAUSE_NS = 10 * 1000 * 1000 };

/* Whether an open file is still the one of that name. */
static bool is_at(int file, const char *path) {
    struct stat open_one, named;
    return fstat(file, &open_one) == 0 && stat(path, &named) == 0 && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

/* *file < 0: another has it. Where the file system knows no locks, everybody does. */
static bw_status try_once(const char *path, int *file) {
    *file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (*file < 0) return bw_file_error(path);
    bool refused = flock(*file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!refused && is_at(*file, path)) return BW_OK;
    close(*file);
    *file = -1; /* or its holder removed it between the two steps */
    return BW_OK;
}

bw_status bw_file_lock_take(const char *folder, const char *name, bw_file_lock *out) {
    double end = bw_now_s() + PATIENCE_S;
    bw_status status = BW_OK;
    *out = (bw_file_lock){-1, NULL};
    size_t size = strlen(folder) + strlen(name) + sizeof "/..writing";
    out->path = malloc(size);
    if (!out->path) return bw_fail(BW_CODE_MEMORY, "no host memory for a file's name");
    snprintf(out->path, size, "%s/.%s.writing", folder, name);
    while (!(status = try_once(out->path, &out->file)) && out->file < 0 && bw_now_s() < end) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    if (out->file >= 0) return BW_OK;
    if (!status) status = bw_fail(BW_CODE_BUSY, "%.300s/%s: another bwprof is writing to it", folder, name);
    bw_file_lock_release(out);
    return status;
}

void bw_file_lock_release(bw_file_lock *self) {
    if (self->file >= 0) {
        if (is_at(self->file, self->path)) unlink(self->path);
        close(self->file);
    }
    free(self->path);
    *self = (bw_file_lock){-1, NULL};
}
