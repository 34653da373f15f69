// Kernels that are slow for one planted cause each, for diagnose_planted.py: a shared object that ctypes opens.
// Each launch only enqueues, on one stream of its own, so that a graph can capture it.
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

namespace {

constexpr size_t mib = 1u << 20;
constexpr size_t buffer_bytes = 2048 * mib;  // of each of the two
constexpr int threads = 256, lanes = 32;

struct state {
    float *in, *out;
    cudaStream_t stream;
    int units;
};
state the;

__global__ void copy_kernel(const float4 *in, float4 *out, size_t count) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) out[i] = in[i];
}

// A lane reads one float of a line of 32: an eighth of each sector is used.
__global__ void uncoalesced_kernel(const float *in, float *out) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i * lanes];
}

// Lanes read one column of 32 rows, which all lie in one bank: 32 turns an access.
__global__ void conflicts_kernel(float *out, int steps) {
    __shared__ float tile[lanes * lanes];
    for (int i = threadIdx.x; i < lanes * lanes; i += blockDim.x) tile[i] = (float)i;
    __syncthreads();
    const volatile float *row = tile + threadIdx.x % lanes * lanes;
    float sum = 0.0f;
    for (int i = 0; i < steps; i++) sum += row[i % lanes];
    out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// An array whose index only the run knows lies in local memory, as spilled registers do.
__global__ void spilling_kernel(const int *from, float *out, int steps) {
    constexpr int kept = 128;
    float values[kept];
    const size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < kept; i++) values[i] = (float)(at + i);
    int index = from[at] & (kept - 1);
    float sum = 0.0f;
    for (int i = 0; i < steps; i++) {
        sum += values[index];
        values[(index + 7 * i) & (kept - 1)] = sum;
        index = (index + 13) & (kept - 1);
    }
    out[at] = sum;
}

__global__ void tiny_kernel(float *out) {
    out[threadIdx.x] = (float)threadIdx.x;
}

// Eight chains of multiply-adds a thread: nothing but the FMA pipe is busy.
__global__ void fma_kernel(float *out, float factor, int steps) {
    constexpr int chains = 8;
    float sums[chains];
    for (int i = 0; i < chains; i++) sums[i] = (float)(threadIdx.x + i);
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int i = 0; i < chains; i++) sums[i] = fmaf(sums[i], factor, 1.0f);
    }
    float sum = 0.0f;
    for (int i = 0; i < chains; i++) sum += sums[i];
    out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Few warps, whose next address waits for the last value (always zero): one load of each in flight.
__global__ void few_warps_kernel(const float4 *in, float4 *out, size_t count) {
    extern __shared__ float unused[];
    const size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    while (i < count) {
        const float4 value = in[i];
        sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
        i += step + (size_t)(value.x != 0.0f);
    }
    if (sum.x == 1.0f) unused[threadIdx.x] = sum.x;
    out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// One warp of a block works, seven wait for it at a barrier.
__global__ void barriers_kernel(float *out, float factor, int steps) {
    float sum = (float)threadIdx.x;
    for (int step = 0; step < steps; step++) {
        if (threadIdx.x < lanes) {
#pragma unroll 1
            for (int i = 0; i < 64; i++) sum = fmaf(sum, factor, 1.0f);
        }
        __syncthreads();
    }
    out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Lanes write one float of a line of 32 each: an eighth of each sector.
__global__ void scattered_kernel(const float *in, float *out) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    out[i * lanes] = in[i];
}

// A load from shared memory for each multiply-add, of neighboring words: no conflicts.
__global__ void shared_loads_kernel(float *out, float factor, int steps) {
    __shared__ float tile[2 * threads];
    for (int i = threadIdx.x; i < 2 * threads; i += blockDim.x) tile[i] = (float)i;
    __syncthreads();
    const volatile float *at = tile + threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < steps; i++) {
#pragma unroll
        for (int j = 0; j < 32; j++) sum = fmaf(at[j * 4], factor, sum);
    }
    out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Sines and square roots of the special function unit, eight chains a thread.
__global__ void special_kernel(float *out, int steps) {
    constexpr int chains = 8;
    float sums[chains];
    for (int i = 0; i < chains; i++) sums[i] = (float)(threadIdx.x + i);
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int i = 0; i < chains; i++) sums[i] = __sinf(sums[i]);
    }
    float sum = 0.0f;
    for (int i = 0; i < chains; i++) sum += sums[i];
    out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Each lane of a warp has its own number of steps: while one works, the others wait.
