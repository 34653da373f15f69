/* attention on a GPU. The ladders:
 *   attention_prefill  unfused   scores and weights in memory: three kernels (unfused.cu)
 *                      strided, shared, padded   online softmax, a query a warp: what memory lines, shared memory and
 *                                its banks are worth (prefill/ladder.cu)
 *                      flash     online softmax, nothing in memory but the operands (prefill/)
 *                      split     the same in FP32 on tensor cores, three products in TF32 for one (prefill/tf32.cu)
 *                      hopper    the same on Hopper's own instructions: copies, products and softmax of different
 *                                warpgroups at once (prefill/hopper_sm90.cu)
 *                      hopper_fp8   the same over a cache in E4M3, whose products take it as it is
 *                                (prefill/fp8_sm90.cu)
 *   attention_decode   simple, split, grouped   float arithmetic, a key a warp at a time: what dividing the keys and
 *                                sharing them are worth (decode/ladder.cu)
 *                      splitkv   tensor cores, every byte asked for early; the keys divided among as many blocks as
 *                                keep every multiprocessor reading; the last blocks of a K/V head to start add the
 *                                parts up (decode/direct/ up to 8 query heads per K/V head, and for caches of 8 bits;
 *                                else decode/staged_*, decode/fp32/, and decode/wide_sm90.cu on Hopper)
 *                      cluster   few keys on Hopper: parts meet in the shared memory of a cluster of blocks
 *                                (decode/cluster_sm90.cu)
 *   mla_decode         naive     a block a query head, every shape and cache (latent/naive.cu)
 *                      hopper    64 heads share each tile of the cache, which is K and V at once; wgmma and TMA
 *                                (latent/hopper_sm90.cu, latent/combine.cu) */
#include "cuda/kernels/attention/attention.h"

enum {
    PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16),
    WITH_NARROW = PRECISIONS | BW_MASK(FP8_E4M3) | BW_MASK(INT8) /* K and V become floats as they are read */
};

BW_CUDA_PREPARE(unfused, bw_unfused_choose)
BW_CUDA_PREPARE(strided, bw_prefill_strided_choose)
BW_CUDA_PREPARE(shared, bw_prefill_shared_choose)
BW_CUDA_PREPARE(padded, bw_prefill_padded_choose)
BW_CUDA_PREPARE(flash, bw_flash_choose)
BW_CUDA_PREPARE(prefill_split, bw_split_choose)
BW_CUDA_PREPARE(simple, bw_decode_simple_choose)
BW_CUDA_PREPARE(decode_split, bw_decode_split_choose)
BW_CUDA_PREPARE(grouped, bw_decode_grouped_choose)
BW_CUDA_PREPARE(cluster, bw_decode_cluster_choose)
BW_CUDA_PREPARE(naive, bw_latent_naive_choose)

/* The variants of ladder.cu, which refuse alike. */
#define ROWS(variant_name, takes, ...)                                                                      \
    {                                                                                                       \
        .name = #variant_name, .precisions = takes, .rounds_once = true, .refuses = bw_prefill_rows_refuse, \
        BW_CUDA_HOOKS(variant_name), __VA_ARGS__                                                            \
    }

