// bwprof.hpp where nothing throws, compiled with and without exceptions; bytes of any integers. usage: noexcept FOLDER
#include <bwprof.hpp>
#include <cstdio>
#include <string>

static double measured(bwprof::Profiler &profiler, const char *name, bool with_bytes) {
    const double found = profiler.bandwidth_gb_s(name);
    return with_bytes ? found > 0 : found != found;
}

int main(int, char **arguments) {
    bwprof::Profiler none{std::nothrow, "no backend"}, profiler{std::nothrow, "cpu"};
    std::printf("none %d %d, there %d %d\n", !none, none.status(), !profiler, profiler.status());
    long long many = 5000000000;
    int below = -3;
    unsigned short few = 7;
    { bwprof::Range range{profiler, "bytes", nullptr, many, few}; }
    { bwprof::Range range{profiler, "below", nullptr, many, below}; }
    { bwprof::Range range{none, "nowhere"}; }
    { bwprof::Range range{"own", nullptr, many, 4U}; }
    std::printf("known %g unknown %g\n", measured(profiler, "bytes", true), measured(profiler, "below", false));
    const std::string nowhere = std::string(arguments[1]) + "/none/ranges.csv";
#if BWPROF_EXCEPTIONS
    for (int i = 0; i < 2; i++) {
        try {
            i ? profiler.write_csv(nowhere) : profiler.set_bytes("bytes", below, 1);
        } catch (const bwprof::Error &error) {
            std::printf("refused %d\n", error.status());
        }
    }
#else
    for (int i = 0; i < 2; i++) {
        i ? profiler.write_csv(nowhere) : profiler.set_bytes("bytes", below, 1);
        profiler.enable(true);  // the first failure stays
        std::printf("refused %d\n", profiler.status());
        profiler.clear_status();
    }
#endif
    bwprof::Profiler moved = static_cast<bwprof::Profiler &&>(profiler);
    none = static_cast<bwprof::Profiler &&>(moved);
    std::printf("moved %d %d %d, %d of them\n", !profiler, !moved, !none, static_cast<int>(none.count("bytes")));
    return profiler.get() || moved.get() ? 1 : 0;
}
