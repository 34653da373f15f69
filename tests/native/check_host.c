/* Last-level caches, memory nodes, memory and control groups of planted machines: trees as Linux keeps them. */
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "cpu/host.h"

enum { CPUS_MOST = 200 };

typedef struct machine {
    char root[64];
    int cpus[CPUS_MOST];
} machine;

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

static void begin(machine *self) {
    snprintf(self->root, sizeof self->root, "/tmp/bwprof-machine-XXXXXX");
    CHECK(mkdtemp(self->root), "no folder for a machine");
    for (int i = 0; i < CPUS_MOST; i++) self->cpus[i] = i;
}

static void end(machine *self) {
    CHECK_EQUAL(nftw(self->root, remove_entry, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* Makes the folders above it, too. */
static void plant(const machine *self, const char *text, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", self->root, name);
    for (char *slash = path + strlen(self->root); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    CHECK(file, "%s cannot be written", path);
    if (!file) return;
    fprintf(file, "%s\n", text);
    fclose(file);
}

/* `sharers` NULL: the file is missing. */
static void plant_cache(const machine *self, int cpu, int index, int level, const char *type, const char *size,
                        const char *sharers) {
    const char *names[] = {"level", "type", "size", "shared_cpu_list"};
    char number[16], path[128];
    snprintf(number, sizeof number, "%d", level);
    const char *texts[] = {number, type, size, sharers};
    for (int i = 0; i < 4; i++) {
        if (!texts[i]) continue;
        snprintf(path, sizeof path, "cpu/cpu%d/cache/index%d/%s", cpu, index, names[i]);
        plant(self, texts[i], path);
    }
}

static void plant_core(const machine *self, int cpu, const char *l3, const char *sharers) {
    char alone[16];
    snprintf(alone, sizeof alone, "%d", cpu);
    plant_cache(self, cpu, 0, 1, "Data", "32K", alone);
    plant_cache(self, cpu, 1, 1, "Instruction", "32K", alone);
    plant_cache(self, cpu, 2, 2, "Unified", "1024K", alone);
    if (l3) plant_cache(self, cpu, 3, 3, "Unified", l3, sharers);
}

/* A CPU whose files are another's. */
static void plant_like(const machine *self, int cpu, int other) {
    char path[128], target[16];
    snprintf(path, sizeof path, "%s/cpu/cpu%d", self->root, cpu);
    snprintf(target, sizeof target, "cpu%d", other);
    CHECK_EQUAL(symlink(target, path), 0);
}

static void expect(const machine *self, const int *cpus, int count, int64_t mib, int caches) {
    bw_host_caches found = bw_host_caches_of(self->root, cpus, count);
    CHECK_EQUAL(found.bytes, mib << 20);
    CHECK_EQUAL(found.count, caches);
}

/* 96 cores in 12 dies of 32 MiB each; the second thread of core n is CPU n + 96. What a core has to itself is not told
 * from what its die's first has: 4 000 files would be a fifth of all checks' time. */
static void twelve_caches(int op_index) {
    (void)op_index;
    machine m;
    begin(&m);
    for (int cpu = 0; cpu < 192; cpu++) {
        char sharers[32];
        int die = cpu % 96 / 8;
        if (cpu != 8 * die) {
            plant_like(&m, cpu, 8 * die);
            continue;
        }
        snprintf(sharers, sizeof sharers, "%d-%d,%d-%d", 8 * die, 8 * die + 7, 8 * die + 96, 8 * die + 103);
        plant_core(&m, cpu, "32768K", sharers);
    }
    expect(&m, m.cpus, 192, 12 * 32, 12);
    expect(&m, m.cpus, 96, 12 * 32, 12);
    /* Masks that reach some of them only. */
    expect(&m, m.cpus, 8, 32, 1);
    expect(&m, m.cpus, 9, 2 * 32, 2);
    expect(&m, (const int[]){3, 99}, 2, 32, 1);
    expect(&m, (const int[]){191, 0, 95, 40}, 4, 3 * 32, 3);
    end(&m);
}

static void other_caches(int op_index) {
    (void)op_index;
    machine m;
    begin(&m); /* two sockets with one cache each, sizes written in three ways */
    plant_core(&m, 0, "300M", "0,2");
    plant_core(&m, 2, "300M", "0,2");
    plant_core(&m, 1, "307200K", "1,3-4000");
    plant_core(&m, 4000, "314572800", "1,3-4000");
    expect(&m, (const int[]){0, 1, 2, 4000}, 4, 600, 2);
    expect(&m, (const int[]){4000, 2}, 2, 600, 2);
    end(&m);
    begin(&m); /* the second level is the last: one for each pair of cores; one core has none of its own below it */
    for (int cpu = 0; cpu < 4; cpu++) {
        plant_cache(&m, cpu, 0, 1, "Data", "64K", cpu ? "1" : "0");
        plant_cache(&m, cpu, 1, 2, "Unified", "2048K", cpu < 2 ? "0-1" : "2-3");
    }
    expect(&m, m.cpus, 4, 4, 2);
    end(&m);
    begin(&m); /* big cores share a cache, small ones have their second level only */
    for (int cpu = 0; cpu < 4; cpu++) plant_core(&m, cpu, cpu < 2 ? "24M" : NULL, "0-1");
    expect(&m, m.cpus, 4, 24 + 1 + 1, 3);
    end(&m);
}

static void unreadable_caches(int op_index) {
    (void)op_index;
    machine m;
    begin(&m); /* who shares them is not told, or nonsense: one for all of these */
    for (int cpu = 0; cpu < 8; cpu++) plant_core(&m, cpu, "16M", cpu % 2 ? NULL : "none,-,5-");
    expect(&m, m.cpus, 8, 16, 1);
    end(&m);
    begin(&m); /* CPU 0 is offline: it has no cache folder, and CPU 1 still counts */
    plant_core(&m, 1, "16M", "0-1");
    plant(&m, "0", "cpu/cpu0/online");
    expect(&m, m.cpus, 2, 16, 1);
    end(&m);
    begin(&m); /* absurd sizes are none */
    plant_core(&m, 0, "-5K", "0");
    plant_core(&m, 1, "99999999999999999999K", "1");
    expect(&m, m.cpus, 2, 2, 2);
    end(&m);
    begin(&m); /* nothing at all: what the C library knows of this machine, whatever that is */
    bw_host_caches found = bw_host_caches_of(m.root, m.cpus, 4), unpinned = bw_host_caches_of(m.root, NULL, 0);
    CHECK(found.bytes >= 0 && found.count == (found.bytes > 0), "%lld bytes in %d", (long long)found.bytes,
          found.count);
    CHECK_EQUAL(unpinned.bytes, found.bytes);
    end(&m);
}

static void expect_note(bw_host_caches caches, int64_t taken_bytes, const char *wanted) {
    char note[512];
    bw_host_note(&caches, taken_bytes, note, sizeof note);
    const char *governor = strstr(note, "governor: "), *end = governor ? strchr(governor, ';') : NULL;
    CHECK(end && !strcmp(end + 2, wanted), "note: %s", note);
}

static void what_is_noted(int op_index) {
    static const int64_t mib = 1 << 20;
    (void)op_index;
    expect_note((bw_host_caches){0, 0}, 0, "last-level cache: size unknown");
    expect_note((bw_host_caches){32 * mib, 1}, 32 * mib,
                "last-level cache reported: 32 MiB, which others may share; what is cold beyond it cannot be seen");
    expect_note(
        (bw_host_caches){384 * mib, 12}, 384 * mib,
        "12 last-level caches reported: 384 MiB, which others may share; what is cold beyond it cannot be seen");
    expect_note((bw_host_caches){0, 0}, 32 * mib,
                "last-level cache taken as 32 MiB by BWPROF_CPU_CACHE_MIB, its size is not reported");
    expect_note((bw_host_caches){256 * mib, 1}, 32 * mib,
                "last-level cache taken as 32 MiB by BWPROF_CPU_CACHE_MIB, 256 MiB reported");
    expect_note((bw_host_caches){384 * mib, 12}, 32 * mib,
                "last-level cache taken as 32 MiB by BWPROF_CPU_CACHE_MIB, 384 MiB reported in 12 caches");
    expect_note((bw_host_caches){mib / 2, 1}, mib * mib,
                "last-level cache taken as 1048576 MiB by BWPROF_CPU_CACHE_MIB, 0.5 MiB reported");
}

static void nodes(int op_index) {
    (void)op_index;
    machine m;
    begin(&m);
    CHECK_EQUAL(bw_host_nodes_of(m.root, m.cpus, 4), 1); /* nobody tells */
    plant(&m, "0-7,16-23", "node/node0/cpulist");
    plant(&m, "8-15,24-31", "node/node1/cpulist");
    plant(&m, "", "node/node2/cpulist"); /* memory without processors */
    CHECK_EQUAL(bw_host_nodes_of(m.root, m.cpus, 32), 2);
    CHECK_EQUAL(bw_host_nodes_of(m.root, m.cpus, 8), 1);
    CHECK_EQUAL(bw_host_nodes_of(m.root, m.cpus, 9), 2);
    CHECK_EQUAL(bw_host_nodes_of(m.root, (const int[]){31, 8}, 2), 1);
    end(&m);
}

/* Groups of version 2, one in the other: the smallest limit counts. */
static void groups_of_version_2(int op_index) {
    (void)op_index;
    machine m;
    begin(&m);
    CHECK(isinf(bw_host_quota_of(m.root)), "a quota of nobody");
    CHECK_EQUAL(bw_host_throttled_us_of(m.root), -1);
    plant(&m, "MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable: 4000 kB", "proc/meminfo");
    plant(&m, "0::/pod/app", "proc/self/cgroup");
    plant(&m, "max 100000", "sys/fs/cgroup/pod/app/cpu.max");
    CHECK(isinf(bw_host_quota_of(m.root)), "max is no quota");
    plant(&m, "150000 100000", "sys/fs/cgroup/pod/cpu.max");
    CHECK(bw_host_quota_of(m.root) == 1.5, "%g", bw_host_quota_of(m.root));
    plant(&m, "400000 100000", "sys/fs/cgroup/pod/app/cpu.max");
    CHECK(bw_host_quota_of(m.root) == 1.5, "%g", bw_host_quota_of(m.root));
    plant(&m, "25000 50000", "sys/fs/cgroup/pod/app/cpu.max");
    CHECK(bw_host_quota_of(m.root) == 0.5, "%g", bw_host_quota_of(m.root));
    plant(&m, "usage_usec 9\nnr_throttled 2\nthrottled_usec 700", "sys/fs/cgroup/pod/cpu.stat");
    plant(&m, "usage_usec 9", "sys/fs/cgroup/cpu.stat");
    CHECK_EQUAL(bw_host_throttled_us_of(m.root), 700);
    plant(&m, "1024000", "sys/fs/cgroup/pod/app/memory.max");
    plant(&m, "524288", "sys/fs/cgroup/pod/app/memory.current");
    plant(&m, "anon 5\ninactive_file 1000", "sys/fs/cgroup/pod/app/memory.stat");
    CHECK_EQUAL(bw_host_memory_of(m.root).total, 1024000);
    CHECK_EQUAL(bw_host_memory_of(m.root).available, 1024000 - 524288 + 1000);
    plant(&m, "512000", "sys/fs/cgroup/memory.max"); /* the root of a container's mount */
    CHECK_EQUAL(bw_host_memory_of(m.root).total, 512000);
    end(&m);
}

/* Version 1 has a mount for each controller, by the names of its list; "-1" is no quota. */
static void groups_of_version_1(int op_index) {
    (void)op_index;
    machine m;
    begin(&m);
    plant(&m, "MemTotal: 8000 kB\nMemAvailable: 4000 kB", "proc/meminfo");
    plant(&m, "9:cpuset:/a\n4:cpuacct,cpu:/a/b\n3:memory:/a\n1:name=systemd:/a\n0::/a", "proc/self/cgroup");
    plant(&m, "-1", "sys/fs/cgroup/cpuacct,cpu/a/b/cpu.cfs_quota_us");
    plant(&m, "100000", "sys/fs/cgroup/cpuacct,cpu/a/b/cpu.cfs_period_us");
    plant(&m, "5", "sys/fs/cgroup/cpuset/a/cpu.cfs_quota_us"); /* nobody's */
    plant(&m, "100000", "sys/fs/cgroup/cpuset/a/cpu.cfs_period_us");
    CHECK(isinf(bw_host_quota_of(m.root)), "%g", bw_host_quota_of(m.root));
    plant(&m, "300000", "sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_quota_us");
    plant(&m, "100000", "sys/fs/cgroup/cpuacct,cpu/a/cpu.cfs_period_us");
    CHECK(bw_host_quota_of(m.root) == 3.0, "%g", bw_host_quota_of(m.root));
    plant(&m, "nr_periods 4\nnr_throttled 2\nthrottled_time 5000999", "sys/fs/cgroup/cpu/a/cpu.stat");
    CHECK_EQUAL(bw_host_throttled_us_of(m.root), 5000);
    plant(&m, "2048000", "sys/fs/cgroup/memory/a/memory.limit_in_bytes");
    plant(&m, "2000000", "sys/fs/cgroup/memory/a/memory.usage_in_bytes");
    CHECK_EQUAL(bw_host_memory_of(m.root).total, 2048000);
    CHECK_EQUAL(bw_host_memory_of(m.root).available, 48000);
    end(&m);
}

static void memory_that_is_not_worked_out(int op_index) {
    (void)op_index;
    machine m;
    begin(&m); /* a kernel without MemAvailable */
    plant(&m, "MemTotal: 8000 kB\nMemFree: 1000 kB\nCached: 500 kB\nShmem: 100 kB", "proc/meminfo");
    CHECK_EQUAL(bw_host_memory_of(m.root).total, 8000 * 1024);
    CHECK_EQUAL(bw_host_memory_of(m.root).available, 1400 * 1024);
    plant(&m, "Shmem: 100 kB", "proc/meminfo"); /* what the C library knows */
    CHECK(bw_host_memory_of(m.root).total > 0, "no memory at all");
    CHECK(bw_host_memory_of(m.root).available > 0, "no memory is free");
    end(&m);
}

const check host_checks[] = {{"twelve_caches", false, twelve_caches},
                             {"other_caches", false, other_caches},
                             {"unreadable_caches", false, unreadable_caches},
                             {"what_is_noted", false, what_is_noted},
                             {"nodes", false, nodes},
                             {"groups_of_version_2", false, groups_of_version_2},
                             {"groups_of_version_1", false, groups_of_version_1},
                             {"memory_that_is_not_worked_out", false, memory_that_is_not_worked_out},
                             {NULL, false, NULL}};