static const bw_variant prefill_rows[] = {
    {.name = "unfused",
     .text = "scores and weights stored in memory: three kernels",
     .prediction = {.changes = "the baseline: scores and weights go to memory, three kernels; 16 bits on tensor cores"},
     .precisions = PRECISIONS,
     .refuses = bw_unfused_refuses,
     .scratch_bytes = bw_unfused_scratch_bytes,
     .extra_cost = bw_unfused_extra_cost,
     BW_CUDA_HOOKS(unfused)},
    ROWS(strided, PRECISIONS, .text = "online softmax, a query a warp; each lane walks its own key's row",
         .prediction = {.changes = "online softmax: nothing in memory but the operands; a lane walks its own key's row",
                        .predicted = 0.015,
                        .because =
                            "a load of K touches 32 lines, and nothing is shared between queries: that costs far more "
                            "than the traffic of the scores, and unfused has tensor cores"}),
    ROWS(shared, WITH_NARROW, .text = "online softmax, a query a warp; K and V tiles through shared memory",
         .prediction = {.changes = "tiles of K and V in shared memory, loaded line by line, once for 8 queries",
                        .predicted = 1.1,
                        .because =
                            "32 lanes read one column of the tile, which is one bank: as many turns as lines before"}),
    ROWS(padded, WITH_NARROW,
         .text = "online softmax, a query a warp; K and V tiles through shared memory, rows padded",
         .prediction = {.changes = "rows of head_dim + 1 floats in shared memory: no bank conflicts",
                        .predicted = 7.0,
                        .because = "2 turns a product of q and k instead of 33; the product with V stays"}),
    {.name = "flash",
     .text = "online softmax over tiles of keys; tensor cores in TF32 and 16-bit precisions",
     .prediction = {.changes = "tiles of 64 to 128 queries on tensor cores, scores in registers, asynchronous copies",
                    .predicted = 30.0,
                    .because = "16 times the arithmetic rate, and each key is read for 128 queries instead of one"},
     .precisions = PRECISIONS | BW_MASK(TF32),
     .refuses = bw_flash_refuses,
     .prefers = bw_flash_prefers,
     BW_CUDA_HOOKS(flash)},
    {.name = "split",
     .text = "online softmax over tiles of keys; FP32 elements as sums of two TF32 ones on tensor cores",
     .prediction =
         {.changes = "FP32 on tensor cores: an element is two TF32 numbers, three products for one",
          .predicted = 2.0,
          .because = "mma.sync in TF32 reaches some 300 TFLOP/s: a third is 100, of which taking the elements apart, "
                     "softmax and waits leave two thirds; CUDA cores reach 32",
          .at = "fp32 batch=1 seq_len=2048 num_heads=32 num_kv_heads=8 head_dim=128 causal=1"},
     .precisions = BW_MASK(FP32),
     .refuses = bw_flash_refuses,
     BW_CUDA_HOOKS(prefill_split)},
    {.name = "hopper",
     .text = "online softmax on Hopper's tensor cores (wgmma), fed by TMA; two or three warpgroups",
     .prediction =
         {.changes = "wgmma and TMA: copies, products and softmax of different warpgroups at once",
          .predicted = 2.5,
          .because =
              "wgmma reads K and V from shared memory, a producer keeps them coming, and one warpgroup's softmax "
              "hides behind another's products"},
     .precisions = BW_MASK(FP16) | BW_MASK(BF16),
     .refuses = bw_hopper_refuses,
     .scratch_bytes = bw_hopper_scratch_bytes,
     BW_CUDA_HOOKS(bw_hopper)},
    {.name = "hopper_fp8",
     .text = "online softmax on Hopper's tensor cores, queries, keys, weights and values in E4M3",
     .prediction =
         {.changes = "both products of E4M3 factors by wgmma; a kernel before it transposes V",
          .predicted = 100.0,
          .because = "wgmma in E4M3 has twice the rate of FP16, of which softmax leaves 1.5 times what hopper reaches: "
                     "some 900 TFLOP/s; CUDA cores reach 9",
          .at = "fp8_e4m3 batch=1 seq_len=4096 num_heads=32 num_kv_heads=8 head_dim=128 causal=1"},
     .precisions = BW_MASK(FP8_E4M3),
     .refuses = bw_prefill_fp8_refuses,
     .scratch_bytes = bw_prefill_fp8_scratch_bytes,
     .extra_cost = bw_prefill_fp8_extra_cost,
     BW_CUDA_HOOKS(bw_prefill_fp8)},
};

