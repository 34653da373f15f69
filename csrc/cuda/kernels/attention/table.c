/* attention on a GPU. The ladders:
 *   attention_prefill  unfused   scores and weights in memory: three kernels (unfused.cu)
 *                      strided, shared, padded   online softmax, a query a warp: what memory lines, shared memory and
 *                                its banks are worth (prefill/ladder.cu)
 *                      flash     online softmax, nothing in memory but the operands (prefill/)
 *                      split     the same in FP32 on tensor cores, three products in TF32 for one (prefill/tf32.cu)
 *                      hopper    the same on Hopper's own instructions: copies, products and softmax of different
 *                                warpgroups at once (prefill/hopper_sm90.cu)
 *   attention_decode   simple    one block per K/V head: all query heads of its group share what it reads
 *                      splitkv   the keys divided among as many blocks as keep every multiprocessor reading; the last
 *                                blocks of a K/V head to start add the parts up (decode/direct.cu up to 8 query heads
 *                                per K/V head, the kernels of `simple` for the rest) */
#include "cuda/kernels/attention/attention.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

BW_CUDA_PREPARE(unfused, bw_unfused_choose)
BW_CUDA_PREPARE(strided, bw_prefill_strided_choose)
BW_CUDA_PREPARE(shared, bw_prefill_shared_choose)
BW_CUDA_PREPARE(padded, bw_prefill_padded_choose)
BW_CUDA_PREPARE(flash, bw_flash_choose)
BW_CUDA_PREPARE(split, bw_split_choose)
BW_CUDA_PREPARE(simple, bw_simple_choose)

/* The rungs of ladder.cu, which refuse alike. */
#define ROWS(rung_name, ...)                                                                                    \
    {                                                                                                           \
        .name = #rung_name, .precisions = PRECISIONS, .refuses = bw_prefill_rows_refuse,                        \
        .prepare = rung_name##_prepare, .release = bw_cuda_prepared_release, .launch = bw_cuda_prepared_launch, \
        .describe = rung_name##_describe, __VA_ARGS__                                                           \
    }

static const bw_variant prefill_rows[] = {
    {.name = "unfused",
     .text = "scores and weights stored in memory: three kernels",
     .rung = {.changes = "the baseline: scores and weights go to memory, three kernels; 16 bits on tensor cores"},
     .precisions = PRECISIONS,
     .refuses = bw_unfused_refuses,
     .scratch_bytes = bw_unfused_scratch_bytes,
     .extra_cost = bw_unfused_extra_cost,
     .prepare = unfused_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = unfused_describe},
    ROWS(strided, .text = "online softmax, a query a warp; each lane walks its own key's row",
         .rung = {.changes = "online softmax: nothing in memory but the operands; a lane walks its own key's row",
                  .predicted = 0.015,
                  .because = "a load of K touches 32 lines, and nothing is shared between queries: that costs far more "
                             "than the traffic of the scores, and unfused has tensor cores"}),
    ROWS(shared, .text = "online softmax, a query a warp; K and V tiles through shared memory",
         .rung = {.changes = "tiles of K and V in shared memory, loaded line by line, once for 8 queries",
                  .predicted = 1.1,
                  .because = "32 lanes read one column of the tile, which is one bank: as many turns as lines before"}),
    ROWS(padded, .text = "online softmax, a query a warp; K and V tiles through shared memory, rows padded",
         .rung = {.changes = "rows of head_dim + 1 floats in shared memory: no bank conflicts",
                  .predicted = 7.0,
                  .because = "2 turns a product of q and k instead of 33; the product with V stays"}),
    {.name = "flash",
     .text = "online softmax over tiles of keys; tensor cores in TF32 and 16-bit precisions",
     .rung = {.changes = "tiles of 64 to 128 queries on tensor cores, scores in registers, asynchronous copies",
              .predicted = 30.0,
              .because = "16 times the arithmetic rate, and each key is read for 128 queries instead of one"},
     .precisions = PRECISIONS | BW_MASK(TF32),
     .refuses = bw_flash_refuses,
     .prefers = bw_flash_prefers,
     .prepare = flash_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = flash_describe},
    {.name = "split",
     .text = "online softmax over tiles of keys; FP32 elements as sums of two TF32 ones on tensor cores",
     .rung = {.changes = "FP32 on tensor cores: an element is two TF32 numbers, three products for one",
              .predicted = 2.0,
              .because =
                  "mma.sync in TF32 reaches some 300 TFLOP/s: a third is 100, of which taking the elements apart, "
                  "softmax and waits leave two thirds; CUDA cores reach 32",
              .at = "fp32 batch=1 seq_len=2048 num_heads=32 num_kv_heads=8 head_dim=128 causal=1"},
     .precisions = BW_MASK(FP32),
     .refuses = bw_flash_refuses,
     .prepare = split_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = split_describe},
    {.name = "hopper",
     .text = "online softmax on Hopper's tensor cores (wgmma), fed by TMA; two or three warpgroups",
     .rung = {.changes = "wgmma and TMA: copies, products and softmax of different warpgroups at once",
              .predicted = 2.5,
              .because =
                  "wgmma reads K and V from shared memory, a producer keeps them coming, and one warpgroup's softmax "
                  "hides behind another's products"},
     .precisions = BW_MASK(FP16) | BW_MASK(BF16),
     .refuses = bw_hopper_refuses,
     .scratch_bytes = bw_hopper_scratch_bytes,
     .prepare = bw_hopper_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = bw_hopper_describe},
};

static const bw_variant decode_rows[] = {
    {.name = "simple",
     .text = "one block per K/V head, shared by its query heads",
     .rung = {.changes = "the baseline: one block per K/V head, whose query heads share what it reads"},
     .precisions = PRECISIONS,
     .refuses = bw_simple_refuses,
     .prepare = simple_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = simple_describe},
    {.name = "splitkv",
     .text = "keys divided among blocks; the last to start add the parts up",
     .rung = {.changes = "the keys of a K/V head divided among blocks, so that every multiprocessor reads",
              .predicted = 8.0,
              .because = "8 blocks leave 124 of 132 multiprocessors idle; one block reads twice its share, and adding "
                         "the parts up takes a microsecond"},
     .precisions = PRECISIONS,
     .refuses = bw_splitkv_refuses,
     .scratch_bytes = bw_splitkv_scratch_bytes,
     .extra_cost = bw_splitkv_extra_cost,
     .prepare = bw_splitkv_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = bw_splitkv_describe},
};

const bw_variant_table bw_cuda_attention_prefill = {
    prefill_rows, sizeof prefill_rows / sizeof prefill_rows[0],
    "fp16 batch=1 seq_len=2048 num_heads=32 num_kv_heads=8 head_dim=128 causal=1"};
const bw_variant_table bw_cuda_attention_decode = {
    decode_rows, sizeof decode_rows / sizeof decode_rows[0],
    "fp16 batch=1 kv_len=32768 num_heads=32 num_kv_heads=8 head_dim=128"};
