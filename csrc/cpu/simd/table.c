/* One instruction set's kernels, gathered from the other files of this folder. */
#include "cpu/simd/simd.h"
#include "ops/list.h"

#define BW_DECLARE(operation, cpu, cuda) extern const bw_variant_table BW_CPU_TABLE(operation);
BW_OPERATIONS(BW_DECLARE)
#undef BW_DECLARE

extern const bw_cpu_kernels BW_CPU_NAME(kernels);
void BW_CPU_NAME(fill)(bw_dtype dtype, bw_input_key key, int64_t first, int64_t count, void *out);
uint32_t BW_CPU_NAME(sum)(const void *data, int64_t bytes);
float BW_CPU_NAME(multiply_adds)(int64_t rounds);
extern const int BW_CPU_NAME(flops_per_round);

#define BW_QUOTE(text) #text
#define BW_QUOTE_EXPANDED(text) BW_QUOTE(text)

static const bw_variant_table *const tables[] = {
#define BW_ROW(operation, cpu, cuda) BW_IF_##cpu(&BW_CPU_TABLE(operation), &bw_no_variants),
    BW_OPERATIONS(BW_ROW)
#undef BW_ROW
};

const bw_cpu_kernels BW_CPU_NAME(kernels) = {
    .isa = BW_QUOTE_EXPANDED(BW_ISA),
    .tables = tables,
    .fill = BW_CPU_NAME(fill),
    .sum = BW_CPU_NAME(sum),
    .multiply_adds = BW_CPU_NAME(multiply_adds),
    .flops_per_round = &BW_CPU_NAME(flops_per_round),
};
