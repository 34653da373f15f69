// attention_decode over caches of 8 bits: direct.cuh's kernels.
#include "cuda/kernels/attention/decode/direct/direct.cuh"
#include "cuda/kernels/attention/decode/direct/narrow_tile.cuh"

namespace {

// As many bytes on their way as of 16-bit elements.
template <typename T>
bw_status choose_narrow(const bw_attention_shape &shape, const bw_decode_plan &plan, const direct_work &work,
                        bw_cuda_launch_spec *out) {
    if (shape.head_dim > 192) return choose<T, 256, 1, 8, 1>(shape, plan, work, out);
    if (shape.head_dim > 128) return choose<T, 192, 2, 8, 1>(shape, plan, work, out);
    if (shape.head_dim > 64 && plan.warps == 8) return choose<T, 128, 2, 8, 1>(shape, plan, work, out);
    if (shape.head_dim > 64) return choose<T, 128, 1, 4, 4>(shape, plan, work, out);
    if (plan.warps == 8) return choose<T, 64, 2, 8, 2>(shape, plan, work, out);
    return choose<T, 64, 2, 4, 4>(shape, plan, work, out);
}

}  // namespace

bw_status bw_decode_narrow_choose(bw_dtype dtype, const bw_attention_shape &shape, const bw_decode_plan &plan,
                                  const bw_decode_exchange &exchange, bw_cuda_launch_spec *out) {
    const direct_work work = make_work(shape, plan, exchange);
    return dtype == BW_INT8 ? choose_narrow<int8_t>(shape, plan, work, out)
                            : choose_narrow<bw_e4m3>(shape, plan, work, out);
}
