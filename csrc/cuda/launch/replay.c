/* Timed replays: the GPU never waits for the host between the events.
 *
 * On an idle stream the time between the events would hold the host's launching too: 8 to 60 us on an H200, by the
 * graph's nodes. So a kernel that only waits is enqueued first, for longer than the host has needed. Where the first
 * event has passed when all is enqueued, the replay is made again, some times; then its time is `late`. */
#include "cuda/launch/replay.h"

#include <string.h>

#include "base/clock.h"
#include "base/order.h"
#include "cuda/launch/service.h"

enum { TRIES = 4 };

static const int64_t hold_least_ns = 5000, hold_most_ns = 2000000;
static const int64_t pause_most_ns = 100000000; /* without work, and the clock stays up */

bw_status bw_replay_open(bw_device *device, bw_replay *out) {
    memset(out, 0, sizeof *out);
    out->device = device;
    BW_TRY(BW_CUDA(&device->api, event_create(&out->start)));
    return BW_CUDA(&device->api, event_create(&out->stop));
}

void bw_replay_close(bw_replay *self) {
    if (self->stop) BW_CUDA_IGNORE(&self->device->api, event_destroy(self->stop));
    if (self->start) BW_CUDA_IGNORE(&self->device->api, event_destroy(self->start));
    self->start = self->stop = NULL;
}

bw_status bw_replay_hold(bw_replay *self, cudaStream_t stream) {
    return bw_cuda_launch_hold(self->device, stream, self->hold_ns);
}

void bw_replay_learn(bw_replay *self, int64_t began_ns) {
    int64_t host_ns = bw_now_ns() - began_ns;
    self->hold_ns = bw_min64(hold_most_ns, bw_max64(hold_least_ns, host_ns + host_ns / 4));
}

static bw_status enqueue_graph(bw_replay *self, cudaStream_t stream, cudaGraphExec_t graph,
                               const bw_replay_lead *lead) {
    bw_cuda_api *api = &self->device->api;
    bw_status status = BW_CUDA(api, event_record(self->start, stream));
    if (!status) status = BW_CUDA(api, graph_launch(graph, stream));
    if (lead && lead->launched) lead->launched(lead->context);
    return status;
}

static bw_status enqueue(bw_replay *self, cudaStream_t stream, cudaGraphExec_t graph, const bw_replay_lead *lead) {
    bw_cuda_api *api = &self->device->api;
    int64_t began_ns = bw_now_ns();
    if (!lead || !lead->waits) BW_TRY(bw_replay_hold(self, stream));
    if (lead) BW_TRY(lead->enqueue(lead->context));
    BW_TRY(enqueue_graph(self, stream, graph, lead));
    BW_TRY(BW_CUDA(api, event_record(self->stop, stream)));
    BW_TRY(bw_cuda_event_passed(api, self->start, &self->late));
    bw_replay_learn(self, began_ns);
    return BW_OK;
}

double bw_replay_busy_ns(const bw_device *device) {
    const int64_t pause_ns = bw_now_ns() - device->ended_ns;
    return pause_ns > pause_most_ns ? 0.0 : (double)bw_max64(0, device->busy_ns - pause_ns);
}

bw_status bw_replay_run(bw_replay *self, cudaStream_t stream, cudaGraphExec_t graph, const bw_replay_lead *lead,
                        double *ns) {
    bw_cuda_api *api = &self->device->api;
    float elapsed_ms = 0;
    const double before_ns = bw_replay_busy_ns(self->device);
    int tries = lead && lead->waits ? 1 : TRIES;
    self->late = true;
    for (int i = 0; i < tries && self->late; i++) {
        BW_TRY(enqueue(self, stream, graph, lead));
        BW_TRY(BW_CUDA(api, event_synchronize(self->stop)));
    }
    BW_TRY(BW_CUDA(api, event_elapsed(&elapsed_ms, self->start, self->stop)));
    *ns = (double)elapsed_ms * 1e6;
    self->device->busy_ns = (int64_t)(before_ns + *ns);
    self->device->ended_ns = bw_now_ns();
    return BW_OK;
}
