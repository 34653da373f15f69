/* Files of the C library: a text becomes a file's content in one step, so that no reader sees half of it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"

enum { TRIES = 100, NAME_PART = 200, LINKS_MOST = 40, PATH_SIZE = PATH_MAX + 64 };

bw_status bw_file_error(const char *path) {
    return bw_fail(BW_CODE_SYSTEM, "Failed to open output file: %.400s: %s", path, strerror(errno));
}

/* The number of a file that this process has open, by a name of the system's for it; -1 for any other path. */
static int open_number(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (int i = 0; i < 2; i++) {
        size_t size = strlen(folders[i]);
        if (strncmp(path, folders[i], size) != 0) continue;
        const char *digits = path + size;
        if (*digits && strlen(digits) <= 9 && digits[strspn(digits, "0123456789")] == '\0') return atoi(digits);
    }
    return -1;
}

/* Pipes, devices and what is open are written to as they are. */
static bool is_plain(const char *path) {
    struct stat found;
    return open_number(path) < 0 && (stat(path, &found) != 0 || S_ISREG(found.st_mode));
}

static bw_status write_all(int file, const bw_text *text, const char *path) {
    for (size_t done = 0; done < text->size;) {
        ssize_t written = write(file, text->bytes + done, text->size - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return bw_file_error(path);
        done += (size_t)written;
    }
    return BW_OK;
}

static bw_status open_beside(const char *path, int *file, char out[PATH_SIZE]) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct stat old;
    *file = -1;
    for (int i = 0; i < TRIES && *file < 0; i++) {
        snprintf(out, PATH_SIZE, "%.*s.%.*s.%lx.%llx.tmp", (int)(name - path), path, NAME_PART, name, (long)getpid(),
                 (unsigned long long)bw_now_ns());
        *file = open(out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*file < 0 && errno != EEXIST) break;
    }
    if (*file < 0) return bw_file_error(path);
    if (stat(path, &old) == 0) (void)!fchmod(*file, old.st_mode & 07777);
    return BW_OK;
}

static bw_status check_path(const char *path) {
    BW_TRY(bw_api_need(path, "path"));
    return *path ? BW_OK : bw_fail(BW_CODE_INVALID, "path is empty");
}

static bool follow_link(const char *path, char out[PATH_MAX]) {
    char target[PATH_MAX];
    const char *slash = strrchr(path, '/');
    ssize_t size = readlink(path, target, sizeof target - 1);
    if (size < 0) return false;
    target[size] = '\0';
    int folder = slash && target[0] != '/' ? (int)(slash + 1 - path) : 0;
    return snprintf(out, PATH_MAX, "%.*s%s", folder, path, target) < PATH_MAX;
}

/* Where a link leads, also to nothing; the path itself where nothing is there yet. */
static bw_status place_of(const char *path, char out[PATH_MAX]) {
    char next[PATH_MAX];
    if (realpath(path, out)) return BW_OK;
    if (errno != ENOENT) return bw_file_error(path);
    if (snprintf(out, PATH_MAX, "%s", path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return bw_file_error(path);
    }
    for (int i = 0; i < LINKS_MOST && follow_link(out, next); i++) memcpy(out, next, sizeof next);
    return BW_OK;
}

bw_status bw_file_check(const char *path) {
    char place[PATH_MAX], beside[PATH_SIZE];
    int file;
    struct stat found;
    BW_TRY(check_path(path));
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
        errno = EISDIR;
        return bw_file_error(path);
    }
    if (!is_plain(path)) return access(path, W_OK) == 0 ? BW_OK : bw_file_error(path);
    BW_TRY(place_of(path, place));
    BW_TRY(open_beside(place, &file, beside));
    close(file);
    unlink(beside);
    return BW_OK;
}

static bw_status write_in_place(const char *path, const bw_text *text) {
    int number = open_number(path);
    int file = number < 0 ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : fcntl(number, F_DUPFD_CLOEXEC, 0);
    if (file < 0) return bw_file_error(path);
    bw_status status = write_all(file, text, path);
    close(file);
    return status;
}

/* The new name lasts as its content does; not every file system can. */
static void sync_folder_of(char *path) {
    char *end = strrchr(path, '/');
    if (end) *end = '\0';
    int folder = open(!end ? "." : end == path ? "/" : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    (void)!fsync(folder);
    close(folder);
}

bw_status bw_file_write(const char *path, const bw_text *text) {
    char place[PATH_MAX], beside[PATH_SIZE];
    int file;
    BW_TRY(check_path(path));
    if (text->failed) return bw_fail(BW_CODE_MEMORY, "no host memory for the text of %.400s", path);
    if (!is_plain(path)) return write_in_place(path, text);
    BW_TRY(place_of(path, place));
    BW_TRY(open_beside(place, &file, beside));
    bw_status status = write_all(file, text, path);
    if (!status && fsync(file) != 0) status = bw_file_error(path);
    if (close(file) != 0 && !status) status = bw_file_error(path);
    if (!status && rename(beside, place) != 0) status = bw_file_error(path);
    if (status) unlink(beside);
    if (!status) sync_folder_of(place);
    return status;
}
