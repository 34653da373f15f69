/* Reads caches, memory, NUMA nodes and quotas of the machine from /proc, /sys and the control groups. */
#include "cpu/host.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/checked.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024, NODES_MOST = 256 };

bool bw_host_read(const char *path, char *out, size_t size) {
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

static bool read_file(const char *folder, const char *name, char *out, size_t size) {
    char path[3 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return bw_host_read(path, out, size);
}

/* A group's folder, and a file in it. */
typedef struct group {
    char folder[2 * PATH_BYTES];
    bool second; /* of version 2 */
} group;

static int64_t group_number(const group *at, const char *name) {
    char text[64], *end;
    if (!read_file(at->folder, name, text, sizeof text)) return -1;
    int64_t value = strtoll(text, &end, 10);
    return end == text ? -1 : value; /* "max" is no number */
}

typedef void (*group_look)(const group *at, void *found);

/* The group of that path, and all above it. Inside a container the path may not exist, and the mount's root is the
 * container's own group. */
static void look_upwards(const char *mount, const char *path, bool second, group_look look, void *found) {
    char rest[PATH_BYTES];
    group at = {.second = second};
    snprintf(rest, sizeof rest, "%s", path);
    for (;;) {
        size_t length = strlen(rest);
        while (length && rest[length - 1] == '/') rest[--length] = '\0';
        snprintf(at.folder, sizeof at.folder, "%s%s", mount, rest);
        look(&at, found);
        char *slash = strrchr(rest, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

/* Is this word in a list such as "cpu,cpuacct"? */
static bool names_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
    }
    return false;
}

/* Looks at all groups that limit a controller ("memory", "cpu") for this process. */
static void look_at_groups(const char *root, const char *controller, group_look look, void *found) {
    char path[PATH_BYTES], text[TEXT_BYTES], mount[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (!bw_host_read(path, text, sizeof text)) return;
    for (char *line = text, *next; line; line = next) { /* "4:cpu,cpuacct:/path"; version 2 is "0::/path" */
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        char *controllers = strchr(line, ':'), *at = controllers ? strchr(++controllers, ':') : NULL;
        if (!at) continue;
        *at++ = '\0';
        const char *mounts[] = {controller, controllers}; /* either may be the only one; version 2 has neither */
        bool second = !*controllers;
        for (int i = second; i < 2 && (second || names_word(controllers, controller)); i++) {
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, second ? "" : "/", mounts[i]);
            look_upwards(mount, at, second, look, found);
        }
    }
}

/* Tightens total and available by one group's limit; file cache that can be dropped counts as available. */
static void look_at_memory(const group *at, void *found) {
    bw_host_memory *memory = found;
    char text[TEXT_BYTES];
    int64_t limit = group_number(at, at->second ? "memory.max" : "memory.limit_in_bytes");
    if (limit < 0) return;
    memory->total = bw_min64(memory->total, limit);
    int64_t usage = group_number(at, at->second ? "memory.current" : "memory.usage_in_bytes");
    if (usage < 0) return;
    const char *key = at->second ? "inactive_file " : "total_inactive_file ";
    int64_t cache = read_file(at->folder, "memory.stat", text, sizeof text) ? number_after(text, key) : 0;
    memory->available = bw_min64(memory->available, bw_max64(0, limit - usage + bw_max64(0, cache)));
}

/* The smallest quota counts: a group has no more than those above it. */
static void look_at_quota(const group *at, void *found) {
    double *cpus = found;
    char text[64];
    long long quota = -1, period = -1;
    if (!at->second) {
        quota = group_number(at, "cpu.cfs_quota_us");
        period = group_number(at, "cpu.cfs_period_us");
    } else if (!read_file(at->folder, "cpu.max", text, sizeof text) ||
               sscanf(text, "%lld %lld", &quota, &period) != 2) {
        return; /* "max 100000" */
    }
    if (quota > 0 && period > 0) *cpus = fmin(*cpus, (double)quota / (double)period);
}

static void look_at_throttling(const group *at, void *found) {
    int64_t *longest_us = found;
    char text[TEXT_BYTES];
    if (!read_file(at->folder, "cpu.stat", text, sizeof text)) return;
    int64_t us = number_after(text, "throttled_usec "), ns = number_after(text, "throttled_time ");
    *longest_us = bw_max64(*longest_us, ns < 0 ? us : ns / 1000);
}

double bw_host_quota_of(const char *root) {
    double cpus = INFINITY;
    look_at_groups(root, "cpu", look_at_quota, &cpus);
    return cpus;
}

int64_t bw_host_throttled_us_of(const char *root) {
    int64_t us = -1;
    look_at_groups(root, "cpu", look_at_throttling, &us);
    return us;
}

bw_host_memory bw_host_memory_of(const char *root) {
    char path[PATH_BYTES], text[TEXT_BYTES] = "";
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    bw_host_read(path, text, sizeof text);
    bw_host_memory found = {number_after(text, "MemTotal:"), number_after(text, "MemAvailable:")};
    if (found.available < 0 && number_after(text, "MemFree:") >= 0) { /* a kernel that does not work it out */
        int64_t cached = bw_max64(0, number_after(text, "Cached:")), shared = bw_max64(0, number_after(text, "Shmem:"));
        found.available = number_after(text, "MemFree:") + bw_max64(0, cached - shared);
    }
    int64_t page_bytes = sysconf(_SC_PAGESIZE);
    found.total = found.total < 0 ? sysconf(_SC_PHYS_PAGES) * page_bytes : found.total * 1024;
    found.available = found.available < 0 ? sysconf(_SC_AVPHYS_PAGES) * page_bytes : found.available * 1024;
    look_at_groups(root, "memory", look_at_memory, &found);
    return found;
}

/* Is this number in a list such as "0-7,64-71"? */
static bool list_has(const char *list, int64_t number) {
    for (const char *at = list; *at;) {
        char *end;
        int64_t first = strtoll(at, &end, 10), last = first;
        if (end == at) return false;
        if (*end == '-') last = strtoll(end + 1, &end, 10);
        if (first <= number && number <= last) return true;
        at = end + (*end == ',');
    }
    return false;
}

/* "32768K"; 0 = none, or absurd. */
static int64_t size_of(const char *text) {
    char *unit;
    int64_t value = strtoll(text, &unit, 10);
    if (value < 0 || value > (int64_t)1 << 32) return 0;
    return *unit == 'K' ? value << 10 : *unit == 'M' ? value << 20 : *unit == 'G' ? value << 30 : value;
}

/* One CPU's cache of the highest level, and who shares it ("" where that is not known); 0 bytes: it has none that can
 * be read, as an offline one. */
static int64_t last_cache_of(const char *system, int cpu, char *sharers, size_t size) {
    int64_t best_level = 0, best_bytes = 0;
    for (int index = 0; index < 16; index++) {
        char folder[PATH_BYTES], text[64];
        snprintf(folder, sizeof folder, "%s/cpu/cpu%d/cache/index%d", system, cpu, index);
        if (!read_file(folder, "type", text, sizeof text)) break;
        if (strcmp(text, "Instruction") == 0) continue;
        int64_t level = read_file(folder, "level", text, sizeof text) ? strtoll(text, NULL, 10) : -1;
        if (level <= best_level || !read_file(folder, "size", text, sizeof text) || !size_of(text)) continue;
        best_level = level;
        best_bytes = size_of(text);
        if (!read_file(folder, "shared_cpu_list", sharers, size) || !list_has(sharers, cpu)) sharers[0] = '\0';
    }
    return best_bytes;
}

bw_host_caches bw_host_caches_of(const char *system, const int *cpus, int count) {
    bw_host_caches found = {0, 0};
    char sharers[TEXT_BYTES];
    bool *counted = calloc((size_t)count + 1, sizeof *counted), unknown = false;
    for (int i = 0; counted && i < count; i++) {
        if (counted[i]) continue;
        int64_t bytes = last_cache_of(system, cpus[i], sharers, sizeof sharers);
        if (!bytes || (!sharers[0] && unknown)) continue;
        unknown = unknown || !sharers[0]; /* one for all where their sharers are not known */
        for (int j = i + 1; j < count; j++) counted[j] = counted[j] || list_has(sharers, cpus[j]);
        found.bytes += bytes;
        found.count++;
    }
    free(counted);
    if (found.bytes) return found;
    long level3 = -1, level2 = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    found.bytes = level3 > 0 ? level3 : level2 > 0 ? level2 : 0;
    found.count = found.bytes > 0;
    return found;
}

int bw_host_nodes_of(const char *system, const int *cpus, int count) {
    int nodes = 0;
    for (int node = 0; node < NODES_MOST; node++) {
        char path[PATH_BYTES], list[TEXT_BYTES];
        snprintf(path, sizeof path, "%s/node/node%d/cpulist", system, node);
        if (!bw_host_read(path, list, sizeof list)) continue;
        int cpu = 0;
        while (cpu < count && !list_has(list, cpus[cpu])) cpu++;
        nodes += cpu < count;
    }
    return nodes > 0 ? nodes : 1;
}

void bw_host_name(char *out, size_t size) {
    char text[TEXT_BYTES];
    snprintf(out, size, "CPU");
    if (!bw_host_read("/proc/cpuinfo", text, sizeof text)) return;
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
    if (!bw_host_read("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) return;
    const char *open_bracket = strchr(text, '[');
    if (!open_bracket) return;
    snprintf(out, size, "%.*s", (int)strcspn(open_bracket + 1, "]"), open_bracket + 1);
}

static void note_caches(const bw_host_caches *caches, int64_t taken_bytes, char *out, size_t size) {
    static const double mib = 1 << 20;
    char which[32] = "last-level cache", among[32] = "";
    if (caches->count > 1) {
        snprintf(which, sizeof which, "%d last-level caches", caches->count);
        snprintf(among, sizeof among, " in %d caches", caches->count);
    }
    if (!taken_bytes) {
        snprintf(out, size, "last-level cache: size unknown");
    } else if (taken_bytes == caches->bytes) {
        snprintf(out, size, "%s reported: %.9g MiB, which others may share; what is cold beyond it cannot be seen",
                 which, (double)caches->bytes / mib);
    } else if (caches->bytes) {
        snprintf(out, size, "last-level cache taken as %.9g MiB by BWPROF_CPU_CACHE_MIB, %.9g MiB reported%s",
                 (double)taken_bytes / mib, (double)caches->bytes / mib, among);
    } else {
        snprintf(out, size, "last-level cache taken as %.9g MiB by BWPROF_CPU_CACHE_MIB, its size is not reported",
                 (double)taken_bytes / mib);
    }
}

void bw_host_note(const bw_host_caches *caches, int64_t taken_bytes, char *out, size_t size) {
    char huge[32], governor[48];
    huge_page_setting(huge, sizeof huge);
    if (!bw_host_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor)) {
        snprintf(governor, sizeof governor, "not readable");
    }
    int used = snprintf(out, size, "pages of %ld KiB, transparent huge pages: %s; frequency governor: %s; ",
                        sysconf(_SC_PAGESIZE) / 1024, huge, governor);
    if (used < 0 || (size_t)used >= size) return;
    note_caches(caches, taken_bytes, out + used, size - (size_t)used);
}
