/* The toolkit's own cuda_occupancy.h over a grid: `occupancy_witness <major> <minor> <warps> <shared KiB>` of a
 * multiprocessor. A line for each point: registers, shared bytes, threads, blocks, and the limit of each resource. */
#include <stdio.h>
#include <stdlib.h>

#include <cuda_occupancy.h>

static const int register_grid[] = {0,  1,  8,  9,  16, 24, 31, 32,  33,  40,  41,
                                    48, 56, 64, 72, 80, 96, 97, 128, 129, 168, 255};
static const int shared_grid[] = {0,      1,      127,    128,    1024,   3000,   8192,   12000,  16000,  20480,
                                  28160,  28161,  32768,  40960,  49152,  49153,  57344,  65536,  82000,  98304,
                                  101376, 101377, 115712, 132000, 166912, 166913, 200000, 232448, 232449, 300000};
static const int thread_grid[] = {1,   31,  32,  33,  64,  96,  100, 128,  160, 192,
                                  224, 256, 320, 384, 512, 640, 768, 1000, 1024};

#define COUNT(list) ((int)(sizeof list / sizeof list[0]))

int main(int count, char **words) {
    cudaOccDeviceProp device = {0};
    cudaOccFuncAttributes kernel = {0};
    cudaOccDeviceState state = {0};
    cudaOccResult found = {0};
    if (count != 5) return 2;
    device.computeMajor = atoi(words[1]);
    device.computeMinor = atoi(words[2]);
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = 32 * atoi(words[3]);
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = (size_t)atoi(words[4]) * 1024;
    device.numSms = 100;
    device.sharedMemPerBlockOptin = device.sharedMemPerMultiprocessor - 1024;
    device.reservedSharedMemPerBlock = 1024;
    kernel.maxThreadsPerBlock = 1024;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.numBlockBarriers = 1;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
    for (int r = 0; r < COUNT(register_grid); r++) {
        for (int s = 0; s < COUNT(shared_grid); s++) {
            for (int t = 0; t < COUNT(thread_grid); t++) {
                kernel.numRegs = register_grid[r];
                kernel.maxDynamicSharedSizeBytes = (size_t)shared_grid[s];
                cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(&found, &device, &kernel, &state,
                                                                             thread_grid[t], (size_t)shared_grid[s]);
                if (error == CUDA_OCC_ERROR_UNKNOWN_DEVICE) return 3;
                if (error != CUDA_OCC_SUCCESS) return 4;
                printf("%d %d %d %d %d %d %d %d\n", register_grid[r], shared_grid[s], thread_grid[t],
                       found.activeBlocksPerMultiprocessor, found.blockLimitRegs, found.blockLimitSharedMem,
                       found.blockLimitWarps, found.blockLimitBlocks);
            }
        }
    }
    return 0;
}
