// attention_decode for up to 8 query heads per K/V head, elements of 16 and 32 bits: direct.cuh's kernels.
#include "cuda/kernels/attention/decode/direct/direct.cuh"

bw_status bw_decode_direct_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                  const bw_decode_exchange &exchange, bw_cuda_launch_spec *out) {
    const direct_work work = make_work(shape, plan, exchange);
    if (dtype == BW_FP32) return choose<float, 64, 1, 4, 2>(shape, plan, work, out);
    return bw_cuda_by_half_type(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (shape.head_dim > 192) return choose<T, 256, 1, 8, 1>(shape, plan, work, out);
        if (shape.head_dim > 128) return choose<T, 192, 1, 8, 1>(shape, plan, work, out);
        if (plan.warps == 12) return choose<T, 128, 1, 12, 1>(shape, plan, work, out);
        if (shape.head_dim > 64 && plan.warps == 8) return choose<T, 128, 1, 8, 1>(shape, plan, work, out);
        if (shape.head_dim > 64) return choose<T, 128, 1, 4, 3>(shape, plan, work, out);
        if (plan.warps == 4) return choose<T, 64, 1, 4, 4>(shape, plan, work, out);
        return choose<T, 64, 1, 8, 2>(shape, plan, work, out);
    });
}
