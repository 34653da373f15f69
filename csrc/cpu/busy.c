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

/* What the system counts; -1 = it does not say. */
typedef struct counts {
    int64_t stolen_ticks, pressed_us, throttled_us;
} counts;

struct bw_busy {
    bw_pool *pool;
    double since_s;
    counts before;
    int64_t waited_ns[]; /* by rank; -1 = not known */
};

/* The second number of a thread's schedstat: nanoseconds in which it could have run and did not. */
static int64_t waited_of(pid_t thread) {
    char path[64], text[128];
    long long waited_ns;
    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", (long)thread);
    return bw_host_read(path, text, sizeof text) && sscanf(text, "%*d %lld", &waited_ns) == 1 ? waited_ns : -1;
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

/* Microseconds in which a process waited for memory: "some avg10=0.00 ... total=4711"; -1 = not known. */
static int64_t pressed_by_memory(void) {
    char text[256];
    long long total = -1;
    if (!bw_host_read("/proc/pressure/memory", text, sizeof text)) return -1;
    return sscanf(text, "some avg10=%*f avg60=%*f avg300=%*f total=%lld", &total) == 1 ? total : -1;
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

static double growth(int64_t now, int64_t before) {
    return now < 0 || before < 0 ? NAN : (double)(now - before);
}

void bw_busy_look(bw_device *device, bw_disturbance *out) {
    bw_busy *self = device->busy;
    const counts before = self->before;
    const double now_s = bw_now_s(), elapsed_s = now_s - self->since_s;
    const counts now = {stolen_from(self->pool), pressed_by_memory(), bw_host_throttled_us_of(BW_HOST_ROOT)};
    const double waited_s = longest_wait_ns(self) * 1e-9;
    /* Threads that outnumber the CPUs wait for each other. */
    const double waited = bw_pool_cpus(self->pool) < bw_pool_size(self->pool) ? NAN : waited_s / elapsed_s;
    out->throttled = growth(now.throttled_us, before.throttled_us) * 1e-6 / elapsed_s;
    /* Of all the group's CPUs together: of ours no more than a thread waited, and then for nobody else. */
    if (!isnan(out->throttled)) out->throttled = fmin(fmin(1.0, out->throttled), waited);
    out->waited = waited - (out->throttled > 0.0 ? out->throttled : 0.0);
    double ticks = growth(now.stolen_ticks, before.stolen_ticks);
    if (ticks < STOLEN_TICKS_LEAST) ticks = 0.0;
    out->stolen = ticks / (double)sysconf(_SC_CLK_TCK) / elapsed_s / bw_pool_cpus(self->pool);
    out->pressed = growth(now.pressed_us, before.pressed_us) * 1e-6 / elapsed_s;
    self->since_s = now_s;
    self->before = now;
}

bw_status bw_busy_create(bw_pool *pool, bw_busy **out) {
    size_t count = (size_t)bw_pool_size(pool);
    bw_busy *self = calloc(1, sizeof *self + count * sizeof self->waited_ns[0]);
    if (!self) return bw_fail(BW_CODE_MEMORY, "no memory to watch %zu threads", count);
    self->pool = pool;
    for (size_t i = 0; i < count; i++) self->waited_ns[i] = -1;
    self->before = (counts){-1, -1, -1};
    *out = self;
    return BW_OK;
}

void bw_busy_free(bw_busy *self) {
    free(self);
}
