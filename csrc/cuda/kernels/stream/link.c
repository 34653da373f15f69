/* The variants of copies over the link between host and device: who moves the bytes, and out of which memory. A copy is
 * no kernel but a node of its own in a graph. */
#include <stdlib.h>

#include "cuda/kernels/stream/stream.h"
#include "ops/families/memory/stream.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };
#define AT "fp32 elements=67108864"

static bw_status copy(const bw_launch *launch, int from, enum cudaMemcpyKind kind, cudaStream_t stream) {
    const int64_t bytes = bw_dtype_bytes(launch->precision->activation, launch->dims->value[BW_STREAM_ELEMENTS]);
    return BW_CUDA(&launch->device->api,
                   memory_copy(launch->operand[from + 1], launch->operand[from], (size_t)bytes, kind, stream));
}

static bw_status to_device(const bw_launch *launch) {
    return copy(launch, BW_LINK_A, cudaMemcpyHostToDevice, launch->device->stream);
}

static bw_status to_host(const bw_launch *launch) {
    return copy(launch, BW_LINK_A, cudaMemcpyDeviceToHost, launch->device->stream);
}

static bw_status in_turn(const bw_launch *launch) {
    BW_TRY(to_device(launch));
    return copy(launch, BW_LINK_C, cudaMemcpyDeviceToHost, launch->device->stream);
}

static bw_status describe(bw_device *device, const bw_dims *dims, const bw_precision *precision, bw_kernels *out) {
    (void)device, (void)dims, (void)precision, (void)out;
    return bw_fail(BW_CODE_UNSUPPORTED, "copy engines do it: it runs no kernel");
}

/* A second stream, which begins where the first one is and which the first one waits for. */
typedef struct branch {
    bw_device *device;
    cudaStream_t stream;
    cudaEvent_t fork, join;
} branch;

static void branch_release(void *state) {
    branch *self = state;
    bw_cuda_api *api = &self->device->api;
    bw_status_free(bw_cuda_enter(self->device));
    if (self->stream) BW_CUDA_IGNORE(api, stream_synchronize(self->stream)); /* a launch may have failed half-way */
    if (self->join) BW_CUDA_IGNORE(api, event_destroy(self->join));
    if (self->fork) BW_CUDA_IGNORE(api, event_destroy(self->fork));
    if (self->stream) BW_CUDA_IGNORE(api, stream_destroy(self->stream));
    free(self);
}

static bw_status branch_open(branch *self) {
    bw_cuda_api *api = &self->device->api;
    BW_TRY(bw_cuda_enter(self->device));
    BW_TRY(BW_CUDA(api, stream_create(&self->stream, cudaStreamNonBlocking)));
    BW_TRY(BW_CUDA(api, event_create(&self->fork)));
    return BW_CUDA(api, event_create(&self->join));
}

static bw_status branch_prepare(const bw_launch *sets, int64_t set_count, void **state) {
    branch *self = calloc(1, sizeof *self);
    (void)set_count;
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for a second stream");
    self->device = sets[0].device;
    bw_status status = branch_open(self);
    if (status) {
        branch_release(self);
        return status;
    }
    *state = self;
    return BW_OK;
}

static bw_status at_once(const bw_launch *launch) {
    const branch *self = launch->state;
    bw_cuda_api *api = &launch->device->api;
    BW_TRY(BW_CUDA(api, event_record(self->fork, launch->device->stream)));
    BW_TRY(BW_CUDA(api, stream_wait_event(self->stream, self->fork, 0)));
    BW_TRY(copy(launch, BW_LINK_C, cudaMemcpyDeviceToHost, self->stream));
    BW_TRY(to_device(launch));
    BW_TRY(BW_CUDA(api, event_record(self->join, self->stream)));
    return BW_CUDA(api, stream_wait_event(launch->device->stream, self->join, 0));
}

static bool prefers_always(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    (void)dims, (void)precision, (void)facts;
    return true;
}

BW_CUDA_PREPARE(zero_copy, bw_stream_copy_choose)

#define PAGEABLE(launch_)                                                                                        \
    {                                                                                                            \
        .name = "pageable",                                                                                      \
        .text = "out of or into ordinary memory, which the driver copies by way of page-locked memory",          \
        .prediction = {.changes = "the baseline: the processor copies every byte into the driver's memory"},     \
        .precisions = PRECISIONS, .rounds_once = true, .pageable = true, .launch = launch_, .describe = describe \
    }
#define PINNED(name_, launch_, predicted_)                                                                       \
    {                                                                                                            \
        .name = name_, .text = "a copy engine moves page-locked memory",                                         \
        .prediction = {.changes = "the host's memory is page-locked",                                            \
                       .predicted = predicted_,                                                                  \
                       .because = "the device moves it by itself, at the link's rate instead of a processor's"}, \
        .precisions = PRECISIONS, .rounds_once = true, .prefers = prefers_always, .launch = launch_,             \
        .describe = describe                                                                                     \
    }
#define ZERO_COPY                                                                                                  \
    {                                                                                                              \
        .name = "zero_copy", .text = "a kernel moves page-locked memory, which it reaches by its address",         \
        .prediction = {.changes = "a kernel instead of a copy engine",                                             \
                       .predicted = 0.95,                                                                          \
                       .because = "its packets of up to 128 bytes carry more headers than a copy engine's"},       \
        .precisions = PRECISIONS, .rounds_once = true, .refuses = bw_stream_tiles_refuse, BW_CUDA_HOOKS(zero_copy) \
    }

static const bw_variant to_device_rows[] = {PAGEABLE(to_device), PINNED("pinned", to_device, 3.2), ZERO_COPY};
static const bw_variant to_host_rows[] = {PAGEABLE(to_host), PINNED("pinned", to_host, 4.0), ZERO_COPY};
static const bw_variant exchange_rows[] = {
    PAGEABLE(in_turn),
    PINNED("pinned_in_turn", in_turn, 3.6),
    {.name = "pinned",
     .text = "two copy engines move page-locked memory, one in each direction",
     .prediction = {.changes = "a second stream, so that both directions run at once",
                    .predicted = 1.8,
                    .because = "each direction has its own lanes, which acknowledgments share"},
     .precisions = PRECISIONS,
     .rounds_once = true,
     .prepare = branch_prepare,
     .release = branch_release,
     .prefers = prefers_always,
     .launch = at_once,
     .describe = describe},
};

const bw_variant_table bw_cuda_host_to_device = {to_device_rows, 3, AT};
const bw_variant_table bw_cuda_device_to_host = {to_host_rows, 3, AT};
const bw_variant_table bw_cuda_host_device_exchange = {exchange_rows, 3, AT};
