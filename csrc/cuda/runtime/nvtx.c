/* NVTX: ranges in the domain "bwprof", a category for each operation, bytes as payload.
 *
 * The toolkit's header is all there is: it opens the tool's library if one is named (NVTX_INJECTION64_PATH, which nsys
 * and ncu set), and nothing is linked. It is asked once, when a handle is opened, before another thread has that. */
#include "cuda/runtime/nvtx.h"

#include <pthread.h>
#include <string.h>

#include "cuda/runtime/attachments.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define BW_HAS_NVTX 1
#endif
#endif

static bool watched(bw_device *device) {
    return device->nvtx != NULL;
}

#ifdef BW_HAS_NVTX

enum { CATEGORIES_MOST = 64 }; /* that get a name */

struct bw_cuda_nvtx {
    nvtxDomainHandle_t domain; /* NULL: no tool */
    pthread_mutex_t lock;      /* of what follows */
    uint32_t categories[CATEGORIES_MOST];
    int category_count;
};

static void close_nvtx(bw_device *device, void *state) {
    bw_cuda_nvtx *self = state;
    if (!self->domain) return;
    nvtxDomainDestroy(self->domain);
    pthread_mutex_destroy(&self->lock);
    device->nvtx = NULL;
}

static const bw_cuda_part nvtx_part = {.state_bytes = sizeof(bw_cuda_nvtx), .close = close_nvtx};

bw_status bw_cuda_nvtx_open(bw_device *device) {
    void *state = NULL;
    nvtxDomainHandle_t domain = nvtxDomainCreateA("bwprof");
    if (!domain) return BW_OK;
    bw_status status = bw_cuda_attach(device, &nvtx_part, &state);
    if (status) {
        nvtxDomainDestroy(domain);
        return status;
    }
    device->nvtx = state;
    device->nvtx->domain = domain;
    pthread_mutex_init(&device->nvtx->lock, NULL);
    return BW_OK;
}

/* Several threads may come with the same one: whoever uses a number does so when it has its name. */
static void name_category(bw_cuda_nvtx *self, uint32_t number, const char *name) {
    int at = 0;
    pthread_mutex_lock(&self->lock);
    while (at < self->category_count && self->categories[at] != number) at++;
    if (at == self->category_count && at < CATEGORIES_MOST) {
        self->categories[self->category_count++] = number;
        nvtxDomainNameCategoryA(self->domain, number, name);
    }
    pthread_mutex_unlock(&self->lock);
}

/* A category's number is a hash of its name, so that it is the same in every process. 0 is none. */
static uint32_t category_of(bw_cuda_nvtx *self, const char *name) {
    uint32_t number = 2166136261u;
    if (!name) return 0;
    for (const char *letter = name; *letter; letter++) number = (number ^ (unsigned char)*letter) * 16777619u;
    number |= 1u;
    name_category(self, number, name);
    return number;
}

static nvtxEventAttributes_t event_of(bw_cuda_nvtx *self, const bw_annotation *what) {
    nvtxEventAttributes_t event;
    memset(&event, 0, sizeof event);
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.category = category_of(self, what->category);
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = what->name;
    if (what->bytes >= 0) {
        event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
        event.payload.llValue = what->bytes;
    }
    return event;
}

static void push(bw_device *device, const bw_annotation *what) {
    if (!device->nvtx) return;
    nvtxEventAttributes_t event = event_of(device->nvtx, what);
    nvtxDomainRangePushEx(device->nvtx->domain, &event);
}

static void pop(bw_device *device) {
    if (device->nvtx) nvtxDomainRangePop(device->nvtx->domain);
}

static uint64_t start(bw_device *device, const bw_annotation *what) {
    if (!device->nvtx) return 0;
    nvtxEventAttributes_t event = event_of(device->nvtx, what);
    return nvtxDomainRangeStartEx(device->nvtx->domain, &event);
}

static void end(bw_device *device, uint64_t range) {
    if (device->nvtx) nvtxDomainRangeEnd(device->nvtx->domain, range);
}

const bw_annotation_calls bw_cuda_annotation_calls = {
    .watched = watched, .push = push, .pop = pop, .start = start, .end = end};

#else /* a toolkit without the header: no tool watches, so that nobody asks for more */

bw_status bw_cuda_nvtx_open(bw_device *device) {
    (void)device;
    return BW_OK;
}

const bw_annotation_calls bw_cuda_annotation_calls = {.watched = watched};

#endif
