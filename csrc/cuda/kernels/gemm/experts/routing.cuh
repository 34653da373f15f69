// Which rows of which expert a block works on: found from the offsets, as routing is known on the device alone.
#pragma once

#include "cuda/kernels/common/sm80.cuh"

// Rows [first, first + count) of D, all of one expert: part number so-and-so. count 0: there are not so many.
struct bw_expert_part {
    int expert, first, count;
};

// An expert's rows are divided into parts of up to `most`; parts are counted over all experts. All lanes of a warp ask
// together; each looks at four experts at a time.
template <int most>
BW_DEVICE bw_expert_part bw_find_part(const int *offsets, int experts, int part, int lane) {
    constexpr int each = 4, at_once = 32 * each;
    for (int begin = 0; begin < experts; begin += at_once) {
        int offset[each + 1], before[each + 1];
#pragma unroll
        for (int i = 0; i <= each; i++) offset[i] = __ldg(offsets + min(begin + lane * each + i, experts));
        before[0] = 0;
#pragma unroll
        for (int i = 0; i < each; i++)
            before[i + 1] = before[i] + (max(offset[i + 1] - offset[i], 0) + most - 1) / most;
        int total = before[each];  // of this lane and those before it
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(bw_all_lanes, total, step);
            if (lane >= step) total += other;
        }
        const uint32_t behind = __ballot_sync(bw_all_lanes, total > part);
        if (behind != 0) {
            const int own = part - (total - before[each]);
            int which = 0, first = 0, end = 0;
#pragma unroll
            for (int i = 0; i < each; i++) {
                if (own >= before[i] && own < before[i + 1]) {
                    which = i, first = offset[i] + (own - before[i]) * most, end = offset[i + 1];
                }
            }
            const int finder = __ffs((int)behind) - 1;
            which = __shfl_sync(bw_all_lanes, which, finder);
            first = __shfl_sync(bw_all_lanes, first, finder);
            end = __shfl_sync(bw_all_lanes, end, finder);
            return {begin + finder * each + which, first, min(end - first, most)};
        }
        part -= __shfl_sync(bw_all_lanes, total, 31);
    }
    return {0, 0, 0};
}

// A tile of D: rows from row0 on, but before the expert's `end`; `column` of its B's tiles. expert < 0: none.
struct bw_expert_tile {
    int expert, row0, end, column;
};

// An expert has a tile for each part of its rows and each of `columns`. Those that share rows of B are neighbors.
template <int most>
BW_DEVICE bw_expert_tile bw_find_tile(const int *offsets, int experts, int columns, int tile, int lane) {
    const int part = tile / columns;
    const bw_expert_part found = bw_find_part<most>(offsets, experts, part, lane);
    if (found.count == 0) return {-1, 0, 0, 0};
    const int first = __ldg(offsets + found.expert), end = __ldg(offsets + found.expert + 1);
    const int parts = (end - first + most - 1) / most;
    const int own = tile - (part - (found.first - first) / most) * columns;
    return {found.expert, first + own % parts * most, end, own / parts};
}
