// Which parts of which entries a block takes, and which blocks an entry's parts are of.
#pragma once

#include "cuda/kernels/attention/latent/plan.h"
#include "cuda/kernels/common/sm80.cuh"

BW_DEVICE int bw_latent_keys(const bw_latent_work &work, int entry) {
    return work.kv_lens ? min(max(work.kv_lens[entry], 1), work.keys) : work.keys;
}

BW_DEVICE int bw_latent_tiles(int keys) {
    return (keys + bw_latent_tile_keys - 1) / bw_latent_tile_keys;
}

// Places in the row of tiles that an entry of so many has.
BW_DEVICE int bw_latent_extent(const bw_latent_work &work, int tiles) {
    return work.aligned ? (tiles + work.each - 1) / work.each * work.each : tiles;
}
BW_DEVICE int bw_latent_extent_of(const bw_latent_work &work, int entry) {
    return bw_latent_extent(work, bw_latent_tiles(bw_latent_keys(work, entry)));
}

// Tiles of one entry, one block's.
struct bw_latent_segment {
    int entry, tile, tiles, keys;  // the first of them, and the entry's keys
    int slot;                      // < 0: they are all that the entry has
};

// What the part of an entry that begins at `tile` is stored as: a block has one that continues an entry, and one that
// begins one; a cluster has one.
BW_DEVICE int bw_latent_slot(const bw_latent_work &work, int block, int tile) {
    return work.aligned ? block / work.cluster : 2 * block + (tile == 0);
}

struct bw_latent_walk {
    int entry, tile, left;

    // All lanes of a warp together.
    __device__ __forceinline__ bw_latent_walk(const bw_latent_work &work, int block) : left(work.each) {
        const int first = block * work.each;
        if (!work.kv_lens) {
            const int extent = bw_latent_extent(work, work.entry_tiles);
            entry = first / extent;
            tile = first - entry * extent;
            return;
        }
        const int lane = (int)threadIdx.x % 32;
        int before = 0;
        for (entry = 0; entry < work.batch; entry += 32) {
            const int own = entry + lane < work.batch ? bw_latent_extent_of(work, entry + lane) : 0;
            int end = before + own;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const int other = __shfl_up_sync(bw_all_lanes, end - before, offset);
                if (lane >= offset) end += other;
            }
            const unsigned beyond = __ballot_sync(bw_all_lanes, end > first);
            if (beyond) {
                const int at = __ffs((int)beyond) - 1;
                tile = first - __shfl_sync(bw_all_lanes, end - own, at);
                entry += at;
                return;
            }
            before = __shfl_sync(bw_all_lanes, end, 31);
        }
        tile = 0;
    }
    // False: there are no more.
    __device__ __forceinline__ bool next(const bw_latent_work &work, int block, bw_latent_segment &out) {
        if (left <= 0 || entry >= work.batch) return false;
        const int keys = bw_latent_keys(work, entry), tiles = bw_latent_tiles(keys);
        const int extent = bw_latent_extent(work, tiles), taken = min(left, extent - tile);
        const bool whole = work.cluster > 1 ? extent == work.each * work.cluster : tile == 0 && taken == extent;
        out = {entry, tile, min(taken, tiles - tile), keys, whole ? -1 : bw_latent_slot(work, block, tile)};
        left -= taken;
        tile = 0;
        entry++;
        return true;
    }
    // The same for a warp, whose lanes have the same: so that the compiler knows, too.
    __device__ __forceinline__ bool next_of_warp(const bw_latent_work &work, int block, bw_latent_segment &out) {
        const bool any = next(work, block, out);
        out.entry = __shfl_sync(bw_all_lanes, out.entry, 0);
        out.tile = __shfl_sync(bw_all_lanes, out.tile, 0);
        out.tiles = __shfl_sync(bw_all_lanes, out.tiles, 0);
        out.keys = __shfl_sync(bw_all_lanes, out.keys, 0);
        out.slot = __shfl_sync(bw_all_lanes, out.slot, 0);
        return __shfl_sync(bw_all_lanes, (int)any, 0) != 0;
    }
};
