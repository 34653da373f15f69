// An engine in C++ with bwprof.hpp. usage: example FOLDER
#define BWPROF_ENABLE
#include <bwprof.hpp>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

static void work(std::vector<float> *values) {
    BWPROF_SCOPE("scale", nullptr);
    for (float &value : *values) value = value * 0.5f + 1.0f;
}

static void gemm(bwprof::Profiler *profiler, bool fails) {
    BWPROF_RANGE(profiler->get(), nullptr, 3000, 1000);
    if (fails) throw std::runtime_error("a kernel that fails ends its range");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    const std::string folder = argv[1];
    std::vector<float> values(1 << 16), others(1 << 16);
    bwprof::Profiler own{"cpu"};
    bwprof::profiler().set_bytes("scale", sizeof(float) << 16, sizeof(float) << 16);
    std::thread other{[&] {
        for (int i = 0; i < 5; i++) work(&others);
    }};
    for (int i = 0; i < 5; i++) {
        bwprof::Range r{own, "step"};
        work(&values);
    }
    other.join();
    for (int i = 0; i < 3; i++) {
        try {
            gemm(&own, i == 1);
        } catch (const std::runtime_error &error) {
            std::printf("%s\n", error.what());
        }
    }
    { bwprof::Range r{own, "kv_append", nullptr, 500, 500}; }
    std::printf("ranges %d %d, their bytes %d %d\n", static_cast<int>(own.count("gemm")),
                static_cast<int>(own.count("kv_append")), own.bandwidth_gb_s("gemm") > 0,
                own.bandwidth_gb_s("kv_append") > 0);
    std::printf("counts %d %d\n", static_cast<int>(bwprof::profiler().count("scale")),
                static_cast<int>(own.count("step")));
    std::printf("known %d unknown %d\n", bwprof::profiler().bandwidth_gb_s("scale") > 0,
                static_cast<int>(std::isnan(own.bandwidth_gb_s("step"))));
    bwprof::profiler().write_csv(folder + "/scale.csv");
    own.print_report(stdout);
    bwprof::Profiler moved = std::move(own);
    try {
        own.elapsed_ms("step");
    } catch (const bwprof::Error &error) {
        std::printf("refused %d: %s\n", error.status(), error.what());
    }
    return moved.elapsed_ms("step") > 0 ? 0 : 1;
}
