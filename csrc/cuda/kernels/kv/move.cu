// KV cache moves: append, gather, copy. Pure moves of bits, K and V in one launch with the same index arithmetic.
//
// The side that is contiguous as a whole (the new tokens of append, the output of gather) is walked in units of 16
// bytes, or of 8, 4 or 2 where rows are not multiples of that; a map gives the unit's place on the other side.
#include "cuda/kernels/kv/kv.h"

#include <stddef.h>

#include <type_traits>

#include "cuda/kernels/common/divide.cuh"
#include "cuda/kernels/common/sm80.cuh"
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

// ---- maps: from a unit's index on the contiguous side to its index on the other ----

struct same_map {
    __device__ int64_t operator()(int64_t i) const {
        return i;
    }
};

// Contiguous append. An entry's new tokens are one stretch in source and cache alike, and the cache holds `shift`
// units more per entry, in front of the stretch.
struct append_map {
    bw_divider entry;  // units of new tokens per batch entry
    int64_t shift;
    __device__ int64_t operator()(int64_t i) const {
        return i + (entry.quotient(i) + 1) * shift;
    }
};

// Paged append: token t's row goes to row slots[t].
struct slot_map {
    const int64_t *slots;
    bw_divider row;
    __device__ int64_t operator()(int64_t i) const {
        const int64_t token = row.quotient(i);
        return slots[token] * row.divisor + (i - token * row.divisor);
    }
};

// Gather: from the output (B, L, G, D) to the pages; a page is one stretch on both sides.
struct page_map {
    const int32_t *table;    // (B, pages per entry)
    bw_divider entry, page;  // units per batch entry and per page
    int64_t entry_pages;
    __device__ int64_t operator()(int64_t i) const {
        const int64_t b = entry.quotient(i);
        const int64_t within = i - b * entry.divisor;
        const int64_t p = page.quotient(within);
        return (int64_t)table[b * entry_pages + p] * page.divisor + (within - p * page.divisor);
    }
};

// ---- the move ----

