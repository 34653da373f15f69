/* attention on a GPU. The ladders:
 *   attention_prefill  unfused   scores and weights in memory: three kernels (unfused.cu)
 *                      flash     online softmax, nothing in memory but the operands (prefill/)
 *                      hopper    the same on Hopper's own instructions: copies, products and softmax of different
 *                                warpgroups at once (prefill/hopper_sm90.cu)
 *   attention_decode   simple    one block per K/V head: all query heads of its group share what it reads
 *                      splitkv   the keys divided among as many blocks as keep every multiprocessor reading; the last
 *                                blocks of a K/V head to start add the parts up (decode/direct.cu up to 8 query heads
 *                                per K/V head, the kernels of `simple` for the rest) */
#include "cuda/kernels/attention/attention.h"

enum { PRECISIONS = BW_MASK(FP32) | BW_MASK(FP16) | BW_MASK(BF16) };

BW_CUDA_PREPARE(unfused, bw_unfused_choose)
BW_CUDA_PREPARE(flash, bw_flash_choose)
BW_CUDA_PREPARE(hopper, bw_hopper_choose)
BW_CUDA_PREPARE(simple, bw_simple_choose)

static const bw_variant prefill_rows[] = {
    {.name = "unfused",
     .text = "scores and weights stored in memory: three kernels",
     .precisions = PRECISIONS,
     .refuses = bw_unfused_refuses,
     .scratch_bytes = bw_unfused_scratch_bytes,
     .extra_cost = bw_unfused_extra_cost,
     .prepare = unfused_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = unfused_describe},
    {.name = "hopper",
     .text = "online softmax on Hopper's tensor cores (wgmma), fed by TMA, in turns of two or three warpgroups",
     .precisions = BW_MASK(FP16) | BW_MASK(BF16),
     .refuses = bw_hopper_refuses,
     .prepare = hopper_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = hopper_describe},
    {.name = "flash",
     .text = "online softmax over tiles of keys; tensor cores in 16-bit precisions",
     .precisions = PRECISIONS,
     .refuses = bw_flash_refuses,
     .prepare = flash_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = flash_describe},
};

static const bw_variant decode_rows[] = {
    {.name = "simple",
     .text = "one block per K/V head, shared by its query heads",
     .precisions = PRECISIONS,
     .refuses = bw_simple_refuses,
     .prepare = simple_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = simple_describe},
    {.name = "splitkv",
     .text = "keys divided among blocks; the last to start add the parts up",
     .precisions = PRECISIONS,
     .refuses = bw_splitkv_refuses,
     .scratch_bytes = bw_splitkv_scratch_bytes,
     .extra_cost = bw_splitkv_extra_cost,
     .prepare = bw_splitkv_prepare,
     .release = bw_cuda_prepared_release,
     .launch = bw_cuda_prepared_launch,
     .describe = bw_splitkv_describe},
};

const bw_variant_table bw_cuda_attention_prefill = {prefill_rows, sizeof prefill_rows / sizeof prefill_rows[0]};
const bw_variant_table bw_cuda_attention_decode = {decode_rows, sizeof decode_rows / sizeof decode_rows[0]};
