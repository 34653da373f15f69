/* Marks on a CPU: the monotonic clock. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cpu/device.h"

struct bw_marks {
    int64_t *ns;
};

static bw_status create(bw_device *device, void *stream, bw_marks **out) {
    (void)device, (void)stream;
    *out = calloc(1, sizeof **out);
    return *out ? BW_OK : bw_fail(BW_CODE_MEMORY, "no memory for marks");
}

static bw_status reserve(bw_marks *self, int64_t count) {
    return bw_resize((void **)&self->ns, count, sizeof *self->ns, "marks");
}

static bw_status take(bw_marks *self, int64_t index) {
    self->ns[index] = bw_now_ns();
    return BW_OK;
}

static bw_status passed(bw_marks *self, int64_t index, bool *out) {
    (void)self, (void)index;
    *out = true;
    return BW_OK;
}

static bw_status elapsed(bw_marks *self, int64_t from, int64_t to, double *ns) {
    *ns = (double)(self->ns[to] - self->ns[from]);
    return BW_OK;
}

static void free_marks(bw_marks *self) {
    if (!self) return;
    free(self->ns);
    free(self);
}

const bw_mark_calls bw_cpu_marks = {
    .clock = "monotonic",
    .create = create,
    .reserve = reserve,
    .take = take,
    .passed = passed,
    .elapsed = elapsed,
    .free = free_marks,
};