template <typename Unit>
struct move {
    const Unit *k, *v;
    Unit *k_out, *v_out;
    int64_t units;
    int tail_halves;  // 16-bit pieces behind the last unit; only a plain copy has any
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
template <typename Unit, bool together, typename From, typename To>
__global__ void __launch_bounds__(together ? TOGETHER_THREADS : APART_THREADS)
    kv_move_kernel(move<Unit> m, From from, To to) {
    constexpr bool once = together || !std::is_same_v<From, same_map>;
    const Unit *k = together || blockIdx.y == 0 ? m.k : m.v;
    Unit *k_out = together || blockIdx.y == 0 ? m.k_out : m.v_out;
    const int64_t i = (int64_t)blockIdx.x * (together ? TOGETHER_THREADS : APART_THREADS) + threadIdx.x;
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
    if (blockIdx.x == 0 && threadIdx.x < m.tail_halves) {
        ((uint16_t *)(k_out + m.units))[threadIdx.x] = ((const uint16_t *)(k + m.units))[threadIdx.x];
        if (together) ((uint16_t *)(m.v_out + m.units))[threadIdx.x] = ((const uint16_t *)(m.v + m.units))[threadIdx.x];
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
};
constexpr int PAGE_TILE = 128, PAGE_UNROLL = 2;  // units of a block, and of a thread that has K or V alone
constexpr int64_t GRID_MAX = 65535;              // of y and z

template <typename Unit, bool together>
__global__ void __launch_bounds__(together ? PAGE_TILE : PAGE_TILE / PAGE_UNROLL)
    kv_gather_pages_kernel(move<Unit> m, page_tiles of) {
    constexpr int UNROLL = together ? 1 : PAGE_UNROLL, THREADS = PAGE_TILE / UNROLL;
    const unsigned entries = together ? gridDim.z : gridDim.z / 2;
    const bool is_v = !together && blockIdx.z >= entries;
    const unsigned b = is_v ? blockIdx.z - entries : blockIdx.z;
    const int64_t at = (int64_t)__ldg(&of.table[b * gridDim.y + blockIdx.y]) * of.page_bytes;
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
    __syncwarp();  // every load is issued before
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const bool in = before + u * THREADS < of.entry;
        if (in) bw_store_once(k_to + u * THREADS, k[u]);
        if (in && together) bw_store_once(v_to + u * THREADS, v[u]);
    }
}

enum { FROM = 1, TO = 2 };  // arguments of the kernel

struct move_operands {
    int k, v, k_out, v_out;
};

void place_operands(bw_cuda_kernel *kernel, const move_operands &operands) {
    using any = move<uint4>;
    bw_choose_place(kernel, 0, offsetof(any, k), bw_from_operand(operands.k));
    bw_choose_place(kernel, 0, offsetof(any, v), bw_from_operand(operands.v));
    bw_choose_place(kernel, 0, offsetof(any, k_out), bw_from_operand(operands.k_out));
    bw_choose_place(kernel, 0, offsetof(any, v_out), bw_from_operand(operands.v_out));
}

bool moves_together(const bw_device_facts *facts, int64_t units) {
    return units < bw_max64(1, facts->units) * THREADS_OF_A_UNIT;
}

template <typename Unit, typename From, typename To>
bw_cuda_kernel *choose_move(const bw_device_facts *facts, bw_cuda_launch_spec *out, int64_t bytes,
                            const move_operands &operands, From from, To to) {
    move<Unit> m = {};
    m.units = bytes / (int64_t)sizeof(Unit);
    m.tail_halves = (int)(bytes % (int64_t)sizeof(Unit) / 2);
    const bool together = moves_together(facts, m.units);
    const int threads = together ? TOGETHER_THREADS : APART_THREADS;
    void (*function)(move<Unit>, From, To) = kv_move_kernel<Unit, false, From, To>;
    if (together) function = kv_move_kernel<Unit, true, From, To>;
    const dim3 grid((unsigned)bw_max64(1, bw_ceil_div(m.units, threads)), together ? 1 : 2);
    bw_cuda_kernel *kernel = bw_choose(out, function, grid, dim3(threads), 0, m, from, to);
    place_operands(kernel, operands);
    return kernel;
}

// False where pages are no whole tiles, or more than a grid holds.
template <typename Unit>
bool choose_pages(const bw_device_facts *facts, bw_cuda_launch_spec *out, int64_t batch, int64_t entry_bytes,
                  int64_t page_bytes, const move_operands &operands) {
    const int64_t size = sizeof(Unit), pages = bw_ceil_div(entry_bytes, page_bytes);
    if (page_bytes % (PAGE_TILE * size) != 0 || page_bytes > INT32_MAX) return false;
    if (pages > GRID_MAX || 2 * batch > GRID_MAX) return false;
    const bool together = moves_together(facts, batch * entry_bytes / size);
    const int threads = together ? PAGE_TILE : PAGE_TILE / PAGE_UNROLL;
    const page_tiles of = {nullptr, entry_bytes / size, (int32_t)page_bytes};
    void (*function)(move<Unit>, page_tiles) = kv_gather_pages_kernel<Unit, false>;
    if (together) function = kv_gather_pages_kernel<Unit, true>;
    const unsigned tiles = (unsigned)(page_bytes / (PAGE_TILE * size));
    const dim3 grid(tiles, (unsigned)pages, (unsigned)(together ? batch : 2 * batch));
    bw_cuda_kernel *kernel = bw_choose(out, function, grid, dim3(threads), 0, move<Unit>{}, of);
    place_operands(kernel, operands);
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

bw_status bw_kv_append_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const int64_t row_bytes = bytes_of(value[BW_APPEND_NUM_KV_HEADS] * value[BW_APPEND_HEAD_DIM], precision);
    const int64_t entry_bytes = value[BW_APPEND_SEQ_LEN] * row_bytes;
    const int64_t bytes = value[BW_APPEND_BATCH] * entry_bytes;
    const move_operands operands = {BW_APPEND_K, BW_APPEND_V, BW_APPEND_K_CACHE, BW_APPEND_V_CACHE};
    if (value[BW_APPEND_PAGE_SIZE] > 0) {
        return for_unit(row_bytes, 0, [&](auto unit) {
            using Unit = decltype(unit);
            const slot_map map = {nullptr, bw_divider_make(row_bytes / (int64_t)sizeof(Unit))};
            bw_cuda_kernel *kernel = choose_move<Unit>(facts, out, bytes, operands, same_map(), map);
            bw_choose_place(kernel, TO, offsetof(slot_map, slots), bw_from_operand(BW_APPEND_SLOTS));
            return BW_OK;
        });
    }
    const int64_t shift_bytes = value[BW_APPEND_KV_LEN] * row_bytes;
    return for_unit(entry_bytes, shift_bytes, [&](auto unit) {
        using Unit = decltype(unit);
        const int64_t size = sizeof(Unit);
        const append_map map = {bw_divider_make(entry_bytes / size), shift_bytes / size};
        choose_move<Unit>(facts, out, bytes, operands, same_map(), map);
        return BW_OK;
    });
}

bw_status bw_kv_gather_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                              bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const int64_t row_bytes = bytes_of(value[BW_GATHER_NUM_KV_HEADS] * value[BW_GATHER_HEAD_DIM], precision);
    const int64_t entry_bytes = value[BW_GATHER_KV_LEN] * row_bytes;
    const int64_t page_bytes = value[BW_GATHER_PAGE_SIZE] * row_bytes;
    const move_operands operands = {BW_GATHER_K_CACHE, BW_GATHER_V_CACHE, BW_GATHER_K, BW_GATHER_V};
    return for_unit(entry_bytes, page_bytes, [&](auto unit) {
        using Unit = decltype(unit);
        if (choose_pages<Unit>(facts, out, value[BW_GATHER_BATCH], entry_bytes, page_bytes, operands)) return BW_OK;
        const int64_t size = sizeof(Unit);
        const page_map map = {nullptr, bw_divider_make(entry_bytes / size), bw_divider_make(page_bytes / size),
                              bw_ceil_div(value[BW_GATHER_KV_LEN], value[BW_GATHER_PAGE_SIZE])};
        bw_cuda_kernel *kernel =
            choose_move<Unit>(facts, out, value[BW_GATHER_BATCH] * entry_bytes, operands, map, same_map());
        bw_choose_place(kernel, FROM, offsetof(page_map, table), bw_from_operand(BW_GATHER_TABLE));
        return BW_OK;
    });
}

