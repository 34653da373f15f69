// The producer of mla_decode's Hopper kernel for caches of FP8: a group of panels comes by TMA to where its FP16 will
// be, two panels' bytes in one of theirs. The warpgroup takes it into registers and writes FP16 over it.
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
    __device__ __forceinline__ int key() const {
        return (segment.tile + index) * tile_keys;
    }
};

// One thread asks for groups, in order, as soon as there is room.
struct raw_loads {
    tile_cursor ahead;
    uint32_t tiles;
    int group;
    bool any;

    __device__ __forceinline__ void try_next(const CUtensorMap &cache_map, const bw_latent_work &work, uint32_t shared,
                                             const latent_barriers &at) {
        const int stage = tiles % stages;
        if (!any || !bw_barrier_done(at.empty(stage, group), tiles / stages & 1 ^ 1)) return;
        const uint32_t barrier = at.raw_full(stage, group), tile = shared + tiles_at + stage * tile_bytes;
        bw_barrier_expect(barrier, (panels_of(group) + 1) / 2 * panel_bytes);
        for (int i = 0; i < panels_of(group); i += 2) {
            const int panel = panel_of(group, i);
            bw_tensor_load(tile + panel * panel_bytes, cache_map, barrier, panel * panel_columns, 0, ahead.key(),
                           ahead.segment.entry);
        }
        if (++group < groups) return;
        group = 0;
        tiles++;
        any = ahead.next(work);
    }
};

BW_DEVICE uint32_t pair_of(uint32_t two) {
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)two));
    return pair;
}

// A thread has 16 elements of two rows of each panel. Four lanes have a row, and the next four the one whose chunks lie
// in the banks that those leave, when they are read and when they are written.
BW_DEVICE int raw_row() {
    const int lane = (int)threadIdx.x % 32;
    return (int)threadIdx.x / 32 * 8 + (lane / 8 ^ (lane % 8 < 4 ? 0 : 5));
}

// Of tokens from `room` on there are zeros.
template <int group>
BW_DEVICE void widen(uint32_t tile, int room) {
    constexpr int count = panels_of(group);
    const int quarter = (int)threadIdx.x % 4, swap = raw_row() % 8;
    uint4 bits[count][2];
#pragma unroll
    for (int i = 0; i < count; i++) {
        const int chunk = panel_of(group, i) % 2 * 4 + quarter;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = raw_row() + 32 * half;
            const uint4 there = bw_spare_load(tile + panel_of(group, i / 2 * 2) * panel_bytes + row * bw_panel_bytes +
                                              ((chunk ^ swap) << 4));
            bits[i][half] = row < room ? there : make_uint4(0, 0, 0, 0);
        }
    }
    asm volatile("bar.sync 3, %0;" ::"n"(bw_warpgroup) : "memory");  // all have read it
#pragma unroll
    for (int i = 0; i < count; i++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t to = tile + panel_of(group, i) * panel_bytes + (raw_row() + 32 * half) * bw_panel_bytes;
            const uint4 two = bits[i][half];
            bw_spare_store(to + ((2 * quarter ^ swap) << 4),
                           make_uint4(pair_of(two.x), pair_of(two.x >> 16), pair_of(two.y), pair_of(two.y >> 16)));
            bw_spare_store(to + ((2 * quarter + 1 ^ swap) << 4),
                           make_uint4(pair_of(two.z), pair_of(two.z >> 16), pair_of(two.w), pair_of(two.w >> 16)));
        }
    }
}

// By the whole warpgroup.
BW_DEVICE void produce_narrow(const CUtensorMap &q_map, const CUtensorMap &cache_map, const bw_latent_work &work,
                              const bw_latent_walk &walk, uint32_t shared, const latent_barriers &at) {
    tile_cursor now = {walk, {}, 0};
    raw_loads loads = {now, 0, 0, false};
    loads.any = loads.ahead.next(work);
    uint32_t n = 0, round = 0;
    const auto wait_raw = [&](int group) {
        const uint32_t barrier = at.raw_full(n % stages, group), parity = n / stages & 1;
        if (threadIdx.x == 0) {
            while (!bw_barrier_done(barrier, parity)) loads.try_next(cache_map, work, shared, at);
        }
        __syncwarp();
        bw_barrier_wait(barrier, parity);
    };
    const auto publish = [&](int group) {
        bw_shared_publish();
        __syncwarp();
        const int lane = (int)threadIdx.x % 32;
        if (lane < panels_of(group)) bw_barrier_arrive(at.full(n % stages, panel_of(group, lane)));
        if (threadIdx.x == 0) loads.try_next(cache_map, work, shared, at);
        __syncwarp();
    };
    for (; now.next(work); n++) {
        const uint32_t tile = shared + tiles_at + n % stages * tile_bytes;
        const int room = now.segment.keys - now.key(), token = (int)threadIdx.x;
        float scale = 0.0f;
        if (token < min(tile_keys, room)) {
            scale = work.scales[(int64_t)now.segment.entry * work.keys + now.key() + token];
        }
        if (now.index == 0 && threadIdx.x == 0) load_queries(q_map, now.segment.entry, round++, shared, at);
        wait_raw(0);
        if (token < tile_keys) {
            const uint32_t to = shared + scales_at + n % stages * scales_bytes + token * (int)sizeof(float);
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(scale) : "memory");
        }
        widen<0>(tile, room);
        publish(0);
        wait_raw(1);
        widen<1>(tile, room);
        publish(1);
        wait_raw(2);
        widen<2>(tile, room);
        publish(2);
    }
}

}  // namespace
