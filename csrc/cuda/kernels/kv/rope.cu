// rope and rope_append: 16 bytes of a head's first half and of its second, turned by their angles, for each thread.
//
// All of q comes first, then k, then v: scattered pages suffer least from streams of one tensor at a time. Angles come
// from memory once for q's heads and once for k's, else from the L1. An H200 reaches 98 to 99 % of a copy, 97 % where
// pages of 32 KiB are scattered, 95 % where a token has but 16 heads of 64, whose angles are 6 % of its bytes. With
// loads that the L2 drops first it was 95 to 98 %; with the heads of a token's q, k and v in turn 98 to 100 %, with
// such pages 95 to 96 %.
#include <stddef.h>

#include <type_traits>

#include "cuda/kernels/common/sm80.cuh"
#include "cuda/kernels/kv/kv.h"
#include "cuda/kernels/kv/maps.cuh"
#include "cuda/launch/choose.cuh"
#include "ops/families/kv.h"

namespace {

constexpr int threads = 64;

struct rope_work {
    const void *q, *k, *v;
    void *q_out, *k_out, *v_out;
    const float *angles;
    int64_t q_items, k_items, items;         // those of v are behind those of q and k
    bw_divider head_items, heads, kv_heads;  // items of a head, heads of a token
    bw_divider sequence;                     // tokens
    int64_t before, half;                    // token t's position: before + t % sequence
};

template <int elems>
BW_DEVICE void load_angles(const float *from, float (&out)[elems]) {
    if constexpr (elems == 1) {
        out[0] = __ldg(from);
    } else {
#pragma unroll
        for (int i = 0; i < elems; i += 4) {
            const float4 some = __ldg((const float4 *)(from + i));
            out[i] = some.x, out[i + 1] = some.y, out[i + 2] = some.z, out[i + 3] = some.w;
        }
    }
}

template <typename T>
BW_DEVICE void unpack(T raw, float (&out)[1], T) {
    out[0] = bw_to_float(raw);
}
template <typename T, int elems>
BW_DEVICE void unpack(uint4 raw, float (&out)[elems], T type) {
    bw_unpack(raw, out, type);
}
template <typename T, int elems, typename Raw>
BW_DEVICE void store(Raw *to, const float (&x)[elems]) {
    Raw raw;
    if constexpr (elems == 1) {
        bw_from_float(x[0], &raw);
    } else {
        raw = bw_pack(x, T());
    }
    bw_store_once(to, raw);
}

// An item is `elems` elements of a head's first half and those of its second half that turn with them. `To` maps tokens
// to rows of k_out and v_out.
template <typename T, int elems, typename To>
__global__ void __launch_bounds__(threads) kv_rope_kernel(rope_work work, To map) {
    using Raw = std::conditional_t<elems == 1, T, uint4>;
    int64_t i = (int64_t)blockIdx.x * threads + threadIdx.x;
    if (i >= work.items) return;
    const bool is_q = i < work.q_items, is_v = i >= work.q_items + work.k_items;
    if (!is_q) i -= work.q_items;
    if (is_v) i -= work.k_items;
    const int64_t head = work.head_items.quotient(i), column = (i - head * work.head_items.divisor) * elems;
    const T *from = (const T *)(is_q ? work.q : is_v ? work.v : work.k) + head * (2 * work.half) + column;
    const Raw low = __ldg((const Raw *)from), high = __ldg((const Raw *)(from + work.half));
    const bw_divider &heads = is_q ? work.heads : work.kv_heads;
    const int64_t token = heads.quotient(head), row = is_q ? token : map(token);
    T *to = (T *)(is_q ? work.q_out : is_v ? work.v_out : work.k_out);
    to += (head + (row - token) * heads.divisor) * (2 * work.half) + column;
    if (is_v) {
        bw_store_once((Raw *)to, low);
        bw_store_once((Raw *)(to + work.half), high);
        return;
    }
    const int64_t position = work.before + token - work.sequence.quotient(token) * work.sequence.divisor;
    float x[elems], y[elems], cosine[elems], sine[elems], turned[elems];
    load_angles(work.angles + position * (2 * work.half) + column, cosine);
    load_angles(work.angles + position * (2 * work.half) + work.half + column, sine);
    unpack(low, x, T());
    unpack(high, y, T());
#pragma unroll
    for (int e = 0; e < elems; e++) turned[e] = x[e] * cosine[e] - y[e] * sine[e];
    store<T>((Raw *)to, turned);
#pragma unroll
    for (int e = 0; e < elems; e++) turned[e] = y[e] * cosine[e] + x[e] * sine[e];
    store<T>((Raw *)(to + work.half), turned);
}

struct rope_shape {
    int64_t tokens, sequence, before, heads, kv_heads, head_dim;
    bool moves_v;
};

// Operands, BW_CUDA_SCRATCH or bw_nothing.
struct rope_operands {
    int q, k, v, q_out, k_out, v_out, angles;
};

int64_t elems_of(const rope_shape &shape, const bw_precision *precision) {
    const int64_t most = 16 / bw_dtype_get(precision->result)->block_bytes;
    return shape.head_dim / 2 % most == 0 ? most : 1;
}

bw_checked_int items_of(const rope_shape &shape, const bw_precision *precision) {
    const int64_t heads = shape.heads + (shape.moves_v ? 2 : 1) * shape.kv_heads;
    return bw_mul3(shape.tokens, heads, shape.head_dim / 2 / elems_of(shape, precision));
}

template <typename T, int elems, typename To>
bw_cuda_kernel *choose(const rope_shape &shape, const rope_operands &of, To to, bw_cuda_launch_spec *out,
                       int64_t items) {
    rope_work work = {};
    work.half = shape.head_dim / 2;
    work.q_items = shape.tokens * shape.heads * (work.half / elems);
    work.k_items = shape.tokens * shape.kv_heads * (work.half / elems);
    work.items = items;
    work.head_items = bw_divider_make(work.half / elems);
    work.heads = bw_divider_make(shape.heads);
    work.kv_heads = bw_divider_make(shape.kv_heads);
    work.sequence = bw_divider_make(shape.sequence);
    work.before = shape.before;
    const dim3 grid((unsigned)bw_ceil_div(items, threads));
    bw_cuda_kernel *kernel = bw_choose(out, kv_rope_kernel<T, elems, To>, grid, dim3(threads), 0, work, to);
    bw_choose_place(kernel, 0, offsetof(rope_work, q), bw_from_operand(of.q));
    bw_choose_place(kernel, 0, offsetof(rope_work, k), bw_from_operand(of.k));
    bw_choose_place(kernel, 0, offsetof(rope_work, v), bw_from_operand(of.v));
    bw_choose_place(kernel, 0, offsetof(rope_work, q_out), bw_from_operand(of.q_out));
    bw_choose_place(kernel, 0, offsetof(rope_work, k_out), bw_from_operand(of.k_out));
    bw_choose_place(kernel, 0, offsetof(rope_work, v_out), bw_from_operand(of.v_out));
    bw_choose_place(kernel, 0, offsetof(rope_work, angles), bw_from_operand(of.angles));
    return kernel;
}

template <typename To>
bw_status choose_rope(const rope_shape &shape, const bw_precision *precision, const rope_operands &of, To to,
                      bw_cuda_launch_spec *out) {
    const int64_t items = items_of(shape, precision).value;
    return bw_cuda_by_type(precision->result, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int most = 16 / (int)sizeof(T);
        bw_cuda_kernel *kernel = elems_of(shape, precision) == most ? choose<T, most>(shape, of, to, out, items)
                                                                    : choose<T, 1>(shape, of, to, out, items);
        if constexpr (std::is_same_v<To, slot_map>) {
            bw_choose_place(kernel, 1, offsetof(slot_map, slots), bw_from_operand(BW_APPEND_SLOTS));
        }
        return BW_OK;
    });
}