__global__ void divergent_kernel(float *out, float factor, int steps) {
    const int lane = threadIdx.x % lanes;
    float sum = (float)lane;
    for (int turn = 0; turn < lanes; turn++) {
        if (turn == lane) {
#pragma unroll 1
            for (int i = 0; i < steps; i++) sum = fmaf(sum, factor, (float)turn);
        }
        __syncwarp();
    }
    out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// The same bytes, more than the caches hold, several times over.
__global__ void again_kernel(const float4 *in, float4 *out, size_t count, int times) {
    const size_t step = (size_t)gridDim.x * blockDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int time = 0; time < times; time++) {
#pragma unroll 4
        for (size_t i = first; i < count; i += step) {
            const float4 value = in[i];
            sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
        }
    }
    out[first] = sum;
}

constexpr size_t copied = 512 * mib, copied_by_one = 16 * mib, gathered = 16 * mib;  // gathered: floats
constexpr int conflict_steps = 4096, spill_steps = 256, fma_steps = 16384, barrier_steps = 256;
constexpr int shared_steps = 512, special_steps = 2048, divergent_steps = 128, times_again = 4, blocks_again = 8;
constexpr size_t read_again = 256 * mib;
constexpr int shared_of_few = 96 * 1024, threads_of_few = 64;

int blocks_of(int each) {
    return the.units * each;
}

void copy() {
    copy_kernel<<<(unsigned)(copied / sizeof(float4) / threads), threads, 0, the.stream>>>(
        (const float4 *)the.in, (float4 *)the.out, copied / sizeof(float4));
}

void uncoalesced() {
    uncoalesced_kernel<<<(unsigned)(gathered / threads), threads, 0, the.stream>>>(the.in, the.out);
}

void conflicts() {
    conflicts_kernel<<<blocks_of(32), threads, 0, the.stream>>>(the.out, conflict_steps);
}

void one_block() {
    copy_kernel<<<1, threads, 0, the.stream>>>((const float4 *)the.in, (float4 *)the.out,
                                               copied_by_one / sizeof(float4));
}

void spilling() {
    spilling_kernel<<<blocks_of(32), threads, 0, the.stream>>>((const int *)the.in, the.out, spill_steps);
}

void tiny() {
    tiny_kernel<<<1, lanes, 0, the.stream>>>(the.out);
}

void fma() {
    fma_kernel<<<blocks_of(32), threads, 0, the.stream>>>(the.out, 0.999f, fma_steps);
}

void few_warps() {
    few_warps_kernel<<<blocks_of(16), threads_of_few, shared_of_few, the.stream>>>(
        (const float4 *)the.in, (float4 *)the.out, copied / sizeof(float4));
}

void barriers() {
    barriers_kernel<<<blocks_of(32), threads, 0, the.stream>>>(the.out, 0.999f, barrier_steps);
}

void scattered() {
    scattered_kernel<<<(unsigned)(gathered / threads), threads, 0, the.stream>>>(the.in, the.out);
}

void shared_loads() {
    shared_loads_kernel<<<blocks_of(32), threads, 0, the.stream>>>(the.out, 0.999f, shared_steps);
}

void special() {
    special_kernel<<<blocks_of(32), threads, 0, the.stream>>>(the.out, special_steps);
}

void divergent() {
    divergent_kernel<<<blocks_of(32), threads, 0, the.stream>>>(the.out, 0.999f, divergent_steps);
}

