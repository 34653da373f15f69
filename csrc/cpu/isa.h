/* Instruction sets: which there are, what each needs from the compiler, and which one a device uses.
 *
 * Every file of csrc/cpu/simd/ is compiled once per instruction set, with -DBW_ISA=<name> and its flags; but
 * <family>_<name>.c for that one alone, whose rows stand in the family's table within #if, by a macro that
 * vectors/<name>.h defines. The build reads the lines X(<name>, <machine>, "<flags>") below: those whose machine is
 * this one's, or `any`. Nothing in those files has external linkage but what BW_CPU_NAME and BW_CPU_TABLE name, so that
 * no wide instruction leaks into code that runs everywhere. Adding an instruction set: a line here, its check in isa.c,
 * its vectors/<name>.h. */
#pragma once

#include "backend/backend.h"
#include "base/types/input.h"

/* One line each, best first. */
/* clang-format off */
#define BW_CPU_ISAS_X86_64(X)                                                                                     \
    X(avx512, x86_64, "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512") \
    X(avx2, x86_64, "-mavx2 -mfma -mf16c")
#define BW_CPU_ISAS_AARCH64(X) X(neon, aarch64, "")
#define BW_CPU_ISAS_ANY(X) X(portable, any, "")
/* clang-format on */

#if defined(__x86_64__)
#define BW_CPU_ISAS(X) BW_CPU_ISAS_X86_64(X) BW_CPU_ISAS_ANY(X)
#elif defined(__aarch64__)
#define BW_CPU_ISAS(X) BW_CPU_ISAS_AARCH64(X) BW_CPU_ISAS_ANY(X)
#else
#define BW_CPU_ISAS(X) BW_CPU_ISAS_ANY(X)
#endif

/* bw_cpu_<name>_<isa>: the only external names that a file of csrc/cpu/simd/ defines. */
#define BW_CPU_JOIN(name, isa) bw_cpu_##name##_##isa
#define BW_CPU_JOIN_EXPANDED(name, isa) BW_CPU_JOIN(name, isa)
#define BW_CPU_NAME(name) BW_CPU_JOIN_EXPANDED(name, BW_ISA)
#define BW_CPU_TABLE(operation) BW_CPU_NAME(operation)

/* What one instruction set's objects offer: bw_cpu_kernels_<isa>. */
typedef struct bw_cpu_kernels {
    const char *isa;
    const bw_variant_table *const *tables; /* in the operation list's order */
    /* Blocks [first, first + count) of an input in their stored form, as bw_input_fill; out is block `first`. */
    void (*fill)(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, void *out);
    /* The wrapping sum of the whole 32-bit words in `bytes` bytes: reads them all. */
    uint32_t (*sum)(const void *data, int64_t bytes);
    /* One thread's arithmetic roof: so many FLOPs a round, in registers. */
    float (*multiply_adds)(int64_t rounds);
    int flops_per_round;
} bw_cpu_kernels;

/* The best instruction set that this machine and operating system run. */
const bw_cpu_kernels *bw_cpu_isa_best(void);

/* The one named (NULL: the best); fails for a name that is unknown or does not run here. */
bw_status bw_cpu_isa_choose(const char *name, const bw_cpu_kernels **out);
