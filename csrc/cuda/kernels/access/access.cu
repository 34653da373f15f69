// Access patterns. A warp has 4096 bytes of units, a lane one access of each 32 that follow each other: an element, or
// up to 16 bytes of a granule. A round's addresses are known, then its loads issued, before one of them is used.
// Numbers of accesses count from the segment's first one, so that 32 bits hold them: with 64 an H200 read 17 % less.
#include "cuda/kernels/access/access.h"

#include "base/types/input.h"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/memory/access.h"

namespace {

constexpr int THREADS = 64, WARPS = THREADS / 32;

struct pattern {
    int64_t pieces, offset_bytes;
    uint32_t step_bytes;  // from unit to unit
    int readers_shift;    // 2^readers_shift threads read each piece
    int pieces_shift;     // 2^pieces_shift pieces make a unit
};

template <typename Piece>
constexpr int IN_FLIGHT = sizeof(Piece) == 16 ? 8 : 16;
template <typename Piece>
constexpr int SEGMENT_PIECES = BW_ACCESS_SEGMENT_BYTES / (int)sizeof(Piece);

// Where a segment's accesses are: of strided units from `base` on, of random ones as `index` says.
template <typename Piece, bool random, bool shared>
struct segment_walk {
    char *base;
    const int32_t *index;
    uint32_t step_bytes, within;
    int readers_shift, pieces_shift;
    int64_t first;      // piece
    uint32_t accesses;  // 0: there is no such segment

    __device__ segment_walk(char *array, const int32_t *all, const pattern &of)
        : step_bytes(of.step_bytes),
          within((1u << of.pieces_shift) - 1),
          readers_shift(of.readers_shift),
          pieces_shift(of.pieces_shift) {
        const int64_t segment = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
        first = segment * SEGMENT_PIECES<Piece>;
        const int64_t pieces = max((int64_t)0, min(of.pieces - first, (int64_t)SEGMENT_PIECES<Piece>));
        accesses = (uint32_t)pieces << (shared ? readers_shift : 0);
        base = random ? array : array + of.offset_bytes + first * step_bytes;
        index = random ? all + (first >> pieces_shift) : nullptr;
    }
    __device__ uint32_t piece(uint32_t access) const {
        return shared ? access >> readers_shift : access;
    }
    __device__ uint32_t place(uint32_t access) const {
        return random ? (uint32_t)index[access >> pieces_shift] : piece(access);
    }
    __device__ Piece *address(uint32_t access, uint32_t place) const {
        char *unit = base + (uint64_t)place * step_bytes;
        return (Piece *)(random ? unit + (access & within) * (uint32_t)sizeof(Piece) : unit);
    }
    __device__ int64_t unit(uint32_t access) const {
        return random ? (first + access) >> pieces_shift : first + access;
    }
};

__device__ uint32_t word_sum(uint4 v) {
    return v.x + v.y + v.z + v.w;
}
__device__ uint32_t word_sum(uint2 v) {
    return v.x + v.y;
}
__device__ uint32_t word_sum(uint32_t v) {
    return v;
}
__device__ uint32_t word_sum(uint16_t v) {
    return v;
}

// The accesses `from` + 32 u of a lane; `whole`: all of them are there.
template <bool whole, typename Piece, typename Walk>
__device__ uint32_t round_sum(const Walk &walk, uint32_t from) {
    constexpr int FLIGHT = IN_FLIGHT<Piece>;
    uint32_t places[FLIGHT], sum = 0;
    Piece pieces[FLIGHT] = {};
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) places[u] = whole || from + 32 * u < walk.accesses ? walk.place(from + 32 * u) : 0;
    __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        const uint32_t access = from + 32 * u;
        if (whole || access < walk.accesses) pieces[u] = bw_load_once(walk.address(access, places[u]));
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) sum += word_sum(pieces[u]);
    return sum;
}

template <typename Piece, bool random, bool shared>
__global__ void __launch_bounds__(THREADS, 16)
    access_read_kernel(char *a, const int32_t *index, int32_t *checksum, pattern of) {
    constexpr uint32_t ROUND = 32 * IN_FLIGHT<Piece>;
    const segment_walk<Piece, random, shared> walk(a, index, of);
    const uint32_t lane = threadIdx.x & 31;
    if (!walk.accesses) return;
    uint32_t sum = 0, round = 0;
    for (; round + ROUND <= walk.accesses; round += ROUND) sum += round_sum<true, Piece>(walk, round + lane);
    if (round < walk.accesses) sum += round_sum<false, Piece>(walk, round + lane);
    sum = __reduce_add_sync(bw_all_lanes, sum);
    if (lane == 0) checksum[walk.first / SEGMENT_PIECES<Piece>] = (int32_t)sum;
}