bw_status bw_kv_copy_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                            bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value;
    const int64_t elems =
        value[BW_COPY_BATCH] * value[BW_COPY_KV_LEN] * value[BW_COPY_NUM_KV_HEADS] * value[BW_COPY_HEAD_DIM];
    const move_operands operands = {BW_COPY_K, BW_COPY_V, BW_COPY_K_COPY, BW_COPY_V_COPY};
    choose_move<uint4>(facts, out, bytes_of(elems, precision), operands, same_map(), same_map());
    return BW_OK;
}

const char *bw_kv_append_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    return refuses_elems(bw_mul4(value[BW_APPEND_BATCH], value[BW_APPEND_SEQ_LEN], value[BW_APPEND_NUM_KV_HEADS],
                                 value[BW_APPEND_HEAD_DIM]));
}

const char *bw_kv_gather_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    return refuses_elems(bw_mul4(value[BW_GATHER_BATCH], value[BW_GATHER_KV_LEN], value[BW_GATHER_NUM_KV_HEADS],
                                 value[BW_GATHER_HEAD_DIM]));
}

const char *bw_kv_copy_refuses(const bw_dims *dims, const bw_precision *, const bw_device_facts *) {
    const int64_t *value = dims->value;
    return refuses_elems(
        bw_mul4(value[BW_COPY_BATCH], value[BW_COPY_KV_LEN], value[BW_COPY_NUM_KV_HEADS], value[BW_COPY_HEAD_DIM]));
}
