#include "cuda/launch/prepared.h"

#include <stdlib.h>
#include <string.h>

/* More than 48 KiB of shared memory must be asked for. What another case was given is never taken away. */
static bw_status allow_shared(bw_device *device, const bw_cuda_kernel *kernel) {
    struct cudaFuncAttributes attributes;
    if (kernel->shared_bytes <= 48 * 1024) return BW_OK;
    BW_TRY(BW_CUDA(&device->api, get_function_attributes(&attributes, kernel->function)));
    if ((size_t)attributes.maxDynamicSharedSizeBytes >= kernel->shared_bytes) return BW_OK;
    return BW_CUDA(&device->api, set_function_attribute(kernel->function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        (int)kernel->shared_bytes));
}

bw_status bw_cuda_prepare(const bw_launch *sets, bw_cuda_choose *choose, void **state) {
    bw_device *device = sets[0].device;
    bw_status status = BW_OK;
    bw_cuda_prepared *self = calloc(1, sizeof *self);
    if (!self) return bw_fail(BW_CODE_MEMORY, "out of host memory for a prepared launch");
    BW_GOTO(choose(sets[0].dims, sets[0].precision, &device->facts, self));
    for (int i = 0; i < self->kernels; i++) BW_GOTO(allow_shared(device, &self->kernel[i]));
    *state = self;
    return BW_OK;
cleanup:
    free(self);
    return status;
}

void bw_cuda_prepared_release(void *state) {
    free(state);
}

static bw_status launch_kernel(const bw_launch *launch, const bw_cuda_kernel *kernel) {
    bw_device *device = launch->device;
    uint64_t word[BW_CUDA_ARGUMENT_WORDS];
    void *argument[BW_CUDA_ARGUMENTS_MAX];
    memcpy(word, kernel->word, (size_t)kernel->words * sizeof *word);
    for (int i = 0; i < kernel->places; i++) {
        const bw_cuda_place *place = &kernel->place[i];
        char *base = place->operand == BW_CUDA_SCRATCH ? launch->scratch : launch->operand[place->operand];
        word[place->word] = (uintptr_t)(base + place->offset);
    }
    for (int i = 0; i < kernel->arguments; i++) argument[i] = &word[kernel->starts[i]];
    BW_TRY(BW_CUDA(&device->api, launch_kernel(kernel->function, kernel->grid, kernel->block, argument,
                                               kernel->shared_bytes, device->stream)));
    return BW_CUDA(&device->api, last_error());
}

bw_status bw_cuda_prepared_launch(const bw_launch *launch) {
    const bw_cuda_prepared *self = launch->state;
    for (int i = 0; i < self->kernels; i++) BW_TRY(launch_kernel(launch, &self->kernel[i]));
    return BW_OK;
}

bw_status bw_cuda_resident_blocks(bw_device *device, const bw_cuda_kernel *kernel, int *out) {
    const unsigned threads = kernel->block.x * kernel->block.y * kernel->block.z;
    return BW_CUDA(&device->api, occupancy(out, kernel->function, (int)threads, kernel->shared_bytes));
}
