// KV cache moves: append, gather, copy. Pure moves of bits, K and V in one launch with the same index arithmetic.
//
// The side that is contiguous as a whole (the new tokens of append, the output of gather) is walked in units of 16
// bytes, or of 8, 4 or 2 where rows are not multiples of that; a map gives the unit's place on the other side.
#include "cuda/kernels/kv/kv.h"

#include <stddef.h>

#include <type_traits>

#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/kv/maps.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/kv.h"

namespace {

// A unit of K and the same of V a thread; where K alone fills every multiprocessor with threads, all of K comes before
// V, a unit a thread: streams of one tensor at a time are what memory likes best. Tokens that are then read in their
// order are faster where the L2 is not told to drop them first (H200, append in FP32: 99.7 -> 101.2 % of a stream).
// Pages that lie anywhere cost moves of more than the L2 holds 4 to 5 %. That is not the kernel's: permuted tiles of
// 32 KiB cost as much without any table, whatever the blocks, the units a thread and the cache policy, and by TMA.
constexpr int TOGETHER_THREADS = 128, APART_THREADS = 256;
constexpr int64_t THREADS_OF_A_UNIT = 2048;  // that a multiprocessor holds

// ---- the move ----

template <typename Unit>
struct move {
    const Unit *k, *v;
    Unit *k_out, *v_out;
    int64_t units;
    int tail_bytes;  // behind the last unit; only a plain copy has any
};

template <bool once, typename Unit>
__device__ Unit load_unit(const Unit *from) {
    return once ? bw_load_once(from) : __ldg(from);
}
template <bool once, typename Unit>
__device__ void store_unit(Unit *to, Unit value) {
    if (once) {
        bw_store_once(to, value);
    } else {
        *to = value;
    }
}

// `From` maps an index to the source's place, `To` to the target's. `together`: K and V; else blockIdx.y says which.
template <bool together, typename Unit, typename From, typename To>
__device__ void move_units(const move<Unit> &m, const From &from, const To &to, unsigned block) {
    constexpr bool once = together || !std::is_same_v<From, same_map>;
    const Unit *k = together || blockIdx.y == 0 ? m.k : m.v;
    Unit *k_out = together || blockIdx.y == 0 ? m.k_out : m.v_out;
    const int64_t i = (int64_t)block * (together ? TOGETHER_THREADS : APART_THREADS) + threadIdx.x;
    // Threads past the end work out the last unit's place, so that nothing branches before the loads, and move nothing.
    const bool in = i < m.units;
    const int64_t source = from(in ? i : m.units - 1);
    Unit first = {}, second = {};
    if (in) first = load_unit<once>(k + source);
    if (in && together) second = load_unit<once>(m.v + source);
    __syncwarp();  // keeps the compiler from doing anything else before it has issued every load
    const int64_t target = to(in ? i : m.units - 1);
    if (in) store_unit<once>(k_out + target, first);
    if (in && together) store_unit<once>(m.v_out + target, second);
    if (block == 0 && threadIdx.x < m.tail_bytes) {
        ((uint8_t *)(k_out + m.units))[threadIdx.x] = ((const uint8_t *)(k + m.units))[threadIdx.x];
        if (together) ((uint8_t *)(m.v_out + m.units))[threadIdx.x] = ((const uint8_t *)(m.v + m.units))[threadIdx.x];
    }
}

template <typename Unit, bool together, typename From, typename To>
__global__ void __launch_bounds__(together ? TOGETHER_THREADS : APART_THREADS)
    kv_move_kernel(move<Unit> m, From from, To to) {
    move_units<together>(m, from, to, blockIdx.x);
}

// The same, with scales, which the blocks behind the first `blocks` move.
template <typename Unit, typename Scales, bool together, typename From, typename To>
__global__ void __launch_bounds__(together ? TOGETHER_THREADS : APART_THREADS)
    kv_move_scaled_kernel(move<Unit> m, From from, To to, move<Scales> scales, From scales_from, To scales_to,
                          unsigned blocks) {
    if (blockIdx.x < blocks) {
        move_units<together>(m, from, to, blockIdx.x);
    } else {
        move_units<together>(scales, scales_from, scales_to, blockIdx.x - blocks);
    }
}

// Gather where pages are whole tiles of a block. blockIdx.x is the tile of a page, y the page of an entry, z the entry,
// so that the table is asked at once: the rest is worked out while it answers. Where K and V are not moved `together`,
// V's entries follow K's in z, and a thread has two units, so that as much waits for the table (98.5 -> 99.2 % of a
// stream). What is tiny pays for the table's trip to memory, 0.2 to 0.25 us, which no stream makes: 89 % at 2 MB.
struct page_tiles {
    const int32_t *table;  // (B, pages per entry)
    int64_t entry;         // units
    int32_t page_bytes;
    int32_t tile_scales;   // units of 16 bytes of a tile's scales, of each of K and V; fewer than its threads
    int64_t entry_scales;  // units
};
constexpr int PAGE_TILE = 128, PAGE_UNROLL = 2;  // units of a block, and of a thread that has K or V alone
constexpr int64_t GRID_MAX = 65535;              // of y and z

template <typename Unit, bool together, bool scaled>
__global__ void __launch_bounds__(together ? PAGE_TILE : PAGE_TILE / PAGE_UNROLL)
    kv_gather_pages_kernel(move<Unit> m, page_tiles of, move<uint4> scales) {
    constexpr int UNROLL = together ? 1 : PAGE_UNROLL, THREADS = PAGE_TILE / UNROLL;
    const unsigned entries = together ? gridDim.z : gridDim.z / 2;
    const bool is_v = !together && blockIdx.z >= entries;
    const unsigned b = is_v ? blockIdx.z - entries : blockIdx.z;
    const int64_t page = __ldg(&of.table[b * gridDim.y + blockIdx.y]), at = page * of.page_bytes;
    const int first = (int)blockIdx.x * PAGE_TILE + (int)threadIdx.x;
    const int64_t before = (int64_t)blockIdx.y * (of.page_bytes / (int)sizeof(Unit)) + first;
    const int64_t to = b * of.entry + before;
    const Unit *k_from = (const Unit *)((const char *)((is_v ? m.v : m.k) + first) + at);
    const Unit *v_from = (const Unit *)((const char *)(m.v + first) + at);
    Unit *k_to = (is_v ? m.v_out : m.k_out) + to, *v_to = m.v_out + to;
    Unit k[UNROLL] = {}, v[UNROLL] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const bool in = before + u * THREADS < of.entry;
        if (in) k[u] = bw_load_once(k_from + u * THREADS);
        if (in && together) v[u] = bw_load_once(v_from + u * THREADS);
    }
    uint4 scale[2] = {};
    bool has_scale = false;
    int64_t scale_to = 0;
    if constexpr (scaled) {
        const int64_t within = (int64_t)blockIdx.x * of.tile_scales + threadIdx.x, tiles = gridDim.x;
        scale_to = blockIdx.y * tiles * of.tile_scales + within;
        has_scale = (int)threadIdx.x < of.tile_scales && scale_to < of.entry_scales;
        const int64_t from = page * tiles * of.tile_scales + within;
        scale_to += b * of.entry_scales;
        if (has_scale) scale[0] = bw_load_once((is_v ? scales.v : scales.k) + from);
        if (has_scale && together) scale[1] = bw_load_once(scales.v + from);
    }
    __syncwarp();  // every load is issued before
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const bool in = before + u * THREADS < of.entry;
        if (in) bw_store_once(k_to + u * THREADS, k[u]);
        if (in && together) bw_store_once(v_to + u * THREADS, v[u]);
    }
    if (has_scale) bw_store_once((is_v ? scales.v_out : scales.k_out) + scale_to, scale[0]);
    if (has_scale && together) bw_store_once(scales.v_out + scale_to, scale[1]);
}

