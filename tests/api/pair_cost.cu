// What a pair of marks costs the host: on a stream of one's own, on the legacy default one, from several threads at
// once, with bytes, and switched off; beside two bare event records. Marks alone, read between rounds, as by a program
// that asks for its times now and then; and for ever, where each range pays for reading one before it. usage: pair_cost
#include <algorithm>
#include <bwprof.hpp>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

constexpr int ROUNDS = 401;
static int pairs = 10;  // in a row, on an empty stream: of many the GPU's own pace is what is measured

static bwprof_profiler *read_between = nullptr;

// The median over rounds, ns a pair; the stream is empty at the beginning of each.
template <typename Pair>
static double ns_of(cudaStream_t stream, Pair pair) {
    std::vector<double> found;
    for (int round = 0; round < ROUNDS; round++) {
        cudaStreamSynchronize(stream);
        if (read_between) bwprof_profiler_reset(read_between);
        const auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < pairs; i++) pair();
        const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begun;
        found.push_back(spent.count() / pairs);
    }
    std::nth_element(found.begin(), found.begin() + ROUNDS / 2, found.end());
    return found[ROUNDS / 2];
}

static double marks(bwprof::Profiler &profiler, cudaStream_t stream) {
    bwprof_profiler *handle = profiler.get();
    return ns_of(stream, [=] {
        bwprof_profiler_start(handle, "gemm", stream);
        bwprof_profiler_stop(handle, "gemm", stream);
    });
}

static double ranges(bwprof::Profiler &profiler, cudaStream_t stream) {
    return ns_of(stream, [&] { bwprof::Range range(profiler, "gemm", stream, 3000, 1000); });
}

int main() try {
    cudaStream_t stream, streams[4];
    cudaEvent_t events[512];
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (cudaEvent_t &event : events) cudaEventCreate(&event);
    bwprof::Profiler profiler{"cuda"};
    for (int many : {10, 10, 50, 200}) {
        pairs = many;
        int next = 0;
        const auto records = [&] {
            cudaEventRecord(events[next], stream), cudaEventRecord(events[next + 1], stream);
            next = (next + 2) % 512;
        };
        std::printf("%3d pairs: two event records %.0f ns", pairs, ns_of(stream, records));
        for (bwprof_profiler *read : {profiler.get(), static_cast<bwprof_profiler *>(nullptr)}) {
            read_between = read;
            std::printf("; %s: own stream %.0f ns, legacy stream %.0f ns, with bytes %.0f ns",
                        read ? "marks" : "marks and reading", marks(profiler, stream), marks(profiler, nullptr),
                        ranges(profiler, stream));
        }
        profiler.enable(false);
        std::printf(", switched off %.1f ns\n", marks(profiler, stream));
        profiler.enable(true);
    }
    pairs = 10;
    double found[4];
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
    for (int i = 0; i < 4; i++) threads.emplace_back([&, i] { found[i] = marks(profiler, streams[i]); });
    for (std::thread &thread : threads) thread.join();
    std::printf("four threads, a stream each: %.0f %.0f %.0f %.0f ns\n", found[0], found[1], found[2], found[3]);
    std::printf("%lld ranges\n", static_cast<long long>(profiler.count("gemm")));
    return 0;
} catch (const bwprof::Error &error) {
    std::fprintf(stderr, "%d: %s\n", error.status(), error.what());
    return 1;
}
