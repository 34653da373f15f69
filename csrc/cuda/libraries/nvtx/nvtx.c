/* NVTX: ranges in the domain "bwprof", a category for each operation, bytes as payload.
 *
 * The toolkit's header is all there is: at the first call it opens the tool's library if one is named
 * (NVTX_INJECTION64_PATH, which nsys and ncu set), and nothing is linked. Without a tool every call finds a NULL. */
#include "cuda/libraries/nvtx/nvtx.h"

#include <string.h>

#include "cuda/runtime/attachments.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define BW_HAS_NVTX 1
#endif
#endif

#ifdef BW_HAS_NVTX

enum { CATEGORIES_MOST = 64 }; /* that get a name */

typedef struct nvtx_state {
    bool asked;
    nvtxDomainHandle_t domain; /* NULL: no tool */
    uint32_t categories[CATEGORIES_MOST];
    int category_count;
} nvtx_state;

static void close_nvtx(bw_device *device, void *state) {
    nvtx_state *self = state;
    (void)device;
    if (self->domain) nvtxDomainDestroy(self->domain);
}

static const bw_cuda_part nvtx_part = {.state_bytes = sizeof(nvtx_state), .close = close_nvtx};

/* NULL where no tool is there. */
static nvtx_state *watched_state(bw_device *device) {
    nvtx_state *self = bw_cuda_find_attached(device, &nvtx_part);
    if (!self) {
        void *state = NULL;
        bw_status status = bw_cuda_attach(device, &nvtx_part, &state);
        if (status) {
            bw_status_free(status);
            return NULL;
        }
        self = state;
    }
    if (!self->asked) {
        self->asked = true;
        self->domain = nvtxDomainCreateA("bwprof");
    }
    return self->domain ? self : NULL;
}

/* A category's number is a hash of its name, so that it is the same in every process. 0 is none. */
static uint32_t category_of(nvtx_state *self, const char *name) {
    uint32_t number = 2166136261u;
    if (!name) return 0;
    for (const char *letter = name; *letter; letter++) number = (number ^ (unsigned char)*letter) * 16777619u;
    number |= 1u;
    for (int i = 0; i < self->category_count; i++) {
        if (self->categories[i] == number) return number;
    }
    if (self->category_count < CATEGORIES_MOST) {
        self->categories[self->category_count++] = number;
        nvtxDomainNameCategoryA(self->domain, number, name);
    }
    return number;
}

static nvtxEventAttributes_t event_of(nvtx_state *self, const bw_annotation *what) {
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

bool bw_cuda_nvtx_watched(bw_device *device) {
    return watched_state(device) != NULL;
}

void bw_cuda_nvtx_push(bw_device *device, const bw_annotation *what) {
    nvtx_state *self = watched_state(device);
    if (!self) return;
    nvtxEventAttributes_t event = event_of(self, what);
    nvtxDomainRangePushEx(self->domain, &event);
}

void bw_cuda_nvtx_pop(bw_device *device) {
    nvtx_state *self = watched_state(device);
    if (self) nvtxDomainRangePop(self->domain);
}

static uint64_t start(bw_device *device, const bw_annotation *what) {
    nvtx_state *self = watched_state(device);
    if (!self) return 0;
    nvtxEventAttributes_t event = event_of(self, what);
    return nvtxDomainRangeStartEx(self->domain, &event);
}

static void end(bw_device *device, uint64_t range) {
    nvtx_state *self = watched_state(device);
    if (self) nvtxDomainRangeEnd(self->domain, range);
}

#else /* a toolkit without the header */

bool bw_cuda_nvtx_watched(bw_device *device) {
    (void)device;
    return false;
}

void bw_cuda_nvtx_push(bw_device *device, const bw_annotation *what) {
    (void)device, (void)what;
}

void bw_cuda_nvtx_pop(bw_device *device) {
    (void)device;
}

static uint64_t start(bw_device *device, const bw_annotation *what) {
    (void)device, (void)what;
    return 0;
}

static void end(bw_device *device, uint64_t range) {
    (void)device, (void)range;
}

#endif

const bw_annotation_calls bw_cuda_annotation_calls = {
    .watched = bw_cuda_nvtx_watched,
    .push = bw_cuda_nvtx_push,
    .pop = bw_cuda_nvtx_pop,
    .start = start,
    .end = end,
};
