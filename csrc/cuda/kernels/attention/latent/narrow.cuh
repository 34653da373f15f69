// The producer of mla_decode's Hopper kernel for caches of FP8: tiles come as they lie, two under way, and become FP16.
#pragma once

#include "cuda/kernels/attention/latent/layout.cuh"

namespace {

// A block's tiles, one after the other.
struct tile_cursor {
    bw_latent_walk walk;
    bw_latent_segment segment;
    int index;  // in the segment

    __device__ __forceinline__ bool next(const bw_latent_work &work) {
        if (++index < segment.tiles) return true;
        index = 0;
        return walk.next(work, (int)blockIdx.y, segment);
    }
    __device__ __forceinline__ int tile() const {
        return segment.tile + index;
    }
};

// Begins to copy a tile of FP8, and returns the scale of one of its tokens.
BW_DEVICE float start_raw(tile_cursor &ahead, const bw_latent_work &work, uint32_t raw, uint32_t barrier) {
    if (!ahead.next(work)) return 0.0f;
    const int key = ahead.tile() * tile_keys, rows = min(tile_keys, work.keys - key);
    const int64_t row = (int64_t)ahead.segment.entry * work.keys + key;
    if (threadIdx.x == 0) {
        bw_barrier_expect(barrier, rows * raw_row_bytes);
        bw_bulk_load(raw, work.rows + row * raw_row_bytes, rows * raw_row_bytes, barrier);
    }
    return (int)threadIdx.x < rows ? work.scales[row + threadIdx.x] : 0.0f;
}

BW_DEVICE uint32_t pair_of(uint32_t two) {
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)two));
    return pair;
}

// A panel of a tile in FP16; of tokens from `room` on there are zeros.
BW_DEVICE void widen_panel(uint32_t tile, uint32_t raw, int panel, int room) {
    const int quarter = (int)threadIdx.x % 4;
#pragma unroll 1
    for (int row = (int)threadIdx.x / 4; row < tile_keys; row += bw_warpgroup / 4) {
        uint4 from = bw_spare_load(raw + row * raw_row_bytes + panel * panel_columns + quarter * 16);
        if (row >= room) from = make_uint4(0, 0, 0, 0);
        const uint32_t to = tile + panel * panel_bytes + row * bw_panel_bytes;
        bw_spare_store(to + ((2 * quarter ^ row % 8) << 4),
                       make_uint4(pair_of(from.x), pair_of(from.x >> 16), pair_of(from.y), pair_of(from.y >> 16)));
        bw_spare_store(to + ((2 * quarter + 1 ^ row % 8) << 4),
                       make_uint4(pair_of(from.z), pair_of(from.z >> 16), pair_of(from.w), pair_of(from.w >> 16)));
    }
}

// By the whole warpgroup.
BW_DEVICE void produce_narrow(const CUtensorMap &q_map, const bw_latent_work &work, const bw_latent_walk &walk,
                              uint32_t shared, const latent_barriers &at) {
    tile_cursor now = {walk, {}, 0}, ahead = now;
    const uint32_t tile = shared + tiles_at, raw = shared + raw_at;
    const auto arrive = [](uint32_t barrier) {
        bw_shared_publish();
        __syncwarp();
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barrier);
    };
    float scale = start_raw(ahead, work, raw, at.raw_full(0));
    float next_scale = start_raw(ahead, work, raw + raw_bytes, at.raw_full(1));
    uint32_t round = 0;
    for (uint32_t n = 0; now.next(work); n++) {
        const uint32_t from = raw + n % 2 * raw_bytes;
        const int room = now.segment.keys - now.tile() * tile_keys;
        if (now.index == 0 && threadIdx.x == 0) load_queries(q_map, now.segment.entry, round++, shared, at);
        bw_barrier_wait(at.raw_full(n % 2), n / 2 & 1);
        bw_barrier_wait(at.empty(0, false), n & 1 ^ 1);
        if (threadIdx.x < tile_keys) {
            const float own = (int)threadIdx.x < room ? scale : 0.0f;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + scales_at + 4 * threadIdx.x), "f"(own) : "memory");
        }
        for (int p = 0; p < half_panels; p++) widen_panel(tile, from, p, room);
        widen_panel(tile, from, value_panels, room);
        arrive(at.full(0, false));
        bw_barrier_wait(at.empty(0, true), n & 1 ^ 1);
        for (int p = half_panels; p < value_panels; p++) widen_panel(tile, from, p, room);
        arrive(at.full(0, true));
        asm volatile("bar.sync 3, %0;" ::"n"(bw_warpgroup) : "memory");  // all have read the tile
        scale = next_scale;
        next_scale = start_raw(ahead, work, from, at.raw_full(n % 2));
    }
}

}  // namespace
