/* A device's memory: allocation, filling, copies. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/launch/service.h"
#include "cuda/runtime/calls.h"

static bw_status ask(bw_device *device, int64_t *free_bytes, int64_t *total_bytes) {
    size_t unused = 0, all = 0;
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(BW_CUDA(&device->api, memory_info(&unused, &all)));
    *free_bytes = (int64_t)unused;
    *total_bytes = (int64_t)all;
    return BW_OK;
}

static bw_status allocate(bw_device *device, int64_t bytes, void **out) {
    if (bytes < 0) return bw_fail(BW_CODE_INVALID, "cannot allocate %lld bytes", (long long)bytes);
    BW_TRY(bw_cuda_enter(device));
    *out = NULL;
    cudaError_t error = BW_CUDA_ERROR(&device->api, memory_allocate(out, (size_t)(bytes > 0 ? bytes : 1)));
    if (error != cudaErrorMemoryAllocation) {
        return bw_cuda_status(&device->api, error, "memory_allocate", __FILE__, __LINE__);
    }
    (void)device->api.last_error();
    size_t unused = 0, all = 0;
    if (BW_CUDA_ERROR(&device->api, memory_info(&unused, &all)) != cudaSuccess) (void)device->api.last_error();
    return bw_fail(BW_CODE_MEMORY, "out of memory on GPU %d: %lld bytes asked for, %lld of %lld free", device->index,
                   (long long)bytes, (long long)unused, (long long)all);
}

static void release(bw_device *device, void *memory, int64_t bytes) {
    (void)bytes;
    if (!memory) return;
    bw_status_free(bw_cuda_enter(device));
    BW_CUDA_IGNORE(&device->api, memory_free(memory));
}

/* More than half of the host's memory is refused: pages that are locked, or not there, take other programs down. */
static bw_status allocate_host(bw_device *device, int64_t bytes, bool pageable, void **out) {
    const int64_t most = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2;
    *out = NULL;
    if (bytes > most) {
        return bw_fail(BW_CODE_MEMORY, "%lld bytes of host memory are needed, at most %lld are allowed",
                       (long long)bytes, (long long)most);
    }
    if (pageable) {
        *out = aligned_alloc(256, (size_t)bytes);
        return *out ? BW_OK : bw_fail(BW_CODE_MEMORY, "no host memory for %lld bytes", (long long)bytes);
    }
    BW_TRY(bw_cuda_enter(device));
    cudaError_t error = BW_CUDA_ERROR(&device->api, host_allocate(out, (size_t)bytes, cudaHostAllocDefault));
    if (error != cudaErrorMemoryAllocation) {
        return bw_cuda_status(&device->api, error, "host_allocate", __FILE__, __LINE__);
    }
    (void)device->api.last_error();
    return bw_fail(BW_CODE_MEMORY, "no page-locked host memory for %lld bytes", (long long)bytes);
}

static void release_host(bw_device *device, void *memory, bool pageable) {
    if (pageable) {
        free(memory);
        return;
    }
    bw_status_free(bw_cuda_enter(device));
    BW_CUDA_IGNORE(&device->api, host_free(memory));
}

static bw_status fill(bw_device *device, bw_dtype dtype, uint64_t seed, int operand, int64_t count, void *out) {
    BW_TRY(bw_cuda_enter(device));
    return bw_cuda_fill(device, dtype, bw_input_key_make(seed, operand), count, out);
}

static bw_status poison(bw_device *device, void *memory, int64_t bytes) {
    BW_TRY(bw_cuda_enter(device));
    return BW_CUDA(&device->api, memory_set(memory, 0xff, (size_t)bytes, device->stream));
}

static bw_status copy(bw_device *device, void *to, const void *from, int64_t bytes, enum cudaMemcpyKind kind) {
    if (bytes == 0) return BW_OK;
    BW_TRY(bw_cuda_enter(device));
    return BW_CUDA(&device->api, memory_copy(to, from, (size_t)bytes, kind, device->stream));
}

static bw_status duplicate(bw_device *device, void *to, const void *from, int64_t bytes) {
    return copy(device, to, from, bytes, cudaMemcpyDeviceToDevice);
}

static bw_status upload(bw_device *device, void *to, const void *from, int64_t bytes) {
    BW_TRY(copy(device, to, from, bytes, cudaMemcpyHostToDevice));
    return bw_cuda_synchronize(device);
}

static bw_status download(bw_device *device, void *to, const void *from, int64_t bytes) {
    BW_TRY(copy(device, to, from, bytes, cudaMemcpyDeviceToHost));
    return bw_cuda_synchronize(device);
}

enum { GATHERED_BYTES = 10 << 20 }; /* of memory that is kept for gathering; more is allocated each time */

/* The pieces are brought together on the device, so that one transfer takes them all. */
static bw_status gather(bw_device *device, const bw_span *spans, int64_t count, int64_t bytes, void *to) {
    bw_status status = BW_OK;
    void *own = NULL;
    int64_t table_bytes = count * (int64_t)sizeof(bw_cuda_piece), at = 0;
    const bool large = bytes > GATHERED_BYTES - table_bytes;
    bw_cuda_piece *pieces = malloc((size_t)table_bytes);
    if (!pieces) BW_GOTO(bw_fail(BW_CODE_MEMORY, "out of host memory for a list of %lld pieces", (long long)count));
    for (int64_t i = 0; i < count; i++) {
        pieces[i] = (bw_cuda_piece){spans[i].from, spans[i].bytes, at};
        at += spans[i].bytes;
    }
    if (large) BW_GOTO(allocate(device, bytes + table_bytes, &own));
    if (!large && !device->gathered) BW_GOTO(allocate(device, GATHERED_BYTES, &device->gathered));
    char *table = large ? own : device->gathered, *packed = table + table_bytes;
    BW_GOTO(upload(device, table, pieces, table_bytes));
    BW_GOTO(bw_cuda_gather(device, table, count, packed));
    BW_GOTO(download(device, to, packed, bytes));
cleanup:
    release(device, own, bytes + table_bytes);
    free(pieces);
    return status;
}

const bw_memory_calls bw_cuda_memory_calls = {
    .ask = ask,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .fill = fill,
    .poison = poison,
    .duplicate = duplicate,
    .upload = upload,
    .download = download,
    .gather = gather,
};
