// An engine with kernels of its own: ranges on its stream, and a measurement, beside an event pair around a graph.
// usage: example FOLDER
#include <bwprof.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}
#define CUDA(call) check(call, #call)

__global__ void scale_kernel(const float4 *from, float4 *to, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
        const float4 value = from[i];
        to[i] = make_float4(0.5f * value.x, 0.5f * value.y, 0.5f * value.z, 0.5f * value.w);
    }
}

struct Scale {
    float4 *from, *to;
    size_t count;
    cudaStream_t stream;
};

static int launch(void *user, int64_t) {
    const Scale *self = static_cast<Scale *>(user);
    scale_kernel<<<1056, 256, 0, self->stream>>>(self->from, self->to, self->count);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}

// The time of one launch of many in a graph, by an event pair around it, ms.
static float graph_ms(Scale *scale) {
    constexpr int launches = 20;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaEvent_t from, to;
    float ms;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    CUDA(cudaStreamBeginCapture(scale->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < launches; i++) launch(scale, 0);
    CUDA(cudaStreamEndCapture(scale->stream, &graph));
    CUDA(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 3; i++) {
        CUDA(cudaEventRecord(from, scale->stream));
        CUDA(cudaGraphLaunch(ready, scale->stream));
        CUDA(cudaEventRecord(to, scale->stream));
        CUDA(cudaStreamSynchronize(scale->stream));
    }
    CUDA(cudaEventElapsedTime(&ms, from, to));
    return ms / launches;
}

int main(int argc, char **argv) try {
    constexpr size_t bytes = size_t(256) << 20;  // far more than any cache: cold and hot are the same
    if (argc != 2) return 2;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    Scale scale{nullptr, nullptr, bytes / sizeof(float4), nullptr};
    CUDA(cudaStreamCreateWithFlags(&scale.stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc(&scale.from, bytes));
    CUDA(cudaMalloc(&scale.to, bytes));
    CUDA(cudaMemsetAsync(scale.from, 0, bytes, scale.stream));
    bwprof::Profiler profiler{"cuda"};
    profiler.set_bytes("scale", bytes, bytes);
    for (int i = 0; i < 20; i++) {
        bwprof::Range range{profiler, "scale", scale.stream};
        launch(&scale, 0);
    }
    bwprof_measure_options options{};
    options.profiler = profiler.get();
    options.bytes_read = options.bytes_written = bytes;
    options.max_seconds = 0.5;
    bwprof_measurement found;
    bwprof::check(bwprof_measure(launch, &scale, scale.stream, &options, &found));
    std::printf("range %.6f ms %.1f GB/s\n", profiler.elapsed_ms("scale"), profiler.bandwidth_gb_s("scale"));
    std::printf("measured %.6f ms %.1f GB/s %s cold %d\n", found.time_ms, found.bandwidth_gb_s, found.timer,
                found.cold);
    std::printf("graph %.6f ms\n", graph_ms(&scale));
    profiler.write_csv(std::string(argv[1]) + "/cuda.csv");

    cudaStream_t gone;  // a stream that is no more when its range is read
    CUDA(cudaStreamCreate(&gone));
    { bwprof::Range range{profiler, "gone", gone}; }
    CUDA(cudaStreamDestroy(gone));
    std::printf("read later %d\n", profiler.elapsed_ms("gone") > 0);
    std::printf("still works %d\n", profiler.elapsed_ms("scale") > 0);
    CUDA(cudaStreamSynchronize(scale.stream));
    return 0;
} catch (const bwprof::Error &error) {
    std::fprintf(stderr, "%d: %s\n", error.status(), error.what());
    return 1;
}
