#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cpu/host.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/checked.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024 };

/* The start of a small file, without its last newline; false where it cannot be read. */
static bool read_text(const char *path, char *out, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    size_t used = 0;
    ssize_t got;
    while (used + 1 < size && (got = read(file, out + used, size - 1 - used)) > 0) used += (size_t)got;
    close(file);
    if (used && out[used - 1] == '\n') used--;
    out[used] = '\0';
    return used > 0;
}

/* The value after `key` at the start of a line, as in "MemAvailable:  123 kB"; -1 = not there. */
static int64_t number_after(const char *text, const char *key) {
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) == 0) return strtoll(line + length, NULL, 10);
    }
    return -1;
}

static int64_t read_number(const char *path) {
    char text[64];
    if (!read_text(path, text, sizeof text)) return -1;
    char *end;
    int64_t value = strtoll(text, &end, 10);
    return end == text ? -1 : value; /* "max" is no number */
}

/* What differs between the two versions of control groups. */
typedef struct group_files {
    const char *mount, *limit, *usage, *cache_key;
} group_files;

static const group_files group_v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file "};
static const group_files group_v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};

static int64_t group_number(const group_files *files, const char *path, const char *name) {
    char full[2 * PATH_BYTES];
    snprintf(full, sizeof full, "%s%s/%s", files->mount, path, name);
    return read_number(full);
}

/* Tightens total and available by one group's limit; file cache that can be dropped counts as available. */
static void apply_group(const group_files *files, const char *path, int64_t *total, int64_t *available) {
    int64_t limit = group_number(files, path, files->limit);
    if (limit < 0) return;
    *total = bw_min64(*total, limit);
    int64_t usage = group_number(files, path, files->usage);
    if (usage < 0) return;
    char full[2 * PATH_BYTES], text[TEXT_BYTES];
    snprintf(full, sizeof full, "%s%s/memory.stat", files->mount, path);
    int64_t cache = read_text(full, text, sizeof text) ? number_after(text, files->cache_key) : 0;
    *available = bw_min64(*available, bw_max64(0, limit - usage + bw_max64(0, cache)));
}

/* The group named by the rest of a line of /proc/self/cgroup, and all above it. Inside a container the path may not
 * exist, and the mount's root is the container's own group. */
static void apply_groups(const group_files *files, const char *line, int64_t *total, int64_t *available) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(line, "\n"), line);
    for (;;) {
        size_t length = strlen(path);
        while (length && path[length - 1] == '/') path[--length] = '\0';
        apply_group(files, path, total, available);
        char *slash = strrchr(path, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

static void read_memory(int64_t *total, int64_t *available) {
    char text[TEXT_BYTES];
    *total = *available = 0;
    if (read_text("/proc/meminfo", text, sizeof text)) {
        *total = number_after(text, "MemTotal:") * 1024;
        *available = number_after(text, "MemAvailable:") * 1024;
    } else {
        *total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
        *available = (int64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
    }
    if (!read_text("/proc/self/cgroup", text, sizeof text)) return;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        const char *controllers = strchr(line, ':');
        const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) return;
        int length = (int)(path - controllers - 1);
        if (length == 0) apply_groups(&group_v2, path + 1, total, available);
        if (length == 7 && strncmp(controllers, ":memory:", 8) == 0)
            apply_groups(&group_v1, path + 1, total, available);
    }
}

int64_t bw_host_memory_available(void) {
    int64_t total, available;
    read_memory(&total, &available);
    return available;
}

int64_t bw_host_memory_total(void) {
    int64_t total, available;
    read_memory(&total, &available);
    return total;
}

int64_t bw_host_cache_bytes(void) {
    int64_t best_level = 0, best_bytes = 0;
    for (int index = 0; index < 16; index++) {
        char path[128], type[32], size[32];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
        if (!read_text(path, type, sizeof type)) break;
        if (strcmp(type, "Instruction") == 0) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
        int64_t level = read_number(path);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        if (level <= best_level || !read_text(path, size, sizeof size)) continue;
        char *unit;
        best_level = level;
        best_bytes = strtoll(size, &unit, 10);
        if (*unit == 'K') best_bytes <<= 10;
        if (*unit == 'M') best_bytes <<= 20;
    }
    if (best_bytes) return best_bytes;
    long level3 = -1, level2 = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return level3 > 0 ? level3 : level2 > 0 ? level2 : 0;
}

void bw_host_name(char *out, size_t size) {
    char text[TEXT_BYTES];
    snprintf(out, size, "CPU");
    if (!read_text("/proc/cpuinfo", text, sizeof text)) return;
    const char *line = strstr(text, "model name");
    const char *value = line ? strchr(line, ':') : NULL;
    if (value) {
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        return;
    }
    struct utsname names; /* aarch64 has no model name there */
    if (uname(&names) == 0) snprintf(out, size, "%s CPU", names.machine);
}

void bw_host_release(char *out, size_t size) {
    struct utsname names;
    snprintf(out, size, "%s", uname(&names) == 0 ? names.release : "");
}

/* The word in brackets of "always [madvise] never". */
static void huge_page_setting(char *out, size_t size) {
    char text[128];
    snprintf(out, size, "unknown");
    if (!read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) return;
    const char *open_bracket = strchr(text, '[');
    if (!open_bracket) return;
    snprintf(out, size, "%.*s", (int)strcspn(open_bracket + 1, "]"), open_bracket + 1);
}

void bw_host_note(int64_t cache_bytes, char *out, size_t size) {
    char huge[32], governor[48];
    huge_page_setting(huge, sizeof huge);
    if (!read_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor)) {
        snprintf(governor, sizeof governor, "not readable");
    }
    int used = snprintf(out, size, "pages of %ld KiB, transparent huge pages: %s; frequency governor: %s; ",
                        sysconf(_SC_PAGESIZE) / 1024, huge, governor);
    if (used < 0 || (size_t)used >= size) return;
    if (cache_bytes) {
        snprintf(out + used, size - (size_t)used,
                 "last-level cache reported: %lld MiB, which others may share; what is cold beyond it cannot be seen",
                 (long long)(cache_bytes >> 20));
    } else {
        snprintf(out + used, size - (size_t)used, "last-level cache: size unknown");
    }
}
