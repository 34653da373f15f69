/* Stores a variant's chosen kernels and arguments, and launches them with the addresses of a buffer set. */
#include "cuda/launch/prepared.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Wide clusters and more than 48 KiB of shared memory must be requested. The limit is only raised, since another case
 * may need it. */
static bw_status request_limits(bw_device *device, const bw_cuda_kernel *kernel) {
    struct cudaFuncAttributes attributes;
    if (kernel->wide_cluster) {
        BW_TRY(BW_CUDA(&device->api,
                       set_function_attribute(kernel->function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)));
    }
    if (kernel->shared_bytes <= 48 * 1024) return BW_OK;
    BW_TRY(BW_CUDA(&device->api, get_function_attributes(&attributes, kernel->function)));
    if ((size_t)attributes.maxDynamicSharedSizeBytes >= kernel->shared_bytes) return BW_OK;
    return BW_CUDA(&device->api, set_function_attribute(kernel->function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        (int)kernel->shared_bytes));
}

static int view_count(const bw_cuda_launch_spec *self) {
    int count = 0;
    for (int i = 0; i < self->kernels; i++) count += self->kernel[i].views;
    return count;
}

/* Each buffer set's maps hold its addresses. */
static bw_status make_maps(const bw_launch *sets, int64_t set_count, bw_cuda_launch_spec *self) {
    const int views = view_count(self);
    if (views == 0) return BW_OK;
    self->maps = calloc((size_t)set_count, (size_t)views * sizeof *self->maps);
    if (!self->maps) return bw_fail(BW_CODE_MEMORY, "out of host memory for the tensor maps of a prepared launch");
    unsigned char(*map)[BW_TENSOR_MAP_BYTES] = self->maps;
    for (int64_t set = 0; set < set_count; set++) {
        for (int i = 0; i < self->kernels; i++) {
            for (int j = 0; j < self->kernel[i].views; j++, map++) {
                const bw_tensor_view *view = &self->kernel[i].view[j].tensor;
                const bool is_scratch = view->operand == BW_CUDA_SCRATCH;
                char *base = is_scratch ? sets[set].scratch : sets[set].operand[view->operand];
                BW_TRY(bw_tensor_map_make(view, base + view->offset, *map));
            }
        }
    }
    return BW_OK;
}

bw_status bw_cuda_prepare_spec(const bw_launch *sets, int64_t set_count, bw_cuda_launch_spec *spec) {
    for (int i = 0; i < spec->kernels; i++) BW_TRY(request_limits(sets[0].device, &spec->kernel[i]));
    return make_maps(sets, set_count, spec);
}

bw_status bw_cuda_prepare(const bw_launch *sets, int64_t set_count, bw_cuda_choose *choose, void **state) {
    bw_cuda_launch_spec *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for a prepared launch");
    bw_status status = choose(sets[0].dims, sets[0].precision, &sets[0].device->facts, self);
    if (!status) status = bw_cuda_prepare_spec(sets, set_count, self);
    if (status) {
        bw_cuda_prepared_release(self);
        return status;
    }
    *state = self;
    return BW_OK;
}

void bw_cuda_prepared_release(void *state) {
    bw_cuda_launch_spec *self = state;
    if (self) free(self->maps);
    free(self);
}

