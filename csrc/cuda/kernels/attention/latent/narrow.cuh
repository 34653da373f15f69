// The producer of mla_decode's Hopper kernel for caches of FP8: its threads have half a tile in registers, as it lies in
// memory, while products read the last one that was there, and make FP16 of it. Tiles come to L2 beforehand.
#pragma once

#include "cuda/kernels/attention/latent/layout.cuh"

namespace {

constexpr int raw_row_bytes = bw_latent_key_dim;
constexpr int tiles_ahead = 2;  // in L2

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
    __device__ __forceinline__ int key() const {
        return (segment.tile + index) * tile_keys;
    }
    __device__ __forceinline__ int64_t row(const bw_latent_work &work) const {
        return (int64_t)segment.entry * work.keys + key();
    }
    __device__ __forceinline__ int room() const {
        return segment.keys - key();
    }
};

BW_DEVICE uint32_t pair_of(uint32_t two) {
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)two));
    return pair;
}

// A half of a tile: a thread has 16 elements of two rows of each panel.
template <bool right>
struct raw_half {
    static constexpr int count = right ? half_panels : half_panels + 1, rows = 2;
    uint4 bits[count][rows];

    static __device__ __forceinline__ int panel(int i) {
        return right ? half_panels + i : i < half_panels ? i : value_panels;
    }
    static __device__ __forceinline__ int row(int half) {
        return (int)threadIdx.x / 4 + half * (bw_warpgroup / 4);
    }
    // Of tokens from `room` on there are zeros.
    __device__ __forceinline__ void load(const unsigned char *tile, int room) {
#pragma unroll
        for (int half = 0; half < rows; half++) {
            const unsigned char *from = tile + row(half) * raw_row_bytes + (int)threadIdx.x % 4 * 16;
#pragma unroll
            for (int i = 0; i < count; i++) {
                bits[i][half] = make_uint4(0, 0, 0, 0);
                if (row(half) < room) bits[i][half] = __ldcs((const uint4 *)(from + panel(i) * panel_columns));
            }
        }
    }
    __device__ __forceinline__ void widen(uint32_t tile) const {
        const int quarter = (int)threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < rows; half++) {
            const uint32_t to = tile + row(half) * bw_panel_bytes, swap = row(half) % 8;
#pragma unroll
            for (int i = 0; i < count; i++) {
                const uint4 two = bits[i][half];
                bw_spare_store(to + panel(i) * panel_bytes + ((2 * quarter ^ swap) << 4),
                               make_uint4(pair_of(two.x), pair_of(two.x >> 16), pair_of(two.y), pair_of(two.y >> 16)));
                bw_spare_store(to + panel(i) * panel_bytes + ((2 * quarter + 1 ^ swap) << 4),
                               make_uint4(pair_of(two.z), pair_of(two.z >> 16), pair_of(two.w), pair_of(two.w >> 16)));
            }
        }
    }
};

// By the whole warpgroup.
BW_DEVICE void produce_narrow(const CUtensorMap &q_map, const bw_latent_work &work, const bw_latent_walk &walk,
                              uint32_t shared, const latent_barriers &at) {
    tile_cursor now = {walk, {}, 0}, ahead = now;
    const auto prefetch = [&] {
        if (threadIdx.x != 0 || !ahead.next(work)) return;
        const int bytes = min(tile_keys, ahead.room()) * raw_row_bytes;
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(work.rows + ahead.row(work) * raw_row_bytes),
                     "r"(bytes)
                     : "memory");
    };
    const auto arrive = [](uint32_t barrier) {
        bw_shared_publish();
        __syncwarp();
        if (threadIdx.x % 32 == 0) bw_barrier_arrive(barrier);
    };
    for (int i = 0; i < tiles_ahead; i++) prefetch();
    uint32_t round = 0;
    for (uint32_t n = 0; now.next(work); n++) {
        const int stage = n % stages;
        const unsigned char *from = work.rows + now.row(work) * raw_row_bytes;
        const uint32_t tile = shared + tiles_at + stage * tile_bytes, parity = n / stages & 1 ^ 1;
        raw_half<false> left;
        left.load(from, now.room());
        float scale = 0.0f;
        if ((int)threadIdx.x < min(tile_keys, now.room())) scale = work.scales[now.row(work) + threadIdx.x];
        prefetch();
        if (now.index == 0 && threadIdx.x == 0) load_queries(q_map, now.segment.entry, round++, shared, at);
        __syncwarp();
        bw_barrier_wait(at.empty(stage, false), parity);
        if (threadIdx.x < tile_keys) {
            const uint32_t to = shared + scales_at + stage * scales_bytes + 4 * threadIdx.x;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(scale) : "memory");
        }
        left.widen(tile);
        arrive(at.full(stage, false));
        raw_half<true> right;
        right.load(from, now.room());
        bw_barrier_wait(at.empty(stage, true), parity);
        right.widen(tile);
        arrive(at.full(stage, true));
    }
}

}  // namespace
