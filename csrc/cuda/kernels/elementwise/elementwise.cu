// Element-wise operations of one or two arrays: a function of an element each, in tiles (kernels/common/tile.cuh).
#include "cuda/kernels/elementwise/elementwise.h"

#include "cuda/kernels/common/softmax.cuh"
#include "cuda/kernels/common/tile.cuh"
#include "cuda/kernels/elementwise/function.cuh"
#include "ops/families/elementwise.h"

namespace {

struct relu {
    static constexpr bool is_light = true;
    static __device__ float of(float x, float) {
        return positive_part(x);
    }
};

// max(x, 0) less |x| times the normal distribution's share above it: neither cancels where it matters.
struct gelu {
    static constexpr bool is_light = false;
    static __device__ float of(float x, float) {
        constexpr float power[BW_TAIL_TERMS] = BW_TAIL_POWERS;
        const float size = fminf(fabsf(x), BW_TAIL_END);
        float sum = power[0];
#pragma unroll
        for (int term = 1; term < BW_TAIL_TERMS; term++) sum = fmaf(sum, size, power[term]);
        return fmaf(-size, bw_exp2(sum), positive_part(x));
    }
};

struct residual_add {
    static __device__ float of(float x, float residual) {
        return x + residual;
    }
};

struct silu_mul {
    static __device__ float of(float gate, float up) {
        return __fdividef(gate, 1.0f + bw_exp2(-1.44269504f * gate)) * up;
    }
};

template <typename Element, int count, typename Function>
struct map_op {
    using T = Element;
    static constexpr int elems = 16 / (int)sizeof(T);
    const T *in[count];
    T *out;
    struct constants {};
    struct inputs {
        uint4 in[count];
    };
    __device__ constants begin() const {
        return {};
    }
    __device__ inputs load(int64_t i) const {
        inputs loaded;
#pragma unroll
        for (int c = 0; c < count; c++) loaded.in[c] = bw_load_once((const uint4 *)in[c] + i);
        return loaded;
    }
    __device__ void store(int64_t i, const constants &, const inputs &loaded) const {
        float x[elems], y[elems];
        bw_unpack(loaded.in[0], x, T());
        bw_unpack(loaded.in[count - 1], y, T());
#pragma unroll
        for (int e = 0; e < elems; e++) x[e] = Function::of(x[e], y[e]);
        bw_store_once((uint4 *)out + i, bw_pack(x, T()));
    }
    __device__ void element(int64_t i) const {
        bw_from_float(Function::of(bw_to_float(in[0][i]), bw_to_float(in[count - 1][i])), &out[i]);
    }
};

template <typename Function>
bw_status choose_one(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using Op = map_op<typename decltype(tag)::type, 1, Function>;
        const int64_t elements = dims->value[BW_ELEMENTWISE_ELEMENTS];
        const bw_address from = bw_from_operand(BW_ELEMENTWISE_A), to = bw_from_operand(BW_ELEMENTWISE_OUT);
        if constexpr (Function::is_light) return bw_choose_copy_tiles(elements, out, Op{}, from, to);
        return bw_choose_tiles(elements, out, Op{}, {from, to});
    });
}

template <typename Function>
bw_status choose_two(const bw_dims *dims, const bw_precision *precision, bw_cuda_launch_spec *out) {
    return bw_cuda_by_type(precision->activation, [&](auto tag) {
        using T = typename decltype(tag)::type;
        return bw_choose_tiles(dims->value[BW_ELEMENTWISE_ELEMENTS], out, map_op<T, 2, Function>{},
                               {bw_from_operand(BW_ELEMENTWISE_A), bw_from_operand(BW_ELEMENTWISE_B),
                                bw_from_operand(BW_ELEMENTWISE_OUT)});
    });
}

}  // namespace

#define BW_CHOOSE(function, choose)                                                                               \
    bw_status bw_##function##_choose(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *, \
                                     bw_cuda_launch_spec *out) {                                                  \
        return choose<function>(dims, precision, out);                                                            \
    }
BW_CHOOSE(relu, choose_one)
BW_CHOOSE(gelu, choose_one)
BW_CHOOSE(residual_add, choose_two)
BW_CHOOSE(silu_mul, choose_two)

const char *bw_elementwise_refuses(const bw_dims *dims, const bw_precision *precision, const bw_device_facts *) {
    return bw_tiles_refuse(dims->value[BW_ELEMENTWISE_ELEMENTS], precision, bw_tile_bytes);
}