enum { FROM = 1, TO = 2, SCALES = 3, SCALES_FROM = 4, PAGES_SCALES = 2 };  // arguments of the kernels

// What a launch moves: of entries of `entry_bytes` K, V and, unless they have none, their scales.
struct move_operands {
    int k, v, k_out, v_out;
};
struct moved {
    const bw_device_facts *facts;
    bw_cuda_launch_spec *out;
    move_operands values, scales;
    bool scaled;
    int64_t batch, entry_bytes, entry_scale_bytes;
};

void place_operands(bw_cuda_kernel *kernel, int argument, const move_operands &operands) {
    using any = move<uint4>;
    bw_choose_place(kernel, argument, offsetof(any, k), bw_from_operand(operands.k));
    bw_choose_place(kernel, argument, offsetof(any, v), bw_from_operand(operands.v));
    bw_choose_place(kernel, argument, offsetof(any, k_out), bw_from_operand(operands.k_out));
    bw_choose_place(kernel, argument, offsetof(any, v_out), bw_from_operand(operands.v_out));
}

bool moves_together(const bw_device_facts *facts, int64_t units) {
    return units < bw_max64(1, facts->units) * THREADS_OF_A_UNIT;
}

template <typename Unit>
move<Unit> units_of(int64_t bytes) {
    move<Unit> m = {};
    m.units = bytes / (int64_t)sizeof(Unit);
    m.tail_bytes = (int)(bytes % (int64_t)sizeof(Unit));
    return m;
}