void again() {
    again_kernel<<<blocks_of(blocks_again), threads, 0, the.stream>>>((const float4 *)the.in, (float4 *)the.out,
                                                                      read_again / sizeof(float4), times_again);
}

// As `fma`, but for a quarter of the multiprocessors, a block of 1024 threads each.
void quarter() {
    fma_kernel<<<the.units / 4, 4 * threads, 0, the.stream>>>(the.out, 0.999f, fma_steps);
}

// What is planted, the hypotheses that name it, the best first, and a launch's bytes and FLOPs for each thread of a
// multiprocessor (`per_unit`) or altogether.
const struct {
    const char *name, *causes;
    void (*launch)();
    size_t read, written, flops;
    bool per_unit;
} kernels[] = {
    {"plain copy", "memory_bound", copy, copied, copied, 0, false},
    {"uncoalesced", "uncoalesced", uncoalesced, gathered * sizeof(float), gathered * sizeof(float), 0, false},
    {"32-way bank conflicts", "bank_conflicts", conflicts, 0, 32 * threads * sizeof(float), 0, true},
    {"one block", "small_grid latency_bound", one_block, copied_by_one, copied_by_one, 0, false},
    {"spilling", "spills", spilling, 32 * threads * sizeof(float), 32 * threads * sizeof(float), 0, true},
    {"tiny", "launch_bound", tiny, 0, lanes * sizeof(float), 0, false},
    {"multiply-adds", "compute_bound", fma, 0, 32 * threads * sizeof(float), (size_t)32 * threads *fma_steps * 8 * 2,
     true},
    {"few warps", "low_occupancy latency_bound", few_warps, copied, 0, 0, false},
    {"barriers", "barriers", barriers, 0, 32 * threads * sizeof(float), 0, true},
    {"scattered stores", "uncoalesced", scattered, gathered * sizeof(float), gathered * sizeof(float), 0, false},
    {"shared loads", "shared_memory_bound", shared_loads, 0, 32 * threads * sizeof(float), 0, true},
    {"special functions", "compute_bound", special, 0, 32 * threads * sizeof(float), 0, true},
    {"divergent", "divergence", divergent, 0, 32 * threads * sizeof(float), 0, true},
    {"read again", "cache_thrash", again, read_again, blocks_again *threads * sizeof(float4), 0, false},
    {"a quarter of the device", "small_grid", quarter, 0, threads * sizeof(float), (size_t)threads *fma_steps * 8 * 2,
     true},
};
constexpr int kernel_count = sizeof kernels / sizeof kernels[0];

}  // namespace

extern "C" {

int planted_count() {
    return kernel_count;
}

const char *planted_name(int i) {
    return kernels[i].name;
}

const char *planted_causes(int i) {
    return kernels[i].causes;
}

// Of `which` 0: bytes read, 1: bytes written, 2: FLOPs.
uint64_t planted_work(int i, int which) {
    const size_t each = which == 0 ? kernels[i].read : which == 1 ? kernels[i].written : kernels[i].flops;
    return kernels[i].per_unit ? each * (size_t)the.units : each;
}

const char *planted_open() {
    cudaError_t error = cudaDeviceGetAttribute(&the.units, cudaDevAttrMultiProcessorCount, 0);
    if (!error) error = cudaMalloc(&the.in, buffer_bytes);
    if (!error) error = cudaMalloc(&the.out, buffer_bytes);
    if (!error) error = cudaMemset(the.in, 0, buffer_bytes);
    if (!error)
        error = cudaFuncSetAttribute(few_warps_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_of_few);
    if (!error) error = cudaStreamCreateWithFlags(&the.stream, cudaStreamNonBlocking);
    if (!error) error = cudaDeviceSynchronize();
    return error ? cudaGetErrorString(error) : NULL;
}

uint64_t planted_stream() {
    return (uint64_t)the.stream;
}

// NULL, or what went wrong.
const char *planted_launch(int i) {
    kernels[i].launch();
    const cudaError_t error = cudaGetLastError();
    return error ? cudaGetErrorString(error) : NULL;
}
}
