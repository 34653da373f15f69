// Shared memory of mla_decode's Hopper kernels and its barriers.
#pragma once

#include "cuda/kernels/attention/latent/walk.cuh"
#include "cuda/kernels/common/sm90.cuh"

namespace {

constexpr int consumers = 2, threads = (1 + consumers) * bw_warpgroup;
constexpr int tile_keys = bw_latent_tile_keys, tile_heads = bw_latent_tile_heads;
constexpr int panel_columns = 64;  // of 16-bit elements
constexpr int panel_bytes = tile_keys * bw_panel_bytes;
static_assert(tile_keys == tile_heads, "panels of Q and of a tile have the same size");
constexpr int panels = bw_latent_key_dim / panel_columns, value_panels = bw_latent_dim / panel_columns;
constexpr int half_panels = value_panels / 2, half_columns = bw_latent_dim / 2;
constexpr int tile_bytes = panels * panel_bytes;
// A tile's panels come, and are given back, in three groups: those of the output's left half and the last one, that has
// no values, then two and two of the right half.
constexpr int groups = 3;
BW_DEVICE constexpr int panels_of(int group) {
    return group == 0 ? half_panels + 1 : 2;
}
BW_DEVICE constexpr int panel_of(int group, int i) {
    return group > 0 ? half_panels + 2 * (group - 1) + i : i < half_panels ? i : value_panels;
}
constexpr int key_steps = tile_keys / 16;

constexpr int stages = 2, scales_bytes = tile_keys * (int)sizeof(float);

// Shared memory, behind Q and the tiles: the weights, what sums are multiplied by, tokens' scales, barriers.
constexpr int tiles_at = tile_bytes, weights_at = tiles_at + stages * tile_bytes;
constexpr int factors_at = weights_at + key_steps * bw_warpgroup * (int)sizeof(uint4);
constexpr int scales_at = factors_at + bw_warpgroup * (int)sizeof(float2);
constexpr int barriers_at = scales_at + stages * scales_bytes;
constexpr int barriers = 6 + stages * (panels + 2 * groups);
constexpr int stands_at = weights_at, gathered_bytes = tile_heads * bw_latent_dim * (int)sizeof(float);
constexpr int shared_bytes = bw_panels_spare + barriers_at + barriers * (int)sizeof(uint64_t);
static_assert(shared_bytes <= 232448, "what a block may have");

// Full ones wait for bytes or for the warps that write, empty ones for the warps that read; those of the weights for
// all threads that do.
struct latent_barriers {
    uint32_t base;
    __device__ __forceinline__ uint32_t query_full() const {
        return base;
    }
    __device__ __forceinline__ uint32_t query_empty() const {
        return base + 8;
    }
    __device__ __forceinline__ uint32_t weights_full() const {
        return base + 16;
    }
    __device__ __forceinline__ uint32_t weights_empty() const {
        return base + 24;
    }
    __device__ __forceinline__ uint32_t scores_done() const {
        return base + 32;
    }
    __device__ __forceinline__ uint32_t gathered() const {
        return base + 40;
    }
    __device__ __forceinline__ uint32_t full(int stage, int panel) const {
        return base + 48 + 8 * (stage * panels + panel);
    }
    __device__ __forceinline__ uint32_t empty(int stage, int group) const {
        return base + 48 + 8 * (stages * panels + stage * groups + group);
    }
    // Of FP8, before it is FP16.
    __device__ __forceinline__ uint32_t raw_full(int stage, int group) const {
        return empty(stage, group) + 8 * stages * groups;
    }
};

BW_DEVICE void load_queries(const CUtensorMap &q_map, int entry, uint32_t round, uint32_t shared,
                            const latent_barriers &at) {
    bw_barrier_wait(at.query_empty(), round & 1 ^ 1);
    bw_barrier_expect(at.query_full(), tile_bytes);
    for (int i = 0; i < panels; i++) {
        bw_tensor_load(shared + i * panel_bytes, q_map, at.query_full(), i * panel_columns,
                       (int)blockIdx.x * tile_heads, 0, entry);
    }
}

}  // namespace
