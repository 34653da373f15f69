/* The variants of access patterns on a GPU: one each. */
#include "cuda/kernels/access/access.h"
#include "ops/families/memory/access.h"

enum { STRIDED = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16), RANDOM = BW_MASK(FP32), SECTOR_BYTES = 32 };

#define ACCESS(name_, way, precisions_, refusal, writes, random, what)                                              \
    BW_CUDA_PREPARE(name_, bw_##name_##_choose)                                                                     \
    static bw_status name_##_cost(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts, \
                                  bw_cost *cost) {                                                                  \
        const bw_access access = bw_access_##way(dims, precision);                                                  \
        (void)facts;                                                                                                \
        bw_access_add_lines(&access, SECTOR_BYTES, writes, random, cost);                                           \
        return BW_OK;                                                                                               \
    }                                                                                                               \
    static const bw_variant name_##_rows[] = {                                                                      \
        {.name = "direct",                                                                                          \
         .text = what,                                                                                              \
         .prediction = {.changes = "the only variant: " what},                                                      \
         .precisions = precisions_,                                                                                 \
         .rounds_once = true,                                                                                       \
         .refuses = refusal,                                                                                        \
         .extra_cost = name_##_cost,                                                                                \
         BW_CUDA_HOOKS(name_)},                                                                                     \
    };                                                                                                              \
    const bw_variant_table bw_cuda_##name_ = {name_##_rows, 1, NULL};

ACCESS(strided_read, shared, STRIDED, bw_strided_read_refuses, false, false,
       "one element per access, 16 accesses a thread in flight")
ACCESS(strided_write, strided, STRIDED, bw_strided_write_refuses, true, false, "one element per access, a thread each")
ACCESS(random_read, random, RANDOM, bw_random_refuses, false, true,
       "up to 16 bytes an access, 8 accesses a thread in flight")
ACCESS(random_write, random, RANDOM, bw_random_refuses, true, true, "up to 16 bytes an access")