rope_shape rope_of(const bw_dims *dims) {
    const int64_t *value = dims->value, tokens = value[BW_ROPE_TOKENS];
    return {tokens, tokens, 0, value[BW_ROPE_NUM_HEADS], value[BW_ROPE_NUM_KV_HEADS], value[BW_ROPE_HEAD_DIM], false};
}

rope_shape rope_append_of(const bw_dims *dims, bool moves_v) {
    const int64_t *value = dims->value, sequence = value[BW_APPEND_SEQ_LEN];
    return {value[BW_APPEND_BATCH] * sequence,
            sequence,
            value[BW_APPEND_KV_LEN],
            value[BW_ROPE_APPEND_NUM_HEADS],
            value[BW_APPEND_NUM_KV_HEADS],
            value[BW_APPEND_HEAD_DIM],
            moves_v};
}

const char *refuses(const rope_shape &shape, const bw_precision *precision) {
    const bw_checked_int items = items_of(shape, precision);
    const bool fits = !items.overflow && bw_cuda_grid_fits(bw_ceil_div(items.value, threads));
    return fits ? nullptr : "more elements than the blocks of a grid rotate (2^31 - 1 blocks)";
}

constexpr rope_operands append_operands = {BW_ROPE_APPEND_Q,     BW_APPEND_K,       BW_APPEND_V,        //
                                           BW_ROPE_APPEND_Q_OUT, BW_APPEND_K_CACHE, BW_APPEND_V_CACHE,  //
                                           BW_ROPE_APPEND_ANGLES};

}  // namespace

bw_status bw_rope_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                         bw_cuda_launch_spec *out) {
    const rope_operands of = {BW_ROPE_Q,     BW_ROPE_K,  bw_nothing,    BW_ROPE_Q_OUT,
                              BW_ROPE_K_OUT, bw_nothing, BW_ROPE_ANGLES};
    return choose_rope(rope_of(dims), precision, of, same_map(), out);
}

const char *bw_rope_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return refuses(rope_of(dims), precision);
}

bw_status bw_rope_unfused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts,
                                 bw_cuda_launch_spec *out) {
    rope_operands of = append_operands;
    of.k_out = BW_CUDA_SCRATCH;
    of.v = of.v_out = bw_nothing;
    BW_TRY(choose_rope(rope_append_of(dims, false), precision, of, same_map(), out));
    return bw_kv_append_from(BW_CUDA_SCRATCH, dims, precision, facts, out);
}

bw_status bw_rope_fused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                               bw_cuda_launch_spec *out) {
    const rope_shape shape = rope_append_of(dims, true);
    if (dims->value[BW_APPEND_PAGE_SIZE] > 0) {
        return choose_rope(shape, precision, append_operands, slot_map{nullptr, bw_divider_make(1)}, out);
    }
    const append_map map = {bw_divider_make(shape.sequence), shape.before};
    return choose_rope(shape, precision, append_operands, map, out);
}

const char *bw_rope_append_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *facts) {
    const char *why = refuses(rope_append_of(dims, true), precision);
    return why ? why : bw_kv_append_refuses(dims, precision, facts);
}
