/* Plans: whatever is timed is warmed up, then made ready by one of the timers.
 *
 * The L2's persisting lines are not reset before a plan. Nothing here makes any, and from the eighth reset in a process
 * on every later launch takes 0.18 us longer, in graphs too and for good (H200, driver 580). */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/order.h"
#include "cuda/launch/service.h"
#include "cuda/runtime/calls.h"
#include "cuda/timing/timer.h"

/* In the order of `timers`. */
const char *const bw_cuda_timers[] = {"graph", "events", "cupti", NULL};
/* The kernels' own timestamps are the truth; a graph has no event bias; event pairs are the last resort. */
const char *const bw_cuda_call_timers[] = {"cupti", "graph", "events", NULL};
static const bw_cuda_timer *const timers[] = {&bw_cuda_timer_graph, &bw_cuda_timer_events, &bw_cuda_timer_cupti};

static bw_status run_empty(void *context, int64_t set, bool captured) {
    (void)set, (void)captured;
    return bw_cuda_launch_empty(context);
}

static bw_work empty(bw_device *device) {
    return (bw_work){.run = run_empty, .context = device, .stream = device->stream};
}

/* Plain launches before anything is timed: at least so many, of which up to HOST_SAMPLES are timed on the host. */
enum { WARM_LAUNCHES = 6, WARM_CALLS = 3, HOST_SAMPLES = 15 };

static int64_t warm_launches(const bw_plan *plan) {
    if (plan->spec.warmed && !plan->work.foreign) return 0;
    return bw_max64(plan->spec.set_count, plan->work.foreign ? WARM_CALLS : WARM_LAUNCHES);
}

/* Each set once, outside any capture: modules are loaded, and a failing kernel shows itself by its own name. The first
 * launch, which may load code, is not timed; later ones past HOST_SAMPLES may wait for room in the queue. */
static bw_status warm_up(bw_plan *plan) {
    const bw_cuda_work *work = &plan->work;
    const int64_t launches = warm_launches(plan);
    double samples[HOST_SAMPLES];
    int timed = 0;
    bw_status status = BW_OK;
    bw_work_enter(&plan->spec.work);
    for (int64_t i = 0; i < launches && !status; i++) {
        int64_t before = bw_now_ns();
        status = bw_plan_spec_launch(&plan->spec, i, false);
        if (i > 0 && timed < HOST_SAMPLES) samples[timed++] = (double)(bw_now_ns() - before);
        if (i == 0 && !status && !work->foreign) status = bw_cuda_work_wait(work);
    }
    bw_work_leave(&plan->spec.work);
    if (timed > 0) plan->host_ns = bw_median(samples, timed);
    return bw_status_first(status, bw_cuda_work_wait(work));
}

/* A flush of each launch's own is set here and read there, for the first time. */
static bw_status prepare_flush(bw_plan *plan) {
    const bw_cuda_work *work = &plan->work;
    const bw_flush kind = work->foreign ? BW_FLUSH_READ : plan->spec.flush;
    BW_TRY(bw_cuda_flush_open(plan->device, work->stream, kind, plan->spec.flush_bytes, &plan->flush));
    if (!work->foreign) return bw_cuda_flush_enqueue(plan->device, work->stream, &plan->flush);
    return plan->flush.memory ? bw_cuda_work_wait(work) : BW_OK;
}

static bw_status prepare_plan(bw_plan *plan) {
    BW_TRY(bw_cuda_enter(plan->device));
    BW_TRY(bw_cuda_take_down_all_profilers(plan->device));
    BW_TRY(bw_replay_open(plan->device, &plan->replay));
    BW_TRY(prepare_flush(plan));
    BW_TRY(warm_up(plan));
    if (plan->spec.trace && !plan->work.foreign) BW_TRY(bw_cuda_trace_open(plan));
    return plan->timer->prepare(plan);
}

static void free_plan(bw_plan *plan) {
    if (!plan) return;
    bw_cuda_api *api = &plan->device->api;
    bw_status_free(bw_cuda_enter(plan->device));
    /* A replay or a warm-up that failed half-way may still be running on what is released here. */
    BW_CUDA_IGNORE(api, stream_synchronize(plan->device->stream));
    if (plan->work.foreign) BW_CUDA_IGNORE(api, device_synchronize());
    bw_cuda_trace_close(plan);
    if (plan->timer->free) plan->timer->free(plan);
    bw_cuda_flush_close(plan->device, &plan->flush);
    bw_replay_close(&plan->replay);
    free(plan);
}

static bw_status create(bw_device *device, const bw_plan_spec *spec, bw_plan **out) {
    bw_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return bw_fail(BW_CODE_MEMORY, "out of host memory for a plan");
    plan->device = device;
    plan->spec = *spec;
    plan->work = bw_cuda_work_of(device, &plan->spec);
    plan->timer = timers[spec->timer];
    plan->host_ns = NAN;
    plan->kernels = (bw_kernel_times){NAN, NAN, NAN};
    bw_status status = prepare_plan(plan);
    if (status) {
        free_plan(plan);
        return status;
    }
    *out = plan;
    return BW_OK;
}

static bw_status run(bw_plan *plan, double *ns) {
    BW_TRY(bw_cuda_enter(plan->device));
    return plan->timer->run(plan, ns);
}

static bw_kernel_times kernels(const bw_plan *plan) {
    return plan->kernels;
}

/* Never late: traced launches, whose timestamps count, and work that the host itself takes part in. */
static bool late(const bw_plan *plan) {
    return plan->graph && !plan->tracing && !plan->spec.work.on_host && plan->replay.late;
}

static double host_ns(const bw_plan *plan) {
    return plan->host_ns;
}

const bw_plan_calls bw_cuda_plan_calls = {
    .empty = empty,
    .create = create,
    .run = run,
    .host_ns = host_ns,
    .free = free_plan,
    .kernels = kernels,
    .late = late,
    .busy_ns = bw_replay_busy_ns,
};