template <typename Unit, typename From, typename To>
bw_cuda_kernel *choose_move(const moved &of, From from, To to) {
    const move<Unit> m = units_of<Unit>(of.batch * of.entry_bytes);
    const bool together = moves_together(of.facts, m.units);
    const int threads = together ? TOGETHER_THREADS : APART_THREADS;
    void (*function)(move<Unit>, From, To) = kv_move_kernel<Unit, false, From, To>;
    if (together) function = kv_move_kernel<Unit, true, From, To>;
    const dim3 grid((unsigned)bw_max64(1, bw_ceil_div(m.units, threads)), together ? 1 : 2);
    bw_cuda_kernel *kernel = bw_choose(of.out, function, grid, dim3(threads), 0, m, from, to);
    place_operands(kernel, 0, of.values);
    return kernel;
}

template <typename Unit, typename Scales, typename From, typename To>
bw_cuda_kernel *choose_scaled_move(const moved &of, From from, To to, From scales_from, To scales_to) {
    const move<Unit> m = units_of<Unit>(of.batch * of.entry_bytes);
    const move<Scales> scales = units_of<Scales>(of.batch * of.entry_scale_bytes);
    const bool together = moves_together(of.facts, m.units);
    const int threads = together ? TOGETHER_THREADS : APART_THREADS;
    void (*function)(move<Unit>, From, To, move<Scales>, From, To, unsigned) =
        kv_move_scaled_kernel<Unit, Scales, false, From, To>;
    if (together) function = kv_move_scaled_kernel<Unit, Scales, true, From, To>;
    const int64_t blocks = bw_max64(1, bw_ceil_div(m.units, threads));
    const int64_t scale_blocks = bw_max64(1, bw_ceil_div(scales.units, threads));
    const dim3 grid((unsigned)(blocks + scale_blocks), together ? 1 : 2);
    bw_cuda_kernel *kernel = bw_choose(of.out, function, grid, dim3(threads), 0, m, from, to, scales, scales_from,
                                       scales_to, (unsigned)blocks);
    place_operands(kernel, 0, of.values);
    place_operands(kernel, SCALES, of.scales);
    return kernel;
}

// False where pages are no whole tiles, or more than a grid holds.
template <typename Unit, bool scaled>
bool choose_pages(const moved &moved, int64_t page_bytes, int64_t page_scale_bytes) {
    const int64_t size = sizeof(Unit), pages = bw_ceil_div(moved.entry_bytes, page_bytes), batch = moved.batch;
    if (page_bytes % (PAGE_TILE * size) != 0 || page_bytes > INT32_MAX) return false;
    if (pages > GRID_MAX || 2 * batch > GRID_MAX) return false;
    const int64_t tiles = page_bytes / (PAGE_TILE * size), scale_size = sizeof(uint4);
    const int64_t tile_scales = page_scale_bytes / (tiles * scale_size);
    if (tile_scales * tiles * scale_size != page_scale_bytes || moved.entry_scale_bytes % scale_size != 0) return false;
    if (tile_scales > PAGE_TILE / PAGE_UNROLL) return false;
    const bool together = moves_together(moved.facts, batch * moved.entry_bytes / size);
    const int threads = together ? PAGE_TILE : PAGE_TILE / PAGE_UNROLL;
    const page_tiles of = {nullptr, moved.entry_bytes / size, (int32_t)page_bytes, (int32_t)tile_scales,
                           moved.entry_scale_bytes / scale_size};
    void (*function)(move<Unit>, page_tiles, move<uint4>) = kv_gather_pages_kernel<Unit, false, scaled>;
    if (together) function = kv_gather_pages_kernel<Unit, true, scaled>;
    const dim3 grid((unsigned)tiles, (unsigned)pages, (unsigned)(together ? batch : 2 * batch));
    bw_cuda_kernel *kernel = bw_choose(moved.out, function, grid, dim3(threads), 0, move<Unit>{}, of, move<uint4>{});
    place_operands(kernel, 0, moved.values);
    if (scaled) place_operands(kernel, PAGES_SCALES, moved.scales);
    bw_choose_place(kernel, FROM, offsetof(page_tiles, table), bw_from_operand(BW_GATHER_TABLE));
    return true;
}

