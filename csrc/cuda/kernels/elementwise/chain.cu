// bias_relu_dropout_residual: its steps in tiles (kernels/common/tile.cuh), each alone or all in one kernel.
#include "cuda/kernels/common/divide.cuh"
#include "cuda/kernels/common/tile.cuh"
#include "cuda/kernels/elementwise/elementwise.h"
#include "cuda/kernels/elementwise/function.cuh"
#include "ops/families/elementwise.h"

namespace {

enum { BIAS = 1, RELU = 2, DROPOUT = 4, RESIDUAL = 8, ALL = 15 };

struct chain_work {
    bw_divider by_hidden;
    uint64_t seed;
    uint32_t threshold;
    float growth;
};

// `whole`: a vector's biases are a vector, too.
template <typename Element, int steps, bool whole>
struct chain_op {
    using T = Element;
    static constexpr int elems = 16 / (int)sizeof(T);
    const T *x, *bias, *residual;
    T *out;
    chain_work work;
    struct constants {};
    struct inputs {
        uint4 x, bias, residual;
    };
    __device__ constants begin() const {
        return {};
    }
    __device__ int64_t column(int64_t element) const {
        return element - work.by_hidden.quotient(element) * work.by_hidden.divisor;
    }
    __device__ inputs load(int64_t i) const {
        inputs loaded = {};
        loaded.x = bw_load_once((const uint4 *)x + i);
        if (steps & RESIDUAL) loaded.residual = bw_load_once((const uint4 *)residual + i);
        if (steps & BIAS && whole) loaded.bias = bw_load_cached(bias + column(i * elems));
        return loaded;
    }
    __device__ float step(float value, float bias, bool stays, float residual) const {
        if (steps & BIAS) value += bias;
        if (steps & RELU) value = positive_part(value);
        if (steps & DROPOUT) value *= stays ? work.growth : 0.0f;
        return steps & RESIDUAL ? value + residual : value;
    }
    __device__ void store(int64_t i, const constants &, const inputs &loaded) const {
        float value[elems], biases[elems], residuals[elems];
        bw_unpack(loaded.x, value, T());
        bw_unpack(loaded.bias, biases, T());
        bw_unpack(loaded.residual, residuals, T());
        if (steps & BIAS && !whole) {
            int64_t at = column(i * elems);
#pragma unroll
            for (int e = 0; e < elems; e++) {
                biases[e] = bw_to_float(__ldg(bias + at));
                if (++at == work.by_hidden.divisor) at = 0;
            }
        }
        const int64_t element = i * elems;
        bw_dropout_numbers numbers = {};
        if (steps & DROPOUT) numbers = bw_dropout_draw(work.seed, (uint64_t)(element / BW_DROPOUT_CALL));
#pragma unroll
        for (int e = 0; e < elems; e++) {
            const bool stays = bw_dropout_stays(&numbers, (int)(element % BW_DROPOUT_CALL) + e, work.threshold);
            value[e] = step(value[e], biases[e], stays, residuals[e]);
        }
        bw_store_once((uint4 *)out + i, bw_pack(value, T()));
    }
    __device__ void element(int64_t i) const {
        const float bias_of = steps & BIAS ? bw_to_float(bias[column(i)]) : 0.0f;
        const float residual_of = steps & RESIDUAL ? bw_to_float(residual[i]) : 0.0f;
        const bool stays = steps & DROPOUT && bw_dropout_keeps(work.seed, (uint64_t)i, work.threshold);
        bw_from_float(step(bw_to_float(x[i]), bias_of, stays, residual_of), &out[i]);
    }
};

template <int steps>
bw_status choose(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out, bw_address x,
                 bw_address to) {
    const int64_t *value = dims->value, hidden = value[BW_CHAIN_HIDDEN], percent = value[BW_CHAIN_DROPOUT_PERCENT];
    const chain_work work = {bw_divider_make(hidden), (uint64_t)value[BW_CHAIN_MASK_SEED],
                             bw_dropout_threshold(percent), bw_dropout_growth(percent)};
    const bw_address bias = bw_from_operand(BW_CHAIN_BIAS), residual = bw_from_operand(BW_CHAIN_RESIDUAL);
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const int64_t elements = value[BW_CHAIN_TOKENS] * hidden;
        if (steps & BIAS && hidden % (16 / (int)sizeof(T))) {
            chain_op<T, steps, false> op = {};
            op.work = work;
            return bw_choose_tiles(elements, out, op, {x, bias, residual, to});
        }
        chain_op<T, steps, true> op = {};
        op.work = work;
        return bw_choose_tiles(elements, out, op, {x, bias, residual, to});
    });
}

}  // namespace

bw_status bw_chain_unfused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                  bw_cuda_launch_spec *out) {
    const bw_address one = bw_from_scratch(0), other = bw_from_scratch(bw_chain_place_bytes(dims, precision));
    BW_TRY(choose<BIAS>(dims, precision, out, bw_from_operand(BW_CHAIN_X), one));
    BW_TRY(choose<RELU>(dims, precision, out, one, other));
    BW_TRY(choose<DROPOUT>(dims, precision, out, other, one));
    return choose<RESIDUAL>(dims, precision, out, one, bw_from_operand(BW_CHAIN_OUT));
}

bw_status bw_chain_fused_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *,
                                bw_cuda_launch_spec *out) {
    return choose<ALL>(dims, precision, out, bw_from_operand(BW_CHAIN_X), bw_from_operand(BW_CHAIN_OUT));
}

const char *bw_chain_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return bw_tiles_refuse(dims->value[BW_CHAIN_TOKENS] * dims->value[BW_CHAIN_HIDDEN], precision, bw_tile_bytes);
}
