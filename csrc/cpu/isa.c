/* Chooses the instruction set at run time. */
#include "cpu/isa.h"

#include "base/names.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* __builtin_cpu_supports also asks whether the operating system saves the registers. */
static bool runs_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool runs_avx2(void) {
    unsigned a, b, c = 0, d;
    bool half_floats = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    return half_floats && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#elif defined(__aarch64__)
static bool runs_neon(void) {
    return true; /* part of the base architecture */
}
#endif

static bool runs_portable(void) {
    return true;
}

#define BW_CPU_DECLARE(isa, machine, flags) extern const bw_cpu_kernels bw_cpu_kernels_##isa;
BW_CPU_ISAS(BW_CPU_DECLARE)
#undef BW_CPU_DECLARE

static const struct {
    const bw_cpu_kernels *kernels;
    bool (*runs)(void);
} isas[] = {
#define BW_CPU_ROW(isa, machine, flags) {&bw_cpu_kernels_##isa, runs_##isa},
    BW_CPU_ISAS(BW_CPU_ROW)
#undef BW_CPU_ROW
};

enum { ISA_COUNT = sizeof isas / sizeof isas[0] };

const bw_cpu_kernels *bw_cpu_isa_best(void) {
    int best = 0;
    while (!isas[best].runs()) best++; /* the last one always runs */
    return isas[best].kernels;
}

static const char *name_at(const void *unused, int index) {
    (void)unused;
    if (index >= ISA_COUNT) return NULL;
    return isas[index].runs() ? isas[index].kernels->isa : "";
}

bw_status bw_cpu_isa_choose(const char *name, const bw_cpu_kernels **out) {
    char allowed[128];
    *out = bw_cpu_isa_best();
    if (!name) return BW_OK;
    int index = bw_name_find(name, name_at, NULL, allowed, sizeof allowed);
    if (index < 0) {
        return bw_fail(BW_CODE_INVALID,
                       "BWPROF_CPU_ISA is '%s', which is no instruction set of this machine: allowed are %s", name,
                       allowed);
    }
    *out = isas[index].kernels;
    return BW_OK;
}