// Calls `body` with the largest unit that every stretch is a multiple of.
template <typename Body>
bw_status for_unit(int64_t stretch_bytes, int64_t other_stretch_bytes, Body body) {
    const int64_t both = stretch_bytes | other_stretch_bytes;
    if (both % 16 == 0) return body(uint4());
    if (both % 8 == 0) return body(uint2());
    if (both % 4 == 0) return body(uint32_t());
    return body(uint16_t());
}

int64_t bytes_of(int64_t elems, const bw_precision *precision) {
    return elems * bw_dtype_get(precision->cache)->block_bytes;
}

// As if a unit were one element: how wide it is, the rows decide.
const char *refuses_elems(bw_checked_int elems) {
    const bool fits = !elems.overflow && bw_cuda_grid_fits(bw_ceil_div(elems.value, APART_THREADS));
    return fits ? nullptr : "more elements than the blocks of a grid move (2^31 - 1 blocks of 256)";
}

}  // namespace

// ---- operations ----

// K and V, and the bytes of what their tokens have: with scales one of FP32 a head.
moved moved_of(const bw_precision *precision, const bw_device_facts *facts, bw_cuda_launch_spec *out, int64_t batch,
               int64_t tokens, int64_t heads, int64_t head_dim) {
    moved of = {facts, out, {}, {}, precision->cache_scales->type != BW_NONE, batch, 0, 0};
    of.entry_bytes = bytes_of(tokens * heads * head_dim, precision);
    of.entry_scale_bytes = of.scaled ? tokens * heads * (int64_t)sizeof(float) : 0;
    return of;
}

bw_status bw_kv_append_from(int k, const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            bw_cuda_launch_spec *out) {
    if (precision->cache_scales->type != BW_NONE) return bw_kv_quantize_choose(dims, precision, out);
    const int64_t *value = dims->value;
    const int64_t row_bytes = bytes_of(value[BW_APPEND_NUM_KV_HEADS] * value[BW_APPEND_HEAD_DIM], precision);
    moved of = moved_of(precision, facts, out, value[BW_APPEND_BATCH], value[BW_APPEND_SEQ_LEN],
                        value[BW_APPEND_NUM_KV_HEADS], value[BW_APPEND_HEAD_DIM]);
    of.values = {k, BW_APPEND_V, BW_APPEND_K_CACHE, BW_APPEND_V_CACHE};
    if (value[BW_APPEND_PAGE_SIZE] > 0) {
        return for_unit(row_bytes, 0, [&](auto unit) {
            using Unit = decltype(unit);
            const slot_map map = {nullptr, bw_divider_make(row_bytes / (int64_t)sizeof(Unit))};
            bw_cuda_kernel *kernel = choose_move<Unit>(of, same_map(), map);
            bw_choose_place(kernel, TO, offsetof(slot_map, slots), bw_from_operand(BW_APPEND_SLOTS));
            return BW_OK;
        });
    }
    const int64_t shift_bytes = value[BW_APPEND_KV_LEN] * row_bytes;
    return for_unit(of.entry_bytes, shift_bytes, [&](auto unit) {
        using Unit = decltype(unit);
        const int64_t size = sizeof(Unit);
        const append_map map = {bw_divider_make(of.entry_bytes / size), shift_bytes / size};
        choose_move<Unit>(of, same_map(), map);
        return BW_OK;
    });
}

bw_status bw_kv_append_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    return bw_kv_append_from(BW_APPEND_K, dims, precision, facts, out);
}

namespace {

template <typename Unit>
page_map map_pages(const bw_dims *dims, int64_t entry_bytes, int64_t page_bytes) {
    const int64_t size = sizeof(Unit), *value = dims->value;
    return {nullptr, bw_divider_make(entry_bytes / size), bw_divider_make(page_bytes / size),
            bw_ceil_div(value[BW_GATHER_KV_LEN], value[BW_GATHER_PAGE_SIZE])};
}

template <typename Unit, typename Scales>
bw_status choose_scaled_gather(const bw_dims *dims, const moved &of, int64_t page_bytes, int64_t page_scale_bytes) {
    bw_cuda_kernel *kernel =
        choose_scaled_move<Unit, Scales>(of, map_pages<Unit>(dims, of.entry_bytes, page_bytes), same_map(),
                                         map_pages<Scales>(dims, of.entry_scale_bytes, page_scale_bytes), same_map());
    bw_choose_place(kernel, FROM, offsetof(page_map, table), bw_from_operand(BW_GATHER_TABLE));
    bw_choose_place(kernel, SCALES_FROM, offsetof(page_map, table), bw_from_operand(BW_GATHER_TABLE));
    return BW_OK;
}

}  // namespace