// A piece whose elements all have unit i's value.
template <typename Piece, typename T>
__device__ Piece filled(int64_t unit) {
    T elements[sizeof(Piece) / sizeof(T)];
    bw_from_float(bw_pattern_value((uint64_t)unit), &elements[0]);
#pragma unroll
    for (int e = 1; e < (int)(sizeof(Piece) / sizeof(T)); e++) elements[e] = elements[0];
    Piece piece;
    memcpy(&piece, elements, sizeof piece);
    return piece;
}

template <bool whole, typename Piece, typename T, typename Walk>
__device__ void write_round(const Walk &walk, uint32_t from) {
    constexpr int FLIGHT = IN_FLIGHT<Piece>;
    uint32_t places[FLIGHT];
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) places[u] = whole || from + 32 * u < walk.accesses ? walk.place(from + 32 * u) : 0;
#pragma unroll
    for (int u = 0; u < FLIGHT; u++) {
        const uint32_t access = from + 32 * u;
        if (whole || access < walk.accesses) {
            bw_store_once(walk.address(access, places[u]), filled<Piece, T>(walk.unit(access)));
        }
    }
}

template <typename Piece, typename T, bool random>
__global__ void __launch_bounds__(THREADS, 16) access_write_kernel(char *b, const int32_t *index, pattern of) {
    constexpr uint32_t ROUND = 32 * IN_FLIGHT<Piece>;
    const segment_walk<Piece, random, false> walk(b, index, of);
    const uint32_t lane = threadIdx.x & 31;
    uint32_t round = 0;
    for (; round + ROUND <= walk.accesses; round += ROUND) write_round<true, Piece, T>(walk, round + lane);
    if (round < walk.accesses) write_round<false, Piece, T>(walk, round + lane);
}

int64_t blocks_of(const bw_access &access) {
    return bw_ceil_div(bw_ceil_div(access.units * access.unit_bytes, BW_ACCESS_SEGMENT_BYTES), WARPS);
}

const char *refuses(const bw_access &access) {
    return bw_cuda_grid_fits(blocks_of(access)) ? nullptr : "more than the blocks of a grid read (2^31 - 1 blocks)";
}

template <typename Piece>
pattern pattern_of(const bw_access &access) {
    const int64_t pieces = access.unit_bytes / (int64_t)sizeof(Piece);
    pattern of = {access.units * pieces, access.offset_bytes, (uint32_t)access.step_bytes, access.readers_shift, 0};
    while ((int64_t)1 << of.pieces_shift < pieces) of.pieces_shift++;
    return of;
}

template <typename Piece, bool random, bool shared>
bw_status choose_read(const bw_access &access, bw_cuda_launch_spec *out) {
    bw_choose(out, access_read_kernel<Piece, random, shared>, dim3((unsigned)blocks_of(access)), dim3(THREADS), 0,
              bw_from_operand(BW_ACCESS_ARRAY), bw_from_operand_if(random, BW_ACCESS_INDEX),
              bw_from_operand(BW_ACCESS_CHECKSUM), pattern_of<Piece>(access));
    return BW_OK;
}

template <typename Piece, typename T, bool random>
bw_status choose_write(const bw_access &access, bw_cuda_launch_spec *out) {
    bw_choose(out, access_write_kernel<Piece, T, random>, dim3((unsigned)blocks_of(access)), dim3(THREADS), 0,
              bw_from_operand(BW_ACCESS_ARRAY), bw_from_operand_if(random, BW_ACCESS_INDEX), pattern_of<Piece>(access));
    return BW_OK;
}

// The widest piece of a granule.
template <typename Body>
bw_status by_piece(int64_t granule_bytes, Body body) {
    if (granule_bytes >= 16) return body(uint4());
    return granule_bytes == 8 ? body(uint2()) : body(uint32_t());
}

}  // namespace

bw_status bw_strided_read_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    const bw_access access = bw_access_shared(dims, precision);
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using Piece = std::conditional_t<sizeof(typename decltype(tag)::type) == 4, uint32_t, uint16_t>;
        return access.readers_shift ? choose_read<Piece, false, true>(access, out)
                                    : choose_read<Piece, false, false>(access, out);
    });
}

bw_status bw_strided_write_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                  bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using Piece = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
        return choose_write<Piece, T, false>(bw_access_strided(dims, precision), out);
    });
}

bw_status bw_random_read_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    const bw_access access = bw_access_random(dims, precision);
    return by_piece(access.unit_bytes,
                    [&](auto piece) { return choose_read<decltype(piece), true, false>(access, out); });
}

bw_status bw_random_write_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                 bw_cuda_launch_spec *out) {
    const bw_access access = bw_access_random(dims, precision);
    return by_piece(access.unit_bytes,
                    [&](auto piece) { return choose_write<decltype(piece), float, true>(access, out); });
}

const char *bw_strided_read_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return refuses(bw_access_shared(dims, precision));
}
const char *bw_strided_write_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return refuses(bw_access_strided(dims, precision));
}
const char *bw_random_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return refuses(bw_access_random(dims, precision));
}