/* `maps` are those of the kernel's views. */
static bw_status launch_kernel(const bw_launch *launch, const bw_cuda_kernel *kernel,
                               const unsigned char (*maps)[BW_TENSOR_MAP_BYTES]) {
    bw_device *device = launch->device;
    uint64_t word[BW_CUDA_ARGUMENT_WORDS];
    void *argument[BW_CUDA_ARGUMENTS_MAX];
    memcpy(word, kernel->word, (size_t)kernel->words * sizeof *word);
    for (int i = 0; i < kernel->places; i++) {
        const bw_cuda_place *place = &kernel->place[i];
        char *base = place->operand == BW_CUDA_SCRATCH ? launch->scratch : launch->operand[place->operand];
        word[place->word] = (uintptr_t)(base + place->offset);
    }
    for (int i = 0; i < kernel->views; i++) memcpy(&word[kernel->view[i].word], maps[i], sizeof maps[i]);
    for (int i = 0; i < kernel->arguments; i++) argument[i] = &word[kernel->starts[i]];
    cudaLaunchAttribute attributes[2];
    unsigned count = 0;
    if (kernel->cluster > 0) {
        attributes[count++] = (cudaLaunchAttribute){.id = cudaLaunchAttributeClusterDimension,
                                                    .val.clusterDim = {1, (unsigned)kernel->cluster, 1}};
    }
    if (kernel->cooperative) {
        attributes[count++] = (cudaLaunchAttribute){.id = cudaLaunchAttributeCooperative, .val.cooperative = 1};
    }
    if (count > 0) {
        const cudaLaunchConfig_t config = {.gridDim = kernel->grid,
                                           .blockDim = kernel->block,
                                           .dynamicSmemBytes = kernel->shared_bytes,
                                           .stream = device->stream,
                                           .attrs = attributes,
                                           .numAttrs = count};
        BW_TRY(BW_CUDA(&device->api, launch_with_attributes(&config, kernel->function, argument)));
    } else {
        BW_TRY(BW_CUDA(&device->api, launch_kernel(kernel->function, kernel->grid, kernel->block, argument,
                                                   kernel->shared_bytes, device->stream)));
    }
    return BW_CUDA(&device->api, last_error());
}

bw_status bw_cuda_prepared_launch(const bw_launch *launch) {
    const bw_cuda_launch_spec *self = launch->state;
    int64_t first = launch->set * view_count(self);
    for (int i = 0; i < self->kernels; first += self->kernel[i++].views) {
        BW_TRY(launch_kernel(launch, &self->kernel[i], self->maps ? self->maps + first : NULL));
    }
    return BW_OK;
}

bw_status bw_cuda_resident_blocks(bw_device *device, const bw_cuda_kernel *kernel, int *out) {
    const unsigned threads = kernel->block.x * kernel->block.y * kernel->block.z;
    return BW_CUDA(&device->api, occupancy(out, kernel->function, (int)threads, kernel->shared_bytes));
}

/* The linker's name. NULL where this build or the driver is older than the call (CUDA 12.3). */
static bw_status find_symbol(bw_device *device, const void *function, const char **out) {
    *out = NULL;
#ifdef BW_CUDA_HAS_FUNCTION_NAMES
    cudaError_t error = BW_CUDA_ERROR(&device->api, get_function_name(out, function));
    if (error == cudaSuccess) return BW_OK;
    *out = NULL;
    bw_status status = bw_cuda_status(&device->api, error, "get_function_name", __FILE__, __LINE__);
    const bool old =
        error == cudaErrorCallRequiresNewerDriver || error == cudaErrorNotSupported || error == cudaErrorSymbolNotFound;
    if (!old) return status;
    bw_status_free(status);
#else
    (void)device, (void)function;
#endif
    return BW_OK;
}

static bw_status describe_kernel(bw_device *device, const bw_cuda_kernel *kernel, bw_kernel *out) {
    struct cudaFuncAttributes attributes;
    BW_TRY(request_limits(device, kernel));
    BW_TRY(BW_CUDA(&device->api, get_function_attributes(&attributes, kernel->function)));
    BW_TRY(find_symbol(device, kernel->function, &out->symbol));
    out->registers = attributes.numRegs;
    out->local_bytes = (int64_t)attributes.localSizeBytes;
    out->static_shared_bytes = (int64_t)attributes.sharedSizeBytes;
    out->dynamic_shared_bytes = (int64_t)kernel->shared_bytes;
    out->threads = (int)(kernel->block.x * kernel->block.y * kernel->block.z);
    out->blocks = (int64_t)kernel->grid.x * kernel->grid.y * kernel->grid.z;
    return bw_cuda_resident_blocks(device, kernel, &out->resident_blocks);
}

bw_status bw_cuda_describe(bw_device *device, const bw_dims *dims, const bw_precision *precision,
                           bw_cuda_choose *choose, bw_kernels *out) {
    static_assert((int)BW_CUDA_KERNELS_MAX <= (int)BW_KERNELS_MAX, "room for the kernels of a launch");
    bw_cuda_launch_spec spec = {.kernels = 0};
    BW_TRY(bw_cuda_enter(device));
    BW_TRY(choose(dims, precision, &device->facts, &spec));
    for (int i = 0; i < spec.kernels; i++) BW_TRY(describe_kernel(device, &spec.kernel[i], &out->kernel[i]));
    out->count = spec.kernels;
    return BW_OK;
}