static const bw_variant decode_rows[] = {
    {.name = "simple",
     .text = "a block per query head, a key a warp at a time",
     .prediction = {.changes = "the baseline: a block per query head, whose warps take a key at a time"},
     .precisions = WITH_NARROW,
     .refuses = bw_decode_rows_refuse,
     BW_CUDA_HOOKS(simple)},
    {.name = "split",
     .text = "a query head's keys divided among blocks; a second kernel adds the parts up",
     .prediction = {.changes = "the keys of a query head divided among blocks, whose parts a second kernel adds up",
                    .predicted = 11.0,
                    .because =
                        "32 blocks whose warps wait for memory at every key become 384: 12 times as many bytes on "
                        "their way; adding up takes a few microseconds"},
     .precisions = WITH_NARROW,
     .refuses = bw_decode_rows_refuse,
     .scratch_bytes = bw_decode_split_scratch_bytes,
     .extra_cost = bw_decode_split_extra_cost,
     BW_CUDA_HOOKS(decode_split)},
    {.name = "grouped",
     .text = "the same, but K and V are read once for up to 8 query heads of a group",
     .prediction = {.changes = "a block takes all query heads of a K/V head: a key is read once for its group",
                    .predicted = 1.5,
                    .because =
                        "a quarter of the reads of L2, but a third of the warps, whose registers hold four times as "
                        "much; waiting for memory, not its bandwidth, is the limit"},
     .precisions = WITH_NARROW,
     .refuses = bw_decode_rows_refuse,
     .scratch_bytes = bw_decode_grouped_scratch_bytes,
     .extra_cost = bw_decode_grouped_extra_cost,
     BW_CUDA_HOOKS(grouped)},
    {.name = "splitkv",
     .text = "tensor cores, 16-byte loads asked for early; the last blocks to start add the parts up",
     .prediction = {.changes =
                        "16-byte loads, a step ahead, straight to tensor cores; one launch: the last blocks to start "
                        "add the parts up",
                    .predicted = 8.0,
                    .because =
                        "96 KB a multiprocessor on their way, where 33 KB keep memory busy, and the arithmetic of a "
                        "key is a few instructions of a warp"},
     .precisions = WITH_NARROW,
     .refuses = bw_splitkv_refuses,
     .prefers = bw_splitkv_prefers,
     .scratch_bytes = bw_splitkv_scratch_bytes,
     .largest_scratch_bytes = bw_splitkv_largest_scratch_bytes,
     .extra_cost = bw_splitkv_extra_cost,
     BW_CUDA_HOOKS(bw_splitkv)},
    {.name = "cluster",
     .text = "the blocks of a K/V head are a cluster: parts go to their shared memory, not to scratch",
     .prediction = {.changes =
                        "the blocks of a K/V head as a cluster of 8 or 16, which push their parts into each other's "
                        "shared memory",
                    .predicted = 1.0,
                    .because =
                        "a store that arrives by itself instead of a store, polls and stores that empty: 0.7 us, of "
                        "35 us here, but of 4 us with 4096 keys of two K/V heads"},
     .precisions = BW_MASK(FP16) | BW_MASK(BF16),
     .refuses = bw_decode_cluster_refuses,
     BW_CUDA_HOOKS(cluster)},
};

static const bw_variant latent_rows[] = {
    {.name = "naive",
     .text = "a block a query head, a token a warp at a time; every shape and cache",
     .prediction = {.changes = "the baseline: a block per query head, each of which reads the whole cache"},
     .precisions = BW_CACHE_PRECISIONS,
     .refuses = bw_latent_naive_refuses,
     BW_CUDA_HOOKS(naive)},
    {.name = "hopper",
     .text = "64 query heads share each tile of the cache, which is K and V at once; wgmma, fed by TMA",
     .prediction = {.changes = "tiles of 64 keys in shared memory for 64 query heads, both products by wgmma",
                    .predicted = 60.0,
                    .because =
                        "naive has some 10 TFLOP/s of CUDA cores and reads L2 128 times; 90 % of what tensor cores do "
                        "beside the reads of shared memory are 600 or more"},
     .precisions = BW_MASK(FP16) | BW_MASK(BF16) | BW_MASK(FP8_E4M3),
     .refuses = bw_latent_refuses,
     .scratch_bytes = bw_latent_scratch_bytes,
     .largest_scratch_bytes = bw_latent_largest_scratch_bytes,
     .extra_cost = bw_latent_extra_cost,
     BW_CUDA_HOOKS(bw_latent)},
};

const bw_variant_table bw_cuda_attention_prefill = {
    prefill_rows, sizeof prefill_rows / sizeof prefill_rows[0],
    "fp16 batch=1 seq_len=2048 num_heads=32 num_kv_heads=8 head_dim=128 causal=1"};
const bw_variant_table bw_cuda_attention_decode = {
    decode_rows, sizeof decode_rows / sizeof decode_rows[0],
    "fp16 batch=1 kv_len=32768 num_heads=32 num_kv_heads=8 head_dim=128"};
const bw_variant_table bw_cuda_mla_decode = {latent_rows, sizeof latent_rows / sizeof latent_rows[0],
                                             "fp16 batch=64 kv_len=4096 num_heads=128"};
