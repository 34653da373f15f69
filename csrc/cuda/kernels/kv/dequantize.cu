// kv_gather of caches of 8 bits as FP16: a number times its scale in FP32, rounded to the nearest.
//
// A block takes a stretch of one page, of K or of V: it asks the table once. A unit is 8 elements of a head, or one
// where heads are no multiple of 8; all of a thread's are on their way before it converts the first. (Other blocks,
// other numbers of units and hints to the caches change 1 % on an H200.)
#include <stddef.h>

#include "cuda/kernels/common/divide.cuh"
#include "cuda/kernels/common/element8.cuh"
#include "cuda/kernels/kv/kv.h"
#include "cuda/launch/choose.cuh"
#include "ops/families/kv.h"

namespace {

constexpr int threads = 256, unroll = 4;

struct dequantize_work {
    const void *k, *v;
    const float *k_scale, *v_scale;
    void *k_out, *v_out;
    const int32_t *table;
    bw_divider by_pages, by_stretches, by_head;  // of an entry, of a page; units
    int64_t page_units, entry_units, page_heads, stretch_units;
};

// Exactly as FP16, pairs as bw_widen has them. An infinity times 0 is what a NaN of E4M3 is.
BW_DEVICE void widen_exactly(uint32_t word, uint32_t (&out)[2], bw_e4m3 type) {
    uint32_t many[2];
    bw_move_e4m3(word, out);
    bw_widen(word, many, type);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t nothing = bw_pair_product(many[i], 0u);
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out[i]) : "r"(out[i]), "r"(0x5c005c00u), "r"(nothing));  // * 2^8
    }
}
BW_DEVICE void widen_exactly(uint32_t word, uint32_t (&out)[2], int8_t type) {
    bw_widen(word, out, type);
}

template <typename T>
BW_DEVICE uint4 dequantize(uint2 bits, float scale, T type) {
    const uint32_t word[2] = {bits.x, bits.y};
    uint32_t out[4];
#pragma unroll
    for (int w = 0; w < 2; w++) {
        uint32_t pair[2];
        widen_exactly(word[w], pair, type);
        const float2 even = bw_unpack_pair(pair[0], __half()), odd = bw_unpack_pair(pair[1], __half());
        out[2 * w] = bw_pack_pair(even.x * scale, odd.x * scale, __half());
        out[2 * w + 1] = bw_pack_pair(even.y * scale, odd.y * scale, __half());
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}
BW_DEVICE uint16_t dequantize(uint8_t bits, float scale, bw_e4m3) {
    return (uint16_t)bw_bits(__float2half_rn(bw_to_float(bw_e4m3{bits}) * scale));
}
BW_DEVICE uint16_t dequantize(uint8_t bits, float scale, int8_t) {
    return (uint16_t)bw_bits(__float2half_rn((float)(int8_t)bits * scale));
}

template <typename T, typename Unit>
__global__ void __launch_bounds__(threads) kv_gather_dequantize_kernel(const __grid_constant__ dequantize_work work) {
    using result = decltype(dequantize(Unit(), 1.0f, T()));
    const bool is_v = blockIdx.y != 0;
    const int64_t page = work.by_stretches.quotient(blockIdx.x), entry = work.by_pages.quotient(page);
    const int64_t before = (page - entry * work.by_pages.divisor) * work.page_units;
    const int64_t begin = (blockIdx.x - page * work.by_stretches.divisor) * work.stretch_units;
    const int64_t end = min(min(begin + work.stretch_units, work.page_units), work.entry_units - before);
    const int64_t physical = __ldg(work.table + page);
    const Unit *from = (const Unit *)(is_v ? work.v : work.k) + physical * work.page_units;
    const float *scales = (is_v ? work.v_scale : work.k_scale) + physical * work.page_heads;
    result *to = (result *)(is_v ? work.v_out : work.k_out) + entry * work.entry_units + before;
    for (int64_t first = begin + threadIdx.x; first < end; first += unroll * threads) {
        Unit bits[unroll] = {};
        float scale[unroll] = {};
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const int64_t at = first + u * threads, head = work.by_head.quotient(at);
            if (at < end) bits[u] = __ldg(from + at);
            if (at < end) scale[u] = __ldg(scales + head);
        }
#pragma unroll
        for (int u = 0; u < unroll; u++) {
            const int64_t at = first + u * threads;
            const result numbers = dequantize(bits[u], scale[u], T());
            if (at < end) to[at] = numbers;
        }
    }
}

template <typename T>
void choose(const dequantize_work &work, int64_t blocks, bool wide, bw_cuda_launch_spec *out) {
    void (*function)(dequantize_work) = kv_gather_dequantize_kernel<T, uint8_t>;
    if (wide) function = kv_gather_dequantize_kernel<T, uint2>;
    bw_cuda_kernel *kernel = bw_choose(out, function, dim3((unsigned)blocks, 2), dim3(threads), 0, work);
    bw_choose_place(kernel, 0, offsetof(dequantize_work, k), bw_from_operand(BW_GATHER_K_CACHE));
    bw_choose_place(kernel, 0, offsetof(dequantize_work, v), bw_from_operand(BW_GATHER_V_CACHE));
    bw_choose_place(kernel, 0, offsetof(dequantize_work, k_scale), bw_from_operand(BW_GATHER_K_CACHE_SCALE));
    bw_choose_place(kernel, 0, offsetof(dequantize_work, v_scale), bw_from_operand(BW_GATHER_V_CACHE_SCALE));
    bw_choose_place(kernel, 0, offsetof(dequantize_work, k_out), bw_from_operand(BW_GATHER_K));
    bw_choose_place(kernel, 0, offsetof(dequantize_work, v_out), bw_from_operand(BW_GATHER_V));
    bw_choose_place(kernel, 0, offsetof(dequantize_work, table), bw_from_operand(BW_GATHER_TABLE));
}

}  // namespace

bw_status bw_kv_dequantize_choose(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out) {
    const int64_t *value = dims->value, heads = value[BW_GATHER_NUM_KV_HEADS], head_dim = value[BW_GATHER_HEAD_DIM];
    const bool wide = head_dim % 8 == 0;
    const int64_t head_units = wide ? head_dim / 8 : head_dim, page = value[BW_GATHER_PAGE_SIZE];
    const int64_t pages = bw_ceil_div(value[BW_GATHER_KV_LEN], page), all_pages = value[BW_GATHER_BATCH] * pages;
    dequantize_work work = {};
    work.page_heads = page * heads;
    work.page_units = work.page_heads * head_units;
    work.entry_units = value[BW_GATHER_KV_LEN] * heads * head_units;
    // No more stretches than a grid holds.
    const int64_t held = bw_max64(1, INT32_MAX / all_pages), least = unroll * threads;
    const int64_t most_units = bw_min64(work.page_units, work.entry_units);
    work.stretch_units = bw_max64(least, bw_ceil_div(bw_ceil_div(most_units, held), least) * least);
    const int64_t stretches = bw_ceil_div(most_units, work.stretch_units);
    work.by_pages = bw_divider_make(pages);
    work.by_stretches = bw_divider_make(stretches);
    work.by_head = bw_divider_make(head_units);
    if (precision->cache == BW_INT8) {
        choose<int8_t>(work, all_pages * stretches, wide, out);
    } else {
        choose<bw_e4m3>(work, all_pages * stretches, wide, out);
    }
    return BW_OK;
}
