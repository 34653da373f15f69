/* Reads from /proc how much CPU time and memory other programs took. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cpu/device.h"
#include "cpu/host.h"

/* Stolen time comes in ticks of 10 ms: fewer than these are no measurement. */
enum { STOLEN_TICKS_LEAST = 3 };

struct bw_busy {
    bw_pool *pool;
    double since_s;
    int64_t stolen_ticks;
    int64_t pressed_us, throttled_us;
    int64_t waited_ns[]; /* by rank; -1 = not known */
};

/* The second number of a thread's schedstat: nanoseconds in which it could have run and did not. */
static int64_t waited_of(pid_t thread) {
    char path[64];
    long long ran_ns, waited_ns;
    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", (long)thread);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    int found = fscanf(file, "%lld %lld", &ran_ns, &waited_ns);
    fclose(file);
    return found == 2 ? waited_ns : -1;
}

/* Of one line of /proc/stat, "cpu7 user nice system idle iowait irq softirq steal ..."; false for any other line. */
static bool stolen_of(const char *line, int *cpu, int64_t *ticks) {
    long long steal;
    if (!isdigit((unsigned char)line[3])) return false; /* "cpu  2255 ...": all of them together */
    if (sscanf(line, "cpu%d %*d %*d %*d %*d %*d %*d %*d %lld", cpu, &steal) != 2) return false;
    *ticks = steal;
    return true;
}

/* Of the pool's CPUs together; -1 where the system does not say. */
static int64_t stolen_from(const bw_pool *pool) {
    char *line = NULL;
    size_t size = 0;
    int64_t total = -1;
    FILE *file = fopen("/proc/stat", "re");
    while (file && getline(&line, &size, file) >= 0 && strncmp(line, "cpu", 3) == 0) {
        int cpu;
        int64_t ticks;
        if (stolen_of(line, &cpu, &ticks) && bw_pool_uses(pool, cpu)) total = bw_max64(0, total) + ticks;
    }
    free(line);
    if (file) fclose(file);
    return total;
}

/* Microseconds in which a process waited for memory: "some avg10=0.00 ... total=4711"; -1 where the system does not
 * say. */
static int64_t pressed_by_memory(void) {
    long long total = -1;
    FILE *file = fopen("/proc/pressure/memory", "re");
    if (!file) return -1;
    if (fscanf(file, "some avg10=%*f avg60=%*f avg300=%*f total=%lld", &total) != 1) total = -1;
    fclose(file);
    return total;
}

/* The longest wait of any thread: each launch ends with the last of them. */
static double longest_wait_ns(bw_busy *self) {
    double longest = NAN;
    for (int rank = 0; rank < bw_pool_size(self->pool); rank++) {
        int64_t now = waited_of(bw_pool_thread(self->pool, rank)), before = self->waited_ns[rank];
        self->waited_ns[rank] = now;
        if (now >= 0 && before >= 0) longest = fmax(longest, (double)(now - before)); /* fmax passes NaN over */
    }
    return longest;
}

void bw_busy_look(bw_device *device, bw_disturbance *out) {
    bw_busy *self = device->busy;
    double now_s = bw_now_s(), elapsed_s = now_s - self->since_s;
    int64_t stolen = stolen_from(self->pool), ticks = stolen - self->stolen_ticks;
    /* Threads that outnumber the CPUs wait for each other. */
    bool own = bw_pool_cpus(self->pool) < bw_pool_size(self->pool);
    double waited_ns = longest_wait_ns(self);
    double waited = own ? NAN : waited_ns * 1e-9 / elapsed_s;
    int64_t throttled_us = bw_host_throttled_us_of(BW_HOST_ROOT);
    out->throttled = NAN;
    if (throttled_us >= 0 && self->throttled_us >= 0) {
        /* Of all the group's CPUs together: of ours no more than a thread waited, and then for nobody else. */
        double throttled = fmin(1.0, (double)(throttled_us - self->throttled_us) * 1e-6 / elapsed_s);
        out->throttled = fmin(throttled, waited);
    }
    out->waited = waited - (out->throttled > 0.0 ? out->throttled : 0.0);
    self->throttled_us = throttled_us;
    out->stolen = NAN;
    if (stolen >= 0 && self->stolen_ticks >= 0) {
        double stolen_s = ticks < STOLEN_TICKS_LEAST ? 0.0 : (double)ticks / (double)sysconf(_SC_CLK_TCK);
        out->stolen = stolen_s / elapsed_s / bw_pool_cpus(self->pool);
    }
    int64_t pressed_us = pressed_by_memory();
    bool known = pressed_us >= 0 && self->pressed_us >= 0;
    out->pressed = known ? (double)(pressed_us - self->pressed_us) * 1e-6 / elapsed_s : NAN;
    self->pressed_us = pressed_us;
    self->since_s = now_s;
    self->stolen_ticks = stolen;
}

bw_status bw_busy_create(bw_pool *pool, bw_busy **out) {
    size_t count = (size_t)bw_pool_size(pool);
    bw_busy *self = calloc(1, sizeof *self + count * sizeof self->waited_ns[0]);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no memory to watch %zu threads", count);
    self->pool = pool;
    for (size_t i = 0; i < count; i++) self->waited_ns[i] = -1;
    self->stolen_ticks = self->pressed_us = self->throttled_us = -1;
    *out = self;
    return BW_OK;
}

void bw_busy_free(bw_busy *self) {
    free(self);
}
