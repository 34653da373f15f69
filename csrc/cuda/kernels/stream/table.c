/* The variants of the streams on a GPU: one each, which must be as fast as the memory. */
#include "cuda/kernels/stream/stream.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

#define BASELINE "the only variant: one tile a block, 16-byte accesses that the caches drop first"

#define STREAM(operation, refusal)                                                 \
    BW_CUDA_PREPARE(operation, bw_stream_##operation##_choose)                     \
    static const bw_variant operation##_rows[] = {                                 \
        {.name = "direct",                                                         \
         .text = "one tile per block, 16-byte accesses, evict-first cache policy", \
         .prediction = {.changes = BASELINE},                                      \
         .precisions = PRECISIONS,                                                 \
         .rounds_once = true,                                                      \
         .refuses = refusal,                                                       \
         BW_CUDA_HOOKS(operation)},                                                \
    };                                                                             \
    const bw_variant_table bw_cuda_stream_##operation = {operation##_rows, 1, NULL};

STREAM(read, bw_stream_read_refuses)
STREAM(write, bw_stream_tiles_refuse)
STREAM(copy, bw_stream_tiles_refuse)
STREAM(triad, bw_stream_tiles_refuse)
