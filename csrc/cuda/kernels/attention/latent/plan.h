// How mla_decode's Hopper kernel divides the caches among blocks, and what its kernels get of that.
#pragma once

#include <stddef.h>
#include <vector_types.h>

#include "cuda/launch/choose.cuh"
#include "ops/families/attention.h"

constexpr int bw_latent_dim = 512, bw_latent_key_dim = 576;         // of the kernel's shapes
constexpr int bw_latent_tile_keys = 64, bw_latent_tile_heads = 64;  // that a block meets at once
constexpr int64_t bw_latent_most_batch = 65536;                     // whose tiles are counted one entry after the other

// The tiles of all entries stand in a row. A block takes `each` of them, from wherever they begin, or, where `aligned`,
// of one entry: the last of an entry's blocks then has fewer. Blocks of one part of the keys are as many as there are
// chunks of 64 query heads.
struct bw_latent_plan {
    int64_t chunks, places;  // places: blocks of a chunk
    int64_t each, slots;     // slots: parts of an entry that blocks may leave; 0: every entry is one block's
    int cluster;             // blocks that add their parts of an entry up before they store them
    bool aligned, ragged;
};

// What the kernels get of it.
struct bw_latent_work {
    const float *scales;  // of tokens, where they are FP8
    const int *kv_lens;   // NULL: all are `keys`
    float *values;        // [slot][head][bw_latent_dim], in scratch
    float2 *stands;       // [slot][head]: maximum, sum of the weights
    int batch, heads, keys;
    int cluster, each, entry_tiles;  // of an entry without kv_lens
    bool aligned;
    float scale;  // log2(e) times the scores'
};

constexpr int bw_latent_plans_most = 16;

// latent/hopper_sm90.cu, latent/combine.cu
bw_status bw_latent_choose_main(const bw_precision *precision, const bw_latent_plan &plan, const bw_latent_work &work,
                                bw_cuda_launch_spec *out);
bw_status bw_latent_choose_combine(const bw_precision *precision, const bw_latent_plan &plan,
                                   const bw_latent_work &work, bw_cuda_launch_spec *out);

// What both of them find in the operands and in scratch.
static inline void bw_latent_place(bw_cuda_kernel *kernel, int argument, const bw_latent_plan &plan, int64_t heads) {
    const int64_t stands_at = plan.slots * heads * bw_latent_dim * (int64_t)sizeof(float);
    bw_choose_place(kernel, argument, offsetof(bw_latent_work, kv_lens),
                    bw_from_operand_if(plan.ragged, BW_ATTENTION_KV_LENS));
    if (plan.slots == 0) return;
    bw_choose_place(kernel, argument, offsetof(bw_latent_work, values), bw_from_scratch(0));
    bw_choose_place(kernel, argument, offsetof(bw_latent_work, stands), bw_from_scratch(stands_at));
}
