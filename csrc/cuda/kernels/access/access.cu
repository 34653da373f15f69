// Access patterns. A warp has 4096 bytes of units, a lane one access of each 32 that follow each other: an element, or
// up to 16 bytes of a granule. All of a round's addresses are known, then all of its loads issued, before one is used.
#include "cuda/kernels/access/access.h"

#include "base/types/input.h"
#include "cuda/kernels/common/sm80.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/access.h"

namespace {

constexpr int THREADS = 64, WARPS = THREADS / 32;

// Access n is piece n >> readers_shift: so many pieces (2^pieces_shift) make a unit.
struct pattern {
    int64_t accesses, step_bytes, offset_bytes;
    int readers_shift, pieces_shift;
};

template <typename Piece, bool random, bool shared>
struct walk {
    const pattern &of;
    const int32_t *index;
    __device__ int64_t piece(int64_t access) const {
        return shared ? access >> of.readers_shift : access;
    }
    __device__ int64_t unit(int64_t access) const {
        return random ? access >> of.pieces_shift : piece(access);
    }
    __device__ int64_t place(int64_t access) const {
        return random ? index[unit(access)] : unit(access);
    }
    __device__ int64_t byte(int64_t access, int64_t place) const {
        const int64_t within = random ? access & ((1 << of.pieces_shift) - 1) : 0;
        return of.offset_bytes + place * of.step_bytes + within * (int64_t)sizeof(Piece);
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

template <typename Piece>
constexpr int IN_FLIGHT = sizeof(Piece) == 16 ? 8 : 16;
template <typename Piece>
constexpr int SEGMENT_PIECES = BW_ACCESS_SEGMENT_BYTES / (int)sizeof(Piece);

template <typename Piece, bool random, bool shared>
__global__ void __launch_bounds__(THREADS, 16)
    access_read_kernel(const char *a, const int32_t *index, int32_t *checksum, pattern of) {
    constexpr int FLIGHT = IN_FLIGHT<Piece>;
    const walk<Piece, random, shared> walk = {of, index};
    const int lane = threadIdx.x & 31;
    const int64_t segment = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t each = (int64_t)SEGMENT_PIECES<Piece> << (shared ? of.readers_shift : 0);
    if (segment * each >= of.accesses) return;
    const int64_t end = min((segment + 1) * each, of.accesses);
    uint32_t sum = 0;
    for (int64_t first = segment * each + lane; first - lane < end; first += 32 * FLIGHT) {
        int64_t place[FLIGHT];
        Piece pieces[FLIGHT] = {};
#pragma unroll
        for (int u = 0; u < FLIGHT; u++) place[u] = first + 32 * u < end ? walk.place(first + 32 * u) : 0;
        __syncwarp();  // keeps the compiler from using early loads before it has issued the late ones
#pragma unroll
        for (int u = 0; u < FLIGHT; u++) {
            const int64_t access = first + 32 * u;
            if (access < end) pieces[u] = bw_load_once((const Piece *)(a + walk.byte(access, place[u])));
        }
        __syncwarp();
#pragma unroll
        for (int u = 0; u < FLIGHT; u++) sum += word_sum(pieces[u]);
    }
    sum = __reduce_add_sync(bw_all_lanes, sum);
    if (lane == 0) checksum[segment] = (int32_t)sum;
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

template <typename Piece, typename T, bool random>
__global__ void __launch_bounds__(THREADS, 16) access_write_kernel(char *b, const int32_t *index, pattern of) {
    constexpr int FLIGHT = IN_FLIGHT<Piece>;
    const walk<Piece, random, false> walk = {of, index};
    const int64_t start = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * SEGMENT_PIECES<Piece>;
    const int64_t end = min(start + SEGMENT_PIECES<Piece>, of.accesses);
    for (int64_t first = start + (threadIdx.x & 31); first < end; first += 32 * FLIGHT) {
        int64_t place[FLIGHT];
#pragma unroll
        for (int u = 0; u < FLIGHT; u++) place[u] = first + 32 * u < end ? walk.place(first + 32 * u) : 0;
#pragma unroll
        for (int u = 0; u < FLIGHT; u++) {
            const int64_t access = first + 32 * u;
            if (access < end)
                bw_store_once((Piece *)(b + walk.byte(access, place[u])), filled<Piece, T>(walk.unit(access)));
        }
    }
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
    pattern of = {(access.units * pieces) << access.readers_shift, access.step_bytes, access.offset_bytes,
                  access.readers_shift, 0};
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