bw_status bw_kv_gather_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value, heads = value[BW_GATHER_NUM_KV_HEADS], page = value[BW_GATHER_PAGE_SIZE];
    if (precision->cache_scales->type != BW_NONE && value[BW_GATHER_DEQUANTIZE]) {
        return bw_kv_dequantize_choose(dims, precision, out);
    }
    moved of = moved_of(precision, facts, out, value[BW_GATHER_BATCH], value[BW_GATHER_KV_LEN], heads,
                        value[BW_GATHER_HEAD_DIM]);
    of.values = {BW_GATHER_K_CACHE, BW_GATHER_V_CACHE, BW_GATHER_K, BW_GATHER_V};
    of.scales = {BW_GATHER_K_CACHE_SCALE, BW_GATHER_V_CACHE_SCALE, BW_GATHER_K_SCALE, BW_GATHER_V_SCALE};
    const int64_t page_bytes = bytes_of(page * heads * value[BW_GATHER_HEAD_DIM], precision);
    if (of.scaled) {
        const int64_t page_scales = page * heads * (int64_t)sizeof(float);
        const bool whole = (of.entry_bytes | page_bytes) % 16 == 0;
        if (whole && choose_pages<uint4, true>(of, page_bytes, page_scales)) return BW_OK;
        if (!whole) return choose_scaled_gather<uint8_t, uint32_t>(dims, of, page_bytes, page_scales);
        return (of.entry_scale_bytes | page_scales) % 16 == 0
                   ? choose_scaled_gather<uint4, uint4>(dims, of, page_bytes, page_scales)
                   : choose_scaled_gather<uint4, uint32_t>(dims, of, page_bytes, page_scales);
    }
    return for_unit(of.entry_bytes, page_bytes, [&](auto unit) {
        using Unit = decltype(unit);
        if (choose_pages<Unit, false>(of, page_bytes, 0)) return BW_OK;
        bw_cuda_kernel *kernel = choose_move<Unit>(of, map_pages<Unit>(dims, of.entry_bytes, page_bytes), same_map());
        bw_choose_place(kernel, FROM, offsetof(page_map, table), bw_from_operand(BW_GATHER_TABLE));
        return BW_OK;
    });
}

bw_status bw_kv_copy_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    moved of = moved_of(precision, facts, out, value[BW_COPY_BATCH], value[BW_COPY_KV_LEN], value[BW_COPY_NUM_KV_HEADS],
                        value[BW_COPY_HEAD_DIM]);
    of.values = {BW_COPY_K, BW_COPY_V, BW_COPY_K_COPY, BW_COPY_V_COPY};
    of.scales = {BW_COPY_K_SCALE, BW_COPY_V_SCALE, BW_COPY_K_COPY_SCALE, BW_COPY_V_COPY_SCALE};
    if (of.scaled) {
        choose_scaled_move<uint4, uint4>(of, same_map(), same_map(), same_map(), same_map());
    } else {
        choose_move<uint4>(of, same_map(), same_map());
    }
    return BW_OK;
}

const char *bw_kv_append_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const int64_t *value = dims->value;
    const int64_t dim = value[BW_APPEND_HEAD_DIM], heads = value[BW_APPEND_NUM_KV_HEADS];
    // Of quantized ones a head takes a warp at most.
    const int64_t each = precision->cache_scales->type == BW_NONE ? dim : bw_max64(dim, 32);
    return refuses_elems(bw_mul4(value[BW_APPEND_BATCH], value[BW_APPEND_SEQ_LEN], heads, each));
}

// The blocks of scales are as many as those of values at most, and one; a block that dequantizes has one page at most.
const char *bw_kv_gather_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    const int64_t *value = dims->value;
    const int64_t pages = bw_ceil_div(value[BW_GATHER_KV_LEN], value[BW_GATHER_PAGE_SIZE]);
    const bool dequantizes = value[BW_GATHER_DEQUANTIZE] && precision->cache_scales->type != BW_NONE;
    if (dequantizes && !bw_cuda_grid_fits(bw_mul(bw_num(value[BW_GATHER_BATCH]), bw_num(pages)).value)) {
        return "more pages than a grid holds (2^31 - 1)";
    }
    return refuses_elems(bw_mul4(value[BW_GATHER_BATCH], value[BW_GATHER_KV_LEN], value[BW_GATHER_NUM_KV_HEADS],
                                 value[BW_GATHER_HEAD_DIM]));
}

const char *bw_kv_copy_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    return refuses_elems(
        bw_mul4(value[BW_COPY_BATCH], value[BW_COPY_KV_LEN], value[BW_COPY_NUM_KV_HEADS], value[BW_COPY_HEAD_DIM]));
}
