// How mla_decode's Hopper kernel divides the caches among blocks, and what its kernels get of that.
#pragma once

#include <vector_types.h>

#include "cuda/launch/prepared.h"
#include "ops/families/attention.h"

constexpr int bw_latent_dim = 512, bw_latent_key_dim = 576;         // of the kernel's shapes
constexpr int bw_latent_tile_keys = 64, bw_latent_tile_heads = 64;  // that a block meets at once
constexpr int64_t bw_latent_most_batch = 65536;                     // whose tiles are counted one entry after the other

// The tiles of all entries stand in a row. A block takes `each` of them, from wherever they begin, or, where `aligned`,
// of one entry: the last of an entry's blocks then has fewer. Blocks of one part of the keys are as many as there are
// chunks of 64 query heads; `pair`: two of them are a cluster, and each tile is read once for both.
struct bw_latent_plan {
    int64_t chunks, places;  // places: blocks of a chunk
    int64_t each, slots;     // slots: parts of an entry that blocks may leave; 0: every entry is one block's
    bool aligned, pair, lags;
};

// What the kernels get of it.
struct bw_latent_work {
    const int *kv_lens;  // NULL: all are `keys`
    float *values;       // [slot][head][bw_latent_dim], in scratch
    float2 *stands;      // [slot][head]: maximum, sum of the weights
    int batch, heads, keys;
    int each, entry_tiles;  // of an entry without kv_lens
    bool aligned;
    float scale;  // log2(e) times the scores'
};

constexpr int bw_latent_plans_most = 16;

// latent/hopper_sm90.cu, latent/combine.cu
bw_status bw_latent_choose_main(bw_dtype dtype, const bw_latent_plan &plan, const bw_latent_work &work,
                                bool has_lengths, int64_t stands_at, bw_cuda_launch_spec *out);
bw_status bw_latent_choose_combine(bw_dtype dtype, const bw_latent_plan &plan, const bw_latent_work &work,
                                   bool has_lengths, int64_t stands_at, bw_cuda_launch_spec *out);
